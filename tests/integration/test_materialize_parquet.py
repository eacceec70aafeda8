"""Parquet files, exactly once: a crash, a lost reply or a second Acknowledge at every message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.base.ids import GlobalId
from headwater.materialize.checkpoint import Position
from headwater.materialize.combine import Bound
from headwater.materialize.definition import (
    Binding,
    Definition,
    Endpoint,
    delivered_schema,
    to_spec,
    to_validate,
)
from headwater.materialize.delivery import Delivery, Transaction
from headwater.materialize.drivers.parquet import STAGED, ParquetDriver, StagedFileLost
from headwater.materialize.protocol import messages as m
from headwater.materialize.protocol.specs import MaterializationSpec
from headwater.materialize.resources import resource_config
from headwater.materialize.transport.in_process import InProcess
from headwater.persist.blob import open_blob
from headwater.testing.servers import S3Server
from tests.integration.faulty_stream import Crash, Faulty
from tests.simulation.materialize_bank import (
    FULL,
    NAME,
    SCHEMA,
    TIMES,
    Bank,
    SharedLog,
)

pytestmark = pytest.mark.server

BINDING = Binding("bank", GlobalId(1), "log", ("account", "seq"), delta_updates=True)
DELIVERED = delivered_schema(BINDING, SCHEMA, hard_delete=True)
BOUND = Bound(0, BINDING, "log.v0", DELIVERED)


def _spec(url: str) -> MaterializationSpec:
    definition = Definition(NAME, "", Endpoint("parquet", {"url": url}), (BINDING,), ())
    with closing(ParquetDriver()) as driver:
        (said,) = driver.respond(m.Spec())
        assert isinstance(said, m.Specified)
        resource = resource_config(said, BINDING.target, delta_updates=True)
        asked = to_validate(definition, [resource], [DELIVERED])
        (answer,) = driver.respond(asked)
    assert isinstance(answer, m.Validated)
    return to_spec(definition, asked, answer)


def _read(url: str) -> list[tuple[object, ...]]:
    with closing(open_blob(url)) as blob:
        rows: list[tuple[object, ...]] = []
        for found in blob.list("log/"):
            table = pq.read_table(pa.BufferReader(blob.get(found.key)))
            assert table.schema.names == ["account", "seq", "_meta/op", "amount", "balance"]
            rows += [tuple(row.values()) for row in table.to_pylist()]
        return sorted(rows, key=repr)


def _expected(bank: Bank, upper: int) -> list[tuple[object, ...]]:
    rows = [(b.account, b.seq, "c", b.amount, b.balance) for b in bank.bookings if b.time < upper]
    return sorted(rows, key=repr)


def _session(
    url: str, spec: MaterializationSpec, bank: Bank, log: SharedLog, stream: InProcess
) -> None:
    delivery = Delivery(stream, spec, "v1", FULL, log.opened(FULL), source=NAME)
    # Whatever was committed is there as soon as the driver has acknowledged.
    delivery.settle()
    time = 0 if delivery.position is None else delivery.position.time
    assert _read(url) == _expected(bank, time)
    for upper in range(time + 2, TIMES + 1, 2):
        combined = BOUND.combined(bank.updates(upper - 2, upper), upper, FULL)
        delivery.transact(Transaction.of([combined.stores(())], Position(upper)))
    delivery.end()


def _run(url: str, fault: str, event: int) -> bool:
    """Run to the end over one fault; return whether it struck."""
    bank, log, spec, left = Bank(event), SharedLog(), _spec(url), [event]
    for _ in range(2):
        driver = ParquetDriver()
        try:
            _session(url, spec, bank, log, Faulty(driver, fault, left))
            break
        except Crash:
            driver.close()
    assert _read(url) == _expected(bank, TIMES)
    with closing(open_blob(url)) as blob:
        assert not list(blob.list(f"{STAGED}/"))
    return left[0] < 0


@pytest.mark.parametrize("fault", ["crash", "lost reply", "replay"])
def test_every_event(tmp_path: Path, fault: str) -> None:
    event = 0
    while _run(str(tmp_path / str(event)), fault, event):
        event += 1
    assert event > 10


def test_in_a_bucket(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    assert _run("s3://headwater-test/parquet", "crash", 8)


def test_two_in_one_place_leave_each_other_alone(tmp_path: Path) -> None:
    """What one has committed and not applied is no garbage of the other's."""
    url, bank, log, left = str(tmp_path), Bank(1), SharedLog(), [9]
    spec = _spec(url)
    with pytest.raises(Crash):
        _session(url, spec, bank, log, Faulty(ParquetDriver(), "crash", left))
    other = replace(spec, name="another")
    Delivery(InProcess(ParquetDriver()), other, "v1", FULL, SharedLog().opened(FULL)).end()
    _session(url, spec, bank, log, InProcess(ParquetDriver()))
    assert _read(url) == _expected(bank, TIMES)


class AppliesUnderAnyName(ParquetDriver):
    """Gives a file a new name each time: not idempotent."""

    _count = 0

    def _applied(self) -> object:  # type: ignore[override]
        for staged, final in self._state.staged.items():
            content = self._place.get(staged)
            AppliesUnderAnyName._count += 1
            assert content is not None
            self._place.create(final.replace(".parquet", f"-{self._count}.parquet"), content)
        return self._patch({"staged": dict.fromkeys(self._state.staged)})


class PublishesAtOnce(ParquetDriver):
    """Does not wait for the commit."""

    def _staged(self) -> object:  # type: ignore[override]
        state = super()._staged()
        super()._applied()
        return state


@pytest.mark.parametrize("defect", [AppliesUnderAnyName, PublishesAtOnce])
def test_planted_defects_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, defect: type[ParquetDriver]
) -> None:
    monkeypatch.setitem(globals(), "ParquetDriver", defect)

    def seen() -> Iterator[bool]:
        for event in range(60):
            try:
                _run(str(tmp_path / str(event)), "crash", event)
                yield False
            except (AssertionError, StagedFileLost):
                yield True

    assert any(seen())


def test_a_file_that_somebody_removed_is_missed(tmp_path: Path) -> None:
    url = str(tmp_path / "files")
    bank, log, spec, left = Bank(1), SharedLog(), _spec(url), [9]
    with pytest.raises(Crash):
        _session(url, spec, bank, log, Faulty(ParquetDriver(), "crash", left))
    with closing(open_blob(url)) as blob:
        for found in list(blob.list(f"{STAGED}/")):
            blob.delete(found.key)
    with pytest.raises(StagedFileLost, match="somebody else removed it"):
        _session(url, spec, bank, log, InProcess(ParquetDriver()))

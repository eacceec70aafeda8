"""Delta Lake, exactly once: a fault at every message, sessions in each other's way, real tables.

The bank of the consistency suite is delivered by a ``sum`` binding, a log and the accounts as they
are. The judge reads the tables itself, with delta-rs alone: as soon as a session's driver has
acknowledged, they are the oracle's at the time of the recovery log's checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from headwater.base.errors import HeadwaterError
from headwater.materialize.drivers.delta import STAGED, DeltaDriver, StagedWorkLost
from headwater.materialize.drivers.delta_staging import statistics_json
from headwater.materialize.drivers.delta_tables import Tables, Work
from headwater.materialize.key_range import KeyRange
from headwater.materialize.protocol import messages as m
from headwater.materialize.splits import inherited
from headwater.materialize.transport.in_process import InProcess
from headwater.materialize.wire.framing import Codec
from headwater.persist.blob import open_blob
from headwater.persist.errors import Fenced
from headwater.testing.servers import S3Server
from tests.integration.faulty_stream import Crash
from tests.integration.materialize_lake import (
    STEP,
    Session,
    crash_on_acknowledge,
    judge,
    read_table,
    run,
    spec_of,
)
from tests.integration.materialize_places import OverTheWire
from tests.simulation.materialize_bank import FULL, TIMES, Bank, SharedLog
from tests.simulation.planted_drivers import without_last

pytestmark = pytest.mark.server

STRIDE = 13
"""Every so manieth event is struck each time; all of them in ``make soak``."""


@pytest.mark.parametrize("stride", [STRIDE, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("fault", ["crash", "lost reply", "replay"])
def test_every_event(tmp_path: Path, fault: str, stride: int) -> None:
    event = ["crash", "lost reply", "replay"].index(fault)
    while run(str(tmp_path / str(event)), fault, event):
        event += stride
    assert event > 10


def test_in_a_bucket(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")  # For the judge; the driver knows.
    # Between the commit in the recovery log and Acknowledge, and in the middle of the next one.
    assert run("s3://headwater-test/delta", "crash", 14)


@pytest.mark.parametrize("codec", Codec)
def test_over_the_wire(tmp_path: Path, codec: Codec) -> None:
    assert run(str(tmp_path), "crash", 14, lambda: OverTheWire(DeltaDriver(), codec))


@pytest.mark.parametrize("commits", [0, 1])
def test_a_zombie_applies_nothing_twice(tmp_path: Path, commits: int) -> None:
    """A session that froze between its commit and Acknowledge thaws after others went on."""
    url, bank, log = str(tmp_path), Bank(3), SharedLog()
    spec = spec_of(url)
    frozen: list[m.Message] = []

    def freeze(message: m.Message) -> None:
        if isinstance(message, m.Acknowledge) and zombie.time == 2 * STEP:
            frozen.append(message)
            raise Crash

    driver = DeltaDriver()
    zombie = Session(url, spec, bank, log, InProcess(driver, freeze))
    zombie.deliver(STEP)
    with pytest.raises(Crash):
        zombie.deliver(2 * STEP)
    other = Session(url, spec, bank, log, InProcess(DeltaDriver()))
    other.settle()
    for upper in range(3 * STEP, (3 + commits) * STEP, STEP):
        other.deliver(upper)
        other.settle()
    (acknowledge,) = frozen
    assert isinstance(acknowledge, m.Acknowledge)
    list(driver.respond(acknowledge))
    judge(url, bank, other.time)
    other.to_the_end()
    judge(url, bank, TIMES)


@pytest.mark.parametrize("how", ["append", "merge", "file"])
def test_two_that_apply_the_same_work_at_once(tmp_path: Path, how: str) -> None:
    """Both have seen that it is not there yet: delta-rs lets one of them commit."""
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False)])
    DeltaTable.create(tmp_path / "t", schema)
    rows = pa.table({"k": [1, 2]})
    marked = rows.append_column("__headwater_delete", pa.array([False, False]))
    work = Work("t", ("k",), merge=how == "merge", app="a", version=0, owner="o", generation=0)
    if how == "file":
        pq.write_table(rows, tmp_path / "t" / "f.parquet")
        known = statistics_json(pq.read_metadata(tmp_path / "t" / "f.parquet"), schema)
        size = (tmp_path / "t" / "f.parquet").stat().st_size
        work = msgspec.structs.replace(work, added=known, size=size)

    def apply(tables: Tables) -> None:
        if how == "file":
            tables.add_file(work, "f.parquet")
        else:
            tables.apply(work, marked if work.merge else rows)

    class Beaten(Tables):
        """Another comes first, after it has looked."""

        def is_applied(self, work: Work) -> bool:
            found = super().is_applied(work)
            if not found:
                apply(Tables(str(tmp_path)))
            return found

    apply(Beaten(str(tmp_path)))
    assert read_table(str(tmp_path), "t", "k") == [(1,), (2,)]


def test_a_backfill_empties_and_fences(tmp_path: Path) -> None:
    url, bank, log = str(tmp_path), Bank(5), SharedLog()
    spec = spec_of(url)
    driver = DeltaDriver()
    zombie = Session(url, spec, bank, log, InProcess(driver))

    def freeze(message: m.Message) -> None:
        if isinstance(message, m.Acknowledge):
            raise Crash

    zombie.deliver(STEP)
    zombie.delivery.settle()
    zombie.delivery._stream._watch = freeze  # type: ignore[attr-defined]
    with pytest.raises(Crash):
        zombie.deliver(2 * STEP)
    # What it has committed is not applied; everything is delivered anew, and then it thaws.
    anew = spec_of(url, backfill=1, last=spec)
    assert read_table(url, "log", "seq") == read_table(url, "accounts", "account") == []
    list(driver.respond(m.Acknowledge()))
    assert read_table(url, "log", "seq") == read_table(url, "accounts", "account") == []
    entry = log.entries[FULL]
    log.entries[FULL] = msgspec.structs.replace(entry, position=None, max_keys=())
    Session(url, anew, bank, log, InProcess(DeltaDriver())).delivery.settle()
    Session(url, anew, bank, log, InProcess(DeltaDriver())).to_the_end()
    judge(url, bank, TIMES)


def test_rows_that_somebody_removed_are_missed(tmp_path: Path) -> None:
    url, bank, log, spec = str(tmp_path), Bank(1), SharedLog(), spec_of(str(tmp_path))
    driver = DeltaDriver()
    session = Session(url, spec, bank, log, InProcess(driver))
    session.deliver(STEP)
    session.delivery.settle()
    session.delivery._stream._watch = crash_on_acknowledge  # type: ignore[attr-defined]
    with pytest.raises(Crash):
        session.deliver(2 * STEP)
    with closing(open_blob(url)) as blob:
        for found in list(blob.list(f"{STAGED}/")):
            blob.delete(found.key)
    with pytest.raises(StagedWorkLost, match="somebody else removed it"):
        Session(url, spec, bank, log, InProcess(DeltaDriver())).settle()


def test_shards_split_join_and_commit_at_once(tmp_path: Path) -> None:
    """What the parent has staged its children apply, once; and they write to one table at once."""
    url, bank, log = str(tmp_path), Bank(11), SharedLog()
    spec = spec_of(url)
    parent = Session(url, spec, bank, log, InProcess(DeltaDriver()))
    parent.settle()
    parent.delivery._stream._watch = crash_on_acknowledge  # type: ignore[attr-defined]
    with pytest.raises(Crash):
        parent.deliver(STEP)
    halves = FULL.split()
    for half in halves:
        log.entries[half] = inherited({FULL: log.entries[FULL]}, half)

    def deliver(half: KeyRange) -> None:
        session = Session(url, spec, bank, log, InProcess(DeltaDriver()), half)
        for upper in range(2 * STEP, TIMES - STEP + 1, STEP):
            session.deliver(upper)
        session.delivery.end()

    with ThreadPoolExecutor(len(halves)) as pool:
        list(pool.map(deliver, halves))
    judge(url, bank, TIMES - STEP)
    log.entries[FULL] = inherited({half: log.entries[half] for half in halves}, FULL)
    Session(url, spec, bank, log, InProcess(DeltaDriver())).to_the_end()
    judge(url, bank, TIMES)


# ---- defects -------------------------------------------------------------------------------------


class AppliesAgain(Tables):
    """Does not ask the table before it commits."""

    def is_applied(self, work: Work) -> bool:
        self.newest(work.table)
        return False


class AppliesAtOnce(DeltaDriver):
    """Does not wait for the commit."""

    def _committed(self) -> Any:
        state = super()._committed()
        for file, work in self._states.get(self._range).staged.items():  # type: ignore[union-attr]
            content = self._place.get(file)
            assert content is not None
            self._apply(file, work)
            self._place.create(file, content)
        return state


class ForgetsWhatIsDue(DeltaDriver):
    """Takes what it finds staged for the work of a transaction that never committed."""

    def _open(self, request: m.Open) -> None:
        super()._open(replace(request, state_json=b""))


class DropsADocument(DeltaDriver):
    """Loses the last row of several."""

    def _store(self, request: m.StoreMany) -> None:
        super()._store(without_last(request))


class SecondMind(DeltaDriver):
    """Its tables do not ask."""

    def _connect(self, config_json: bytes) -> None:
        super()._connect(config_json)
        self._tables = AppliesAgain(msgspec.json.decode(config_json)["path"])


@pytest.mark.parametrize(
    ("defect", "fault"),
    [
        (SecondMind, "replay"),
        (AppliesAtOnce, "crash"),
        (ForgetsWhatIsDue, "crash"),
        (DropsADocument, "crash"),
    ],
)
def test_planted_defects_are_seen(tmp_path: Path, defect: type[DeltaDriver], fault: str) -> None:
    if defect is SecondMind:
        assert _doubles(tmp_path)
        return

    def seen() -> Iterator[bool]:
        for event in range(10, 60, 2):
            try:
                run(str(tmp_path / str(event)), fault, event, defect)
                yield False
            except (AssertionError, HeadwaterError):
                yield True

    assert any(seen())


def _doubles(tmp_path: Path) -> bool:
    """Return whether a crash between the table's commit and the deletion of what was staged does
    harm to a driver that does not ask."""
    url, bank, log = str(tmp_path), Bank(3), SharedLog()
    spec = spec_of(url)
    # Rows are appended here; a file is in its table once, also if it is added twice.
    DeltaTable(tmp_path / "log").alter.add_constraint({"counted": "seq > 0"})

    def lost(message: m.Message) -> None:
        if isinstance(message, m.Acknowledged):
            raise Crash

    driver = SecondMind()
    session = Session(url, spec, bank, log, InProcess(driver))
    session.settle()
    keep = driver._place.delete
    driver._place.delete = lambda key: True  # type: ignore[method-assign]
    session.delivery._stream._watch = lost  # type: ignore[attr-defined]
    with pytest.raises(Crash):
        session.deliver(STEP)
    driver._place.delete = keep  # type: ignore[method-assign]
    try:
        Session(url, spec, bank, log, InProcess(SecondMind())).to_the_end()
    except AssertionError:
        return True
    return False


# ---- types, shapes, keys -------------------------------------------------------------------------


def test_a_session_that_was_replaced_commits_nothing(tmp_path: Path) -> None:
    url, bank, log = str(tmp_path), Bank(7), SharedLog()
    spec = spec_of(url)
    zombie = Session(url, spec, bank, log, InProcess(DeltaDriver()))
    zombie.deliver(STEP)
    owner = Session(url, spec, bank, log, InProcess(DeltaDriver()))
    owner.settle()
    owner.deliver(2 * STEP)
    with pytest.raises(Fenced):
        zombie.deliver(STEP + 1)
    owner.to_the_end()
    judge(url, bank, TIMES)

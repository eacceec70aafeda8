"""What is Delta Lake's own: commits of delta-rs, files that become a table's, buckets, others.

What all lakes have in common: ``test_materialize_lakes`` and ``test_materialize_lake_tables``.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from headwater.base.errors import HeadwaterError, InvalidUsage
from headwater.materialize.changes import changes
from headwater.materialize.checkpoint import Position
from headwater.materialize.delivery import Transaction as Delivered
from headwater.materialize.drivers.delta import STAGED, DeltaDriver, StagedWorkLost
from headwater.materialize.drivers.delta_staging import statistics_json
from headwater.materialize.drivers.delta_tables import Tables, Work
from headwater.materialize.protocol import messages as m
from headwater.materialize.selection import FieldRefused
from headwater.materialize.transport.in_process import InProcess
from headwater.persist.blob import open_blob
from headwater.testing.servers import S3Server
from tests.integration.faulty_stream import Crash
from tests.integration.materialize_lake import (
    BINDING,
    SCHEMA,
    STEP,
    DeltaLake,
    Row,
    Session,
    crash_on_acknowledge,
    named_target,
    read_table,
    run,
    session_of,
    spec_of,
    updates,
)
from tests.integration.materialize_places import Memory
from tests.simulation.materialize_bank import FULL, Bank, SharedLog

pytestmark = pytest.mark.server


def test_in_a_bucket(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")  # For the judge; the driver knows.
    # Between the commit in the recovery log and Acknowledge, and in the middle of the next one.
    assert run(DeltaLake("s3://headwater-test/delta"), "crash", 14)


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
    assert read_table(DeltaLake(tmp_path), "t", "k") == [(1,), (2,)]


def test_rows_that_somebody_removed_are_missed(tmp_path: Path) -> None:
    lake, bank, log = DeltaLake(tmp_path), Bank(1), SharedLog()
    spec = spec_of(lake)
    driver = DeltaDriver()
    session = Session(lake, spec, bank, log, InProcess(driver))
    session.deliver(STEP)
    session.delivery.settle()
    session.delivery._stream._watch = crash_on_acknowledge  # type: ignore[attr-defined]
    with pytest.raises(Crash):
        session.deliver(2 * STEP)
    with closing(open_blob(lake.url)) as blob:
        for found in list(blob.list(f"{STAGED}/")):
            blob.delete(found.key)
    with pytest.raises(StagedWorkLost, match="somebody else removed it"):
        Session(lake, spec, bank, log, InProcess(DeltaDriver())).settle()


class AppliesAgain(Tables):
    """Does not ask the table before it commits."""

    def is_applied(self, work: Work) -> bool:
        self.newest(work.table)
        return False


class SecondMind(DeltaDriver):
    """Its tables do not ask."""

    def _connect(self, config: Mapping[str, Any]) -> None:
        super()._connect(config)
        self._found = AppliesAgain(config["path"])


def test_a_driver_that_does_not_ask_doubles(tmp_path: Path) -> None:
    """The planted defect is seen: a crash between the table's commit and the deletion of what was
    staged."""
    lake, bank, log = DeltaLake(tmp_path), Bank(3), SharedLog()
    spec = spec_of(lake)
    # Rows are appended here; a file is in its table once, also if it is added twice.
    DeltaTable(tmp_path / "log").alter.add_constraint({"counted": "seq > 0"})

    def lost(message: m.Message) -> None:
        if isinstance(message, m.Acknowledged):
            raise Crash

    driver = SecondMind()
    session = Session(lake, spec, bank, log, InProcess(driver))
    session.settle()
    keep = driver._place.delete
    driver._place.delete = lambda key: True  # type: ignore[method-assign]
    session.delivery._stream._watch = lost  # type: ignore[attr-defined]
    with pytest.raises(Crash):
        session.deliver(STEP)
    driver._place.delete = keep  # type: ignore[method-assign]
    with pytest.raises(AssertionError):
        Session(lake, spec, bank, log, InProcess(SecondMind())).to_the_end()


def test_files_of_new_rows_are_not_written_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pieces: what is new alone becomes a file of the table, what is mixed is merged."""
    monkeypatch.setattr("headwater.materialize.delivery.ROWS_AT_ONCE", 3)
    lake, log = DeltaLake(tmp_path), Memory()
    delivery = session_of(lake, spec_of(lake, [BINDING], [SCHEMA]), log)
    story: list[list[tuple[Row, int, int]]] = [
        [((k, f"v{k}"), 1, 1) for k in range(8)],
        [*(((k, "n"), 2, 1) for k in range(-6, 0)), ((7, "v7"), 2, -1), ((7, "w"), 2, 1)],
    ]
    for upper, triples in enumerate(story, 2):
        store = changes(0, ["k"], updates(SCHEMA, *triples), upper, FULL)
        delivery.transact(Delivered.of([store], Position(upper)))
        delivery.settle()
        files = [Path(file).name for file in DeltaTable(tmp_path / "target").file_uris()]
        if upper == 2:
            (only,) = files
            assert only.startswith("headwater-")
            actions = DeltaTable(tmp_path / "target").get_add_actions(flatten=True)
            (known,) = pa.table(actions).to_pylist()
            assert (known["num_records"], known["min.k"], known["max.k"]) == (8, 0, 7)
            assert (known["min.v"], known["null_count.v"]) == ("v0", 0)
    delivery.end()
    expected = [*((k, "n") for k in range(-6, 0)), *((k, f"v{k}") for k in range(7)), (7, "w")]
    assert sorted(read_table(lake, "target", "k", "v")) == expected


def test_a_table_that_is_not_plain_gets_rows_not_files(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
    DeltaTable.create(tmp_path / "target", SCHEMA, partition_by=["v"])
    constrained = DeltaTable.create(tmp_path / "t1", SCHEMA)
    constrained.alter.add_constraint({"positive": "k > 0"})
    for target in ("target", "t1", "Upper"):
        delivery = session_of(lake, spec_of(lake, [named_target(target)], [SCHEMA]), Memory())
        store = changes(0, ["k"], updates(SCHEMA, ((1, "a"), 1, 1)), 2, FULL)
        delivery.transact(Delivered.of([store], Position(2)))
        delivery.end()
        assert read_table(lake, target, "k", "v") == [(1, "a")]
        files = [Path(file).name for file in DeltaTable(tmp_path / target).file_uris()]
        assert not any(name.startswith("headwater-") for name in files)


def test_names_that_delta_cannot_have_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FieldRefused, match="no space"):
        spec_of(DeltaLake(tmp_path), [BINDING], [pa.schema([*SCHEMA, ("a b", pa.int64())])])
    for target in ("../out", "a b", "_staged/x", ""):
        with pytest.raises(InvalidUsage):
            spec_of(DeltaLake(tmp_path), [named_target(target)], [SCHEMA])
    assert not (tmp_path.parent / "out").exists()


def test_others_may_write_and_our_marks_stay(tmp_path: Path) -> None:
    """Compaction by somebody else between two transactions is not in the way."""
    lake, log = DeltaLake(tmp_path), Memory()
    delivery = session_of(lake, spec_of(lake, [BINDING], [SCHEMA]), log)
    for upper in range(2, 6):
        store = changes(0, ["k"], updates(SCHEMA, ((upper, "a"), upper - 1, 1)), upper, FULL)
        delivery.transact(Delivered.of([store], Position(upper)))
        delivery.settle()
        other = DeltaTable(tmp_path / "target")
        other.optimize.compact()
        mark = CommitProperties(app_transactions=[Transaction("somebody else", upper)])
        nothing = pa.schema(other.schema()).empty_table()
        write_deltalake(other, nothing, mode="append", commit_properties=mark)
    delivery.end()
    assert [row[0] for row in read_table(lake, "target", "k")] == [2, 3, 4, 5]


def test_a_place_that_is_away_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    with pytest.raises(HeadwaterError, match="file"):
        spec_of(DeltaLake(tmp_path / "file"), [BINDING], [SCHEMA])
    lake = DeltaLake(tmp_path / "there")
    delivery = session_of(lake, spec_of(lake, [BINDING], [SCHEMA]), Memory())
    shutil.rmtree(tmp_path / "there" / "target")
    store = changes(0, ["k"], updates(SCHEMA, ((1, "a"), 1, 1)), 2, FULL)
    with pytest.raises(HeadwaterError, match="target"):
        delivery.transact(Delivered.of([store], Position(2)))

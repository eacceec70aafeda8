"""What is Iceberg's own: catalogs, commits that are tried once, rows that go, tables of others.

What all lakes have in common: ``test_materialize_lakes`` and ``test_materialize_lake_tables``.
"""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import ListType, LongType, NestedField, StringType

from headwater.base.errors import Determinate, HeadwaterError, InvalidUsage
from headwater.base.ids import GlobalId
from headwater.materialize.changes import changes
from headwater.materialize.checkpoint import Position
from headwater.materialize.definition import Binding
from headwater.materialize.delivery import Delivery
from headwater.materialize.delivery import Transaction as Delivered
from headwater.materialize.drivers.iceberg import IcebergDriver
from headwater.materialize.drivers.iceberg_catalog import open_catalog
from headwater.materialize.drivers.iceberg_files import RowFiles
from headwater.materialize.drivers.iceberg_tables import StagedWorkLost, Tables, Work
from headwater.materialize.protocol import messages as m
from headwater.materialize.transport.in_process import InProcess
from headwater.testing.servers import S3Server
from tests.integration.faulty_stream import Crash
from tests.integration.materialize_lake import (
    BINDING,
    SCHEMA,
    STEP,
    IcebergLake,
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
from tests.integration.shared_location import Postgres
from tests.simulation.materialize_bank import FULL, Bank, SharedLog

pytestmark = pytest.mark.server


@pytest.fixture
def lake(tmp_path: Path) -> IcebergLake:
    return IcebergLake(tmp_path)


def _transact(delivery: Delivery, upper: int, *triples: tuple[Row, int, int]) -> None:
    store = changes(0, ["k"], updates(SCHEMA, *triples), upper, FULL)
    delivery.transact(Delivered.of([store], Position(upper)))


# ---- once ----------------------------------------------------------------------------------------


def _work(lake: IcebergLake, *, merge: bool) -> Work:
    """Return work that is staged: one row, and the key of it."""
    found = lake.table("t")
    rows, gone = RowFiles(found), RowFiles(found)
    schema = pa.schema([pa.field("k", pa.int64(), metadata={"PARQUET:field_id": "1"})])
    rows.write(pa.table({"k": [1, 2]}, schema=schema))
    gone.write(pa.table({"k": [2] if merge else []}, schema=schema))
    return Work("default.t", "a", 1, "o", 0, rows.ended(), gone.ended())


@pytest.mark.parametrize("merge", [False, True])
def test_two_that_apply_the_same_work_at_once(lake: IcebergLake, *, merge: bool) -> None:
    """Both have seen that it is not there yet: the catalog lets one of them commit."""
    lake.create("t", pa.schema([("k", pa.int64())]))
    lake.append("t", pa.table({"k": [2, 3] if merge else [3]}))
    work = _work(lake, merge=merge)

    class Beaten(Tables):
        """Another comes first, after it has looked."""

        def is_applied(self, work: Work) -> bool:
            found = super().is_applied(work)
            if not found:
                Tables(open_catalog(lake.config)).apply(work)
            return found

    Beaten(open_catalog(lake.config)).apply(work)
    assert read_table(lake, "t", "k") == [(1,), (2,), (3,)]
    assert len(lake.table("t").snapshots()) == 2


def test_a_driver_that_does_not_ask_doubles(lake: IcebergLake) -> None:
    """The planted defect is seen: who looks only at the snapshot commits again what is there."""
    lake.create("t", pa.schema([("k", pa.int64())]))
    work = _work(lake, merge=False)

    class DoesNotAsk(Tables):
        def is_applied(self, work: Work) -> bool:
            self.newest(work.table)
            return False

    for _ in range(2):
        DoesNotAsk(open_catalog(lake.config)).apply(work)
    assert read_table(lake, "t", "k") == [(1,), (1,), (2,), (2,)]


def test_a_commit_that_came_through_although_it_was_refused(
    lake: IcebergLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody on the way repeated the request: its files must stay, and it is not tried again."""
    lake.create("t", pa.schema([("k", pa.int64())]))
    work = _work(lake, merge=False)
    catalog = open_catalog(lake.config)
    commit, commits = catalog.commit_table, 0

    def repeated(*arguments: Any) -> Any:
        nonlocal commits
        commits += 1
        commit(*arguments)
        return commit(*arguments)

    monkeypatch.setattr(catalog, "commit_table", repeated)
    Tables(catalog).apply(work)
    assert commits == 1
    assert read_table(lake, "t", "k") == [(1,), (2,)]


def test_it_gives_up_at_last_and_leaves_nothing(
    lake: IcebergLake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lake.create("t", pa.schema([("k", pa.int64())]))
    lake.append("t", pa.table({"k": [2, 3]}))
    work = _work(lake, merge=True)
    files = sorted((tmp_path / "default" / "t" / "data").iterdir())
    catalog = open_catalog(lake.config)

    def refused(*_: Any) -> Any:
        raise CommitFailedException("another was first")

    monkeypatch.setattr(catalog, "commit_table", refused)
    monkeypatch.setattr("headwater.materialize.drivers.iceberg_tables._ATTEMPTS_MAX", 2)
    with pytest.raises(HeadwaterError, match=r"default\.t: another was first"):
        Tables(catalog).apply(work)
    assert sorted((tmp_path / "default" / "t" / "data").iterdir()) == files
    Tables(open_catalog(lake.config)).apply(work)
    assert read_table(lake, "t", "k") == [(1,), (2,), (3,)]


def test_rows_that_somebody_removed_are_missed(lake: IcebergLake, tmp_path: Path) -> None:
    bank, log, spec = Bank(1), SharedLog(), spec_of(lake)
    session = Session(lake, spec, bank, log, InProcess(lake.make()))
    session.deliver(STEP)
    session.delivery.settle()
    there = set(tmp_path.rglob("data/*"))
    session.delivery._stream._watch = crash_on_acknowledge  # type: ignore[attr-defined]
    with pytest.raises(Crash):
        session.deliver(2 * STEP)
    for file in {*tmp_path.rglob("data/*")} - there:
        file.unlink()
    with pytest.raises(StagedWorkLost, match="somebody else removed it"):
        Session(lake, spec, bank, log, InProcess(lake.make())).settle()


# ---- rows that go --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_rows_go_by_any_key(lake: IcebergLake, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a dictionary; files of a few rows, so that many are in play."""
    print(f"seed {seed}")
    random = Random(seed)
    monkeypatch.setattr("headwater.materialize.drivers.iceberg_files._GROUP_BYTES", 200)
    monkeypatch.setattr("headwater.materialize.drivers.iceberg_files._FILE_BYTES", 200)
    schema = pa.schema([("a", pa.string()), ("b", pa.float64()), ("v", pa.int64())])
    key = (["a"], ["b"], ["a", "b"])[seed]
    binding = Binding("orders", GlobalId(1), "target", tuple(key))
    delivery = session_of(lake, spec_of(lake, [binding], [schema]), Memory())
    rows: dict[Row, Row] = {}
    for upper in range(2, 7):
        triples: list[tuple[Row, int, int]] = []
        for _ in range(15):
            row = (random.choice("abcdefgh") * 20, random.randrange(8) / 4, random.randrange(99))
            named = tuple(row[schema.get_field_index(column)] for column in key)
            if named in rows:
                triples.append((rows.pop(named), upper - 1, -1))
            if random.random() < 0.7:
                rows[named] = row
                triples.append((row, upper - 1, 1))
        store = changes(0, key, updates(schema, *triples), upper, FULL)
        delivery.transact(Delivered.of([store], Position(upper)))
        delivery.settle()
        assert read_table(lake, "target", "a", "b", "v") == sorted(rows.values(), key=repr)
    delivery.end()
    # And a reader that knows nothing of Iceberg, over the files that the snapshot names.
    files = [task.file.file_path for task in lake.table("target").scan().plan_files()]
    assert ds.dataset(files).to_table().num_rows == len(rows)
    assert len(files) > 1


def test_only_files_with_rows_of_a_key_are_written_anew(lake: IcebergLake) -> None:
    delivery = session_of(lake, spec_of(lake, [BINDING], [SCHEMA]), Memory())
    for upper in range(2, 6):
        _transact(delivery, upper, *(((k, "old"), upper - 1, 1) for k in (upper, 100 + upper)))
    delivery.settle()
    before = {task.file.file_path for task in lake.table("target").scan().plan_files()}
    _transact(delivery, 6, ((3, "old"), 5, -1), ((3, "new"), 5, 1))
    delivery.end()
    after = {task.file.file_path for task in lake.table("target").scan().plan_files()}
    assert len(before - after) == 1
    assert len(after - before) == 2
    assert read_table(lake, "target", "k", "v")[:3] == [(102, "old"), (103, "old"), (104, "old")]
    assert (3, "new") in read_table(lake, "target", "k", "v")


# ---- tables of others ----------------------------------------------------------------------------

OTHERS = Schema(
    NestedField(1, "k", LongType(), required=True),
    NestedField(2, "v", StringType()),
    NestedField(3, "theirs", ListType(4, StringType(), element_required=False)),
)
VALUES = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "v"))


@pytest.mark.parametrize("divided", [False, True])
def test_a_table_of_others_keeps_what_is_theirs(lake: IcebergLake, *, divided: bool) -> None:
    """Columns that we do not deliver, and rows that only they wrote; also divided by a value."""
    with lake.catalog() as catalog:
        catalog.create_namespace("default")
        spec = VALUES if divided else PartitionSpec()
        theirs = catalog.create_table("default.target", OTHERS, partition_spec=spec)
        kind = pa.list_(pa.string())
        rows = {"k": [1, 2], "v": ["a", "b"], "theirs": pa.array([["x"], [None, "y"]], kind)}
        schema = pa.schema(
            [pa.field("k", pa.int64(), nullable=False), ("v", pa.string()), ("theirs", kind)]
        )
        theirs.append(pa.table(rows, schema=schema))
    delivery = session_of(lake, spec_of(lake, [BINDING], [SCHEMA]), Memory())
    _transact(delivery, 2, ((3, "b"), 1, 1), ((4, "c"), 1, 1))
    _transact(delivery, 3, ((1, "a"), 2, -1), ((3, "b"), 2, -1), ((3, "z"), 2, 1))
    delivery.end()
    assert read_table(lake, "target", "k", "v", "theirs") == [
        (2, "b", [None, "y"]),
        (3, "z", None),
        (4, "c", None),
    ]
    with lake.catalog() as catalog:  # They write on, with their own client.
        catalog.load_table("default.target").delete("k = 4")
    assert [row[0] for row in read_table(lake, "target", "k")] == [2, 3]


def test_a_version_that_cannot_be_written_is_refused_at_once(lake: IcebergLake) -> None:
    lake.create("target", SCHEMA)
    # As another engine has it: pyiceberg makes none.
    metadata = Path(lake.table("target").metadata_location)
    newer = msgspec.json.decode(metadata.read_bytes()) | {"format-version": 3, "next-row-id": 0}
    metadata.write_bytes(msgspec.json.encode(newer))
    with pytest.raises(Determinate, match="format version 3"):
        spec_of(lake, [BINDING], [SCHEMA])


# ---- catalogs ------------------------------------------------------------------------------------


def test_namespaces(lake: IcebergLake) -> None:
    for target, table in {"t": "default.t", "a.t": "a.t", "a.b.t": "a.b.t"}.items():
        before, dot, after = target.partition(".")  # As the statement's target is divided.
        resource = {"namespace": before, "table": after} if dot else {"table": target}
        validate = m.Validate(
            name="m",
            config_json=msgspec.json.encode(lake.config),
            bindings=(m.ValidateBinding(msgspec.json.encode(resource)),),
        )
        with closing(IcebergDriver()) as driver:
            (validated,) = driver.respond(validate)
        assert isinstance(validated, m.Validated)
        assert ".".join(validated.bindings[0].resource_path) == table
    for target in ("../out", "a b", "", "a..b", 'x"; DROP'):
        with pytest.raises(InvalidUsage, match="no name for an Iceberg table"):
            spec_of(lake, [named_target(target)], [SCHEMA])


def test_a_catalog_in_postgresql(postgres: Postgres, tmp_path: Path) -> None:
    lake = IcebergLake(tmp_path)
    lake.config["uri"] = postgres.dsn
    assert run(lake, "crash", 14)


def test_in_a_bucket(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    judges = {"s3.endpoint": s3.environment["AWS_ENDPOINT_URL"], "s3.region": "us-east-1"}
    lake = IcebergLake(tmp_path, "s3://headwater-test/iceberg", judges)
    # Between the commit in the recovery log and Acknowledge, and in the middle of the next one.
    assert run(lake, "crash", 14)


def test_what_is_away_says_so(lake: IcebergLake, tmp_path: Path) -> None:
    for uri, message in {
        "sqlite:////dev/null/c.db": "cannot open the Iceberg catalog sqlite:////dev/null/c.db",
        "postgresql://me:hidden@127.0.0.1:1/db": r"catalog postgresql.*://me:\*\*\*@127",
        "http://127.0.0.1:1": "cannot connect to the Iceberg catalog",
    }.items():
        lake.config["uri"] = uri
        with pytest.raises(Determinate, match=message) as raised:
            spec_of(lake, [BINDING], [SCHEMA])
        assert "hidden" not in str(raised.value)
    for uri in ("nothing", "oracle://x"):
        lake.config["uri"] = uri
        with pytest.raises(InvalidUsage):
            spec_of(lake, [BINDING], [SCHEMA])
    with pytest.raises(InvalidUsage, match="WAREHOUSE"):
        open_catalog({"uri": "sqlite://"})


def test_a_table_that_somebody_removed(lake: IcebergLake, tmp_path: Path) -> None:
    spec = spec_of(lake, [BINDING], [SCHEMA])
    delivery = session_of(lake, spec, Memory())
    _transact(delivery, 2, ((1, "a"), 1, 1))
    delivery.settle()
    shutil.rmtree(tmp_path / "default" / "target" / "data")
    with pytest.raises(HeadwaterError, match=r"default\.target"):
        _transact(delivery, 3, ((1, "a"), 2, -1), ((1, "b"), 2, 1))
    delivery = session_of(lake, spec, Memory())
    with lake.catalog() as catalog:
        catalog.drop_table("default.target")
    with pytest.raises(HeadwaterError, match="is not there any more"):
        _transact(delivery, 3, ((2, "a"), 2, 1))

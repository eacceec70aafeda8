"""The tables of a Delta lake: types, shapes, keys, files, and others who write there."""

from __future__ import annotations

import datetime as dt
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from headwater.base.errors import Determinate, HeadwaterError, InvalidUsage
from headwater.base.ids import GlobalId
from headwater.materialize.changes import changes
from headwater.materialize.checkpoint import Position
from headwater.materialize.combine import Bound, by_key
from headwater.materialize.definition import (
    Binding,
    delivered_schema,
)
from headwater.materialize.delivery import Delivery
from headwater.materialize.delivery import Transaction as Delivered
from headwater.materialize.drivers.delta import DeltaDriver
from headwater.materialize.drivers.sql import KeyTaken
from headwater.materialize.protocol import messages as m
from headwater.materialize.selection import FieldRefused
from headwater.materialize.transport.in_process import InProcess
from headwater.materialize.wire.framing import Codec
from tests.integration.faulty_stream import Crash
from tests.integration.materialize_lake import (
    BINDING,
    SCHEMA,
    Row,
    crash_on_acknowledge,
    named_target,
    read_table,
    session_of,
    spec_of,
    updates,
)
from tests.integration.materialize_places import Memory, OverTheWire
from tests.simulation.materialize_bank import FULL, NAME

pytestmark = pytest.mark.server

EVERYTHING = pa.schema(
    [
        pa.field("b", pa.bool_()),
        pa.field("i", pa.int64()),
        pa.field("f", pa.float64()),
        pa.field("d", pa.decimal128(20, 3)),
        pa.field("w", pa.decimal128(38, 0)),
        pa.field("s", pa.string()),
        pa.field("y", pa.binary()),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("local", pa.timestamp("us")),
        pa.field("l", pa.list_(pa.int64())),
        pa.field('Odd"`é', pa.int64()),
    ]
)
MOMENT = dt.datetime(2026, 11, 15, 7, 8, 9, 120_000, tzinfo=dt.UTC)
VALUES: Row = (
    True, -(2**63), 0.1, Decimal("-12.340"), Decimal(10**37), "ü'\"\\\t\x01", b"\x00\xff",
    dt.date(1, 1, 1), MOMENT, MOMENT.replace(tzinfo=None), [1, None], 1,
)  # fmt: skip


@pytest.mark.parametrize(
    ("key", "codec"),
    [
        *((key, None) for key in ("b", "i", "f", "d", "w", "s", "y", "day", "at", "local")),
        *((key, Codec.JSON) for key in ("d", "y", "at")),
    ],
)
def test_every_type_goes_there_and_comes_back(
    tmp_path: Path, key: str, codec: Codec | None
) -> None:
    binding = Binding("orders", GlobalId(1), "Target", (key,))
    spec = spec_of(str(tmp_path), [binding], [EVERYTHING])
    bound = Bound(0, binding, "x", EVERYTHING)
    driver = DeltaDriver() if codec is None else OverTheWire(DeltaDriver(), codec)
    delivery = Delivery(InProcess(driver), spec, "v1", FULL, Memory(), source=NAME)
    nulls = tuple(VALUES[at] if name == key else None for at, name in enumerate(EVERYTHING.names))
    for number, row in enumerate((VALUES, nulls)):
        store = changes(0, [key], updates(EVERYTHING, (row, 1, 1)), 2, FULL)
        store = replace(store, exists=pa.array([number > 0]))
        delivery.transact(Delivered.of([store], Position(2 + 2 * number)))
        loaded: list[m.Loaded | m.LoadedMany] = []

        def keep(found: Any, loaded: list[m.Loaded | m.LoadedMany] = loaded) -> list[m.StoreMany]:
            loaded += found.get(0, ())
            return []

        load = m.LoadMany(0, store.keys_packed)
        delivery.transact(Delivered(Position(3 + 2 * number), keep, (load,)))
        assert by_key(bound.loaded_rows(loaded)) == by_key(
            bound.loaded_rows([m.LoadedMany(0, store.rows)])
        )
    delivery.end()
    fields = msgspec.json.decode(DeltaTable(tmp_path / "Target").schema().to_json())["fields"]
    found = {field["name"]: field["type"] for field in fields}
    assert found == {
        "b": "boolean", "i": "long", "f": "double", "d": "decimal(20,3)", "w": "decimal(38,0)",
        "s": "string", "y": "binary", "day": "date", "at": "timestamp", "local": "timestamp_ntz",
        "l": "string", 'Odd"`é': "long",
    }  # fmt: skip


def test_files_of_new_rows_are_not_written_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pieces: what is new alone becomes a file of the table, what is mixed is merged."""
    monkeypatch.setattr("headwater.materialize.delivery.ROWS_AT_ONCE", 3)
    url, log = str(tmp_path), Memory()
    delivery = session_of(spec_of(url, [BINDING], [SCHEMA]), log)
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
    assert sorted(read_table(url, "target", "k", "v")) == expected


def test_a_table_that_is_not_plain_gets_rows_not_files(tmp_path: Path) -> None:
    url = str(tmp_path)
    DeltaTable.create(tmp_path / "target", SCHEMA, partition_by=["v"])
    constrained = DeltaTable.create(tmp_path / "t1", SCHEMA)
    constrained.alter.add_constraint({"positive": "k > 0"})
    for target in ("target", "t1", "Upper"):
        delivery = session_of(spec_of(url, [named_target(target)], [SCHEMA]), Memory())
        store = changes(0, ["k"], updates(SCHEMA, ((1, "a"), 1, 1)), 2, FULL)
        delivery.transact(Delivered.of([store], Position(2)))
        delivery.end()
        assert read_table(url, target, "k", "v") == [(1, "a")]
        files = [Path(file).name for file in DeltaTable(tmp_path / target).file_uris()]
        assert not any(name.startswith("headwater-") for name in files)


def test_insert_update_delete(tmp_path: Path) -> None:
    url = str(tmp_path)
    delivery = session_of(spec_of(url, [BINDING], [SCHEMA]), Memory())
    story: list[list[tuple[Row, int, int]]] = [
        [((k, "old"), 1, 1) for k in (1, 2, 3)],
        [((1, "old"), 2, -1), ((1, "new"), 2, 1), ((2, "old"), 2, -1), ((4, "x"), 2, 1)],
        [((5, "only"), 3, 1)],
        [((5, "only"), 4, -1)],
    ]
    for upper, triples in enumerate(story, 2):
        store = changes(0, ["k"], updates(SCHEMA, *triples), upper, FULL)
        delivery.transact(Delivered.of([store], Position(upper)))
    delivery.end()
    assert read_table(url, "target", "k", "v") == [(1, "new"), (3, "old"), (4, "x")]


@pytest.mark.parametrize("hard_delete", [True, False])
def test_a_second_row_of_a_key_is_refused_before_it_commits(
    tmp_path: Path, *, hard_delete: bool
) -> None:
    url = str(tmp_path)
    delivered = delivered_schema(BINDING, SCHEMA, hard_delete=hard_delete)
    bound = Bound(0, BINDING, "x", delivered)
    spec, log = spec_of(url, [BINDING], [SCHEMA], hard_delete=hard_delete), Memory()

    def transact(delivery: Delivery, upper: int, *triples: tuple[Row, int, int]) -> None:
        combined = bound.combined(updates(SCHEMA, *triples), upper, FULL)
        delivery.transact(Delivered.of([combined.stores(())], Position(upper)))

    delivery = session_of(spec, log)
    transact(delivery, 2, ((41, "a"), 1, 1), ((42, "a"), 1, 1))
    for more in ((), (((41, "a"), 2, -1), ((41, "b"), 2, 1))):
        with pytest.raises(KeyTaken, match="42"):
            transact(delivery, 3, ((42, "b"), 2, 1), *more)
        delivery = session_of(spec, log)
        assert delivery.position == Position(2)
    # What was wrong is mended, and it goes on.
    transact(delivery, 4, ((42, "a"), 3, -1), ((42, "b"), 3, 1))
    transact(delivery, 5, ((42, "b"), 4, -1))
    transact(delivery, 6, ((42, "c"), 5, 1))
    delivery.end()
    assert read_table(url, "target", "k", "v") == [(41, "a"), (42, "c")]


def test_what_somebody_else_wrote_between_two_transactions_is_seen(tmp_path: Path) -> None:
    url = str(tmp_path)
    delivery = session_of(spec_of(url, [BINDING], [SCHEMA]), Memory())

    def transact(upper: int, *triples: tuple[Row, int, int]) -> None:
        store = changes(0, ["k"], updates(SCHEMA, *triples), upper, FULL)
        delivery.transact(Delivered.of([store], Position(upper)))

    transact(2, ((41, "a"), 1, 1))
    transact(3, ((41, "a"), 2, -1), ((41, "b"), 2, 1))
    theirs = pa.table({"k": [43], "v": ["theirs"]}, schema=SCHEMA)
    write_deltalake(f"{url}/target", theirs, mode="append")
    with pytest.raises(KeyTaken, match="43"):
        transact(4, ((43, "ours"), 3, 1))
    assert read_table(url, "target", "k", "v") == [(41, "b"), (43, "theirs")]


def test_soft_deletes_mark_and_revive(tmp_path: Path) -> None:
    url = str(tmp_path)
    spec = spec_of(url, [BINDING], [SCHEMA], hard_delete=False)
    bound = Bound(0, BINDING, "x", delivered_schema(BINDING, SCHEMA, hard_delete=False))
    delivery = session_of(spec, Memory())
    for upper, triples in enumerate(
        [[((1, "a"), 1, 1)], [((1, "a"), 2, -1)], [((1, "d"), 3, 1), ((2, "x"), 3, 1)]], 2
    ):
        combined = bound.combined(updates(SCHEMA, *triples), upper, FULL)
        delivery.transact(Delivered.of([combined.stores(())], Position(upper)))
        delivery.settle()
        if upper == 3:
            assert read_table(url, "target", "k", "v", "_meta/op") == [(1, "a", "d")]
    delivery.end()
    assert read_table(url, "target", "k", "v", "_meta/op") == [(1, "d", "c"), (2, "x", "c")]


def test_new_columns_are_added_also_beside_staged_work(tmp_path: Path) -> None:
    url, log = str(tmp_path), Memory()
    spec = spec_of(url, [BINDING], [SCHEMA])
    driver = DeltaDriver()
    delivery = Delivery(InProcess(driver), spec, "v1", FULL, log, source=NAME)
    delivery.settle()
    delivery._stream._watch = crash_on_acknowledge  # type: ignore[attr-defined]
    store = changes(0, ["k"], updates(SCHEMA, ((1, "a"), 1, 1)), 2, FULL)
    with pytest.raises(Crash):
        delivery.transact(Delivered.of([store], Position(2)))
    wider = pa.schema([*SCHEMA, pa.field("w", pa.float64())])
    delivery = session_of(spec_of(url, [BINDING], [wider]), log)
    store = changes(0, ["k"], updates(wider, ((2, "b", 0.5), 2, 1)), 3, FULL)
    delivery.transact(Delivered.of([store], Position(3)))
    delivery.end()
    assert read_table(url, "target", "k", "w") == [(1, None), (2, 0.5)]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ([("k", pa.string()), ("v", pa.string())], "'k': the table's column is string, not long"),
        ([("k", pa.int64()), ("v", pa.date32())], "'v': the table's column is date, not string"),
        ([("k", pa.int64()), ("v", pa.list_(pa.string()))], "column is array, not string"),
        (
            [("k", pa.int64()), ("v", pa.string()), pa.field("z", pa.int64(), nullable=False)],
            "'z' is required",
        ),
    ],
)
def test_a_table_of_another_shape_is_refused_with_the_reason(
    tmp_path: Path, fields: list[Any], reason: str
) -> None:
    DeltaTable.create(tmp_path / "target", pa.schema(fields))
    with pytest.raises(FieldRefused, match=reason):
        spec_of(str(tmp_path), [BINDING], [SCHEMA])


def test_decimals_must_fit(tmp_path: Path) -> None:
    for at, (precision, scale) in enumerate([(10, 2), (12, 3), (9, 2)]):
        existing = pa.schema([("k", pa.int64()), ("n", pa.decimal128(precision, scale))])
        DeltaTable.create(tmp_path / f"t{at}", existing)
    schema = pa.schema([("k", pa.int64()), ("n", pa.decimal128(10, 2))])
    for at in (0, 1):
        spec_of(str(tmp_path), [named_target(f"t{at}")], [schema])
    with pytest.raises(FieldRefused, match=r"decimal\(9,2\), not decimal\(10,2\)"):
        spec_of(str(tmp_path), [named_target("t2")], [schema])


def test_names_that_delta_cannot_have_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FieldRefused, match="no space"):
        spec_of(str(tmp_path), [BINDING], [pa.schema([*SCHEMA, ("a b", pa.int64())])])
    for target in ("../out", "a b", "_staged/x", ""):
        with pytest.raises(InvalidUsage):
            spec_of(str(tmp_path), [named_target(target)], [SCHEMA])
    assert not (tmp_path.parent / "out").exists()


def test_a_value_that_does_not_fit_changes_nothing(tmp_path: Path) -> None:
    url, log = str(tmp_path), Memory()
    spec = spec_of(url, [BINDING], [SCHEMA])
    delivery = session_of(spec, log)
    huge = pa.table({"k": pa.array([2**63], pa.uint64()), "v": ["b"]})
    no = pa.array([False])
    store = m.StoreMany(0, pa.array([b"\x16\x01"], pa.large_binary()), huge, no, no)
    with pytest.raises(Determinate, match="'k' has a value that is no int64"):
        delivery.transact(Delivered.of([store], Position(3)))
    delivery = session_of(spec, log)
    assert delivery.position is None
    delivery.end()
    assert read_table(url, "target", "k") == []


def test_a_place_that_is_away_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    with pytest.raises(HeadwaterError, match="file"):
        spec_of(str(tmp_path / "file"), [BINDING], [SCHEMA])
    spec = spec_of(str(tmp_path / "there"), [BINDING], [SCHEMA])
    delivery = session_of(spec, Memory())
    for found in sorted((tmp_path / "there" / "target").rglob("*"), reverse=True):
        with suppress(OSError):
            found.unlink() if found.is_file() else found.rmdir()
    (tmp_path / "there" / "target").rmdir()
    store = changes(0, ["k"], updates(SCHEMA, ((1, "a"), 1, 1)), 2, FULL)
    with pytest.raises(HeadwaterError, match="target"):
        delivery.transact(Delivered.of([store], Position(2)))


def test_others_may_write_and_our_marks_stay(tmp_path: Path) -> None:
    """Compaction by somebody else between two transactions is not in the way."""
    url, log = str(tmp_path), Memory()
    delivery = session_of(spec_of(url, [BINDING], [SCHEMA]), log)
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
    assert [row[0] for row in read_table(url, "target", "k")] == [2, 3, 4, 5]

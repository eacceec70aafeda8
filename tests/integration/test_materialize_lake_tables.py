"""The tables of a lake: types, shapes, keys, and others who write there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headwater.base.errors import Determinate
from headwater.base.ids import GlobalId
from headwater.materialize.changes import changes
from headwater.materialize.checkpoint import Position
from headwater.materialize.combine import Bound, by_key
from headwater.materialize.definition import Binding, delivered_schema
from headwater.materialize.delivery import Delivery
from headwater.materialize.delivery import Transaction as Delivered
from headwater.materialize.drivers.sql import KeyTaken
from headwater.materialize.protocol import messages as m
from headwater.materialize.selection import FieldRefused
from headwater.materialize.transport.in_process import InProcess
from headwater.materialize.wire.framing import Codec
from tests.integration import every_type
from tests.integration.faulty_stream import Crash
from tests.integration.materialize_lake import (
    BINDING,
    LAKES,
    SCHEMA,
    IcebergLake,
    Lake,
    Row,
    crash_on_acknowledge,
    named_target,
    read_table,
    session_of,
    spec_of,
    updates,
)
from tests.integration.materialize_places import Memory, OverTheWire, loading
from tests.simulation.materialize_bank import FULL, NAME

pytestmark = pytest.mark.server


@pytest.fixture(params=LAKES)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return LAKES[request.param](tmp_path)


ALSO_ODD = every_type.EVERYTHING.append(pa.field('Odd"`é', pa.int64()))
VALUES = (*every_type.values(10**37, "12345678901234567890.125"), 1)


TYPES = {
    "delta": {
        "d": "decimal(20,3)",
        "w": "decimal(38,0)",
        "at": "timestamp",
        "local": "timestamp_ntz",
        "t": "string",
        "u": "string",
    },
    "iceberg": {
        "d": "decimal(20, 3)",
        "w": "decimal(38, 0)",
        "at": "timestamptz",
        "local": "timestamp",
        "t": "time",
        "u": "uuid",
    },
}
"""What each calls what they do not call the same."""


def _types(lake: Lake, table: str) -> dict[str, str]:
    if isinstance(lake, IcebergLake):
        return {f.name: str(f.field_type) for f in lake.table(table).schema().fields}
    text = DeltaTable(f"{lake.config['path']}/{table}").schema().to_json()
    return {field["name"]: field["type"] for field in msgspec.json.decode(text)["fields"]}


@pytest.mark.parametrize(
    ("key", "codec"),
    [
        *((f.name, None) for f in ALSO_ODD if f.name not in ("l", "j", 'Odd"`é')),
        *((key, Codec.JSON) for key in ("d", "y", "at", "t", "u")),
    ],
)
def test_every_type_goes_there_and_comes_back(lake: Lake, key: str, codec: Codec | None) -> None:
    binding = Binding("orders", GlobalId(1), "Target", (key,))
    spec = spec_of(lake, [binding], [ALSO_ODD])
    bound = loading(binding, ALSO_ODD)
    driver = lake.make() if codec is None else OverTheWire(lake.make(), codec)
    delivery = Delivery(InProcess(driver), spec, "v1", FULL, Memory(), source=NAME)
    nulls = tuple(VALUES[at] if name == key else None for at, name in enumerate(ALSO_ODD.names))
    for number, row in enumerate((VALUES, nulls)):
        store = changes(0, [key], updates(ALSO_ODD, (row, 1, 1)), 2, FULL)
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
    assert _types(lake, "Target") == {
        "b": "boolean", "i": "long", "f": "double", "s": "string", "y": "binary", "day": "date",
        "l": "string", "j": "string", 'Odd"`é': "long", **TYPES[lake.driver],
    }  # fmt: skip


def test_insert_update_delete(lake: Lake) -> None:
    delivery = session_of(lake, spec_of(lake, [BINDING], [SCHEMA]), Memory())
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
    assert read_table(lake, "target", "k", "v") == [(1, "new"), (3, "old"), (4, "x")]


@pytest.mark.parametrize("hard_delete", [True, False])
def test_a_second_row_of_a_key_is_refused_before_it_commits(
    lake: Lake, *, hard_delete: bool
) -> None:
    delivered = delivered_schema(BINDING, SCHEMA, hard_delete=hard_delete)
    bound = Bound(0, BINDING, "x", delivered)
    spec, log = spec_of(lake, [BINDING], [SCHEMA], hard_delete=hard_delete), Memory()

    def transact(delivery: Delivery, upper: int, *triples: tuple[Row, int, int]) -> None:
        combined = bound.combined(updates(SCHEMA, *triples), upper, FULL)
        delivery.transact(Delivered.of([combined.stores(())], Position(upper)))

    delivery = session_of(lake, spec, log)
    transact(delivery, 2, ((41, "a"), 1, 1), ((42, "a"), 1, 1))
    for more in ((), (((41, "a"), 2, -1), ((41, "b"), 2, 1))):
        with pytest.raises(KeyTaken, match="42"):
            transact(delivery, 3, ((42, "b"), 2, 1), *more)
        delivery = session_of(lake, spec, log)
        assert delivery.position == Position(2)
    # What was wrong is mended, and it goes on.
    transact(delivery, 4, ((42, "a"), 3, -1), ((42, "b"), 3, 1))
    transact(delivery, 5, ((42, "b"), 4, -1))
    transact(delivery, 6, ((42, "c"), 5, 1))
    delivery.end()
    assert read_table(lake, "target", "k", "v") == [(41, "a"), (42, "c")]


def test_what_somebody_else_wrote_between_two_transactions_is_seen(lake: Lake) -> None:
    delivery = session_of(lake, spec_of(lake, [BINDING], [SCHEMA]), Memory())

    def transact(upper: int, *triples: tuple[Row, int, int]) -> None:
        store = changes(0, ["k"], updates(SCHEMA, *triples), upper, FULL)
        delivery.transact(Delivered.of([store], Position(upper)))

    transact(2, ((41, "a"), 1, 1))
    transact(3, ((41, "a"), 2, -1), ((41, "b"), 2, 1))
    theirs = pa.table({"k": [43], "v": ["theirs"]}, schema=SCHEMA)
    lake.append("target", theirs)
    with pytest.raises(KeyTaken, match="43"):
        transact(4, ((43, "ours"), 3, 1))
    assert read_table(lake, "target", "k", "v") == [(41, "b"), (43, "theirs")]


def test_soft_deletes_mark_and_revive(lake: Lake) -> None:
    spec = spec_of(lake, [BINDING], [SCHEMA], hard_delete=False)
    bound = Bound(0, BINDING, "x", delivered_schema(BINDING, SCHEMA, hard_delete=False))
    delivery = session_of(lake, spec, Memory())
    for upper, triples in enumerate(
        [[((1, "a"), 1, 1)], [((1, "a"), 2, -1)], [((1, "d"), 3, 1), ((2, "x"), 3, 1)]], 2
    ):
        combined = bound.combined(updates(SCHEMA, *triples), upper, FULL)
        delivery.transact(Delivered.of([combined.stores(())], Position(upper)))
        delivery.settle()
        if upper == 3:
            assert read_table(lake, "target", "k", "v", "_meta/op") == [(1, "a", "d")]
    delivery.end()
    assert read_table(lake, "target", "k", "v", "_meta/op") == [(1, "d", "c"), (2, "x", "c")]


def test_new_columns_are_added_also_beside_staged_work(lake: Lake) -> None:
    log = Memory()
    spec = spec_of(lake, [BINDING], [SCHEMA])
    driver = lake.make()
    delivery = Delivery(InProcess(driver), spec, "v1", FULL, log, source=NAME)
    delivery.settle()
    delivery._stream._watch = crash_on_acknowledge  # type: ignore[attr-defined]
    store = changes(0, ["k"], updates(SCHEMA, ((1, "a"), 1, 1)), 2, FULL)
    with pytest.raises(Crash):
        delivery.transact(Delivered.of([store], Position(2)))
    wider = pa.schema([*SCHEMA, pa.field("w", pa.float64())])
    delivery = session_of(lake, spec_of(lake, [BINDING], [wider]), log)
    store = changes(0, ["k"], updates(wider, ((2, "b", 0.5), 2, 1)), 3, FULL)
    delivery.transact(Delivered.of([store], Position(3)))
    delivery.end()
    assert read_table(lake, "target", "k", "w") == [(1, None), (2, 0.5)]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ([("k", pa.string()), ("v", pa.string())], "'k': the table's column is string, not long"),
        ([("k", pa.int64()), ("v", pa.date32())], "'v': the table's column is date, not string"),
        (
            [("k", pa.int64()), ("v", pa.list_(pa.string()))],
            "column is (array|list<.*>), not string",
        ),
        (
            [("k", pa.int64()), ("v", pa.string()), pa.field("z", pa.int64(), nullable=False)],
            "'z' is required",
        ),
    ],
)
def test_a_table_of_another_shape_is_refused_with_the_reason(
    lake: Lake, fields: list[Any], reason: str
) -> None:
    lake.create("target", pa.schema(fields))
    with pytest.raises(FieldRefused, match=reason):
        spec_of(lake, [BINDING], [SCHEMA])


def test_decimals_must_fit(lake: Lake) -> None:
    for at, (precision, scale) in enumerate([(10, 2), (12, 3), (9, 2)]):
        existing = pa.schema([("k", pa.int64()), ("n", pa.decimal128(precision, scale))])
        lake.create(f"t{at}", existing)
    schema = pa.schema([("k", pa.int64()), ("n", pa.decimal128(10, 2))])
    for at in (0, 1):
        spec_of(lake, [named_target(f"t{at}")], [schema])
    with pytest.raises(FieldRefused, match=r"decimal\(9, ?2\), not decimal\(10, ?2\)"):
        spec_of(lake, [named_target("t2")], [schema])


def test_a_value_that_does_not_fit_changes_nothing(lake: Lake) -> None:
    log = Memory()
    spec = spec_of(lake, [BINDING], [SCHEMA])
    delivery = session_of(lake, spec, log)
    huge = pa.table({"k": pa.array([2**63], pa.uint64()), "v": ["b"]})
    no = pa.array([False])
    store = m.StoreMany(0, pa.array([b"\x16\x01"], pa.large_binary()), huge, no, no)
    with pytest.raises(Determinate, match="'k' has a value that is no int64"):
        delivery.transact(Delivered.of([store], Position(3)))
    delivery = session_of(lake, spec, log)
    assert delivery.position is None
    delivery.end()
    assert read_table(lake, "target", "k") == []

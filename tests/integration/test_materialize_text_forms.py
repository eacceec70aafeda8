"""Columns of type uuid and jsonb in an endpoint: its own types, or the text of earlier tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from headwater.base.errors import Determinate
from headwater.base.ids import GlobalId
from headwater.collection.schema import Column, arrow_schema
from headwater.collection.types import scalar
from headwater.materialize.changes import changes
from headwater.materialize.checkpoint import Position
from headwater.materialize.definition import Binding, delivered_schema
from headwater.materialize.delivery import Delivery, Transaction
from headwater.materialize.protocol import messages as m
from headwater.materialize.selection import FieldRefused
from headwater.materialize.wire.framing import Codec
from headwater.persist.evolution import updates_schema
from tests.integration.materialize_places import (
    FULL,
    DuckDbPlace,
    MySqlPlace,
    Place,
    PostgresPlace,
    SqlitePlace,
    asked,
    loading,
    open_delivery,
    prepared,
)

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("sqlite_without_fsync")]

SCHEMA = arrow_schema(
    [
        Column("k", scalar("uuid"), nullable=False),
        Column("j", scalar("jsonb")),
        Column("u", scalar("uuid")),
    ]
)
BINDING = Binding("things", GlobalId(1), "target", ("k",))
KEYS = [str(UUID(int=n << 64)) for n in (1, 10, 1 << 40, 0xFF << 56)]
LONG = '{"n": 12345678901234567890.125}'

Row = tuple[Any, ...]


@pytest.fixture(params=["sqlite", "duckdb", "mysql", "postgres", "postgres json"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    kind, _, wire = request.param.partition(" ")
    made: Place
    match kind:
        case "sqlite":
            made = SqlitePlace(tmp_path)
        case "duckdb":
            made = DuckDbPlace(tmp_path)
        case "mysql":
            made = MySqlPlace(request.getfixturevalue("mariadb"))
        case _:
            dsn = request.getfixturevalue("postgres").dsn
            made = PostgresPlace(dsn, Codec(wire) if wire else None)
    with closing(made):
        yield made


def _store(schema: pa.Schema, upper: int, *changed: tuple[Row, int]) -> m.StoreMany:
    columns: dict[str, list[Any]] = {
        name: [row[at] for row, _ in changed] for at, name in enumerate(schema.names)
    }
    columns |= {"__time": [upper - 1] * len(changed), "__diff": [diff for _, diff in changed]}
    return changes(0, ["k"], pa.table(columns, schema=updates_schema(schema)), upper, FULL)


def _transact(delivery: Delivery, upper: int, *changed: tuple[Row, int]) -> None:
    delivery.transact(Transaction.of([_store(SCHEMA, upper, *changed)], Position(upper)))


def _loaded(delivery: Delivery, upper: int, keys: list[str]) -> list[Row]:
    """Return what a REDUCE binding would be told of some keys."""
    wanted = _store(SCHEMA, upper, *(((key, None, None), 1) for key in keys))
    found: list[pa.Table] = []

    def keep(loaded: Any) -> list[m.StoreMany]:
        found.append(loading(BINDING, SCHEMA).loaded_rows(loaded.get(0, ())))
        return []

    load = m.LoadMany(0, wanted.keys_packed)
    delivery.transact(Transaction(Position(upper), keep, (load,)))
    return sorted(zip(*(found[0][name].to_pylist() for name in SCHEMA.names), strict=True))


def _shown(rows: list[Row]) -> list[Row]:
    """Return rows without regard to what a client makes of their types."""
    return [
        (str(k), json.loads(j) if isinstance(j, str) else j, None if u is None else str(u))
        for k, j, u in rows
    ]


NATIVE = {
    "sqlite": [("TEXT", "TEXT")],
    "duckdb": [("UUID", "JSON")],
    # MariaDB's JSON is a text; MySQL has no UUIDs.
    "mysql": [("uuid", "longtext"), ("char(36)", "json")],
    "postgres": [("uuid", "jsonb")],
}


def _stored_as(place: Place, field: str) -> str:
    """Return what a column is in the table that was made for the binding."""
    _, question = asked(place, [BINDING], [SCHEMA])
    (answer,) = place.make().respond(question)
    assert isinstance(answer, m.Validated)
    said, _, native = dict(answer.bindings[0].constraints)[field].reason.partition(", as ")
    assert said == "can be stored"
    return native


def test_a_new_table_has_the_types_of_the_endpoint(place: Place) -> None:
    prepared(place, [BINDING], [SCHEMA])
    assert (_stored_as(place, "u"), _stored_as(place, "j")) in NATIVE[place.driver]


@pytest.mark.parametrize("table", ["", "text"])
def test_rows_come_change_and_go(place: Place, table: str) -> None:
    if table:  # As an earlier version made it.
        key = "varchar(700) COLLATE utf8mb4_bin" if place.driver == "mysql" else table
        columns = f"k {key} NOT NULL PRIMARY KEY, j {table}, u {table}"
        place.execute(f"CREATE TABLE target ({columns})")
    delivery = open_delivery(place, prepared(place, [BINDING], [SCHEMA]))
    first = [(key, '{"a": [1, "ü"], "b": null}', key) for key in KEYS]
    _transact(delivery, 2, *((row, 1) for row in first))
    texts = ["1", "[]", "7", '{"x": false}']
    second = [(key, text, None) for key, text in zip(KEYS, texts, strict=True)]
    _transact(
        delivery, 3, (first[0], -1), (first[1], -1), (second[1], 1), (first[3], -1), (second[3], 1)
    )
    wanted = sorted([second[1], first[2], second[3]])
    assert sorted(_shown(place.select(["k", "j", "u"], "target")), key=repr) == _shown(wanted)
    assert _loaded(delivery, 4, KEYS) == wanted
    delivery.end()


def test_text_does_not_go_into_a_column_of_uuids(place: Place) -> None:
    prepared(place, [BINDING], [SCHEMA])
    told = pa.schema([SCHEMA.field("k"), SCHEMA.field("j"), pa.field("u", pa.string())])
    if place.driver == "sqlite":  # There it is one of texts.
        prepared(place, [BINDING], [told])
        return
    with pytest.raises(FieldRefused, match=r"'u'.*not text"):
        prepared(place, [BINDING], [told])


def test_no_number_of_json_is_rounded(place: Place) -> None:
    delivery = open_delivery(place, prepared(place, [BINDING], [SCHEMA]))
    row = (KEYS[0], LONG, None)
    if place.driver == "mysql" and _stored_as(place, "j") == "json":
        with pytest.raises(Determinate, match=r"'j'.*12345678901234567890\.125.*would round"):
            _transact(delivery, 2, (row, 1))
        return
    _transact(delivery, 2, (row, 1))
    assert _loaded(delivery, 3, KEYS) == [row]
    delivery.end()


def test_json_null_is_no_null_where_the_endpoint_can_tell(place: Place) -> None:
    delivery = open_delivery(place, prepared(place, [BINDING], [SCHEMA]))
    _transact(delivery, 2, ((KEYS[0], "null", None), 1), ((KEYS[1], None, None), 1))
    told = "null" if place.in_process else None  # JSON lines have one word for both.
    assert _loaded(delivery, 3, KEYS) == [(KEYS[0], told, None), (KEYS[1], None, None)]
    delivery.end()


def test_a_key_of_json_is_its_text(place: Place) -> None:
    """As canonical text it can be compared; the collection's schema says that it is a text."""
    schema = arrow_schema([Column("k", scalar("jsonb"), nullable=False)])
    delivered = delivered_schema(BINDING, schema, hard_delete=True)
    delivery = open_delivery(place, prepared(place, [BINDING], [delivered]))
    store = _store(schema, 2, (('{"a": 1}',), 1), (("null",), 1))
    delivery.transact(Transaction.of([store], Position(2)))
    delivery.end()
    assert place.select(["k"], "target") == [("null",), ('{"a": 1}',)]

"""Avro: types as columns, every writer as the reader wants it, every mistake with its reason."""

from __future__ import annotations

import datetime as dt
import io
import json
import pickle
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_writer

from headwater.base.clock import ManualClock
from headwater.base.errors import InvalidUsage
from headwater.persist.evolution import TIME
from headwater.storage.avro import UNKNOWN_MS, Avro, AvroChanges, Subject
from headwater.storage.avro_columns import parsed
from headwater.storage.avro_resolution import mismatch
from headwater.storage.dead_letters import Policy
from headwater.storage.envelope import Debezium, Plain
from headwater.storage.errors import TransientError
from headwater.storage.format import Undecodable
from headwater.storage.registry import Registry, framed
from headwater.storage.source import MESSAGE, PLACE
from headwater.testing.schema_registry import SchemaRegistry, schema_registry


def record(*fields: Any, name: str = "R") -> str:
    found = [
        {"name": f[0], "type": f[1], **({"default": f[2]} if len(f) > 2 else {})} for f in fields
    ]
    return json.dumps({"type": "record", "name": name, "fields": found})


def written(schema: str, value: Any) -> bytes:
    stream = io.BytesIO()
    schemaless_writer(stream, parse_schema(json.loads(schema)), value)
    return stream.getvalue()


def logical(type_: str, name: str, **more: Any) -> Any:
    return {"type": type_, "logicalType": name, **more}


NOON = dt.datetime(2024, 1, 2, 12, 0, 0, 5_000, tzinfo=dt.UTC)
ID = uuid.UUID(int=7)
TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [{"name": "leaf", "type": "int"}, {"name": "more", "type": ["null", "Tree"]}],
}

TYPES: list[tuple[Any, Any, pa.DataType, Any]] = [
    ("boolean", True, pa.bool_(), True),
    ("int", -3, pa.int32(), -3),
    ("long", 2**40, pa.int64(), 2**40),
    ("float", 0.5, pa.float32(), 0.5),
    ("double", 0.1, pa.float64(), 0.1),
    ("string", "grün", pa.string(), "grün"),
    ("bytes", b"\xff", pa.binary(), b"\xff"),
    ({"type": "fixed", "name": "F", "size": 2}, b"ab", pa.binary(), b"ab"),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", pa.string(), "B"),
    (logical("bytes", "decimal", precision=6, scale=2), Decimal("-1.50"), pa.decimal128(6, 2), ...),
    (logical("bytes", "decimal", precision=60), Decimal(10**50), pa.string(), "1" + "0" * 50),
    (logical("int", "date"), dt.date(1969, 12, 31), pa.date32(), ...),
    (logical("long", "timestamp-millis"), NOON, pa.timestamp("us", "UTC"), ...),
    (logical("long", "timestamp-micros"), NOON, pa.timestamp("us", "UTC"), ...),
    (
        logical("long", "local-timestamp-micros"),
        NOON.replace(tzinfo=None),
        pa.timestamp("us"),
        ...,
    ),
    (
        {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"},
        5,
        pa.timestamp("us"),
        dt.datetime(1970, 1, 1, 0, 0, 0, 5),  # noqa: DTZ001 - without a zone
    ),
    ({"type": "int", "connect.name": "io.debezium.time.Date"}, 1, pa.date32(), dt.date(1970, 1, 2)),
    (logical("string", "uuid"), ID, pa.string(), str(ID)),
    (logical("int", "time-millis"), dt.time(1, 2, 3), pa.string(), "01:02:03"),
    (["null", "long"], None, pa.int64(), None),
    (["long", "null"], 4, pa.int64(), 4),
    (["null", "string", "long"], "x", pa.string(), '"x"'),
    ({"type": "array", "items": "int"}, [1, 2], pa.string(), "[1,2]"),
    ({"type": "map", "values": "bytes"}, {"b": b"x", "a": b""}, pa.string(), '{"a":"","b":"eA=="}'),
    (
        TREE,
        {"leaf": 1, "more": {"leaf": 2, "more": None}},
        pa.string(),
        '{"leaf":1,"more":{"leaf":2,"more":null}}',
    ),
]


@pytest.mark.parametrize(("type_", "value", "column", "expected"), TYPES)
def test_a_type_is_its_column(type_: Any, value: Any, column: pa.DataType, expected: Any) -> None:
    schema = record(("v", type_))
    format_ = Avro((schema,))
    assert format_.schema.field("v").type == column
    assert format_.schema.field("v").nullable == (isinstance(type_, list) and "null" in type_)
    row = format_.decode(written(schema, {"v": value}))
    assert row == ((value,) if expected is ... else (expected,))
    assert format_.swept([written(schema, {"v": value})]) == [list(row)], "the same at once"
    pa.array(row, column)


def test_what_is_no_record_is_one_column() -> None:
    assert Avro(('"long"',), alone="key").schema == pa.schema(
        [pa.field("key", pa.int64(), nullable=False)]
    )
    assert Avro(("long",)).decode(b"\x08") == (4,)
    assert Avro(("long",)).swept([b"\x08", b"\x0a"]) == [[4, 5]]


ROW = record(("n", "int"), ("s", ["null", "string"], None))

BAD: list[tuple[str, bytes, str]] = [
    (ROW, b"", "it ends too soon"),
    (ROW, b"\x02\x02\x06ab", "ends too soon"),
    (ROW, b"\x02\x00\x00", "1 bytes are left"),
    (ROW, b"\xfe\xff\xff\xff\xff\x01\x00", "column 'n': .* is no int of 32 bits"),
    (ROW, b"\x02\x08", "no record of its schema"),
    (ROW, b"\x02\x02\x04\xff\xff", "utf-8"),
    (
        record(("d", logical("bytes", "decimal", precision=4, scale=2))),
        b"\x06\x7f\xff\xff",
        "column 'd': .* is no decimal128",
    ),
    (record(("t", logical("int", "date"))), b"\xfe\xff\xff\xff\x0f", "no record of its schema"),
    (record(("u", logical("string", "uuid"))), b"\x02x", "UUID"),
]


@pytest.mark.parametrize(("schema", "data", "why"), BAD)
def test_bytes_that_are_no_record(schema: str, data: bytes, why: str) -> None:
    with pytest.raises(Undecodable, match=why):
        Avro((schema,)).decode(data)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "an Avro schema is JSON"),
        ('{"type": "recor"}', "a type .*recor.* it lacks"),
        ('{"type": "record"}', "no Avro schema"),
        (record(("d", "int", "x")), "Default value <x> must match"),
    ],
)
def test_what_is_no_schema(text: str, why: str) -> None:
    with pytest.raises(InvalidUsage, match=why):
        Avro((text,))


# ---- writers and readers ---------------------------------------------------------------------

RESOLVED: list[tuple[Any, Any, str | None]] = [
    ("int", "long", None),
    ("int", "double", None),
    ("long", "int", "long cannot be read as int"),
    ("string", ["null", "string"], None),
    (["null", "int"], "long", None),
    (["null", "string"], "long", "null cannot be read as long"),
    ("long", logical("long", "timestamp-micros"), "long cannot be read as timestamp-micros"),
    (logical("long", "timestamp-millis"), logical("long", "timestamp-micros"), None),
    (
        logical("bytes", "decimal", precision=4, scale=1),
        logical("bytes", "decimal", precision=4, scale=2),
        "scale 1 cannot be read with scale 2",
    ),
    ({"type": "array", "items": "int"}, {"type": "array", "items": "string"}, "int cannot"),
    (TREE, {**TREE, "name": "Bush", "fields": []}, "'Tree' is not 'Bush'"),
    (TREE, TREE, None),
]


@pytest.mark.parametrize(("writer", "reader", "why"), RESOLVED)
def test_resolution(writer: Any, reader: Any, why: str | None) -> None:
    found = mismatch(parsed([record(("v", writer))]), parsed([record(("v", reader))]))
    if why is None:
        assert found is None
    else:
        assert found is not None
        assert found.column == "v"
        assert why in found.why


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as found:
        yield found


def at(registry: SchemaRegistry) -> Subject:
    return Subject(Registry(registry.url, asking="topic"), "t-value")


OLD = record(("n", "int"), ("gone", "string"))
NEW = record(
    ("n", "long"),
    ("at", logical("long", "timestamp-millis"), 1000),
    ("d", logical("bytes", "decimal", precision=4, scale=2), "\u0001"),
)
SECOND = dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)


def test_each_writer_is_read_by_his_own_schema(registry: SchemaRegistry) -> None:
    old, new = registry.register("t-value", OLD), registry.register("t-value", NEW)
    format_ = Avro((NEW,), at(registry))
    before = len(registry.asked)
    messages = [
        framed(old, written(OLD, {"n": 1, "gone": "x"})),
        framed(new, written(NEW, {"n": 2, "at": SECOND, "d": Decimal("0.02")})),
    ]
    expected = [(1, SECOND, Decimal("0.01")), (2, SECOND, Decimal("0.02"))]
    for copied in (format_, format_, pickle.loads(pickle.dumps(format_))):
        assert [copied.decode(m) for m in messages] == expected
        assert list(zip(*copied.swept(messages), strict=True)) == expected
    assert len(registry.asked) == before + 4, "each id once in each process"


def test_schemas_that_refer_to_others(registry: SchemaRegistry) -> None:
    part = record(("x", "int"), name="Part")
    registry.register("part", part)
    whole = record(("p", "Part"), ("q", ["null", "Part"], None))
    number = registry.register(
        "t-value", whole, references=[{"name": "Part", "subject": "part", "version": 1}]
    )
    message = framed(number, b"\x02\x02\x04")
    assert Avro((part, whole), at(registry)).decode(message) == ('{"x":1}', '{"x":2}')


def test_a_schema_that_cannot_be_resolved_names_subject_id_and_column(
    registry: SchemaRegistry,
) -> None:
    number = registry.register("t-value", record(("n", "string"), ("gone", "int")))
    message = framed(number, b"\x02x\x02")
    why = f"subject 't-value', schema id {number}: column 'n': string cannot be read as int"
    format_ = Avro((OLD,), at(registry))
    for _ in range(2):
        with pytest.raises(Undecodable, match=why):
            format_.decode(message)


def test_an_unknown_id_is_asked_for_again_after_a_while(registry: SchemaRegistry) -> None:
    clock = ManualClock(0)
    number = len(registry._schemas) + 1
    format_ = Avro((ROW,), at(registry), clock=clock)
    message = framed(number, written(ROW, {"n": 1, "s": None}))
    before = len(registry.asked)
    for _ in range(3):
        with pytest.raises(Undecodable, match=f"no schema with id {number} .subject 't-value'"):
            format_.decode(message)
    assert len(registry.asked) == before + 1
    registry.register(
        "other", record(("n", "int"), ("s", ["null", "string"], None), ("z", "int", 1))
    )
    clock.sleep(UNKNOWN_MS / 1000)
    assert format_.decode(message + b"\x02") == (1, None)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "0 bytes"),
        (b"\x00\x00\x00", "3 bytes"),
        (b"{\x00\x00\x00\x01", "the first byte is 0x7b"),
    ],
)
def test_bytes_without_an_id(data: bytes, why: str) -> None:
    with pytest.raises(Undecodable, match=why):
        Avro((ROW,), Subject(Registry("http://127.0.0.1:1"), "t-value")).decode(data)


def test_a_registry_that_is_away_is_nobodys_mistake() -> None:
    with schema_registry(credentials=("me", "secret")) as registry:
        number = registry.register("t-value", ROW)
        message = framed(number, written(ROW, {"n": 1, "s": "x"}))
        with pytest.raises(TransientError, match="it refuses us: check USERNAME"):
            Avro((ROW,), at(registry)).decode(message)
        password = Registry(registry.url, "me", "secret")
        assert "secret" not in repr(password)
        elsewhere = Subject(Registry(f"{registry.url}/nothing", "me", "secret"), "t-value")
        with pytest.raises(TransientError, match="404 HTTP 404 Not Found"):
            Avro((ROW,), elsewhere).decode(message)
        format_ = Avro((ROW,), Subject(password, "t-value"))
        registry.away = True
        # A batch, too: nothing of it becomes a dead letter.
        with pytest.raises(TransientError, match="closed connection"):
            Plain(format_).changes("o", stamped(message))
        registry.away = False
        assert Plain(format_).changes("o", stamped(message)).updates.num_rows == 1


# ---- Debezium --------------------------------------------------------------------------------

VALUE = {"type": "record", "name": "Value", "fields": [{"name": "v", "type": "int"}]}
CHANGE = record(
    ("source", {"type": "record", "name": "Source", "fields": [{"name": "db", "type": "string"}]}),
    ("before", ["null", VALUE], None),
    ("after", ["null", "Value"], None),
    ("op", "string"),
    ("ts_ms", ["null", "long"], None),
    name="Envelope",
)


def stamped(*values: bytes | None) -> pa.Table:
    schema = pa.schema([*PLACE, *MESSAGE, pa.field(TIME, pa.int64(), nullable=False)])
    rows = [
        {"__partition": "p", "__offset": n, "key": None, "value": value, TIME: n}
        for n, value in enumerate(values)
    ]
    return pa.Table.from_pylist(rows, schema=schema)


@pytest.mark.parametrize("registered", [False, True])
def test_changes_of_debezium(registry: SchemaRegistry, registered: bool) -> None:
    number = registry.register("t-value", CHANGE)

    def change(op: str, before: int | None, after: int | None) -> bytes:
        rows = {"before": before, "after": after}
        rows_ = {k: None if v is None else {"v": v} for k, v in rows.items()}
        value = written(CHANGE, {"source": {"db": "x"}, "op": op, "ts_ms": 5, **rows_})
        return framed(number, value) if registered else value

    format_ = AvroChanges((CHANGE,), at(registry) if registered else None)
    assert format_.schema.names == ["v"]
    envelope = pickle.loads(pickle.dumps(Debezium(format_, Policy.SKIP)))
    found = envelope.changes(
        "o",
        stamped(
            change("r", None, 1), change("u", 1, 2), change("u", None, 3), None, b"\x00",
            change("d", 2, None),
        ),
    )  # fmt: skip
    rows = [(r["v"], r[TIME], r["__diff"]) for r in found.updates.to_pylist()]
    assert sorted(rows) == [(1, 0, 1), (1, 1, -1), (2, 1, 1), (2, 5, -1)]
    assert found.letters.column("offset").to_pylist() == [2, 4]
    assert "REPLICA IDENTITY FULL" in found.letters.column("reason").to_pylist()[0]


def test_what_is_no_envelope_of_debezium() -> None:
    with pytest.raises(InvalidUsage, match="no before, after, op"):
        AvroChanges((ROW,))

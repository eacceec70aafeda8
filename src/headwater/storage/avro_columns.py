"""Avro schemas: the columns that a record has, and how each value becomes one.

| Avro | column |
|---|---|
| boolean, int, long, float, double, string, bytes | the same; fixed is bytes, an enum its text |
| decimal | numeric; text, beyond 38 digits |
| date; timestamp-millis, -micros | date; timestamptz |
| local-timestamp-millis, -micros | timestamp |
| uuid, time-millis, time-micros | text |
| a union with null | NULL, or what the other is |
| record, array, map, a union of several | JSON text, members sorted by name |

Debezium's own names for dates and times (``io.debezium.time.Date``, ``.Timestamp``,
``.MicroTimestamp``) count as the logical types that they are. What is no record is one column.

A record in text is sorted so that equal values are equal texts: what a retraction says is what came
before, whoever wrote it.
"""

from __future__ import annotations

import datetime as dt
import decimal
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
from fastavro import schemaless_reader, schemaless_writer
from fastavro.schema import SchemaParseException, UnknownType, parse_schema

from headwater.base.errors import InvalidUsage
from headwater.storage.format import Undecodable

DIGITS_MAX: Final = 38
_INT32: Final = 2**31

_PRIMITIVE: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "enum": pa.string(),
    "null": pa.string(),
}
_LOGICAL: Final[Mapping[str, pa.DataType]] = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}
_AS_TEXT: Final = ("uuid", "time-millis", "time-micros")
_DEBEZIUM: Final = {
    ("int", "io.debezium.time.Date"): "date",
    ("long", "io.debezium.time.Timestamp"): "local-timestamp-millis",
    ("long", "io.debezium.time.MicroTimestamp"): "local-timestamp-micros",
}

Convert = Callable[[Any], Any]


class Column(NamedTuple):
    """One column: what it is called in the record, as what it is kept, what makes it so."""

    name: str
    field: pa.Field
    convert: Convert | None


class Parsed(NamedTuple):
    """A schema that can be read with, and the named types in it."""

    schema: Any
    named: Mapping[str, Any]

    def of(self, type_: Any) -> Any:
        """Return a type itself, where it is spoken of by its name."""
        return self.named[type_] if isinstance(type_, str) and type_ in self.named else type_


def parsed(texts: Sequence[str]) -> Parsed:
    """Return the last of some schemas, which may refer to those before it."""
    named: dict[str, Any] = {}
    schema: Any = None
    for text in texts:
        try:
            schema = parse_schema(_plain(_read(text)), named_schemas=named)
        except UnknownType as error:
            raise InvalidUsage(f"the Avro schema uses a type {error.name!r} it lacks") from error
        except (SchemaParseException, ValueError, TypeError, LookupError) as error:
            raise InvalidUsage(f"this is no Avro schema: {error}") from error
    for each in named.values():
        for member in each.get("fields", ()):
            if member.get("default") is not None:
                member["default"] = _meant(member, named)
    return Parsed(schema, named)


def _meant(member: Any, named: Mapping[str, Any]) -> Any:
    """Return a default as the value that a reader would have read in its place.

    In the schema it is JSON, without its logical type: bytes are text there, and a date a number.
    """
    bare = parse_schema(_bare(member["type"]), named_schemas=dict(named))
    value = member["default"]
    if isinstance(value, str) and any(kind(b) in {"bytes", "fixed"} for b in branches(bare)):
        value = value.encode("latin-1")
    written = io.BytesIO()
    try:
        schemaless_writer(written, bare, value)
        written.seek(0)
        return schemaless_reader(written, parse_schema(member["type"], named_schemas=dict(named)))
    except (ValueError, TypeError, ArithmeticError, LookupError) as error:
        why = f"column {member['name']!r}: {value!r} is no default of its type"
        raise InvalidUsage(f"this is no Avro schema: {why}") from error


def _bare(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_bare(each) for each in schema]
    if isinstance(schema, dict) and kind(schema) in _PRIMITIVE:
        return {name: value for name, value in schema.items() if name != "logicalType"}
    return schema


def _read(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        if text.strip() in _PRIMITIVE:
            return text.strip()
        raise InvalidUsage(f"an Avro schema is JSON, and this is none: {error}") from error


def _plain(schema: Any) -> Any:
    """Return a schema with Debezium's dates and times said in Avro's way."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {k: v if k == "default" else _plain(v) for k, v in schema.items()}
    type_ = schema.get("type")
    known = (type_, schema.get("connect.name"))
    if isinstance(type_, str) and "logicalType" not in schema and known in _DEBEZIUM:
        found["logicalType"] = _DEBEZIUM[known]
    return found


def branches(schema: Any) -> list[Any]:
    """Return what a value may be: the branches of a union, or the one type."""
    return schema if isinstance(schema, list) else [schema]


def kind(schema: Any) -> str:
    """Return the type without what is said about it."""
    return str(schema["type"]) if isinstance(schema, dict) else str(schema)


def logical(schema: Any) -> str:
    """Return the logical type that a reader has to heed; empty if there is none."""
    if not isinstance(schema, dict):
        return ""
    found = schema.get("logicalType", "")
    known = found in _LOGICAL or found in _AS_TEXT or found == "decimal"
    return str(found) if known else ""


def record_columns(found: Parsed, schema: Any, alone: str) -> list[Column]:
    """Return the columns of a record; of anything else one, under the name ``alone``."""
    schema = found.of(schema)
    if kind(schema) not in {"record", "error"}:
        return [_column(found, alone, schema)]
    return [_column(found, each["name"], each["type"]) for each in schema["fields"]]


def _column(found: Parsed, name: str, schema: Any) -> Column:
    given = branches(schema)
    some = [found.of(each) for each in given if kind(each) != "null"]
    nullable = len(some) < len(given)
    if len(some) == 1:
        type_, convert = _kept(name, some[0])
    else:
        type_, convert = pa.string(), (_json if some else None)
    return Column(name, pa.field(name, type_, nullable), convert)


def _kept(name: str, schema: Any) -> tuple[pa.DataType, Convert | None]:
    meant = logical(schema)
    if meant == "decimal":
        digits, scale = int(schema["precision"]), int(schema.get("scale", 0))
        if digits > DIGITS_MAX:
            return pa.string(), lambda value: format(value, "f")
        type_ = pa.decimal128(digits, scale)
        return type_, _fitting(name, type_)
    if meant in _LOGICAL:
        return _LOGICAL[meant], None
    if meant in _AS_TEXT:
        return pa.string(), str if meant == "uuid" else dt.time.isoformat
    type_ = _PRIMITIVE.get(kind(schema))
    if type_ is None:
        return pa.string(), _json
    return type_, _int32(name) if kind(schema) == "int" else None


def _fitting(name: str, type_: pa.DataType) -> Convert:
    def fitting(value: decimal.Decimal) -> decimal.Decimal:
        try:
            pa.scalar(value, type_)
        except (pa.ArrowInvalid, decimal.InvalidOperation) as error:
            raise Undecodable(f"column {name!r}: {value} is no {type_}") from error
        return value

    return fitting


def _int32(name: str) -> Convert:
    def bounded(value: int) -> int:
        if not -_INT32 <= value < _INT32:
            raise Undecodable(f"column {name!r}: {value} is no int of 32 bits")
        return value

    return bounded


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value, order="deterministic").decode()
    except (TypeError, ValueError, RecursionError) as error:
        raise Undecodable(f"a value has no JSON: {error}") from error

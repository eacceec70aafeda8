"""The table of scalar types, as data; ``collection/types.py`` is its definition and its reader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from headwater.base.errors import InvalidUsage


class UnsupportedType(InvalidUsage):
    """A type we cannot hold with its meaning."""

    def __init__(self, what: str, instead: str = "") -> None:
        hint = instead or f"supported are {', '.join(supported())}"
        super().__init__(f"type {what} is not supported; {hint}")
        self.what, self.instead, self.hint = what, instead, hint


@dataclass(frozen=True, slots=True)
class Scalar:
    """One line of the table."""

    name: str
    postgres: tuple[str, ...]
    """Names PostgreSQL knows it by, ours first; empty: it has none."""
    oid: int
    """Of the PostgreSQL type under which it is sent."""
    spark: tuple[str, ...]
    """Names Spark SQL knows it by, ours first."""
    arrow: pa.DataType | None
    """``None``: it depends on the arguments."""
    parquet: str
    note: str


SCALARS: Final = (
    Scalar("boolean", ("boolean", "bool"), 16, ("boolean",), pa.bool_(), "BOOLEAN", ""),
    Scalar(
        "tinyint",
        (),
        21,
        ("tinyint", "byte"),
        pa.int8(),
        "INT32 INT(8, signed)",
        "Spark's only; sent as smallint",
    ),
    Scalar(
        "smallint",
        ("smallint", "int2"),
        21,
        ("smallint", "short"),
        pa.int16(),
        "INT32 INT(16, signed)",
        "",
    ),
    Scalar("integer", ("integer", "int", "int4"), 23, ("int", "integer"), pa.int32(), "INT32", ""),
    Scalar("bigint", ("bigint", "int8"), 20, ("bigint", "long"), pa.int64(), "INT64", ""),
    Scalar(
        "real",
        ("real", "float4"),
        700,
        ("float", "real"),
        pa.float32(),
        "FLOAT",
        "NaN = NaN and is greatest, 0.0 = -0.0; stored bit by bit",
    ),
    Scalar(
        "double precision",
        ("double precision", "float8"),
        701,
        ("double",),
        pa.float64(),
        "DOUBLE",
        "as real",
    ),
    Scalar(
        "numeric",
        ("numeric", "decimal", "dec"),
        1700,
        ("decimal", "dec", "numeric"),
        None,
        "FIXED_LEN_BYTE_ARRAY DECIMAL(p, s)",
        "numeric(p) is numeric(p,0); bare it is numeric(38,9) in PostgreSQL's dialect and "
        "decimal(10,0) in Spark's; no NaN, no infinity",
    ),
    Scalar(
        "text",
        ("text", "varchar", "character varying"),
        25,
        ("string",),
        pa.string(),
        "BYTE_ARRAY STRING",
        "UTF8_BINARY: compared by bytes; no NUL on the wire, as in PostgreSQL",
    ),
    Scalar("bytea", ("bytea",), 17, ("binary",), pa.binary(), "BYTE_ARRAY", ""),
    Scalar(
        "date",
        ("date",),
        1082,
        ("date",),
        pa.date32(),
        "INT32 DATE",
        "proleptic Gregorian, years 1 to 9999; no infinity",
    ),
    Scalar(
        "time",
        ("time without time zone", "time"),
        1083,
        ("time(6)", "time"),
        pa.time64("ns"),
        "INT64 TIME(NANOS, not UTC)",
        "microseconds, in the unit in which Spark exchanges it; 24:00:00 is refused",
    ),
    Scalar(
        "timestamp",
        ("timestamp without time zone", "timestamp"),
        1114,
        ("timestamp_ntz",),
        pa.timestamp("us"),
        "INT64 TIMESTAMP(MICROS, not UTC)",
        "a reading of a clock on a wall; years 1 to 9999; no infinity",
    ),
    Scalar(
        "timestamptz",
        ("timestamp with time zone", "timestamptz"),
        1184,
        ("timestamp", "timestamp_ltz"),
        pa.timestamp("us", "UTC"),
        "INT64 TIMESTAMP(MICROS, UTC)",
        "an instant; shown in UTC, whatever the client's zone",
    ),
    Scalar(
        "interval",
        ("interval",),
        1186,
        ("interval day to second",),
        pa.duration("us"),
        "INT64 (Arrow duration in microseconds)",
        "days, hours, microseconds with a day of 24 hours; months and years are refused, because "
        "they are no number of microseconds; shown as N days HH:MM:SS",
    ),
    Scalar(
        "jsonb",
        ("jsonb",),
        3802,
        ("string",),
        pa.string(),
        "BYTE_ARRAY STRING",
        "canonical text: keys sorted by length and bytes, as PostgreSQL does, no duplicates, "
        "numbers as plain decimals; so equal values are equal text",
    ),
    Scalar(
        "uuid",
        ("uuid",),
        2950,
        ("string",),
        pa.string(),
        "BYTE_ARRAY STRING",
        "36 lower-case characters; text order is then the order of the bytes",
    ),
    Scalar(
        "void",
        (),
        25,
        ("void",),
        pa.null(),
        "none",
        "the type of a bare NULL in a result; sent as text, no column of a table",
    ),
)

BY_NAME: Final = {scalar.name: scalar for scalar in SCALARS}
TEXT_FORMS: Final = ("jsonb", "uuid")
"""Scalars that Arrow and Spark know only as text."""

ARRAY_OIDS: Final = {
    "boolean": 1000,
    "tinyint": 1005,
    "smallint": 1005,
    "integer": 1007,
    "bigint": 1016,
    "real": 1021,
    "double precision": 1022,
    "numeric": 1231,
    "text": 1009,
    "bytea": 1001,
    "date": 1182,
    "time": 1183,
    "timestamp": 1115,
    "timestamptz": 1185,
    "interval": 1187,
    "jsonb": 3807,
    "uuid": 2951,
    "void": 1009,
}


def supported() -> list[str]:
    """Return the names of what is supported, as PostgreSQL writes them where it can."""
    names = [line.postgres[0] if line.postgres else line.name for line in SCALARS]
    return [*names, "T[]", "struct<…>", "map<…>"]

"""The one table of types: PostgreSQL ↔ Spark ↔ Arrow ↔ Parquet, as data.

A :class:`SqlType` is a type of ours. ``collection/type_table.py`` gives each scalar one its name in
every world; arrays, structs and maps are built from them. The laws, for every type ``t`` of ours:

    by_arrow(t.arrow) == t          by_spark(t.spark) == t          by_postgres(t.postgres) == t

with these exceptions, and no others: ``jsonb`` and ``uuid`` *are* canonical text to Arrow and Spark
(a column remembers which, ``collection/schema.py``); PostgreSQL has no ``tinyint`` (it is sent as
``smallint``), no ``void`` (sent as ``text``), no type of its own for a struct or a map.

What has no exact counterpart is refused with what to use instead, never rounded into a neighbour:
``varchar(10)`` without its check, ``timestamp`` in nanoseconds, an interval with months.

What the types *mean* where the two dialects differ is ``collection/meaning.py``.

Kept by: that table, and its vectors in ``tests/formats/types_v1.json``. Relied on by: the adapter
(DDL, wire, transpiler), storage (decoding), materialize (target columns).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import pyarrow as pa

from headwater.collection.type_table import (
    ARRAY_OIDS,
    BY_NAME,
    SCALARS,
    TEXT_FORMS,
    UnsupportedType,
)

NUMERIC_PRECISION_MAX: Final = 38
"""Spark's and decimal128's."""

NUMERIC_BARE: Final = (38, 9)
"""What PostgreSQL's unbounded ``numeric`` is here: 29 digits before the point, 9 after it.

29 digits hold the sum of ten thousand million bigints; finer fractions are rounded on the way in,
larger values refused.
"""

_REAL_BITS_MAX: Final = 24
_DOUBLE_BITS_MAX: Final = 53
_FRACTION_DIGITS: Final = 6

RECORD_OID: Final = 2249
RECORD_ARRAY_OID: Final = 2287


@dataclass(frozen=True, slots=True)
class SqlType:
    """A type: a scalar with its arguments, or ``array``, ``struct``, ``map`` of other types.

    >>> array(numeric(10, 2)).spark, array(numeric(10, 2)).postgres
    ('array<decimal(10,2)>', 'numeric(10,2)[]')
    """

    name: str
    args: tuple[int, ...] = ()
    parts: tuple[tuple[str, SqlType], ...] = ()
    """``element`` of an array; ``key`` and ``value`` of a map; the fields of a struct."""

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type in which it is stored."""
        match self.name:
            case "array":
                return pa.list_(pa.field("element", self.parts[0][1].arrow))
            case "map":
                (_, key), (_, value) = self.parts
                return pa.map_(key.arrow, value.arrow)
            case "struct":
                return pa.struct([pa.field(name, part.arrow) for name, part in self.parts])
            case "numeric":
                return pa.decimal128(*self.args)
            case _:
                return BY_NAME[self.name].arrow

    @property
    def spark(self) -> str:
        """The text Spark SQL reads as this type."""
        match self.name:
            case "array":
                return f"array<{self.parts[0][1].spark}>"
            case "map":
                return f"map<{self.parts[0][1].spark},{self.parts[1][1].spark}>"
            case "struct":
                fields = (f"{_spark_name(name)}:{part.spark}" for name, part in self.parts)
                return f"struct<{','.join(fields)}>"
            case "numeric":
                return f"decimal({self.args[0]},{self.args[1]})"
            case _:
                return BY_NAME[self.name].spark[0]

    @property
    def postgres(self) -> str:
        """PostgreSQL's name of the type under which values are sent."""
        match self.name:
            case "array":
                return f"{self.parts[0][1].postgres}[]"
            case "map":
                return "jsonb"
            case "struct":
                return "record"
            case "numeric":
                return f"numeric({self.args[0]},{self.args[1]})"
            case "tinyint":
                return "smallint"
            case "void":
                return "text"
            case _:
                return BY_NAME[self.name].postgres[0]

    @property
    def oid(self) -> int:
        """PostgreSQL's number of the type under which values are sent."""
        match self.name:
            case "array":
                element = self.parts[0][1]
                while element.name == "array":  # PostgreSQL has one type for all dimensions
                    element = element.parts[0][1]
                if element.name in ("struct", "map"):
                    return RECORD_ARRAY_OID if element.name == "struct" else ARRAY_OIDS["jsonb"]
                return ARRAY_OIDS[element.name]
            case "map":
                return BY_NAME["jsonb"].oid
            case "struct":
                return RECORD_OID
            case _:
                return BY_NAME[self.name].oid

    def __str__(self) -> str:
        return self.postgres if self.name not in ("struct", "map") else self.spark


def scalar(name: str) -> SqlType:
    """Return the scalar type of this name in the table (``numeric`` has a function of its own)."""
    assert name in BY_NAME, f"there is no scalar type {name}"
    assert name != "numeric", "numeric has a precision"
    return SqlType(name)


def numeric(precision: int, scale: int = 0) -> SqlType:
    """Return ``numeric(precision, scale)``."""
    if not 1 <= precision <= NUMERIC_PRECISION_MAX or not 0 <= scale <= precision:
        raise UnsupportedType(
            f"numeric({precision},{scale})",
            f"the precision is between 1 and {NUMERIC_PRECISION_MAX}, the scale between 0 and it",
        )
    return SqlType("numeric", (precision, scale))


def array(element: SqlType) -> SqlType:
    """Return the type of arrays of ``element``."""
    return SqlType("array", (), (("element", element),))


def map_of(key: SqlType, value: SqlType) -> SqlType:
    """Return the type of maps from ``key`` to ``value``; a key is never NULL, so not ``void``."""
    if key.name in ("void", "map"):
        raise UnsupportedType(f"map from {key.name}", "a key of a map is a value that is not NULL")
    return SqlType("map", (), (("key", key), ("value", value)))


def struct(*fields: tuple[str, SqlType]) -> SqlType:
    """Return the type of structs with these fields."""
    names = [name for name, _ in fields]
    if not names or len(set(names)) != len(names):
        raise UnsupportedType(f"struct of {names}", "a struct has fields, each with its own name")
    return SqlType("struct", (), tuple(fields))


# ---- PostgreSQL ------------------------------------------------------------------------------

_POSTGRES: Final = {name: line.name for line in SCALARS for name in line.postgres}
_INSTEAD: Final = {
    "varchar": "use text (a length is not checked here)",
    "character varying": "use text (a length is not checked here)",
    "char": "use text (a length is not checked here)",
    "character": "use text (a length is not checked here)",
    "bpchar": "use text (a length is not checked here)",
    "json": "use jsonb, or text to keep the spelling",
    "timetz": "use time, or timestamptz",
    "time with time zone": "use time, or timestamptz",
    "money": "use numeric(19,2)",
    "serial": "use integer",
    "bigserial": "use bigint",
    "record": "name the fields: structs are written in Spark's dialect, struct<a:int>",
}


def by_postgres(name: str, args: Sequence[int] = ()) -> SqlType:
    """Return the type PostgreSQL calls so, as in ``CREATE TABLE``; ``int[]`` is an array.

    >>> by_postgres("numeric", (10, 2)), by_postgres("int4[]").spark
    (SqlType(name='numeric', args=(10, 2), parts=()), 'array<int>')
    """
    written = f"{name}({','.join(map(str, args))})" if args else name
    wanted = " ".join(name.lower().split())
    bare = wanted.rstrip("[]")
    dimensions = wanted[len(bare) :]
    if dimensions:
        if dimensions.replace("[]", ""):
            raise UnsupportedType(written, "write an array as T[]")
        element = by_postgres(bare.rstrip(), args)
        for _ in range(len(dimensions) // 2):
            element = array(element)
        return element
    if (inside := re.fullmatch(r"(.+?)\s*\(([\d,\s]+)\)(.*)", wanted)) and not args:
        numbers = tuple(int(number) for number in inside[2].split(","))
        return by_postgres(f"{inside[1]}{inside[3]}", numbers)
    return _postgres_scalar(wanted, tuple(args), written)


def _postgres_scalar(name: str, args: tuple[int, ...], written: str) -> SqlType:
    if name == "float":
        if not args or _REAL_BITS_MAX < args[0] <= _DOUBLE_BITS_MAX:
            return scalar("double precision")
        if len(args) == 1 and 1 <= args[0] <= _REAL_BITS_MAX:
            return scalar("real")
        raise UnsupportedType(written, f"float(p) has p between 1 and {_DOUBLE_BITS_MAX}")
    found = _POSTGRES.get(name)
    if found is None:
        raise UnsupportedType(written, _INSTEAD.get(name, ""))
    if found == "numeric":
        if len(args) > 2:
            raise UnsupportedType(written, "write numeric(precision, scale)")
        return numeric(*(args or NUMERIC_BARE))
    timed = found in ("time", "timestamp", "timestamptz", "interval")
    if args and not (timed and args == (_FRACTION_DIGITS,)):
        hint = (
            f"use {found} (six digits of a second)" if timed else _INSTEAD.get(name, f"use {found}")
        )
        raise UnsupportedType(written, hint)
    return scalar(found)


# ---- Arrow -----------------------------------------------------------------------------------

_ARROW: Final = {
    line.arrow: line.name
    for line in reversed(SCALARS)  # text, which stands first, wins over its special forms
    if line.arrow is not None
}
_ARROW_ALIASES: Final = {
    pa.large_string(): "text",
    pa.string_view(): "text",
    pa.large_binary(): "bytea",
    pa.binary_view(): "bytea",
    pa.date64(): "date",
    pa.time32("s"): "time",
    pa.time32("ms"): "time",
    pa.time64("us"): "time",
    pa.duration("s"): "interval",
    pa.duration("ms"): "interval",
}
"""Other Arrow types whose every value fits; a column is cast to ours when it comes in."""


def by_arrow(type_: pa.DataType) -> SqlType:
    """Return the type whose values these Arrow values are, exactly; others are refused.

    >>> by_arrow(pa.large_string()), by_arrow(pa.timestamp("ms")).postgres
    (SqlType(name='text', args=(), parts=()), 'timestamp without time zone')
    """
    t = pa.types
    if t.is_dictionary(type_):
        return by_arrow(type_.value_type)
    if t.is_list(type_) or t.is_large_list(type_) or t.is_fixed_size_list(type_):
        return array(by_arrow(type_.value_type))
    if t.is_map(type_):
        return map_of(by_arrow(type_.key_type), by_arrow(type_.item_type))
    if t.is_struct(type_):
        return struct(*((field.name, by_arrow(field.type)) for field in type_))
    if t.is_decimal(type_):
        return numeric(type_.precision, type_.scale)
    if t.is_timestamp(type_) and type_.unit != "ns":
        return scalar("timestamp" if type_.tz is None else "timestamptz")
    if t.is_fixed_size_binary(type_):
        return scalar("bytea")
    found = _ARROW.get(type_) or _ARROW_ALIASES.get(type_)
    if found is None:
        raise UnsupportedType(str(type_), _arrow_instead(type_))
    return scalar(found)


def _arrow_instead(type_: pa.DataType) -> str:
    t = pa.types
    if t.is_timestamp(type_) or t.is_duration(type_):
        return "cast it to microseconds"
    if t.is_unsigned_integer(type_):
        return "cast it to a signed integer that holds its values, or to decimal128(20, 0)"
    if t.is_float16(type_):
        return "cast it to float32"
    if t.is_interval(type_):
        return "cast it to duration('us'); months are no number of microseconds"
    return ""


# ---- Spark -----------------------------------------------------------------------------------

_SPARK: Final = {name: line.name for line in reversed(SCALARS) for name in line.spark}
_SPARK_DECIMAL_BARE: Final = (10, 0)
_DAY_TIME: Final = r"interval (day|hour|minute|second)( to (hour|minute|second))?"
_SPARK_INSTEAD: Final = {
    "varchar": "use string (a length is not checked here)",
    "char": "use string (a length is not checked here)",
    "variant": "use string with to_json and from_json",
    "interval": "use interval day to second",
    "interval year to month": "use int for months; months are no number of microseconds",
    "interval year": "use int for months; months are no number of microseconds",
    "interval month": "use int for months; months are no number of microseconds",
}


@lru_cache(maxsize=4096)  # Every column of every plan asks, and the types are few.
def by_spark(text: str) -> SqlType:
    """Return the type of a Spark SQL type text, as in DDL or in ``DataType.simpleString()``.

    >>> by_spark("struct<a:int, `b c`: array<string>>").arrow
    StructType(struct<a: int32, b c: list<element: string>>)
    """
    reader = _Reader(text)
    found = reader.type()
    if reader.rest():
        raise UnsupportedType(text, f"the text ends before {reader.rest()!r}")
    return found


class _Reader:
    """A recursive reader of Spark's type texts."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def rest(self) -> str:
        return self._text[self._at :].strip()

    def take(self, pattern: str) -> str | None:
        found = re.compile(r"\s*(" + pattern + r")", re.IGNORECASE).match(self._text, self._at)
        if found is None:
            return None
        self._at = found.end()
        return found[1]

    def need(self, pattern: str) -> str:
        found = self.take(pattern)
        if found is None:
            raise UnsupportedType(self._text, f"it cannot be read at {self.rest()[:20]!r}")
        return found

    def type(self) -> SqlType:
        if self.take(r"array\s*<"):
            element = self.type()
            self.need(">")
            return array(element)
        if self.take(r"map\s*<"):
            key = self.type()
            self.need(",")
            value = self.type()
            self.need(">")
            return map_of(key, value)
        if self.take(r"struct\s*<"):
            return self._struct()
        return self._scalar()

    def _struct(self) -> SqlType:
        fields = [self._field()]
        while self.take(","):
            fields.append(self._field())
        self.need(">")
        return struct(*fields)

    def _field(self) -> tuple[str, SqlType]:
        quoted = self.take(r"`(?:[^`]|``)+`")
        name = quoted[1:-1].replace("``", "`") if quoted else self.need(r"[^\s:,<>`]+")
        self.take(":")
        found = self.type()
        self.take(r"not\s+null\b")
        return name, found

    def _scalar(self) -> SqlType:
        if self.take(_DAY_TIME.replace(" ", r"\s+") + r"\b"):
            return scalar("interval")
        words = self.take(r"interval\s+(?:year\s+to\s+month|year|month)\b") or self.need(r"\w+")
        name = " ".join(words.lower().split())
        arguments = self.take(r"\(\s*-?\d+\s*(?:,\s*-?\d+\s*)?\)")
        args = (
            tuple(int(number) for number in arguments.strip("()").split(",")) if arguments else ()
        )
        collation = self.take(r"collate\s+\S+?(?=[\s,>]|$)") if name == "string" else None
        if collation and collation.split()[1].lower() != "utf8_binary":
            raise UnsupportedType(f"string {collation}", "strings are compared as UTF8_BINARY")
        found = _SPARK.get(name)
        if found == "numeric":
            return numeric(*(args or _SPARK_DECIMAL_BARE))
        if found == "time" and (not args or args == (_FRACTION_DIGITS,)):
            return scalar("time")
        if found is None or args:
            written = f"{name}{arguments or ''}"
            raise UnsupportedType(written, _SPARK_INSTEAD.get(name, ""))
        return scalar(found)


def _spark_name(name: str) -> str:
    # Spark reads a name of other letters, or of digits alone, only where it is quoted.
    plain = re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII)
    return name if plain else "`" + name.replace("`", "``") + "`"


def as_text_form(type_: SqlType) -> SqlType:
    """Return the type as Arrow and Spark see it: ``jsonb`` and ``uuid`` are text to them."""
    if type_.name in TEXT_FORMS:
        return scalar("text")
    parts = tuple((name, as_text_form(part)) for name, part in type_.parts)
    return SqlType(type_.name, type_.args, parts)


__all__ = [
    "NUMERIC_BARE",
    "NUMERIC_PRECISION_MAX",
    "SqlType",
    "UnsupportedType",
    "array",
    "as_text_form",
    "by_arrow",
    "by_postgres",
    "by_spark",
    "map_of",
    "numeric",
    "scalar",
    "struct",
]

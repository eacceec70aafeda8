"""Types of MySQL and MariaDB as Arrow, and the texts of a ``SELECT`` as values.

One table of types for copied and for logged values (``sources/my_columns.py``), so that both are
the same:

| there | here |
|---|---|
| ``tinyint``, ``smallint``, ``year`` | ``smallint``; unsigned ``smallint``: ``integer`` |
| ``mediumint``, ``int`` | ``integer``; unsigned ``int``: ``bigint`` |
| ``bigint`` | ``bigint``; unsigned: ``numeric(20, 0)`` |
| ``decimal(p, s)`` | ``numeric(p, s)``, of at most 38 digits: what does not fit is an error |
| ``float``, ``double`` | ``real``, ``double precision`` |
| ``bit(1)``, ``bit(n)`` | ``boolean``; ``bigint``, of 64 bits ``numeric(20, 0)`` |
| ``date``, ``datetime``, ``timestamp`` | ``date``, ``timestamp``, ``timestamptz`` (UTC) |
| ``char``, ``varchar``, ``text``, ``enum``, ``set``, ``json``, ``time`` | ``text`` |
| ``binary``, ``varbinary``, ``blob``, geometry | ``bytea`` |

A date that is none is NULL, so columns of dates are never NOT NULL here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headwater.storage.sources.my_charsets import is_known
from headwater.storage.sources.my_json import respelled
from headwater.storage.sources.my_values import days

PRECISION_MAX: Final = 38
UNSIGNED_64: Final = pa.decimal128(20, 0)
DATETIME: Final = pa.timestamp("us")
TIMESTAMP: Final = pa.timestamp("us", "UTC")

INTEGERS: Final[Mapping[str, tuple[pa.DataType, pa.DataType]]] = {
    "tinyint": (pa.int16(), pa.int16()),
    "smallint": (pa.int16(), pa.int32()),
    "mediumint": (pa.int32(), pa.int32()),
    "int": (pa.int32(), pa.int64()),
    "bigint": (pa.int64(), UNSIGNED_64),
}
_OTHERS: Final[Mapping[str, pa.DataType]] = {
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "datetime": DATETIME,
    "timestamp": TIMESTAMP,
    "time": pa.string(),
    "year": pa.int16(),
    "json": pa.string(),
}
_TEXTS: Final = frozenset(
    ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set")
)
_BYTES: Final = frozenset(
    [
        *("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "geometry"),
        *("point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"),
        *("geometrycollection", "geomcollection"),
    ]
)
DATES: Final = frozenset(("date", "datetime", "timestamp"))


class Unreadable(ValueError):
    """A value, or a type, that there is nothing for here."""


def decimal_type(precision: int, scale: int) -> pa.DataType:
    """Return the type of a decimal: of no more digits than there are."""
    return pa.decimal128(min(precision, PRECISION_MAX), scale)


def bit_type(bits: int) -> pa.DataType:
    """Return the type of so many bits."""
    if bits == 1:
        return pa.bool_()
    return pa.int64() if bits < 64 else UNSIGNED_64


def declared_type(
    type_: str, full: str, precision: int | None, scale: int | None, charset: str | None
) -> pa.DataType:
    """Return the Arrow type of a column as information_schema declares it."""
    if type_ in INTEGERS:
        return INTEGERS[type_]["unsigned" in full]
    if type_ == "decimal":
        return decimal_type(precision or 0, scale or 0)
    if type_ == "bit":
        return bit_type(precision or 1)
    if type_ in _TEXTS:
        if charset is not None and not is_known(charset):
            raise Unreadable(f"its character set {charset} is not known here")
        return pa.string()
    if type_ in _BYTES:
        return pa.binary()
    if type_ in _OTHERS:
        return _OTHERS[type_]
    raise Unreadable(f"its type {type_} is not known here")


def selected(name: str, type_: str) -> str:
    """Return what a column is asked for with: such that its text is all of it."""
    quoted = quoted_name(name)
    if type_ == "float":  # Its own text has six digits.
        return f"{quoted} + 0e0"
    return f"{quoted} + 0" if type_ == "bit" else quoted


def quoted_name(name: str) -> str:
    """Return a name between its quotes."""
    return "`" + name.replace("`", "``") + "`"


def column_of(texts: Sequence[bytes | None], type_: pa.DataType, declared: str) -> pa.Array:
    """Return the values of a column from their texts; raise :class:`Unreadable`."""
    try:
        if pa.types.is_binary(type_):
            return pa.array(texts, type_)
        if declared == "json":
            return pa.array([None if t is None else respelled(t) for t in texts], type_)
        found = pa.array(texts, pa.string())  # Checks that they are UTF-8.
        if pa.types.is_boolean(type_):
            return pc.equal(found, "1")
        if declared in DATES:
            return _dates(found, type_)
        return found.cast(type_)
    except (pa.ArrowInvalid, ValueError) as error:
        raise Unreadable(str(error)) from error


def _dates(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    naive = DATETIME if pa.types.is_timestamp(type_) else type_
    try:
        found = texts.cast(naive)
    except pa.ArrowInvalid:  # There is one among them that is none.
        kept = [None if t is None or not _is_date(t) else t for t in texts.to_pylist()]
        found = pa.array(kept, pa.string()).cast(naive)
    return found.cast(type_)


def _is_date(text: str) -> bool:
    return days(int(text[:4]), int(text[5:7]), int(text[8:10])) is not None

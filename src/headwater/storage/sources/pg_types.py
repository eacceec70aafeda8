"""Columns of PostgreSQL as Arrow, and their text form back into values.

One table from type to type (:data:`BY_OID`); what is not in it is kept as its text. Numbers keep
their precision: ``numeric(p, s)`` is a decimal, and a bare ``numeric``, whose scale is anything, is
``decimal(38, 18)``: a value that does not fit is a definite error, not a rounded number.

The text forms are those of a session with ``TimeZone = UTC``, ``DateStyle = ISO`` and
``bytea_output = hex``, which :data:`SESSION` sets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headwater.collection.schema import Column, arrow_schema
from headwater.collection.types import scalar

SESSION: Final = (
    "SET TimeZone = 'UTC'; SET DateStyle = 'ISO, YMD'; SET IntervalStyle = 'iso_8601'; "
    "SET bytea_output = 'hex'; SET extra_float_digits = 1"
)

NUMERIC: Final = 1700
UUID: Final = 2950
PAGE_BYTES: Final = 8192
PAGE_HEADER_BYTES: Final = 40

BY_OID: Final[Mapping[int, pa.DataType]] = {
    16: pa.bool_(),
    17: pa.binary(),
    20: pa.int64(),
    21: pa.int16(),
    23: pa.int32(),
    700: pa.float32(),
    701: pa.float64(),
    1082: pa.date32(),
    1114: pa.timestamp("us"),
    1184: pa.timestamp("us", "UTC"),
}
"""Everything else is text, in PostgreSQL's own form of it."""

BARE_NUMERIC: Final = pa.decimal128(38, 18)


def arrow_type(oid: int, modifier: int) -> pa.DataType:
    """Return the type of a column with this type and modifier."""
    if oid != NUMERIC:
        return BY_OID.get(oid, pa.string())
    if modifier < 4:
        return BARE_NUMERIC
    precision, scale = (modifier - 4) >> 16 & 0xFFFF, (modifier - 4) & 0x7FF
    if scale > precision or precision > 38:
        return BARE_NUMERIC
    return pa.decimal128(precision, scale)


def field_of(name: str, oid: int, modifier: int, *, nullable: bool) -> pa.Field:
    """Return a column; a ``uuid`` tells that it is one, its text being the one of its value."""
    if oid == UUID:
        return arrow_schema([Column(name, scalar("uuid"), nullable)]).field(0)
    return pa.field(name, arrow_type(oid, modifier), nullable)


class Unreadable(ValueError):
    """A text that is no value of its column's type here."""


def column_of(texts: Sequence[bytes | None] | pa.ChunkedArray, type_: pa.DataType) -> Any:
    """Return the values of a column from their texts; raise :class:`Unreadable`."""
    try:
        if not isinstance(texts, pa.ChunkedArray):
            texts = pa.array(texts, pa.string())  # Checks that they are UTF-8.
        if pa.types.is_binary(type_):
            found = (
                None if text is None else bytes.fromhex(text[2:]) for text in texts.to_pylist()
            )
            return pa.array(found, type_)
        return pc.equal(texts, "t") if pa.types.is_boolean(type_) else texts.cast(type_)
    except (pa.ArrowInvalid, ValueError) as error:
        raise Unreadable(str(error)) from error


# ---- positions in the log --------------------------------------------------------------------


def lsn(text: str) -> int:
    """Return a position from its text: ``16/B374D848``."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) | int(low, 16)


def lsn_text(position: int) -> str:
    """Return a position as PostgreSQL writes it."""
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"


def reached(at: int, end: int) -> bool:
    """Whether everything before ``end`` is before ``at``; between them may be a page's header."""
    at_page = at % PAGE_BYTES == 0 and end - at <= PAGE_HEADER_BYTES
    return at >= end or at_page

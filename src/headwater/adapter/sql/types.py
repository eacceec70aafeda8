"""PostgreSQL types ↔ Arrow types: the one table of the adapter.

Two partial functions, neither of which guesses:

- :func:`arrow_type`: a type as written in a ``CREATE TABLE`` or a cast → the Arrow type we store.
  What we cannot hold *with its meaning* (``char(3)`` with its blanks) is refused.
- :func:`length_max`: how long the text of a column of such a type may be, which no Arrow type says.
- :func:`wire_type`: the Arrow type of a result column → PostgreSQL's OID, size and modifier.

``wire_type(arrow_type(t))`` names ``t`` again, up to ``varchar`` → ``text``. The widths and the
bare numeric belong to the decision on types (DESIGN §3); this module follows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp

from headwater.adapter.errors import InvalidDefinition, SqlSyntaxError, UnknownType, Unsupported
from headwater.adapter.sql.constraints import NUMBERED
from headwater.adapter.value_errors import InvalidLength

NUMERIC_PRECISION_MAX = 38  # Spark's and decimal128's.

# PostgreSQL's bare numeric is unbounded; no Spark type is. 29 digits before the point and 9
# after it are kept; what has more is refused.
NUMERIC_BARE = pa.decimal128(NUMERIC_PRECISION_MAX, 9)

_REAL_BITS_MAX = 24  # float(p): p up to 24 is real, beyond it double precision.
_DOUBLE_BITS_MAX = 53
_TIMESTAMP_DIGITS = 6
_VARCHAR_MAX = 10_485_760  # PostgreSQL's.

_T = exp.DataType.Type
_PLAIN: dict[Any, pa.DataType] = {
    _T.SMALLINT: pa.int16(),
    _T.INT: pa.int32(),
    _T.BIGINT: pa.int64(),
    _T.BOOLEAN: pa.bool_(),
    _T.TEXT: pa.string(),
    _T.VARCHAR: pa.string(),
    _T.FLOAT: pa.float32(),
    _T.DOUBLE: pa.float64(),
    _T.DECIMAL: NUMERIC_BARE,
    _T.DATE: pa.date32(),
    _T.TIMESTAMP: pa.timestamp("us"),
    _T.TIMESTAMPTZ: pa.timestamp("us", "UTC"),
    _T.VARBINARY: pa.binary(),
    _T.UUID: pa.string(),  # And which it is: `sql/forms.py`.
    _T.JSONB: pa.string(),
}

_INSTEAD = "Use text, and cast or parse it in a view."
_INSTEAD_OF_ARRAYS = "Keep the elements as rows of a table of their own, or the whole as jsonb."

_NUMBERED = (_T.SMALLSERIAL, _T.SERIAL, _T.BIGSERIAL)


def arrow_type(written: Any) -> pa.DataType:
    """The Arrow type of a sqlglot ``DataType`` as PostgreSQL means it."""
    kind = written.this
    if kind == _T.USERDEFINED:
        raise UnknownType(written.sql(dialect="postgres").lower())
    plain = _PLAIN.get(kind)
    if plain is None:
        if kind in _NUMBERED:
            raise Unsupported(f"type {written.sql(dialect='postgres').lower()}", hint=NUMBERED)
        if kind == _T.JSON:
            raise Unsupported("type json", hint="Use jsonb, or text to keep the spelling.")
        instead = _INSTEAD_OF_ARRAYS if kind == _T.ARRAY else _INSTEAD
        raise Unsupported(f"type {written.sql(dialect='postgres').lower()}", hint=instead)
    found = modifiers(written)
    if not found:
        return plain
    if kind == _T.DECIMAL:
        return _numeric(found)
    if kind == _T.DOUBLE and len(found) == 1 and 1 <= found[0] <= _DOUBLE_BITS_MAX:
        return pa.float32() if found[0] <= _REAL_BITS_MAX else pa.float64()
    if kind in (_T.TIMESTAMP, _T.TIMESTAMPTZ) and found == (_TIMESTAMP_DIGITS,):
        return plain
    hint = "Use text." if kind in (_T.VARCHAR, _T.CHAR) else None
    raise Unsupported(f"type {written.sql(dialect='postgres').lower()}", hint=hint)


def modifiers(written: Any) -> tuple[int, ...]:
    """The numbers behind the name of a sqlglot ``DataType``."""
    names = [str(parameter.name) for parameter in written.expressions]
    if not all(name.isascii() and name.isdigit() for name in names):
        raise SqlSyntaxError(
            written.sql(dialect="postgres").lower(),
            detail="The modifiers of a type are whole numbers.",
        )
    return tuple(map(int, names))


def length_max(written: Any) -> int | None:
    """How many characters a column written ``varchar(n)`` holds; None: as many as there are."""
    if written.this != _T.VARCHAR or len(written.expressions) != 1:
        return None
    (length,) = modifiers(written)
    if not 1 <= length <= _VARCHAR_MAX:
        raise InvalidLength(length, _VARCHAR_MAX)
    return length


def _numeric(modifiers: tuple[int, ...]) -> pa.DataType:
    precision, scale = (*modifiers, 0)[:2]
    if not 1 <= precision <= NUMERIC_PRECISION_MAX:
        raise Unsupported(
            f"numeric precision {precision}",
            detail=f"Precision is between 1 and {NUMERIC_PRECISION_MAX}.",
        )
    if not 0 <= scale <= precision:
        raise InvalidDefinition(f"numeric scale {scale} is not between 0 and {precision}")
    return pa.decimal128(precision, scale)


@dataclass(frozen=True, slots=True)
class WireType:
    """How PostgreSQL names a type on the wire: ``pg_type``'s oid, ``typlen``, and the modifier."""

    oid: int
    name: str
    size: int = -1
    modifier: int = -1


BOOL = WireType(16, "boolean", 1)
BYTEA = WireType(17, "bytea")
INT8 = WireType(20, "bigint", 8)
INT2 = WireType(21, "smallint", 2)
INT4 = WireType(23, "integer", 4)
TEXT = WireType(25, "text")
FLOAT4 = WireType(700, "real", 4)
FLOAT8 = WireType(701, "double precision", 8)
DATE = WireType(1082, "date", 4)
TIMESTAMP = WireType(1114, "timestamp without time zone", 8)
TIMESTAMPTZ = WireType(1184, "timestamp with time zone", 8)
NUMERIC = WireType(1700, "numeric")

_NUMERIC_HEADER = 4  # PostgreSQL's VARHDRSZ, added to every numeric modifier.


def wire_type(arrow: pa.DataType) -> WireType:
    """The PostgreSQL type under which a column of this Arrow type is sent."""
    if pa.types.is_decimal(arrow):
        modifier = ((arrow.precision << 16) | arrow.scale) + _NUMERIC_HEADER
        return WireType(NUMERIC.oid, f"numeric({arrow.precision},{arrow.scale})", -1, modifier)
    if pa.types.is_timestamp(arrow):
        return TIMESTAMP if arrow.tz is None else TIMESTAMPTZ
    for holds, wire in _WIRE:
        if holds(arrow):
            return wire
    raise Unsupported(
        f"a result column of type {arrow}", hint="Cast it to a type with a text form."
    )


_WIRE = (
    (pa.types.is_boolean, BOOL),
    (pa.types.is_int8, INT2),
    (pa.types.is_int16, INT2),
    (pa.types.is_int32, INT4),
    (pa.types.is_int64, INT8),
    (pa.types.is_float32, FLOAT4),
    (pa.types.is_float64, FLOAT8),
    (pa.types.is_date, DATE),
    (pa.types.is_string, TEXT),
    (pa.types.is_large_string, TEXT),
    (pa.types.is_string_view, TEXT),
    (pa.types.is_null, TEXT),
    (pa.types.is_binary, BYTEA),
    (pa.types.is_large_binary, BYTEA),
    (pa.types.is_binary_view, BYTEA),
)


_ARROW = {
    BOOL.oid: pa.bool_(),
    BYTEA.oid: pa.binary(),
    INT8.oid: pa.int64(),
    INT2.oid: pa.int16(),
    INT4.oid: pa.int32(),
    TEXT.oid: pa.string(),
    FLOAT4.oid: pa.float32(),
    FLOAT8.oid: pa.float64(),
    DATE.oid: pa.date32(),
    TIMESTAMP.oid: pa.timestamp("us"),
    TIMESTAMPTZ.oid: pa.timestamp("us", "UTC"),
    NUMERIC.oid: NUMERIC_BARE,
}


def arrow_of_oid(oid: int) -> pa.DataType | None:
    """The Arrow type of what PostgreSQL has under ``oid``; None: there is none."""
    return _ARROW.get(oid)


def arrow_of_wire(wire: WireType) -> pa.DataType:
    """The Arrow type under which a parameter sent as ``wire`` is read."""
    return _ARROW[wire.oid]

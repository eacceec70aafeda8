"""How a column is called on the wire: from Arrow and :class:`SqlType` to OID, size and modifier.

The types and their OIDs are those of ``collection/type_table.py``; what is added here is only what
a RowDescription also says (``typlen``, the modifier of a numeric), and the way back from an OID a
client sends, which knows more names (``varchar``, ``name``, ``json``) than we store.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

import pyarrow as pa

from headwater.adapter.errors import Unsupported
from headwater.collection.type_table import ARRAY_OIDS, SCALARS
from headwater.collection.types import (
    NUMERIC_BARE,
    SqlType,
    UnsupportedType,
    array,
    by_arrow,
    numeric,
    scalar,
)

TEXT: Final = scalar("text")
TEXT_OID: Final = TEXT.oid
UNKNOWN_OIDS: Final = frozenset({0, 705})
INTEGER_OIDS: Final = frozenset({20, 21, 23})

_SIZES: Final = MappingProxyType(
    {16: 1, 20: 8, 21: 2, 23: 4, 700: 4, 701: 8, 1082: 4, 1083: 8, 1114: 8, 1184: 8, 1186: 16,
     2950: 16}
)  # fmt: skip
_NUMERIC_HEADER: Final = 4  # PostgreSQL's VARHDRSZ, added to every numeric modifier.

_TEXT_ALIASES: Final = (18, 19, 705, 1042, 1043)  # char, name, unknown, bpchar, varchar
_JSON_OID: Final = 114


def of_arrow(type_: pa.DataType) -> SqlType:
    """The type under which a result column of this Arrow type is sent."""
    if pa.types.is_timestamp(type_):
        return scalar("timestamp" if type_.tz is None else "timestamptz")
    try:
        return by_arrow(type_)
    except UnsupportedType as error:
        raise Unsupported(
            f"a result column of type {type_}", hint="Cast it to a type with a text form."
        ) from error


def of_oid(oid: int) -> SqlType | None:
    """The type a client means by an OID; None if it is none of ours."""
    return _BY_OID.get(oid)


def size_of(type_: SqlType) -> int:
    """``pg_type.typlen``: bytes, or -1."""
    return _SIZES.get(type_.oid, -1)


def modifier_of(type_: SqlType) -> int:
    """``atttypmod``: precision and scale of a numeric (also of an array's), or -1."""
    while type_.name == "array":
        type_ = type_.parts[0][1]
    if type_.name != "numeric":
        return -1
    precision, scale = type_.args
    return ((precision << 16) | scale) + _NUMERIC_HEADER


def _by_oid() -> dict[int, SqlType]:
    found: dict[int, SqlType] = {}
    for line in reversed(SCALARS):  # smallint stands after tinyint, text before void
        if line.name in ("tinyint", "void"):
            continue
        type_ = numeric(*NUMERIC_BARE) if line.name == "numeric" else scalar(line.name)
        found[line.oid] = type_
        found[ARRAY_OIDS[line.name]] = array(type_)
    found.update(dict.fromkeys(_TEXT_ALIASES, TEXT))
    found[_JSON_OID] = scalar("jsonb")
    found[1015] = array(TEXT)  # varchar[]
    return found


_BY_OID: Final = _by_oid()

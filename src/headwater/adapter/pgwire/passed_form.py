"""Columns passed on from another PostgreSQL: texts of types that are not ours, under their own OID.

Catalog queries are answered by the shadow, in types (``oid``, ``name``, ``"char"``, vectors) of
which we store none. In text they are passed on as they are. Some clients ask for binary only, so
the types that catalogs are made of are also written in binary; what else there is is refused.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from typing import Final

from headwater.adapter.errors import Unsupported
from headwater.adapter.pgwire.binary_form import to_binary
from headwater.adapter.pgwire.text_form import from_text
from headwater.adapter.pgwire.wire_types import of_oid
from headwater.collection.types import array, scalar

_OID, _INT2, _NAME, _CHAR = 26, 21, 19, 18
_NUMBERS: Final = frozenset({_OID, 28, 29, 5069})  # oid, xid, cid, xid8 (of 8 bytes)
_TEXTS: Final = frozenset({_NAME, 25, 114, 142, 194, 705, 1042, 1043, 2275, 3361, 3402})
_VECTORS: Final = {22: _INT2, 30: _OID}  # int2vector, oidvector: counted from 0
_ARRAYS: Final = {1002: _CHAR, 1003: _NAME, 1028: _OID, 1014: 1042, 1015: 1043}
_ARRAY = struct.Struct("!iiIii")
_INT32 = struct.Struct("!i")
_WORDS = re.compile(r"-?\d+")


def passed_to_binary(values: Sequence[str | None], oid: int) -> list[bytes | None]:
    """Texts of the type ``oid`` in its binary form."""
    write = _writer(oid)
    if write is not None:
        return [None if value is None else write(value) for value in values]
    if oid in _VECTORS:
        return [None if value is None else _vector(value, _VECTORS[oid]) for value in values]
    if oid in _ARRAYS:
        return [None if value is None else _array(value, _ARRAYS[oid]) for value in values]
    type_ = of_oid(oid)
    if type_ is None:
        raise Unsupported(f"a column of type oid {oid} in binary", hint="Cast it to text.")
    return to_binary(from_text(values, type_), type_)


def _writer(oid: int) -> Callable[[str], bytes] | None:
    if oid == 5069:
        return lambda value: struct.pack("!Q", int(value))
    if oid in _NUMBERS:
        return lambda value: struct.pack("!I", int(value))
    if oid == _INT2:
        return lambda value: struct.pack("!h", int(value))
    if oid == _CHAR:
        return lambda value: value.encode()[:1] or b"\0"
    if oid in _TEXTS:
        return lambda value: value.encode()
    return None


def _vector(value: str, element: int) -> bytes:
    return _packed(_WORDS.findall(value), element, first=0)


def _array(value: str, element: int) -> bytes:
    (items,) = from_text([value], array(scalar("text"))).to_pylist()
    return _packed(items, element, first=1)


def _packed(items: Sequence[str | None], element: int, *, first: int) -> bytes:
    write = _writer(element)
    assert write is not None, "an array of what can be written"
    if not items:
        return struct.pack("!iiI", 0, 0, element)
    fields = [
        _INT32.pack(-1) if item is None else _INT32.pack(len(write(item))) + write(item)
        for item in items
    ]
    header = _ARRAY.pack(1, int(None in items), element, len(items), first)
    return header + b"".join(fields)

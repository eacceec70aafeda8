"""Columns passed on from another PostgreSQL: texts of types that are not ours, under their own OID.

Catalog queries are answered by the shadow, in types (``oid``, ``name``, ``"char"``, vectors) of
which we store none. In text they are passed on as they are. Some clients ask for binary only, so
the types that catalogs are made of are also written in binary; what else there is is refused.
Parameters of such types come the other way: read here, and named in the text that the shadow gets.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from typing import Final

from headwater.adapter.errors import ProtocolError, Unsupported
from headwater.adapter.pgwire.binary_form import to_binary
from headwater.adapter.pgwire.text_form import from_text
from headwater.adapter.pgwire.wire_types import of_oid
from headwater.collection.types import array, scalar

_OID, _INT2, _NAME, _CHAR = 26, 21, 19, 18
_NUMBERS: Final = frozenset({_OID, 28, 29, 5069})  # oid, xid, cid, xid8 (of 8 bytes)
_TEXTS: Final = frozenset({_NAME, 25, 114, 142, 194, 705, 1042, 1043, 2275, 3361, 3402})
_VECTORS: Final = {22: _INT2, 30: _OID}  # int2vector, oidvector: counted from 0
_ARRAYS: Final = {1002: _CHAR, 1003: _NAME, 1028: _OID, 1014: 1042, 1015: 1043}
_REGISTERED: Final = {
    24: "regproc", 2202: "regprocedure", 2203: "regoper", 2204: "regoperator", 2205: "regclass",
    2206: "regtype", 3734: "regconfig", 3769: "regdictionary", 4089: "regnamespace",
    4096: "regrole", 4191: "regcollation",
}  # fmt: skip
_XID8: Final = 5069
_VOID: Final = 2278
_NUMBER_ARRAYS: Final = {2210: 2205, 2211: 2206}  # regclass[], regtype[]
_NAMES: Final = {
    **_REGISTERED,
    26: "oid", 28: "xid", 29: "cid", _XID8: "xid8", 22: "int2vector", 30: "oidvector",
    1002: '"char"[]', 1003: "name[]", 1028: "oid[]", 1014: "bpchar[]", 2210: "regclass[]",
    2211: "regtype[]",
}  # fmt: skip
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
    if oid == _VOID:
        return lambda _: b""
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


# --- parameters -----------------------------------------------------------------------------------


def passed_name(oid: int) -> str | None:
    """The type's name in PostgreSQL; None if parameters of it are not taken."""
    return _NAMES.get(oid)


def passed_from_binary(value: bytes, oid: int) -> bytes:
    """The text of a binary value of the type ``oid``."""
    element = {**_VECTORS, **_ARRAYS, **_NUMBER_ARRAYS}.get(oid)
    try:
        if element is None:
            return _read(value, oid)
        items = [_read(item, element) for item in _unpacked(value)]
    except (struct.error, ValueError) as error:
        raise ProtocolError(f"incorrect binary data format of a parameter of oid {oid}") from error
    if oid in _VECTORS:
        return b" ".join(items)
    quoted = (b'"' + item.replace(b"\\", rb"\\").replace(b'"', rb"\"") + b'"' for item in items)
    return b"{" + b",".join(quoted) + b"}"


def _read(value: bytes, oid: int) -> bytes:
    if oid in _TEXTS or oid == _CHAR:
        return value
    if oid == _INT2:
        return str(struct.unpack("!h", value)[0]).encode()
    if oid not in _NAMES:
        raise Unsupported(f"a parameter of type oid {oid}")
    return str(struct.unpack("!Q" if oid == _XID8 else "!I", value)[0]).encode()


def _unpacked(value: bytes) -> list[bytes]:
    dimensions, nulls, _ = struct.unpack_from("!iiI", value)
    if dimensions == 0:
        return []
    if dimensions != 1 or nulls:
        raise ValueError("an array of one dimension, without NULL")
    (length,) = struct.unpack_from("!i", value, 12)
    items, place = [], _ARRAY.size
    for _ in range(length):
        (size,) = _INT32.unpack_from(value, place)
        place += _INT32.size
        if size < 0 or place + size > len(value):
            raise ValueError("an element of a length that it does not have")
        items.append(value[place : place + size])
        place += size
    return items

"""JSON of MySQL: its binary form in the log, as the text that a ``SELECT`` of the same value gives.

Both go through one spelling (:func:`spelled`), so that a copied value and a logged one are the
same: numbers with a fraction as the shortest text of a double, keys in the server's order.
MariaDB has no such form: its JSON is text, and stays as it was written.
"""

from __future__ import annotations

import base64
import json
import struct
from typing import Any, Final

from headwater.storage.sources.my_values import datetime_text, decimal_text, time_text

_LITERALS: Final = {0: None, 1: True, 2: False}
_NUMBERS: Final = {
    0x05: struct.Struct("<h"),
    0x06: struct.Struct("<H"),
    0x07: struct.Struct("<i"),
    0x08: struct.Struct("<I"),
    0x09: struct.Struct("<q"),
    0x0A: struct.Struct("<Q"),
    0x0B: struct.Struct("<d"),
}
_LITERAL, _STRING, _OPAQUE = 0x04, 0x0C, 0x0F
_DECIMAL, _DATE, _TIME, _TIMES = 246, 10, 11, (7, 12)


def spelled(value: Any) -> str:
    """Return a value as text."""
    return json.dumps(value, ensure_ascii=False)


def respelled(text: bytes) -> str:
    """Return the text of a value as we spell it."""
    return spelled(json.loads(text))


def json_text(data: bytes) -> str:
    """Return a value in binary form as text."""
    return spelled(_value(data[0], data, 1) if data else None)


def _value(kind: int, data: bytes, at: int) -> Any:
    if kind <= 0x03:
        return _container(kind, data, at)
    if kind == _LITERAL:
        return _LITERALS[data[at]]
    if kind in _NUMBERS:
        (number,) = _NUMBERS[kind].unpack_from(data, at)
        return number
    if kind == _STRING:
        length, at = _length(data, at)
        return data[at : at + length].decode()
    if kind == _OPAQUE:
        length, start = _length(data, at + 1)
        return _opaque(data[at], data[start : start + length])
    raise ValueError(f"a value of JSON has type {kind}")


def _container(kind: int, data: bytes, at: int) -> Any:
    """An object or an array, small or large: counts, keys, values, all relative to its start."""
    large, is_object = kind & 1, kind < 2
    width = 4 if large else 2

    def number(where: int, size: int = width) -> int:
        return int.from_bytes(data[where : where + size], "little")

    count, keys = number(at), []
    entry = at + 2 * width
    if is_object:
        for _ in range(count):
            start, length = at + number(entry), number(entry + width, 2)
            keys.append(data[start : start + length].decode())
            entry += width + 2
    values = []
    for _ in range(count):
        value_kind = data[entry]
        inline = value_kind in (0x04, 0x05, 0x06) or (large and value_kind in (0x07, 0x08))
        where = entry + 1 if inline else at + number(entry + 1)
        values.append(_value(value_kind, data, where))
        entry += 1 + width
    return dict(zip(keys, values, strict=True)) if is_object else values


def _length(data: bytes, at: int) -> tuple[int, int]:
    """Seven bits at a time, the lowest first."""
    length = shift = 0
    while True:
        byte = data[at]
        at += 1
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return length, at


def _opaque(kind: int, data: bytes) -> Any:
    if kind == _DECIMAL:
        text = decimal_text(data, 2, data[0], data[1])
        return float(text) if data[1] else int(text)
    if kind in (_DATE, _TIME, *_TIMES):
        packed = int.from_bytes(data[:8], "little", signed=True)
        if kind == _TIME:
            return time_text(packed, 6)
        text = datetime_text(packed)
        return text[:10] if kind == _DATE else text
    return f"base64:type{kind}:{base64.b64encode(data).decode()}"

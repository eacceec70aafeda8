"""Columns in PostgreSQL's binary format, and back: whole Arrow arrays ↔ lists of bytes.

``from_binary(to_binary(a, t), t) == a`` for every array of every type of ours, maps aside (they
are sent as jsonb). Times count from 2000-01-01, integers are big-endian, a numeric is digits to
the base 10,000 (``numeric_send``), an array has dimensions (``array_send``; it must be rectangular,
as PostgreSQL's are). NULL is None.

Bytes from a client are hostile: whatever does not have the exact form of its type is refused with
PostgreSQL's code for it, ``22P03``.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.adapter.errors import (
    AdapterError,
    DatetimeOutOfRange,
    OutOfRange,
    ProtocolError,
    Unsupported,
)
from headwater.adapter.pgwire import text_form
from headwater.adapter.pgwire.frontend import Reader
from headwater.adapter.pgwire.numeric_form import column_to_binary, number_from_binary
from headwater.adapter.sql.values import assign
from headwater.collection.types import SqlType

_EPOCH_DAYS = 10_957  # 1970-01-01 to 2000-01-01
_EPOCH_US = 946_684_800_000_000
_EPOCH_DATE = date(2000, 1, 1)
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)

_INTERVAL = struct.Struct("!qii")
_INT32 = struct.Struct("!i")
_UINT32 = struct.Struct("!I")
_ARRAY_HEADER = struct.Struct("!iiI")
_ARRAY_DIMENSION = struct.Struct("!ii")
_DIMENSIONS_MAX = 6  # PostgreSQL's MAXDIM.
_NULL_ITEM = _INT32.pack(-1)
_JSONB_VERSION = b"\x01"

_NUMPY = {
    "tinyint": (">i2", None),
    "smallint": (">i2", None),
    "integer": (">i4", None),
    "bigint": (">i8", None),
    "real": (">f4", None),
    "double precision": (">f8", None),
    "date": (">i4", pa.int32()),
    "timestamp": (">i8", pa.int64()),
    "timestamptz": (">i8", pa.int64()),
    "time": (">i8", pa.int64()),
}


class InvalidBinary(AdapterError):
    """Bytes that are not the binary form of the type they stand for."""

    condition = "INVALID_BINARY_REPRESENTATION"
    sqlstate = "22P03"

    def __init__(self, type_: SqlType) -> None:
        super().__init__(f"incorrect binary data format for type {type_}")


# --- out ------------------------------------------------------------------------------------------


def to_binary(array: pa.Array, type_: SqlType) -> list[bytes | None]:
    """Every value as its send function writes it."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if type_.name in _NUMPY:
        return _fixed(array, type_)
    match type_.name:
        case "text" | "bytea":
            values: list[bytes | None] = pc.cast(array, pa.binary()).to_pylist()
            return values
        case "numeric":
            return column_to_binary(array)
        case "boolean":
            return [_BOOLEANS[value] for value in array.to_pylist()]
        case "void":
            return [None] * len(array)
        case "jsonb":
            return _after(_JSONB_VERSION, pc.cast(array, pa.binary()).to_pylist())
        case "map":
            return _after(_JSONB_VERSION, text_form.to_text(array, type_))
        case "array":
            return _arrays(array, type_)
        case "struct":
            return _records(array, type_)
        case "interval":
            array = array.cast(pa.duration("us")).cast(pa.int64())
        case _:
            pass
    write = _ONE[type_.name]
    return [None if value is None else write(value) for value in array.to_pylist()]


def _fixed(array: pa.Array, type_: SqlType) -> list[bytes | None]:
    """A column of numbers: one buffer, cut."""
    form, as_integers = _NUMPY[type_.name]
    if type_.name in ("timestamp", "timestamptz"):
        array = array.cast(pa.timestamp("us", array.type.tz), safe=False)
    elif type_.name == "time":
        array = array.cast(pa.time64("us"))
    elif type_.name == "date":
        array = array.cast(pa.date32())
    if as_integers is not None:
        array = array.cast(as_integers)
    filled = array.fill_null(0) if array.null_count else array
    numbers = filled.to_numpy(zero_copy_only=False)
    if type_.name == "date":
        numbers = numbers - _EPOCH_DAYS
    elif type_.name in ("timestamp", "timestamptz"):
        numbers = numbers - _EPOCH_US
    packed = numbers.astype(form).tobytes()
    size = np.dtype(form).itemsize
    values: list[bytes | None] = [
        packed[start : start + size] for start in range(0, len(packed), size)
    ]
    if array.null_count:
        for index in np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)):
            values[index] = None
    return values


_BOOLEANS: dict[bool | None, bytes | None] = {None: None, True: b"\x01", False: b"\x00"}
_ONE: dict[str, Callable[[Any], bytes]] = {
    "uuid": lambda value: bytes.fromhex(value.replace("-", "")),
    "interval": lambda value: _INTERVAL.pack(*_days_apart(value)),
}


def _days_apart(microseconds: int) -> tuple[int, int, int]:
    """``(microseconds, days, months)``, both with the sign of the whole."""
    days = abs(microseconds) // 86_400_000_000
    days = -days if microseconds < 0 else days
    return microseconds - days * 86_400_000_000, days, 0


def _after(prefix: bytes, values: Sequence[bytes | None]) -> list[bytes | None]:
    return [None if value is None else prefix + value for value in values]


def _item(value: bytes | None) -> bytes:
    return _NULL_ITEM if value is None else _INT32.pack(len(value)) + value


def _arrays(array: pa.Array, type_: SqlType) -> list[bytes | None]:
    """Each value: its dimensions, then the items of all of them in one row."""
    levels = 0
    inner, element = array, type_
    while element.name == "array":
        inner, element = inner.values, element.parts[0][1]
        levels += 1
    if levels > _DIMENSIONS_MAX:
        raise Unsupported(f"an array of {levels} dimensions")
    items = [_item(value) for value in to_binary(inner, element)]
    return [
        _one_array(array, index, levels, items, element) if array[index].is_valid else None
        for index in range(len(array))
    ]


def _one_array(
    array: pa.Array, index: int, levels: int, items: list[bytes], element: SqlType
) -> bytes:
    dimensions: list[int] = []
    first, last = index, index + 1
    for _ in range(levels):
        offsets = array.offsets
        lengths = {offsets[at + 1].as_py() - offsets[at].as_py() for at in range(first, last)}
        if len(lengths) > 1 or any(not array[at].is_valid for at in range(first, last)):
            raise Unsupported("an array whose inner arrays differ in length, in binary")
        dimensions.append(next(iter(lengths), 0))
        first, last = offsets[first].as_py(), offsets[last].as_py()
        array = array.values
    if first == last:
        return _ARRAY_HEADER.pack(0, 0, element.oid)
    packed = items[first:last]
    header = _ARRAY_HEADER.pack(levels, int(_NULL_ITEM in packed), element.oid)
    sizes = b"".join(_ARRAY_DIMENSION.pack(size, 1) for size in dimensions)
    return header + sizes + b"".join(packed)


def _records(array: pa.Array, type_: SqlType) -> list[bytes | None]:
    fields = [
        [_UINT32.pack(part.oid) + _item(value) for value in to_binary(field, part)]
        for field, (_, part) in zip(array.flatten(), type_.parts, strict=True)
    ]
    count = _INT32.pack(len(fields))
    return [
        count + b"".join(row) if valid else None
        for row, valid in zip(zip(*fields, strict=True), array.is_valid().to_pylist(), strict=True)
    ]


# --- in -------------------------------------------------------------------------------------------


def from_binary(values: Sequence[bytes | None], type_: SqlType) -> pa.Array:
    """The array of the values these bytes denote."""
    if type_.name in _NUMPY_IN and None not in values:
        numbers = _numbers(values, type_)
        if numbers is not None:
            return numbers
    return pa.array([_received(value, type_) for value in values], type_.arrow)


_NUMPY_TIMES = frozenset({"date", "timestamp", "timestamptz"})
_NUMPY_IN = _NUMPY_TIMES | {"smallint", "integer", "bigint", "real", "double precision"}
_DAYS_IN, _US_IN = (-730_119, 2_921_940), (-63_082_281_600_000_000, 252_455_616_000_000_000)
"""The years 1 to 9999, counted from 2000-01-01."""


def _numbers(values: Sequence[bytes | None], type_: SqlType) -> pa.Array | None:
    """A column of numbers at once; None if one has not the form, which is then found singly."""
    form, _ = _NUMPY[type_.name]
    size = np.dtype(form).itemsize
    if set(map(len, values)) != {size}:  # type: ignore[arg-type]  # None is not among them
        return None
    read = np.frombuffer(b"".join(values), form)  # type: ignore[arg-type]
    if type_.name not in _NUMPY_TIMES:
        return pa.array(read.astype(read.dtype.newbyteorder("=")))
    low, high = _DAYS_IN if type_.name == "date" else _US_IN
    if read.min() < low or read.max() >= high:
        return None
    epoch = _EPOCH_DAYS if type_.name == "date" else _EPOCH_US
    return pa.array(read.astype(read.dtype.newbyteorder("=")) + epoch).cast(type_.arrow)


def _received(value: bytes | None, type_: SqlType) -> Any:
    if value is None:
        return None
    try:
        return _READ[type_.name](value, type_)
    except KeyError:
        raise Unsupported(f"a value of type {type_} in binary") from None
    except (struct.error, UnicodeDecodeError, ValueError, ProtocolError) as error:
        raise InvalidBinary(type_) from error


def _number(form: str) -> Callable[[bytes, SqlType], Any]:
    number = struct.Struct(form)
    return lambda value, _: number.unpack(value)[0]


def _boolean(value: bytes, _: SqlType) -> bool:
    (byte,) = value
    return byte != 0


def _text(value: bytes, type_: SqlType) -> str:
    if b"\0" in value:
        raise InvalidBinary(type_)
    return value.decode("utf-8")


def _tiny(value: bytes, type_: SqlType) -> int:
    (number,) = struct.unpack("!h", value)
    if not -128 <= number <= 127:
        raise OutOfRange(type_.postgres, number)
    return int(number)


def _date(value: bytes, _: SqlType) -> date:
    (days,) = _INT32.unpack(value)
    try:
        return _EPOCH_DATE + timedelta(days=days)
    except OverflowError:
        raise DatetimeOutOfRange(f"{days} days from 2000-01-01") from None


def _timestamp(value: bytes, type_: SqlType) -> datetime:
    (micros,) = struct.unpack("!q", value)
    try:
        instant = _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        raise DatetimeOutOfRange(f"{micros} microseconds from 2000-01-01") from None
    return instant if type_.name == "timestamptz" else instant.replace(tzinfo=None)


def _time(value: bytes, _: SqlType) -> int:
    (micros,) = struct.unpack("!q", value)
    if not 0 <= micros < 86_400_000_000:
        raise DatetimeOutOfRange(f"{micros} microseconds of a day")
    return int(micros) * 1000


def _interval(value: bytes, _: SqlType) -> int:
    micros, days, months = _INTERVAL.unpack(value)
    if months:
        raise Unsupported("an interval with months", hint="Use days, hours and seconds.")
    total = int(micros) + int(days) * 86_400_000_000
    if not -(1 << 63) <= total < 1 << 63:
        raise OutOfRange("interval", total)
    return total


def _jsonb(value: bytes, type_: SqlType) -> Any:
    if value[:1] != _JSONB_VERSION:
        raise InvalidBinary(type_)
    return text_form.one_from_text(value[1:].decode("utf-8"), type_)


def _uuid(value: bytes, type_: SqlType) -> Any:
    if len(value) != 16:
        raise InvalidBinary(type_)
    return text_form.one_from_text(value.hex(), type_)


def _numeric(value: bytes, type_: SqlType) -> Any:
    number = number_from_binary(value)
    precision, scale = type_.args
    exact = number.as_tuple()
    if exact.exponent == -scale and len(exact.digits) <= precision:
        return number
    return assign(number, type_.arrow)


def _array(value: bytes, type_: SqlType) -> Any:
    reader = Reader(value)
    levels, _, _ = reader.int32(), reader.int32(), reader.oid()
    if not 0 <= levels <= _DIMENSIONS_MAX:
        raise InvalidBinary(type_)
    sizes = [(reader.int32(), reader.int32())[0] for _ in range(levels)]
    if levels == 0:
        reader.finish()
        return []
    element = type_
    for _ in range(levels):
        if element.name != "array":
            raise InvalidBinary(type_)
        element = element.parts[0][1]
    if element.name == "array":
        raise InvalidBinary(type_)
    if min(sizes) < 0 or math.prod(sizes) > len(value):  # An item has at least its length.
        raise InvalidBinary(type_)
    if 0 in sizes:
        reader.finish()
        return []
    read = _items(reader, sizes, element)
    reader.finish()
    return read


def _items(reader: Reader, sizes: Sequence[int], element: SqlType) -> list[Any]:
    size, *inner = sizes
    if inner:
        return [_items(reader, inner, element) for _ in range(size)]
    items: list[Any] = []
    for _ in range(size):
        length = reader.int32()
        items.append(_received(None if length == -1 else reader.take(length), element))
    return items


_READ: dict[str, Callable[[bytes, SqlType], Any]] = {
    "boolean": _boolean,
    "tinyint": _tiny,
    "smallint": _number("!h"),
    "integer": _number("!i"),
    "bigint": _number("!q"),
    "real": _number("!f"),
    "double precision": _number("!d"),
    "numeric": _numeric,
    "text": _text,
    "bytea": lambda value, _: value,
    "date": _date,
    "time": _time,
    "timestamp": _timestamp,
    "timestamptz": _timestamp,
    "interval": _interval,
    "jsonb": _jsonb,
    "uuid": _uuid,
    "array": _array,
}

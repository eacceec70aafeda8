"""Columns as the binary log has them: what a table map says of each, and how its values are read.

    logged(table map)       ->  the columns, each with its Arrow type and what reads a value
    LoggedColumn.array      ->  values that were read, as an Arrow array

The server says what columns are called, and what their values mean (unsigned, character sets, the
texts of an ``enum``), with ``binlog_row_metadata = FULL``; so a column that was added, moved or
renamed is seen where it happened in the log, whatever the table looks like by now.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from headwater.storage.sources.my_binlog import Malformed, TableMap, read_length
from headwater.storage.sources.my_charsets import BINARY, UTF8, charset_of, decoder, is_known
from headwater.storage.sources.my_json import json_text
from headwater.storage.sources.my_types import (
    DATETIME,
    INTEGERS,
    TIMESTAMP,
    UNSIGNED_64,
    Unreadable,
    bit_type,
    decimal_type,
)
from headwater.storage.sources.my_values import (
    FRACTION_UNIT,
    decimal_bytes,
    decimal_text,
    microseconds,
    old_microseconds,
    packed_days,
    packed_time,
    time_text,
)

Read = Callable[[bytes, int], tuple[Any, int]]
"""From the bytes of a row, and where in them the value is: the value, and where the next one is."""


@dataclass(frozen=True, slots=True)
class LoggedColumn:
    """A column in the log."""

    name: str
    type: pa.DataType
    read: Read
    through: pa.DataType | None = None
    """What its values are before they are of its type."""

    def array(self, values: Sequence[Any]) -> pa.Array:
        """Return values as an array; raise :class:`Unreadable`."""
        try:
            if self.through is None:
                return pa.array(values, self.type)
            return pa.array(values, self.through).cast(self.type)
        except (pa.ArrowInvalid, ValueError) as error:
            raise Unreadable(str(error)) from error


_TINY, _SHORT, _LONG, _FLOAT, _DOUBLE, _OLD_TIMESTAMP, _LONGLONG, _INT24 = 1, 2, 3, 4, 5, 7, 8, 9
_DATE, _OLD_TIME, _OLD_DATETIME, _YEAR, _VARCHAR, _BIT = 10, 11, 12, 13, 15, 16
_TIMESTAMP2, _DATETIME2, _TIME2, _JSON, _NEWDECIMAL, _ENUM, _SET = 17, 18, 19, 245, 246, 247, 248
_BLOB, _VAR_STRING, _STRING, _GEOMETRY = 252, 253, 254, 255
_NUMERIC: Final = frozenset(
    (_TINY, _SHORT, _INT24, _LONG, _LONGLONG, _NEWDECIMAL, _FLOAT, _DOUBLE, _YEAR)
)
_CHARACTERS: Final = frozenset((_STRING, _VAR_STRING, _VARCHAR, _BLOB))
_META_BYTES: Final = {
    **dict.fromkeys((_FLOAT, _DOUBLE, _BLOB, _GEOMETRY, _JSON), 1),
    **dict.fromkeys((_TIMESTAMP2, _DATETIME2, _TIME2), 1),
    **dict.fromkeys((_VARCHAR, _VAR_STRING, _STRING, _BIT, _NEWDECIMAL, _ENUM, _SET), 2),
}
_INTEGER_SIZE: Final = {_TINY: 1, _SHORT: 2, _INT24: 3, _LONG: 4, _LONGLONG: 8}
_INTEGER_NAME: Final = {
    _TINY: "tinyint",
    _SHORT: "smallint",
    _INT24: "mediumint",
    _LONG: "int",
    _LONGLONG: "bigint",
}
_UNPACK: Final = {(1, True): "<b", (1, False): "<B", (2, True): "<h", (2, False): "<H"} | {
    (4, True): "<i",
    (4, False): "<I",
    (8, True): "<q",
    (8, False): "<Q",
}


@dataclass(slots=True)
class _Described:
    """What a table map says of one column."""

    kind: int
    meta: bytes
    unsigned: bool = False
    name: str = ""
    collation: int = 63
    values: tuple[bytes, ...] = ()


def logged(table: TableMap, charsets: Mapping[int, str], *, maria: bool) -> list[LoggedColumn]:
    """Return the columns of a table map; none, if it does not say what they are called."""
    described = _described(table, maria=maria)
    if not all(column.name for column in described):
        return []
    return [_logged(column, charsets) for column in described]


def _described(table: TableMap, *, maria: bool) -> list[_Described]:
    size, at = read_length(table.rest, 0)
    meta, optional = table.rest[at : at + size], at + size + (len(table.types) + 7) // 8
    columns, at = [], 0
    for kind in table.types:
        width = _META_BYTES.get(kind, 0)
        column = _Described(kind, meta[at : at + width])
        if kind == _STRING and column.meta[0] in (_ENUM, _SET):
            column.kind = column.meta[0]
        columns.append(column)
        at += width
    _describe(columns, table.rest[optional:], maria=maria)
    return columns


def _describe(columns: list[_Described], rest: bytes, *, maria: bool) -> None:
    """Read what ``binlog_row_metadata = FULL`` has the server say besides."""
    numbers = [c for c in columns if c.kind in _NUMERIC - ({_YEAR} if not maria else frozenset())]
    texts = [c for c in columns if c.kind in _CHARACTERS or (maria and c.kind == _GEOMETRY)]
    choices = [c for c in columns if c.kind in (_ENUM, _SET)]
    at = 0
    while at < len(rest):
        field = rest[at]
        size, start = read_length(rest, at + 1)
        at = start + size
        data = rest[start:at]
        match field:
            case 1:
                for n, column in enumerate(numbers):
                    column.unsigned = bool(data[n // 8] & 0x80 >> n % 8)
            case 2 | 10:
                default, *pairs = _numbers(data)
                which = texts if field == 2 else choices
                for column in which:
                    column.collation = default
                for n, collation in zip(pairs[::2], pairs[1::2], strict=True):
                    which[n].collation = collation
            case 3 | 11:
                which = texts if field == 3 else choices
                for column, collation in zip(which, _numbers(data), strict=True):
                    column.collation = collation
            case 4:
                for column, name in zip(columns, _strings(data), strict=True):
                    column.name = name.decode()
            case 5 | 6:
                kind = _SET if field == 5 else _ENUM
                where = 0
                for column in (c for c in choices if c.kind == kind):
                    count, where = read_length(data, where)
                    found = []
                    for _ in range(count):
                        length, where = read_length(data, where)
                        found.append(data[where : where + length])
                        where += length
                    column.values = tuple(found)
            case _:
                pass


def _numbers(data: bytes) -> list[int]:
    found, at = [], 0
    while at < len(data):
        number, at = read_length(data, at)
        found.append(number)
    return found


def _strings(data: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        length, at = read_length(data, at)
        found.append(data[at : at + length])
        at += length
    return found


def _logged(column: _Described, charsets: Mapping[int, str]) -> LoggedColumn:
    name, kind, meta = column.name, column.kind, column.meta
    if kind in _INTEGER_SIZE:
        return _integer(column)
    if kind == _NEWDECIMAL:
        precision, scale = meta
        size = decimal_bytes(precision, scale)
        type_ = decimal_type(precision, scale)
        return LoggedColumn(
            name,
            type_,
            lambda data, at: (decimal_text(data, at, precision, scale), at + size),
            pa.string(),
        )
    if kind in (_FLOAT, _DOUBLE):
        size = 4 if kind == _FLOAT else 8
        return LoggedColumn(
            name,
            pa.float32() if kind == _FLOAT else pa.float64(),
            _unpacking(struct.Struct("<f" if kind == _FLOAT else "<d")),
        )
    if kind in (_VARCHAR, _VAR_STRING, _STRING, _BLOB):
        return _characters(column, charset_of(column.collation, charsets))
    if kind in (_ENUM, _SET):
        return _choice(column, charset_of(column.collation, charsets))
    if kind == _BIT:
        bits = meta[0] + 8 * meta[1]
        size = (bits + 7) // 8
        whole = bit_type(bits)
        through = {UNSIGNED_64: pa.uint64(), pa.bool_(): pa.int8()}.get(whole)
        return LoggedColumn(
            name,
            whole,
            lambda data, at: (int.from_bytes(data[at : at + size], "big"), at + size),
            through,
        )
    if kind == _JSON:
        read_bytes = _sized(meta[0])

        def read_json(data: bytes, at: int) -> tuple[str, int]:
            value, at = read_bytes(data, at)
            return json_text(value), at

        return LoggedColumn(name, pa.string(), read_json)
    if kind == _GEOMETRY:
        return LoggedColumn(name, pa.binary(), _sized(meta[0]))
    return _moment(column)


def _integer(column: _Described) -> LoggedColumn:
    size, unsigned = _INTEGER_SIZE[column.kind], column.unsigned
    type_ = INTEGERS[_INTEGER_NAME[column.kind]][unsigned]
    through = pa.uint64() if type_ == UNSIGNED_64 else None
    if size != 3:
        read = _unpacking(struct.Struct(_UNPACK[size, not unsigned]))
        return LoggedColumn(column.name, type_, read, through)

    def read_three(data: bytes, at: int) -> tuple[int, int]:
        return int.from_bytes(data[at : at + 3], "little", signed=not unsigned), at + 3

    return LoggedColumn(column.name, type_, read_three)


def _unpacking(form: struct.Struct) -> Read:
    size, unpack = form.size, form.unpack_from

    def read(data: bytes, at: int) -> tuple[Any, int]:
        return unpack(data, at)[0], at + size

    return read


def _sized(width: int) -> Read:
    """Bytes with their number before them, in ``width`` bytes."""

    def read(data: bytes, at: int) -> tuple[bytes, int]:
        start = at + width
        end = start + int.from_bytes(data[at:start], "little")
        if end > len(data):
            raise Malformed("a value is longer than its event")
        return data[start:end], end

    return read


def _characters(column: _Described, charset: str) -> LoggedColumn:
    kind, meta = column.kind, column.meta
    if kind == _BLOB:
        read, length = _sized(meta[0]), 0
    elif kind == _STRING:
        # Two bits of the length are hidden, turned over, in the byte of the type.
        length = meta[1] | (meta[0] & 0x30 ^ 0x30) << 4
        read = _sized(1 if length < 256 else 2)
    else:
        length = 0
        read = _sized(1 if int.from_bytes(meta, "little") < 256 else 2)
    if charset == BINARY:
        if kind != _STRING:
            return LoggedColumn(column.name, pa.binary(), read)

        def padded(data: bytes, at: int) -> tuple[bytes, int]:
            value, at = read(data, at)
            return value.ljust(length, b"\0"), at  # Zeros at its end are not logged.

        return LoggedColumn(column.name, pa.binary(), padded)
    if charset in UTF8:
        return LoggedColumn(column.name, pa.string(), read)  # Arrow takes the bytes, and checks.
    if not is_known(charset):
        raise Unreadable(f"column {column.name!r}: its character set {charset} is not known here")
    text = decoder(charset)

    def converted(data: bytes, at: int) -> tuple[str, int]:
        value, at = read(data, at)
        return text(value), at

    return LoggedColumn(column.name, pa.string(), converted)


def _choice(column: _Described, charset: str) -> LoggedColumn:
    size = column.meta[1]
    text = bytes.decode if charset in (*UTF8, BINARY) else decoder(charset)
    values = [text(value) for value in column.values]
    if column.kind == _ENUM:
        named = ["", *values]  # What is none of them is stored as the empty text.
        return LoggedColumn(
            column.name,
            pa.string(),
            lambda data, at: (named[int.from_bytes(data[at : at + size], "little")], at + size),
        )

    def read_set(data: bytes, at: int) -> tuple[str, int]:
        chosen = int.from_bytes(data[at : at + size], "little")
        return ",".join(v for n, v in enumerate(values) if chosen >> n & 1), at + size

    return LoggedColumn(column.name, pa.string(), read_set)


def _moment(column: _Described) -> LoggedColumn:
    name, kind = column.name, column.kind
    digits = column.meta[0] if column.meta else 0
    size = (digits + 1) // 2
    unit = FRACTION_UNIT[size]

    def fraction(data: bytes, at: int) -> int:
        return int.from_bytes(data[at : at + size], "big") * unit

    def number(data: bytes, at: int, width: int) -> int:
        return int.from_bytes(data[at : at + width], "little")

    def read_datetime(data: bytes, at: int) -> tuple[int | None, int]:
        packed = int.from_bytes(data[at : at + 5], "big")
        return microseconds(packed, fraction(data, at + 5)), at + 5 + size

    def read_timestamp(data: bytes, at: int) -> tuple[int | None, int]:
        seconds = int.from_bytes(data[at : at + 4], "big")
        whole = seconds * 1_000_000 + fraction(data, at + 4)
        return (whole or None), at + 4 + size  # 0 is the date that is none.

    def read_time(data: bytes, at: int) -> tuple[str, int]:
        return time_text(packed_time(data, at, size), digits), at + 3 + size

    def read_old_time(data: bytes, at: int) -> tuple[str, int]:
        value = int.from_bytes(data[at : at + 3], "little", signed=True)
        sign, value = ("-", -value) if value < 0 else ("", value)
        return f"{sign}{value // 10_000:02d}:{value // 100 % 100:02d}:{value % 100:02d}", at + 3

    def read_year(data: bytes, at: int) -> tuple[int, int]:
        return data[at] + 1900 if data[at] else 0, at + 1

    moments: Mapping[int, tuple[pa.DataType, Read]] = {
        _DATE: (pa.date32(), lambda data, at: (packed_days(number(data, at, 3)), at + 3)),
        _DATETIME2: (DATETIME, read_datetime),
        _TIMESTAMP2: (TIMESTAMP, read_timestamp),
        _TIME2: (pa.string(), read_time),
        _YEAR: (pa.int16(), read_year),
        _OLD_TIME: (pa.string(), read_old_time),
        _OLD_DATETIME: (DATETIME, lambda d, at: (old_microseconds(number(d, at, 8)), at + 8)),
        _OLD_TIMESTAMP: (
            TIMESTAMP,
            lambda data, at: ((number(data, at, 4) * 1_000_000 or None), at + 4),
        ),
    }
    if kind not in moments:
        raise Unreadable(f"column {name!r} has type {kind} in the log, which is not known here")
    type_, read = moments[kind]
    return LoggedColumn(name, type_, read)

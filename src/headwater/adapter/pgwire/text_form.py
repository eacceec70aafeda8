"""Columns as PostgreSQL writes them, and back: whole Arrow arrays ↔ lists of texts in UTF-8.

For every array ``a`` of a type ``t`` of ours with a text form on the way in:
``from_text(to_text(a, t), t) == a``. A value is written as by
:mod:`headwater.adapter.sql.text`, the definition for one value at a time; what Arrow can do for a
whole column at once is done by Arrow, and the tests hold the two equal. On the way in Arrow's
reading is taken only where it is PostgreSQL's (Arrow reads ``0x1F`` as a number and ``1e400`` as
infinity); everything else is read one by one, which also finds the value to complain about.

NULL is None. Arrays and records are written as ``array_out`` and ``record_out`` do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.adapter.errors import (
    DatetimeOutOfRange,
    InvalidDatetime,
    InvalidText,
    OutOfRange,
    Unsupported,
)
from headwater.adapter.pgwire.wire_types import of_arrow
from headwater.adapter.sql import text
from headwater.adapter.sql.forms import canonical
from headwater.adapter.sql.values import assign
from headwater.collection.meaning import canonical_json
from headwater.collection.types import SqlType

_MICROSECONDS_PER_DAY = 86_400_000_000
_NULL_WORD = b"null"
_SPACE = " \t\n\r\v\f"  # C's, not Python's.
_ARRAY_QUOTED = re.compile(rb'[{}",\\\s]')
_RECORD_QUOTED = re.compile(rb'[(),"\\\s]')
_TIME = re.compile(r"\s*(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,6}))?)?\s*", re.ASCII)
_INTERVAL_PART = re.compile(
    r"(?P<sign>[+-]?)(?:"
    r"(?P<hours>\d+):(?P<minutes>\d{2})(?::(?P<seconds>\d{2})(?:\.(?P<fraction>\d{1,6}))?)?"
    r"|(?P<number>\d+(?:\.\d{1,6})?)\s*(?P<unit>[a-z]*))(?=[\s,+-]|$)[\s,]*",
    re.ASCII | re.IGNORECASE,
)
_UNITS_US = {
    **dict.fromkeys(("us", "microsecond", "microseconds"), 1),
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1_000),
    **dict.fromkeys(("", "s", "sec", "secs", "second", "seconds"), 1_000_000),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60_000_000),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3_600_000_000),
    **dict.fromkeys(("d", "day", "days"), _MICROSECONDS_PER_DAY),
    **dict.fromkeys(("w", "week", "weeks"), 7 * _MICROSECONDS_PER_DAY),
}
_LONGER_UNITS = frozenset({"mon", "mons", "month", "months", "y", "yr", "yrs", "year", "years"})
_YEAR_1_US, _YEAR_10000_US = -62_135_596_800_000_000, 253_402_300_800_000_000


# --- out ------------------------------------------------------------------------------------------


def to_text(array: pa.Array, type_: SqlType) -> list[bytes | None]:
    """Every value as its output function writes it."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    match type_.name:
        case "void":
            return [None] * len(array)
        case "tinyint" | "smallint" | "integer" | "bigint" | "date" | "text" | "jsonb" | "uuid":
            return _utf8(array)
        case "boolean":
            return _utf8(pc.if_else(array, "t", "f"))
        case "timestamp" | "timestamptz":
            return _utf8(_timestamps(array, zoned=type_.name == "timestamptz"))
        case "time":
            return _utf8(_without_zeros(pc.cast(array, pa.string())))
        case "numeric":
            return _numerics(array)
        case "array":
            return _arrays(array, type_)
        case "struct":
            return _records(array, type_)
        case "map":
            return [_json_of(value) for value in array]
        case name:
            return [None if value is None else _ONE[name](value) for value in _python(array, name)]


def interval_to_text(microseconds: int) -> str:
    """PostgreSQL's ``postgres`` style, a day being 24 hours."""
    days, rest = divmod(abs(microseconds), _MICROSECONDS_PER_DAY)
    sign = "-" if microseconds < 0 else ""
    parts = []
    if days:
        parts.append(f"{sign}{days} day" + ("" if days == 1 and not sign else "s"))
    if rest or not days:
        seconds, fraction = divmod(rest, 1_000_000)
        clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
        parts.append(sign + clock + (f".{fraction:06d}".rstrip("0") if fraction else ""))
    return " ".join(parts)


def _utf8(array: pa.Array) -> list[bytes | None]:
    values: list[bytes | None] = pc.cast(pc.cast(array, pa.string()), pa.binary()).to_pylist()
    return values


def _timestamps(array: pa.Array, *, zoned: bool) -> pa.Array:
    array = array.cast(pa.timestamp("us", "UTC" if zoned else None), safe=False)
    written = _without_zeros(pc.cast(array.cast(pa.timestamp("us")), pa.string()))
    return pc.binary_join_element_wise(written, "+00", "") if zoned else written


def _without_zeros(written: pa.Array) -> pa.Array:
    """``05.600000`` → ``05.6``, ``05.000000`` → ``05``."""
    whole = pc.replace_substring_regex(written, r"\.0+$", "")
    return pc.replace_substring_regex(whole, r"(\.\d*[1-9])0+$", r"\1")


def _numerics(array: pa.Array) -> list[bytes | None]:
    written = pc.cast(array, pa.string())
    if not pc.any(pc.match_substring(written, "E")).as_py():
        return _utf8(written)
    # Arrow writes 0.000000001 as 1E-9.
    return [
        None if value is None else text.numeric_to_text(value).encode()
        for value in array.to_pylist()
    ]


def _python(array: pa.Array, name: str) -> list[Any]:
    if name == "interval":
        array = array.cast(pa.duration("us")).cast(pa.int64())
    values: list[Any] = array.to_pylist()
    return values


_ONE: dict[str, Any] = {
    "real": lambda value: text.float_to_text(value, size=4).encode(),
    "double precision": lambda value: text.float_to_text(value).encode(),
    "bytea": lambda value: text.bytea_to_text(value).encode(),
    "interval": lambda value: interval_to_text(value).encode(),
}


def _arrays(array: pa.Array, type_: SqlType) -> list[bytes | None]:
    element = type_.parts[0][1]
    written = to_text(array.values, element)
    if element.name != "array":
        written = [b"NULL" if value is None else _array_element(value) for value in written]
    elif any(value is None for value in written):
        raise Unsupported("an array with a NULL where PostgreSQL has an inner array")
    offsets = array.offsets.to_pylist()
    return [
        b"{" + b",".join(written[start:end]) + b"}" if valid else None  # type: ignore[arg-type]
        for start, end, valid in zip(
            offsets, offsets[1:], array.is_valid().to_pylist(), strict=False
        )
    ]


def _array_element(value: bytes) -> bytes:
    if value and value.lower() != _NULL_WORD and _ARRAY_QUOTED.search(value) is None:
        return value
    return b'"' + value.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def _records(array: pa.Array, type_: SqlType) -> list[bytes | None]:
    fields = [
        [b"" if value is None else _record_field(value) for value in to_text(field, part)]
        for field, (_, part) in zip(array.flatten(), type_.parts, strict=True)
    ]
    return [
        b"(" + b",".join(row) + b")" if valid else None
        for row, valid in zip(zip(*fields, strict=True), array.is_valid().to_pylist(), strict=True)
    ]


def _record_field(value: bytes) -> bytes:
    if value and _RECORD_QUOTED.search(value) is None:
        return value
    return b'"' + value.replace(b"\\", b"\\\\").replace(b'"', b'""') + b'"'


def _json_of(value: pa.Scalar) -> bytes | None:
    return canonical_json(json.dumps(_jsonable(value))).encode() if value.is_valid else None


def _jsonable(value: pa.Scalar) -> Any:
    """A value inside a map, as ``to_jsonb`` would make it: what JSON has no type for is text."""
    python = value.as_py()
    type_ = value.type
    if python is None or isinstance(python, bool | int | str):
        return python
    if pa.types.is_map(type_):
        return {str(_jsonable(entry["key"])): _jsonable(entry["value"]) for entry in value.values}
    if pa.types.is_struct(type_):
        return {name: _jsonable(value[name]) for name in value}
    if pa.types.is_list(type_):
        return [_jsonable(item) for item in value.values]
    if isinstance(python, float) and python == python and abs(python) != float("inf"):
        return python
    (written,) = to_text(pa.array([python], type_), of_arrow(type_))
    assert written is not None
    return written.decode()


# --- in -------------------------------------------------------------------------------------------


def from_text(values: Sequence[str | None], type_: SqlType) -> pa.Array:
    """The array of the values these texts denote, as their input functions read them."""
    target = type_.arrow
    strings = pa.array(values, pa.string())
    fast = _by_arrow(strings, type_, target)
    if fast is not None:
        return fast
    return pa.array(
        [None if value is None else one_from_text(value, type_) for value in values], target
    )


def one_from_text(value: str, type_: SqlType) -> Any:
    """One value, as Python has it and Arrow takes it."""
    match type_.name:
        case "uuid" | "jsonb":
            return canonical(value, type_.name)
        case "time":
            return _time(value)
        case "interval":
            return _interval(value)
        case "array":
            return _array_from_text(value, type_.parts[0][1])
        case "struct" | "map" | "void":
            raise Unsupported(f"a value of type {type_} as text")
        case _:
            return assign(value, type_.arrow)


def _by_arrow(strings: pa.Array, type_: SqlType, target: pa.DataType) -> pa.Array | None:
    """What Arrow makes of a whole column, where that is what PostgreSQL would."""
    try:
        match type_.name:
            case "text":
                return strings
            case "tinyint" | "smallint" | "integer" | "bigint":
                if pc.any(pc.match_substring(strings, "x", ignore_case=True)).as_py():
                    return None
                return pc.cast(strings, target)
            case "double precision":
                read = pc.cast(strings, target)
                return None if pc.any(_is_too_far(strings, read)).as_py() else read
            case "numeric":
                return pc.cast(strings, target)
            case "date":
                return _in_years(pc.cast(strings, target), pc.cast(strings, pa.timestamp("us")))
            case "timestamp" | "timestamptz":
                if pc.any(pc.match_substring_regex(strings, r"^[^:]{11}")).as_py():
                    return None  # An hour without minutes is a time to Arrow alone.
                read = pc.cast(strings, target)
                return _in_years(read, read)
            case _:
                return None
    except pa.ArrowInvalid:
        return None


def _is_too_far(strings: pa.Array, read: pa.Array) -> pa.Array:
    """Which numbers no double is near to: Arrow reads infinity and zero of them."""
    is_zero = pc.equal(read, 0)
    if pc.any(is_zero).as_py():
        is_zero = pc.and_(is_zero, pc.match_substring_regex(strings, "^[^eE]*[1-9]"))
    return pc.or_(pc.is_inf(read), is_zero)


def _in_years(read: pa.Array, instants: pa.Array) -> pa.Array | None:
    bounds = pc.min_max(instants.cast(pa.int64()))
    least, most = bounds["min"].as_py(), bounds["max"].as_py()
    inside = least is None or (least >= _YEAR_1_US and most < _YEAR_10000_US)
    return read if inside else None


def _time(value: str) -> int:
    """Nanoseconds, Arrow's unit here."""
    matched = _TIME.fullmatch(value)
    if matched is None:
        raise InvalidDatetime("time", value)
    hours, minutes, seconds = int(matched[1]), int(matched[2]), int(matched[3] or 0)
    if hours > 23 or minutes > 59 or seconds > 59:
        raise DatetimeOutOfRange(value)
    micros = int((matched[4] or "").ljust(6, "0"))
    return ((hours * 60 + minutes) * 60 + seconds) * 1_000_000_000 + micros * 1000


def _interval(value: str) -> int:
    """Microseconds of what is written in days, hours and less, with PostgreSQL's words for them."""
    at, total = len(value) - len(value.lstrip(_SPACE)), 0
    if at == len(value):
        raise InvalidDatetime("interval", value)
    while at < len(value):
        found = _INTERVAL_PART.match(value, at)
        if found is None:
            raise InvalidDatetime("interval", value)
        at = found.end()
        if found["number"] is not None:
            unit = found["unit"].lower()
            if unit in _LONGER_UNITS:
                raise Unsupported("an interval with months", hint="Use days, hours and seconds.")
            if unit not in _UNITS_US:
                raise InvalidDatetime("interval", value)
            part = round(Decimal(found["number"]) * _UNITS_US[unit])
        else:
            seconds = (int(found["hours"]) * 60 + int(found["minutes"])) * 60
            seconds += int(found["seconds"] or 0)
            part = seconds * 1_000_000 + int((found["fraction"] or "").ljust(6, "0"))
        total += -part if found["sign"] == "-" else part
    if not -(1 << 63) <= total < 1 << 63:
        raise OutOfRange("interval", value)
    return total


def _array_from_text(value: str, element: SqlType) -> list[Any]:
    """``{1,NULL,"a b"}``; inner arrays where the element type is one."""
    items, end = _array_items(value, value.find("{"), element)
    if value[end:].strip(_SPACE) or value[: value.find("{")].strip(_SPACE):
        raise InvalidText("array", value)
    return items


_ARRAY_ITEM = re.compile(
    r'\s*(?:"((?:[^"\\]|\\.)*)"|((?:[^{}",\\\s]|\\.|\s(?=[^,}]*[^,}\s]))+))\s*',
    re.DOTALL | re.ASCII,
)


def _past_space(value: str, at: int) -> int:
    while at < len(value) and value[at] in _SPACE:
        at += 1
    return at


def _array_items(value: str, at: int, element: SqlType) -> tuple[list[Any], int]:
    if at < 0 or value[at : at + 1] != "{":
        raise InvalidText("array", value)
    items: list[Any] = []
    at += 1
    if value[at:].lstrip(_SPACE).startswith("}"):
        return items, value.index("}", at) + 1
    while True:
        if element.name == "array":
            at = _past_space(value, at)
            inner, at = _array_items(value, at, element.parts[0][1])
            items.append(inner)
        else:
            matched = _ARRAY_ITEM.match(value, at)
            if matched is None:
                raise InvalidText("array", value)
            at = matched.end()
            quoted, plain = matched[1], matched[2]
            if quoted is None and plain.lower() == "null":
                items.append(None)
            else:
                raw = plain if quoted is None else quoted
                items.append(one_from_text(re.sub(r"\\(.)", r"\1", raw, flags=re.DOTALL), element))
        at = _past_space(value, at)
        separator = value[at : at + 1]
        at += 1
        if separator == "}":
            return items, at
        if separator != ",":
            raise InvalidText("array", value)

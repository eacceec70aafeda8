"""The text form of a value, and back: PostgreSQL's input and output functions for our types.

For every value ``v`` of an Arrow type ``t`` in :mod:`.types`: ``from_text(to_text(v), t) == v``,
and ``to_text`` is what PostgreSQL prints under the settings the wire announces (ISO dates, UTC,
hex bytea, shortest exact floats). What a text may be is in ``collection/input_grammar.py``; a value
that its type cannot hold is an error here.
"""

from __future__ import annotations

import re
import string
import struct
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation

import pyarrow as pa

from headwater.adapter.errors import AdapterError, InvalidText, OutOfRange, Unsupported
from headwater.adapter.sql.moments import moment
from headwater.adapter.sql.types import wire_type
from headwater.adapter.value_errors import FloatOutOfRange
from headwater.collection import input_grammar as grammar

_INTEGER = grammar.compiled(grammar.INTEGER)
_NUMERIC = grammar.compiled(grammar.NUMERIC)
_FLOAT = grammar.compiled(grammar.FLOAT)
_UUID = grammar.compiled(grammar.UUID)
_HEX = grammar.compiled(grammar.BYTES_HEX)
_ESCAPED = grammar.compiled(grammar.BYTES_ESCAPED)
_ESCAPE = re.compile(rb"\\(?:\\|([0-7]{3}))")
_BLANKS = " \t\n\r\v\f"
# From these powers of ten on PostgreSQL writes a float with an exponent (FLT_DIG, DBL_DIG).
_FIXED_BELOW = {4: 6, 8: 15}
_FIXED_FROM = -4


class InvalidBytes(AdapterError):
    """A bytea in the escape form with a backslash that starts none."""

    condition = "INVALID_TEXT_REPRESENTATION"
    sqlstate = "22P02"

    def __init__(self) -> None:
        super().__init__("invalid input syntax for type bytea")


class InvalidHex(AdapterError):
    """A bytea in the hex form with something else in it, or half a byte."""

    condition = "INVALID_PARAMETER_VALUE"
    sqlstate = "22023"

    def __init__(self, wrong: str | None) -> None:
        super().__init__(
            "invalid hexadecimal data: odd number of digits"
            if wrong is None
            else f'invalid hexadecimal digit: "{wrong}"'
        )


# --- out ------------------------------------------------------------------------------------------


def numeric_to_text(value: Decimal) -> str:
    """Plain notation with all digits of its scale, never an exponent."""
    return format(value, "f")


def float_to_text(value: float, *, size: int = 8) -> str:
    """The shortest digits that read back as the same float of ``size`` bytes.

    PostgreSQL writes one digit more where the shortest lies exactly between two floats and reads
    back by ties-to-even (3 in 1,000 of random large floats); the value is the same.
    """
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    shortest = repr(value) if size == 8 else _shortest_single(value)
    sign, digits, exponent = Decimal(shortest).as_tuple()
    assert isinstance(exponent, int)
    figures = "".join(map(str, digits)).rstrip("0")
    minus = "-" if sign else ""
    if not figures:
        return f"{minus}0"
    power = len(digits) + exponent - 1  # of the first figure
    if not _FIXED_FROM <= power < _FIXED_BELOW[size]:
        mantissa = figures[0] + (f".{figures[1:]}" if len(figures) > 1 else "")
        return f"{minus}{mantissa}e{'-' if power < 0 else '+'}{abs(power):02d}"
    if power < 0:
        return f"{minus}0.{'0' * (-power - 1)}{figures}"
    whole, fraction = figures[: power + 1].ljust(power + 1, "0"), figures[power + 1 :]
    return minus + whole + (f".{fraction}" if fraction else "")


def _shortest_single(value: float) -> str:
    for figures in range(6, 9):
        text = f"{value:.{figures - 1}e}"
        if struct.pack("!f", float(text)) == struct.pack("!f", value):
            return text
    return f"{value:.8e}"


def bytea_to_text(value: bytes) -> str:
    r"""The hex form, ``\x…``."""
    return "\\x" + value.hex()


def date_to_text(value: date) -> str:
    """``YYYY-MM-DD``."""
    return f"{value.year:04d}-{value.month:02d}-{value.day:02d}"


def timestamp_to_text(value: datetime) -> str:
    """``YYYY-MM-DD HH:MM:SS[.f…]``, and ``+00`` after it when the value has a zone."""
    if value.tzinfo is not None:
        value = value.astimezone(UTC)
    text = f"{date_to_text(value)} {value.hour:02d}:{value.minute:02d}:{value.second:02d}"
    if value.microsecond:
        text += f".{value.microsecond:06d}".rstrip("0")
    return text if value.tzinfo is None else text + "+00"


# --- in -------------------------------------------------------------------------------------------


def from_text(text: str, target: pa.DataType) -> bool | int | float | Decimal | str | bytes | date:
    """The value that ``text`` denotes in the type ``target``, as its input function reads it.

    A numeric has all its digits: how many of them are kept is the column's to say.
    """
    if pa.types.is_string(target):
        return text
    if pa.types.is_boolean(target):
        return _boolean(text)
    if pa.types.is_integer(target):
        return _integer(text, target)
    if pa.types.is_floating(target):
        return _float(text, target)
    if pa.types.is_decimal(target):
        return _numeric(text)
    if pa.types.is_date(target):
        return moment(text, "date").day
    if pa.types.is_timestamp(target):
        return timestamp_from_text(text, zoned=target.tz is not None)
    assert pa.types.is_binary(target), f"no input function for {target}"
    return _bytea(text)


def _boolean(text: str) -> bool:
    try:
        return grammar.BOOLEANS[text.strip(_BLANKS).lower()]
    except KeyError:
        raise InvalidText("boolean", text) from None


_BASES = {"hex": 16, "octal": 8, "binary": 2}


def _whole(found: re.Match[str]) -> int | None:
    """The integer that a text is in another base than ten, if it is in one."""
    for base, size in _BASES.items():
        if found[base] is not None:
            return int(found[base].replace("_", ""), size)
    return None


def _integer(text: str, target: pa.DataType) -> int:
    name = wire_type(target).name
    found = _INTEGER.fullmatch(text)
    if found is None:
        raise InvalidText(name, text)
    if len(text) > grammar.DIGITS_MAX:
        raise OutOfRange(name, text)
    whole = _whole(found)
    value = int(found["digits"].replace("_", "")) if whole is None else whole
    value = -value if found["sign"] == "-" else value
    bound = 1 << (target.bit_width - 1)
    if not -bound <= value < bound:
        raise OutOfRange(name, text)
    return value


def _numeric(text: str) -> Decimal:
    found = _NUMERIC.fullmatch(text)
    if found is None:
        _refuse_unsupported("numeric", text)
        raise InvalidText("numeric", text)
    if len(text) > grammar.DIGITS_MAX:
        raise OutOfRange("numeric", text)
    whole = _whole(found)
    try:
        value = Decimal(found["digits"].replace("_", "") if whole is None else whole)
    except InvalidOperation:
        raise OutOfRange("numeric", text) from None
    # A numeric has no zero below zero.
    return value.copy_negate() if found["sign"] == "-" and value else value


def _float(text: str, target: pa.DataType) -> float:
    name = wire_type(target).name
    found = _FLOAT.fullmatch(text)
    if found is None:
        _refuse_unsupported("float", text)
        raise InvalidText(name, text)
    if found["digits"] is None:
        value = float("nan") if found["nan"] else float("inf")
        return -value if found["sign"] == "-" else value
    value = float(found["digits"])
    try:
        if pa.types.is_float32(target):
            (value,) = struct.unpack("!f", struct.pack("!f", value))
    except OverflowError:
        raise FloatOutOfRange(name, text) from None
    is_zero = not re.search("[1-9]", re.split("[eE]", found["digits"])[0])
    if value == float("inf") or (value == 0) != is_zero:
        raise FloatOutOfRange(name, text)
    return -value if found["sign"] == "-" else value


def _refuse_unsupported(kind: str, text: str) -> None:
    for pattern, name, hint in grammar.UNSUPPORTED[kind]:
        if grammar.compiled(pattern).fullmatch(text):
            raise Unsupported(name, detail=f'The text is "{text}".', hint=hint)


def timestamp_from_text(text: str, *, zoned: bool) -> datetime:
    """A timestamp. Zoned: an instant in UTC (its default offset); else the clock as written."""
    found = moment(text, "timestamp with time zone" if zoned else "timestamp")
    return found.instant(text) if zoned else found.wall(text)


def uuid_from_text(text: str) -> str:
    """The 36 lower-case characters of what PostgreSQL reads as a uuid."""
    found = _UUID.fullmatch(text)
    if found is None or bool(found["open"]) != bool(found["close"]):
        raise InvalidText("uuid", text)
    digits = found["digits"].replace("-", "").lower()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _bytea(text: str) -> bytes:
    if text.startswith("\\x"):
        found = _HEX.fullmatch(text)
        assert found is not None, "whatever follows is a rest"
        rest = found["rest"]
        if rest:
            first = rest[0] not in string.hexdigits
            odd = not first and len(rest) == 1
            raise InvalidHex(None if odd else rest[0 if first else 1])
        return bytes.fromhex(found["digits"])
    if _ESCAPED.fullmatch(text) is None:
        raise InvalidBytes
    # The escape form: a backslash starts a byte in octal, or is one itself by another.
    return _ESCAPE.sub(_escaped, text.encode())


def _escaped(escape: re.Match[bytes]) -> bytes:
    octal = escape.group(1)
    return b"\\" if octal is None else bytes([int(octal, 8)])

"""The text form of a value, and back: PostgreSQL's input and output functions for our types.

For every value ``v`` of an Arrow type ``t`` in :mod:`.types`: ``from_text(to_text(v), t) == v``,
and ``to_text`` is what PostgreSQL prints under the settings the wire announces (ISO dates, UTC,
hex bytea, shortest exact floats). A timestamp carries microseconds; more digits are refused, not
rounded.
"""

from __future__ import annotations

import re
import struct
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation

import pyarrow as pa

from headwater.adapter.errors import (
    AdapterError,
    DatetimeOutOfRange,
    InvalidDatetime,
    InvalidText,
    OutOfRange,
)
from headwater.adapter.sql.types import wire_type

# Every number is longer than any type of ours holds well before this many digits; Python's own
# conversion of longer ones is quadratic, and refused by it from 4,300 on.
_INTEGER = re.compile(r"\s*([+-]?\d{1,1000})\s*", re.ASCII)
_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*", re.ASCII)
_DATE = re.compile(r"\s*(\d{4})-(\d{1,2})-(\d{1,2})\s*", re.ASCII)
_TIMESTAMP = re.compile(
    r"\s*(?P<date>\d{4}-\d{1,2}-\d{1,2})"
    r"(?:[ T](?P<time>\d{1,2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?)"
    r"\s*(?P<zone>Z|z|UTC|[+-]\d{2}(?::?\d{2})?)?)?\s*",
    re.ASCII,
)
_BOOLEANS = {
    **dict.fromkeys(("t", "tr", "tru", "true", "y", "ye", "yes", "on", "1"), True),
    **dict.fromkeys(("f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0"), False),
}
_SPECIAL_FLOATS = {
    "nan": float("nan"),
    "inf": float("inf"),
    "infinity": float("inf"),
    "+infinity": float("inf"),
    "-inf": float("-inf"),
    "-infinity": float("-inf"),
}
_UUID = re.compile(r"\{?([0-9a-f]{4}-?){7}[0-9a-f]{4}\}?", re.IGNORECASE | re.ASCII)
_NOT_HEX = re.compile(r"[^0-9a-fA-F\s]", re.ASCII)
_ESCAPED = re.compile(r"(?:[^\\]|\\\\|\\[0-3][0-7]{2})*", re.DOTALL)
_ESCAPE = re.compile(rb"\\(?:\\|([0-7]{3}))")
# From these powers of ten on PostgreSQL writes a float with an exponent (FLT_DIG, DBL_DIG).
_FIXED_BELOW = {4: 6, 8: 15}
_FIXED_FROM = -4


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
    """The value that ``text`` denotes in the type ``target``, as its input function reads it."""
    if pa.types.is_string(target):
        return text
    if pa.types.is_boolean(target):
        return _boolean(text)
    if pa.types.is_integer(target):
        matched = _INTEGER.fullmatch(text)
        if matched is None:
            raise InvalidText(wire_type(target).name, text)
        return int(matched[1])
    if pa.types.is_floating(target):
        return _float(text, target)
    if pa.types.is_decimal(target):
        return _numeric(text)
    if pa.types.is_date(target):
        return _date(text)
    if pa.types.is_timestamp(target):
        return timestamp_from_text(text, zoned=target.tz is not None)
    assert pa.types.is_binary(target), f"no input function for {target}"
    return _bytea(text)


def _boolean(text: str) -> bool:
    try:
        return _BOOLEANS[text.strip().lower()]
    except KeyError:
        raise InvalidText("boolean", text) from None


def _numeric(text: str) -> Decimal:
    matched = _NUMBER.fullmatch(text)
    if matched is None:
        if text.strip().lower() in _SPECIAL_FLOATS:
            raise OutOfRange("numeric", text)
        raise InvalidText("numeric", text)
    try:
        return Decimal(matched[1])
    except InvalidOperation:
        raise OutOfRange("numeric", text) from None


def _float(text: str, target: pa.DataType) -> float:
    special = _SPECIAL_FLOATS.get(text.strip().lower())
    if special is not None:
        return special
    matched = _NUMBER.fullmatch(text)
    if matched is None:
        raise InvalidText(wire_type(target).name, text)
    value = float(matched[1])
    if value in (float("inf"), float("-inf")):
        raise OutOfRange(wire_type(target).name, text)
    return value


def _date(text: str) -> date:
    matched = _DATE.fullmatch(text)
    if matched is None:
        # A timestamp's text is a date's text too: PostgreSQL drops the time of day.
        if _TIMESTAMP.fullmatch(text) is None:
            raise InvalidDatetime("date", text)
        return timestamp_from_text(text, zoned=False).date()
    try:
        return date(int(matched[1]), int(matched[2]), int(matched[3]))
    except ValueError:
        raise DatetimeOutOfRange(text) from None


def timestamp_from_text(text: str, *, zoned: bool) -> datetime:
    """A timestamp. Zoned: an instant in UTC (its default offset); else the clock as written."""
    matched = _TIMESTAMP.fullmatch(text)
    if matched is None:
        name = "timestamp with time zone" if zoned else "timestamp"
        raise InvalidDatetime(name, text)
    year, month, day = matched["date"].split("-")
    hour, minute, *second = (matched["time"] or "00:00").split(":")
    iso = f"{year}-{int(month):02d}-{int(day):02d}T{int(hour):02d}:{minute}"
    if second:
        iso += ":" + second[0].ljust(9, "0") if "." in second[0] else ":" + second[0]
    try:
        wall = datetime.fromisoformat(iso)
        if not zoned:
            return wall
        zone = (matched["zone"] or "Z").upper().replace("UTC", "Z")
        return datetime.fromisoformat(wall.isoformat() + zone).astimezone(UTC)
    except (ValueError, OverflowError):
        raise DatetimeOutOfRange(text) from None


def uuid_from_text(text: str) -> str:
    """The 36 lower-case characters of what PostgreSQL reads as a uuid."""
    if _UUID.fullmatch(text) is None or text.startswith("{") != text.endswith("}"):
        raise InvalidText("uuid", text)
    digits = text.strip("{}").replace("-", "").lower()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _bytea(text: str) -> bytes:
    if text.startswith("\\x"):
        try:
            return bytes.fromhex(text[2:])
        except ValueError:
            wrong = _NOT_HEX.search(text, 2)
            raise InvalidHex(None if wrong is None else wrong.group()) from None
    if _ESCAPED.fullmatch(text) is None:
        raise InvalidText("bytea", text)
    # The escape form: a backslash starts a byte in octal, or is one itself by another.
    return _ESCAPE.sub(_escaped, text.encode())


def _escaped(escape: re.Match[bytes]) -> bytes:
    octal = escape.group(1)
    return b"\\" if octal is None else bytes([int(octal, 8)])

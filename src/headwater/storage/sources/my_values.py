"""Values as the binary log has them: packed numbers, decimals, dates and times. Pure.

A date that is none (``0000-00-00``, which these servers let in, and ``2024-00-00``, and under
``ALLOW_INVALID_DATES`` also ``2024-02-31``) is NULL here: there is no other value for it. A copied
row has it in the same way (``sources/my_columns.py``).
"""

from __future__ import annotations

from datetime import date
from typing import Final

_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_DAY_US: Final = 86_400_000_000
_DIGITS_BYTES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""So many bytes have so many digits of a decimal; nine of them have four."""
FRACTION_UNIT: Final = (1, 10_000, 100, 1)
"""How many microseconds one is, of a fraction of so many bytes."""


def days(year: int, month: int, day: int) -> int | None:
    """Return the days since 1970; ``None`` if there is no such day."""
    try:
        return date(year, month, day).toordinal() - _EPOCH_ORDINAL
    except ValueError:
        return None


def packed_days(value: int) -> int | None:
    """Return the days of a DATE."""
    return days(value >> 9, value >> 5 & 15, value & 31)


def microseconds(packed: int, fraction: int) -> int | None:
    """Return the microseconds since 1970 of a DATETIME in 40 bits, without its zone."""
    value = packed - 0x8000000000
    year_month, day = value >> 22, value >> 17 & 31
    found = days(year_month // 13, year_month % 13, day)
    if found is None:
        return None
    hour, minute, second = value >> 12 & 31, value >> 6 & 63, value & 63
    return found * _DAY_US + ((hour * 60 + minute) * 60 + second) * 1_000_000 + fraction


def old_microseconds(value: int) -> int | None:
    """Return the same of a DATETIME as it was once: a decimal number, YYYYMMDDhhmmss."""
    day, time = divmod(value, 1_000_000)
    found = days(day // 10_000, day // 100 % 100, day % 100)
    if found is None:
        return None
    seconds = (time // 10_000 * 60 + time // 100 % 100) * 60 + time % 100
    return found * _DAY_US + seconds * 1_000_000


def time_text(packed: int, digits: int) -> str:
    """Return a TIME as the server writes it: hours, which may be many, and so many digits."""
    sign, packed = ("-", -packed) if packed < 0 else ("", packed)
    whole, fraction = packed >> 24, packed & 0xFFFFFF
    text = f"{sign}{whole >> 12 & 0x3FF:02d}:{whole >> 6 & 63:02d}:{whole & 63:02d}"
    return f"{text}.{fraction:06d}"[: len(text) + 1 + digits] if digits else text


def datetime_text(packed: int) -> str:
    """Return a date and time, packed in 64 bits, as the server writes it in JSON."""
    whole, fraction = packed >> 24, packed & 0xFFFFFF
    day, time = whole >> 17, whole & 0x1FFFF
    year_month = day >> 5
    return (
        f"{year_month // 13:04d}-{year_month % 13:02d}-{day & 31:02d} "
        f"{time >> 12:02d}:{time >> 6 & 63:02d}:{time & 63:02d}.{fraction:06d}"
    )


def packed_time(data: bytes, at: int, size: int) -> int:
    """Return a TIME with a fraction of ``size`` bytes: whole seconds above 24 bits, below it µs."""
    if size == 3:
        return int.from_bytes(data[at : at + 6], "big") - 0x800000000000
    whole = int.from_bytes(data[at : at + 3], "big") - 0x800000
    fraction = int.from_bytes(data[at + 3 : at + 3 + size], "big")
    if whole < 0 and fraction:  # It is the complement of the whole number.
        whole, fraction = whole + 1, fraction - (1 << 8 * size)
    return (whole << 24) + fraction * FRACTION_UNIT[size]


def decimal_bytes(precision: int, scale: int) -> int:
    """Return how many bytes a decimal takes."""
    whole = precision - scale
    nines, rest = whole // 9 * 4 + scale // 9 * 4, _DIGITS_BYTES[whole % 9]
    return nines + rest + _DIGITS_BYTES[scale % 9]


def decimal_text(data: bytes, at: int, precision: int, scale: int) -> str:
    """Return a decimal as text. Groups of nine digits; the sign flips the first bit, or all."""
    size = decimal_bytes(precision, scale)
    packed = bytearray(data[at : at + size])
    negative = not packed[0] & 0x80
    packed[0] ^= 0x80
    if negative:
        packed = bytearray(byte ^ 0xFF for byte in packed)
    where, groups = 0, []
    whole = precision - scale
    for digits in (whole % 9, *[9] * (whole // 9), *[9] * (scale // 9), scale % 9):
        if digits:
            width = _DIGITS_BYTES[digits]
            groups.append(f"{int.from_bytes(packed[where : where + width], 'big'):0{digits}d}")
            where += width
    text = "".join(groups)
    if scale:
        text = f"{text[:-scale] or '0'}.{text[-scale:]}"
    return f"-{text}" if negative else text

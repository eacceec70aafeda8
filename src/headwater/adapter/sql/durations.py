"""Lengths of time as PostgreSQL writes them: ``500``, ``500ms``, ``10s``, ``5 minutes``."""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = {
    "": 1,
    "ms": 1,
    "millisecond": 1,
    "s": 1_000,
    "sec": 1_000,
    "second": 1_000,
    "min": 60_000,
    "m": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hr": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
}

_SHOWN: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1))

_DURATION: Final = re.compile(r"(\d{1,15})\s*([a-z]*)")


def duration_ms(text: str) -> int | None:
    """Read a duration; None if it is none.

    >>> duration_ms("5 minutes"), duration_ms("10s"), duration_ms("20ms"), duration_ms("soon")
    (300000, 10000, 20, None)
    """
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        return None
    number, unit = found.groups()
    # "s" is seconds, and the end of "minutes".
    factor = _UNITS.get(unit) or _UNITS.get(unit.removesuffix("s"))
    return None if factor is None else int(number) * factor


def shown(milliseconds: int) -> str:
    """Write a duration as PostgreSQL shows one: in the largest unit that it is a multiple of.

    >>> shown(90_000), shown(3_600_000), shown(0)
    ('90s', '1h', '0')
    """
    for unit, factor in _SHOWN:
        if milliseconds and milliseconds % factor == 0:
            return f"{milliseconds // factor}{unit}"
    return "0"

"""Lengths of time as PostgreSQL's settings have them: ``5s``, ``100 ms``, or milliseconds."""

from __future__ import annotations

from typing import Final

from headwater.adapter.setting_errors import InvalidSetting

_UNITS_MS: Final = {"us": 0.001, "ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_WORDS_MS: Final = {
    **_UNITS_MS,
    **dict.fromkeys(("millisecond", "milliseconds"), 1),
    **dict.fromkeys(("second", "seconds", "sec"), 1000),
    **dict.fromkeys(("minute", "minutes"), 60_000),
    **dict.fromkeys(("hour", "hours"), 3_600_000),
    **dict.fromkeys(("day", "days"), 86_400_000),
}
DURATION_MS_MAX: Final = (1 << 31) - 1
"""PostgreSQL's largest timeout."""


def duration_ms(value: str) -> int:
    """The length of time that is written, in milliseconds."""
    written = value.strip()
    digits = written.rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = written[len(digits) :].strip() or "ms"
    try:
        milliseconds = round(float(digits) * _WORDS_MS[unit])
    except (KeyError, ValueError, OverflowError):
        raise InvalidSetting(
            f'invalid length of time: "{value}"',
            hint='Valid units are "us", "ms", "s", "min", "h", and "d".',
        ) from None
    if not 0 <= milliseconds <= DURATION_MS_MAX:
        raise InvalidSetting(f"{milliseconds} ms is outside the valid range")
    return milliseconds

"""Dates, timestamps and instants: a text → the moment that PostgreSQL reads in it.

:func:`moment` finds the parts of a text (``collection/input_grammar.py`` says which there are)
and makes a calendar date, the time of day and the zone of them. What no calendar has is an error
in PostgreSQL's words; so is what it reads and we do not, by name. A fraction of a second is rounded
to microseconds as PostgreSQL does: half to even, of a double.

``compute/catalyst/java/Reader.java`` says the same, step by step, for columns.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from headwater.adapter.errors import DatetimeOutOfRange, InvalidDatetime, Unsupported
from headwater.adapter.value_errors import DisplacementOutOfRange, UnknownZone
from headwater.collection import input_grammar as grammar

_HOURS_MAX = 15
"""Of a displacement."""
_DAYS_MAX = 366
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Moment:
    """A day, the time that has passed in it, and the zone, where there is one."""

    day: date
    passed: timedelta
    zone: timezone | ZoneInfo | None

    def wall(self, text: str) -> datetime:
        """What a clock shows."""
        try:
            return datetime.combine(self.day, datetime.min.time()) + self.passed
        except OverflowError:
            raise DatetimeOutOfRange(text) from None

    def instant(self, text: str) -> datetime:
        """In UTC; a text without a zone is of UTC.

        In the hour that a clock skips, the zone is as before; in the one it repeats, as after.
        """
        wall = self.wall(text)
        before, after = (wall.replace(tzinfo=self.zone or UTC, fold=fold) for fold in (0, 1))
        repeated = (before.utcoffset() or timedelta()) > (after.utcoffset() or timedelta())
        try:
            return (after if repeated else before).astimezone(UTC)
        except OverflowError:
            raise DatetimeOutOfRange(text) from None


def moment(text: str, type_name: str) -> Moment:
    """The moment that ``text`` says; ``type_name`` is for errors."""
    if _pattern(grammar.EPOCH).fullmatch(text):
        return Moment(_EPOCH, timedelta(), UTC)
    for pattern in grammar.MOMENTS:
        found = _pattern(pattern).fullmatch(text)
        if found is not None:
            return _moment(found.groupdict(), text, type_name)
    raise _no_moment(text, type_name)


def _no_moment(text: str, type_name: str) -> Unsupported | InvalidDatetime:
    for pattern, name, hint in grammar.UNSUPPORTED["moment"]:
        if _pattern(pattern).fullmatch(text):
            return _refused((name, hint), text)
    return InvalidDatetime(type_name, text)


@cache
def _pattern(pattern: str) -> re.Pattern[str]:
    return grammar.compiled(pattern)


def _refused(what: tuple[str, str], text: str) -> Unsupported:
    name, hint = what
    return Unsupported(name, detail=f'The text is "{text}".', hint=hint)


Parts = dict[str, str | None]


def _moment(parts: Parts, text: str, type_name: str) -> Moment:
    if (parts.get("era") or "").lower() == "bc":
        raise _refused(grammar.REFUSED["bc"], text)
    passed = _passed(parts, text)
    zone = _zone(parts, text, type_name)
    return Moment(_day(parts, text, type_name), passed, zone)


def _day(parts: Parts, text: str, type_name: str) -> date:
    written = parts["year"] or ""
    year = int(written)
    if len(written) < 3:
        year += 2000 if year < 70 else 1900
    if year > grammar.YEAR_MAX:
        raise _refused(grammar.REFUSED["year"], text)
    day_of_year = parts.get("yearday")
    if day_of_year is not None and not 0 < int(day_of_year) <= _DAYS_MAX:
        raise InvalidDatetime(type_name, text)
    name = parts.get("name")
    month = int(parts.get("month") or 1) if name is None else grammar.MONTHS[name.lower()]
    try:
        found = date(year, month, int(parts.get("day") or 1))
        # Of a year that has 365, the last is the first of the next.
        return found if day_of_year is None else found + timedelta(days=int(day_of_year) - 1)
    except (ValueError, OverflowError):
        raise DatetimeOutOfRange(text) from None


def _passed(parts: Parts, text: str) -> timedelta:
    clock = parts.get("clock")
    if clock is None:
        hour, minute, second = (int(parts.get(p) or 0) for p in ("hour", "minute", "second"))
    else:
        hour, minute, second = int(clock[:2]), int(clock[2:4]), int(clock[4:] or 0)
    digits = parts.get("fraction") or parts.get("part") or "0"
    micros = round(float(f"0.{digits}") * 1_000_000)
    half = (parts.get("half") or "").lower()
    if half and hour > 12:
        raise DatetimeOutOfRange(text)
    if half:
        hour = hour % 12 + (12 if half == "pm" else 0)
    if hour > 24 or minute > 59 or second > 60 or (hour == 24 and (minute or second or micros)):
        raise DatetimeOutOfRange(text)
    return timedelta(hours=hour, minutes=minute, seconds=second, microseconds=micros)


def _zone(parts: Parts, text: str, type_name: str) -> timezone | ZoneInfo | None:
    if parts.get("shift"):
        return timezone(_shift(parts, text))
    name = parts.get("zone")
    if name is None:
        return None
    known = grammar.ABBREVIATIONS.get(name.lower())
    if known is not None:
        return timezone(timedelta(seconds=known))
    if name.lower() in grammar.MOVED:
        raise _refused(grammar.REFUSED["moved"], text)
    key = _zone_names().get(name.lower())
    if key is not None:
        return ZoneInfo(key)
    if _pattern(grammar.POSIX_ZONE).fullmatch(name):
        raise _refused(grammar.REFUSED["posix"], text)
    if name.isalpha():
        raise _no_moment(text, type_name)
    raise UnknownZone(name.lower())


def _shift(parts: Parts, text: str) -> timedelta:
    packed = parts["packed"]
    if packed is None:
        hours, minutes, seconds = (int(parts[p] or 0) for p in ("hours", "minutes", "seconds"))
    else:
        hours, minutes, seconds = int(packed[:-2]), int(packed[-2:]), 0
    if hours > _HOURS_MAX or minutes > 59 or seconds > 59:
        raise DisplacementOutOfRange(text)
    shift = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    return -shift if parts["shift"] == "-" else shift


@cache
def _zone_names() -> dict[str, str]:
    return {name.lower(): name for name in available_timezones()}

"""Frames of a distance, written so that they may reach beyond the ends of a type.

    ORDER BY x RANGE BETWEEN a PRECEDING AND b FOLLOWING
        =  ORDER BY number(x) RANGE BETWEEN number(a) PRECEDING AND number(b) FOLLOWING

where ``number`` keeps the order and all differences, in a decimal that has room on both sides:

    whole numbers            themselves
    date                     days since 1970
    timestamp, interval      microseconds (of a timestamp without zone: as if in UTC)

Spark adds the distance to each row's own value, in its own type: beyond the end that fails the job,
or, for dates, comes out at the other end. PostgreSQL has such a row in no frame but its own, and so
has this. Months are no distance, since they have no length: a frame of them is left as it is, as is
one of decimals and floats.

Pure. Kept by: ``tests/unit/compute/test_ranges.py``, ``tests/spark/test_window_overflow.py``.
Relied on by: ``ordered.py``; by ``dataflow/lower_window.py``, for how far a frame reaches.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

WHOLE_NUMBERS: Final = ("tinyint", "smallint", "int", "bigint")
_UNITS: Final = {"DAY": 86_400_000_000, "HOUR": 3_600_000_000, "MINUTE": 60_000_000}
_SECOND: Final = 1_000_000
_ORDER: Final = (*_UNITS, "SECOND")

_FRAME: Final = re.compile(r"RANGE BETWEEN (.+) AND (.+)")
_CAST: Final = re.compile(r"CAST\((.+) AS [\w ]+(?:\(\d+,\d+\))?\)")
_NEGATED: Final = re.compile(r"\(- (.+)\)")
_WHOLE: Final = re.compile(r"-?\d+[LSY]?")
_INTERVAL: Final = re.compile(r"INTERVAL '([-+]?)([\d :.]+)' ([A-Z]+)(?: TO ([A-Z]+))?")


@dataclass(frozen=True, slots=True)
class Widened:
    """What to order by, and the frame in it."""

    order: str
    frame: str


def widened(value: str, type_: str, frame: str) -> Widened | None:
    """Return the same frame over numbers; ``None`` if it has no distance, or cannot be one."""
    found = _FRAME.fullmatch(frame)
    number = _number(value, type_)
    if found is None or number is None:
        return None
    bounds = [_bound(text, type_) for text in found.groups()]
    if None in bounds or not any(b != text for b, text in zip(bounds, found.groups(), strict=True)):
        return None
    order = f"CAST({number} AS DECIMAL(20,0))"
    return Widened(order, f"RANGE BETWEEN {bounds[0]} AND {bounds[1]}")


def distances(type_: str, frame: str) -> tuple[int, int] | None:
    """Return how far a frame reaches before and after a value, in the unit of :func:`widened`.

    A bound on the other side of the value counts as none; ``None``: it has no bound, or no length.

    >>> distances("date", "RANGE BETWEEN 7 PRECEDING AND CURRENT ROW")
    (7, 0)
    >>> distances("timestamp", "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW")
    """
    found = _FRAME.fullmatch(frame)
    if found is None or _number("x", type_) is None:
        return None
    first, last = (_signed(text, type_) for text in found.groups())
    return None if first is None or last is None else (max(0, -first), max(0, last))


def _signed(text: str, type_: str) -> int | None:
    if text == "CURRENT ROW":
        return 0
    value, _, side = text.rpartition(" ")
    length = _length(value, type_)
    return -length if length is not None and side == "PRECEDING" else length


def _number(value: str, type_: str) -> str | None:
    match type_:
        case _ if type_ in WHOLE_NUMBERS:
            return value
        case "date":
            return f"unix_date({value})"
        case "timestamp":
            return f"unix_micros({value})"
        case "timestamp_ntz":
            return f"unix_micros(CAST({value} AS TIMESTAMP))"
        case "interval day to second":
            return f"unix_micros(TIMESTAMP '1970-01-01 00:00:00' + {value})"
        case _:
            return None


def _bound(text: str, type_: str) -> str | None:
    """Return a bound in the decimals that ``_number`` yields; ``None`` if it has no length."""
    if text == "CURRENT ROW" or text.startswith("UNBOUNDED "):
        return text
    value, _, side = text.rpartition(" ")
    length = _length(value, type_)
    if length is None:
        return None
    if length < 0:
        length, side = -length, "PRECEDING" if side == "FOLLOWING" else "FOLLOWING"
    return f"{length}BD {side}"


def _length(text: str, type_: str) -> int | None:
    if cast := _CAST.fullmatch(text):
        return _length(cast[1], type_)
    if negated := _NEGATED.fullmatch(text):
        length = _length(negated[1], type_)
        return None if length is None else -length
    if _WHOLE.fullmatch(text):
        whole = int(text.rstrip("LSY"))
        return whole if type_ in (*WHOLE_NUMBERS, "date") else None
    length = micros(text)
    if type_ != "date" or length is None:
        return None if type_ in WHOLE_NUMBERS else length
    days, rest = divmod(length, _UNITS["DAY"])
    return None if rest else days


def micros(text: str) -> int | None:
    """Return the length of an interval literal of days and less, in microseconds.

    >>> micros("INTERVAL '-1 02:03:04.5' DAY TO SECOND"), micros("INTERVAL '3' MONTH")
    (-93784500000, None)
    """
    found = _INTERVAL.fullmatch(text)
    if found is None or found[3] not in _ORDER or (found[4] or found[3]) not in _ORDER:
        return None
    units = _ORDER[_ORDER.index(found[3]) : _ORDER.index(found[4] or found[3]) + 1]
    parts = re.split(r"[ :]", found[2])
    if len(parts) != len(units):
        return None
    total = 0
    for part, unit in zip(parts, units, strict=True):
        whole, _, fraction = part.partition(".")
        total += int(whole) * _UNITS.get(unit, _SECOND)
        total += int(fraction.ljust(6, "0")[:6]) if fraction else 0
    return -total if found[1] == "-" else total

"""Frames of windows: from one row, or one value, to another.

    ROWS    n rows before or after, in an order
    RANGE   values that differ by at most n from the row's own: one whole number to order by and a
            number, or one date or timestamp and an interval without months

A date is ordered by as the timestamp at which it begins: that is how PostgreSQL takes an interval
from it, and Spark takes only whole days from a date. A distance is a literal: what PostgreSQL says
of a negative one, it says when it meets the first row; here it is refused beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlglot import exp

from headwater.adapter.dialect.casts import coerce
from headwater.adapter.dialect.literals import DAY_MICROS, Interval, interval_value
from headwater.adapter.dialect.refusal import only, refuse, refused
from headwater.adapter.dialect.typed import DATE, INTEGERS, INTERVAL, TIMESTAMP, TIMESTAMPTZ, Typed

BOUND: Final = "this bound of a window frame"
REMEDY: Final = (
    "A RANGE of n has one whole number to order by and a number, or one date or timestamp and an "
    "interval of days or less."
)


def frame(spec: Any, ordered_by: Sequence[Typed], translate: Callable[[Any], Typed]) -> str:
    """Return a frame in a window with this order."""
    only(spec, "kind", "start", "start_side", "end", "end_side")
    kind = str(spec.args.get("kind") or "").upper()
    if kind not in ("ROWS", "RANGE"):
        refuse(spec, f"a window frame of {kind}")
    if kind == "ROWS" and not ordered_by:
        refuse(spec, "a frame of rows in no order", "Add ORDER BY to the window.")

    def bound(value: Any, side: Any) -> str:
        direction = str(side).upper()
        match value:
            case "CURRENT ROW":
                return "CURRENT ROW"
            case "UNBOUNDED":
                return f"UNBOUNDED {direction}"
            case _ if _is_whole(value) and (kind == "ROWS" or is_of_whole_numbers(ordered_by)):
                return f"{value.this} {direction}"
            case _ if kind == "RANGE" and is_of_time(ordered_by):
                return f"{_interval(value, translate)} {direction}"
            case _:
                raise refused(spec, BOUND, REMEDY if kind == "RANGE" else None)

    end = spec.args.get("end") or "CURRENT ROW"
    bounds = [
        bound(spec.args.get("start"), spec.args.get("start_side")),
        bound(end, spec.args.get("end_side")),
    ]
    return f"{kind} BETWEEN {bounds[0]} AND {bounds[1]}"


def _is_whole(value: Any) -> bool:
    return isinstance(value, exp.Literal) and not value.is_string and str(value.this).isdigit()


def is_of_whole_numbers(ordered_by: Sequence[Typed]) -> bool:
    """Whether it is one whole number that a window is ordered by."""
    return len(ordered_by) == 1 and ordered_by[0].type in INTEGERS


def is_of_time(ordered_by: Sequence[Typed]) -> bool:
    """Whether it is one date or timestamp that a window is ordered by."""
    return len(ordered_by) == 1 and ordered_by[0].type in (DATE, TIMESTAMP, TIMESTAMPTZ)


def with_distance(spec: Any, ordered_by: Sequence[Typed]) -> Sequence[Typed]:
    """Return what to order by so that Spark can take a distance of the frame from it."""
    distances = [spec.args.get(name) for name in ("start", "end")]
    plain = all(d in (None, "CURRENT ROW", "UNBOUNDED") for d in distances)
    if plain or not is_of_time(ordered_by) or ordered_by[0].type != DATE:
        return ordered_by
    (value,) = ordered_by
    return [value.of(f"CAST({value.sql} AS TIMESTAMP_NTZ)", TIMESTAMP)]


def _interval(value: Any, translate: Callable[[Any], Typed]) -> str:
    found = translate(value)
    if found.literal is None:
        refuse(value, BOUND, REMEDY)
    found = coerce(found, INTERVAL)
    distance = Interval.read(value, found.literal or "")
    if distance.months or distance.days * DAY_MICROS + distance.micros < 0:
        refuse(value, BOUND, REMEDY)
    return interval_value(found, distance).sql

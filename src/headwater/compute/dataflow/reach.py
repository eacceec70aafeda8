"""How far the calls of a window look from a row: a few rows, what is near by its value, or all.

    lag(x, 2), lead(x, 2)                                  two rows on either side
    ROWS BETWEEN 3 PRECEDING AND 1 FOLLOWING               three before, one after
    RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND …        what is so near by its value

A reach holds for all calls of the window together, and only for an order whose first key has ranks
(``ops/near.py``). Ranks, frames without a bound, and ``IGNORE NULLS`` beyond a frame look at all.

Pure. Kept by: ``tests/unit/dataflow/test_stretches.py``. Relied on by: ``lower_window.py``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from headwater.compute.catalyst.ranges import distances
from headwater.compute.dataflow.ops.near import has_rank
from headwater.compute.ir.expression import SortKey, WindowCall

_ROWS: Final = re.compile(
    r"ROWS BETWEEN ((?:CURRENT ROW)|(?:-?[0-9]{1,9} (?:PRECEDING|FOLLOWING))) "
    r"AND ((?:CURRENT ROW)|(?:-?[0-9]{1,9} (?:PRECEDING|FOLLOWING)))"
)
_NEIGHBOURS: Final = ("lag", "lead")
REACH_MAX: Final = 1_000
"""Up to so many neighbours; what depends on more reads whole partitions."""
FAR: Final = 2**62
"""No distance is as large: values of a type are nearer to each other than twice that."""


class Reach(NamedTuple):
    """On what the answers of a row depend: so many rows, or what is so near by its value."""

    before: int
    after: int
    by_value: bool


def reach_of(calls: Sequence[WindowCall], order: Sequence[SortKey]) -> Reach | None:
    """Return how far the calls look from a row; ``None``: to any other one."""
    if not order or not has_rank(order[0].expression.type):
        return None
    rows = _largest([_rows_around(call) for call in calls])
    if rows is not None:
        return Reach(*rows, by_value=False) if sum(rows) <= REACH_MAX else None
    if len(order) > 1 or any(call.function in _NEIGHBOURS for call in calls):
        return None
    values = _largest([distances(order[0].expression.type, call.frame) for call in calls])
    return Reach(*values, by_value=True) if values is not None and sum(values) < FAR else None


def _largest(reaches: Sequence[tuple[int, int] | None]) -> tuple[int, int] | None:
    known = [reach for reach in reaches if reach is not None]
    if len(known) < len(reaches):
        return None
    return max(before for before, _ in known), max(after for _, after in known)


def _rows_around(call: WindowCall) -> tuple[int, int] | None:
    if call.function in _NEIGHBOURS:
        return _offset(call)
    found = _ROWS.fullmatch(call.frame)
    if found is None:
        return None
    first, last = map(_bound, found.groups())
    return max(0, -first), max(0, last)


def _offset(call: WindowCall) -> tuple[int, int] | None:
    """Return the places of ``lag`` and ``lead``; those that pass over NULLs may be anywhere."""
    if call.ignore_nulls or len(call.arguments) < 2:
        return None
    text = call.arguments[1].text
    distance = abs(int(text)) if re.fullmatch(r"-?[0-9]{1,9}", text) else None
    return None if distance is None else (distance, distance)


def _bound(text: str) -> int:
    if text == "CURRENT ROW":
        return 0
    distance, side = text.split()
    return int(distance) * (1 if side == "FOLLOWING" else -1)

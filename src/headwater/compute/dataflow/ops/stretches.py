"""Rows around changes, version by version: what a function of a few neighbours is given.

A row's answer depends on at most ``before`` rows before it in its partition's order and ``after``
behind it (``lag``, ``lead``, ``ROWS BETWEEN 3 PRECEDING AND 1 FOLLOWING``). So a change of a row
changes the answers of its neighbours and of no others, however large the partition is:

    stretch    rows of a partition next to each other: the changed ones, and so many on either side
               that ``before + after`` of them are the same in all versions; or up to its end
    version    as in ``versions.py``: before the first change of the stretch, and after each

Where it is the value that has to be near (``by_value``: ``RANGE BETWEEN INTERVAL '1' HOUR PRECEDING
AND CURRENT ROW``), a stretch has all rows whose value is within both distances together of a
changed one. Then all that the answer of a row within one of them depends on is there; any other
row sees the same in all versions.

A version is answered as if it were a partition. Of a row with all it depends on in the stretch that
is its answer. Of the first ``before`` rows and the last ``after`` ones, if the partition goes on
there, it is not; but all that their answers see are rows that are the same in all versions, so
these answers are, too, and cancel (``unversion.py``). What is left is what changes.

The state has the rows under their numbers (``near.py``), in that order. What is around a change is
read from it with a margin (``collection/around.py``); where that has not enough rows that stay,
since others have gone or are of other partitions, with a larger one.

Bound: the delta; and in each run of the state, of each place that changed, its rows and
:func:`margin` rows on either side, or a few times that; or all that are so near by their value.

Kept by: this module, against an oracle in ``tests/unit/dataflow/test_stretches.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from headwater.collection.around import Around
from headwater.compute.dataflow.graph import Stretches
from headwater.compute.dataflow.operator import Given, Outcome
from headwater.compute.dataflow.ops.groups import (
    GROUP,
    Longs,
    Mask,
    Members,
    Versions,
    members,
    normalised,
    numbered,
    versions,
)
from headwater.compute.dataflow.ops.near import numbers, reached, span
from headwater.compute.dataflow.ops.top_k import in_order
from headwater.compute.dataflow.ops.versions import version_rows
from headwater.compute.ir.expression import Column
from headwater.persist.consolidate import DIFF, TIME, consolidate

NUMBER: Final = Column("_number_0", "bigint", False)
SLACK: Final = 4
"""How many rows more are read around a change than it takes, if all of them stay."""
GROWTH: Final = 4
"""How many times larger a margin is where it was too small."""


def state_columns(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return the columns of the state of such an operator, whose input has these."""
    return (NUMBER, *columns)


def margin(reach: int) -> int:
    """Return how many rows are read on either side of a change at first."""
    return reach + SLACK


def step(op: Stretches, given: Given) -> Outcome:
    """Return the versions of the stretches around the changes."""
    names = [column.name for column in op.input.columns]
    delta = consolidate(given.deltas[op.input].select([*names, TIME, DIFF]))
    number = numbers(delta, op.partition, op.order[0])
    arrays = [pa.array(number), *delta.columns]
    states = {op.state: pa.Table.from_arrays(arrays, schema=given.state_schemas[op.state])}
    if not delta.num_rows:
        return Outcome(given.output.empty_table(), states)
    found = _whole(op, delta) if given.hydrating else _around(op, given, delta, number)
    return Outcome(version_rows(found.members, found.at, given.output), states)


@dataclass(frozen=True, slots=True)
class _Found:
    """Stretches in their versions; each is a group of its own."""

    at: Versions
    members: Members
    begins: Mask
    """Of each stretch, whether its partition begins with it."""
    ends: Mask


def _found(
    op: Stretches, updates: pa.Table, group: Longs, new: Mask, begins: Mask, ends: Mask
) -> _Found:
    """Return stretches by the number of each update's; ``new``: which updates are the step's."""
    at = versions(group[new], updates.column(TIME).to_numpy()[new], len(begins))
    grouped = updates.append_column(GROUP, pa.array(group))
    return _Found(at, members(grouped, at, in_order(op, grouped)), begins, ends)


def _whole(op: Stretches, delta: pa.Table) -> _Found:
    """Return each partition as one stretch: all the past there is came with the delta."""
    group, first = numbered(_partition(op, delta), len(delta))
    everywhere = np.ones(len(first), np.bool_)
    return _found(op, delta, group, np.ones(len(delta), np.bool_), everywhere, everywhere)


def _partition(op: Stretches, rows: pa.Table) -> list[Any]:
    return [normalised(rows.column(name)) for name in op.partition]


# ---- what is around changes ------------------------------------------------------------------


def _around(op: Stretches, given: Given, delta: pa.Table, number: Longs) -> _Found:
    """Return stretches with as many rows around the changes as are needed."""
    history, reach = given.states[op.state], op.before + op.after
    columns = [NUMBER.name, *(column.name for column in op.input.columns), DIFF]
    if op.by_value:
        least, most = reached(delta, op.partition, op.order[0], reach)
        seen = history.between(least, most, columns)
        return _stretched(op, given, delta, number, Around(seen, least - 1, most + 1)).found
    places = np.unique(number)
    margins = np.full(len(places), margin(reach))
    while True:  # Margins grow, until all there is is read.
        stretched = _stretched(op, given, delta, number, history.around(places, margins, columns))
        short = _short(stretched.found, reach)
        if not short.any():
            return stretched.found
        where = _within(places, stretched.low, stretched.high)
        margins[np.isin(where, stretched.where[short])] *= GROWTH


class _Stretched(NamedTuple):
    """Stretches, and the intervals of numbers that they are in."""

    found: _Found
    low: Longs
    high: Longs
    where: Longs
    """Of each stretch, its interval."""


def _stretched(
    op: Stretches, given: Given, delta: pa.Table, number: Longs, seen: Around
) -> _Stretched:
    """Return the rows of each partition that changed, in the intervals around its changes."""
    names = [column.name for column in op.input.columns]
    low, high = _merged(seen.low, seen.high)
    where = _within(seen.rows.column(NUMBER.name).to_numpy(), low, high)
    past = seen.rows.filter(pa.array(where >= 0))
    earlier = pa.array(np.full(past.num_rows, given.lower - 1))
    past = pa.Table.from_arrays(
        [*past.select(names).columns, earlier, past.column(DIFF)], schema=delta.schema
    )
    ours = _within(number, low, high)
    updates = pa.concat_tables([past, delta])
    of = np.concatenate([where[where >= 0], ours])
    group, first = numbered([pa.array(of), *_partition(op, updates)], len(updates))
    new = np.arange(len(updates)) >= len(past)
    # Of other partitions with the same numbers, nothing changed.
    changed = np.zeros(len(first), np.bool_)
    changed[group[new]] = True
    wanted = changed[group]
    group = (np.cumsum(changed) - 1)[group]
    one = np.empty(int(changed.sum()), np.int64)
    one[group[new]] = np.arange(len(number))
    where = ours[one]
    start, end = span(number[one])
    at_start, at_end = low[where] <= start, high[where] >= end
    begins, ends = (at_end, at_start) if op.order[0].descending else (at_start, at_end)
    updates = updates.filter(pa.array(wanted))
    found = _found(op, updates, group[wanted], new[wanted], begins, ends)
    return _Stretched(found, low, high, where)


def _merged(low: Longs, high: Longs) -> tuple[Longs, Longs]:
    """Return the intervals that these are together, in order; they have no ends in common."""
    order = np.argsort(low, kind="stable")
    low, reached = low[order], np.maximum.accumulate(high[order])
    begin = np.concatenate(([True], low[1:] >= reached[:-1]))
    last = np.concatenate((begin[1:], [True]))
    return low[begin], reached[last]


def _within(number: Longs, low: Longs, high: Longs) -> Longs:
    """Return in which of the intervals a number is; -1: in none."""
    where = np.searchsorted(low, number, "left") - 1
    found: Longs = np.where((where >= 0) & (number < high[where]), where, -1)
    return found


def _short(found: _Found, needed: int) -> Mask:
    """Return the stretches that have too few rows which stay, before or after their changes."""
    group = found.members.rows.column(GROUP).to_numpy()
    row, count = found.members.row, found.members.count
    least, most = np.full(len(group), np.iinfo(np.int64).max), np.zeros(len(group), np.int64)
    np.minimum.at(least, row, count)
    np.maximum.at(most, row, count)
    versions_with = np.bincount(row, minlength=len(group))
    stays = (versions_with == np.diff(found.at.start)[group]) & (least == most)
    moves = np.flatnonzero((versions_with > 0) & ~stays)

    stretches = len(found.begins)
    first, last = np.full(stretches, len(group)), np.full(stretches, -1)
    np.minimum.at(first, group[moves], moves)
    np.maximum.at(last, group[moves], moves)
    staying = np.concatenate(([0], np.cumsum(np.where(stays, most, 0))))
    bounds = np.searchsorted(group, np.arange(stretches + 1))
    before = staying[first] - staying[bounds[:-1]]
    after = staying[bounds[1:]] - staying[last + 1]
    short = ~found.begins & (before < needed)
    short |= ~found.ends & (after < needed)
    lacking: Mask = short & (last >= 0)
    return lacking

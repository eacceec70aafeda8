"""The first rows of a group, kept: so that a change below them costs nothing.

Of each group, in the order its operator has for rows, a state keeps

    kept      the first rows, with their counts: of a row all copies, and none left out in between
    total     how many rows the group has
    partial   a mark: there may be other rows than those kept

A group without the mark is *complete*: kept are all the rows there are. It gets the mark when rows
are left out, and loses it only by being read again. Counts do not say it: a row that has gone
before it came is *owed*, and one that is owed and one that is there, both left out, add up to
nothing. (A state of a program that had no marks has them from the first change of a group on;
until then total says it.) An owed row is in no answer, but kept among the others with its negative
count, so that it is not taken for there when it comes.

Rows that come before the last kept row are *known*: the group has none that is not kept. So, after
a step's delta is added, an operator that asks for the first ``need`` rows of each version finds
them among the known rows, unless so many were retracted that fewer than ``need`` are left while the
group has others; only such a group is read again, and one that may have become complete, as its
total is that of its kept rows. What comes behind the last kept row of a group that is not complete
is not looked at.

Cost of a step: its delta, and of each group that changed ``2 * slack`` rows at most; of each group
whose kept rows ran out its rows. These have been refilled to ``slack``, so ``slack - need`` of the
best rows must be retracted before it happens again.

Kept by: this module. Relied on by: ``reduce.py`` (need = 1), ``top_k.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headwater.compute.dataflow.ops.groups import (
    GROUP,
    Longs,
    Mask,
    Members,
    Versions,
    members,
)
from headwater.persist.consolidate import DIFF, TIME

KIND: Final = "_kind_0"
"""The column of a state that says what its row is."""

PARTIAL: Final = -1
"""The kind of the mark."""

BEFORE: Final = np.iinfo(np.int64).min
"""The time of what was there before the step."""

Order = Callable[[pa.Table], list[Any]]
"""From rows to the columns that they are ordered by, canonically; distinct rows are never equal."""


@dataclass(frozen=True, slots=True)
class Known:
    """The first rows of each version."""

    members: Members
    """At least ``need`` of each version, or all."""
    totals: Longs
    """Of each version, how many rows it has."""
    at: Versions
    complete: Mask
    """Of each group, whether these are all its rows."""
    _counted: Members
    """The members, and what is owed."""

    def partial(self, slack: int) -> Longs:
        """Return the groups that have other rows than those to be kept."""
        last = self.at.start[1:] - 1
        return np.flatnonzero(~self.complete | (self.members.sizes[last] > 2 * slack))

    def kept(self, slack: int) -> pa.Table:
        """Return what is to be kept after the step: rows with :data:`GROUP` and their counts."""
        last = np.zeros(self.at.count, np.bool_)
        last[self.at.start[1:] - 1] = True
        final = self._counted.where(last[self._counted.version])
        there = np.maximum(final.count, 0)
        end = np.cumsum(there)
        _, start = final.segments()
        first = np.repeat((end - there)[start], np.diff(np.append(start, len(final.version))))
        place = end - there - first
        large = self.members.sizes[final.version] > 2 * slack
        final = final.where(~large | (place < slack))
        rows = final.rows.take(pa.array(final.row))
        return rows.append_column(DIFF, pa.array(final.count))


def known(
    at: Versions,
    kept: pa.Table,
    totals: Longs,
    partial: Longs,
    delta: pa.Table,
    order: Order,
    need: int,
    reread: Callable[[Longs], pa.Table],
) -> Known:
    """Return the first rows of each version: those kept, changed by the delta, or read again.

    ``kept`` has :data:`GROUP`, the columns of rows and counts; ``delta`` the same with times;
    ``totals`` is of each group, before the step; ``partial`` are the groups with the mark.
    """
    before = kept.append_column(TIME, pa.array(np.full(len(kept), BEFORE)))
    after = totals_at(at, totals, delta)
    complete = _sums(at.groups, kept) == totals
    marked = np.zeros(at.groups, np.bool_)
    marked[partial] = True
    complete &= ~marked
    updates = pa.concat_tables([before.select(delta.column_names), delta])
    found = _found(updates, at, order, complete)
    there = found.where(found.count > 0)
    short = there.sizes < np.minimum(need, after)
    last = at.start[1:] - 1
    dry = marked & (found.sizes[last] == after[last])
    dry[at.group[short]] = True
    if dry.any():
        old = ~dry[updates.column(GROUP).to_numpy()]
        again = reread(np.flatnonzero(dry)).select(delta.column_names)
        updates = pa.concat_tables([updates.filter(pa.array(old)), again])
        complete |= dry
        found = _found(updates, at, order, complete)
        there = found.where(found.count > 0)
    return Known(there, after, at, complete, found)


def _found(updates: pa.Table, at: Versions, order: Order, complete: Mask) -> Members:
    return _without_unknown(members(updates, at, order(updates), owed=True), at, complete)


def _sums(groups: int, rows: pa.Table) -> Longs:
    sums = np.zeros(groups, np.int64)
    np.add.at(sums, rows.column(GROUP).to_numpy(), rows.column(DIFF).to_numpy())
    return sums


def totals_at(at: Versions, totals: Longs, delta: pa.Table) -> Longs:
    """Return how many rows each version has, given how many each group had before the step."""
    changes = np.zeros(at.count, np.int64)
    changes[at.start[:-1]] = totals
    version = at.at(delta.column(GROUP).to_numpy(), delta.column(TIME).to_numpy())
    np.add.at(changes, version, delta.column(DIFF).to_numpy())
    counts: Longs = running(at, changes)
    return counts


def running(at: Versions, changes: Any) -> Any:
    """Return the sums of what each version and those before it in its group add."""
    sums = np.cumsum(changes)
    before = (sums - changes)[at.start[:-1]]
    return sums - before[at.group]


def _without_unknown(found: Members, at: Versions, complete: Mask) -> Members:
    """Leave out the rows behind the last kept one, of groups that have others there."""
    if complete.all():
        return found
    group = found.rows.column(GROUP).to_numpy()
    # A version before the step has the kept rows and no others.
    old = at.is_first[found.version]
    last = np.full(at.groups, -1)
    np.maximum.at(last, group[found.row[old]], found.row[old])
    of = group[found.row]
    return found.where(complete[of] | (found.row <= last[of]))

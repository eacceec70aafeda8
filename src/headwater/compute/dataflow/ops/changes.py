"""The changes of groups whose answer is a function of sums: which, when, and what they sum up to.

A delta names groups and times. Each pair of them is a *change*; changes are ordered by group, then
time. Of every group that the delta names there are these *states*:

    0 … G-1        of each group, before the step            (what is stored, or zero)
    G … G+C-1      of each change, after it                  (all changes of its group so far added)

so the state before a change is that of the change before it, or its group's first. Everything is
computed for all states at once, and each change becomes a retraction and an insertion *at its own
time*, or nothing where both are the same row, bit by bit.

Groups are SQL's: NULL is one group, both zeros are one and shown as 0.0, all NaNs are one. A step
without group columns has the one group of :data:`ALL`.

Kept by: this module. Relied on by: ``accumulate.py``, ``distinct.py``, ``bag.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.base.errors import HeadwaterError
from headwater.collection.key import NotAKey, key_form
from headwater.collection.probe import PROBE_INDEX
from headwater.collection.type_table import UnsupportedType
from headwater.collection.types import by_spark
from headwater.compute.dataflow.memory import UNKNOWN, Memory, Numbers, begun, names_of
from headwater.compute.dataflow.operator import History
from headwater.compute.dataflow.ops.groups import normalised, numbered
from headwater.compute.ir.expression import Column
from headwater.persist.consolidate import DIFF, TIME, column_longs

Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Stores = Callable[[Longs], Sequence[Any]]
"""Makes columns of what some states have."""

ALL: Final = Column("_all_0", "int", False)
"""The key of a state that has no group columns: 0 in its only row."""

COUNT: Final = Column("_count_0", "bigint", False)
"""Of a state: how many rows the group has."""

_BITS: Final = {32: pa.int32(), 64: pa.int64()}
_SHORT: Final = 2**16


def is_distinguishable(types: Sequence[str]) -> bool:
    """Whether values of these types can tell groups apart: whether they can be a state's key."""
    try:
        for type_ in types:
            key_form(by_spark(type_).arrow)
    except (NotAKey, UnsupportedType):
        return False
    return True


def keyed_by(groups: Sequence[Column]) -> tuple[Column, ...]:
    """Return the key columns of a state with these groups."""
    return tuple(groups) or (ALL,)


@dataclass(frozen=True)
class Changes:
    """The groups that a delta names, and when each of them changes."""

    keys: tuple[Any, ...]
    """A row per group: its key as SQL shows it."""
    groups: Longs
    """Of each change, its group; ascending."""
    times: Longs
    """Of each change, its time; ascending within a group."""
    order: Longs
    """The rows of the delta, change by change …"""
    starts: Longs
    """… and where in that order each change begins."""

    @property
    def size(self) -> int:
        """How many groups there are."""
        return len(self.keys[0])

    @cached_property
    def after(self) -> Longs:
        """Of each change, the state after it."""
        return np.arange(self.size, self.size + len(self.groups))

    @cached_property
    def before(self) -> Longs:
        """Of each change, the state before it."""
        return np.where(self._leads, self.groups, self.after - 1)

    @cached_property
    def group_of(self) -> Longs:
        """Of each state, its group."""
        return np.concatenate([np.arange(self.size), self.groups])

    @cached_property
    def last(self) -> Longs:
        """Of each group, the state after its last change."""
        ends = np.append(np.flatnonzero(self._leads)[1:], len(self.groups))
        return self.size + ends - 1

    @cached_property
    def names(self) -> list[Hashable] | None:
        """What each group is called in a memory; ``None``: there is to be none."""
        return names_of(self.keys)

    @cached_property
    def _leads(self) -> Mask:
        """Which changes are the first of their group."""
        leads = np.ones(len(self.groups), np.bool_)
        leads[1:] = self.groups[1:] != self.groups[:-1]
        return leads

    def totals(self, added: Any, plus: Any = np.add) -> Any:
        """Return what each change adds, given what each row of the delta does."""
        return plus.reduceat(added[self.order], self.starts)

    def states(
        self, base: Any, change: Any, *, plus: Any = np.add, minus: Any = np.subtract
    ) -> Any:
        """Return every state, given those of the groups and what each change adds."""
        if len(change) == self.size:  # One of each group.
            return np.concatenate([base, plus(change, base)])
        total = plus.accumulate(change)
        firsts = np.flatnonzero(self._leads)
        # What has come before a group's first change is not its own.
        earlier = minus(total[firsts], change[firsts])[np.cumsum(self._leads) - 1]
        return np.concatenate([base, plus(minus(total, earlier), base[self.groups])])

    def replacements(
        self, keys: Sequence[Any], values: Sequence[Any], present: Mask, schema: pa.Schema
    ) -> pa.Table:
        """Return the updates of a collection that has one row per group, where it is present.

        Its columns are ``keys``, a value for each group, then ``values``, one for each state.
        """
        before, after = self.before, self.after
        same = np.ones(len(before), np.bool_)
        for column in values:
            same &= _identical(column, before, after)

        def picked(states: Longs) -> list[Any]:
            rows = pa.array(states)
            return [value.take(rows) for value in values]

        return self._replaced(keys, picked, present, same, schema)

    def state_replacements(
        self, numbers: Sequence[Numbers], stored: Stores, present: Mask, schema: pa.Schema
    ) -> pa.Table:
        """Return those of the state itself, whose rows are these ``numbers``, one for each state.

        ``stored`` makes columns of them, for the states that it is given.
        """
        before, after = self.before, self.after
        same = np.ones(len(before), np.bool_)
        for each in numbers:
            same &= each[before] == each[after]
        return self._replaced(self.keys, stored, present, same, schema)

    def _replaced(
        self, keys: Sequence[Any], values: Stores, present: Mask, same: Mask, schema: pa.Schema
    ) -> pa.Table:
        before, after = self.before, self.after
        was, is_ = present[before], present[after]
        kept = was & is_ & same
        gone, come = was & ~kept, is_ & ~kept
        states = np.concatenate([before[gone], after[come]])
        times = np.concatenate([self.times[gone], self.times[come]])
        diffs = np.ones(len(states), np.int64)
        diffs[: np.count_nonzero(gone)] = -1
        return self._updates(keys, values(states), states, times, diffs, schema)

    def recounts(self, keys: Sequence[Any], counts: Longs, schema: pa.Schema) -> pa.Table:
        """Return the updates of a collection that has the ``keys`` of a group this many times."""
        diffs = counts[self.after] - counts[self.before]
        changed = diffs != 0
        states, times = self.after[changed], self.times[changed]
        return self._updates(keys, (), states, times, diffs[changed], schema)

    def _updates(
        self,
        keys: Sequence[Any],
        values: Sequence[Any],
        states: Longs,
        times: Longs,
        diffs: Longs,
        schema: pa.Schema,
    ) -> pa.Table:
        groups = pa.array(self.group_of[states])
        arrays = [*(key.take(groups) for key in keys), *values, pa.array(times), pa.array(diffs)]
        # Arrow would cast what is of another type, and round.
        assert [array.type for array in arrays] == schema.types, f"updates of {schema}"
        return pa.Table.from_arrays(arrays, schema=schema)


def changes_of(delta: pa.Table, groups: Sequence[str]) -> Changes:
    """Return the groups by these columns, and when rows of each of them come or go."""
    rows = len(delta)
    if groups:
        columns = [normalised(delta.column(name)) for name in groups]
    else:
        columns = [pa.array(np.zeros(rows, np.int32))]
    number, first = numbered(columns, rows)
    times = column_longs(delta, TIME)
    order = _order(number, len(first), times)
    number, times = number[order], times[order]
    opens = np.ones(rows, np.bool_)
    opens[1:] = (number[1:] != number[:-1]) | (times[1:] != times[:-1])
    starts = np.flatnonzero(opens)
    keys = tuple(column.take(pa.array(first)) for column in columns)
    return Changes(keys, number[starts], times[starts], order, starts)


def _order(number: Longs, numbers: int, times: Longs) -> Longs:
    """Return the rows by number, then time."""
    if (times != times[0]).any():
        return np.lexsort((times, number))
    # Of short numbers there is a sort that compares none.
    return np.argsort(number.astype(np.uint16) if numbers <= _SHORT else number, kind="stable")


@dataclass(frozen=True, slots=True)
class Updates:
    """What was looked up in a state: the rows of some groups, with all that became of them.

    A group has one row or none, and what it had before cancels out. So a number of the row is the
    sum of all it ever was, each with its diff, and nothing has to be compared.
    """

    places: Longs
    """Of each of these updates, the group."""
    diffs: Longs
    table: pa.Table


@dataclass(frozen=True, slots=True)
class Stored:
    """What a state has for the groups of some changes: as far as possible, what is remembered."""

    size: int
    """How many groups there are."""
    known: Longs
    """The groups that are remembered to have a row …"""
    recalled: Mapping[str, Numbers]
    """… and the numbers of these rows."""
    updates: Updates | None
    """Of the groups that are not remembered."""

    def longs(self, column: str) -> Longs:
        """Return a number of each group; 0 where it has no row."""
        totals = np.zeros(self.size, np.int64)
        if len(self.known):
            totals[self.known] = self.recalled[column]
        if self.updates is not None:
            found, diffs = column_longs(self.updates.table, column), self.updates.diffs
            np.add.at(totals, self.updates.places, found * diffs)
        return totals


def stored_states(changes: Changes, history: History, columns: Sequence[str]) -> Stored:
    """Remember, or look up, the state's row of each group."""
    memory, names = history.memory, changes.names
    none = np.zeros(0, np.int64)
    if memory is None or names is None:
        found = _looked_up(changes, history, columns, np.arange(changes.size))
        return Stored(changes.size, none, {}, found)
    at = memory.places_of(names)
    known = np.flatnonzero(at != UNKNOWN)
    unknown = np.flatnonzero(at == UNKNOWN) if len(known) < len(at) else none
    known = known[memory.present[at[known]]]
    rows = at[known]
    return Stored(
        changes.size,
        known,
        {name: numbers[rows] for name, numbers in memory.columns.items()},
        _looked_up(changes, history, columns, unknown) if len(unknown) else None,
    )


def _looked_up(
    changes: Changes, history: History, columns: Sequence[str], groups: Longs
) -> Updates:
    keys = changes.keys
    if len(groups) < changes.size:
        keys = tuple(key.take(pa.array(groups)) for key in keys)
    found = history.probe(keys, null_safe=True, columns=[*columns, DIFF])
    places, diffs = groups[column_longs(found, PROBE_INDEX)], column_longs(found, DIFF)
    rows = np.zeros(changes.size, np.int64)
    np.add.at(rows, places, diffs)
    if ((rows != 0) & (rows != 1)).any():
        raise HeadwaterError(
            f"a state of the view has not one row per group: {', '.join(history.schema.names)}; "
            f"it is not what was written: run headwater fsck, and create the view again"
        )
    return Updates(places, diffs, found.select(columns))


def remembered(
    changes: Changes, history: History, columns: Mapping[str, Numbers], kept: Mask
) -> Memory | None:
    """Return what to remember of a state after a step; ``None``: nothing.

    Of each group ``columns`` are the numbers that its row has at last; of each state (as in the
    module's docstring) ``kept`` says whether it has one.
    """
    if changes.names is None:
        return None
    present = kept[changes.last]
    if history.memory is None:
        return begun(changes.names, columns, present)
    return history.memory.with_rows(changes.names, columns, present)


def _identical(column: Any, before: Longs, after: Longs) -> Mask:
    """Return where the values of two rows of a column are the same, bit by bit."""
    if pa.types.is_floating(column.type):
        column = column.view(_BITS[column.type.bit_width])
    if pa.types.is_integer(column.type) and not column.null_count:
        numbers = column.to_numpy()
        return np.asarray(numbers[before] == numbers[after], dtype=np.bool_)
    a, b = column.take(pa.array(before)), column.take(pa.array(after))
    if not column.null_count:
        return np.asarray(pc.equal(a, b), dtype=np.bool_)
    equal = np.asarray(pc.fill_null(pc.equal(a, b), False), dtype=np.bool_)
    both_null = np.asarray(pc.and_(a.is_null(), b.is_null()), dtype=np.bool_)
    return equal | both_null

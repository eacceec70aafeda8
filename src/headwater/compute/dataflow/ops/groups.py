"""Groups that changed: which, when, and the rows each of them has after every change.

An operator that answers per group from the rows of the group (``reduce.py``, ``top_k.py``) does in
a step, for every group ``g`` that its delta names:

    versions   v0 | v1 … vm      before the group's first change in the step; after each change time
    members    the distinct rows of g with a positive count in a version, and that count
    output     answer(v_k) - answer(v_{k-1})  at the time of v_k,  k = 1 … m

Everything is computed for all groups and versions at once: a *version* is a number, versions are
ordered by (group, time); a *row* is a number too, rows are ordered by group and, where the operator
asks for it, by an order of its own. :class:`Members` lists (version, row) in that order, so that
every answer is a reduction over segments.

A row here has the columns its operator looks at; rows that agree in them are one row. A collection
has no row less than zero times; one that is retracted before it comes is not there. Groups are
SQL's: NULL is one group, the zeros are one and shown as 0.0, all NaNs are one.

Kept by: this module. Cost: rows read times the versions of their group, and one sort.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.collection.order import order_key, sort_indices
from headwater.collection.probe import PROBE_INDEX
from headwater.compute.dataflow.operator import Given, History
from headwater.persist.consolidate import DIFF, TIME, consolidate

Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

GROUP: Final = "__group"
"""The column with the number of an update's group."""

NOWHERE: Final = np.int64(-1)
"""Instead of a row's number: there is none."""

_LIMIT: Final = 2**62
_BITS: Final = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


# ---- columns ---------------------------------------------------------------------------------


def one_array(column: Any) -> Any:
    """Return a column as one plain array."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def normalised(column: Any) -> Any:
    """Return floats as SQL groups them: 0.0 for both zeros, one NaN; other columns as they are."""
    array = one_array(column)
    if pa.types.is_floating(array.type):
        zero, nan = pa.scalar(0.0, array.type), pa.scalar(float("nan"), array.type)
        array = pc.if_else(pc.equal(array, zero), zero, array)
        array = pc.if_else(pc.is_nan(array), nan, array)
    return array


def _comparable(array: Any) -> Any:
    """Return a column that Arrow hashes by identity."""
    if pa.types.is_floating(array.type):
        return array.view(_BITS[array.type.bit_width])
    if pa.types.is_nested(array.type):
        return pa.array([order_key(value, array.type) for value in array], pa.large_binary())
    return array


def numbered(columns: Sequence[Any], rows: int) -> tuple[Longs, Longs]:
    """Number the distinct rows of these columns, bit by bit; by first appearance.

    Returns each row's number, and the first row of each number.
    """
    numbers, size = np.zeros(rows, np.int64), 1
    dense = True
    for column in columns:
        array = one_array(column)
        if pa.types.is_null(array.type) or not rows:
            continue
        encoded = pc.dictionary_encode(_comparable(array), null_encoding="encode")
        width = len(encoded.dictionary)
        if size * width >= _LIMIT:
            numbers = _dense(numbers)
            size = int(numbers.max()) + 1
        # The numbers of one column are dense already: every value has its own, as it appears.
        dense = size == 1
        numbers = numbers * width + encoded.indices.to_numpy()
        size *= width
    numbers = numbers if dense else _dense(numbers)
    first = np.zeros(int(numbers.max(initial=-1)) + 1, np.int64)
    first[numbers[::-1]] = np.arange(rows - 1, -1, -1)
    return numbers, first


def _dense(numbers: Longs) -> Longs:
    indices: Longs = pc.dictionary_encode(pa.array(numbers)).indices.to_numpy().astype(np.int64)
    return indices


def order_codes(column: Any) -> Longs:
    """Return numbers that compare as the values do in SQL: equal zeros, equal NaNs, NULL least."""
    array = normalised(column)
    if len(array) == 0 or pa.types.is_null(array.type):
        return np.zeros(len(array), np.int64)
    if pa.types.is_nested(array.type):
        array = _comparable(array)
    by_value = sort_indices(pa.table({"value": array}))
    inside = _comparable(array.take(pa.array(by_value)))
    known = np.asarray(inside.is_valid(), dtype=np.bool_)
    differ = pc.not_equal(inside[1:], inside[:-1]).fill_null(False)
    rising = np.asarray(differ, dtype=np.bool_) | (known[1:] != known[:-1])
    codes = np.empty(len(array), np.int64)
    codes[by_value] = np.concatenate(([0], np.cumsum(rising))) + known[0]
    return codes


def pick(column: Any, rows: Longs) -> Any:
    """Return the values of these rows; NULL where there is no row."""
    return one_array(column).take(pa.array(rows, mask=rows == NOWHERE))


# ---- versions --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Versions:
    """What groups are computed at: of each group, the state before the step and at each change."""

    group: Longs
    """Of each version, its group; ascending."""
    time: Longs
    """Of each version, when it begins; the first one of a group has none that means anything."""
    start: Longs
    """Of each group, its first version; and the number of versions at the end."""
    _instants: Longs
    _codes: Longs

    @property
    def count(self) -> int:
        """How many versions there are."""
        return len(self.group)

    @property
    def groups(self) -> int:
        """How many groups there are."""
        return len(self.start) - 1

    @property
    def is_first(self) -> Mask:
        """Which versions are those before the step."""
        first = np.zeros(self.count, np.bool_)
        first[self.start[:-1]] = True
        return first

    def at(self, group: Longs, time: Longs) -> Longs:
        """Return the version of its group from which on an update counts."""
        instant = np.searchsorted(self._instants, time, "right")
        codes = group * (len(self._instants) + 1) + instant
        found: Longs = np.searchsorted(self._codes, codes, "right") - 1
        return found


def _instants(time: Longs) -> Longs:
    """Return the distinct times, in order; in a first step it is mostly one."""
    if len(time) and (time == time[0]).all():
        return time[:1]
    return np.unique(time)


def versions(group: Longs, time: Longs, groups: int) -> Versions:
    """Return the versions of the groups ``0 … groups - 1`` that change at these times."""
    instants = _instants(time)
    width = len(instants) + 1
    firsts = np.arange(groups, dtype=np.int64) * width
    changes = group * width + np.searchsorted(instants, time) + 1
    if groups * width <= 8 * len(changes):  # Few enough to be marked, where sorting takes long.
        marks = np.zeros(groups * width, np.bool_)
        marks[firsts] = marks[changes] = True
        codes = np.flatnonzero(marks)
    else:
        codes = np.unique(np.concatenate([firsts, changes]))
    of_group, place = codes // width, codes % width
    times = np.concatenate(([np.iinfo(np.int64).min], instants))[place]
    start = np.searchsorted(of_group, np.arange(groups + 1))
    return Versions(of_group, times, start, instants, codes)


# ---- the groups of a step --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Changed:
    """The groups that a step's delta names."""

    delta: pa.Table
    """Of the columns looked at, consolidated, with :data:`GROUP`."""
    keys: pa.Table
    """A row per group: the key as SQL shows it."""
    versions: Versions

    def history(
        self, given: Given, history: History, groups: Longs, columns: Sequence[str] = ()
    ) -> pa.Table:
        """Return all updates of these groups before the step's upper, with :data:`GROUP`.

        ``columns``: only these of the columns looked at.
        """
        looked_at = [name for name in self.delta.column_names if name not in (TIME, DIFF, GROUP)]
        names = [*(columns or looked_at), TIME, DIFF]
        if given.hydrating:
            # All the past there is came with the delta.
            wanted = np.isin(self.delta.column(GROUP).to_numpy(), groups)
            return self.delta.filter(pa.array(wanted)).select([*names, GROUP])
        keys = [one_array(self.keys.column(name)).take(pa.array(groups)) for name in history.key]
        found = history.probe(keys, null_safe=True, columns=names)
        number = pa.array(groups[found.column(PROBE_INDEX).to_numpy()])
        return found.drop_columns([PROBE_INDEX]).append_column(GROUP, number)

    def kept_state(self, history: History) -> pa.Table:
        """Return what a state has for these groups, consolidated, with :data:`GROUP`."""
        names = [name for name in history.schema.names if name != TIME]
        keys = [self.keys.column(name) for name in history.key]
        found = history.probe(keys, null_safe=True, columns=names)
        number = found.column(PROBE_INDEX)
        return consolidate(found.drop_columns([PROBE_INDEX]).append_column(GROUP, number))


def changed(
    delta: pa.Table, key: Sequence[str], columns: Sequence[str], always_at: int | None = None
) -> Changed:
    """Return the groups by ``key`` whose rows, seen in ``columns``, change in the delta.

    ``always_at``: there is one group, and it begins at this time even if no row does.
    """
    wanted = list(dict.fromkeys([*key, *columns]))
    delta = consolidate(delta.select([*wanted, TIME, DIFF]))
    keys = pa.table({name: normalised(delta.column(name)) for name in key})
    number, first = numbered(keys.columns, len(delta))
    time, groups = delta.column(TIME).to_numpy(), len(first)
    at = versions(number, time, groups)
    if always_at is not None:
        assert groups <= 1, "an aggregate without groups has one"
        at = versions(np.append(number, 0), np.append(time, always_at), 1)
    delta = delta.append_column(GROUP, pa.array(number))
    return Changed(delta, keys.take(pa.array(first)), at)


@dataclass(frozen=True)
class Members:
    """Which rows each version has, ordered by (version, row)."""

    rows: pa.Table
    """The distinct rows, ordered by group."""
    row: Longs
    version: Longs
    count: Longs
    """How many of the row the version has: 1 or more, or what it owes (:func:`members`)."""
    versions: int

    @cached_property
    def sizes(self) -> Longs:
        """Of each version, how many rows it has, duplicates counted."""
        return self.total(self.count)

    def total(self, numbers: Longs) -> Longs:
        """Return the sum of these numbers, one per member, of each version."""
        sums = np.zeros(self.versions, np.int64)
        np.add.at(sums, self.version, numbers)
        return sums

    def where(self, mask: Mask) -> Members:
        """Return these members alone."""
        return Members(
            self.rows, self.row[mask], self.version[mask], self.count[mask], self.versions
        )

    def segments(self) -> tuple[Longs, Longs]:
        """Return the versions that have rows, and where the members of each begin."""
        if not len(self.version):
            return self.version, self.version
        start = np.flatnonzero(np.concatenate(([True], self.version[1:] != self.version[:-1])))
        return self.version[start], start


def members(
    updates: pa.Table, at: Versions, order: Sequence[Any] | None = None, *, owed: bool = False
) -> Members:
    """Return the members of each version, given all updates of its group.

    A row that has gone before it came is none of them; with ``owed`` it is, with a negative count.

    ``updates`` has :data:`GROUP`, times and diffs. ``order`` are columns beside it: rows of a group
    follow their canonical order (and its ties last); without it they have no order.
    """
    names = [name for name in updates.column_names if name not in (TIME, DIFF)]
    number, first = numbered([updates.column(name) for name in names], len(updates))
    rows = updates.select(names).take(pa.array(first))
    if order is None:
        by_group = np.argsort(rows.column(GROUP).to_numpy(), kind="stable")
    else:
        keys = [rows.column(GROUP), *(one_array(key).take(pa.array(first)) for key in order)]
        by_group = sort_indices(pa.table(keys, names=[f"k{n}" for n in range(len(keys))]))
    place = np.empty(len(by_group), np.int64)
    place[by_group] = np.arange(len(by_group))
    rows = rows.take(pa.array(by_group))
    group = rows.column(GROUP).to_numpy()
    version = at.at(updates.column(GROUP).to_numpy(), updates.column(TIME).to_numpy())
    counts = _counts(group, place[number], version, updates.column(DIFF).to_numpy(), at)
    return _listed(rows, group, counts, at, owed)


def _counts(group: Longs, row: Longs, version: Longs, diff: Longs, at: Versions) -> Longs:
    """Return the count of each row in each version of its group, row by row."""
    width = np.diff(at.start)[group]
    offset = np.cumsum(width) - width
    changes = np.zeros(int(width.sum()), np.int64)
    np.add.at(changes, offset[row] + version - at.start[group[row]], diff)
    running = np.cumsum(changes)
    before = running[offset] - changes[offset]
    counts: Longs = running - np.repeat(before, width)
    return counts


def _listed(rows: pa.Table, group: Longs, counts: Longs, at: Versions, owed: bool) -> Members:
    """Return the counts version by version, without zeros and, unless asked for, negative ones."""
    width = np.diff(at.start)
    bounds = np.searchsorted(group, np.arange(at.groups + 1))
    first_row, height = bounds[:-1], np.diff(bounds)
    offset = np.cumsum(width * height) - width * height
    size = height[at.group]
    version = np.repeat(np.arange(at.count), size)
    place = np.arange(len(version)) - np.repeat(np.cumsum(size) - size, size)
    of_group = at.group[version]
    count = counts[offset[of_group] + place * width[of_group] + version - at.start[of_group]]
    alive = count != 0 if owed else count > 0
    row = first_row[of_group] + place
    return Members(rows, row[alive], version[alive], count[alive], at.count)


def differences(
    answers: pa.Table, version: Longs, count: Longs, at: Versions, schema: pa.Schema
) -> pa.Table:
    """Return the updates that turn each version's answer into the next one's.

    ``answers`` has rows of output, each with its version and count.
    """
    later = ~at.is_first[version]
    follows = version + 1
    has_next = (follows < at.count) & ~at.is_first[np.minimum(follows, at.count - 1)]
    times = np.concatenate([at.time[follows[has_next]], at.time[version[later]]])
    diffs = np.concatenate([-count[has_next], count[later]])
    rows = pa.array(np.concatenate([np.flatnonzero(has_next), np.flatnonzero(later)]))
    columns = [one_array(column).take(rows) for column in answers.columns]
    updates = pa.Table.from_arrays([*columns, pa.array(times), pa.array(diffs)], schema=schema)
    return consolidate(updates)

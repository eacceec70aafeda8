"""Semi and anti joins: rows of the left by whether their key is on the right.

Let ``count(k, t)`` be the sum of the diffs of the right's rows with key ``k`` at times ``<= t``.
``k`` is *there* at ``t`` iff ``count(k, t) > 0``; a negative count, which may come up in between,
is none. For ``semi`` (for ``anti`` with *not there*):

    Δ(L ⋉ R)  =  { (l, t, d)     : (l, t, d) in ΔL, there(key(l), t) }
              +  { (l, t, ± d)   : k in ΔR crosses zero at t, (l, s, d) in L, key(l) = k, s < t }

``+`` where the crossing lets the row in, ``-`` where it takes it out. A row at the very time of a
crossing belongs to the first line, which looks at ``<= t``; hence the strict ``<`` in the second.
Without ``<=>``, a key with a NULL is never there: ``anti`` keeps such rows, ``semi`` has none.

The counts are the operator's state: a row ``(key of the right, count)`` for each key whose count is
not 0, replaced at each time at which the count changes. Equal keys are stored as the same bits
(``0.0`` for ``-0.0``, one NaN), so a retraction meets the row it retracts.

Bound: the deltas of both sides, one count for each of their keys, and for each crossing the left's
updates of that key. The left's arrangement may be compacted to ``lower - 1``, not to ``lower``.

Kept by: this module, against an oracle at every time in ``tests/unit/dataflow/test_semi.py``.
Relied on by: EXISTS, IN and their negations; the unmatched rows of outer joins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.base.errors import HeadwaterError
from headwater.collection.key import common_key_type
from headwater.collection.probe import PROBE_INDEX
from headwater.compute.dataflow.graph import Semi
from headwater.compute.dataflow.operator import Given, History, Outcome
from headwater.persist.consolidate import DIFF, TIME, column_longs, consolidate

COUNT: Final = "_count_0"
"""The column of the state that says how many rows the right has."""

Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def step(op: Semi, given: Given) -> Outcome:
    """Return the changes of the join and of the counts."""
    left, right = given.deltas[op.left], given.deltas[op.right]
    if not left.num_rows and not right.num_rows:
        return Outcome(given.output.empty_table())
    left_keys = [_normal(left.column(match.left)) for match in op.keys]
    comparable = _comparable(op, left_keys)
    changes = _changes(op, right)
    counts = _counts(
        op,
        [column.filter(pa.array(comparable)) for column in left_keys],
        changes,
        given.states[op.counts],
    )
    there = np.zeros(left.num_rows, np.bool_)
    there[comparable] = counts.at(column_longs(left, TIME)[comparable]) > 0
    emitted = left.filter(pa.array(there if op.kind == "semi" else ~there))
    crossed = _crossed(op, counts, given)
    emitted = pa.Table.from_arrays(
        [emitted.column(name) for name in given.output.names], schema=given.output
    )
    return Outcome(
        pa.concat_tables([emitted, crossed]),
        {op.counts: _replaced(counts, given.state_schemas[op.counts])},
    )


# ---- keys ------------------------------------------------------------------------------------


def _normal(column: Any) -> Any:
    """Return a key column with equal values as equal bits."""
    if not pa.types.is_floating(column.type):
        return column
    nan = pa.scalar(float("nan"), column.type)
    zero = pa.scalar(0.0, column.type)
    return pc.if_else(pc.is_nan(column), nan, pc.add(column, zero))  # -0.0 + 0.0 is 0.0


def _comparable(op: Semi, keys: Sequence[Any]) -> Mask:
    """Return which keys can equal any other."""
    comparable = np.ones(len(keys[0]), np.bool_)
    for match, column in zip(op.keys, keys, strict=True):
        if not match.null_safe and column.null_count:
            comparable &= np.asarray(pc.is_valid(column), dtype=np.bool_)
    return comparable


def _changes(op: Semi, right: pa.Table) -> pa.Table:
    """Return by how much the count of each key of the right changes at each time."""
    names = [match.right for match in op.keys]
    assert len(set(names)) == len(names), "a column is compared twice: give it two names"
    keys = [_normal(right.column(name)) for name in names]
    table = pa.table(
        [*keys, right.column(TIME), right.column(DIFF)], names=[*names, TIME, DIFF]
    ).filter(pa.array(_comparable(op, keys)))
    return consolidate(table)


def _numbered(columns: Sequence[Any]) -> tuple[Longs, Longs]:
    """Number the distinct keys: return the number of each row, and the first row of each number.

    NULL is a value like any other here.
    """
    numbers = np.zeros(len(columns[0]), np.int64)
    first = numbers[:1]
    for column in columns:
        codes = _codes(column)
        # Numbers and codes are each below the number of rows, so that this does not overflow.
        pairs = numbers * (codes.max(initial=0) + 1) + codes
        _, first, numbers = np.unique(pairs, return_index=True, return_inverse=True)
    return numbers, first


def _codes(column: Any) -> Longs:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_null(array.type):
        return np.zeros(len(array), np.int64)
    if pa.types.is_floating(array.type):
        array = array.view(pa.int64())  # Normal, and as wide as it gets: bits say all.
    encoded = array.dictionary_encode(null_encoding="encode")
    codes: Longs = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


# ---- counts ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Counts:
    """The counts of the keys of a step: before it, and each time one changes, by (key, time)."""

    before: Longs
    """Of each key."""
    asked: Longs
    """The keys of the left's updates."""
    changed: pa.Table
    """The right's key columns of each change."""
    numbers: Longs
    """The key of each change; ascending."""
    times: Longs
    """Ascending within a key, each once."""
    old: Longs
    new: Longs

    def at(self, times: Longs) -> Longs:
        """Return the count of each key that is asked for, at its time."""
        instants, ranks = np.unique(self.times, return_inverse=True)
        width = len(instants) + 1
        # A change is found by its key and by how many instants are at or before its own time.
        changes = self.numbers * width + ranks + 1
        asked = self.asked * width + np.searchsorted(instants, times, "right")
        last = np.searchsorted(changes, asked, "right") - 1
        counts = self.before[self.asked]
        known = last >= 0
        known[known] = self.numbers[last[known]] == self.asked[known]
        counts[known] = self.new[last[known]]
        return counts


def _counts(op: Semi, left_keys: Sequence[Any], changes: pa.Table, state: History) -> _Counts:
    names = [match.right for match in op.keys]
    keys = []
    for mine, name in zip(left_keys, names, strict=True):
        theirs = changes.column(name)
        type_ = common_key_type(mine.type, theirs.type)
        both = [*_chunks(mine.cast(type_)), *_chunks(theirs.cast(type_))]
        keys.append(pa.chunked_array(both, type_))
    numbers, first = _numbered(keys)
    before = np.zeros(len(first), np.int64)
    if len(first):
        distinct = [column.take(pa.array(first)) for column in keys]
        order, flags = _in_order(state, names, op)
        found = state.probe([distinct[n] for n in order], null_safe=flags, columns=[COUNT, DIFF])
        stored = column_longs(found, COUNT) * column_longs(found, DIFF)
        np.add.at(before, column_longs(found, PROBE_INDEX), stored)
    asked, numbers = np.split(numbers, [len(left_keys[0])])
    return _run_up(before, asked, changes, numbers)


def _chunks(column: Any) -> list[Any]:
    return list(column.chunks) if isinstance(column, pa.ChunkedArray) else [column]


def _in_order(history: History, names: Sequence[str], op: Semi) -> tuple[list[int], list[bool]]:
    """Return which of the keys each column of an index is, and whether it is compared by ``<=>``.

    By name: an index with its columns in another order would be searched for the wrong hashes.
    """
    assert sorted(history.key) == sorted(names), f"an index by {history.key}, compared by {names}"
    order = [names.index(name) for name in history.key]
    return order, [op.keys[n].null_safe for n in order]


def _run_up(before: Longs, asked: Longs, changes: pa.Table, numbers: Longs) -> _Counts:
    """Add up the changes of each key in the order of time."""
    times, diffs = column_longs(changes, TIME), column_longs(changes, DIFF)
    order = np.lexsort((times, numbers))
    numbers, times, diffs = numbers[order], times[order], diffs[order]
    sums = np.cumsum(diffs)
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    lengths = np.diff(starts, append=len(numbers))
    new = sums - np.repeat(sums[starts] - diffs[starts], lengths) + before[numbers]
    old = new - diffs
    if (((old ^ new) & (diffs ^ new)) < 0).any():
        raise HeadwaterError("the number of rows with one key does not fit 64 bits")
    return _Counts(before, asked, changes.take(pa.array(order)), numbers, times, old, new)


def _replaced(counts: _Counts, schema: pa.Schema) -> pa.Table:
    """Return the updates of the state; no two of them are of one row at one time."""
    keys = [name for name in schema.names if name not in (COUNT, TIME, DIFF)]

    def rows(count: Longs, diff: int) -> pa.Table:
        alive = count != 0
        kept = counts.changed.select(keys).filter(pa.array(alive))
        columns = dict(zip(keys, kept.columns, strict=True))
        columns[COUNT] = pa.array(count[alive])
        columns[TIME] = pa.array(counts.times[alive])
        columns[DIFF] = pa.array(np.full(int(alive.sum()), diff))
        return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)

    return pa.concat_tables([rows(counts.old, -1), rows(counts.new, 1)])


# ---- crossings -------------------------------------------------------------------------------


def _crossed(op: Semi, counts: _Counts, given: Given) -> pa.Table:
    """Return the older rows of the left that a key of the right lets in, or takes out."""
    crossing = (counts.old > 0) != (counts.new > 0)
    if given.hydrating:
        crossing &= counts.times > given.lower  # Nothing is before.
    if not crossing.any():
        return given.output.empty_table()
    times, there = counts.times[crossing], counts.new[crossing] > 0
    enters = there if op.kind == "semi" else ~there
    keys = counts.changed.filter(pa.array(crossing))
    history = given.arrangements[op.arrangement]
    order, flags = _in_order(history, [match.left for match in op.keys], op)
    wanted = [name for name in given.output.names if name not in (TIME, DIFF)]
    found = history.probe(
        [keys.column(op.keys[n].right) for n in order],
        at=times,
        strict=True,
        null_safe=flags,
        columns=[*wanted, DIFF],
    )
    rows = column_longs(found, PROBE_INDEX)
    columns = {name: found.column(name) for name in wanted}
    columns[TIME] = pa.array(times[rows])
    columns[DIFF] = pa.array(np.where(enters[rows], 1, -1) * column_longs(found, DIFF))
    return pa.Table.from_arrays([columns[name] for name in given.output.names], schema=given.output)

"""Grouped counts and sums, by accumulators: a group is never read again.

For each group the accumulator is a row: its count and, for each aggregated column, how many values
it had and their exact sum. Every one of them is a sum over updates, so a change needs only the old
accumulator and the changed rows, whatever the size of the group:

    acc(g, t)  =  acc(g, lower - 1)  +  sum of (diff, [x is not NULL]·diff, x·diff)
                                        over changes of g at times in [lower, t]

The accumulators are kept as a collection of rows, ``(g, count, n0, s0, …)``, and change by
retracting the old row and inserting the new one **at each time** at which they change; a row that
is all zero is not kept. The output is a function of the accumulator: no row where the count is not
positive, else the counts, and a sum, which is NULL where there was no value.

NULLs are one group; ``-0.0`` is the group ``0.0`` and every NaN one group, as SQL groups them.

Kept by: this module, against the model in ``tests/unit/compute/test_accumulate.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.base.errors import HeadwaterError
from headwater.collection.probe import PROBE_INDEX, probe
from headwater.collection.run import Run
from headwater.compute.exact import Exact, Mask, column, exact
from headwater.compute.join import result_name
from headwater.compute.view import (
    COUNT,
    CountOutput,
    GroupOutput,
    JoinSumView,
    SumOutput,
    group_name,
    sum_name,
    values_name,
)
from headwater.persist.consolidate import DIFF, TIME, consolidate

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Changes:
    """What a step does to the accumulators and to the output; both consolidated."""

    accumulators: pa.Table
    output: pa.Table


def accumulate(
    query: JoinSumView,
    joined: pa.Table,
    runs: Sequence[Run],
    *,
    accumulators: pa.Schema,
    output: pa.Schema,
) -> Changes:
    """Return the changes that ``joined`` (of ``compute/join.py``) brings to every group.

    ``runs`` are the accumulators before the step; the schemas are those of updates.
    """
    if not joined.num_rows:
        return Changes(accumulators.empty_table(), output.empty_table())
    names = [result_name(n) for n in range(len(query.group))]
    keys = [_grouped_as(joined.column(name)) for name in names]
    groups, first = _numbered(keys)
    group_rows = [key.take(pa.array(first)) for key in keys]
    old = _old_state(query, group_rows, runs, accumulators)
    # Ordered by (group, time): the changes of one group are neighbours, the earliest first.
    times = joined.column(TIME).to_numpy()
    order = np.lexsort((times, groups))
    groups, times = groups[order], times[order]
    starts = np.flatnonzero(np.append(True, (np.diff(groups) != 0) | (np.diff(times) != 0)))
    step_groups, step_times = groups[starts], times[starts]
    deltas = [d if d is None else np.add.reduceat(d[order], starts) for d in _terms(query, joined)]
    after = [_running(d, step_groups, base) for d, base in zip(deltas, old, strict=True)]
    before = [None if a is None or d is None else a - d for a, d in zip(after, deltas, strict=True)]
    history = _History(
        [rows.take(pa.array(step_groups)) for rows in group_rows], step_times, before, after
    )
    return Changes(
        history.changes(lambda state: _accumulator_rows(query, state, accumulators), accumulators),
        consolidate(history.changes(lambda state: _output_rows(query, state, output), output)),
    )


Terms = Sequence[Exact | None]
"""Count, then for each aggregated column its number of values and its sum (``None``: not kept)."""


@dataclass(frozen=True, slots=True)
class _State:
    """Accumulators at some (group, time) pairs."""

    groups: list[Any]
    terms: Terms

    @property
    def count(self) -> Exact:
        count = self.terms[0]
        assert count is not None
        return count


@dataclass(frozen=True, slots=True)
class _History:
    """Every (group, time) at which something changed, with the accumulator on both sides of it."""

    groups: list[Any]
    times: Longs
    before: Terms
    after: Terms

    def changes(self, rows_of: Any, schema: pa.Schema) -> pa.Table:
        """Return the retractions and insertions of ``rows_of(state) -> (rows, present)``."""
        old, old_present = rows_of(_State(self.groups, self.before))
        new, new_present = rows_of(_State(self.groups, self.after))
        same = np.ones(len(self.times), np.bool_)
        for a, b in zip(old.columns, new.columns, strict=True):
            same &= _identical(a, b)
        gone, come = old_present & ~(new_present & same), new_present & ~(old_present & same)
        pieces = [
            _updates(rows, mask, self.times, diff, schema)
            for rows, mask, diff in ((old, gone, -1), (new, come, 1))
        ]
        return pa.concat_tables(pieces)


def _identical(a: Any, b: Any) -> Mask:
    equal = pc.fill_null(pc.equal(a, b), False)
    both_null = pc.and_(pc.is_null(a), pc.is_null(b))
    mask: Mask = np.asarray(pc.or_(equal, both_null), dtype=np.bool_)
    return mask


def _updates(rows: pa.Table, mask: Mask, times: Longs, diff: int, schema: pa.Schema) -> pa.Table:
    kept = rows.filter(pa.array(mask))
    system = [pa.array(times[mask]), pa.array(np.full(kept.num_rows, diff, np.int64))]
    return pa.Table.from_arrays([*kept.columns, *system], names=schema.names).cast(schema)


def _terms(query: JoinSumView, joined: pa.Table) -> list[Exact | None]:
    """Return what each changed row adds to each accumulator of its group."""
    diffs: Exact = joined.column(DIFF).to_numpy().astype(object)
    terms: list[Exact | None] = [diffs]
    summed = _summed(query)
    for n in range(len(query.aggregated)):
        values = joined.column(result_name(len(query.group) + n))
        there = np.asarray(pc.is_valid(values), dtype=np.bool_)
        terms.append(np.where(there, diffs, 0))
        terms.append(exact(values) * diffs if n in summed else None)
    return terms


def _summed(query: JoinSumView) -> set[int]:
    return {o.index for o in query.outputs if isinstance(o, SumOutput)}


def _running(delta: Exact | None, groups: Longs, base: Exact | None) -> Exact | None:
    """Return, for each (group, time), the accumulator after it: base plus all changes so far."""
    if delta is None or base is None:
        return None
    total: Exact = np.cumsum(delta)
    firsts = np.flatnonzero(np.append(True, np.diff(groups) != 0))
    lengths = np.diff(np.append(firsts, len(groups)))
    # The sum of everything before the group's first row does not belong to the group.
    earlier = np.repeat((total - delta)[firsts], lengths)
    after: Exact = total - earlier + base[groups]
    return after


# ---- groups ----------------------------------------------------------------------------------


def _grouped_as(column: Any) -> Any:
    """Return a group column as one array, with one value for all that SQL takes for one group."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    if pa.types.is_floating(array.type):
        zero, nan = pa.scalar(0.0, array.type), pa.scalar(float("nan"), array.type)
        array = pc.if_else(pc.equal(array, zero), zero, array)
        array = pc.if_else(pc.is_nan(array), nan, array)
    return array


def _numbered(keys: Sequence[Any]) -> tuple[Longs, Longs]:
    """Number the distinct keys; return each row's number, and each number's first row."""
    numbers = np.zeros(len(keys[0]), np.int64)
    for key in keys:
        codes = pc.dictionary_encode(_hashable(key), null_encoding="encode").indices.to_numpy()
        # Made dense after each column, so that the product never leaves 64 bits.
        combined = numbers * (int(codes.max(initial=0)) + 1) + codes
        numbers = np.unique(combined, return_inverse=True)[1].astype(np.int64)
    first = np.unique(numbers, return_index=True)[1].astype(np.int64)
    return numbers, first


def _hashable(key: Any) -> Any:
    if pa.types.is_floating(key.type):
        return key.view({16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[key.type.bit_width])
    return key


def _old_state(
    query: JoinSumView, group_rows: Sequence[Any], runs: Sequence[Run], schema: pa.Schema
) -> list[Exact | None]:
    """Look up the accumulators of these groups before the step; all zero where there is none."""
    count = len(group_rows[0])
    found = probe(runs, group_rows, null_safe=True, schema=schema)
    # The history of an accumulator cancels but for its last row.
    current = consolidate(found.drop_columns([TIME]))
    index = current.column(PROBE_INDEX).to_numpy()
    diffs = current.column(DIFF).to_numpy()
    if len(np.unique(index)) != len(index) or (diffs != 1).any():
        raise HeadwaterError("the accumulators of a view have not one row per group")
    summed = _summed(query)
    names: list[str | None] = [COUNT]
    for n in range(len(query.aggregated)):
        names += [values_name(n), sum_name(n) if n in summed else None]
    old: list[Exact | None] = []
    for name in names:
        if name is None:
            old.append(None)
            continue
        state = np.zeros(count, object)
        state[index] = exact(current.column(name))
        old.append(state)
    return old


# ---- rows ------------------------------------------------------------------------------------


def _accumulator_rows(
    query: JoinSumView, state: _State, schema: pa.Schema
) -> tuple[pa.Table, Mask]:
    present = np.zeros(len(state.count), np.bool_)
    columns: list[Any] = list(state.groups)
    names = [group_name(n) for n in range(len(query.group))]
    labels = [COUNT]
    for n in range(len(query.aggregated)):
        labels += [values_name(n), sum_name(n)]
    for label, term in zip(labels, state.terms, strict=True):
        if term is None:
            continue
        present |= (term != 0).astype(np.bool_)
        columns.append(column(term, schema.field(label).type))
        names.append(label)
    return pa.Table.from_arrays(columns, names=names), present


def _output_rows(query: JoinSumView, state: _State, schema: pa.Schema) -> tuple[pa.Table, Mask]:
    present: Mask = (state.count > 0).astype(np.bool_)
    columns: list[Any] = []
    for output in query.outputs:
        match output:
            case GroupOutput():
                columns.append(state.groups[output.index])
            case CountOutput():
                term = state.terms[0 if output.index is None else 1 + 2 * output.index]
                assert term is not None
                columns.append(column(term, pa.int64(), present))
            case SumOutput():
                values, total = state.terms[1 + 2 * output.index : 3 + 2 * output.index]
                assert values is not None
                assert total is not None
                shown = present & (values != 0).astype(np.bool_)
                columns.append(column(total, schema.field(output.name).type, shown))
    return pa.Table.from_arrays(columns, names=[o.name for o in query.outputs]), present

"""Temporal filters: rows that come and go as time passes.

A row is in from ``since`` on until just before ``until``, both in milliseconds. An update of the
input, ``(row, r, d)``, is therefore these of the output, whatever other updates there are:

    start = max(r, since)                    if start < until:   +d at start,   -d at until

so a row that is retracted before its time cancels what its insertion announced. Those before the
step's upper are its output. The later ones are *scheduled*: kept in the state, and written by the
step that covers their time, which need not have a delta at all.

The state is a multiset of scheduled updates, and a tree over their times, so that neither what is
due nor what is next has to be searched for. A row of it says by its level what it is:

    level 0      a scheduled update       node: its time / 2^10        at: its time
    level n >= 1 there is one below       node: its time / 2^10(n+1)   at: its time / 2^10n

The second kind is there as often as rows announced something below it, come and go counted alike,
and goes when the time it stands for is past.

Bound: the delta; what is scheduled for the seconds that the step covers; and the tree above these,
at most 2^10 rows a level on both sides of the interval.

Kept by: this module, against an oracle in ``tests/unit/dataflow/test_temporal.py``. What it says of
the next scheduled time is relied on by the stepper, which lets a view with nothing to do be idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.collection.probe import PROBE_INDEX
from headwater.compute.dataflow.graph import Temporal
from headwater.compute.dataflow.operator import Given, History, Longs, Outcome
from headwater.compute.ir.expression import Column
from headwater.persist.consolidate import DIFF, TIME, column_longs, consolidate

LEVEL: Final = Column("_level_0", "bigint", False)
NODE: Final = Column("_node_0", "bigint", False)
AT: Final = Column("_at_0", "bigint", False)

BITS: Final = 10
LEVELS: Final = 5
"""A timestamp has at most 2^54 milliseconds, and the only node of the last level has 2^60."""


def state_columns(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return the columns of the state of a filter whose output has these columns."""
    return (LEVEL, NODE, AT, *columns)


def state_key() -> tuple[str, ...]:
    """Return its key."""
    return (LEVEL.name, NODE.name)


def step(op: Temporal, given: Given) -> Outcome:
    """Return what comes and goes in this step, and what is scheduled after it."""
    tree = _Tree(given.states[op.state])
    data = [name for name in given.output.names if name not in (TIME, DIFF)]
    announced, weights = _announced(op, given.deltas[op.input], data)
    times = column_longs(announced, AT.name)
    later = times >= given.upper
    past = tree.between(given.lower, given.upper)
    due = tree.scheduled(past.child, given.lower, given.upper, data)
    now = pa.concat_tables([announced.filter(pa.array(~later)), due])
    output = pa.Table.from_arrays(
        [*now.select(data).columns, now.column(AT.name), now.column(DIFF)], schema=given.output
    )

    over = past.child < given.upper >> BITS
    index = _Nodes.above(
        np.concatenate([times[later] >> BITS, past.child[over]]),
        np.concatenate([weights[later], -past.count[over]]),
    )
    kept = _state(
        [announced.filter(pa.array(later)), _negated(due)],
        index,
        given.upper - 1,
        given.state_schemas[op.state],
    )
    return Outcome(
        consolidate(output), {op.state: kept}, scheduled=tree.not_before(given.upper, index)
    )


def _announced(op: Temporal, delta: pa.Table, data: Sequence[str]) -> tuple[pa.Table, Longs]:
    """Return what updates say of the future, with its times, and how many rows say it."""
    rows, diffs = delta.select(data), column_longs(delta, DIFF)
    start = column_longs(delta, TIME)
    if op.since is not None:
        start = np.maximum(start, column_longs(delta, op.since))
    if op.until is None:
        return _scheduled(rows, start, diffs), diffs
    until = column_longs(delta, op.until)
    there = np.flatnonzero(start < until)
    rows = rows.take(pa.array(there))
    start, until, diffs = start[there], until[there], diffs[there]
    tables = [_scheduled(rows, start, diffs), _scheduled(rows, until, -diffs)]
    return pa.concat_tables(tables), np.concatenate([diffs, diffs])


def _scheduled(rows: pa.Table, times: Longs, diffs: Longs) -> pa.Table:
    # Rows may have no columns, and a table without any has no length.
    columns = [*rows.columns, pa.array(times), pa.array(diffs)]
    return pa.table(columns, names=[*rows.column_names, AT.name, DIFF])


def _negated(rows: pa.Table) -> pa.Table:
    position = rows.column_names.index(DIFF)
    return rows.set_column(position, DIFF, pc.negate(rows.column(DIFF)))


class _Nodes:
    """Rows of the tree: of each its level, its node, which part of it, and how often."""

    def __init__(self, level: Longs, node: Longs, child: Longs, count: Longs) -> None:
        self.level, self.node, self.child, self.count = level, node, child, count

    @staticmethod
    def above(buckets: Longs, weights: Longs) -> _Nodes:
        """Return all rows over these times / 2^10."""
        distinct, place = np.unique(buckets, return_inverse=True)
        sums = np.zeros(len(distinct), np.int64)
        np.add.at(sums, place, weights)
        levels = np.arange(1, LEVELS + 1)
        child = np.concatenate([distinct >> (BITS * (level - 1)) for level in levels])
        return _Nodes(np.repeat(levels, len(distinct)), child >> BITS, child, np.tile(sums, LEVELS))


class _Tree:
    """The state before the step."""

    def __init__(self, history: History) -> None:
        self._history = history

    def between(self, lower: int, upper: int) -> _Nodes:
        """Return the rows of level 1 for times of ``[lower, upper)``."""
        nodes = np.zeros(1, np.int64)
        found = _Nodes(nodes[:0], nodes[:0], nodes[:0], nodes[:0])
        for level in range(LEVELS, 0, -1):
            found = self._children(np.full(len(nodes), level), nodes)
            shift = BITS * level
            inside = (found.child >= lower >> shift) & (found.child <= (upper - 1) >> shift)
            kept = (found.level, found.node, found.child, found.count)
            found = _Nodes(*(column[inside] for column in kept))
            nodes = np.unique(found.child)
        return found

    def scheduled(self, buckets: Longs, lower: int, upper: int, data: Sequence[str]) -> pa.Table:
        """Return what is scheduled for ``[lower, upper)``, given where there is something."""
        levels = np.zeros(len(buckets), np.int64)
        rows = self._probe(levels, buckets, [*data, AT.name, DIFF]).drop_columns([PROBE_INDEX])
        times = column_longs(rows, AT.name)
        return consolidate(rows.filter(pa.array((lower <= times) & (times < upper))))

    def not_before(self, upper: int, changes: _Nodes) -> int | None:
        """Return a time before which nothing is scheduled; ``None``: nothing ever is.

        It looks at the nodes over ``upper`` alone, so what it says may be too early.
        """
        levels = np.arange(1, LEVELS + 1)
        path = np.array([upper >> (BITS * (level + 1)) for level in range(1, LEVELS + 1)])
        old = self._children(levels, path)
        on_path = path[changes.level - 1] == changes.node
        level = np.concatenate([old.level, changes.level[on_path]])
        child = np.concatenate([old.child, changes.child[on_path]])
        count = np.concatenate([old.count, changes.count[on_path]])
        for n in range(1, LEVELS + 1):
            own = upper >> (BITS * n)
            distinct, place = np.unique(child[level == n], return_inverse=True)
            sums = np.zeros(len(distinct), np.int64)
            np.add.at(sums, place, count[level == n])
            # Over the first level what ``upper`` is in has been looked at, one level below.
            ahead = distinct[(sums != 0) & (distinct >= own + (n > 1))]
            if len(ahead):
                return max(upper, int(ahead[0]) << (BITS * n))
        return None

    def _children(self, levels: Longs, nodes: Longs) -> _Nodes:
        rows = self._probe(levels, nodes, [LEVEL.name, NODE.name, AT.name, DIFF])
        rows = consolidate(rows.drop_columns([PROBE_INDEX]))
        columns = (column_longs(rows, name) for name in (LEVEL.name, NODE.name, AT.name, DIFF))
        return _Nodes(*columns)

    def _probe(self, levels: Longs, nodes: Longs, columns: Sequence[str]) -> pa.Table:
        keys = [pa.array(levels), pa.array(nodes)]
        return self._history.probe(keys, columns=columns)


def _state(scheduled: Sequence[pa.Table], index: _Nodes, time: int, schema: pa.Schema) -> pa.Table:
    tables = []
    for rows in scheduled:
        times = column_longs(rows, AT.name)
        system = _system(np.zeros(len(rows), np.int64), times >> BITS, times)
        diffs = column_longs(rows, DIFF)
        tables.append(_rows(system, rows, diffs, time, schema))
    tables.append(
        _rows(_system(index.level, index.node, index.child), None, index.count, time, schema)
    )
    return consolidate(pa.concat_tables(tables))


def _system(level: Longs, node: Longs, at: Longs) -> dict[str, Any]:
    arrays = (pa.array(level), pa.array(node), pa.array(at))
    return dict(zip((LEVEL.name, NODE.name, AT.name), arrays, strict=True))


def _rows(
    system: dict[str, Any], data: pa.Table | None, diffs: Longs, time: int, schema: pa.Schema
) -> pa.Table:
    known = {**system, TIME: pa.array(np.full(len(diffs), time)), DIFF: pa.array(diffs)}
    columns = []
    for field in schema:
        if field.name in known:
            columns.append(known[field.name])
        elif data is not None:
            columns.append(data.column(field.name))
        else:
            columns.append(pa.nulls(len(diffs), field.type))
    return pa.Table.from_arrays(columns, schema=schema)

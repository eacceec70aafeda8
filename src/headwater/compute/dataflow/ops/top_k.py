"""The first rows of each partition in an order: LIMIT, OFFSET, ``row_number() <= k``.

    output at t  =  of each partition of the input at t, in the order of ``op.order`` and then the
                    canonical order of ``op.ties``: the rows after the first ``offset``, at most
                    ``limit``; with ``number``, each with its number in the partition, from 1

A row that is there several times occupies several places. Rows that are equal in all of that are
identical: the other columns of the input are functions of ``ties``.

Two rules, the same answers:

*Partitions read again.* For every partition that the delta names, its rows are read from the
arrangement once, and ordered at each of its versions (``groups.py``). Bound: the rows of the
partitions that changed.

*First rows kept* (``op.state``, with the columns of :func:`top_k_state`; where there is a limit).
Of each partition the state has how many rows it has, as a multiplicity (kind 0), its first rows
(kind 1; ``kept.py``): twice as many as are asked for, and some; and whether there are others (kind
-1). Bound: the delta, and at most ``4 * (offset + limit) + 4 * SLACK`` rows of each partition that
changed; a partition of which so many first rows were retracted that too few, or perhaps no others,
are left is read again: then its rows.

The output's changes are those of the rows that come into the range or leave it; with ``number``,
also those whose number changes.

Kept by: this module, against a brute-force oracle in ``tests/unit/dataflow/test_top_k.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headwater.compute.dataflow.graph import Sort, Stretches, TopK
from headwater.compute.dataflow.operator import Given, Outcome
from headwater.compute.dataflow.ops.groups import (
    GROUP,
    Changed,
    Longs,
    Members,
    changed,
    differences,
    members,
    one_array,
    order_codes,
)
from headwater.compute.dataflow.ops.kept import KIND, PARTIAL, Known, known
from headwater.compute.ir.expression import Column
from headwater.persist.consolidate import DIFF, TIME, consolidate

SLACK: Final = 16
"""How many rows more are kept than twice those that are asked for."""


def top_k_state(columns: Sequence[Column], op: TopK) -> tuple[Column, ...] | None:
    """Return the columns of the state of such an operator; ``None`` if it has to do without one.

    ``columns`` are the input's. The state's key is that of the arrangement.
    """
    if op.limit is None:
        return None
    rows = (Column(column.name, column.type, True) for column in columns)
    return (Column(KIND, "int", False), *rows)


def step(op: TopK, given: Given) -> Outcome:
    """Return what changes in the first rows of the partitions that the delta names."""
    history = given.arrangements[op.arrangement]
    names = [column.name for column in op.input.columns]
    groups = changed(given.deltas[op.input], history.key, names)
    at = groups.versions
    if not at.groups:
        states = {op.state: given.state_schemas[op.state].empty_table()} if op.state else {}
        return Outcome(given.output.empty_table(), states)
    if op.state is None:
        updates = groups.history(given, history, np.arange(at.groups))
        return Outcome(_output(op, given, groups, members(updates, at, in_order(op, updates))))
    found, old = _kept(op, given, groups, op.state)
    state = _state_updates(op, given, groups, old, found, op.state)
    return Outcome(_output(op, given, groups, found.members), {op.state: state})


def in_order(op: TopK | Stretches, rows: pa.Table) -> list[Any]:
    """Return columns whose canonical order is that of an operator: its keys, then its ties."""
    keys = [pa.array(_sort_codes(key, rows)) for key in op.order]
    others = [c.name for c in op.input.columns if c.name not in op.ties]
    return [*keys, *(rows.column(name) for name in (*op.ties, *others))]


def _sort_codes(key: Sort, rows: pa.Table) -> Longs:
    codes = order_codes(rows.column(key.column))
    if key.descending:
        codes = -codes
    # NULL is 0, so it is first among the ascending and last among the descending.
    if key.nulls_first == key.descending:
        largest = np.abs(codes).max(initial=0) + 1
        codes = np.where(codes == 0, -largest if key.nulls_first else largest, codes)
    return codes


def _output(op: TopK, given: Given, groups: Changed, found: Members) -> pa.Table:
    """Return the changes of what is in the range of places."""
    sizes = found.sizes
    end = np.cumsum(found.count) - (np.cumsum(sizes) - sizes)[found.version]
    start = end - found.count
    low = np.maximum(start, op.offset)
    high = end if op.limit is None else np.minimum(end, op.offset + op.limit)
    count = np.maximum(high - low, 0)
    inside = count > 0
    row, version, count, low = found.row[inside], found.version[inside], count[inside], low[inside]
    numbers = None
    if op.number is not None:
        # Every copy has a number of its own.
        first = np.repeat(np.cumsum(count) - count, count)
        numbers = np.repeat(low, count) + np.arange(len(first)) - first + 1
        row, version = np.repeat(row, count), np.repeat(version, count)
        count = np.ones(len(row), np.int64)
    rows = found.rows.take(pa.array(row))
    fields = [field for field in given.output if field.name not in (TIME, DIFF)]
    columns = [
        pa.array(numbers).cast(field.type)
        if field.name == op.number
        else one_array(rows.column(field.name))
        for field in fields
    ]
    answers = (
        pa.Table.from_arrays(columns, schema=pa.schema(fields)) if columns else rows.select([])
    )
    return differences(answers, version, count, groups.versions, given.output)


# ---- with a state ----------------------------------------------------------------------------


def _kept(op: TopK, given: Given, groups: Changed, state: str) -> tuple[Known, pa.Table]:
    """Return the first rows of each version, and the state before the step."""
    schema = given.state_schemas[state]
    if given.hydrating:
        fields = [field for field in schema if field.name != TIME]
        old = pa.schema([*fields, pa.field(GROUP, pa.int64())]).empty_table()
    else:
        old = groups.kept_state(given.states[state])
    kinds = old.column(KIND).to_numpy()
    totals = np.zeros(groups.versions.groups, np.int64)
    rows = old.filter(pa.array(kinds == 0))
    np.add.at(totals, rows.column(GROUP).to_numpy(), rows.column(DIFF).to_numpy())
    kept = old.filter(pa.array(kinds == 1)).drop_columns([KIND])
    found = known(
        groups.versions,
        kept,
        totals,
        old.filter(pa.array(kinds == PARTIAL)).column(GROUP).to_numpy(),
        groups.delta,
        lambda updates: in_order(op, updates),
        _asked(op),
        lambda dry: groups.history(given, given.arrangements[op.arrangement], dry),
    )
    return found, old


def _asked(op: TopK) -> int:
    assert op.limit is not None, "an operator without a limit has no state"
    return op.offset + op.limit


def _state_updates(
    op: TopK, given: Given, groups: Changed, old: pa.Table, found: Known, state: str
) -> pa.Table:
    """Return what turns the old state of these partitions into the new one, at the last time."""
    schema = given.state_schemas[state]
    names = [name for name in schema.names if name not in (TIME, DIFF)]
    slack = 2 * _asked(op) + SLACK
    rows, partial = found.kept(slack), found.partial(slack)
    last = found.totals[found.at.start[1:] - 1]
    there = np.flatnonzero(last)

    def of_groups(some: Longs) -> list[Any]:
        return [
            groups.keys.column(name).take(pa.array(some))
            if name in groups.keys.column_names
            else pa.nulls(len(some), schema.field(name).type)
            for name in names
            if name != KIND
        ]

    parts = [
        (old.select(names).columns, -old.column(DIFF).to_numpy()),
        (
            [_kind(1, len(rows)), *(rows.column(name) for name in names if name != KIND)],
            rows.column(DIFF).to_numpy(),
        ),
        ([_kind(0, len(there)), *of_groups(there)], last[there]),
        (
            [_kind(PARTIAL, len(partial)), *of_groups(partial)],
            np.ones(len(partial), np.int64),
        ),
    ]
    tables = [
        pa.Table.from_arrays(
            [*columns, pa.array(np.full(len(diffs), given.upper - 1)), pa.array(diffs)],
            schema=schema,
        )
        for columns, diffs in parts
    ]
    return consolidate(pa.concat_tables(tables))


def _kind(kind: int, rows: int) -> Any:
    return pa.array(np.full(rows, kind, np.int32))

"""Aggregates that need the rows of their groups: a row per group, or one row without groups.

    output at t  =  { (g, calls(rows of g at t)) : g has rows at t }

Two rules, the same answers (``reductions.py`` says which):

*Groups read again.* For every group that the delta names, its rows are read from the arrangement
once, and the calls computed at each of its versions (``groups.py``). Bound: the rows of the groups
that changed.

*Best values kept* (``op.state``; only of calls that :func:`reduce_state` has a form for: min, max,
counts, sums and averages of exact numbers). Of each group the state has, as multiplicities, how
many rows and how many values of each call there are; the exact sums; and of each min or max the
best values (``kept.py``). A row of it says by its kind what it is: 0 one of the group's rows; of
call ``n``, ``2n + 1`` one of its values, ``2n + 2`` a best value (once per copy), or the sum, and
``-n - 1`` that there are other values than these.

A min and a max of the same values share them: the first such call *lends* its column and its count
to the others; and of a group that has no other values than those kept, for both, only the lender
has rows: they are the best of the other too. (A state of an older program has a column for each.)

Bound: the delta, and at most ``2 * SLACK`` values of each call of each group that changed; a group
whose kept values were all retracted, or may be all there are, is read again: then its rows. So a
min or a max costs the change, unless its best ``SLACK`` values go.

Without groups there is always one row: it begins at the lower of the hydrating step.

Kept by: this module, against a brute-force oracle in ``tests/unit/dataflow/test_reduce.py``, and
against Spark in ``tests/spark/test_reduce_meaning.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headwater.collection.types import by_spark
from headwater.compute.dataflow.graph import Reduce, ReduceCall
from headwater.compute.dataflow.operator import Given, Outcome
from headwater.compute.dataflow.ops.exact import Exact, decoded, encoded, prepared, whole_numbers
from headwater.compute.dataflow.ops.groups import (
    GROUP,
    Changed,
    Longs,
    Mask,
    changed,
    differences,
    members,
    normalised,
    one_array,
    order_codes,
    pick,
)
from headwater.compute.dataflow.ops.kept import KIND, PARTIAL, Known, known, running, totals_at
from headwater.compute.dataflow.ops.reductions import (
    Answer,
    answer,
    canonical,
    counted,
    is_ranked,
    is_reducible,
    looked_at,
    shown_average,
    shown_sum,
)
from headwater.compute.ir.expression import Column
from headwater.persist.consolidate import DIFF, TIME, consolidate
from headwater.persist.evolution import ERROR_SCHEMA

__all__ = ["canonical", "is_reducible", "reduce_state", "step"]

SLACK: Final = 16
"""How many of the best values are kept when they are read again."""

_LEAST: Final = frozenset({"min", "bool_and"})
_GREATEST: Final = frozenset({"max", "bool_or"})
_COUNTS: Final = frozenset({"count", "count_if"})
_SUMS: Final = frozenset({"sum", "try_sum", "avg", "try_avg"})


def reduce_state(
    columns: Sequence[Column], op: Reduce, key: Sequence[str]
) -> tuple[Column, ...] | None:
    """Return the columns of the state of such an operator; ``None`` if it has to do without one.

    ``columns`` are the input's, ``key`` is that of the arrangement, and of the state.
    """
    types = {column.name: column for column in columns}
    values: list[Column] = []
    for n, call in enumerate(op.calls):
        function = canonical(call.function)
        if function in _LEAST | _GREATEST:
            if _lender(op.calls, n) != n:
                continue
            values.append(Column(_value(n), types[call.arguments[0]].type, True))
        elif function in _SUMS and not call.distinct:
            if types[call.arguments[0]].type in ("float", "double"):
                return None
            values.append(Column(_value(n), "binary", True))
        elif function not in _COUNTS or call.distinct:
            return None
    return (*(types[name] for name in key), Column(KIND, "int", False), *values)


def _value(n: int) -> str:
    return f"_value_{n}"


def _lender(calls: Sequence[ReduceCall], n: int) -> int:
    """Return the first min or max of the same values as call ``n``, itself one."""
    wanted = (calls[n].arguments, calls[n].filter)
    return next(
        m
        for m, call in enumerate(calls)
        if canonical(call.function) in _LEAST | _GREATEST
        and (call.arguments, call.filter) == wanted
    )


def step(op: Reduce, given: Given) -> Outcome:
    """Return what changes in the answers of the groups that the delta names."""
    history = given.arrangements[op.arrangement]
    names = [name for call in op.calls for name in looked_at(call)]
    ranked = any(map(is_ranked, op.calls))
    ties = op.ties or tuple(column.name for column in op.input.columns)
    begins = given.lower if given.hydrating and not op.groups else None
    groups = changed(
        given.deltas[op.input], history.key, [*(ties if ranked else ()), *names], begins
    )
    if not groups.versions.groups:
        states = {op.state: given.state_schemas[op.state].empty_table()} if op.state else {}
        return Outcome(given.output.empty_table(), states)
    if op.state is not None:
        return _Kept(op, given, groups).outcome(op.state)
    updates = groups.history(given, history, np.arange(groups.versions.groups))
    order = [updates.column(name) for name in ties] if ranked else None
    found = members(updates, groups.versions, order)
    answers = [answer(call, found) for call in op.calls]
    return _outcome(op, given, groups, found.sizes > 0, answers)


def _outcome(
    op: Reduce, given: Given, groups: Changed, present: Mask, answers: Sequence[Answer]
) -> Outcome:
    at = groups.versions
    if not op.groups:
        present = np.ones(at.count, np.bool_)
        if given.hydrating:
            present[at.start[:-1]] = False
    shown = np.flatnonzero(present)
    rows = pa.array(at.group[shown])
    columns = [one_array(groups.keys.column(name)).take(rows) for name in op.groups]
    columns += [array.take(pa.array(shown)) for array, _ in answers]
    table = _table(columns, given.output, len(shown))
    ones = np.ones(len(shown), np.int64)
    output = differences(table, shown, ones, at, given.output)
    return Outcome(output, errors=_errors(op, groups, present, answers))


def _table(columns: Sequence[Any], schema: pa.Schema, rows: int) -> pa.Table:
    """Return the columns as a table; one without columns still has its rows."""
    data = pa.schema([field for field in schema if field.name not in (TIME, DIFF)])
    if not columns:
        return pa.table({"nothing": pa.nulls(rows)}).select([])
    return pa.Table.from_arrays(list(columns), schema=data)


def _errors(
    op: Reduce, groups: Changed, present: Mask, answers: Sequence[Answer]
) -> pa.Table | None:
    """Return the sums that do not fit, as errors of the versions that have them."""
    system = [pa.field(TIME, pa.int64()), pa.field(DIFF, pa.int64())]
    schema = pa.schema([*(field.with_nullable(True) for field in ERROR_SCHEMA), *system])
    tables = []
    for call, (_, failed) in zip(op.calls, answers, strict=True):
        if failed is None or not (failed & present).any():
            continue
        at = np.flatnonzero(failed & present)
        message = f"{call.function} does not fit into {call.type}; cast its argument to a wider one"
        texts = ["ARITHMETIC_OVERFLOW", message, None]
        rows = pa.Table.from_arrays(
            [pa.array([text] * len(at), pa.string()) for text in texts], names=ERROR_SCHEMA.names
        )
        ones = np.ones(len(at), np.int64)
        tables.append(differences(rows, at, ones, groups.versions, schema))
    return consolidate(pa.concat_tables(tables)) if tables else None


class _Kept:
    """A step of an operator that has a state."""

    def __init__(self, op: Reduce, given: Given, groups: Changed) -> None:
        assert op.state is not None
        self.op, self.given, self.groups, self.at = op, given, groups, groups.versions
        schema = given.state_schemas[op.state]
        if given.hydrating:
            empty = pa.schema([f for f in schema if f.name != TIME] + [(GROUP, pa.int64())])
            self.old = empty.empty_table()
        else:
            self.old = groups.kept_state(given.states[op.state])
        self.kinds: Longs = self.old.column(KIND).to_numpy().astype(np.int64)
        self.stored = frozenset(schema.names)
        self.new: list[tuple[int, Longs, Longs, Any]] = []
        """Rows of the new state: kind, groups, diffs, values."""
        self.partial: dict[int, Mask] = {}
        """Of each min or max: the groups that will have other values than those kept."""

    def outcome(self, state: str) -> Outcome:
        totals = totals_at(self.at, self._counts(0), self.groups.delta)
        self._keep_counts(0, totals)
        answers = [self._answer(n, call) for n, call in enumerate(self.op.calls)]
        found = _outcome(self.op, self.given, self.groups, totals > 0, answers)
        return Outcome(found.output, {state: self._updates(state)}, found.errors)

    def _answer(self, n: int, call: ReduceCall) -> Answer:
        function = canonical(call.function)
        mask = counted(call, self.groups.delta)
        delta = self.groups.delta.filter(pa.array(mask))
        if function in _LEAST | _GREATEST:
            return self._extreme(n, call, delta, function in _GREATEST), None
        counts = totals_at(self.at, self._counts(2 * n + 1), delta)
        self._keep_counts(2 * n + 1, counts)
        if function in _COUNTS:
            return pa.array(counts), None
        column = delta.column(call.arguments[0])
        sums = self._sums(n, delta, column)
        type_ = by_spark(call.type).arrow
        if function in ("sum", "try_sum"):
            return shown_sum(sums, counts, type_, function == "sum")
        scale = column.type.scale if pa.types.is_decimal(column.type) else 0
        return shown_average(sums, counts, scale, type_)

    def _extreme(self, n: int, call: ReduceCall, delta: pa.Table, greatest: bool) -> Any:
        (name,) = call.arguments
        lender = self._lender(n)

        def values(updates: pa.Table) -> pa.Table:
            columns = {"value": normalised(updates.column(name)), GROUP: updates.column(GROUP)}
            return pa.table({**columns, TIME: updates.column(TIME), DIFF: updates.column(DIFF)})

        def order(updates: pa.Table) -> list[Any]:
            codes = order_codes(updates.column("value"))
            return [pa.array(-codes if greatest else codes)]

        def reread(groups: Longs) -> pa.Table:
            history = self.given.arrangements[self.op.arrangement]
            found = self.groups.history(self.given, history, groups, looked_at(call))
            return values(found.filter(pa.array(counted(call, found))))

        before, partial = self._counts(2 * lender + 1), self._rows(PARTIAL - n)
        found = known(
            self.at,
            self._best(n, lender),
            before,
            partial.column(GROUP).to_numpy(),
            values(delta),
            order,
            1,
            reread,
        )
        if lender == n:
            self._keep_counts(2 * n + 1, found.totals)
        self._keep_best(n, lender, found)
        versions, start = found.members.segments()
        best = np.full(self.at.count, -1)
        best[versions] = found.members.row[start]
        return pick(found.members.rows.column("value"), best)

    # -- best values --

    def _lender(self, n: int) -> int:
        return n if _value(n) in self.stored else _lender(self.op.calls, n)

    def _best(self, n: int, lender: int) -> pa.Table:
        """Return the best values that are kept for a call: its own, and those it is lent."""
        rows = self._rows(2 * n + 2)
        if lender != n:
            marks = np.isin(self.kinds, (PARTIAL - n, PARTIAL - lender))
            own = np.zeros(self.at.groups, np.bool_)
            own[self.old.column(GROUP).to_numpy()[marks]] = True
            lent = self._rows(2 * lender + 2)
            lent = lent.filter(pa.array(~own[lent.column(GROUP).to_numpy()]))
            rows = pa.concat_tables([rows, lent])
        kept = rows.select([_value(lender), GROUP, DIFF])
        return kept.rename_columns(["value", GROUP, DIFF])

    def _keep_best(self, n: int, lender: int, found: Known) -> None:
        rows, partial = found.kept(SLACK), found.partial(SLACK)
        self.new.append((PARTIAL - n, partial, np.ones(len(partial), np.int64), None))
        self.partial[n] = np.zeros(self.at.groups, np.bool_)
        self.partial[n][partial] = True
        if lender != n:
            own = self.partial[n] | self.partial[lender]
            rows = rows.filter(pa.array(own[rows.column(GROUP).to_numpy()]))
        groups, diffs = rows.column(GROUP).to_numpy(), rows.column(DIFF).to_numpy()
        self.new.append((2 * n + 2, groups, diffs, one_array(rows.column("value"))))

    def _sums(self, n: int, delta: pa.Table, column: Any) -> Any:
        rows = self._rows(2 * n + 2)
        stored = decoded(rows.column(_value(n)), fractional=False)
        base = stored.scattered(rows.column(GROUP).to_numpy(), self.at.groups)
        added, before, _ = prepared(whole_numbers(column), delta.column(DIFF).to_numpy(), base)
        changes = np.zeros(self.at.count, added.dtype)
        changes[self.at.start[:-1]] = before
        version = self.at.at(delta.column(GROUP).to_numpy(), delta.column(TIME).to_numpy())
        np.add.at(changes, version, added)
        sums = running(self.at, changes)
        last = sums[self.at.start[1:] - 1]
        there = np.flatnonzero(last != 0)
        ones = np.ones(len(there), np.int64)
        binary = encoded(Exact(last[there]), fractional=False)
        self.new.append((2 * n + 2, there, ones, binary))
        return sums.astype(object)

    # -- the state --

    def _rows(self, kind: int) -> pa.Table:
        return self.old.filter(pa.array(self.kinds == kind))

    def _counts(self, kind: int) -> Longs:
        """Return, of each group, how many rows of this kind the state has."""
        rows = self._rows(kind)
        counts = np.zeros(self.at.groups, np.int64)
        np.add.at(counts, rows.column(GROUP).to_numpy(), rows.column(DIFF).to_numpy())
        return counts

    def _keep_counts(self, kind: int, counts: Longs) -> None:
        last = counts[self.at.start[1:] - 1]
        there = np.flatnonzero(last)
        self.new.append((kind, there, last[there], None))

    def _updates(self, state: str) -> pa.Table:
        """Return what turns the old state of these groups into the new one, at the last time."""
        schema = self.given.state_schemas[state]
        time = self.given.upper - 1
        names = [name for name in schema.names if name not in (TIME, DIFF)]
        gone = -self.old.column(DIFF).to_numpy()
        tables = [_updates(self.old.select(names).columns, gone, time, schema)]
        for kind, groups, diffs, values in self.new:
            columns = [self._column(schema.field(name), kind, groups, values) for name in names]
            tables.append(_updates(columns, diffs, time, schema))
        return consolidate(pa.concat_tables(tables))

    def _column(self, field: pa.Field, kind: int, groups: Longs, values: Any) -> Any:
        if field.name == KIND:
            return pa.array(np.full(len(groups), kind, np.int32))
        if field.name in self.groups.keys.column_names:
            return one_array(self.groups.keys.column(field.name)).take(pa.array(groups))
        if values is not None and field.name == _value(self._lender((kind - 2) // 2)):
            return values
        return pa.nulls(len(groups), field.type)


def _updates(columns: Sequence[Any], diffs: Longs, time: int, schema: pa.Schema) -> pa.Table:
    times = pa.array(np.full(len(diffs), time))
    return pa.Table.from_arrays([*columns, times, pa.array(diffs)], schema=schema)

"""Grouped aggregates by accumulators: a group is never read again.

For each group the state has one row: the sums (*terms*, ``accumulators.py``) of which its calls are
functions, the number of its rows first. Every one of them is a sum over updates, so

    state(g, t)   =  state(g, lower - 1)  +  Σ diff · term(row)  over ΔI of g at times in [lower, t]
    output(g, t)  =  (g, answer of each call in state(g, t))     if state(g, t) counts rows, else ∅

State and output change by retracting the old row and inserting the new one **at each time** at
which they differ. A state that is all zero is not kept; one that counts less than no rows is, as it
is the half of something that is to come, and shows nothing. Without groups there is always one row,
from the first time on.

An answer that does not fit its type is an **error**, at the times at which it does not: the group's
row is absent then, and both come back to what they were when the sum fits again. ``try_sum`` and
``try_avg`` are NULL instead. What a sum passes through between two times does not count.

Bound: the delta, and the state's row of each group it names, with what has not yet been merged of
that row's history. Nothing depends on the size of a group or on the number of groups.

Kept by: this module, against an oracle at every time in ``tests/unit/dataflow/test_accumulate.py``
and against Spark in ``tests/spark/test_accumulate_meaning.py``.
Relied on by: the lowering of aggregates (:func:`is_accumulable`, :func:`state_columns`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.compute.dataflow.graph import Accumulate, AccumulateCall
from headwater.compute.dataflow.memory import Memory, Numbers
from headwater.compute.dataflow.operator import Given, History, Outcome
from headwater.compute.dataflow.ops.accumulators import (
    ROWS,
    Answer,
    Rows,
    Term,
    answer,
    canonical,
    distinct_terms,
    is_accumulable,
    terms_of,
)
from headwater.compute.dataflow.ops.changes import (
    Changes,
    Stored,
    changes_of,
    is_distinguishable,
    keyed_by,
    remembered,
    stored_states,
)
from headwater.compute.dataflow.ops.exact import Exact, prepared
from headwater.compute.ir.expression import Column
from headwater.persist.consolidate import DIFF, TIME, column_longs
from headwater.persist.evolution import ERROR_SCHEMA, updates_schema

__all__ = [
    "OVERFLOW",
    "canonical",
    "is_accumulable",
    "is_distinguishable",
    "state_columns",
    "state_key",
    "step",
]

Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

OVERFLOW: Final = "ARITHMETIC_OVERFLOW"
"""The condition of an answer that does not fit its type."""


def state_columns(
    columns: Sequence[Column], groups: Sequence[str], calls: Sequence[AccumulateCall]
) -> tuple[Column, ...]:
    """Return the columns of the state over an input with these columns."""
    by_name = {column.name: column for column in columns}
    terms = distinct_terms(calls, _types(columns))
    key = keyed_by([by_name[name] for name in groups])
    return (*key, *(term.column(number) for number, term in enumerate(terms)))


def state_key(groups: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the state's key: the groups, or that of the one group there is."""
    return tuple(groups) or tuple(column.name for column in keyed_by(()))


def step(op: Accumulate, given: Given) -> Outcome:
    """Return the changes of every group that the delta names, of its state and of its errors."""
    delta = given.deltas[op.input]
    if not op.groups and given.hydrating:
        # Nothing, at the first time: so the row of no rows is there from then on.
        delta = pa.concat_tables([delta, _nothing_at(given.lower, delta.schema)])
    if not len(delta):
        return Outcome(given.output.empty_table())
    plan = _planned(op)
    changes = changes_of(delta, op.groups)
    history = given.states[op.state]
    states = _states(changes, delta, plan, history)
    answers = [
        answer(call, terms, plan.types, states)
        for call, terms in zip(op.calls, plan.needed, strict=True)
    ]
    shown = present = _present(op, given, changes, states)
    overflow = [_overflow(one, present) for one in answers]
    for wrong in overflow:
        shown = shown if wrong is None else shown & ~wrong
    kept = np.zeros(len(present), np.bool_)
    for term in plan.terms.values():
        kept = kept | states[term].nonzero
    memory = _remembered(changes, history, plan, states, kept)
    return Outcome(
        changes.replacements(
            changes.keys if op.groups else (), [a.values for a in answers], shown, given.output
        ),
        {
            op.state: changes.state_replacements(
                [states[term].digits for term in plan.terms.values()],
                lambda rows: [
                    term.stored(states[term].at_rows(rows)) for term in plan.terms.values()
                ],
                kept,
                given.state_schemas[op.state],
            )
        },
        _errors(op, changes, overflow),
        # A row of each group, and it has the group in it.
        consolidated=True,
        memories={} if memory is None else {op.state: memory},
    )


def _types(columns: Sequence[Column]) -> Mapping[str, str]:
    return {column.name: column.type for column in columns}


@dataclass(frozen=True, slots=True)
class _Plan:
    """What an operator says of every step."""

    types: Mapping[str, str]
    """Of the input's columns."""
    terms: Mapping[str, Term]
    """By the columns of the state that hold them."""
    needed: tuple[tuple[Term, ...], ...]
    """Of each call."""


@lru_cache(maxsize=1024)
def _planned(op: Accumulate) -> _Plan:
    types = _types(op.input.columns)
    terms = enumerate(distinct_terms(op.calls, types))
    by_column = {term.column(number).name: term for number, term in terms}
    return _Plan(types, by_column, terms_of(op.calls, types))


def _nothing_at(time: int, schema: pa.Schema) -> pa.Table:
    values = {TIME: pa.array([time]), DIFF: pa.array([0])}
    columns = [values.get(field.name, pa.nulls(1, field.type)) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


# ---- states ----------------------------------------------------------------------------------


def _states(changes: Changes, delta: pa.Table, plan: _Plan, history: History) -> dict[Term, Exact]:
    """Return every term in every state."""
    stored = stored_states(changes, history, list(plan.terms))
    diffs, rows = column_longs(delta, DIFF), Rows(delta)
    all_rows = changes.totals(diffs)
    states: dict[Term, Exact] = {}
    for name, term in plan.terms.items():
        if term.kind == "xor":
            states[term] = _xored(
                changes, stored, name, np.where(diffs % 2, rows.added(term).digits, 0)
            )
        elif term.is_number:
            sums, start, exponent = prepared(rows.added(term), diffs, term.before(name, stored))
            states[term] = Exact(changes.states(start, changes.totals(sums)), exponent)
        else:
            counted = rows.counted(term)
            change = all_rows
            if counted is not None:
                change = (
                    changes.totals(np.where(counted, diffs, 0)) if counted.any() else 0 * change
                )
            states[term] = Exact(changes.states(stored.longs(name), change))
    return states


def _xored(changes: Changes, stored: Stored, name: str, odd: Longs) -> Exact:
    xor, start = np.bitwise_xor, np.zeros(changes.size, np.int64)
    if len(stored.known):
        start[stored.known] = stored.recalled[name]
    if stored.updates is not None:
        # A row of a state comes or goes: every diff is odd, and what cancels is there twice.
        xor.at(start, stored.updates.places, column_longs(stored.updates.table, name))
    return Exact(changes.states(start, changes.totals(odd, xor), plus=xor, minus=xor))


def _remembered(
    changes: Changes, history: History, plan: _Plan, states: Mapping[Term, Exact], kept: Mask
) -> Memory | None:
    if changes.names is None:
        return None
    columns: dict[str, Numbers] = {}
    for name, term in plan.terms.items():
        columns |= term.remembered(name, states[term].at_rows(changes.last))
    return remembered(changes, history, columns, kept)


def _present(op: Accumulate, given: Given, changes: Changes, states: Mapping[Term, Exact]) -> Mask:
    """Return which states are shown, if they have an answer."""
    if op.groups:
        return np.asarray(states[ROWS].digits > 0, dtype=np.bool_)
    present = np.ones(len(states[ROWS]), np.bool_)
    present[: changes.size] = not given.hydrating
    return present


# ---- errors ----------------------------------------------------------------------------------


def _overflow(one: Answer, present: Mask) -> Mask | None:
    """Return where an answer that is shown does not fit; ``None``: it does everywhere."""
    if one.overflow is None or not one.overflow.any():
        return None
    return one.overflow & present


def _errors(op: Accumulate, changes: Changes, overflow: Sequence[Mask | None]) -> pa.Table | None:
    """Return which errors come and go; a group has one for each call that does not fit."""
    before, after = changes.before, changes.after
    messages: list[str] = []
    times: list[int] = []
    diffs: list[int] = []
    for call, wrong in zip(op.calls, overflow, strict=True):
        if wrong is None:
            continue
        for change in np.flatnonzero(wrong[before] != wrong[after]).tolist():
            messages.append(_message(op, call, changes, int(changes.groups[change])))
            times.append(int(changes.times[change]))
            diffs.append(1 if wrong[after[change]] else -1)
    if not messages:
        return None
    count = len(messages)
    columns = [[OVERFLOW] * count, messages, pa.nulls(count, pa.string()), times, diffs]
    return pa.Table.from_arrays(list(map(pa.array, columns)), schema=updates_schema(ERROR_SCHEMA))


def _message(op: Accumulate, call: AccumulateCall, changes: Changes, group: int) -> str:
    what = f"{call.function}({', '.join(call.arguments)}) does not fit into {call.type}"
    if not op.groups:
        return what
    values = (_text(key[group]) for key in changes.keys)
    named = (f"{name} = {value}" for name, value in zip(op.groups, values, strict=True))
    return f"{what} in the group {', '.join(named)}"


def _text(cell: Any) -> str:
    if not cell.is_valid:
        return "NULL"
    try:
        value = cell.as_py()
    except (OverflowError, ValueError):  # Python's calendar ends with the year 9999.
        return str(cell.cast(pa.string()).as_py())
    return repr(value) if isinstance(value, str | bytes) else str(value)

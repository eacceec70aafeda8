"""DISTINCT: each row once, by counting.

    count(row, t)  =  count(row, lower - 1)  +  Σ diff  over ΔI of row at times in [lower, t]
    output(t)      =  { row : count(row, t) > 0 }

so a row comes at the time at which its count rises above 0, and goes when it falls back. Rows are
told apart as groups are: NULL is one value, both zeros are one and shown as 0.0, all NaNs are one.
The state has the columns and ``_count_0``, a row for each count that is not 0; a negative count,
half of something that is to come, shows nothing. Rows of no columns are all one.

Bound: the delta, and one count for each distinct row of it.

Kept by: this module, against an oracle at every time in ``tests/unit/dataflow/test_distinct.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headwater.compute.dataflow.graph import Distinct
from headwater.compute.dataflow.operator import Given, Outcome
from headwater.compute.dataflow.ops.changes import (
    COUNT,
    changes_of,
    is_distinguishable,
    keyed_by,
    remembered,
    stored_states,
)
from headwater.compute.ir.expression import Column
from headwater.persist.consolidate import DIFF, column_longs

__all__ = ["is_distinguishable", "state_columns", "state_key", "step"]


def state_columns(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return the columns of the state over an input with these columns."""
    return (*keyed_by(columns), COUNT)


def state_key(columns: Sequence[Column]) -> tuple[str, ...]:
    """Return the names of the state's key."""
    return tuple(column.name for column in keyed_by(columns))


def step(op: Distinct, given: Given) -> Outcome:
    """Return the rows that come and go, and the changes of the counts."""
    delta = given.deltas[op.input]
    if not len(delta):
        return Outcome(given.output.empty_table())
    names = [column.name for column in op.input.columns]
    changes = changes_of(delta, names)
    history = given.states[op.counts]
    stored = stored_states(changes, history, [COUNT.name])
    added = changes.totals(column_longs(delta, DIFF))
    counts = changes.states(stored.longs(COUNT.name), added)
    some = counts != 0
    kept = changes.state_replacements(
        [counts], lambda states: [pa.array(counts[states])], some, given.state_schemas[op.counts]
    )
    memory = remembered(changes, history, {COUNT.name: counts[changes.last]}, some)
    shown = changes.keys if names else ()
    output = changes.recounts(shown, (counts > 0).astype(np.int64), given.output)
    memories = {} if memory is None else {op.counts: memory}
    return Outcome(output, {op.counts: kept}, memories=memories)

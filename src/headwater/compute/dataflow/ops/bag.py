"""INTERSECT ALL and EXCEPT ALL, by counting both sides.

With ``l(row, t)`` and ``r(row, t)`` the sums of the diffs of each side at times ``<= t``, and a
negative one taken for 0, the output has every row at every time

    min(l, r)  times  for  INTERSECT ALL        max(0, l - r)  times  for  EXCEPT ALL

and changes at each time by what that number changes. Columns of the two sides are matched by
position and shown under the names of the output; rows are told apart as groups are (NULL is one
value, both zeros are one and shown as 0.0, all NaNs are one). The state has the left's columns,
``_left_0`` and ``_right_0``, a row wherever one of them is not 0. Rows of no columns are all one.

Bound: the deltas of both sides, and one row of the state for each distinct row of them.

Kept by: this module, against an oracle at every time in ``tests/unit/dataflow/test_bag.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.compute.dataflow.graph import Bag
from headwater.compute.dataflow.operator import Given, Outcome
from headwater.compute.dataflow.ops.changes import (
    changes_of,
    is_distinguishable,
    keyed_by,
    remembered,
    stored_states,
)
from headwater.compute.ir.expression import Column
from headwater.persist.consolidate import DIFF, TIME, column_longs

__all__ = ["is_distinguishable", "state_columns", "state_key", "step"]

Longs = npt.NDArray[np.int64]

LEFT: Final = Column("_left_0", "bigint", False)
RIGHT: Final = Column("_right_0", "bigint", False)


def state_columns(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return the columns of the state over a left side with these columns."""
    return (*keyed_by(columns), LEFT, RIGHT)


def state_key(columns: Sequence[Column]) -> tuple[str, ...]:
    """Return the names of the state's key."""
    return tuple(column.name for column in keyed_by(columns))


def step(op: Bag, given: Given) -> Outcome:
    """Return by how much the number of each row changes, and the changes of both counts."""
    left, right = given.deltas[op.left], given.deltas[op.right]
    names = [column.name for column in op.left.columns]
    delta = pa.concat_tables([left, right.rename_columns([*names, TIME, DIFF])])
    if not len(delta):
        return Outcome(given.output.empty_table())
    changes = changes_of(delta, names)
    history = given.states[op.counts]
    stored = stored_states(changes, history, [LEFT.name, RIGHT.name])
    diffs, of_left = column_longs(delta, DIFF), np.arange(len(delta)) < len(left)
    sides: list[Longs] = []
    for column, added in ((LEFT, of_left), (RIGHT, ~of_left)):
        change = changes.totals(np.where(added, diffs, 0))
        sides.append(changes.states(stored.longs(column.name), change))
    some = (sides[0] != 0) | (sides[1] != 0)
    kept = changes.state_replacements(
        sides,
        lambda states: [pa.array(side[states]) for side in sides],
        some,
        given.state_schemas[op.counts],
    )
    last = {LEFT.name: sides[0][changes.last], RIGHT.name: sides[1][changes.last]}
    memory = remembered(changes, history, last, some)
    shown = changes.keys if names else ()
    output = changes.recounts(shown, _multiplicity(op, *sides), given.output)
    memories = {} if memory is None else {op.counts: memory}
    return Outcome(output, {op.counts: kept}, memories=memories)


def _multiplicity(op: Bag, left: Longs, right: Longs) -> Longs:
    have, other = np.maximum(left, 0), np.maximum(right, 0)
    return np.minimum(have, other) if op.kind == "intersect" else np.maximum(have - other, 0)

"""The inner equi-join of two inputs, by delta paths.

    Δ(L ⋈ R)[lower, upper)  =  { (l r, t, dl·dr) : (l, t, dl) in ΔL, (r, s, dr) in R, s <= t }
                             +  { (l r, t, dl·dr) : (r, t, dr) in ΔR, (l, s, dl) in L, s <  t }

where ``l`` and ``r`` agree on the key, ``ΔX`` are the updates at times in ``[lower, upper)``, and
``X`` is all of them before ``upper``: the arrangement (before ``lower``) plus ``ΔX``. Each pair
counts once, at the later of its two times; there is no cross term and no intermediate state.

The arrangement may have been compacted to ``lower - 1`` but not to ``lower``: the second path, with
its strict ``<``, could not see what happened before an update at ``lower``. NULL matches nothing.

Cost: the two deltas and what matches them. Kept by: this module, against the model in
``tests/unit/compute/test_join.py``. Relied on by: ``compute/step_task.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headwater.base.errors import HeadwaterError
from headwater.collection.probe import PROBE_INDEX, probe
from headwater.collection.run import Run, write_run
from headwater.compute.view import SIDES, InputColumn, JoinSumView, Side
from headwater.persist.consolidate import DIFF, TIME


@dataclass(frozen=True, slots=True)
class Arranged:
    """One input of a step: its arrangement before the step, and its updates in the step.

    ``delta`` has the needed columns of the input, no NULL in its key, and is consolidated.
    """

    runs: tuple[Run, ...]
    delta: pa.Table


def changed_pairs(query: JoinSumView, left: Arranged, right: Arranged, *, upper: int) -> pa.Table:
    """Return the changes of the join: its :func:`result_columns`, ``__time``, ``__diff``."""
    inputs: dict[Side, Arranged] = {"left": left, "right": right}
    empty = _result_schema(query, left.delta.schema, right.delta.schema).empty_table()
    paths = [_path(query, side, inputs, upper=upper) for side in SIDES]
    return pa.concat_tables([empty, *paths])


def result_columns(query: JoinSumView) -> tuple[InputColumn, ...]:
    """Return the columns of the join that the view goes on with: groups, then aggregated ones."""
    return (*query.group, *query.aggregated)


def result_name(index: int) -> str:
    """Return the name of a result column; those of the inputs may collide."""
    return f"c{index}"


def _result_schema(query: JoinSumView, left: pa.Schema, right: pa.Schema) -> pa.Schema:
    by_side: dict[Side, pa.Schema] = {"left": left, "right": right}
    fields = [
        pa.field(result_name(n), by_side[column.side].field(column.name).type)
        for n, column in enumerate(result_columns(query))
    ]
    return pa.schema([*fields, pa.field(TIME, pa.int64()), pa.field(DIFF, pa.int64())])


def _path(query: JoinSumView, side: Side, inputs: dict[Side, Arranged], *, upper: int) -> pa.Table:
    """Follow the updates of one side to their partners on the other."""
    other: Side = "right" if side == "left" else "left"
    moving, standing = inputs[side].delta, inputs[other]
    schema = _result_schema(query, inputs["left"].delta.schema, inputs["right"].delta.schema)
    if not moving.num_rows:
        return schema.empty_table()
    runs: Sequence[Run] = standing.runs
    if standing.delta.num_rows:
        runs = (*runs, Run.open(write_run(standing.delta, query.key(other))))
    found = probe(
        runs,
        [moving.column(name) for name in query.key(side)],
        at=moving.column(TIME).to_numpy(),
        strict=side == "right",
        ignore_from=upper,
        schema=standing.delta.schema,
    )
    moved = moving.take(found.column(PROBE_INDEX))
    columns = [
        (moved if column.side == side else found).column(column.name)
        for column in result_columns(query)
    ]
    try:
        diffs = pc.multiply_checked(moved.column(DIFF), found.column(DIFF))
    except pa.ArrowInvalid as error:
        raise HeadwaterError("the multiplicity of a joined row does not fit 64 bits") from error
    return pa.Table.from_arrays([*columns, moved.column(TIME), diffs], schema=schema)

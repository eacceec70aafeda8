"""The rule of temporal filters: bounds as whole milliseconds, then one operator.

Time is in milliseconds, timestamps are in microseconds. A row is in at ``t`` iff

    since <= t  and  t < until      i.e.      ceil(since_us / 1000) <= t < ceil(until_us / 1000)

so both bounds are rounded up. A row with a NULL bound is never in; an error in a bound is an error
of the view as long as the row is there, whatever the time is.

Kept by: this module. Relied on by: ``lower.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.compute.dataflow import graph
from headwater.compute.dataflow.flow import Context, Flow, columns_of, filtered, projected
from headwater.compute.dataflow.ops import temporal
from headwater.compute.ir.expression import BOOLEAN, Expression, Named
from headwater.compute.ir.node import TemporalFilter, reference


def in_time(context: Context, node: TemporalFilter, wanted: Sequence[str]) -> Flow:
    """Return the rows of a temporal filter."""
    build = context.build
    flow = context.flow(node.input)
    columns = [column for column in columns_of(flow) if column.name in wanted]
    bounds: dict[str, str] = {}
    outputs = [reference(column) for column in columns]
    for what, bound in (("since", node.since), ("until", node.until)):
        if bound is not None:
            bounds[what] = build.fresh(what)
            outputs.append(Named(bounds[what], _milliseconds(bound)))
    rows = projected(flow, outputs)
    for name in bounds.values():
        present = Expression(f"({name} IS NOT NULL)", BOOLEAN, False, (name,))
        rows = filtered(rows, present)
    state = build.state(temporal.state_columns(columns), temporal.state_key())
    output = build.lane(columns)
    since, until = bounds.get("since"), bounds.get("until")
    build.add(graph.Temporal(build.origin(rows), since, until, state, output))
    return build.flow_of(output)


def _milliseconds(bound: Expression) -> Expression:
    micros = f"unix_micros({bound.text})"
    text = f"(({micros} div 1000) + CASE WHEN (({micros} % 1000) > 0) THEN 1 ELSE 0 END)"
    return Expression(text, "bigint", True, bound.columns)

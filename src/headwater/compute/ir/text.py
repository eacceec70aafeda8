"""A plan in a form for people: one line an operator, its inputs below it and indented.

Golden files and ``EXPLAIN`` show this text, never Spark's own, which changes with each release. It
shows all that a plan means except nullability and the exact types inside, which :func:`outlined`
adds for the columns of each operator if asked.

    topk 10 by revenue_1 DESC NULLS LAST
      aggregate by l_orderkey_1: revenue_1 := sum(…)
        join inner on o_orderkey_1 = l_orderkey_1
          …
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headwater.compute.ir.expression import Named, SortKey
from headwater.compute.ir.node import (
    Aggregate,
    Bag,
    Distinct,
    Expand,
    Filter,
    Generate,
    Join,
    Node,
    Project,
    Scan,
    TemporalFilter,
    Text,
    TopK,
    Union,
    Values,
    Window,
)
from headwater.compute.ir.plan import Plan

ROWS_SHOWN = 5


def written(plan: Plan) -> str:
    """Return the whole plan as text, with the columns a reader sees on its first line."""
    types = {column.name: column for column in plan.root.columns}
    shown = ", ".join(
        f"{_labelled(output.label, output.name)} {types[output.name].type}"
        f"{'' if types[output.name].nullable else ' not null'}"
        for output in plan.outputs
    )
    lines = [f"shows {shown}"]
    if plan.order:
        lines.append(f"in order of {_order(plan.order)}")
    lines.extend(f"calls {f.name} ({f.fingerprint})" for f in plan.functions)
    return "\n".join([*lines, *_lines(plan.root, 0)]) + "\n"


def outlined(node: Node, *, types: bool = False) -> str:
    """Return an operator and what is below it as text; ``types`` adds the columns of each."""
    return "\n".join(_lines(node, 0, types)) + "\n"


def _lines(node: Node, depth: int, types: bool = False) -> Iterator[str]:
    yield f"{'  ' * depth}{headline(node)}"
    if types:
        columns = (f"{c.name} {c.type}{'' if c.nullable else ' not null'}" for c in node.columns)
        yield f"{'  ' * depth}  : {', '.join(columns)}"
    for child in node.inputs:
        yield from _lines(child, depth + 1, types)


def headline(node: Node) -> str:
    """Return the line of one operator."""
    match node:
        case Scan():
            fields = (_labelled(f.field, f.column.name) for f in node.fields)
            return f"scan {node.relation} ({', '.join(fields)})"
        case Values():
            rows = [f"({', '.join(row)})" for row in node.rows[:ROWS_SHOWN]]
            if len(node.rows) > ROWS_SHOWN:
                rows.append(f"… {len(node.rows) - ROWS_SHOWN} more")
            names = ", ".join(column.name for column in node.columns)
            return f"values ({names}): {', '.join(rows) or 'none'}"
        case Filter():
            return f"filter {node.condition.text}"
        case TemporalFilter():
            since = f"{node.since.text} <= now" if node.since is not None else "now"
            until = f" < {node.until.text}" if node.until is not None else ""
            return f"temporal filter {since}{until}"
        case Project():
            return f"project {', '.join(map(_assigned, node.outputs)) or 'nothing'}"
        case Join():
            conditions = [f"{k.left.text} {k.comparison} {k.right.text}" for k in node.keys]
            on = f" on {' and '.join(conditions)}" if conditions else ""
            residual = f" where {node.residual.text}" if node.residual is not None else ""
            return f"join {node.kind}{on}{residual}"
        case Aggregate():
            by = f" by {', '.join(node.groups)}" if node.groups else ""
            calls = ", ".join(f"{call.name} := {call.text}" for call in node.calls)
            return f"aggregate{by}: {calls or 'nothing'}"
        case Union():
            return f"union ({', '.join(column.name for column in node.columns)})"
        case Bag():
            return f"{node.kind} all"
        case Distinct():
            return "distinct"
        case Window():
            by = f" by {', '.join(e.text for e in node.partition)}" if node.partition else ""
            order = f" in order of {_order(node.order)}" if node.order else ""
            calls = ", ".join(f"{c.name} := {c.text} {c.frame}" for c in node.calls)
            return f"window{by}{order}: {calls}"
        case TopK():
            limit = "all" if node.limit is None else str(node.limit)
            offset = f" after {node.offset}" if node.offset else ""
            order = f" by {_order(node.order)}" if node.order else ""
            return f"top {limit}{offset}{order}"
        case Generate():
            outer = " or once" if node.outer else ""
            made = ", ".join(column.name for column in node.outputs)
            return f"generate {made} := {node.generator.text}{outer}"
        case Expand():
            names = ", ".join(column.name for column in node.columns)
            projections = (f"({', '.join(e.text for e in row)})" for row in node.projections)
            return f"expand ({names}) := {', '.join(projections)}"
        case Text():
            return f"text ({', '.join(column.name for column in node.columns)}): {node.text}"


def _order(keys: Iterable[SortKey]) -> str:
    return ", ".join(key.text for key in keys)


def _assigned(output: Named) -> str:
    if output.expression.text == output.name:
        return output.name
    return f"{output.name} := {output.expression.text}"


def _labelled(label: str, name: str) -> str:
    return name if name.rpartition("_")[0] == label else f"{name} = {label!r}"

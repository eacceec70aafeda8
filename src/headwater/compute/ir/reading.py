"""Which columns of its relations a plan looks at.

    a query's answer does not depend on the columns that are not in ``columns_read(plan)``

A superset is always right: of an operator that is not known to leave columns alone, all are read.
Texts of operators are not parsed; what an aggregate's text mentions is what it may read, ties and
fixed orders included.

Relied on by: ad-hoc queries, whose tasks send nothing else.
"""

from __future__ import annotations

from collections.abc import Callable

from headwater.compute.ir.node import (
    Aggregate,
    Filter,
    Join,
    Node,
    Project,
    Scan,
    TemporalFilter,
)
from headwater.compute.ir.plan import Plan

Mentions = Callable[[Aggregate], set[str]]
"""The columns of its input that the text of an aggregate mentions."""


def columns_read(plan: Plan, mentions: Mentions) -> dict[str, set[str]]:
    """Return, by relation, the fields that the query looks at."""
    shown = {output.name for output in plan.outputs}
    if plan.order:  # Ties are broken by all columns.
        shown = {column.name for column in plan.root.columns}
    found: dict[str, set[str]] = {relation: set() for relation in plan.relations}
    _read(plan.root, frozenset(shown), mentions, found)
    return found


def _read(
    node: Node, wanted: frozenset[str], mentions: Mentions, found: dict[str, set[str]]
) -> None:
    match node:
        case Scan():
            found[node.relation] |= {f.field for f in node.fields if f.column.name in wanted}
        case Filter():
            _read(node.input, wanted | set(node.condition.columns), mentions, found)
        case TemporalFilter():
            bounds = [bound for bound in (node.since, node.until) if bound is not None]
            used = {name for bound in bounds for name in bound.columns}
            _read(node.input, wanted | used, mentions, found)
        case Project():
            used = {name for output in node.outputs for name in output.expression.columns}
            _read(node.input, frozenset(used), mentions, found)
        case Join():
            sides = [side for key in node.keys for side in (key.left, key.right)]
            sides += [] if node.residual is None else [node.residual]
            both = wanted | {name for side in sides for name in side.columns}
            _read(node.left, both, mentions, found)
            _read(node.right, both, mentions, found)
        case Aggregate():
            _read(node.input, frozenset(mentions(node)), mentions, found)
        case _:
            for child in node.inputs:
                everything = frozenset(column.name for column in child.columns)
                _read(child, everything, mentions, found)

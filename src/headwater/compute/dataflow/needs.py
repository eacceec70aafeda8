"""Which columns of each operator of a plan are needed by those over it.

    needs(root) = all columns of the root;  needs(n) = the union of what its parents ask of n

Equal operators are one, so what two parents need of a shared one is needed once. Where an operator
is asked for its rows as wholes (duplicates, set operations, the canonical order of ties) all its
columns are: to leave one out would change the answer, not only its width.

Kept by: this module. Relied on by: ``lower.py``, so that lanes carry no more than is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headwater.compute.ir.functions import ORDERED
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
    walk,
)

Needs = Mapping[Node, frozenset[str]]


def needed(root: Node) -> Needs:
    """Return for each distinct operator the names of the columns that are needed of it."""
    needs: dict[Node, set[str]] = {node: set() for node in walk(root)}
    needs[root].update(names(root))
    # Post-order puts every operator before all its parents; in reverse, parents come first.
    for node in reversed(list(needs)):
        for child, wanted in zip(node.inputs, _asked(node, frozenset(needs[node])), strict=True):
            needs[child].update(set(wanted) & set(names(child)))
    return {node: frozenset(found) for node, found in needs.items()}


def names(node: Node) -> tuple[str, ...]:
    """Return the names of an operator's columns."""
    return tuple(column.name for column in node.columns)


def depends_on_whole_rows(node: Aggregate) -> bool:
    """Whether an answer depends on the canonical order of the rows of the input."""
    return any(call.function in ORDERED and not call.distinct for call in node.calls)


def _asked(node: Node, of: frozenset[str]) -> tuple[Iterable[str], ...]:
    """Return what an operator, of which ``of`` is needed, needs of each of its inputs."""
    match node:
        case Scan() | Values():
            return ()
        case Filter():
            return (of | set(node.condition.columns),)
        case TemporalFilter():
            bounds = [bound for bound in (node.since, node.until) if bound is not None]
            return (of.union(*(bound.columns for bound in bounds)),)
        case Project():
            texts = (o.expression.columns for o in node.outputs if o.name in of)
            return (set[str]().union(*texts),)
        case Join():
            keys = (set(key.left.columns) | set(key.right.columns) for key in node.keys)
            residual = node.residual.columns if node.residual is not None else ()
            wanted = of.union(residual, *keys)
            return (wanted, wanted)
        case Aggregate():
            if depends_on_whole_rows(node):
                return (names(node.input),)
            calls = (call.columns for call in node.calls if call.name in of)
            return (set(node.groups).union(*calls),)
        case Union():
            positions = [i for i, name in enumerate(names(node)) if name in of]
            return tuple([names(branch)[i] for i in positions] for branch in node.branches)
        case Bag() | Distinct() | TopK() | Window() | Text():
            return tuple(names(child) for child in node.inputs)
        case Generate():
            return (of | set(node.generator.columns),)
        case Expand():
            positions = [i for i, name in enumerate(names(node)) if name in of]
            texts = (row[i].columns for row in node.projections for i in positions)
            return (set[str]().union(*texts),)

"""How many rows a query can have at most, from how many its inputs have.

    rows_max(node, {"orders": 10})  ≥  rows of the node, whatever the ten rows are

A bound, not an estimate: an inner join has at most every pair. ``None``: there is none (a generator
yields as much as it likes). It is what decides whether an answer may be collected in one piece.

Kept by: this module. Relied on by: ``compute/answer.py``.
"""

from __future__ import annotations

from collections.abc import Mapping

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


def rows_max(node: Node, rows: Mapping[str, int]) -> int | None:
    """Return the most rows that a node can have; ``rows`` are those of the relations."""
    match node:
        case Scan():
            return rows[node.relation]
        case Values():
            return len(node.rows)
        case Filter() | TemporalFilter() | Project() | Distinct() | Window():
            return rows_max(node.input, rows)
        case Aggregate():
            return rows_max(node.input, rows) if node.groups else 1
        case Bag():
            return rows_max(node.left, rows)
        case Join():
            return _join(node, rows)
        case Union():
            found = [rows_max(branch, rows) for branch in node.branches]
            return None if None in found else sum(one for one in found if one is not None)
        case TopK():
            within = rows_max(node.input, rows)
            known = [one for one in (within, node.limit) if one is not None]
            return min(known) if known else None
        case Expand():
            within = rows_max(node.input, rows)
            return None if within is None else within * len(node.projections)
        case Generate() | Text():
            return None


def _join(node: Join, rows: Mapping[str, int]) -> int | None:
    left = rows_max(node.left, rows)
    if node.kind in ("semi", "anti"):
        return left
    right = rows_max(node.right, rows)
    if left is None or right is None:
        return None
    match node.kind:
        case "left":
            return left * max(right, 1)
        case "right":
            return max(left, 1) * right
        case "full":
            return max(left * right, left + right)
        case _:
            return left * right

"""How many rows a query can have at most: held against every join of two small relations."""

from __future__ import annotations

from typing import get_args

import pytest

from headwater.compute.ir.expression import Column, Expression, Field
from headwater.compute.ir.node import (
    Aggregate,
    Distinct,
    Filter,
    Generate,
    Join,
    JoinKind,
    Node,
    Scan,
    TopK,
    Union,
    Values,
)
from headwater.compute.ir.size import rows_max

LEFT = Scan("l", (Field("a", Column("a_1", "int", True)),))
RIGHT = Scan("r", (Field("b", Column("b_2", "int", True)),))


def _joined(kind: str, left: int, right: int, *, match: bool) -> int:
    """Rows of a join in which every pair matches, or none."""
    pairs = left * right if match else 0
    alone = {"left": (left, 0), "right": (0, right), "full": (left, right)}.get(kind, (0, 0))
    unmatched_left = 0 if match and right else alone[0]
    unmatched_right = 0 if match and left else alone[1]
    if kind == "semi":
        return left if match and right else 0
    if kind == "anti":
        return 0 if match and right else left
    return pairs + unmatched_left + unmatched_right


@pytest.mark.parametrize("kind", get_args(JoinKind))
def test_a_join_is_within_its_bound_and_reaches_it(kind: JoinKind) -> None:
    for left in range(4):
        for right in range(4):
            most = rows_max(Join(LEFT, RIGHT, kind), {"l": left, "r": right})
            assert most is not None
            found = [_joined(kind, left, right, match=match) for match in (True, False)]
            assert max(found) <= most
            assert kind in ("semi", "anti") or max(found) == most, (left, right)


def test_other_operators() -> None:
    rows = {"l": 7, "r": 3}
    one = Expression("1", "int", False, ())
    found: list[tuple[Node, int | None]] = [
        (LEFT, 7),
        (Filter(LEFT, Expression("a_1 > 1", "boolean", True, ("a_1",))), 7),
        (Aggregate(LEFT, (), ()), 1),
        (Aggregate(LEFT, ("a_1",), ()), 7),
        (Distinct(LEFT), 7),
        (Union((LEFT, RIGHT), (Column("c_3", "int", True),)), 10),
        (TopK(LEFT, (), 5), 5),
        (TopK(LEFT, (), None, 2), 7),
        (Values((Column("v_4", "int", False),), (("1",), ("2",))), 2),
        (Generate(LEFT, one, (Column("g_5", "int", True),)), None),
        (TopK(Generate(LEFT, one, (Column("g_5", "int", True),)), (), 4), 4),
        (Join(Generate(LEFT, one, (Column("g_5", "int", True),)), RIGHT, "inner"), None),
    ]
    assert [(rows_max(node, rows), most) for node, most in found] == [
        (most, most) for _, most in found
    ]

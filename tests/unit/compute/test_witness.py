"""What a query is asked besides its answer, so that it fails on all rows that its plan fails on."""

from __future__ import annotations

import pytest

from headwater.compute.catalyst.witness import Pairs, Side, may_fail_at_joins, witnesses
from headwater.compute.ir.expression import (
    AggregateCall,
    Column,
    Expression,
    Field,
    JoinKey,
    Named,
)
from headwater.compute.ir.node import Aggregate, Distinct, Filter, Join, JoinKind, Project, Scan


def scan(relation: str) -> Scan:
    columns = (Column(f"{relation}k_1", "int", True), Column(f"{relation}x_2", "bigint", True))
    return Scan(relation, tuple(Field(column.name, column) for column in columns))


def ex(text: str, type_: str, *columns: str) -> Expression:
    return Expression(text, type_, True, columns)


A, B, C = scan("a"), scan("b"), scan("c")
SAFE = JoinKey(ex("ak_1", "int", "ak_1"), ex("bk_1", "int", "bk_1"))
FAILS = JoinKey(ex("(10 / ak_1)", "double", "ak_1"), ex("CAST(bk_1 AS DOUBLE)", "double", "bk_1"))
RESIDUAL = ex("((10 / (ak_1 + bk_1)) > 1)", "boolean", "ak_1", "bk_1")
TENTH = Project(
    A, (Named("ak_1", ex("ak_1", "int", "ak_1")), Named("z_3", ex("(10 / ax_2)", "double", "ax_2")))
)


def test_nothing_is_asked_where_nothing_can_fail() -> None:
    safe = Filter(A, ex("(ak_1 > 5)", "boolean", "ak_1"))
    count = AggregateCall("n_3", "count", "count(1)", "bigint", False)
    for side in (A, safe, Distinct(safe), Aggregate(safe, ("ak_1",), (count,))):
        join = Join(side, B, "left", (SAFE,), ex("(ak_1 < bx_2)", "boolean", "ak_1", "bx_2"))
        assert witnesses(join) == []
        assert not may_fail_at_joins(join)
    assert not may_fail_at_joins(TENTH), "the query itself asks for it"


@pytest.mark.parametrize("kind", ["inner", "left", "right", "full", "semi", "anti"])
def test_a_key_that_may_fail_is_asked_of_its_side(kind: JoinKind) -> None:
    assert witnesses(Join(A, B, kind, (SAFE, FAILS))) == [Side(A, (FAILS.left,))]


def test_a_side_is_asked_as_far_as_the_next_join() -> None:
    inner = Join(TENTH, B, "inner", (SAFE,))
    key = JoinKey(ex("ak_1", "int", "ak_1"), ex("ck_1", "int", "ck_1"))
    assert witnesses(Join(Distinct(inner), C, "inner", (key,))) == [Side(TENTH, ())]
    total = AggregateCall(
        "s_3", "sum", "sum(ax_2)", "bigint", True, ("ax_2",), (ex("ax_2", "bigint", "ax_2"),)
    )
    summed = Aggregate(A, ("ak_1",), (total,))
    assert witnesses(Join(summed, B, "inner", (SAFE,))) == [Side(summed, ())], "it may not fit"


def test_pairs_are_asked_of_joins_that_may_not_look_at_all_of_them() -> None:
    for kind, is_asked in (("inner", False), ("left", True), ("semi", True), ("anti", True)):
        join = Join(A, B, kind, (SAFE,), RESIDUAL)  # type: ignore[arg-type]
        assert witnesses(join) == ([Pairs(join, RESIDUAL)] if is_asked else []), kind
        assert may_fail_at_joins(join)
    below = Join(A, B, "inner", (SAFE,), RESIDUAL)
    key = JoinKey(ex("ak_1", "int", "ak_1"), ex("ck_1", "int", "ck_1"))
    assert witnesses(Join(below, C, "inner", (key,))) == [Side(below, ())]

"""Operators refuse to be made wrong."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.collection.types import UnsupportedType
from headwater.compute.ir.expression import (
    AggregateCall,
    Column,
    Expression,
    Field,
    JoinKey,
    Named,
    SortKey,
    WindowCall,
)
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
    TopK,
    Union,
    Values,
    Window,
    keep,
    relations,
    walk,
)
from headwater.compute.ir.refusal import InvalidPlan


def scan(relation: str, *columns: str, type_: str = "int", nullable: bool = True) -> Scan:
    fields = (Field(c.rpartition("_")[0], Column(c, type_, nullable)) for c in columns)
    return Scan(relation, tuple(fields))


def at(name: str, type_: str = "int") -> Expression:
    return Expression(name, type_, True, (name,))


def flag(text: str, *columns: str) -> Expression:
    return Expression(text, "boolean", True, columns)


T = scan("t", "a_1", "b_1")
U = scan("u", "a_2", "c_1", nullable=False)

WRONG: dict[str, Any] = {
    "a name twice": lambda: scan("t", "a_1", "a_1"),
    "no column name": lambda: Column("select", "int", True),
    "an unknown column": lambda: Filter(T, flag("(x_1 > 1)", "x_1")),
    "a filter that is no condition": lambda: Filter(T, at("a_1")),
    "an output twice": lambda: Project(T, (Named("x_1", at("a_1")), Named("x_1", at("b_1")))),
    "an output of nothing": lambda: Project(T, (Named("x_1", at("z_1")),)),
    "sides with one name": lambda: Join(T, scan("u", "a_1"), "inner"),
    "a key of the wrong side": lambda: Join(T, U, "inner", (JoinKey(at("a_2"), at("a_1")),)),
    "keys of two types": lambda: Join(
        T, scan("v", "d_1", type_="date"), "inner", (JoinKey(at("a_1"), at("d_1", "date")),)
    ),
    "unknown is no match": lambda: Join(T, U, "left", (JoinKey(at("a_1"), at("a_2"), "=?"),)),
    "a residual over neither": lambda: Join(T, U, "left", (), flag("(q_1 > 1)", "q_1")),
    "an unknown group": lambda: Aggregate(T, ("q_1",), ()),
    "a group twice": lambda: Aggregate(T, ("a_1", "a_1"), ()),
    "one branch": lambda: Union((T,), T.columns),
    "branches of two types": lambda: Union((T, scan("v", "d_1", "e_1", type_="date")), T.columns),
    "bags of two widths": lambda: Bag("except", T, scan("v", "d_1")),
    "a window without a call": lambda: Window(T, (), (), ()),
    "a negative limit": lambda: TopK(T, (), -1),
    "an order by nothing": lambda: TopK(T, (SortKey(at("q_1")),), 1),
    "a row too short": lambda: Values(T.columns, (("1",),)),
    "no projection": lambda: Expand(T, (), T.columns),
    "a projection of another type": lambda: Expand(T, ((at("a_1", "date"), at("b_1")),), T.columns),
    "a generator over nothing": lambda: Generate(T, at("q_1", "array<int>"), ()),
    "generated under a name that is there": lambda: Generate(
        T, Expression("explode(array(1))", "int", False), (Column("a_1", "int", True),)
    ),
    "no bound in time": lambda: TemporalFilter(T, None, None),
    "a bound that is no time": lambda: TemporalFilter(T, at("a_1"), None),
    "no text": lambda: Expression(" ", "int", True),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_contradicts_itself_cannot_be_made(what: str) -> None:
    with pytest.raises(InvalidPlan):
        WRONG[what]()


def test_a_column_may_pass_that_cannot_be_stored() -> None:
    for type_ in ("interval month", "variant", "array<variant>", "timestamp_ltz(9)"):
        column = Named("x_1", Expression("x", type_, True)).column
        assert column.is_foreign
        with pytest.raises(UnsupportedType):
            _ = column.sql_type
    assert not Column("x_1", "array<int>", True).is_foreign


def test_an_outer_join_may_have_no_partner() -> None:
    def nullable(node: Node) -> list[bool]:
        return [column.nullable for column in node.columns]

    left, right = scan("t", "a_1", nullable=False), scan("u", "a_2", nullable=False)
    assert nullable(Join(left, right, "inner")) == [False, False]
    assert nullable(Join(left, right, "left")) == [False, True]
    assert nullable(Join(left, right, "right")) == [True, False]
    assert nullable(Join(left, right, "full")) == [True, True]
    assert nullable(Join(left, right, "semi")) == [False]
    assert nullable(Join(left, right, "anti", (JoinKey(at("a_1"), at("a_2"), "=?"),))) == [False]


def test_the_columns_of_every_operator() -> None:
    call = AggregateCall("n_1", "count", "count(1)", "bigint", False)
    over = WindowCall("r_1", "row_number", "row_number()", "ROWS …", "int", False)
    made = Column("e_1", "string", True)
    cases: dict[Node, str] = {
        Distinct(T): "a_1 b_1",
        Aggregate(T, ("b_1",), (call,)): "b_1 n_1",
        Aggregate(T, (), ()): "",
        Window(T, (at("a_1"),), (SortKey(at("b_1")),), (over,)): "a_1 b_1 r_1",
        Generate(T, Expression("explode(xs)", "string", True), (made,)): "a_1 b_1 e_1",
        Union((T, U), T.columns): "a_1 b_1",
        Bag("intersect", T, U): "a_1 b_1",
        TopK(T, (), 3): "a_1 b_1",
        Project(T, ()): "",
    }
    for node, names in cases.items():
        assert " ".join(column.name for column in node.columns) == names


def test_walking_and_keeping() -> None:
    join = Join(Filter(T, flag("(a_1 > 1)", "a_1")), U, "inner")
    assert [type(node).__name__ for node in walk(join)] == ["Scan", "Filter", "Scan", "Join"]
    assert relations(Join(join, scan("t", "z_1"), "semi")) == ("t", "u")
    assert keep(join, ["a_1", "b_1", "a_2", "c_1"]) is join
    assert [c.name for c in keep(join, ["c_1", "a_1"]).columns] == ["c_1", "a_1"]


def test_equal_plans_are_one() -> None:
    assert {Distinct(scan("t", "a_1")), Distinct(scan("t", "a_1"))} == {Distinct(scan("t", "a_1"))}

"""Conditions that stop at the first part that is not true."""

from __future__ import annotations

import pytest

from headwater.compute.ir.expression import BOOLEAN, Column, Expression, Field, JoinKey
from headwater.compute.ir.in_turn import in_turn, plainly
from headwater.compute.ir.node import Filter, Join, Node, Project, Scan, keep

FAILS = "((10 div x_1) > 1)"


def _scan(number: int) -> Scan:
    names = (f"x_{number}", f"d_{number}")
    return Scan(
        f"t{number}", tuple(Field(n[0], Column(n, "bigint", n.startswith("d"))) for n in names)
    )


A, B = _scan(1), _scan(2)


def _where(text: str) -> Expression:
    columns = tuple(c.name for c in (*A.columns, *B.columns) if c.name in text)
    return Expression(text, BOOLEAN, True, columns)


def _turned(node: Node) -> str:
    found = in_turn(node)
    assert isinstance(found, Filter)
    return found.condition.text


@pytest.mark.parametrize(
    ("condition", "turned"),
    [
        ("(d_1 > 0)", "(d_1 > 0)"),
        (FAILS, FAILS),
        ("((d_1 > 0) AND (x_1 > 0))", "((d_1 > 0) AND (x_1 > 0))"),
        (f"({FAILS} AND (d_1 > 0))", f"({FAILS} AND (d_1 > 0))"),
        (f"((d_1 > 0) AND {FAILS})", f"(((d_1 > 0) <=> true) AND {FAILS})"),
        (f"((d_1 IS NOT NULL) AND {FAILS})", f"((d_1 IS NOT NULL) AND {FAILS})"),
        (
            f"(((d_1 > 0) AND {FAILS}) AND (d_1 > 5))",
            f"((((d_1 > 0) <=> true) AND {FAILS}) AND (d_1 > 5))",
        ),
        (f"({FAILS} AND {FAILS})", f"(({FAILS} <=> true) AND {FAILS})"),
        (
            f"(between(d_1, 0, x_1) AND {FAILS})",
            f"((between(d_1, 0, x_1) <=> true) AND {FAILS})",
        ),
        (f"((d_1 > 0) OR {FAILS})", f"((d_1 > 0) OR {FAILS})"),
    ],
)
def test_what_comes_before_something_that_may_fail_is_never_null(
    condition: str, turned: str
) -> None:
    assert _turned(Filter(A, _where(condition))) == turned


def test_a_filter_below_comes_before_one_above() -> None:
    """Spark makes one condition of both."""
    below = Filter(A, _where("(d_1 > 0)"))
    between = keep(below, ["x_1"])
    assert isinstance(between, Project)
    for node in (below, between):
        found = in_turn(Filter(node, _where(FAILS)))
        texts = []
        while found.inputs:
            if isinstance(found, Filter):
                texts.append(found.condition.text)
            (found,) = found.inputs
        assert texts == [FAILS, "((d_1 > 0) <=> true)"]
    assert _turned(Filter(below, _where("(x_1 > 1)"))) == "(x_1 > 1)"


def test_a_residual_is_asked_in_turn_and_what_is_below_before_it() -> None:
    key = JoinKey(_column("x_1"), _column("x_2"))
    left = Filter(A, _where("(d_1 > 0)"))
    residual = _where(f"((d_1 > d_2) AND {FAILS})")
    for kind in ("inner", "left", "semi"):
        found = in_turn(Join(left, B, kind, (key,), residual))
        assert isinstance(found, Join)
        assert found.residual is not None
        assert found.residual.text == f"(((d_1 > d_2) <=> true) AND {FAILS})"
        assert isinstance(found.left, Filter)
        assert found.left.condition.text == "((d_1 > 0) <=> true)"


def _column(name: str) -> Expression:
    return Expression(name, "bigint", True, (name,))


def test_it_is_the_same_twice_and_can_be_said_plainly() -> None:
    once = in_turn(Filter(A, _where(f"((d_1 > 0) AND {FAILS})")))
    assert in_turn(once) == once
    assert plainly(_where("((d_1 > 0) <=> true)")).text == "(d_1 > 0)"
    assert plainly(_where("(d_1 > 0)")).text == "(d_1 > 0)"

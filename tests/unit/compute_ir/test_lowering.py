"""What is said in other words means the same."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from headwater.compute.catalyst.lowering import of_one_column
from headwater.compute.catalyst.ordered import WHOLE
from headwater.compute.ir.expression import AggregateCall, Expression, WindowCall

Y, X = (Expression(name, "double", True, (name,)) for name in ("y_1", "x_1"))
KEPT = Expression("(k_1 > 0)", "boolean", True, ("k_1",))
OF_X = "CASE WHEN (y_1 IS NOT NULL) THEN x_1 END"
OF_Y = "CASE WHEN (x_1 IS NOT NULL) THEN y_1 END"


def _call(function: str) -> AggregateCall:
    text = f"{function}(y_1, x_1)"
    return AggregateCall("a_1", function, text, "double", True, ("x_1", "y_1"), (Y, X))


@pytest.mark.parametrize(
    ("function", "text"),
    [
        ("regr_avgx", f"avg({OF_X})"),
        ("regr_avgy", f"avg({OF_Y})"),
        ("regr_sxx", f"regr_sxx({OF_X}, {OF_X})"),
        ("regr_syy", f"regr_syy({OF_Y}, {OF_Y})"),
    ],
)
def test_what_looks_at_one_of_two_columns_does_not_see_the_other(function: str, text: str) -> None:
    call = _call(function)
    made = of_one_column(call)
    assert made.text == text
    assert made.text == f"{made.function}({', '.join(a.text for a in made.arguments)})"
    assert {(a.type, a.nullable, a.columns) for a in made.arguments} == {
        ("double", True, ("x_1", "y_1"))
    }
    assert made.column == call.column, "nobody else is to notice"
    assert of_one_column(made) == made
    over = WindowCall("a_1", function, call.text, WHOLE, "double", True, call.columns, (Y, X))
    assert (of_one_column(over).text, of_one_column(over).frame) == (text, WHOLE)
    filtered = of_one_column(replace(call, filter=KEPT))
    assert filtered == replace(made, filter=KEPT, text=f"{text} FILTER (WHERE (k_1 > 0))")


def test_a_column_that_is_never_null_decides_nothing() -> None:
    always = replace(Y, nullable=False)
    made = of_one_column(replace(_call("regr_avgx"), arguments=(always, X)))
    assert (made.text, made.arguments) == ("avg(x_1)", (X,))


@pytest.mark.parametrize("function", ["regr_count", "regr_sxy", "regr_slope", "regr_r2", "corr"])
def test_what_looks_at_both_stays_as_it_is(function: str) -> None:
    assert of_one_column(_call(function)) == _call(function)


def test_with_distinct_each_value_of_the_column_counts_once() -> None:
    """(1, 5) and (2, 5) are two pairs, and 5 is one number."""
    once = replace(_call("regr_avgx"), text="regr_avgx(DISTINCT y_1, x_1)", distinct=True)
    made = of_one_column(once)
    assert (made.text, made.distinct) == (f"avg(DISTINCT {OF_X})", True)
    squares = of_one_column(replace(once, function="regr_syy", filter=KEPT))
    assert squares.text == f"regr_syy(DISTINCT {OF_Y}, {OF_Y}) FILTER (WHERE (k_1 > 0))"

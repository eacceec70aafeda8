"""What decides about a moment is asked beside it, once, and only where it may be needed."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from headwater.compute.catalyst.degenerate import decided
from headwater.compute.catalyst.lowering import Names
from headwater.compute.catalyst.ordered import WHOLE
from headwater.compute.catalyst.rounding import exact_co_moment
from headwater.compute.dataflow import term as terms
from headwater.compute.dataflow.term_text import term_of
from headwater.compute.ir.expression import AggregateCall, Column, Expression, WindowCall

COLUMNS = tuple(
    Column(name, type_, True)
    for name, type_ in (
        ("y_1", "double"),
        ("x_1", "double"),
        ("i_1", "int"),
        ("d_1", "decimal(9,2)"),
    )
)
Y, X = (Expression(name, "double", True, (name,)) for name in ("y_1", "x_1"))
WHOLE_NUMBER, DECIMAL = (
    Expression(f"CAST({name} AS DOUBLE)", "double", True, (name,)) for name in ("i_1", "d_1")
)
KEPT = Expression("(k_1 > 0)", "boolean", True, ("k_1",))
OF_X = "CASE WHEN (y_1 IS NOT NULL) THEN x_1 END"
OF_Y = "CASE WHEN (x_1 IS NOT NULL) THEN y_1 END"


def _call(function: str, *arguments: Expression, name: str = "a_1") -> AggregateCall:
    text = f"{function}({', '.join(argument.text for argument in arguments)})"
    columns = tuple(sorted({column for argument in arguments for column in argument.columns}))
    return AggregateCall(name, function, text, "double", True, columns, arguments)


def _decided(*calls: Any) -> tuple[list[str], dict[str, str]]:
    made, chosen = decided(Names(), calls, COLUMNS)
    known = {call.name: call for call in made}
    assert len(known) == len(made)
    for output in chosen.values():
        assert set(output.expression.columns) <= set(known), "all of it is there"
        assert output.name not in known, "and nothing twice"
    shown = {**{name: call.column for name, call in known.items()}}
    shown |= {output.name: output.column for output in chosen.values()}
    assert {call.column for call in calls} <= set(shown.values()), "nobody else is to notice"
    return [f"{c.name}: {c.text}" for c in made], {n: o.expression.text for n, o in chosen.items()}


@pytest.mark.parametrize("function", ["var_samp", "variance", "stddev_samp", "stddev", "std"])
def test_of_one_value_there_is_no_deviation(function: str) -> None:
    assert _decided(_call(function, X)) == (
        ["_count_1: count(x_1)", f"_answer_2: {function}(x_1)"],
        {"a_1": "CASE WHEN (_count_1 <> 1) THEN _answer_2 END"},
    )


def test_pairs_are_asked_by_either_column() -> None:
    calls, chosen = _decided(_call("corr", Y, X))
    assert calls == [
        "_count_1: count(y_1, x_1)",
        f"_regr_slope_2: regr_slope({OF_X}, {OF_X})",
        f"_regr_slope_3: regr_slope({OF_Y}, {OF_Y})",
        "_answer_4: corr(y_1, x_1)",
    ]
    tests = "(_count_1 <> 1) AND (_regr_slope_2 IS NOT NULL) AND (_regr_slope_3 IS NOT NULL)"
    assert chosen == {"a_1": f"CASE WHEN {tests} THEN _answer_4 END"}


def test_what_is_asked_is_asked_once_and_of_the_same_rows() -> None:
    several = [
        _call("stddev", X),
        replace(_call("count", X, name="n_1"), type="bigint", nullable=False),
        _call("variance", X, name="v_1"),
        _call("regr_slope", Y, X, name="m_1"),
        _call("regr_intercept", Y, X, name="b_1"),
    ]
    calls, chosen = _decided(*several)
    assert [call.split(": ")[1] for call in calls] == [
        "stddev(x_1)",
        "count(x_1)",
        "variance(x_1)",
        f"regr_slope({OF_X}, {OF_X})",
        "regr_slope(y_1, x_1)",
        "regr_intercept(y_1, x_1)",
    ]
    assert chosen["v_1"].startswith("CASE WHEN (n_1 <> 1)")
    some = replace(several[0], filter=KEPT, text="stddev(x_1) FILTER (WHERE (k_1 > 0))")
    assert _decided(some, *several[1:2])[0][0] == "_count_1: count(x_1) FILTER (WHERE (k_1 > 0))"
    once = replace(several[0], distinct=True, text="stddev(DISTINCT x_1)")
    assert _decided(once, *several[1:2])[0][0] == "_count_1: count(DISTINCT x_1)"
    running = "ROWS BETWEEN 1 PRECEDING AND CURRENT ROW"
    windows = [
        WindowCall(f"a_{n}", "stddev", "stddev(x_1)", frame, "double", True, ("x_1",), (X,))
        for n, frame in enumerate((WHOLE, running))
    ]
    made, _ = decided(Names(), windows, COLUMNS)
    assert [(c.function, c.frame) for c in made] == [
        ("count", WHOLE), ("stddev", WHOLE), ("count", running), ("stddev", running)
    ]  # fmt: skip


def test_a_slope_by_itself_does_not_decide_about_itself() -> None:
    calls, _ = _decided(_call("regr_slope", X, X))
    assert [call.split(": ")[1] for call in calls] == ["regr_slope(x_1, x_1)"] * 2


@pytest.mark.parametrize(
    "call",
    [
        _call("stddev", WHOLE_NUMBER),
        _call("corr", WHOLE_NUMBER, DECIMAL),
        _call("regr_slope", DECIMAL, X),  # NaN only if x is not finite, and then it is none
        *(_call(function, X) for function in ("var_pop", "skewness", "avg", "max")),
        *(_call(function, Y, X) for function in ("covar_pop", "regr_sxy", "regr_count")),
    ],
)
def test_what_needs_no_decision_stays_alone(call: AggregateCall) -> None:
    assert decided(Names(), [call], COLUMNS) == ((call,), {})


NUMBERS = (1.0, 3.0, math.inf, math.nan)
GROUPS = [
    list(zip(ys, xs, strict=True))
    for rows in (1, 2)
    for ys, xs in product(product(NUMBERS, repeat=rows), repeat=2)
]
Pairs = list[tuple[float, float]]


def _in_spark(function: str, pairs: Pairs) -> float | None:
    """Return what Spark says, as its functions are written."""
    y, x = (
        len(set(column)) == 1 and math.isfinite(column[0]) for column in zip(*pairs, strict=True)
    )
    if len(pairs) == 1 and function in ("covar_samp", "corr"):
        return None
    if (x and function != "covar_samp") or (y and function == "corr"):
        return None
    return 1.0 if y and function == "regr_r2" else exact_co_moment(function, pairs)


def _asked(call: AggregateCall, pairs: Pairs) -> float | None:
    if call.function == "count":
        return len(pairs)
    place = {OF_Y: 0, OF_X: 1}.get(call.arguments[0].text)
    of = pairs if place is None else [(pair[place], pair[place]) for pair in pairs]
    return exact_co_moment(call.function, of)


@pytest.mark.parametrize(
    "function", ["covar_samp", "corr", "regr_slope", "regr_intercept", "regr_r2"]
)
def test_a_stage_chooses_what_spark_says(function: str) -> None:
    made, chosen = decided(Names(), [_call(function, Y, X)], COLUMNS)
    states = [{call.name: _asked(call, pairs) for call in made} for pairs in GROUPS]
    states.append({call.name: 0 if call.function == "count" else None for call in made})
    types = {"bigint": pa.int64(), "double": pa.float64()}
    columns = {
        call.name: pa.array([s[call.name] for s in states], types[call.type]) for call in made
    }
    names = {call.name: terms.Input(call.name, call.type) for call in made}
    choice = term_of(chosen["a_1"].expression, names)  # It is native: no JVM is asked.
    found = terms.Values(pa.table(columns)).column(choice).to_pylist()
    assert list(map(str, found)) == [*(str(_in_spark(function, pairs)) for pairs in GROUPS), "None"]

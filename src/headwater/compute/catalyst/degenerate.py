"""Moments of degenerate groups: Spark says that there is none before it says NaN.

Of ``n`` values, or pairs in which both are present:

    n = 1                          NULL    var_samp, stddev_samp, covar_samp, corr
    x is one finite number         NULL    regr_slope, regr_intercept, regr_r2, corr
    y is one finite number         NULL    corr
    ... and x is not               1       regr_r2

and only then NaN, where some number is not finite. Our functions (``rounding.py``) are NaN first.
They stay so, because an accumulator takes back what it has said by computing it again; a plan asks
for what decides beside the call, and chooses afterwards:

    var_samp(x)       ==  CASE WHEN (count(x) <> 1) THEN var_samp(x) END
    regr_slope(y, x)  ==  CASE WHEN (regr_slope(v, v) IS NOT NULL) THEN regr_slope(y, x) END
                          v: x where y is not NULL; its slope by itself is NULL, 1 or NaN

Where all numbers are finite the choice changes nothing, to the last bit: what decides is as exact
as the answer. Spark decides by a double, which is 0 also of numbers that differ by less than 1e-162
or so: there, beside an infinity or a NaN, it says NULL and we say NaN.

What is a whole number or a decimal is always finite; a call of such columns stays alone.

Kept by: this module, against Spark in ``tests/spark/test_pairs.py``.
Relied on by: ``translate.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from headwater.compute.catalyst.lowering import BIGINT, Call, Names, of_one_column
from headwater.compute.catalyst.ranges import WHOLE_NUMBERS
from headwater.compute.ir.expression import NAME, AggregateCall, Column, Expression, Named

_BY_NUMBER: Final = frozenset(
    {"std", "stddev", "stddev_samp", "var_samp", "variance", "covar_samp", "corr"}
)
_BY_X: Final = frozenset({"regr_slope", "regr_intercept", "regr_r2", "corr"})
_BY_Y: Final = frozenset({"regr_r2", "corr"})
_DECIDED: Final = _BY_NUMBER | _BY_X
_AS_DOUBLE: Final = re.compile(rf"CAST\(({NAME.pattern}) AS DOUBLE\)")


def decided(
    names: Names, calls: Sequence[Call], columns: Iterable[Column]
) -> tuple[tuple[Call, ...], dict[str, Named]]:
    """Return the calls, with those that decide about them, and what is chosen for which name.

    ``columns`` are those that the calls are made of.
    """
    types = {column.name: column.type for column in columns}
    known = {_identity(call): call.name for call in calls if call.function not in _DECIDED}
    made: list[Call] = []
    chosen: dict[str, Named] = {}

    def ask(call: Call) -> str:
        """Return where the answer of a call is; each is made once."""
        if _identity(call) not in known:
            known[_identity(call)] = name = names.fresh(call.function)
            made.append(msgspec.structs.replace(call, name=name))
        return known[_identity(call)]

    for call in calls:
        wild = [_may_be_wild(argument, types) for argument in call.arguments[:2]]
        number, of_x, of_y = "", "", ""
        if call.function in _BY_NUMBER and any(wild):
            number = ask(_number(call))
        if call.function in _BY_X and wild[0]:  # else a NaN comes of x itself
            of_x = ask(_by_itself(call, "regr_sxx"))
        if call.function in _BY_Y and wild[1]:
            of_y = ask(_by_itself(call, "regr_syy"))
        asked = [name for name in (number, of_x, of_y) if name]
        if not asked:
            made.append(call)
            continue
        answer = names.fresh("answer")
        made.append(msgspec.structs.replace(call, name=answer))
        text = _choice(call.function, answer, number, of_x, of_y)
        value = Expression(text, call.type, True, tuple(sorted({answer, *asked})))
        chosen[call.name] = Named(call.name, value)
    return tuple(made), chosen


def _identity(call: Call) -> tuple[str, str]:
    return call.text, "" if isinstance(call, AggregateCall) else call.frame


def _may_be_wild(argument: Expression, types: Mapping[str, str]) -> bool:
    """Whether a value may be NaN or infinite, as far as is seen."""
    cast = _AS_DOUBLE.fullmatch(argument.text)
    type_ = types.get(cast[1], argument.type) if cast is not None else argument.type
    return type_ not in WHOLE_NUMBERS and not type_.startswith("decimal")


def _other(call: Call, function: str) -> Call:
    """Return the call of another function of the same values."""
    once = "DISTINCT " if isinstance(call, AggregateCall) and call.distinct else ""
    where = f" FILTER (WHERE {call.filter.text})" if call.filter is not None else ""
    text = f"{function}({once}{', '.join(a.text for a in call.arguments)}){where}"
    return msgspec.structs.replace(call, function=function, text=text)


def _number(call: Call) -> Call:
    return msgspec.structs.replace(_other(call, "count"), type=BIGINT, nullable=False)


def _by_itself(call: Call, squares: str) -> Call:
    """Return the slope by itself of the column that has these squares: NULL if it is constant."""
    return _other(of_one_column(_other(call, squares)), "regr_slope")


def _choice(function: str, answer: str, number: str, of_x: str, of_y: str) -> str:
    """Return what is chosen; a name that is empty decides nothing."""
    tests = [f"({number} <> 1)"] if number else []
    tests += [f"({of_x} IS NOT NULL)"] if of_x else []
    if of_y and function == "regr_r2":
        level = f"(({of_y} IS NULL) AND ({answer} IS NOT NULL))"
        answer = f"CASE WHEN {level} THEN 1.0D ELSE {answer} END"
    elif of_y:
        tests.append(f"({of_y} IS NOT NULL)")
    return f"CASE WHEN {' AND '.join(tests)} THEN {answer} END" if tests else answer

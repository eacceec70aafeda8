"""Calls over a window that can fail, as calls that cannot and what is made of them afterwards.

What fails inside a window fails the job: there is no row to blame. So a call whose answer may not
fit its type is taken apart. Its parts fit whatever the rows are, and the answer is made of them in
an edge after the window, where a failure is an error of that row, at its times:

    sum(bigint)               sum as DECIMAL(38,0)                       cast to BIGINT
    sum(decimal(p, s)), p>28  x = high·M + low, M = 10^(27-s): sums      high·M + low, as digits
                              of high and of low
    sum(interval)             sum of seconds as DECIMAL(38,6)            cast to the interval
    avg(interval)             the same, and count                        sum / count

The sums of parts have room for 10^10 rows of the largest values. They are exact and depend on no
order, so an answer is judged by its final value alone, and a version of a group that is computed
again in a later step fails again exactly if it did before: errors that came go.

A decimal of at most 28 digits has ten more for its sum; no other sum or average can fail. What can
still fail a step, because it has no such form here:

    avg(decimal(p, s)), p > 28; sum(decimal(p, s)), p > 28 and s > 26
    a RANGE frame around a value that is closer to the end of its type than the frame is wide
    percentile(x, p, frequency) of a negative frequency

Pure. Kept by: this module; ``tests/spark/test_window_overflow.py``. Relied on by:
``lower_window.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from headwater.compute.ir.expression import Expression, WindowCall

_DIGITS: Final = 28
"""A part of so many digits has room for its sum in 38."""
_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_SECONDS: Final = "decimal(38,6)"
_WHOLE: Final = "decimal(38,0)"

Fresh = Callable[[str], str]
"""Hands out names that the plan does not have."""


class Judged(NamedTuple):
    """A call as its parts, and its answer as made from their columns."""

    parts: tuple[WindowCall, ...]
    answer: Expression


def judged(call: WindowCall, fresh: Fresh) -> Judged | None:
    """Return how a call is taken apart; ``None``: it cannot fail, or not so that we could help."""
    if call.function not in ("sum", "avg", "mean") or len(call.arguments) != 1:
        return None
    (value,) = call.arguments
    averaged = call.function != "sum"
    if value.type == "bigint" and not averaged:
        total = _part(call, fresh, "sum", f"CAST({value.text} AS DECIMAL(38,0))", _WHOLE)
        return _made(call, (total,), f"CAST({total.name} AS BIGINT)")
    if value.type.startswith("interval"):
        seconds = f"CAST(CAST({value.text} AS INTERVAL SECOND) AS DECIMAL(38,6))"
        total = _part(call, fresh, "sum", seconds, _SECONDS)
        interval = f"CAST({total.name} AS INTERVAL SECOND)"
        if not averaged:
            return _made(call, (total,), f"CAST({interval} AS {call.type})")
        number = _part(call, fresh, "count", value.text, "bigint")
        return _made(call, (total, number), f"({interval} / nullif({number.name}, 0L))")
    found = _DECIMAL.fullmatch(value.type)
    if found is None or averaged:
        return None
    precision, scale = int(found[1]), int(found[2])
    return _split(call, fresh, scale) if precision > _DIGITS and scale < _DIGITS - 1 else None


def _split(call: WindowCall, fresh: Fresh, scale: int) -> Judged:
    """Return a sum of decimals as that of their high and of their low digits."""
    value = call.arguments[0].text
    exponent = _DIGITS - 1 - scale
    unit = f"CAST('1E{exponent}' AS DECIMAL({exponent + 1},0))"

    def above(number: str) -> str:
        return f"CAST((({number} - ({number} % {unit})) / {unit}) AS DECIMAL(38,0))"

    high = _part(call, fresh, "sum", above(value), _WHOLE)
    low = _part(call, fresh, "sum", f"({value} % {unit})", f"decimal(38,{scale})")
    # What the low digits came to beyond themselves is carried; then both get the same sign, so
    # that their digits, one after the other, are those of the sum.
    carried, rest = f"({high.name} + {above(low.name)})", f"({low.name} % {unit})"
    up = f"({carried} > 0 AND {rest} < 0)"
    down = f"({carried} < 0 AND {rest} > 0)"
    upper = f"({carried} + CASE WHEN {up} THEN -1 WHEN {down} THEN 1 ELSE 0 END)"
    lower = f"({rest} + CASE WHEN {up} THEN {unit} WHEN {down} THEN -{unit} ELSE 0 END)"
    width = _DIGITS if scale else _DIGITS - 1
    sign = f"CASE WHEN {carried} < 0 OR ({carried} = 0 AND {rest} < 0) THEN '-' ELSE '' END"
    digits = f"lpad(CAST(abs({lower}) AS STRING), {width}, '0')"
    text = f"concat({sign}, CAST(abs({upper}) AS STRING), {digits})"
    return _made(call, (high, low), f"CAST({text} AS {call.type})")


def _part(call: WindowCall, fresh: Fresh, function: str, argument: str, type_: str) -> WindowCall:
    columns = call.arguments[0].columns
    where = f" FILTER (WHERE {call.filter.text})" if call.filter is not None else ""
    argument_type = "bigint" if function == "count" else type_
    return WindowCall(
        fresh(function),
        function,
        f"{function}({argument}){where}",
        call.frame,
        type_,
        True,
        call.columns,
        (Expression(argument, argument_type, True, columns),),
        False,
        call.filter,
    )


def _made(call: WindowCall, parts: tuple[WindowCall, ...], text: str) -> Judged:
    names = tuple(sorted(part.name for part in parts))
    return Judged(parts, Expression(text, call.type, call.nullable, names))

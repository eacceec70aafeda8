"""Calls over a window that can fail, as calls that cannot and what is made of them afterwards.

What fails inside a window fails the job: there is no row to blame. So a call whose answer may not
fit its type is taken apart. Its parts fit whatever the rows are, and the answer is made of them in
an edge after the window, where a failure is an error of that row, at its times:

    sum(bigint)               sum as DECIMAL(38,0)                       cast to BIGINT
    sum(decimal(p, s)), p>28  x = high·M + low, M = 10^(27-s): sums      high·M + low, as digits
                              of high and of low
    avg(decimal(p, s)), p>28  the same, and count                        that sum, divided by hand
    sum(interval)             sum of seconds as DECIMAL(38,6)            cast to the interval
    avg(interval)             the same, and count                        sum / count

The sums of parts have room for 10^10 rows of the largest values. They are exact and depend on no
order, so an answer is judged by its final value alone, and a version of a group that is computed
again in a later step fails again exactly if it did before: errors that came go. An average is
judged by its sum, too, as where it is kept without a window (``ops/accumulators.py``).

What fails because of one argument of one row is judged before the window (:func:`guards`):

    percentile(x, p, frequency)    a negative frequency

A decimal of at most 28 digits has ten more for its sum; no other sum or average can fail. ``RANGE``
frames of whole numbers reach beyond the ends of their type (``catalyst/ordered.py``). What can
still fail a step: such a frame around a timestamp or an interval that is closer to the end of its
type than the frame is wide.

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
_LOW: Final = _DIGITS - 1
"""So many digits of a long decimal are low ones."""
_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_SECONDS: Final = "decimal(38,6)"
_WHOLE: Final = "decimal(38,0)"

_OF_PAIRS: Final = {"regr_avgy": 1, "regr_avgx": -1}
"""Averages of one argument where the other is not NULL: the first, or the last.

In stored plans; new ones have them as ``avg`` (``catalyst/lowering.py``).
"""

Fresh = Callable[[str], str]
"""Hands out names that the plan does not have."""


class Judged(NamedTuple):
    """A call as its parts, and its answer as made from their columns."""

    parts: tuple[WindowCall, ...]
    answer: Expression


def judged(call: WindowCall, fresh: Fresh) -> Judged | None:
    """Return how a call is taken apart; ``None``: it cannot fail, or not so that we could help."""
    value = _summed(call)
    if value is None:
        return None
    averaged = call.function != "sum"
    if value.type == "bigint" and not averaged:
        total = _part(call, value, fresh, "sum", f"CAST({value.text} AS DECIMAL(38,0))", _WHOLE)
        return _made(call, (total,), f"CAST({total.name} AS BIGINT)")
    if value.type.startswith("interval"):
        seconds = f"CAST(CAST({value.text} AS INTERVAL SECOND) AS DECIMAL(38,6))"
        total = _part(call, value, fresh, "sum", seconds, _SECONDS)
        interval = f"CAST({total.name} AS INTERVAL SECOND)"
        if not averaged:
            return _made(call, (total,), f"CAST({interval} AS {call.type})")
        number = _part(call, value, fresh, "count", value.text, "bigint")
        return _made(call, (total, number), f"({interval} / nullif({number.name}, 0L))")
    found = _DECIMAL.fullmatch(value.type)
    if found is None or int(found[1]) <= _DIGITS:
        return None
    scale = int(found[2])
    parts, text = _split(call, value, fresh, scale)
    if not averaged:
        return _made(call, parts, f"CAST({text} AS {call.type})")
    number = _part(call, value, fresh, "count", value.text, "bigint")
    quotient = _divided(f"CAST({text} AS DECIMAL(38,{scale}))", scale, number.name, call.type)
    return _made(call, (*parts, number), quotient)


def _summed(call: WindowCall) -> Expression | None:
    """Return what a call is the sum or the average of."""
    if call.function in ("sum", "avg", "mean"):
        return call.arguments[0]
    if call.function not in _OF_PAIRS:
        return None
    value, other = call.arguments[:: _OF_PAIRS[call.function]]
    text = f"CASE WHEN ({other.text} IS NOT NULL) THEN {value.text} END"
    columns = tuple(sorted({*value.columns, *other.columns}))
    return Expression(text, value.type, True, columns)


def _split(
    call: WindowCall, value: Expression, fresh: Fresh, scale: int
) -> tuple[tuple[WindowCall, ...], str]:
    """Return the sums of the high and of the low digits of decimals, and the sum as text."""
    unit = _power(_LOW - scale)
    high = _part(call, value, fresh, "sum", _above(value.text, unit), _WHOLE)
    low = _part(call, value, fresh, "sum", f"({value.text} % {unit})", f"decimal(38,{scale})")
    # What the low digits came to beyond themselves is carried; then both get the same sign, so
    # that their digits, one after the other, are those of the sum.
    carried, rest = f"({high.name} + {_above(low.name, unit)})", f"({low.name} % {unit})"
    # Of 38 digits behind the point, a comparison with zero would not see the last.
    base, way = _power(_LOW), f"signum({rest})"
    up = f"({carried} > 0 AND {way} < 0)"
    down = f"({carried} < 0 AND {way} > 0)"
    upper = f"({carried} + CASE WHEN {up} THEN -1 WHEN {down} THEN 1 ELSE 0 END)"
    # As a whole number of the smallest units: with the point where it is, a sum might lose digits.
    units = f"CAST({_digits(rest, _LOW)} AS DECIMAL(38,0))"
    lower = f"CASE WHEN {up} OR {down} THEN {base} - {units} ELSE {units} END"
    sign = f"CASE WHEN {carried} < 0 OR ({carried} = 0 AND {way} < 0) THEN '-' ELSE '' END"
    digits = f"CAST(abs({upper}) AS STRING), {_digits(lower, _LOW)}"
    return (high, low), f"concat({sign}, {digits}, 'E-{scale}')"


def _divided(total: str, scale: int, number: str, type_: str) -> str:
    """Return a sum of so many decimals over their number, rounded once, halves away from zero.

    Spark's own division keeps the digits before the point at the cost of those behind it, so it is
    done by hand, in two digits to the base B = 10^27. Of a sum of ``u·B + l`` units, and with as
    many digits more as the average has:

        (2·(u·B + l)·10^more + n) / 2n  =  (a·B + b) / m  =  (a / m)·B + ((a mod m)·B + b) / m
    """
    found = _DECIMAL.fullmatch(type_)
    assert found is not None, f"an average of decimals is no {type_}"
    wanted = int(found[2])
    base, twice = _power(_LOW), f"CAST('2E{wanted - scale}' AS DECIMAL(38,0))"
    n = f"CAST(nullif({number}, 0L) AS DECIMAL(20,0))"
    m = f"(2 * {n})"
    high = f"CAST(left(d.d, {38 - _LOW}) AS DECIMAL(38,0))"
    low = f"CAST(right(d.d, {_LOW}) AS DECIMAL(38,0))"
    rest = f"((w.a % {m}) * {base} + w.b)"
    sign = "CASE WHEN signum(s) < 0 THEN '-' ELSE '' END"
    shown = f"CAST(q.h + {_above('q.l', base)} AS STRING), {_digits(f'q.l % {base}', _LOW)}"
    steps = (
        f"s -> named_struct('g', {sign}, 'd', {_digits('s', 38)})",
        f"d -> named_struct('g', d.g, 'a', {high} * {twice}, 'b', {low} * {twice} + {n})",
        f"w -> named_struct('g', w.g, 'h', {_above('w.a', m)}, 'l', {_above(rest, m)})",
        f"q -> CAST(concat(q.g, {shown}, 'E-{wanted}') AS {type_})",
    )
    bound = f"array({total})"
    for step in steps:  # Each is a name for what the one before came to.
        bound = f"transform({bound}, {step})"
    return f"element_at({bound}, 1)"


def _power(exponent: int) -> str:
    """Return a power of ten as a decimal."""
    digits, scale = (exponent + 1, 0) if exponent >= 0 else (1 - exponent, -exponent)
    return f"CAST('1E{exponent}' AS DECIMAL({digits},{scale}))"


def _above(number: str, unit: str) -> str:
    """Return how often the unit is in a number, towards zero."""
    return f"CAST((({number} - ({number} % {unit})) / {unit}) AS DECIMAL(38,0))"


def _digits(number: str, width: int) -> str:
    """Return the last digits of a decimal, without its sign and its point."""
    # Not by abs(): Spark rounds what it negates to 34 digits.
    return f"right(concat('{'0' * width}', translate(CAST({number} AS STRING), '-.', '')), {width})"


def _part(
    call: WindowCall, value: Expression, fresh: Fresh, function: str, argument: str, type_: str
) -> WindowCall:
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
        (Expression(argument, argument_type, True, value.columns),),
        False,
        call.filter,
    )


def _made(call: WindowCall, parts: tuple[WindowCall, ...], text: str) -> Judged:
    names = tuple(sorted(part.name for part in parts))
    return Judged(parts, Expression(text, call.type, call.nullable, names))


# ---- arguments -------------------------------------------------------------------------------


def guards(call: WindowCall) -> dict[str, Expression]:
    """Return, by their text, arguments that fail before the window where the call would in it."""
    if call.function != "percentile" or len(call.arguments) != 3:
        return {}
    value, _, frequency = call.arguments
    conditions = [f"({value.text} IS NOT NULL)", f"({frequency.text} < 0)"]
    columns = {*value.columns, *frequency.columns}
    if call.filter is not None:
        conditions.insert(0, call.filter.text)
        columns.update(call.filter.columns)
    error = f"raise_error(concat('a frequency of percentile() is negative: ', {frequency.text}))"
    text = f"CASE WHEN {' AND '.join(conditions)} THEN {error} ELSE {frequency.text} END"
    return {frequency.text: Expression(text, frequency.type, True, tuple(sorted(columns)))}

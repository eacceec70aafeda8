"""Arithmetic and comparison of numerics: PostgreSQL's value in a type of 38 digits, or an error.

PostgreSQL's numerics have as many digits as they need, Spark's decimals a type. So each operation
has a type here that is chosen before, and its value is PostgreSQL's, digit for digit, or an error
of the row that says what did not fit. Where Spark's own operator does that (the type of all its
values has 38 digits at most) it is Spark's; else a function of ours, which knows both values
(``compute/catalyst/numerics.py``). ``w`` and ``s`` are digits before and after the point:

    a + b   s = max(s1, s2)   w = max(w1, w2) + 1
    a * b   s = s1 + s2       w = w1 + w2
    a / b   s = the most that PostgreSQL gives any of them (16 significant digits)   w = w1 + s2
    avg(a)  likewise                                                                 w = w1

Where both together do not fit, :func:`_shared` says how the 38 digits are shared.

PostgreSQL rounds a quotient to a number of digits that it finds from both values and from their
*display scales* (``select_div_scale``), and so do we: what is computed from it, or compared with
it, is what PostgreSQL has. The display scale of a declared column is that of its type; of a bare
numeric it is what was written, and zeros at the end are taken not to have been; of what comes out
of a division it is known while it is an expression, and lost where it becomes a column: quotients
of such a column have more digits than PostgreSQL's.

Comparisons do not compute: two decimals that no type of 38 digits holds are compared by what is
before the point, and then by what is after it (:func:`compared`). Equality is two equalities, by
which a join can still find its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from headwater.adapter.dialect.literals import string
from headwater.adapter.dialect.typed import (
    BARE,
    BOOLEAN,
    PRECISION_MAX,
    SCALE_KEPT,
    UNKNOWN,
    Typed,
    as_numeric,
    cast_sql,
)
from headwater.collection.types import SqlType, numeric

PRODUCT_SCALE_KEPT: Final = 18
QUOTIENT_WHOLE_KEPT: Final = 14
AVERAGE_WHOLE_KEPT: Final = 18
"""What an operation has of the 38 digits in any case, if it needs it: a product digits after the
point (as a sum has, ``SCALE_KEPT``), a quotient and an average before it. A quotient is
PostgreSQL's between 1e-8 and 1e14, an average between 1e-4 and 1e18, whatever the types are."""

_QUOTIENT_DIGITS: Final = 16
_GROUP: Final = 4
"""As in PostgreSQL: the least significant digits of a quotient, and the decimal digits in a digit
of its own."""
QUOTIENT_SCALE_MAX: Final = 28
"""More digits after the point it has only with its operands: endpoints of materializations take 30,
and what is computed from it needs room, too."""
_COUNT_DIGITS: Final = 19
_UNKNOWN: Final = "99"
_SCALE_TEXT_MAX: Final = 4_000
"""Characters of an expression for a display scale; one that is longer is not known."""
_NEGATED_DIGITS_MAX: Final = 34
"""Spark rounds what it negates to so many."""


def said(operand: Typed) -> str:
    """Return the type of a number as a client writes it."""
    of = operand.type
    return "numeric" if of == BARE or not operand.scale_shown else of.postgres


def is_exact(types: Sequence[SqlType]) -> bool:
    """Whether one type of 38 digits holds every value of all these integers and numerics."""
    digits = [as_numeric(type_).args for type_ in types]
    return max(p - s for p, s in digits) + max(s for _, s in digits) <= PRECISION_MAX


def whole_digits(type_: SqlType) -> int:
    """How many digits before the point an integer or numeric has at most."""
    precision, scale = as_numeric(type_).args
    return precision - scale


# --- arithmetic -----------------------------------------------------------------------------------


def _shared(whole: int, scale: int, *, scale_kept: int) -> SqlType:
    """Return the type of a result: ``scale`` gives way to ``whole``, down to ``scale_kept``."""
    kept = min(scale, max(scale_kept, PRECISION_MAX - whole))
    return numeric(max(1, min(PRECISION_MAX, whole + kept)), min(kept, PRECISION_MAX))


@dataclass(frozen=True, slots=True)
class Operation:
    """A function of ours over its operands, before a type is chosen for its value."""

    name: str
    operands: tuple[str, ...]
    what: str
    """It, in an error."""
    whole: int
    """How many digits before the point its value may have."""
    instead: str = "round it (round(…, s), (…)::numeric(p,s)), or cast its operands to fewer digits"

    def sql(self, type_: SqlType, *, rounds: bool = False) -> str:
        """Its value in this type: all of it, or rounded."""
        precision, scale = type_.args
        words = string(f"{self.what} %; {self.instead}")
        constants = (str(precision), str(scale), words, str(rounds).upper())
        return f"headwater_{self.name}({', '.join((*self.operands, *constants))})"


def rounded(operand: Typed, type_: SqlType) -> str:
    """An integer or numeric in ``type_``, its fraction rounded half away from zero.

    What an operation has found is rounded from all of its digits, whether or not they fit a type.
    """
    if isinstance(operand.operation, Operation):
        return operand.operation.sql(type_, rounds=True)
    return cast_sql(operand.sql, type_)


def added(node: Any, sign: str, given: tuple[Typed, Typed]) -> Typed:
    """``left ± right``."""
    left, right = map(exact, given)
    (p1, s1), (p2, s2) = left.type.args, right.type.args
    scale, whole = max(s1, s2), max(p1 - s1, p2 - s2) + 1
    if whole + scale <= PRECISION_MAX:
        type_ = numeric(whole + scale, scale)
        value = Typed(f"({left.sql} {sign} {right.sql})", type_, node)
    else:
        name, what = ("total", "sum") if sign == "+" else ("difference", "difference")
        found = Operation(name, (left.sql, right.sql), _what(what, given), whole)
        value = _of(node, found, _shared(whole, scale, scale_kept=SCALE_KEPT))
    shown = left.scale_shown and right.scale_shown and value.type.args[1] == scale
    return _with_scale(replace(value, scale_shown=shown), "greatest({}, {})", left, right)


def multiplied(node: Any, given: tuple[Typed, Typed]) -> Typed:
    """``left * right``."""
    left, right = map(exact, given)
    (p1, s1), (p2, s2) = left.type.args, right.type.args
    if p1 + p2 + 1 <= PRECISION_MAX:
        value = Typed(f"({left.sql} * {right.sql})", numeric(p1 + p2 + 1, s1 + s2), node)
    else:
        whole = p1 - s1 + p2 - s2
        found = Operation("product", (left.sql, right.sql), _what("product", given), whole)
        kept = max(PRODUCT_SCALE_KEPT, s1, s2)
        value = _of(node, found, _shared(whole, s1 + s2, scale_kept=kept))
    shown = left.scale_shown and right.scale_shown and value.type.args[1] == s1 + s2
    return _with_scale(replace(value, scale_shown=shown), "({} + {})", left, right)


def divided(node: Any, given: tuple[Typed, Typed]) -> Typed:
    """``left / right``."""
    left, right = map(exact, given)
    (p1, s1), (p2, s2) = left.type.args, right.type.args
    whole, finest = p1 - s1 + s2, _finest(s1, p2 - s2)
    kept = max(PRECISION_MAX - min(whole, QUOTIENT_WHOLE_KEPT), s1, s2)
    type_ = _shared(whole, max(finest, s1, s2), scale_kept=kept)
    return _quotient(node, (left, right), type_, _what("quotient", given), whole)


def _finest(scale: int, whole: int) -> int:
    """Return the most digits that PostgreSQL gives a quotient by operands of these digits."""
    finest = _QUOTIENT_DIGITS + _GROUP * (-(-scale // _GROUP) - (-whole // _GROUP))
    return min(finest, QUOTIENT_SCALE_MAX)


def _quotient(
    node: Any, given: tuple[Typed, Typed], type_: SqlType, what: str, whole: int
) -> Typed:
    left, right = given
    scales = (display_scale(left), display_scale(right))
    listed = (left.sql, right.sql, *scales)
    digits = None if _UNKNOWN in scales else f"headwater_quotient_scale({', '.join(listed)})"
    value = _of(node, Operation("quotient", listed, what, whole), type_)
    return replace(value, scale_shown=False, digits=_short(digits))


def _of(node: Any, found: Operation, type_: SqlType) -> Typed:
    return Typed(found.sql(type_), type_, node, operation=found)


def average(node: Any, argument: Typed, total: Typed, count: str) -> Typed:
    """The sum of integers or numerics by their number, a bigint; NULL by 0 is NULL."""
    precision, scale = as_numeric(argument.type).args
    whole = precision - scale
    kept = max(PRECISION_MAX - min(whole, AVERAGE_WHOLE_KEPT), scale)
    type_ = _shared(whole, max(_finest(scale, _COUNT_DIGITS), scale), scale_kept=kept)
    number = Typed(cast_sql(count, numeric(_COUNT_DIGITS, 0)), numeric(_COUNT_DIGITS, 0), node)
    what = f"the average of {said(argument)}"
    return _quotient(node, (total, number), type_, what, whole)


def sum_of(argument: Typed, aggregated: Callable[[str, str], str]) -> Typed:
    """A sum of numerics: ten digits more, for as many rows. ``aggregated(name, x)``: a call.

    PostgreSQL shows the digits of the row that has most. Of a column these are taken to be the
    sum's own: a maximum beside each sum of a bare numeric is more than that is worth.
    """
    precision, scale = argument.type.args
    type_ = numeric(min(PRECISION_MAX, precision + 10), scale)
    sql = aggregated("sum", argument.sql)
    total = Typed(sql, type_, argument.node, scale_shown=argument.scale_shown)
    if argument.scale_shown or display_scale(argument) == _UNKNOWN:
        return total
    if argument.digits is None:
        return total.showing(f"headwater_scale({sql})")
    return total.showing(_short(aggregated("max", argument.digits)))


def remainder(node: Any, given: tuple[Typed, Typed]) -> Typed:
    """``left % right``: it is as small as the smaller and as fine as the finer, so it fits."""
    left, right = map(exact, given)
    (p1, s1), (p2, s2) = left.type.args, right.type.args
    scale = max(s1, s2)
    type_ = numeric(min(PRECISION_MAX, min(p1 - s1, p2 - s2) + scale) or 1, scale)
    shown = left.scale_shown and right.scale_shown
    sql = cast_sql(f"{left.sql} % {right.sql}", type_)
    if p1 - s1 + s2 > PRECISION_MAX:  # Spark finds no quotient of so many digits.
        what = _what("remainder", given)
        sql = Operation("remainder", (left.sql, right.sql), what, PRECISION_MAX).sql(type_)
    value = Typed(sql, type_, node, scale_shown=shown)
    return _with_scale(value, "greatest({}, {})", left, right)


def negated(node: Any, operand: Typed) -> Typed:
    """``- operand``."""
    if operand.type.args[0] <= _NEGATED_DIGITS_MAX:
        sql = f"(- {operand.sql})"
    else:
        operands = (cast_sql("'0'", numeric(1, 0)), operand.sql)
        sql = Operation("difference", operands, "a negative number", 0).sql(operand.type)
    value = Typed(sql, operand.type, node, scale_shown=operand.scale_shown)
    return value.showing(operand.digits)


def absolute(node: Any, operand: Typed) -> Typed:
    """``abs(operand)``."""
    x = operand.sql
    sql = f"abs({x})"
    if operand.type.args[0] > _NEGATED_DIGITS_MAX:
        sql = f"(CASE WHEN {is_below_zero(operand)} THEN {negated(node, operand).sql} ELSE {x} END)"
    value = Typed(sql, operand.type, node, scale_shown=operand.scale_shown)
    return value.showing(operand.digits)


def is_below_zero(operand: Typed) -> str:
    """Whether a numeric is negative; beside a zero, Spark does not see the last of 38 digits."""
    return f"signum({operand.sql}) < 0"


def _what(name: str, given: tuple[Typed, Typed]) -> str:
    return f"the {name} of {said(given[0])} and {said(given[1])}"


# --- types ----------------------------------------------------------------------------------------


def exact(operand: Typed) -> Typed:
    """An integer or numeric as a numeric of all its digits."""
    type_ = as_numeric(operand.type)
    return operand if operand.type == type_ else operand.of(cast_sql(operand.sql, type_), type_)


def fitted(operand: Typed, type_: SqlType) -> str:
    """An integer or numeric in a type with fewer digits; what does not fit is an error."""
    what = (
        f"a value of {said(operand)} beside others that need {type_.args[1]} digits after the point"
    )
    instead = "round the others (round(…, s)), or cast all of them to one numeric(p,s)"
    return Operation("fitted", (exact(operand).sql,), what, 0, instead).sql(type_)


# --- display scales -------------------------------------------------------------------------------


def display_scale(operand: Typed) -> str:
    """Return how many digits after the point PostgreSQL's value shows, as Spark SQL."""
    if operand.scale_shown:
        return str(operand.type.args[1])
    if operand.digits is None and operand.type == BARE:
        return f"headwater_scale({operand.sql})"
    return operand.digits or _UNKNOWN


def chosen(value: Typed, conditions: Sequence[str], operands: Sequence[Typed]) -> Typed:
    """``value`` is the operand of the first condition that is true, or the last operand."""
    if value.scale_shown or value.type.name != "numeric":
        return value
    scales = [_UNKNOWN if o.type == UNKNOWN else display_scale(exact(o)) for o in operands]
    if any(s == _UNKNOWN and not o.is_null for s, o in zip(scales, operands, strict=True)):
        return value
    pairs = zip(conditions, scales, strict=False)
    cases = "".join(f" WHEN {condition} THEN {scale}" for condition, scale in pairs)
    last = f" ELSE {scales[-1]}" if len(scales) > len(conditions) else ""
    return value.showing(_short(f"(CASE{cases}{last} END)"))


def _with_scale(value: Typed, form: str, left: Typed, right: Typed) -> Typed:
    if value.scale_shown:
        return value
    scales = (display_scale(left), display_scale(right))
    return value if _UNKNOWN in scales else value.showing(_short(form.format(*scales)))


def _short(text: str | None) -> str | None:
    return None if text is None or len(text) > _SCALE_TEXT_MAX else text


# --- comparison -----------------------------------------------------------------------------------


def compared(node: Any, operator: str, left: Typed, right: Typed) -> Typed:
    """``left operator right`` of numerics, exact whatever digits they have."""
    if is_exact((left.type, right.type)):
        return Typed(f"({left.sql} {operator} {right.sql})", BOOLEAN, node)
    (a, b), (x, y) = map(_parts, (left, right))
    match operator:
        case "=" | "<=>":
            sql = f"({a} {operator} {x} AND {b} {operator} {y})"
        case "<>":
            sql = f"(NOT ({a} = {x} AND {b} = {y}))"
        case _:
            assert operator in ("<", "<=", ">", ">="), operator
            sql = f"({a} {operator[0]} {x} OR ({a} = {x} AND {b} {operator} {y}))"
    return Typed(sql, BOOLEAN, node)


def _parts(operand: Typed) -> tuple[str, str]:
    """The whole number below, and what is above it: ``1.75`` is 1 and 0.75, ``-1.75`` -2 and 0.25.

    As whole numbers, and as fractions, any two have a type in common.
    """
    one, x = cast_sql("'1'", numeric(1, 0)), operand.sql
    scale = operand.type.args[1]
    if not scale:
        # Not a constant: it is NULL where the operand is.
        return x, cast_sql(f"{x} % {one}", numeric(1, 1))
    return f"floor({x})", cast_sql(f"pmod({x}, {one})", numeric(scale, scale))

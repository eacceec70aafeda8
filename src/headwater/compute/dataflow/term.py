"""Terms: what a stage can compute by itself, on Arrow's columns, as exactly as Spark does.

A small set of expressions, each with the very answer of Spark's under our meaning (ANSI, binary
string order):

    + - *        of integers of one type (an overflow fails); of decimals whose result has at most
                 38 digits (cannot fail, nothing is rounded)
    %            of integers, by a literal above 0
    = < <= > >=  of integers, of decimals, of dates, of strings (by bytes), of timestamps
    AND OR NOT, IS NULL, LIKE of ``%`` and letters, CASE, coalesce, the year of a date
    CAST         of integers and decimals to where every value fits

Nothing is computed of floating numbers: what is NaN, and which of its bits, is Java's to say. They
may be literals, chosen, and asked whether they are NULL. Nor is there what Spark evaluates only
sometimes (the right side of AND, a branch of CASE, of a sum whose left side is NULL) where that may
fail; so a term fails on a row exactly if one of its parts does.

Kept by: this module, against Spark in ``tests/spark/test_native.py``. Relied on by: ``native.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.collection.types import by_spark

BOOLEAN: Final = "boolean"
DIGITS: Final = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
"""How many digits an integer may have."""
DECIMAL_DIGITS_MAX: Final = 38
DEPTH_MAX: Final = 50
"""How many terms may be within each other: they are read, pickled and computed by recursion."""

_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")
_COMPARABLE: Final = frozenset({"date", "string", "timestamp", "timestamp_ntz"})


class NotNative(Exception):
    """A stage cannot compute this by itself."""


@dataclass(frozen=True, slots=True)
class Input:
    """A column of the rows."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal; ``None`` is NULL."""

    value: Any
    type: str


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Of two numbers."""

    operator: Literal["+", "-", "*", "%"]
    left: Term
    right: Term
    type: str


@dataclass(frozen=True, slots=True)
class Compared:
    """Of two values of one kind."""

    operator: Literal["=", "<", "<=", ">", ">="]
    left: Term
    right: Term
    type: str = BOOLEAN


@dataclass(frozen=True, slots=True)
class Logic:
    """With three values."""

    operator: Literal["AND", "OR"]
    left: Term
    right: Term
    type: str = BOOLEAN


@dataclass(frozen=True, slots=True)
class Negated:
    """NOT."""

    of: Term
    type: str = BOOLEAN


@dataclass(frozen=True, slots=True)
class IsNull:
    """Whether there is no value."""

    of: Term
    type: str = BOOLEAN


@dataclass(frozen=True, slots=True)
class Like:
    """Whether a string is these pieces, in this order, with anything between two."""

    of: Term
    pieces: tuple[str, ...]
    type: str = BOOLEAN


@dataclass(frozen=True, slots=True)
class Choice:
    """The value of the first condition that is true."""

    branches: tuple[tuple[Term, Term], ...]
    otherwise: Term
    type: str


@dataclass(frozen=True, slots=True)
class First:
    """The first value that is not NULL."""

    of: tuple[Term, ...]
    type: str


@dataclass(frozen=True, slots=True)
class Widened:
    """The same value in a wider type."""

    of: Term
    type: str


@dataclass(frozen=True, slots=True)
class Year:
    """The year of a date."""

    of: Term
    type: str = "int"


Term = (
    Input
    | Constant
    | Arithmetic
    | Compared
    | Logic
    | Negated
    | IsNull
    | Like
    | Choice
    | First
    | Widened
    | Year
)


# ---- what there may be -----------------------------------------------------------------------


def decimal(type_: str) -> tuple[int, int] | None:
    """Return precision and scale of a decimal type."""
    found = _DECIMAL.fullmatch(type_)
    return None if found is None else (int(found[1]), int(found[2]))


def levels(term: Term) -> Iterator[tuple[Term, int]]:
    """Yield what a term is made of, itself first, each with how far down it is."""
    waiting = [(term, 0)]
    while waiting:
        part, depth = waiting.pop()
        yield part, depth
        match part:
            case Arithmetic() | Compared() | Logic():
                below: tuple[Term, ...] = (part.left, part.right)
            case Negated() | IsNull() | Like() | Widened() | Year():
                below = (part.of,)
            case Choice():
                below = (*(t for branch in part.branches for t in branch), part.otherwise)
            case First():
                below = part.of
            case _:
                below = ()
        waiting += ((each, depth + 1) for each in below)


def may_fail(term: Term) -> bool:
    """Whether it fails on some row: an integer that does not fit its type."""
    return any(
        isinstance(part, Arithmetic) and part.operator != "%" and part.type in DIGITS
        for part, _ in levels(term)
    )


def arithmetic(operator: Literal["+", "-", "*", "%"], left: Term, right: Term) -> Term:
    """Return the term of two numbers."""
    if may_fail(right) and not _is_value(left):
        raise NotNative("Spark does not compute the right side where the left one is NULL")
    if left.type == right.type and left.type in DIGITS:
        if operator == "%" and not (isinstance(right, Constant) and (right.value or 0) > 0):
            raise NotNative("the remainder of a division by what may be 0")
        return Arithmetic(operator, left, right, left.type)
    one, other = decimal(left.type), decimal(right.type)
    if one is None or other is None or operator == "%":
        raise NotNative(f"{operator} of {left.type} and {right.type}")
    (p1, s1), (p2, s2) = one, other
    scale = s1 + s2 if operator == "*" else max(s1, s2)
    digits = p1 + p2 + 1 if operator == "*" else max(p1 - s1, p2 - s2) + scale + 1
    if digits > DECIMAL_DIGITS_MAX:
        raise NotNative("a decimal that may be rounded")
    return Arithmetic(operator, left, right, f"decimal({digits},{scale})")


def compared(operator: Literal["=", "<", "<=", ">", ">="], left: Term, right: Term) -> Term:
    """Return the term of two values of one kind."""
    if may_fail(right) and not _is_value(left):
        raise NotNative("Spark does not compute the right side where the left one is NULL")
    if left.type in DIGITS and right.type in DIGITS:
        return Compared(operator, left, right)
    if left.type == right.type and left.type in _COMPARABLE:
        return Compared(operator, left, right)
    one, other = decimal(left.type), decimal(right.type)
    if one is None or other is None:
        raise NotNative(f"{operator} of {left.type} and {right.type}")
    scale = max(one[1], other[1])
    common = max(one[0] - one[1], other[0] - other[1]) + scale
    if common > DECIMAL_DIGITS_MAX:
        raise NotNative("decimals that have no type in common")
    type_ = f"decimal({common},{scale})"
    return Compared(operator, widened(left, type_), widened(right, type_))


def widened(term: Term, type_: str) -> Term:
    """Return the term in another type, where every value it may have fits."""
    if term.type == type_:
        return term
    if isinstance(term, Constant):
        return _constant_as(term, type_)
    if term.type in DIGITS and type_ in DIGITS and DIGITS[term.type] < DIGITS[type_]:
        return Widened(term, type_)
    wide = decimal(type_)
    narrow = (DIGITS[term.type], 0) if term.type in DIGITS else decimal(term.type)
    if wide is None or narrow is None:
        raise NotNative(f"a cast from {term.type} to {type_}")
    if wide[1] < narrow[1] or wide[0] - wide[1] < narrow[0] - narrow[1]:
        raise NotNative(f"a cast from {term.type} to {type_} may not fit")
    return Widened(term, type_)


def _constant_as(term: Constant, type_: str) -> Term:
    wide = decimal(type_)
    if term.value is None and (wide is not None or type_ in (*DIGITS, *_COMPARABLE, BOOLEAN)):
        return Constant(None, type_)
    if term.type in DIGITS and type_ in DIGITS and DIGITS[term.type] < DIGITS[type_]:
        return Constant(term.value, type_)
    if wide is None or not (term.type in DIGITS or decimal(term.type)):
        raise NotNative(f"a cast from {term.type} to {type_}")
    value = Decimal(term.value)
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int), "a number"
    if -exponent > wide[1] or value.copy_abs() >= Decimal(10) ** (wide[0] - wide[1]):
        raise NotNative(f"a cast of {value} to {type_} may not fit")
    return Constant(value, type_)


def logic(operator: Literal["AND", "OR"], left: Term, right: Term) -> Term:
    """Return both, or either."""
    _require(left.type == right.type == BOOLEAN, f"{operator} of what is not boolean")
    _require(not may_fail(right), f"{operator} of what may fail")
    return Logic(operator, left, right)


def negated(term: Term) -> Term:
    """Return NOT of it."""
    _require(term.type == BOOLEAN, "NOT of what is not boolean")
    return Negated(term)


def choice(branches: tuple[tuple[Term, Term], ...], otherwise: Term | None) -> Term:
    """Return the value of the first condition that is true."""
    type_ = branches[0][1].type
    last = Constant(None, type_) if otherwise is None else otherwise
    for condition, value in branches:
        _require(condition.type == BOOLEAN and value.type == type_, "CASE of several types")
    _require(last.type == type_, "CASE of several types")
    made = Choice(branches, last, type_)
    _require(not may_fail(made), "CASE of what may fail")
    return made


def first(terms: tuple[Term, ...]) -> Term:
    """Return the first value that is not NULL."""
    _require(len({term.type for term in terms}) == 1, "coalesce of several types")
    # Arrow computes all of them; the first is asked for in any case.
    _require(not any(map(may_fail, terms[1:])), "coalesce of what may fail")
    return First(terms, terms[0].type)


def like(term: Term, pattern: str) -> Term:
    """Return whether a string has this pattern: pieces, and ``%`` between them."""
    _require(term.type == "string", "LIKE of what is no string")
    # One character is more than one thing, and an escape a language of its own.
    _require(not set(pattern) & set("_\\") and pattern.isascii(), "LIKE of a pattern with more")
    return Like(term, tuple(pattern.split("%")))


def year(term: Term) -> Term:
    """Return the year of a date."""
    _require(term.type == "date", "the year of what is no date")
    return Year(term)


def _is_value(term: Term) -> bool:
    return isinstance(term, Constant) and term.value is not None


def _require(holds: bool, why: str) -> None:
    if not holds:
        raise NotNative(why)


# ---- values ----------------------------------------------------------------------------------

_CHECKED: Final = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}
_EXACT: Final = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}
_COMPARE: Final = {
    "=": pc.equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


class Values:
    """The values of terms over some rows; a part that terms share is computed once.

    Raises ``pa.ArrowInvalid`` where a term fails on one of the rows.
    """

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self._known: dict[int, tuple[Term, Any]] = {}

    def column(self, term: Term) -> Any:
        """Return a column of the term's type."""
        found = self._value(term)
        arrow = by_spark(term.type).arrow
        if isinstance(found, pa.Scalar):
            return pa.repeat(found, self._rows.num_rows)
        return found if found.type == arrow else found.cast(arrow)

    def _value(self, term: Term) -> Any:
        known = self._known.get(id(term))
        if known is None:
            # With the term, whose number would be another's once it is gone.
            known = self._known[id(term)] = (term, self._computed(term))
        return known[1]

    def _computed(self, term: Term) -> Any:
        value = self._value
        match term:
            case Input():
                return self._rows.column(term.name)
            case Constant():
                return pa.scalar(term.value, by_spark(term.type).arrow)
            case Arithmetic("%"):
                left, right = value(term.left), value(term.right)
                whole = pc.multiply(pc.divide(left, right), right)
                return pc.subtract(left, whole)
            case Arithmetic():
                functions = _CHECKED if term.type in DIGITS else _EXACT
                return functions[term.operator](value(term.left), value(term.right))
            case Compared():
                return _COMPARE[term.operator](value(term.left), value(term.right))
            case Logic():
                function = pc.and_kleene if term.operator == "AND" else pc.or_kleene
                return function(value(term.left), value(term.right))
            case Negated():
                return pc.invert(value(term.of))
            case IsNull():
                return pc.is_null(value(term.of))
            case Like():
                return _like(value(term.of), term.pieces)
            case Choice():
                found = value(term.otherwise)
                for condition, chosen in reversed(term.branches):
                    holds = pc.fill_null(value(condition), False)
                    found = pc.if_else(holds, value(chosen), found)
                return found
            case First():
                return pc.coalesce(*(value(each) for each in term.of))
            case Widened():
                return pc.cast(value(term.of), by_spark(term.type).arrow)
            case Year():
                return _years(value(term.of))


def _like(strings: Any, pieces: tuple[str, ...]) -> Any:
    if len(pieces) == 1:
        return pc.equal(strings, pieces[0])
    if len(pieces) == 2 and not pieces[1]:
        return pc.starts_with(strings, pieces[0])
    if len(pieces) == 2 and not pieces[0]:
        return pc.ends_with(strings, pieces[1])
    if len(pieces) == 3 and not pieces[0] and not pieces[2]:
        return pc.match_substring(strings, pieces[1])
    text = ".*".join(map(re.escape, pieces))
    return pc.match_substring_regex(strings, rf"(?s)\A{text}\z")


def _years(dates: Any) -> Any:
    """Of any date: Arrow's own function knows 16 bits of a year."""
    if isinstance(dates, pa.Scalar):
        return _years(pa.chunked_array([pa.array([dates])]))[0]
    days = pc.fill_null(dates.cast(pa.int32()), 0).to_numpy().astype("datetime64[D]")
    years = days.astype("datetime64[Y]").astype(np.int64) + 1970
    return pa.array(years, pa.int32(), mask=pc.is_null(dates).to_numpy().astype(np.bool_))

"""LIMIT, OFFSET and FETCH: how many rows, known before the query runs.

A number of rows is a constant of type ``bigint``: a literal, a bound parameter (which is one by
now), a cast of one, arithmetic of them. It is computed here, with PostgreSQL's types and errors,
because a plan has to say it: Spark and the front end of maintained views read nothing but digits.
NULL and ALL are no limit; a numeric is rounded, as where it is stored; a negative number is an
error. What takes a query to know (``LIMIT (SELECT …)``) is refused.

Invariant: what :func:`limit` returns are the digits of an ``int``. More rows than those are more
than there can be.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from typing import Any, Final

from sqlglot import exp

from headwater.adapter.dialect.casts import written_type
from headwater.adapter.dialect.literals import number
from headwater.adapter.dialect.refusal import InvalidReference, only, position, refuse, refused
from headwater.adapter.dialect.typed import BARE, BIGINT, INTEGERS
from headwater.adapter.errors import AdapterError
from headwater.adapter.sql.text import from_text
from headwater.adapter.value_errors import NumberOutOfRange
from headwater.collection.types import SqlType

LIMIT_MAX: Final = 2**31 - 1

_OPERATIONS: Final[dict[Any, Callable[[Decimal, Decimal], Decimal]]] = {
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
}
Constant = tuple[Decimal | None, SqlType]
"""A number, or NULL, and its type."""


CLAUSES: Final = ("order", "limit", "offset")
"""What may stand behind a query in brackets."""


class ClauseTwice(AdapterError):
    """A clause behind the brackets of a query that has one."""

    condition = "SYNTAX_ERROR"
    sqlstate = "42601"


class NegativeLimit(AdapterError):
    """A LIMIT below zero."""

    condition = "INVALID_LIMIT"
    sqlstate = "2201W"


class NegativeOffset(AdapterError):
    """An OFFSET below zero."""

    condition = "INVALID_OFFSET"
    sqlstate = "2201X"


class DivisionByZero(AdapterError):
    """A number of rows that is divided by zero."""

    condition = "DIVIDE_BY_ZERO"
    sqlstate = "22012"


def unbracketed(node: Any) -> Any:
    """Return the query in brackets, with the clauses that stand behind them as its own.

    So PostgreSQL reads it: ``(SELECT … LIMIT 4) OFFSET 1`` ends with the fifth row, not the fourth.
    """
    for part in CLAUSES:
        clause = node.args.get(part)
        if clause is None:
            continue
        if node.this.args.get(part) is not None:
            word = "ORDER BY" if part == "order" else part.upper()
            raise ClauseTwice(f"multiple {word} clauses not allowed", position=position(clause))
        node.set(part, None)
        node.this.set(part, clause)
    return node.this


def limit(node: Any) -> str:
    """Return what stands at the end of a query."""
    rows = _rows(node.args.get("limit"), "LIMIT", NegativeLimit)
    skipped = _rows(node.args.get("offset"), "OFFSET", NegativeOffset)
    if skipped is not None and skipped > LIMIT_MAX:
        return " LIMIT 0"  # It skips more rows than there can be.
    text = "" if rows is None or rows > LIMIT_MAX else f" LIMIT {rows}"
    return text if skipped is None else f"{text} OFFSET {skipped}"


def _rows(clause: Any, word: str, negative: type[AdapterError]) -> int | None:
    if clause is None:
        return None
    count = _count(clause)
    if isinstance(count, exp.Var) and count.name == "ALL":
        return None
    value, _ = _fitting(_constant(clause, word, count)[0], BIGINT)
    if value is not None and value < 0:
        raise negative(f"{word} must not be negative", position=position(clause))
    return None if value is None else int(value)


def _count(clause: Any) -> Any:
    """The expression of a clause; of ``FETCH FIRST ROW ONLY`` it is 1."""
    if not isinstance(clause, exp.Fetch):
        only(clause, "expression")
        return clause.expression
    only(clause, "direction", "count", "limit_options")
    options = clause.args.get("limit_options")
    if options is not None and (options.args.get("percent") or options.args.get("with_ties")):
        refuse(clause, "FETCH … PERCENT or WITH TIES")
    return clause.args.get("count") or exp.Literal.number(1)


def _constant(clause: Any, word: str, node: Any) -> Constant:
    """The value of a constant expression."""
    match node:
        case exp.Paren():
            return _constant(clause, word, node.this)
        case exp.Null():
            return None, BIGINT
        case exp.Literal() if node.is_string:
            return _read(node, str(node.this), BIGINT)
        case exp.Literal():
            return Decimal(node.this), _counted(number(node, str(node.this)).type)
        case exp.Neg():
            value, type_ = _constant(clause, word, node.this)
            return (None if value is None else value.copy_negate()), type_
        case exp.Cast():
            return _cast(clause, word, node)
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Div() | exp.Mod():
            left = _constant(clause, word, node.this)
            return _computed(node, left, _constant(clause, word, node.expression))
        case exp.Column():
            raise InvalidReference(
                f"argument of {word} must not contain variables", position=position(node)
            )
        case _:
            raise refused(
                clause,
                f"{word} of what is no constant number",
                "Write a number or a parameter, a cast of one, or arithmetic of them.",
            )


def _cast(clause: Any, word: str, node: Any) -> Constant:
    only(node, "this", "to")
    type_ = _counted(written_type(node, node.args["to"]))
    if type_ not in (*INTEGERS, BARE):
        refuse(clause, f"{word} of a cast to {type_.postgres}", "Cast it to bigint.")
    if isinstance(node.this, exp.Literal) and node.this.is_string:
        return _read(node.this, str(node.this.this), type_)
    return _fitting(_constant(clause, word, node.this)[0], type_)


def _read(node: Any, text: str, type_: SqlType) -> Constant:
    """A quoted literal, by the input function of a type."""
    try:
        value = from_text(text, type_.arrow)
    except AdapterError as error:
        error.position = position(node)
        raise
    assert isinstance(value, int | Decimal)
    return Decimal(value), type_


def _computed(node: Any, left: Constant, right: Constant) -> Constant:
    type_ = max(left[1], right[1], key=(*INTEGERS, BARE).index)
    if left[0] is None or right[0] is None:
        return None, type_
    if not isinstance(node, exp.Div | exp.Mod):
        return _fitting(_OPERATIONS[type(node)](left[0], right[0]), type_)
    if not right[0]:
        raise DivisionByZero("division by zero", position=position(node))
    if type_ == BARE:
        refuse(node, "a quotient of numerics as a number of rows", "Cast its parts to bigint.")
    quotient = (left[0] / right[0]).to_integral_value(ROUND_DOWN)
    whole = quotient if isinstance(node, exp.Div) else left[0] - quotient * right[0]
    return _fitting(whole, type_)


def _fitting(value: Decimal | None, type_: SqlType) -> Constant:
    """A value as one of its type: a whole number that fits, or a numeric as it is."""
    if value is None or type_ == BARE:
        return value, type_
    whole = value.to_integral_value(ROUND_HALF_UP)
    bound = 1 << (type_.arrow.bit_width - 1)
    if not -bound <= whole < bound:
        raise NumberOutOfRange(type_.postgres)
    return whole, type_


def _counted(type_: SqlType) -> SqlType:
    """The type to count in: of a numeric the precision does not matter."""
    return BARE if type_.name == "numeric" else type_

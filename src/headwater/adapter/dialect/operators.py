"""Operators: arithmetic, comparison, concatenation; each with the types it takes.

PostgreSQL's integers divide by truncation and overflow loudly (as Spark does under ANSI); its
numerics are exact (``numerics.py``); a real meets any other number as a double. Float arithmetic is
IEEE's in both, with one exception that is left: PostgreSQL refuses a finite product that overflows
to infinity, Spark returns the infinity.
"""

from __future__ import annotations

from typing import Any, Final

from headwater.adapter.dialect import numerics, time_functions
from headwater.adapter.dialect.casts import can_coerce, cast, coerce, like_literal, to_numeric
from headwater.adapter.dialect.refusal import UndefinedFunction, position, refuse
from headwater.adapter.dialect.typed import (
    BOOLEAN,
    BYTEA,
    DOUBLE,
    INTEGERS,
    INTERVAL,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    UNKNOWN,
    Typed,
    cast_sql,
    common_number,
    is_number,
)

_TIMES: Final = ("date", "timestamp", "timestamptz")
_COMPARABLE: Final = frozenset(
    {
        *("boolean", "smallint", "integer", "bigint", "numeric", "real", "double precision"),
        *("text", "bytea", "date", "timestamp", "timestamptz", "interval", "uuid"),
    }
)


def no_operator(node: Any, operator: str, *operands: Typed) -> UndefinedFunction:
    """No such operator for these types."""
    types = [("unknown" if o.type == UNKNOWN else o.type.postgres) for o in operands]
    shown = f" {operator} ".join(types) if len(types) > 1 else f"{operator} {types[0]}"
    return UndefinedFunction(
        f"operator does not exist: {shown}",
        hint="No operator matches the given name and argument types. You might need to add"
        " explicit type casts.",
        position=position(node),
    )


def arithmetic(node: Any, operator: str, left: Typed, right: Typed) -> Typed:
    """``left operator right``."""
    if left.type == UNKNOWN and right.type == UNKNOWN:
        raise no_operator(node, operator, left, right)
    times = time_functions.arithmetic(node, operator, left, right)
    if times is not None:
        return times
    if left.type == UNKNOWN and is_number(right.type):
        left = like_literal(left, right.type)
    if right.type == UNKNOWN and is_number(left.type):
        right = like_literal(right, left.type)
    if not (is_number(left.type) and is_number(right.type)):
        raise no_operator(node, operator, left, right)
    type_ = common_number(left.type, right.type, operator=True)
    if type_.name == "numeric":
        return _NUMERIC[operator](node, (left, right))
    left, right = coerce(left, type_), coerce(right, type_)
    if operator == "%" and type_ not in INTEGERS:
        raise no_operator(node, operator, left, right)
    if operator == "/" and type_ in INTEGERS:
        return Typed(cast_sql(f"{left.sql} div {right.sql}", type_), type_, node)
    if operator == "/":
        # Spark divides floats as doubles.
        return Typed(cast_sql(f"{left.sql} / {right.sql}", type_), type_, node)
    if type_ == DOUBLE or type_ in INTEGERS[1:]:
        return Typed(f"({left.sql} {operator} {right.sql})", type_, node)
    return Typed(cast_sql(f"{left.sql} {operator} {right.sql}", type_), type_, node)


_NUMERIC: Final = {
    "+": lambda node, given: numerics.added(node, "+", given),
    "-": lambda node, given: numerics.added(node, "-", given),
    "*": numerics.multiplied,
    "/": numerics.divided,
    "%": numerics.remainder,
}


BITWISE: Final = {"&": "&", "|": "|", "#": "^"}


def bitwise(node: Any, operator: str, left: Typed, right: Typed) -> Typed:
    """``&``, ``|`` and ``#`` of integers."""
    if left.type not in INTEGERS or right.type not in INTEGERS:
        raise no_operator(node, operator, left, right)
    type_ = common_number(left.type, right.type)
    sql = f"{coerce(left, type_).sql} {BITWISE[operator]} {coerce(right, type_).sql}"
    return Typed(cast_sql(sql, type_), type_, node)


def negated(node: Any, operand: Typed) -> Typed:
    """``- operand``."""
    if not (is_number(operand.type) or operand.type == INTERVAL):
        raise no_operator(node, "-", operand)
    if operand.type.name == "numeric":
        return numerics.negated(node, operand)
    sql = f"(- {operand.sql})"
    if operand.type == INTEGERS[0]:
        sql = cast_sql(sql, operand.type)
    return Typed(sql, operand.type, node, scale_shown=operand.scale_shown)


def matched(node: Any, operator: str, left: Typed, right: Typed) -> tuple[Typed, Typed]:
    """Both operands of a comparison, in the type they are compared in, or two of numerics."""
    if left.type == UNKNOWN and right.type == UNKNOWN:
        return coerce(left, TEXT), coerce(right, TEXT)
    if left.type == UNKNOWN:
        return like_literal(left, right.type), right
    if right.type == UNKNOWN:
        return left, like_literal(right, left.type)
    if is_number(left.type) and is_number(right.type):
        type_ = common_number(left.type, right.type, operator=True)
        if type_.name == "numeric":
            return to_numeric(left), to_numeric(right)
        return coerce(left, type_), coerce(right, type_)
    if left.type != right.type:
        if can_coerce(left, right.type):
            left = coerce(left, right.type)
        elif can_coerce(right, left.type):
            right = coerce(right, left.type)
        else:
            raise no_operator(node, operator, left, right)
    return left, right


def compare(node: Any, operator: str, left: Typed, right: Typed) -> Typed:
    """``left operator right``, a boolean."""
    left, right = matched(node, operator, left, right)
    for operand in (left, right):
        # Equal JSON is equal text; which of two is less, PostgreSQL decides by their structure.
        is_equality = operator in ("=", "<>", "<=>") and operand.type.name == "jsonb"
        if operand.type.name not in _COMPARABLE and not is_equality:
            refuse(node, f"a comparison of {operand.type.postgres}")
    if left.type.name == right.type.name == "numeric":
        return numerics.compared(node, operator, left, right)
    return Typed(f"({left.sql} {operator} {right.sql})", BOOLEAN, node)


def one_of(node: Any, operand: Typed, listed: list[Typed]) -> Typed:
    """``operand IN (listed)``."""
    pairs = [matched(node, "=", operand, item) for item in listed]
    operands = {left.sql for left, _ in pairs}
    # Spark takes all of a list to one type.
    numbers = [side.type for pair in pairs for side in pair if side.type.name == "numeric"]
    if len(operands) == 1 and (not numbers or numerics.is_exact(numbers)):
        for left, right in pairs:
            compare(node, "=", left, right)  # refuses what has no equality
        items = ", ".join(right.sql for _, right in pairs)
        return Typed(f"({operands.pop()} IN ({items}))", BOOLEAN, node)
    tests = [compare(node, "=", operand, item).sql for item in listed]
    return Typed(f"({' OR '.join(tests)})", BOOLEAN, node)


def distinct_from(node: Any, left: Typed, right: Typed, *, same: bool) -> Typed:
    """``IS [NOT] DISTINCT FROM``."""
    left, right = matched(node, "=", left, right)
    equal = compare(node, "<=>", left, right).sql
    return Typed(equal if same else f"(NOT {equal})", BOOLEAN, node)


def boolean(operand: Typed) -> Typed:
    """An operand of AND, OR, NOT, WHERE."""
    if operand.type not in (BOOLEAN, UNKNOWN):
        raise UndefinedFunction(
            f"argument must be type boolean, not type {operand.type.postgres}",
            position=position(operand.node),
        )
    return coerce(operand, BOOLEAN)


def concatenated(node: Any, left: Typed, right: Typed) -> Typed:
    """``left || right`` of texts; anything with a text form meets text as text.

    An untyped literal first is of the type of the other side, where that has a ``||`` of its own.
    """
    known = {operand.type.name for operand in (left, right) if operand.type != UNKNOWN}
    if "array" in known:
        refuse(node, "concatenation of arrays")
    if known == {"jsonb"}:
        refuse(node, "concatenation of jsonb")
    if known == {BYTEA.name}:
        type_ = BYTEA
    elif not {TEXT, UNKNOWN} & {left.type, right.type}:
        raise no_operator(node, "||", left, right)
    else:
        type_ = TEXT
    pieces = [coerce(o, type_) if o.type == UNKNOWN else cast(o, type_) for o in (left, right)]
    return Typed(f"({pieces[0].sql} || {pieces[1].sql})", type_, node)


def at_utc(node: Any, operand: Typed, zone: str) -> Typed:
    """``AT TIME ZONE 'UTC'``, the one zone everything runs in."""
    if zone.upper() not in ("UTC", "Z", "GMT"):
        refuse(node, f"time zone {zone!r}", "Everything is in UTC.")
    if operand.type == TIMESTAMPTZ:
        return cast(operand, TIMESTAMP)
    if operand.type.name in _TIMES:
        return coerce(operand, TIMESTAMPTZ)
    raise no_operator(node, "AT TIME ZONE", operand, operand)

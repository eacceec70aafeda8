"""Functions of numbers, and the conditional ones that take any type.

Numerics round half away from zero, doubles half to even. What Spark answers with NULL or NaN where
PostgreSQL says that it has no answer is guarded, with PostgreSQL's words.
"""

from __future__ import annotations

import re
from typing import Any, Final

from headwater.adapter.dialect import numerics
from headwater.adapter.dialect.casts import coerce, guarded, to_numeric
from headwater.adapter.dialect.literals import string
from headwater.adapter.dialect.operators import arithmetic, compare
from headwater.adapter.dialect.refusal import refuse
from headwater.adapter.dialect.signatures import Function, Signature, Special, no_function
from headwater.adapter.dialect.typed import (
    DOUBLE,
    FLOATS,
    INTEGER,
    INTEGERS,
    PRECISION_MAX,
    TEXT,
    UNKNOWN,
    Typed,
    cast_sql,
    common,
    is_number,
    scale_is_shown,
)
from headwater.collection.types import numeric

_WHOLE_DOUBLES: Final = "4503599627370496D"
"""2^52: from here on every double is whole."""


def _number(node: Any, name: str, operand: Typed) -> Typed:
    """Unknown literals are doubles to these functions, reals too."""
    if operand.type == UNKNOWN or operand.type in FLOATS:
        return coerce(operand, DOUBLE)
    if not is_number(operand.type):
        raise no_function(node, name, [operand])
    return operand


def _abs(node: Any, arguments: list[Typed]) -> Typed:
    operand = arguments[0]
    if operand.type == UNKNOWN or not is_number(operand.type):
        raise no_function(node, "abs", arguments)
    if operand.type.name == "numeric":
        return numerics.absolute(node, operand)
    return Typed(f"abs({operand.sql})", operand.type, node)


def _whole(name: str) -> Special:
    """ceil, floor: of a double a double, of anything else a numeric (of an integer a double)."""

    def rule(node: Any, arguments: list[Typed]) -> Typed:
        operand = _number(node, name, arguments[0])
        if operand.type in INTEGERS:
            return coerce(operand, DOUBLE)
        if operand.type == DOUBLE:
            x = operand.sql
            return Typed(
                f"(CASE WHEN abs({x}) < {_WHOLE_DOUBLES} THEN CAST({name}({x}) AS DOUBLE)"
                f" ELSE {x} END)",
                DOUBLE,
                node,
            )
        precision, scale = operand.type.args
        type_ = numeric(min(PRECISION_MAX, precision - scale + 1), 0)
        return Typed(cast_sql(f"{name}({operand.sql})", type_), type_, node)

    return Special(1, 1, rule)


def _places(node: Any, name: str, operand: Typed) -> int:
    """The number of digits, which is a literal here: the type of the result depends on it."""
    found = re.fullmatch(r"\(?(-?\d{1,2})\)?", operand.sql)
    if operand.type != INTEGER or found is None:
        refuse(node, f"{name} to a number of digits that is no literal")
    return int(found[1])


def _round(node: Any, arguments: list[Typed]) -> Typed:
    operand = _number(node, "round", arguments[0])
    if operand.type == DOUBLE or (operand.type in INTEGERS and len(arguments) == 1):
        if len(arguments) > 1:
            raise no_function(node, "round", arguments)
        return Typed(f"rint({coerce(operand, DOUBLE).sql})", DOUBLE, node)
    operand = to_numeric(operand)
    places = _places(node, "round", arguments[1]) if len(arguments) > 1 else 0
    precision, scale = operand.type.args
    kept = max(0, min(scale, places))
    if isinstance(operand.operation, numerics.Operation) and kept == places:
        type_ = numeric(min(PRECISION_MAX, operand.operation.whole + 1 + kept), kept)
        return Typed(numerics.rounded(operand, type_), type_, node)
    type_ = numeric(min(PRECISION_MAX, max(precision - scale + 1 + kept, -places + 1)), kept)
    return Typed(
        cast_sql(f"round({operand.sql}, {places})", type_), type_, node, scale_shown=places <= scale
    )


def _trunc(node: Any, arguments: list[Typed]) -> Typed:
    operand = _number(node, "trunc", arguments[0])
    x = operand.sql
    if operand.type == DOUBLE or (operand.type in INTEGERS and len(arguments) == 1):
        if len(arguments) > 1:
            raise no_function(node, "trunc", arguments)
        x = coerce(operand, DOUBLE).sql
        return Typed(
            f"(CASE WHEN abs({x}) >= {_WHOLE_DOUBLES} THEN {x}"
            f" WHEN {x} < 0 THEN CAST(ceil({x}) AS DOUBLE) ELSE CAST(floor({x}) AS DOUBLE) END)",
            DOUBLE,
            node,
        )
    operand = to_numeric(operand)
    x = operand.sql
    places = _places(node, "trunc", arguments[1]) if len(arguments) > 1 else 0
    precision, scale = operand.type.args
    if not 0 <= places <= scale:
        refuse(node, "trunc to more digits than there are, or to tens")
    type_ = numeric(max(1, precision - scale + places), places)
    below = numerics.is_below_zero(operand)
    sql = f"CASE WHEN {below} THEN ceil({x}, {places}) ELSE floor({x}, {places}) END"
    return Typed(cast_sql(f"({sql})", type_), type_, node)


def _sign(node: Any, arguments: list[Typed]) -> Typed:
    operand = _number(node, "sign", arguments[0])
    if operand.type.name != "numeric":
        refuse(node, "sign of what is no numeric", "Cast it to numeric.")
    return Typed(cast_sql(f"signum({operand.sql})", numeric(1, 0)), numeric(1, 0), node)


def _sqrt(node: Any, arguments: list[Typed]) -> Typed:
    operand = _number(node, "sqrt", arguments[0])
    if operand.type.name == "numeric":
        refuse(node, "sqrt of a numeric", "Cast it to double precision.")
    x = coerce(operand, DOUBLE).sql
    message = string("cannot take square root of a negative number")
    return Typed(f"({guarded(f'{x} >= 0D', message, f'sqrt({x})')})", DOUBLE, node)


def _mod(node: Any, arguments: list[Typed]) -> Typed:
    return arithmetic(node, "%", *arguments)


# --- any type -------------------------------------------------------------------------------------


def same_type(node: Any, operands: list[Typed]) -> list[Typed]:
    """All operands in their common type."""
    type_ = common(node, operands)
    return [coerce(operand, type_) for operand in operands]


def _of_common(name: str) -> Special:
    def rule(node: Any, arguments: list[Typed]) -> Typed:
        taken = same_type(node, arguments)
        if name != "coalesce" and taken[0].type.name in ("array", "jsonb", "struct", "map"):
            refuse(node, f"{name} of {taken[0].type.postgres}")
        if len(taken) == 1:
            return taken[0]
        shown = scale_is_shown(arguments, taken[0].type)
        sql = f"{name}({', '.join(operand.sql for operand in taken)})"
        value = Typed(sql, taken[0].type, node, scale_shown=shown)
        if name != "coalesce":
            return value
        known = [f"{operand.sql} IS NOT NULL" for operand in taken[:-1]]
        return numerics.chosen(value, known, arguments)

    return Special(1, 100, rule)


def _nullif(node: Any, arguments: list[Typed]) -> Typed:
    left, right = arguments
    equal = compare(node, "=", left, right)
    value = coerce(left, TEXT) if left.type == UNKNOWN else left
    if left.type == UNKNOWN and right.type not in (UNKNOWN, TEXT):
        value = coerce(left, right.type)
    return Typed(
        f"(CASE WHEN {equal.sql} THEN NULL ELSE {value.sql} END)",
        value.type,
        node,
        scale_shown=value.scale_shown,
    ).showing(value.digits)


# --- arrays ---------------------------------------------------------------------------------------


def _array_length(node: Any, arguments: list[Typed]) -> Typed:
    if arguments[0].type.name != "array" or arguments[1].sql != "1":
        refuse(node, "array_length in another dimension than 1")
    size = f"array_size({arguments[0].sql})"
    return Typed(f"(CASE WHEN {size} > 0 THEN {size} END)", INTEGER, node)


def _cardinality(node: Any, arguments: list[Typed]) -> Typed:
    if arguments[0].type.name != "array":
        raise no_function(node, "cardinality", arguments)
    return Typed(f"array_size({arguments[0].sql})", INTEGER, node)


def element(node: Any, values: Typed, index: Typed) -> Typed:
    """``values[index]``: from 1; outside it is NULL."""
    if values.type.name != "array":
        refuse(node, "a subscript of what is no array")
    at = coerce(index, INTEGER).sql
    type_ = values.type.parts[0][1]
    sql = f"(CASE WHEN {at} >= 1 THEN try_element_at({values.sql}, {at}) END)"
    return Typed(sql, type_, node, scale_shown=False)


NUMBER_FUNCTIONS: Final[dict[str, Function]] = {
    "abs": Special(1, 1, _abs),
    "ceil": _whole("ceil"),
    "ceiling": _whole("ceil"),
    "floor": _whole("floor"),
    "round": Special(1, 2, _round),
    "trunc": Special(1, 2, _trunc),
    "sign": Special(1, 1, _sign),
    "sqrt": Special(1, 1, _sqrt),
    "mod": Special(2, 2, _mod),
    "coalesce": _of_common("coalesce"),
    "greatest": _of_common("greatest"),
    "least": _of_common("least"),
    "nullif": Special(2, 2, _nullif),
    "array_length": Special(2, 2, _array_length),
    "cardinality": Special(1, 1, _cardinality),
    "bit_length": (Signature((TEXT,), INTEGER, "bit_length({0})"),),
}

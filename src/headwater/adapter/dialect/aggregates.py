"""Aggregates and window functions.

Results have PostgreSQL's types: counts and ranks are bigint, ``sum(bigint)`` is a numeric that
cannot overflow, ``avg`` of integers and numerics is PostgreSQL's quotient (``numerics.py``).
Aggregates of doubles follow the order of rows in PostgreSQL and are the correctly rounded sum here;
both agree where every partial sum is exact. ``string_agg`` without ORDER BY is in the order of its
values: PostgreSQL leaves it open, we do not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from headwater.adapter.dialect import numerics
from headwater.adapter.dialect.casts import coerce
from headwater.adapter.dialect.literals import string
from headwater.adapter.dialect.number_functions import same_type
from headwater.adapter.dialect.refusal import refuse
from headwater.adapter.dialect.signatures import no_function
from headwater.adapter.dialect.typed import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INTEGER,
    INTEGERS,
    INTERVAL,
    REAL,
    TEXT,
    UNKNOWN,
    Typed,
    cast_sql,
    scale_is_shown,
)
from headwater.collection.types import array, numeric


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an aggregate or window function, its arguments translated."""

    node: Any
    name: str
    arguments: list[Typed]
    star: bool = False
    distinct: bool = False
    order: tuple[str, ...] = ()
    """``x ASC NULLS LAST`` of an ORDER BY inside the call."""
    ordered_by: tuple[str, ...] = ()
    """The expressions of that order."""
    condition: str | None = None
    """Of FILTER."""
    window: str | None = None
    """What stands in ``OVER (…)``."""
    window_ordered: bool = False

    def of(self, name: str, argument: str) -> str:
        """``name([DISTINCT] argument) [FILTER …] [OVER …]``."""
        if self.distinct:
            argument = f"DISTINCT {argument}"
        elif self.condition and self.window is not None:
            # Spark has no FILTER over a window; NULLs are skipped by all of these.
            argument = f"CASE WHEN {self.condition} THEN {argument} END"
        text = f"{name}({argument})"
        if self.condition and self.window is None:
            text += f" FILTER (WHERE {self.condition})"
        return text if self.window is None else f"{text} OVER ({self.window})"


Rule = Callable[[Call], Typed]
_EXACT: Final = numeric(19, 0)


def _count(call: Call) -> Typed:
    if call.star:
        return Typed(call.of("count", "1"), BIGINT, call.node)
    argument = call.arguments[0]
    value = coerce(argument, TEXT) if argument.type == UNKNOWN else argument
    return Typed(call.of("count", value.sql), BIGINT, call.node)


def _sum(call: Call) -> Typed:
    argument = call.arguments[0]
    x, type_ = argument.sql, argument.type
    if type_ in INTEGERS[:2]:
        return Typed(call.of("sum", x), BIGINT, call.node)
    if type_ == BIGINT:
        return Typed(
            cast_sql(_exact_sum(call, argument), numeric(38, 0)), numeric(38, 0), call.node
        )
    if type_.name == "numeric":
        return numerics.sum_of(argument, call.of)
    if type_ == REAL:
        return Typed(cast_sql(call.of("sum", x), REAL), REAL, call.node)
    if type_ in (DOUBLE, INTERVAL):
        return Typed(call.of("sum", x), type_, call.node)
    raise no_function(call.node, call.name, call.arguments)


def _exact_sum(call: Call, argument: Typed) -> str:
    return call.of("sum", cast_sql(argument.sql, _EXACT))


def _avg(call: Call) -> Typed:
    argument = call.arguments[0]
    type_ = argument.type
    if type_ in (REAL, DOUBLE):
        return Typed(call.of("avg", cast_sql(argument.sql, DOUBLE)), DOUBLE, call.node)
    if type_ in INTEGERS:
        exact = numeric(_EXACT.args[0] + 10, 0)
        total = Typed(_exact_sum(call, argument), exact, call.node)
    elif type_.name == "numeric":
        total = numerics.sum_of(argument, call.of)
    else:
        raise no_function(call.node, call.name, call.arguments)
    return numerics.average(call.node, argument, total, call.of("count", argument.sql))


_ORDERED: Final = frozenset(
    {
        *("smallint", "integer", "bigint", "numeric", "real", "double precision"),
        *("text", "date", "timestamp", "timestamptz", "interval"),
    }
)


def _extreme(call: Call) -> Typed:
    argument = call.arguments[0]
    value = coerce(argument, TEXT) if argument.type == UNKNOWN else argument
    if value.type.name not in _ORDERED:
        raise no_function(call.node, call.name, call.arguments)
    sql = call.of(call.name, value.sql)
    found = Typed(sql, value.type, call.node, scale_shown=value.scale_shown)
    if value.digits is None or call.window is not None:
        return found
    # Those of the row whose value it is.
    by = f"{call.name}_by({value.digits}, {value.sql})"
    where = f" FILTER (WHERE {call.condition})" if call.condition else ""
    return found.showing(by + where)


def _logical(call: Call) -> Typed:
    name = "bool_or" if call.name == "bool_or" else "bool_and"
    return Typed(call.of(name, coerce(call.arguments[0], BOOLEAN).sql), BOOLEAN, call.node)


def _string_agg(call: Call) -> Typed:
    value, separator = call.arguments
    if value.type not in (TEXT, UNKNOWN):
        raise no_function(call.node, call.name, call.arguments)
    if separator.literal is None:
        refuse(call.node, "string_agg with a separator that is no literal")
    if call.window is not None:
        refuse(call.node, "string_agg over a window")
    x = coerce(value, TEXT).sql
    if call.distinct and call.ordered_by not in ((), (x,)):
        refuse(call.node, "string_agg(DISTINCT …) in another order than its own")
    order = ", ".join(call.order) or f"{x} ASC NULLS LAST"
    distinct = "DISTINCT " if call.distinct else ""
    sql = f"listagg({distinct}{x}, {string(separator.literal)}) WITHIN GROUP (ORDER BY {order})"
    if call.condition:
        sql += f" FILTER (WHERE {call.condition})"
    return Typed(sql, TEXT, call.node)


def _array_agg(call: Call) -> Typed:
    """The values in their order, NULLs among them; of no rows it is NULL.

    Spark's collect_list drops NULLs and has no order: structs keep the one and are sorted for the
    other.
    """
    value = call.arguments[0]
    if value.type == UNKNOWN:
        value = coerce(value, TEXT)
    if call.window is not None or call.distinct or value.type.name == "array":
        refuse(call.node, "array_agg of this kind")
    keys = call.ordered_by or (value.sql,)
    directions = [item.removeprefix(key) for item, key in zip(call.order, keys, strict=False)]
    fields = "".join(f"'k{n}', {key}, " for n, key in enumerate(keys))
    listed = call.of("collect_list", f"named_struct({fields}'v', {value.sql})")
    order = "0"
    for n in reversed(range(len(keys))):
        order = _key_order(f"k{n}", directions[n] if directions else " ASC NULLS LAST", order)
    ordered = f"transform(array_sort({listed}, (l, r) -> {order}), e -> e.v)"
    sql = f"CASE WHEN {call.of('count', '1')} > 0 THEN {ordered} END"
    return Typed(sql, array(value.type), call.node)


def _key_order(key: str, direction: str, then: str) -> str:
    """A comparison of ``l`` and ``r`` by one key, and by ``then`` where it is the same."""
    null = -1 if direction.endswith("FIRST") else 1
    less = 1 if " DESC" in direction else -1
    return (
        f"CASE WHEN l.{key} <=> r.{key} THEN {then} WHEN l.{key} IS NULL THEN {null}"
        f" WHEN r.{key} IS NULL THEN {-null} WHEN l.{key} < r.{key} THEN {less} ELSE {-less} END"
    )


# --- window functions -----------------------------------------------------------------------------


def _ranked(name: str) -> Rule:
    def rule(call: Call) -> Typed:
        _needs_order(call)
        return Typed(cast_sql(f"{name}() OVER ({call.window})", BIGINT), BIGINT, call.node)

    return rule


def _fraction(name: str) -> Rule:
    def rule(call: Call) -> Typed:
        _needs_order(call)
        return Typed(f"{name}() OVER ({call.window})", DOUBLE, call.node)

    return rule


def _ntile(call: Call) -> Typed:
    _needs_order(call)
    count = _literal_integer(call, 0)
    return Typed(f"ntile({count}) OVER ({call.window})", INTEGER, call.node)


def _shifted(call: Call) -> Typed:
    _needs_order(call)
    offset = _literal_integer(call, 1) if len(call.arguments) > 1 else 1
    values = [call.arguments[0], *call.arguments[2:]]
    if all(value.type == UNKNOWN for value in values):
        refuse(call.node, f"{call.name} of an untyped literal")
    taken = same_type(call.node, values)
    default = f", {taken[1].sql}" if len(taken) > 1 else ""
    return Typed(
        f"{call.name}({taken[0].sql}, {offset}{default}) OVER ({call.window})",
        taken[0].type,
        call.node,
        scale_shown=scale_is_shown(values, taken[0].type),
    )


def _positioned(call: Call) -> Typed:
    _needs_order(call)
    value = call.arguments[0]
    if value.type == UNKNOWN:
        value = coerce(value, TEXT)
    place = f", {_literal_integer(call, 1)}" if call.name == "nth_value" else ""
    sql = f"{call.name}({value.sql}{place}) OVER ({call.window})"
    return Typed(sql, value.type, call.node, scale_shown=value.scale_shown)


def _needs_order(call: Call) -> None:
    if not call.window_ordered:
        refuse(call.node, f"{call.name} over rows in no order", "Add ORDER BY to the window.")


def _literal_integer(call: Call, place: int) -> int:
    argument = call.arguments[place]
    if argument.type != INTEGER or not argument.sql.isdigit():
        refuse(call.node, f"{call.name} with a count that is no literal")
    return int(argument.sql)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An allowed aggregate or window function."""

    least: int
    most: int
    rule: Rule
    only_over: bool = False


AGGREGATES: Final = {
    "count": Aggregate(1, 1, _count),
    "sum": Aggregate(1, 1, _sum),
    "avg": Aggregate(1, 1, _avg),
    "min": Aggregate(1, 1, _extreme),
    "max": Aggregate(1, 1, _extreme),
    "bool_and": Aggregate(1, 1, _logical),
    "bool_or": Aggregate(1, 1, _logical),
    "every": Aggregate(1, 1, _logical),
    "string_agg": Aggregate(2, 2, _string_agg),
    "array_agg": Aggregate(1, 1, _array_agg),
    "row_number": Aggregate(0, 0, _ranked("row_number"), only_over=True),
    "rank": Aggregate(0, 0, _ranked("rank"), only_over=True),
    "dense_rank": Aggregate(0, 0, _ranked("dense_rank"), only_over=True),
    "percent_rank": Aggregate(0, 0, _fraction("percent_rank"), only_over=True),
    "cume_dist": Aggregate(0, 0, _fraction("cume_dist"), only_over=True),
    "ntile": Aggregate(1, 1, _ntile, only_over=True),
    "lag": Aggregate(1, 3, _shifted, only_over=True),
    "lead": Aggregate(1, 3, _shifted, only_over=True),
    "first_value": Aggregate(1, 1, _positioned, only_over=True),
    "last_value": Aggregate(1, 1, _positioned, only_over=True),
    "nth_value": Aggregate(2, 2, _positioned, only_over=True),
}


def aggregate(call: Call) -> Typed:
    """Translate the call."""
    known = AGGREGATES[call.name]
    if call.star:
        if call.name != "count":
            refuse(call.node, f"{call.name}(*)")
    elif not known.least <= len(call.arguments) <= known.most:
        raise no_function(call.node, call.name, call.arguments)
    if call.distinct and (call.window is not None or call.star):
        refuse(call.node, "DISTINCT over a window")
    if call.order and call.name not in ("string_agg", "array_agg"):
        refuse(call.node, f"ORDER BY inside {call.name}")
    if known.only_over and (call.condition or call.distinct or call.window is None):
        refuse(call.node, f"{call.name} in this place")
    return known.rule(call)

"""Calls of aggregates and window functions: DISTINCT, ORDER BY, FILTER, OVER, frames.

PostgreSQL has NULLs last in an order, and first where it descends; Spark the other way round: every
order is written with its NULLs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from sqlglot import exp

from headwater.adapter.dialect.aggregates import AGGREGATES, Call
from headwater.adapter.dialect.casts import coerce
from headwater.adapter.dialect.frames import frame, with_distance
from headwater.adapter.dialect.refusal import IN_SPARK, only, position, refuse
from headwater.adapter.dialect.scope import Scope
from headwater.adapter.dialect.typed import TEXT, UNKNOWN, Typed
from headwater.adapter.errors import SqlSyntaxError
from headwater.adapter.sql.query import folded


class Translator(Protocol):
    """Who translates the expressions inside a call."""

    def translate(self, node: Any, scope: Scope) -> Typed:
        """An expression."""
        ...

    def condition(self, node: Any, scope: Scope) -> str:
        """A boolean."""
        ...


def aggregate_call(expressions: Translator, node: Any, scope: Scope, **more: Any) -> Call:
    """A call of an aggregate, with whatever stands around it."""
    if isinstance(node, exp.Filter):
        condition = expressions.condition(node.expression.this, scope)
        return aggregate_call(expressions, node.this, scope, condition=condition, **more)
    name = function_name(node) if isinstance(node, exp.Anonymous) else ""
    if name not in AGGREGATES:
        refuse(node, f"{name or node.key} as an aggregate or window function", IN_SPARK)
    arguments, distinct, order = list(node.expressions), False, None
    if arguments and isinstance(arguments[-1], exp.Order):
        order = arguments[-1]
        arguments[-1] = order.this
    if arguments and isinstance(arguments[0], exp.Distinct):
        distinct = True
        inner = list(arguments[0].expressions)
        if inner and isinstance(inner[-1], exp.Order):
            order, inner[-1] = inner[-1], inner[-1].this
        arguments = [*inner, *arguments[1:]]
    if any(argument is None for argument in arguments):
        raise SqlSyntaxError("ORDER", position=position(node), detail="Nothing is to be ordered.")
    star = len(arguments) == 1 and isinstance(arguments[0], exp.Star)
    sorted_by = [] if order is None else order.expressions
    return Call(
        node,
        name,
        [] if star else [expressions.translate(argument, scope) for argument in arguments],
        star=star,
        distinct=distinct,
        order=tuple(ordering(item, expressions.translate(item.this, scope)) for item in sorted_by),
        ordered_by=tuple(expressions.translate(item.this, scope).sql for item in sorted_by),
        **more,
    )


def window_call(expressions: Translator, node: Any, scope: Scope) -> Call:
    """``call OVER (…)``: the window written out."""
    only(node, "this", "partition_by", "order", "spec", "alias", "over")
    definition = node
    if node.args.get("alias") is not None:
        name = folded(node.args["alias"])
        if name not in scope.windows or any(
            node.args.get(part) for part in ("partition_by", "order", "spec")
        ):
            refuse(node, "this use of a named window", "Write the window out.")
        definition = scope.windows[name]
    parts = []
    partition = definition.args.get("partition_by") or []
    if partition:
        keys = [coerce_known(expressions.translate(key, scope)).sql for key in partition]
        parts.append(f"PARTITION BY {', '.join(keys)}")
    order = definition.args.get("order")
    items = [] if order is None else order.expressions
    values: Sequence[Typed] = [expressions.translate(item.this, scope) for item in items]
    spec = definition.args.get("spec")
    if spec is not None:
        values = with_distance(spec, values)
    if values:
        ordered = map(ordering, items, values)
        parts.append(f"ORDER BY {', '.join(ordered)}")
    if spec is not None:
        parts.append(frame(spec, values, lambda value: expressions.translate(value, scope)))
    return aggregate_call(
        expressions, node.this, scope, window=" ".join(parts), window_ordered=order is not None
    )


def ordering(item: Any, value: Typed) -> str:
    """One item of an ORDER BY: PostgreSQL has NULLs last, and first where it descends."""
    only(item, "this", "desc", "nulls_first")
    if value.type == UNKNOWN:
        value = coerce(value, TEXT)
    if value.type.name in ("array", "jsonb", "map", "struct"):
        refuse(item, f"an order of {value.type.postgres}")
    return f"{value.sql} {direction(item)}"


def coerce_known(operand: Typed) -> Typed:
    """An untyped literal is text where nothing says otherwise."""
    return coerce(operand, TEXT) if operand.type == UNKNOWN else operand


def direction(item: Any) -> str:
    """``ASC NULLS LAST`` and its like."""
    descending = bool(item.args.get("desc"))
    nulls_first = item.args.get("nulls_first")
    first = descending if nulls_first is None else bool(nulls_first)
    return f"{'DESC' if descending else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"


def function_name(node: Any) -> str:
    """The name a call is made by, folded."""
    name = node.this
    return name.lower() if isinstance(name, str) else folded(name)

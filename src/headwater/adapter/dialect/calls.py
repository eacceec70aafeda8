"""Calls of aggregates and window functions: DISTINCT, ORDER BY, FILTER, OVER, frames.

PostgreSQL has NULLs last in an order, and first where it descends; Spark the other way round: every
order is written with its NULLs.
"""

from __future__ import annotations

from typing import Any, Protocol

from sqlglot import exp

from headwater.adapter.dialect.aggregates import AGGREGATES, Call
from headwater.adapter.dialect.casts import coerce
from headwater.adapter.dialect.refusal import only, refuse
from headwater.adapter.dialect.scope import Scope
from headwater.adapter.dialect.typed import TEXT, UNKNOWN, Typed
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
        refuse(node, f"{name or node.key} as an aggregate or window function")
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
    if order is not None:
        items = [ordering(i, expressions.translate(i.this, scope)) for i in order.expressions]
        parts.append(f"ORDER BY {', '.join(items)}")
    frame = definition.args.get("spec")
    if frame is not None:
        parts.append(_frame(frame, ordered=order is not None))
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


def _frame(spec: Any, *, ordered: bool) -> str:
    only(spec, "kind", "start", "start_side", "end", "end_side")
    kind = str(spec.args.get("kind") or "").upper()
    bounds = [
        _bound(spec, kind, spec.args.get("start"), spec.args.get("start_side")),
        _bound(spec, kind, spec.args.get("end") or "CURRENT ROW", spec.args.get("end_side")),
    ]
    if kind not in ("ROWS", "RANGE"):
        refuse(spec, f"a window frame of {kind}")
    if kind == "ROWS" and not ordered:
        refuse(spec, "a frame of rows in no order", "Add ORDER BY to the window.")
    return f"{kind} BETWEEN {bounds[0]} AND {bounds[1]}"


def _bound(spec: Any, kind: str, bound: Any, side: Any) -> str:
    if bound == "CURRENT ROW":
        return "CURRENT ROW"
    if bound == "UNBOUNDED":
        return f"UNBOUNDED {str(side).upper()}"
    if kind != "ROWS" or not isinstance(bound, exp.Literal) or not str(bound.this).isdigit():
        refuse(spec, "this bound of a window frame")
    return f"{bound.this} {str(side).upper()}"

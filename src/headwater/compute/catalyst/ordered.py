"""Aggregates and windows as Spark SQL in which no answer depends on the order rows happen to have.

Where a function is on a list of ``ir/functions.py``, rows are given the canonical order of the
whole row of the operator's input (``collection/order.py``). In an aggregate that is a number per
row of its group, :data:`RANK`, which the function is then asked by:

    first(x)           min_by(x, rank)            max_by(x, y)    max_by(x, (y, -rank)), y not NULL
    collect_list(x)    the values by rank         listagg(x)      … WITHIN GROUP (ORDER BY …, rank)
    collect_set(x)     the values in their order  mode(x)         the least of the most frequent
    collect_union(x)   likewise
    max(x), min(x)     a zero is 0.0, as in a group, never -0.0

A sum of whole numbers is exact whatever it passes through. As a sum of decimals it would make an
object of every row, so an aggregate adds up two halves of 32 bits, which as BIGINT is good for 2^31
rows of one group (more than that is an error, never a wrong sum):

    sum(x)  ==  sum(x >> 32) * 2^32 + sum(x & (2^32 - 1))

With ``DISTINCT`` the rows are gone and the values themselves are in their order. In a window it is
the last key of the order, except where ties must stay ties (``rank``, a ``RANGE`` frame): there a
function that depends on position is asked by the row's number in its partition. A ``RANGE`` frame
of a distance may reach beyond the ends of a type (``ranges.py``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final
from weakref import WeakSet

import msgspec

from headwater.collection.order import order_by_sql
from headwater.compute.catalyst import rounding
from headwater.compute.catalyst.ranges import WHOLE_NUMBERS, widened
from headwater.compute.catalyst.select import NOTHING, select
from headwater.compute.ir.expression import (
    AggregateCall,
    Column,
    Expression,
    SortKey,
    WindowCall,
    undirected,
)
from headwater.compute.ir.fallible import only_where
from headwater.compute.ir.functions import FLOATING, ORDERED, POSITIONAL, RANKING
from headwater.compute.ir.node import Aggregate, Window

RANK: Final = "_rank_0"
"""The number of a row in its group, in canonical order."""

_PREFIX: Final = "headwater_exact_"
SUM, AVERAGE, MOMENT, CO_MOMENT, VECTOR = (
    _PREFIX + what for what in ("sum", "average", "moment", "co_moment", "vector")
)

WHOLE: Final = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
"""The frame that is the partition."""
_BY_RANK: Final = "(a, b) -> CASE WHEN a.r < b.r THEN -1 WHEN a.r > b.r THEN 1 ELSE 0 END"
_ALIASES: Final = {
    "mean": "avg",
    "try_avg": "avg",
    "std": "stddev_samp",
    "stddev": "stddev_samp",
    "variance": "var_samp",
}
_ROUNDED: Final = ("float", "double")
_EXTREMES: Final = frozenset(
    {"min", "max", "first", "first_value", "any_value", "last", "last_value"}
)
"""Functions that are a least or a greatest value; those by order, where they are ``DISTINCT``."""
_JOINING: Final = ("listagg", "string_agg")
_WIDENED: Final = re.compile(r"CAST\((\w+) AS DECIMAL\((?:19|2\d|3\d),0\)\)")
"""A column in a decimal that has every BIGINT; its group is the column."""
_registered: Final[WeakSet[Any]] = WeakSet()


def register(session: Any, text: str) -> None:
    """Make the functions of ``rounding.py`` known to a session if the text calls any."""
    if _PREFIX not in text or session in _registered:
        return
    from pyspark.sql.functions import udf

    functions: dict[str, tuple[Callable[..., Any], str]] = {
        SUM: (rounding.exact_sum, "double"),
        AVERAGE: (rounding.exact_average, "double"),
        MOMENT: (rounding.exact_moment, "double"),
        CO_MOMENT: (rounding.exact_co_moment, "double"),
        VECTOR: (rounding.exact_vector, "array<float>"),
    }
    for name, (function, type_) in functions.items():
        # Asked for a plain function, PySpark does not read the type hints as another kind of it.
        session.udf.register(name, udf(function, type_, useArrow=False))
    _registered.add(session)


def total(order: Sequence[SortKey], columns: Iterable[Column]) -> str:
    """Return what follows ``ORDER BY``: these keys, then the canonical order of the whole row."""
    return _keys(order, _canonical(columns))


def _canonical(columns: Iterable[Column]) -> str:
    """Return the canonical order of these columns; of what is Spark's alone, by its JSON."""
    given = list(columns)
    every = [(column.name, column.sql_type.arrow) for column in given if not column.is_foreign]
    orders = [order_by_sql(every)] if every else []
    for column in given:
        if column.is_foreign:
            orders.append(f"to_json(named_struct('v', {column.name})) ASC NULLS FIRST")
        if column.type == "variant":
            # Equal as JSON, so they differ at most in their types.
            orders.append(f"schema_of_variant({column.name}) ASC NULLS FIRST")
    return ", ".join(orders)


def _keys(order: Sequence[SortKey], ties: str) -> str:
    return ", ".join([*(key.text for key in order), *([ties] if ties else [])])


def aggregate(node: Aggregate, source: str) -> str:
    """Return the SELECT of an aggregate over the rows named ``source``."""
    columns = node.input.columns
    made = [_only_where_kept(call, columns) for call in node.calls]
    lists = _lists(made)
    texts = [
        _as_list(call, lists[call.name]) if call.name in lists else _aggregate_call(call, columns)
        for call in made
    ]
    calls = [f"{text} AS {call.name}" for text, call in zip(texts, made, strict=True)]
    # With nothing to show it is one row all the same, which a SELECT without a call would not be.
    outputs = [*node.groups, *calls] or [f"count(1) AS {NOTHING}"]
    groups = f" GROUP BY {', '.join(node.groups)}" if node.groups else ""
    ties, ranks = _canonical(columns), {}
    if any(_needs_rank(call.function, call.distinct) for call in node.calls):
        ranks[RANK] = ranked(node.groups, (), ties)
    for call in made:
        if call.name in lists and not call.distinct:
            order = ", ".join(
                [*(key.text for key in call.arguments[2:]), *([ties] if ties else [])]
            )
            ranks[lists[call.name]] = _numbered(node.groups, order)
    if ranks:
        source = _with_ranks(source, columns, ranks)
    return select(outputs, source) + groups


def window(node: Window, source: str) -> str:
    """Return the SELECT of a window over the rows named ``source``."""
    partition = [expression.text for expression in node.partition]
    ties = _canonical(node.input.columns)
    texts = window_calls(node, partition, ties)
    outputs = [column.name for column in node.input.columns]
    outputs += [f"{text} AS {call.name}" for text, call in zip(texts, node.calls, strict=True)]
    if any(RANK in text for text in texts):
        ranks = {RANK: ranked(partition, node.order, ties)}
        source = _with_ranks(source, node.input.columns, ranks)
    return select(outputs, source)


def window_calls(node: Window, partition: Sequence[str], ties: str) -> list[str]:
    """Return the window's calls over this partition; those that ask for it mention :data:`RANK`.

    ``ties`` is the order of rows that the window's own order leaves open: they are all of the
    input's columns, or one that says the same.
    """
    return [_window_call(call, _over(node, call, partition, ties)) for call in node.calls]


def ranked(partition: Sequence[str], order: Sequence[SortKey], ties: str) -> str:
    """Return what :data:`RANK` is: the number of a row in its partition."""
    return _numbered(partition, _keys(order, ties))


def _numbered(partition: Sequence[str], order: str) -> str:
    by = f"PARTITION BY {', '.join(partition)} " if partition else ""
    # Rows of no columns are all equal: any number will do.
    return f"row_number() OVER ({by}ORDER BY {order or 'true'})"


def _with_ranks(source: str, columns: Sequence[Column], ranks: Mapping[str, str]) -> str:
    numbers = (f"{rank} AS {name}" for name, rank in ranks.items())
    return f"({select([*(column.name for column in columns), *numbers], source)})"


def _over(node: Window, call: WindowCall, partition: Sequence[str], ties: str) -> str:
    # A whole partition has no edge that ties could cross, except for what asks for a position.
    positions = call.frame != WHOLE or call.function in POSITIONAL - ORDERED
    total_order = call.function not in RANKING and call.frame.startswith("ROWS") and positions
    keys, frame = node.order, call.frame
    if frame.startswith("RANGE") and len(keys) == 1:
        value = keys[0].expression
        wide = widened(value.text, value.type, frame)
        if wide is not None:
            number = Expression(wide.order, "decimal(20,0)", True, value.columns)
            keys, frame = (msgspec.structs.replace(keys[0], expression=number),), wide.frame
    order = _keys(keys, ties if total_order else "")
    parts = [
        f"PARTITION BY {', '.join(partition)}" if partition else "",
        f"ORDER BY {order}" if order else "",
        # Without an order it is what it is anyway, and some functions do not bear it to be said.
        frame if order or frame != WHOLE else "",
    ]
    return f" OVER ({' '.join(part for part in parts if part)})"


def _needs_rank(function: str, distinct: bool) -> bool:
    return function in ORDERED - {"mode", "collect_set", "collect_union"} and not distinct


def _only_where_kept(call: AggregateCall, columns: Sequence[Column]) -> AggregateCall:
    """Return a call whose arguments do not fail on rows that its FILTER leaves out.

    Spark computes the arguments of all calls for all rows as soon as one of them is ``DISTINCT``.
    """
    arguments = tuple(_kept_where(argument, call.filter, columns) for argument in call.arguments)
    if arguments == call.arguments:
        return call
    before, after = (", ".join(one.text for one in them) for them in (call.arguments, arguments))
    text = call.text.replace(before, after, 1)
    return msgspec.structs.replace(call, arguments=arguments, text=text)


def _kept_where(
    argument: Expression, where: Expression | None, columns: Sequence[Column]
) -> Expression:
    """Return an argument that does not fail where the filter is not true; an order stays one."""
    value, direction = undirected(argument)
    kept = only_where(value, where, columns)
    return msgspec.structs.replace(kept, text=kept.text + direction)


def _aggregate_call(call: AggregateCall, columns: Sequence[Column]) -> str:
    if call.function in ORDERED:
        return _ordered(call, call.distinct, "")
    if call.function == "sum" and not call.distinct:
        widened = _WIDENED.fullmatch(call.arguments[0].text)
        whole = {column.name for column in columns if column.type == "bigint"}
        if widened is not None and widened[1] in whole:
            return f"CAST({_sum_of_halves(widened[1], call)} AS {call.type})"
    return _exact(call, call.distinct, "") or _unsigned_zero(call, call.text)


def _sum_of_halves(value: str, call: AggregateCall | WindowCall) -> str:
    """Return the exact sum of BIGINTs, a decimal."""
    high = f"sum(shiftright({value}, 32)){_filter(call)}"
    low = f"sum({value} & 4294967295){_filter(call)}"
    return f"(CAST({high} AS DECIMAL(20,0)) * 4294967296 + CAST({low} AS DECIMAL(20,0)))"


def _window_call(call: WindowCall, over: str) -> str:
    if call.function in ORDERED:
        return _ordered(call, False, over)
    if call.function == "nth_value" and call.frame.startswith("RANGE"):
        value, number = (argument.text for argument in call.arguments)
        listed = _listed(value, _filter(call, value if call.ignore_nulls else ""), over)
        return f"try_element_at({listed}, {number})"
    return _exact(call, False, over) or _unsigned_zero(call, f"{call.text}{over}")


def _filter(call: AggregateCall | WindowCall, not_null: str = "") -> str:
    conditions = [call.filter.text] if call.filter is not None else []
    if not_null:
        conditions.append(f"({not_null} IS NOT NULL)")
    return f" FILTER (WHERE {' AND '.join(conditions)})" if conditions else ""


def _listed(value: str, where: str, over: str, rank: str = RANK) -> str:
    rows = f"collect_list(named_struct('r', {rank}, 'v', {value})){where}{over}"
    return f"transform(array_sort({rows}, {_BY_RANK}), e -> e.v)"


def _ordered(call: AggregateCall | WindowCall, distinct: bool, over: str) -> str:
    """Return a call of a function of ``ORDERED`` that does not depend on the order of rows."""
    value = call.arguments[0].text
    match call.function:
        case "first" | "first_value" | "any_value" if not distinct:
            return f"min_by({value}, {RANK}){_not_null_if_asked(call, value)}{over}"
        case "last" | "last_value" if not distinct:
            return f"max_by({value}, {RANK}){_not_null_if_asked(call, value)}{over}"
        case "collect_list" | "array_agg" if not distinct:
            return _listed(value, _filter(call, value), over)
        case "max_by" | "min_by":
            by, *most = (argument.text for argument in call.arguments[1:])
            rank = f"-{RANK}" if call.function == "max_by" else RANK
            key = f"named_struct('y', {by}, 'r', {rank})"
            arguments = ", ".join([value, key, *most])
            return f"{call.function}({arguments}){_filter(call, by)}{over}"
        case "mode":
            within = call.text.startswith("mode()")
            return f"{call.text if within else f'mode({value}, true){_filter(call)}'}{over}"
        case function if function in _JOINING:
            return _joined(call, distinct, over)
        case "first" | "first_value" | "any_value":
            return _unsigned_zero(call, f"min({value}){_filter(call)}{over}")
        case "last" | "last_value":
            return _unsigned_zero(call, f"max({value}){_filter(call)}{over}")
        case "collect_union":
            return f"sort_array(collect_union({value}){_filter(call)}{over})"
        case _:
            return f"array_sort(collect_set({value}){_filter(call)}{over})"


def _unsigned_zero(call: AggregateCall | WindowCall, text: str) -> str:
    """Return the least or greatest of floats: Spark's has the sign of the zero that came first."""
    if call.type not in _ROUNDED or call.function not in _EXTREMES:
        return text
    return f"({text} + CAST(0 AS {call.type}))"


def _not_null_if_asked(call: AggregateCall | WindowCall, value: str) -> str:
    return _filter(call, value if call.ignore_nulls else "")


def _joined(call: AggregateCall | WindowCall, distinct: bool, over: str) -> str:
    value, separator, *keys = (argument.text for argument in call.arguments)
    once = "DISTINCT " if distinct else ""
    order = ", ".join(keys or [value]) if distinct else ", ".join([*keys, RANK])
    listed = f"listagg({once}{value}, {separator}) WITHIN GROUP (ORDER BY {order})"
    return f"{listed}{_filter(call)}{over}"


def _lists(calls: Sequence[AggregateCall]) -> dict[str, str]:
    """Return the calls that are written as the joined list of their values, and a rank for each.

    Beside a call of ``DISTINCT`` values Spark takes calls apart, and loses how ``listagg`` orders.
    """
    if not any(call.distinct for call in calls):
        return {}
    return {
        call.name: f"_rank_{number}"
        for number, call in enumerate(calls, 1)
        if call.function in _JOINING and call.arguments[0].type == "string"
    }


def _as_list(call: AggregateCall, rank: str) -> str:
    """Return a ``listagg`` as the list of its values, joined; NULL of none."""
    value, separator, *keys = call.arguments
    if call.distinct:
        is_up = not (keys and " DESC" in undirected(keys[0])[1])
        where = _filter(call)
        values = f"sort_array(collect_set({value.text}){where}, {str(is_up).lower()})"
    else:
        values = _listed(value.text, _filter(call, value.text), "", rank)
    return f"array_join(nullif({values}, CAST(array() AS ARRAY<STRING>)), {separator.text})"


def _whole_sum(call: AggregateCall | WindowCall, once: str, over: str) -> str:
    """Return the exact sum of whole numbers, a decimal."""
    value = call.arguments[0].text
    if once or over:
        return f"sum({once}CAST({value} AS DECIMAL(38,0))){_filter(call)}{over}"
    return _sum_of_halves(f"CAST({value} AS BIGINT)", call)


def _exact(call: AggregateCall | WindowCall, distinct: bool, over: str) -> str | None:
    """Return a call of a function of ``FLOATING`` that rounds once; ``None``: Spark's own does."""
    if call.function not in FLOATING:
        return None
    value = call.arguments[0]
    function = _ALIASES.get(call.function, call.function)
    collect, once = ("collect_set", "DISTINCT ") if distinct else ("collect_list", "")
    if function in ("sum", "try_sum"):
        if value.type in _ROUNDED:
            return f"{SUM}({collect}(CAST({value.text} AS DOUBLE)){_filter(call)}{over})"
        if value.type == "bigint":
            # Overflow is judged on the sum, not on what it passes through.
            cast = "CAST" if function == "sum" else "TRY_CAST"
            return f"{cast}({_whole_sum(call, once, over)} AS BIGINT)"
        return None
    if function == "avg":
        if value.type in _ROUNDED:
            return f"{AVERAGE}({collect}(CAST({value.text} AS DOUBLE)){_filter(call)}{over})"
        if value.type in WHOLE_NUMBERS:
            wide = _whole_sum(call, once, over)
            number = f"count({once}{value.text}){_filter(call)}{over}"
            return f"(CAST({wide} AS DOUBLE) / nullif({number}, 0))"
        return None
    if function in rounding.ONE:
        listed = f"{collect}(CAST({value.text} AS DOUBLE)){_filter(call)}{over}"
        return f"{MOMENT}('{function}', {listed})"
    if function in rounding.VECTOR:
        listed = f"{collect}({value.text}){_filter(call)}{over}"
        # Spark's own says whether there is an answer, and fails where vectors are of many lengths.
        return (
            f"CASE WHEN ({call.text}{over} IS NOT NULL) THEN {VECTOR}('{function}', {listed}) END"
        )
    if call.type.startswith("decimal"):
        return None  # regr_avgx and regr_avgy of decimals are averages of decimals
    first, second = (f"CAST({argument.text} AS DOUBLE)" for argument in call.arguments[:2])
    present = f"({first} IS NOT NULL AND {second} IS NOT NULL)"
    pair = f"CASE WHEN {present} THEN named_struct('a', {first}, 'b', {second}) END"
    return f"{CO_MOMENT}('{function}', {collect}({pair}){_filter(call)}{over})"

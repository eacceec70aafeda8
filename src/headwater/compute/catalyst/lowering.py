"""Operators that Catalyst has and we have not, said with those we have.

    at_most_one     a scalar subquery: its one value, NULL for none, an error for more
    exists          an uncorrelated EXISTS: the boolean as a row
    existence_join  EXISTS or IN under OR:  (L semi R, true)  +  (L anti R, false)
    single_join     a correlated scalar subquery: a left join, an error where a row finds two
    pivoted         PIVOT's own aggregate, as one ``max`` per value
    sessions        session windows: rows numbered by the gaps before them, then grouped
    of_one_column   regr_avgx(y, x)   ==  avg(CASE WHEN y IS NOT NULL THEN x END)
                    regr_sxx(y, x)    ==  regr_sxx(v, v), v being that; regr_avgy, regr_syy likewise

Each is a pure function on plans. Its texts are our own and not Catalyst's; the differential tests
run every one against Spark (``tests/spark/test_catalyst_roundtrip.py``).

Names made here begin with an underscore; those made from a query never do (``Printer.java``).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Final, TypeVar

import msgspec

from headwater.compute.ir.expression import (
    BOOLEAN,
    AggregateCall,
    Column,
    Expression,
    JoinKey,
    Named,
    SortKey,
    WindowCall,
)
from headwater.compute.ir.node import (
    Aggregate,
    Join,
    JoinKind,
    Node,
    Project,
    Union,
    Window,
    reference,
)
from headwater.compute.ir.refusal import Refused

BIGINT: Final = "bigint"
_TOO_MANY: Final = "raise_error('a subquery used as an expression returned more than one row')"
_ORDERLESS: Final = ("map<", "variant")

_OF_ONE: Final = {
    "regr_avgy": ("avg", 1),
    "regr_avgx": ("avg", -1),
    "regr_syy": ("regr_syy", 1),
    "regr_sxx": ("regr_sxx", -1),
}
"""Functions of pairs that look at one of them, the first or the last, and what says the same."""

Call = TypeVar("Call", bound=AggregateCall | WindowCall)


class Names:
    """Names that no query has."""

    def __init__(self) -> None:
        self._count = count(1)

    def fresh(self, what: str) -> str:
        """Return a new name that tells what it is."""
        return f"_{what}_{next(self._count)}"


def column_expression(column: Column) -> Expression:
    """Return the expression that is just a column."""
    return reference(column).expression


def passed(columns: Sequence[Column]) -> tuple[Named, ...]:
    """Return the outputs that pass columns on."""
    return tuple(map(reference, columns))


def _count(name: str) -> AggregateCall:
    one = Expression("1", "int", False)
    return AggregateCall(name, "count", "count(1)", BIGINT, False, (), (one,))


def _max(name: str, value: Expression) -> AggregateCall:
    if any(kind in value.type for kind in _ORDERLESS):
        raise Refused(
            "a subquery",
            f"its value is a {value.type}, which has no order",
            hint="select what you need of it, or write it as a join",
        )
    text = f"max({value.text})"
    return AggregateCall(name, "max", text, value.type, True, value.columns, (value,))


def yields_one_row(node: Node) -> bool:
    """Whether the node yields exactly one row whatever its inputs hold."""
    while isinstance(node, Project):
        node = node.input
    return isinstance(node, Aggregate) and not node.groups


def at_most_one(names: Names, subquery: Node, value: Column, output: Column) -> Node:
    """Return one row with the subquery's value under the name of ``output``."""
    if yields_one_row(subquery):
        return Project(subquery, (Named(output.name, column_expression(value)),))
    rows, found = names.fresh("rows"), names.fresh("value")
    counted = Aggregate(subquery, (), (_count(rows), _max(found, column_expression(value))))
    checked = Expression(
        f"CASE WHEN ({rows} > 1) THEN {_TOO_MANY} ELSE {found} END",
        value.type,
        True,
        tuple(sorted((rows, found))),
    )
    return Project(counted, (Named(output.name, checked),))


def exists(names: Names, subquery: Node, output: Column) -> Node:
    """Return one row: whether the subquery yields any."""
    rows = names.fresh("rows")
    counted = Aggregate(Project(subquery, ()), (), (_count(rows),))
    return Project(
        counted, (Named(output.name, Expression(f"({rows} > 0)", BOOLEAN, False, (rows,))),)
    )


def existence_join(
    left: Node,
    right: Node,
    keys: tuple[JoinKey, ...],
    residual: Expression | None,
    output: Column,
) -> Node:
    """Return the rows of ``left`` with a column that says whether they have a partner."""

    def branch(kind: JoinKind, text: str) -> Node:
        joined = Join(left, right, kind, keys, residual)
        found = Named(output.name, Expression(text, BOOLEAN, False))
        return Project(joined, (*passed(left.columns), found))

    columns = (*left.columns, Column(output.name, BOOLEAN, False))
    return Union((branch("semi", "true"), branch("anti", "false")), columns)


def single_join(
    names: Names,
    left: Node,
    right: Node,
    keys: tuple[JoinKey, ...],
    residual: Expression | None,
) -> Node:
    """Return the left join in which a row of ``left`` may have one partner and not two."""
    if residual is not None or not keys:
        raise Refused(
            "a correlated scalar subquery",
            "it may return several rows and is not correlated by equality alone",
            hint="aggregate in it, or write it as a join",
        )
    key_names = [names.fresh("key") for _ in keys]
    rows = names.fresh("rows")
    found = {column.name: names.fresh("value") for column in right.columns}
    keyed = Project(
        right,
        (
            *passed(right.columns),
            *(Named(n, key.right) for n, key in zip(key_names, keys, strict=True)),
        ),
    )
    calls = tuple(_max(found[c.name], column_expression(c)) for c in right.columns)
    grouped = Aggregate(keyed, tuple(key_names), (_count(rows), *calls))
    by_key = tuple(
        JoinKey(key.left, Expression(n, key.right.type, key.right.nullable, (n,)), key.comparison)
        for n, key in zip(key_names, keys, strict=True)
    )
    joined = Join(left, grouped, "left", by_key)
    values = (
        Named(
            column.name,
            Expression(
                f"CASE WHEN ({rows} > 1) THEN {_TOO_MANY} ELSE {found[column.name]} END",
                column.type,
                True,
                tuple(sorted((rows, found[column.name]))),
            ),
        )
        for column in right.columns
    )
    return Project(joined, (*passed(left.columns), *values))


def pivoted(
    names: Names, pivot: Expression, value: Expression, literals: Sequence[str]
) -> tuple[tuple[AggregateCall, ...], Expression]:
    """Return calls that pick the value for each literal, and the array of their results.

    Catalyst has grouped by the pivot column before, so each call sees at most one such row.
    """
    calls: list[AggregateCall] = []
    for literal in literals:
        columns = tuple(sorted({*pivot.columns, *value.columns}))
        text = f"CASE WHEN ({pivot.text} <=> {literal}) THEN {value.text} END"
        calls.append(_max(names.fresh("pivot"), Expression(text, value.type, True, columns)))
    picked = [call.name for call in calls]
    array = Expression(
        f"array({', '.join(picked)})", f"array<{value.type}>", False, tuple(sorted(picked))
    )
    return tuple(calls), array


def sessions(
    names: Names, source: Node, groups: Sequence[str], session: Column
) -> tuple[Node, str, tuple[AggregateCall, ...], Expression]:
    """Return rows numbered by session, the number's column, and how a session's struct is made.

    ``session`` has for each row the interval that it alone opens. In the order of their starts a
    row begins a new session iff it starts after every end before it; rows that start together are
    one session, whichever comes first.
    """
    known = {column.name: column for column in source.columns}
    by = tuple(column_expression(known[name]) for name in groups)
    moment = session.sql_type.parts[0][1].spark
    start, end, before, opens, number = (
        names.fresh(what) for what in ("start", "end", "before", "opens", "session")
    )
    bounds = Project(
        source,
        (
            *passed(source.columns),
            Named(start, Expression(f"{session.name}.start", moment, True, (session.name,))),
            Named(end, Expression(f"{session.name}.end", moment, True, (session.name,))),
        ),
    )
    from_start = SortKey(Expression(start, moment, True, (start,)))
    latest = WindowCall(
        name=before,
        function="max",
        text=f"max({end})",
        frame="ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING",
        type=moment,
        nullable=True,
        columns=(end,),
        arguments=(Expression(end, moment, True, (end,)),),
    )
    with_before = Window(bounds, by, (from_start,), (latest,))
    opening = Expression(
        f"CASE WHEN ({before} >= {start}) THEN 0 ELSE 1 END",
        "int",
        False,
        tuple(sorted((before, start))),
    )
    flagged = Project(with_before, (*passed(with_before.columns), Named(opens, opening)))
    # The row that opens comes first among those that start with it, also among equal rows.
    opener_first = SortKey(
        Expression(opens, "int", False, (opens,)), descending=True, nulls_first=False
    )
    running = WindowCall(
        name=number,
        function="sum",
        text=f"sum({opens})",
        frame="ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
        type=BIGINT,
        nullable=True,
        columns=(opens,),
        arguments=(Expression(opens, "int", False, (opens,)),),
    )
    numbered = Window(flagged, by, (from_start, opener_first), (running,))
    first, last = names.fresh("first"), names.fresh("last")
    edge = AggregateCall(
        first, "min", f"min({start})", moment, True, (start,), (from_start.expression,)
    )
    struct = Expression(
        f"named_struct('start', {first}, 'end', {last})",
        session.type,
        False,
        tuple(sorted((first, last))),
    )
    return numbered, number, (edge, _max(last, Expression(end, moment, True, (end,)))), struct


def of_one_column(call: Call) -> Call:
    """Return a call that looks at one of two columns as one which does not see the other.

    An infinity or a NaN in the other makes what is kept of a pair unknown, but not this. With
    ``DISTINCT`` each value of the column counts once, as in Spark, whatever it is paired with.
    """
    if call.function not in _OF_ONE:
        return call
    function, way = _OF_ONE[call.function]
    value, other = call.arguments[::way]
    if other.nullable and other.text != value.text:
        columns = tuple(sorted({*value.columns, *other.columns}))
        text = f"CASE WHEN ({other.text} IS NOT NULL) THEN {value.text} END"
        value = Expression(text, value.type, True, columns)
    arguments = (value,) if function == "avg" else (value, value)
    once = "DISTINCT " if isinstance(call, AggregateCall) and call.distinct else ""
    where = f" FILTER (WHERE {call.filter.text})" if call.filter is not None else ""
    text = f"{function}({once}{', '.join(argument.text for argument in arguments)}){where}"
    return msgspec.structs.replace(call, function=function, text=text, arguments=arguments)

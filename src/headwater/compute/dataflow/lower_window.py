"""The rules of what only Spark can compute of a group: windows, and aggregates without a rule.

    Versions ──▶ edge that begins with a window by version ──▶ Unversion
    Stretches ─▶ the same

    Window      every row of each version of a partition, with what the calls say of it
    Aggregate   the first row of each version of a group, with the calls over all of it; the group's
                key is shown as SQL shows it, not as the first row has it

Where all calls of a window look at a few rows before and after each row, or at what is near by its
value (``reach.py``), and the first key of its order has ranks (``ops/near.py``), stretches of
partitions are read instead of wholes.

Partition, order and arguments are computed in the edge before, and answers that may not fit their
type in the edge after (``lower_overflow.py``): there an error is data. ``DISTINCT`` is none of a
window's: such aggregates have no rule here.

**Without groups** there is always one row, also of no rows, which have no version:

    aggregate(R)  =  aggregate(R by a constant)  +  { what calls say of no rows } anti it

Kept by: this module, against an oracle (``tests/unit/dataflow/test_versions.py``) and against Spark
(``tests/spark/test_windows.py``). Relied on by: ``lower.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headwater.compute.catalyst.ordered import WHOLE
from headwater.compute.dataflow import graph
from headwater.compute.dataflow.edge import BEFORE, PLACE, UNTIL, VERSION_OF
from headwater.compute.dataflow.flow import (
    ONE,
    Builder,
    Context,
    Flow,
    Unruled,
    columns_of,
    filtered,
    kept,
    mapped,
    projected,
)
from headwater.compute.dataflow.graph import Laned, Sort
from headwater.compute.dataflow.lower_group import Inputs, by_field, has_rule
from headwater.compute.dataflow.lower_overflow import guards, judged
from headwater.compute.dataflow.needs import depends_on_whole_rows, names
from headwater.compute.dataflow.ops import stretches
from headwater.compute.dataflow.ops.stretches import NUMBER
from headwater.compute.dataflow.reach import Reach, reach_of
from headwater.compute.dataflow.texts import mentioned, with_columns
from headwater.compute.ir.expression import (
    BOOLEAN,
    AggregateCall,
    Column,
    Expression,
    JoinKey,
    Named,
    SortKey,
    WindowCall,
    undirected,
)
from headwater.compute.ir.fallible import only_where
from headwater.compute.ir.functions import POSITIONAL, RANKING
from headwater.compute.ir.node import (
    Aggregate,
    Join,
    Node,
    Project,
    Union,
    Values,
    Window,
    reference,
)

_FIRST: Final = Expression(f"({PLACE.name} = 1)", BOOLEAN, False, (PLACE.name,))
_ONLY: Final = Column("_only_0", "int", False)
_FLOATING: Final = ("float", "double")

_NULL_OF_NOTHING: Final = frozenset(
    {
        "any_value",
        "avg",
        "bit_and",
        "bit_or",
        "bit_xor",
        "bool_and",
        "bool_or",
        "corr",
        "covar_pop",
        "covar_samp",
        "every",
        "first",
        "first_value",
        "kurtosis",
        "last",
        "last_value",
        "listagg",
        "max",
        "max_by",
        "mean",
        "median",
        "min",
        "min_by",
        "mode",
        "percentile",
        "percentile_cont",
        "percentile_disc",
        "skewness",
        "some",
        "std",
        "stddev",
        "stddev_pop",
        "stddev_samp",
        "string_agg",
        "sum",
        "try_avg",
        "try_sum",
        "var_pop",
        "var_samp",
        "variance",
    }
)
"""Aggregates that Spark can compute over a window, and that are NULL of no rows."""
_OF_NOTHING: Final = {
    "approx_count_distinct": "0",
    "array_agg": "array()",
    "collect_list": "array()",
    "collect_set": "array()",
    "count": "0",
    "count_if": "0",
    "regr_count": "0",
}
"""The same, and what they are of no rows."""
_OTHERS: Final = frozenset({"count_min_sketch"})
"""The same, but what they are of no rows nobody can write down."""
_FALLIBLE: Final = frozenset({"counter_diff"})
"""Of a counter below zero, which only the window sees."""


# ---- windows ---------------------------------------------------------------------------------


def windowed(context: Context, node: Window, wanted: Sequence[str]) -> Flow:
    """Return the rows of a window."""
    calls = [call for call in node.calls if call.name in wanted]
    flow = context.flow(node.input)
    if not calls:
        return kept(flow, wanted)
    for call in calls:
        if not _is_known(call.function):
            raise Unruled(
                "window", f"{call.function}() may fail inside it, where no row is to blame"
            )
    inputs = Inputs(context.build)
    whole = columns_of(flow)
    for column in whole:
        inputs.column(reference(column).expression, "tie")
    keys = [name for key in node.partition for name in inputs.key("window", key)[0]]
    order = tuple(
        SortKey(_computed(inputs, key.expression, "order"), key.descending, key.nulls_first)
        for key in node.order
    )
    made = tuple(_over_columns(inputs, whole, call) for call in calls)
    ties = tuple(column.name for column in whole)
    parts, answers = _in_parts(context.build, made)
    needed = [*wanted, *_used(order, made)]
    reach = reach_of(made, order)
    if reach is None:
        versions = _versions(context.build, inputs, flow, keys, ties, needed)
    else:
        versions = _stretches(context.build, inputs, flow, keys, (order, ties), reach, needed)
    shown = [name for name in wanted if name not in answers]
    shown += [part.name for part in parts if part.name not in shown]
    rows = _unversioned(context.build, _by_version(versions, order, parts), shown)
    if not answers:
        return kept(rows, wanted)
    columns = {column.name: reference(column).expression for column in columns_of(rows)}
    return projected(rows, [Named(name, {**columns, **answers}[name]) for name in wanted])


def _is_known(function: str) -> bool:
    """Whether a call never fails over a window, but for what ``lower_overflow.py`` takes apart."""
    return (
        function in _NULL_OF_NOTHING | _OTHERS | RANKING | POSITIONAL - _FALLIBLE
        or function in _OF_NOTHING
        or function.startswith("regr_")
    )


def _stretches(
    build: Builder,
    inputs: Inputs,
    flow: Flow,
    keys: Sequence[str],
    order: tuple[tuple[SortKey, ...], tuple[str, ...]],
    reach: Reach,
    needed: Sequence[str],
) -> Flow:
    """Return the versions of what is around changes; ``order``: its keys, and ties."""
    origin = inputs.read(flow)
    by, ties = order
    columns = [column for column in origin.columns if column.name in needed]
    output = build.lane((VERSION_OF, PLACE, UNTIL, BEFORE, *columns))
    sorts = tuple(Sort(key.expression.text, key.descending, key.nulls_first) for key in by)
    state = build.state(stretches.state_columns(origin.columns), (NUMBER.name,), ordered=True)
    partition = tuple(dict.fromkeys(keys))
    build.add(
        graph.Stretches(
            origin,
            partition,
            sorts,
            ties,
            reach.before,
            reach.after,
            state,
            output,
            reach.by_value,
        )
    )
    return build.flow_of(output)


# ---- aggregates ------------------------------------------------------------------------------


def is_windowed(node: Aggregate, wanted: Sequence[str]) -> bool:
    """Whether an aggregate is kept by this module's rule."""
    return not has_rule([call for call in node.calls if call.name in wanted])


def grouped(context: Context, node: Aggregate, wanted: Sequence[str]) -> Flow:
    """Return the rows of an aggregate with groups."""
    calls = [call for call in node.calls if call.name in wanted]
    for call in calls:
        why = _why_not(call)
        if why is not None:
            raise Unruled("aggregate", why)
    if not node.groups:
        raise Unruled("aggregate", "what it is of no rows is not known")
    build = context.build
    inputs = Inputs(build)
    keys, groups = inputs.groups(node)
    ties: tuple[str, ...] = ()
    if depends_on_whole_rows(node):
        ties = names(node.input)
        for column in node.input.columns:
            inputs.column(reference(column).expression, "tie")
    made = tuple(_over_columns(inputs, node.input.columns, _over_all(call)) for call in calls)
    flow = context.flow(node.input)
    versions = _versions(build, inputs, flow, keys, ties, [*keys, *_used((), made)])
    parts, answers = _in_parts(build, made)
    rows = filtered(_by_version(versions, (), parts), _FIRST)
    shown = _unversioned(build, rows, [*dict.fromkeys(keys), *(part.name for part in parts)])
    results = {call.name: reference(call.column).expression for call in calls} | answers
    outputs = [Named(name, {**groups, **results}[name]) for name in wanted]
    return projected(_with_keys_as_shown(shown, keys), outputs)


def always_a_row(node: Aggregate) -> Node:
    """Return an aggregate without groups, and without a rule of its own, as one by a constant."""
    texts = [_of_nothing(call) for call in node.calls]
    if node.groups or has_rule(node.calls) or any(text is None for text in texts):
        return node
    only = Named(_ONLY.name, ONE)
    source = Project(node.input, (*map(reference, node.input.columns), only))
    there = Aggregate(source, (_ONLY.name,), node.calls)
    calls = [call.column for call in node.calls]
    one = Column("_never_0", "int", False)
    key = JoinKey(reference(one).expression, reference(_ONLY).expression)
    absent = Join(Values((one,), (("1",),)), there, "anti", (key,))
    of_nothing = tuple(
        Named(call.name, Expression(f"CAST({text} AS {call.type})", call.type, call.nullable))
        for call, text in zip(node.calls, texts, strict=True)
    )
    present = Project(there, tuple(map(reference, calls)))
    return Union((present, Project(absent, of_nothing)), tuple(calls))


def _why_not(call: AggregateCall) -> str | None:
    shown = f"{call.function}({', '.join(argument.type for argument in call.arguments)})"
    if call.distinct:
        return f"{shown} of DISTINCT values has no rule beside calls that need whole groups"
    known = call.function in _OTHERS or _of_nothing(call) is not None
    return None if known else f"{shown} has no rule"


def _of_nothing(call: AggregateCall) -> str | None:
    if call.distinct or call.function in _OTHERS:
        return None
    if call.function in _OF_NOTHING:
        return _OF_NOTHING[call.function]
    known = call.function in _NULL_OF_NOTHING or call.function.startswith("regr_")
    return "NULL" if known else None


def _over_all(call: AggregateCall) -> WindowCall:
    return WindowCall(
        call.name,
        call.function,
        call.text,
        WHOLE,
        call.type,
        call.nullable,
        call.columns,
        call.arguments,
        call.ignore_nulls,
        call.filter,
    )


def _with_keys_as_shown(flow: Flow, keys: Sequence[str]) -> Flow:
    """Return a group's zero as 0.0 and its NaN as the one there is, whatever row it is taken of."""

    def shown(column: Column) -> Named:
        if column.name not in keys or column.type not in _FLOATING:
            return reference(column)
        zero, nan = (f"CAST({value} AS {column.type})" for value in ("0", "'NaN'"))
        text = f"nanvl(({column.name} + {zero}), {nan})"
        return Named(column.name, Expression(text, column.type, True, (column.name,)))

    return projected(flow, [shown(column) for column in columns_of(flow)])


# ---- both ------------------------------------------------------------------------------------


def _versions(
    build: Builder,
    inputs: Inputs,
    flow: Flow,
    keys: Sequence[str],
    ties: tuple[str, ...],
    needed: Sequence[str],
) -> Flow:
    """Return the versions of the groups by ``keys``, with the columns that are needed of them."""
    by = [] if keys else [inputs.column(ONE, "one")]
    origin = inputs.read(flow)
    columns = [column for column in origin.columns if column.name in needed]
    output = build.lane((VERSION_OF, PLACE, UNTIL, BEFORE, *columns))
    arranged = build.arrangement(origin, by_field(origin, dict.fromkeys(keys)) or by)
    build.add(graph.Versions(origin, ties, arranged, output))
    return build.flow_of(output)


def _by_version(versions: Flow, order: tuple[SortKey, ...], calls: tuple[WindowCall, ...]) -> Flow:
    version = reference(VERSION_OF).expression
    return mapped(versions, lambda scan: Window(scan, (version,), order, calls))


def _unversioned(build: Builder, rows: Flow, wanted: Sequence[str]) -> Flow:
    origin = build.origin(kept(rows, [UNTIL.name, BEFORE.name, *wanted]))
    assert isinstance(origin, Laned), "versions are written by an operator"
    output = build.lane(origin.columns[2:])
    build.add(graph.Unversion(origin, output))
    return build.flow_of(output)


def _in_parts(
    build: Builder, calls: Sequence[WindowCall]
) -> tuple[tuple[WindowCall, ...], dict[str, Expression]]:
    """Return calls that cannot fail, and the answers of those that had to be taken apart."""
    parts: list[WindowCall] = []
    answers: dict[str, Expression] = {}
    for call in calls:
        found = judged(call, build.fresh)
        parts += [call] if found is None else found.parts
        if found is not None:
            answers[call.name] = found.answer
    return tuple(parts), answers


def _used(order: Sequence[SortKey], calls: Sequence[WindowCall]) -> list[str]:
    keys = [name for key in order for name in key.expression.columns]
    return [*keys, *(name for call in calls for name in call.columns)]


def _computed(inputs: Inputs, expression: Expression, what: str) -> Expression:
    """Return the column that has an expression's value; it is computed before the window."""
    name = inputs.column(expression, what)
    return reference(inputs.outputs[name].column).expression


def _over_columns(inputs: Inputs, columns: Sequence[Column], call: WindowCall) -> WindowCall:
    """Return the call with columns for its arguments, so that none of them fails in a window.

    An argument that has no column in it stays: where Spark asks for a literal, it must be one. A
    FILTER becomes a column always: of one that it knows to be false Spark makes a window function
    ``0``, and then does not know it. ``columns`` are those of the rows that the call is about.
    """
    named: dict[str, str] = {}
    guarded = guards(call)

    def as_column(expression: Expression, where: Expression | None) -> Expression:
        value, direction = undirected(expression)
        text = value.text
        value = Expression(text, value.type, True, value.columns)
        value = guarded.get(text, only_where(value, where, columns))
        name = named[text] = inputs.column(value, "argument")
        return Expression(name + direction, expression.type, True, (name,))

    arguments = tuple(
        as_column(argument, call.filter) if argument.columns else argument
        for argument in call.arguments
    )
    where = as_column(call.filter, None) if call.filter is not None else None
    text = with_columns(call.text, named)
    known = {column.name: column for column in columns}
    for name in mentioned(text):
        if name in known:
            inputs.column(reference(known[name]).expression, "argument")
    found = {*mentioned(text), *named.values()}
    return WindowCall(
        call.name,
        call.function,
        text,
        call.frame,
        call.type,
        call.nullable,
        tuple(sorted(found)),
        arguments,
        call.ignore_nulls,
        where,
    )

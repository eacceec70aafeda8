"""The rules of operators that look at groups of rows: aggregates, DISTINCT, bags and top-k.

    Aggregate   every call a function of sums      Accumulate: only the sums are kept
                else, of the rows of its group     Reduce: the rows are arranged by group
                else                               ``lower_window.py``
    Distinct    Distinct: how often each row is there
    Bag         Bag: how often each row is on either side
    TopK, and row_number() <= k                    TopK: the rows are arranged by partition

What an operator looks at are columns: arguments, filters, partitions and order are computed in the
edge before it and dropped in the edge after it. A struct that rows are grouped by is taken apart
before (it is no key, its fields may be) and put together after; a NULL struct and one of NULLs stay
two things.

Kept by: this module, against an oracle (``tests/unit/dataflow/test_random_plans.py``).
Relied on by: ``lower.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from headwater.compute.dataflow import graph
from headwater.compute.dataflow.flow import (
    ONE,
    Builder,
    Context,
    Flow,
    Unruled,
    columns_of,
    is_key,
    kept,
    projected,
)
from headwater.compute.dataflow.graph import (
    Accumulate,
    AccumulateCall,
    Origin,
    Reduce,
    ReduceCall,
    Scanned,
    Sort,
)
from headwater.compute.dataflow.needs import depends_on_whole_rows, names
from headwater.compute.dataflow.ops import accumulate, reduce, top_k
from headwater.compute.dataflow.ops import bag as bags
from headwater.compute.dataflow.ops import distinct as rows_once
from headwater.compute.dataflow.simplify import field_of
from headwater.compute.ir.expression import (
    NAME,
    AggregateCall,
    Column,
    Expression,
    Named,
    SortKey,
)
from headwater.compute.ir.fallible import only_where
from headwater.compute.ir.node import (
    Aggregate,
    Bag,
    Distinct,
    Filter,
    TopK,
    Window,
    reference,
)

_AT_MOST: Final = re.compile(rf"\(({NAME.pattern}) (<=|<|=) ([0-9]{{1,9}})\)")


# ---- keys ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Inputs:
    """The columns that an operator is to see, each once."""

    build: Builder
    outputs: dict[str, Named] = field(default_factory=dict)
    _by_text: dict[str, str] = field(default_factory=dict)

    def column(self, expression: Expression, what: str) -> str:
        """Return the column that has this expression's value."""
        if expression.is_column:
            name = expression.text
            self.outputs.setdefault(name, Named(name, expression))
            return name
        if expression.text not in self._by_text:
            name = self.build.fresh(what)
            self._by_text[expression.text] = name
            self.outputs[name] = Named(name, expression)
        return self._by_text[expression.text]

    def key(self, kind: str, expression: Expression) -> tuple[list[str], Expression]:
        """Return the columns that tell its values apart, and its value as made from them."""
        if is_key(expression):
            name = self.column(expression, "key")
            return [name], reference(self.outputs[name].column).expression
        type_ = Column("_c_0", expression.type, True).sql_type
        if type_.name != "struct":
            raise Unruled(kind, f"rows cannot be told apart by a {expression.type}")
        found: list[str] = []
        made: list[str] = []
        for name, part in type_.parts:
            columns, value = self.key(kind, field_of(expression, name, part.spark))
            found.extend(columns)
            literal = name.replace("\\", "\\\\").replace("'", "\\'")
            made.append(f"'{literal}', {value.text}")
        whole = f"named_struct({', '.join(made)})"
        if expression.nullable:
            test = Expression(f"({expression.text} IS NULL)", "boolean", False, expression.columns)
            null = self.column(test, "null")
            found.append(null)
            whole = f"CASE WHEN {null} THEN NULL ELSE {whole} END"
        return found, Expression(
            whole, expression.type, expression.nullable, tuple(sorted(set(found)))
        )

    def groups(self, node: Aggregate) -> tuple[list[str], dict[str, Expression]]:
        """Return the columns that tell the groups apart, and the groups' own made from them."""
        known = {column.name: column for column in node.input.columns}
        keys: list[str] = []
        made: dict[str, Expression] = {}
        for name in node.groups:
            columns, made[name] = self.key("aggregate", reference(known[name]).expression)
            keys.extend(columns)
        return keys, made

    def read(self, flow: Flow) -> Origin:
        """Return what the operator reads to see these columns of a flow."""
        return self.build.origin(projected(flow, tuple(self.outputs.values())))


def by_field(origin: Origin, columns: Iterable[str]) -> list[str]:
    """Return the columns of a key in an order on which all views agree, if they share it."""
    if not isinstance(origin, Scanned):
        return list(columns)
    fields = {f.column.name: f.field for f in origin.fields}
    return sorted(columns, key=lambda name: fields[name])


# ---- aggregates ------------------------------------------------------------------------------


def aggregated(context: Context, node: Aggregate, wanted: Sequence[str]) -> Flow:
    """Return the rows of an aggregate."""
    calls = [call for call in node.calls if call.name in wanted]
    summed = all(map(_is_summed, calls))
    inputs = Inputs(context.build)
    keys, groups = inputs.groups(node)
    flow = context.flow(node.input)
    if summed:
        made = _accumulate(context.build, flow, inputs, keys, node, calls)
    else:
        made = _reduce(context.build, flow, inputs, keys, node, calls)
    results = {call.name: reference(call.column).expression for call in calls}
    return projected(made, [Named(name, {**groups, **results}[name]) for name in wanted])


def _types(call: AggregateCall) -> list[str]:
    return [argument.type for argument in call.arguments]


def has_rule(calls: Sequence[AggregateCall]) -> bool:
    """Whether an aggregate of these calls is kept by an operator of its own."""
    return all(map(_is_summed, calls)) or all(map(_is_reducible, calls))


def _is_summed(call: AggregateCall) -> bool:
    return not call.distinct and accumulate.is_accumulable(call.function, _types(call))


def _is_reducible(call: AggregateCall) -> bool:
    if call.text.startswith("mode()"):
        return False  # Its ties follow an order of its own.
    return reduce.is_reducible(call.function, _types(call), call.distinct)


def _arguments(inputs: Inputs, call: AggregateCall, columns: Sequence[Column]) -> tuple[str, ...]:
    arguments: Sequence[Expression] = call.arguments
    if call.function == "count" and not call.distinct:
        # Only NULLs make a difference: count(1) counts rows, whatever is in them.
        arguments = [argument for argument in arguments if argument.nullable]
    computed = (only_where(argument, call.filter, columns) for argument in arguments)
    return tuple(inputs.column(argument, "argument") for argument in computed)


def _filter(inputs: Inputs, call: AggregateCall) -> str | None:
    return inputs.column(call.filter, "filter") if call.filter is not None else None


def _accumulate(
    build: Builder,
    flow: Flow,
    inputs: Inputs,
    keys: Sequence[str],
    node: Aggregate,
    calls: Sequence[AggregateCall],
) -> Flow:
    made = tuple(
        AccumulateCall(
            name=call.name,
            function=accumulate.canonical(call.function),
            type=call.type,
            arguments=_arguments(inputs, call, node.input.columns),
            filter=_filter(inputs, call),
        )
        for call in calls
    )
    return accumulated(build, inputs.read(flow), keys, made)


def accumulated(
    build: Builder, origin: Origin, groups: Sequence[str], calls: Sequence[AccumulateCall]
) -> Flow:
    """Return a row per group with what the calls yield."""
    columns = {column.name: column for column in origin.columns}
    results = (Column(call.name, call.type, True) for call in calls)
    output = build.lane((*(columns[name] for name in groups), *results))
    state = build.state(
        accumulate.state_columns(origin.columns, groups, calls), accumulate.state_key(groups)
    )
    build.add(Accumulate(origin, tuple(groups), tuple(calls), state, output))
    return build.flow_of(output)


def _reduce(
    build: Builder,
    flow: Flow,
    inputs: Inputs,
    keys: Sequence[str],
    node: Aggregate,
    calls: Sequence[AggregateCall],
) -> Flow:
    made = tuple(
        ReduceCall(
            name=call.name,
            function=reduce.canonical(call.function),
            type=call.type,
            arguments=_arguments(inputs, call, node.input.columns),
            filter=_filter(inputs, call),
            distinct=call.distinct,
            ignore_nulls=call.ignore_nulls,
        )
        for call in calls
    )
    ties: tuple[str, ...] = ()
    if depends_on_whole_rows(node):
        ties = names(node.input)
        for column in node.input.columns:
            inputs.column(reference(column).expression, "tie")
    by = [] if keys else [inputs.column(ONE, "one")]
    origin = inputs.read(flow)
    groups = by_field(origin, keys)
    known = {column.name: column for column in origin.columns}
    output = build.lane((*(known[n] for n in groups), *(call.column for call in calls)))
    operator = Reduce(
        input=origin,
        groups=tuple(groups),
        calls=made,
        arrangement=build.arrangement(origin, groups or by),
        output=output,
        ties=ties,
    )
    best = reduce.reduce_state(origin.columns, operator, groups or by)
    if best is not None:
        operator = replace(operator, state=build.state(best, groups or by))
    build.add(operator)
    return build.flow_of(output)


# ---- whole rows ------------------------------------------------------------------------------


def _taken_apart(
    context: Context, kind: str, columns: Sequence[Column]
) -> tuple[Inputs, Callable[[Flow], Flow]]:
    """Return whole rows as keys, and how they are put together again."""
    inputs = Inputs(context.build)
    made: list[Named] = []
    for column in columns:
        _, value = inputs.key(kind, reference(column).expression)
        made.append(Named(column.name, value))

    return inputs, lambda flow: projected(flow, made)


def distinct(context: Context, node: Distinct, wanted: Sequence[str]) -> Flow:
    """Return each row once."""
    build = context.build
    flow = context.flow(node.input)
    inputs, put_together = _taken_apart(context, "distinct", columns_of(flow))
    origin = inputs.read(flow)
    columns = origin.columns
    counts = build.state(rows_once.state_columns(columns), rows_once.state_key(columns))
    output = build.lane(origin.columns)
    build.add(graph.Distinct(origin, counts, output))
    return kept(put_together(build.flow_of(output)), wanted)


def bag(context: Context, node: Bag, wanted: Sequence[str]) -> Flow:
    """Return the rows of INTERSECT ALL or EXCEPT ALL."""
    build = context.build
    left, right = context.flow(node.left), context.flow(node.right)
    mine = columns_of(left)
    theirs = columns_of(right)
    both = [
        Column(a.name, a.type, a.nullable or b.nullable) for a, b in zip(mine, theirs, strict=True)
    ]
    as_mine = tuple(
        Named(a.name, reference(b).expression) for a, b in zip(mine, theirs, strict=True)
    )
    inputs, put_together = _taken_apart(context, node.kind, both)
    a = inputs.read(left)
    b = inputs.read(projected(right, as_mine))
    counts = build.state(bags.state_columns(a.columns), bags.state_key(a.columns))
    output = build.lane(a.columns)
    build.add(graph.Bag(node.kind, a, b, counts, output))
    return kept(put_together(build.flow_of(output)), wanted)


# ---- first rows ------------------------------------------------------------------------------


def top(context: Context, node: TopK, wanted: Sequence[str]) -> Flow:
    """Return the first rows."""
    return _top(context, context.flow(node.input), (), node.order, node.limit, node.offset, wanted)


def numbered_at_most(node: Filter) -> tuple[Window, int] | None:
    """Return the window and ``k`` of ``row_number() <= k``; ``None``: it is something else."""
    window = node.input
    found = _AT_MOST.fullmatch(node.condition.text)
    if found is None or not isinstance(window, Window) or len(window.calls) != 1:
        return None
    (call,) = window.calls
    if call.function != "row_number" or found[1] != call.name:
        return None
    return window, int(found[3]) - (1 if found[2] == "<" else 0)


def first_numbered(context: Context, window: Window, k: int, wanted: Sequence[str]) -> Flow:
    """Return the rows of a window whose ``row_number()`` is at most ``k``."""
    (call,) = window.calls
    flow = context.flow(window.input)
    return _top(context, flow, window.partition, window.order, k, 0, wanted, call.column)


def _top(
    context: Context,
    flow: Flow,
    partition: Sequence[Expression],
    order: Sequence[SortKey],
    limit: int | None,
    offset: int,
    wanted: Sequence[str],
    number: Column | None = None,
) -> Flow:
    build = context.build
    inputs = Inputs(build)
    whole = columns_of(flow)
    for column in whole:
        inputs.column(reference(column).expression, "tie")
    keys = [name for key in partition for name in inputs.key("top-k", key)[0]]
    sorts = tuple(
        Sort(inputs.column(key.expression, "order"), key.descending, key.nulls_first)
        for key in order
    )
    by = [] if keys else [inputs.column(ONE, "one")]
    origin = inputs.read(flow)
    keys = by_field(origin, dict.fromkeys(keys))
    output = build.lane((*whole, *((number,) if number is not None else ())))
    operator = graph.TopK(
        input=origin,
        partition=tuple(keys),
        order=sorts,
        ties=tuple(column.name for column in whole),
        limit=limit,
        offset=offset,
        arrangement=build.arrangement(origin, keys or by),
        output=output,
        number=number.name if number is not None else None,
    )
    first = top_k.top_k_state(origin.columns, operator)
    if first is not None:
        operator = replace(operator, state=build.state(first, keys or by))
    build.add(operator)
    return kept(build.flow_of(output), wanted)

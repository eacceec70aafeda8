"""A plan over its inputs at many times at once: one query whose rows say at which time they are.

    rows of at_times(node) with time t  ==  rows of node over its inputs at t,  for every time asked

The relations of such a plan have one column more, :data:`AT`: each row once per time at which it is
there. Every operator then works time by time: a join compares times too, groups and partitions have
the time among them, ``LIMIT`` is a row's number at its time. What has rows although its input has
none (an aggregate without groups, constants) is asked for every time of the relation
:data:`TIMES`.

So one Spark job recomputes a view at all its times, which makes it cheap to hold views against
Spark at *every* time. The columns of a lifted operator are those of the plain one, then the time.

Pure. Relied on by: ``testing/random_views.py``, and stories of tests that ask Spark at every time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from msgspec.structs import replace

from headwater.compute.ir.expression import (
    BOOLEAN,
    Column,
    Expression,
    Field,
    JoinKey,
    Named,
    WindowCall,
)
from headwater.compute.ir.node import (
    Aggregate,
    Bag,
    Distinct,
    Expand,
    Filter,
    Generate,
    Join,
    Node,
    Project,
    Scan,
    TopK,
    Union,
    Values,
    Window,
    reference,
)
from headwater.compute.ir.plan import OutputColumn, Plan

AT: Final = "at"
"""The column of a relation that says at which time its row is there."""
TIMES: Final = "times"
"""The relation of the times that are asked for: the one column :data:`AT`."""

_TYPE: Final = "bigint"
_UP_TO_HERE: Final = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"


def at_times(node: Node) -> Node:
    """Return the plan over all times; its last column is the time."""
    return _Lifting().lifted(node)


def plan_at_times(plan: Plan) -> Plan:
    """Return a whole plan over all times, in no order; it shows the time as :data:`AT`, last."""
    root = at_times(plan.root)
    outputs = (*plan.outputs, OutputColumn(AT, root.columns[-1].name))
    return replace(plan, root=root, outputs=outputs, order=())


def rows_at_times(tables: Mapping[int, pa.Table]) -> pa.Table:
    """Return what a relation has at each time as one table, with the time as :data:`AT`.

    >>> rows_at_times({3: pa.table({"x": [1, 2]}), 4: pa.table({"x": [2]})}).to_pydict()
    {'x': [1, 2, 2], 'at': [3, 3, 4]}
    """
    return pa.concat_tables(
        rows.append_column(AT, pa.array([time] * rows.num_rows, pa.int64()))
        for time, rows in tables.items()
    )


@dataclass
class _Lifting:
    _last: int = 0
    _known: dict[Node, Node] = field(default_factory=dict)

    def lifted(self, node: Node) -> Node:
        if node not in self._known:
            self._known[node] = self._lifted(node)
        return self._known[node]

    def _fresh(self, what: str = AT) -> str:
        self._last += 1
        return f"{what}__{self._last}"

    def _times(self) -> Node:
        return Scan(TIMES, (Field(AT, Column(self._fresh(), _TYPE, True)),))

    def _last_column(self, node: Node, columns: Sequence[Column], at: Column) -> Node:
        """Return these columns of a node, then the time under a name of its own."""
        named = Named(self._fresh(), reference(at).expression)
        return Project(node, (*map(reference, columns), named))

    def _lifted(self, node: Node) -> Node:
        match node:
            case Scan():
                at = Column(self._fresh(), _TYPE, True)
                return Scan(node.relation, (*node.fields, Field(AT, at)))
            case Values():
                times = self._times()
                (at,) = times.columns
                return self._last_column(Join(times, node, "inner"), node.columns, at)
            case Filter():
                return Filter(self.lifted(node.input), node.condition)
            case Project():
                below = self.lifted(node.input)
                at_below = Named(self._fresh(), reference(below.columns[-1]).expression)
                return Project(below, (*node.outputs, at_below))
            case Join():
                return self._join(node)
            case Aggregate():
                return self._aggregate(node)
            case Union():
                branches = tuple(map(self.lifted, node.branches))
                return Union(branches, (*node.columns, Column(self._fresh(), _TYPE, True)))
            case Bag():
                return Bag(node.kind, self.lifted(node.left), self.lifted(node.right))
            case Distinct():
                return Distinct(self.lifted(node.input))
            case Window():
                below = self.lifted(node.input)
                partition = (*node.partition, reference(below.columns[-1]).expression)
                numbered = Window(below, partition, node.order, node.calls)
                return self._last_column(numbered, node.columns, below.columns[-1])
            case TopK():
                return self._top(node)
            case Generate():
                below = self.lifted(node.input)
                made = Generate(below, node.generator, node.outputs, node.outer)
                return self._last_column(made, node.columns, below.columns[-1])
            case Expand():
                below = self.lifted(node.input)
                time = reference(below.columns[-1]).expression
                rows = tuple((*row, time) for row in node.projections)
                columns = (*node.columns, Column(self._fresh(), _TYPE, True))
                return Expand(below, rows, columns)
            case _:
                raise NotImplementedError(type(node).__name__)

    def _join(self, node: Join) -> Node:
        left, right = self.lifted(node.left), self.lifted(node.right)
        # Both sides may be the same operator of no columns; then they have the same name for it.
        right = self._last_column(right, right.columns[:-1], right.columns[-1])
        here, there = (reference(side.columns[-1]).expression for side in (left, right))
        keys = (*node.keys, JoinKey(here, there))
        joined = Join(left, right, node.kind, keys, node.residual)
        if node.kind in ("semi", "anti"):
            return joined
        text = f"CASE WHEN ({here.text} IS NULL) THEN {there.text} ELSE {here.text} END"
        either = Expression(text, _TYPE, True, tuple(sorted({here.text, there.text})))
        outputs = tuple(map(reference, node.columns))
        return Project(joined, (*outputs, Named(self._fresh(), either)))

    def _aggregate(self, node: Aggregate) -> Node:
        below = self.lifted(node.input)
        at = below.columns[-1]
        made = Aggregate(below, (*node.groups, at.name), node.calls)
        if node.groups:
            return self._last_column(made, node.columns, at)
        times = self._times()
        (time,) = times.columns
        key = JoinKey(reference(time).expression, reference(at).expression)
        every = Join(times, made, "left", (key,))
        outputs = [reference(replace(call.column, nullable=True)) for call in node.calls]
        for position, call in enumerate(node.calls):
            if not call.nullable:  # A count, or a list.
                none = "0" if call.type == _TYPE else "array()"
                text = f"CASE WHEN ({call.name} IS NULL) THEN CAST({none} AS {call.type}) "
                text += f"ELSE {call.name} END"
                outputs[position] = Named(
                    call.name, Expression(text, call.type, False, (call.name,))
                )
        return Project(every, (*outputs, Named(self._fresh(), reference(time).expression)))

    def _top(self, node: TopK) -> Node:
        below = self.lifted(node.input)
        at = reference(below.columns[-1]).expression
        place = self._fresh("place")
        call = WindowCall(place, "row_number", "row_number()", _UP_TO_HERE, "int", False)
        numbered = Window(below, (at,), node.order, (call,))
        text = f"({place} > {node.offset})"
        if node.limit is not None:
            text += f" AND ({place} <= {node.offset + node.limit})"
        picked = Filter(numbered, Expression(text, BOOLEAN, False, (place,)))
        return self._last_column(picked, node.columns, below.columns[-1])

"""From a plan to the dataflow that keeps it: one rule per kind of operator.

    lowered(root) = a Dataflow whose output at every time is the plan over its inputs at that time
                  | NoRule: some operator has no rule; the whole view is recomputed

    Filter, Project, Generate, Expand, Union   linear: edges (``flow.py``)
    inner Join                                 ``lower_join.py``
    semi, anti, left, right, full Join         ``lower_match.py``
    Aggregate, Distinct, Bag, TopK,
    row_number() <= k over a Window            ``lower_group.py``
    any other Window, other aggregates         ``lower_window.py``
    TemporalFilter                             ``lower_temporal.py``

Equal operators of a plan are lowered once: who reads them reads the same lane. Lanes carry only
what is needed (``needs.py``). The same plan always gives the same dataflow.

Pure. Kept by: this module and those it names, against an oracle on random plans
(``tests/unit/dataflow/test_random_plans.py``). Relied on by: whoever installs a view.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from headwater.collection.types import UnsupportedType
from headwater.compute.dataflow import (
    lower_group,
    lower_match,
    lower_temporal,
    lower_window,
)
from headwater.compute.dataflow.chain import Chain
from headwater.compute.dataflow.flow import (
    Builder,
    Flow,
    Unruled,
    filtered,
    kept,
    mapped,
    projected,
)
from headwater.compute.dataflow.graph import Dataflow
from headwater.compute.dataflow.lower_join import is_join, joined
from headwater.compute.dataflow.needs import names, needed
from headwater.compute.dataflow.passage_calls import why_not_called
from headwater.compute.dataflow.simplify import simplified
from headwater.compute.ir.expression import BOOLEAN, Expression, Named, is_foreign
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
    TemporalFilter,
    Text,
    TopK,
    Union,
    Values,
    Window,
    over,
    reference,
    walk,
)


@dataclass(frozen=True, slots=True)
class NoRule:
    """The kind of operator that no rule keeps, and why."""

    kind: str
    reason: str


Lowered = Dataflow | NoRule


def lowered(root: Node) -> Lowered:
    """Return how a plan is kept; ``root`` is what a view shows (``Plan.shown()``)."""
    for node in walk(root):
        foreign = next((type_ for type_ in _kept_types(node) if is_foreign(type_)), None)
        if foreign is not None:
            return NoRule("expression", f"a value of type {foreign} cannot be kept")
    root = _always_a_row(simplified(root))
    narrow = _lowered(root, narrows=True)
    wide = _lowered(root, narrows=False)
    if isinstance(narrow, NoRule) or isinstance(wide, NoRule) or narrow == wide:
        return _called(wide)
    # A passage more in every step is not worth the rows that are not arranged.
    return _called(narrow if Chain((narrow,)).depth <= Chain((wide,)).depth else wide)


def _called(flow: Lowered) -> Lowered:
    """Return the dataflow, if its edges, put together, call functions only where they can."""
    if isinstance(flow, NoRule):
        return flow
    whys = (why_not_called(carried.edge) for carried in Chain((flow,)).edges)
    why = next((why for why in whys if why is not None), None)
    return flow if why is None else NoRule("function", why)


def _kept_types(node: Node) -> Iterator[str]:
    """Yield the types of columns, and of what a rule would make a column of."""
    yield from (column.type for column in node.columns)
    match node:
        case Join():
            yield from (side.type for key in node.keys for side in (key.left, key.right))
        case Aggregate():
            yield from (argument.type for call in node.calls for argument in call.arguments)
        case TopK():
            yield from (key.expression.type for key in node.order)
        case Window():
            yield from (expression.type for expression in node.partition)
            yield from (key.expression.type for key in node.order)
            yield from (argument.type for call in node.calls for argument in call.arguments)
        case _:
            pass


def _lowered(root: Node, *, narrows: bool) -> Lowered:
    try:
        lowering = _Lowering(root, narrows)
        return lowering.build.finished(lowering.flow(root))
    except Unruled as unruled:
        return NoRule(unruled.kind, unruled.reason)
    except UnsupportedType as error:
        # A computed argument or key may have a type that no column can have.
        return NoRule("expression", str(error))


def _always_a_row(node: Node) -> Node:
    node = over(node, _always_a_row)
    return lower_window.always_a_row(node) if isinstance(node, Aggregate) else node


class _Lowering:
    """One plan."""

    def __init__(self, root: Node, narrows: bool) -> None:
        self.build = Builder(root)
        self.narrows = narrows
        self._needs = needed(root)
        self._readers = Counter(child for node in self._needs for child in node.inputs)
        self._flows: dict[Node, Flow] = {}

    def is_shared(self, node: Node) -> bool:
        """Whether more than one operator reads it."""
        return self._readers[node] > 1

    def flow(self, node: Node) -> Flow:
        """Return the rows of an operator, with the columns that are needed of it."""
        if node not in self._flows:
            wanted = [name for name in names(node) if name in self._needs[node]]
            self._flows[node] = self._flow(node, wanted)
        return self._flows[node]

    def _flow(self, node: Node, wanted: list[str]) -> Flow:
        match node:
            case Scan():
                fields = tuple(f for f in node.fields if f.column.name in wanted)
                return self.build.scanned(Scan(node.relation, fields))
            case Values():
                return self._values(node, wanted)
            case Filter():
                return self._filter(node, wanted)
            case Project():
                outputs = tuple(o for o in node.outputs if o.name in wanted)
                return projected(self.flow(node.input), outputs)
            case Generate():
                return self._generate(node, wanted)
            case Expand():
                return self._expand(node, wanted)
            case Union():
                return self._union(node, wanted)
            case Join():
                return self._join(node, wanted)
            case Aggregate() if lower_window.is_windowed(node, wanted):
                return lower_window.grouped(self, node, wanted)
            case Aggregate():
                return lower_group.aggregated(self, node, wanted)
            case Distinct():
                return lower_group.distinct(self, node, wanted)
            case Bag():
                return lower_group.bag(self, node, wanted)
            case TopK():
                return lower_group.top(self, node, wanted)
            case Text():
                raise Unruled("a recursive query", "it is run as a whole")
            case Window():
                return lower_window.windowed(self, node, wanted)
            case TemporalFilter():
                return lower_temporal.in_time(self, node, wanted)

    # ---- linear operators ------------------------------------------------------------------

    def _values(self, node: Values, wanted: list[str]) -> Flow:
        one = self.build.constant()
        columns = tuple(column for column in node.columns if column.name in wanted)
        if not node.rows:
            never = filtered(one, Expression("false", BOOLEAN, False))
            nulls = tuple(
                Named(c.name, Expression(f"CAST(NULL AS {c.type})", c.type, True)) for c in columns
            )
            return projected(never, nulls)
        if not columns and len(node.rows) == 1:
            return one
        places = [i for i, column in enumerate(node.columns) if column.name in wanted]
        rows = tuple(
            tuple(
                Expression(row[i], node.columns[i].type, node.columns[i].nullable) for i in places
            )
            for row in node.rows
        )
        return mapped(one, lambda below: Expand(below, rows, columns))

    def _filter(self, node: Filter, wanted: list[str]) -> Flow:
        if is_join(self, node):
            return joined(self, node, wanted)
        numbered = lower_group.numbered_at_most(node)
        if numbered is not None and not self.is_shared(node.input):
            window, k = numbered
            needed_of_it = [n for n in names(window) if n in {*wanted, *node.condition.columns}]
            flow = lower_group.first_numbered(self, window, k, needed_of_it)
        else:
            flow = self.flow(node.input)
        return kept(filtered(flow, node.condition), wanted)

    def _generate(self, node: Generate, wanted: list[str]) -> Flow:
        made = mapped(
            self.flow(node.input),
            lambda below: Generate(below, node.generator, node.outputs, node.outer),
        )
        return kept(made, wanted)

    def _expand(self, node: Expand, wanted: list[str]) -> Flow:
        places = [i for i, column in enumerate(node.columns) if column.name in wanted]
        rows = tuple(tuple(row[i] for i in places) for row in node.projections)
        columns = tuple(node.columns[i] for i in places)
        return mapped(self.flow(node.input), lambda below: Expand(below, rows, columns))

    def _union(self, node: Union, wanted: list[str]) -> Flow:
        places = [(i, name) for i, name in enumerate(names(node)) if name in wanted]
        flows = (
            projected(
                self.flow(branch),
                [Named(name, reference(branch.columns[i]).expression) for i, name in places],
            )
            for branch in node.branches
        )
        return tuple(piece for flow in flows for piece in flow)

    # ---- joins -----------------------------------------------------------------------------

    def _join(self, node: Join, wanted: list[str]) -> Flow:
        match node.kind:
            case "inner":
                return joined(self, node, wanted)
            case "semi" | "anti":
                return lower_match.matched(self, node, wanted)
            case "left" | "right" | "full":
                return lower_match.outer(self, node, wanted)

"""The dataflows of a step as one chain: Python stages with one pass of the JVM between two.

    stage 0 ──▶ passage 0 ──▶ stage 1 ──▶ passage 1 ──▶ … ──▶ stage n

A *stage* is one Python process that runs the operators of its level, of all views. A *passage* is
one pass over one stream of rows in which every lane of every view travels; it evaluates the edges
that need it (``passage.py``). All of it is one Spark stage in one partition, planned once and run
again for every step.

Edges that follow each other are composed here, so that each leads from an operator to an operator:

    level(operator) = max over what it reads of  level(its writer) + (1 if the edge needs the JVM)

An edge that only picks columns, or computes what a stage can (``native.py``), needs it not.

Lanes are numbered over all views: number = the view's base + the lane's place in its dataflow.

Pure; made by the driver, travels to the tasks with the plan. Relied on by: ``stage.py``,
``program.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from headwater.compute.dataflow.edge import Edge, Lane, lane_scan
from headwater.compute.dataflow.graph import (
    Dataflow,
    Exchanged,
    Laned,
    Operator,
    Output,
    Sink,
    origins,
)
from headwater.compute.dataflow.lanes import Stream
from headwater.compute.dataflow.native import Native, native
from headwater.compute.dataflow.operator import update_schema
from headwater.compute.dataflow.passage import NumberedEdge, passage_stream
from headwater.compute.ir.expression import Column, Named
from headwater.compute.ir.node import (
    Expand,
    Filter,
    Generate,
    Node,
    Project,
    Scan,
    Window,
    reference,
)
from headwater.compute.ir.refusal import InvalidPlan


@dataclass(frozen=True, slots=True)
class Placed:
    """An operator and the stage it runs in."""

    view: int
    operator: Operator
    level: int


@dataclass(frozen=True, slots=True)
class Carried:
    """An edge between two operators, with lanes numbered over all views."""

    edge: Edge
    level: int
    """The stage after which it is evaluated."""
    picked: tuple[str, ...] | None
    """Where it only picks columns: which; such an edge is part of the stage."""
    native: Native | None
    """Where the stage computes it: how."""

    @property
    def in_stage(self) -> bool:
        """Whether the stage that writes its source has it."""
        return self.picked is not None or self.native is not None


@dataclass(frozen=True)
class Chain:
    """Dataflows of several views, to be stepped together."""

    flows: tuple[Dataflow, ...]

    @cached_property
    def bases(self) -> tuple[int, ...]:
        """The number of each view's first lane."""
        bases, base = [], 0
        for flow in self.flows:
            bases.append(base)
            base += len(flow.lanes)
        return tuple(bases)

    @cached_property
    def lanes(self) -> dict[int, Lane]:
        """Every lane, by its number."""
        return {
            base + number: lane
            for base, flow in zip(self.bases, self.flows, strict=True)
            for number, lane in enumerate(flow.lanes)
        }

    @cached_property
    def schemas(self) -> dict[int, pa.Schema]:
        """By lane: what its updates look like."""
        return {number: update_schema(lane.columns) for number, lane in self.lanes.items()}

    @cached_property
    def _routes(self) -> tuple[tuple[Placed, ...], tuple[Carried, ...]]:
        placed: list[Placed] = []
        carried: list[Carried] = []
        for view, flow in enumerate(self.flows):
            operators, edges = _placed(view, flow, self.bases[view])
            placed += operators
            carried += edges
        return tuple(placed), tuple(carried)

    @property
    def operators(self) -> tuple[Placed, ...]:
        """Every operator, each after those it reads from."""
        return self._routes[0]

    @property
    def edges(self) -> tuple[Carried, ...]:
        """Every edge between two operators."""
        return self._routes[1]

    @cached_property
    def in_stage(self) -> dict[int, tuple[int, ...]]:
        """By the lane they leave: the numbers of the edges that its stage has."""
        found: dict[int, tuple[int, ...]] = {}
        for number, carried in enumerate(self.edges):
            if carried.in_stage:
                source = carried.edge.source
                found[source] = (*found.get(source, ()), number)
        return found

    @cached_property
    def depth(self) -> int:
        """How many stages there are."""
        return 1 + max(operator.level for operator in self.operators)

    @cached_property
    def last_read(self) -> dict[int, int]:
        """By lane: the last stage in which an operator reads it."""
        last: dict[int, int] = {}
        for placed in self.operators:
            for lane in read_lanes(placed.operator):
                number = self.bases[placed.view] + lane
                last[number] = max(last.get(number, 0), placed.level)
        return last

    def computed(self, level: int) -> tuple[NumberedEdge, ...]:
        """Return the edges that the passage after a stage evaluates."""
        return tuple(
            self.numbered(number)
            for number, carried in enumerate(self.edges)
            if carried.level == level and not carried.in_stage
        )

    def numbered(self, number: int) -> NumberedEdge:
        """Return an edge as passages know it: its number says which one failed."""
        edge = self.edges[number].edge
        return NumberedEdge(number, edge.source, edge.node, edge.target)

    def passed(self, level: int) -> frozenset[int]:
        """Return the lanes that the passage after a stage forwards as they are."""
        return frozenset(lane for lane, last in self.last_read.items() if last > level)

    def leaving(self, level: int) -> Stream:
        """Return the stream that a stage yields; after the last one only payloads are left."""
        return self._streams[level][1]

    def entering(self, level: int) -> Stream:
        """Return the stream that a stage is given by the passage before it."""
        return self._streams[level][0]

    @cached_property
    def _streams(self) -> tuple[tuple[Stream, Stream], ...]:
        return tuple((self._entering(level), self._leaving(level)) for level in range(self.depth))

    def _leaving(self, level: int) -> Stream:
        if level + 1 == self.depth:
            return Stream({})
        sources = {numbered.source for numbered in self.computed(level)}
        return Stream({lane: self.lanes[lane] for lane in self.passed(level) | sources})

    def _entering(self, level: int) -> Stream:
        if level == 0:
            return Stream({})
        return passage_stream(self.computed(level - 1), self.lanes, self.passed(level - 1))

    def prepared(self) -> Chain:
        """Return the chain with all that is derived of it, so that it travels with it."""
        _ = self.bases, self.lanes, self._routes, self.depth, self.last_read, self._streams
        _ = self.in_stage, self.schemas
        return self


def read_lanes(operator: Operator) -> tuple[int, ...]:
    """Return the lanes that an operator reads."""
    if isinstance(operator, Output | Exchanged):
        return (operator.lane,)
    return tuple(origin.lane for origin in origins(operator) if isinstance(origin, Laned))


def _placed(view: int, flow: Dataflow, base: int) -> tuple[list[Placed], list[Carried]]:
    writer: dict[int, int] = {}
    """Lane → the level of the operator that writes it."""
    placed: list[Placed] = []
    carried: list[Carried] = []
    routed: set[int] = set()
    incoming: dict[int, list[Edge]] = {}
    for edge in flow.edges:
        incoming.setdefault(edge.target, []).append(edge)
    for operator in flow.operators:
        level = 0
        for lane in read_lanes(operator):
            if lane in writer:
                level = max(level, writer[lane])
                continue
            routes = [_composed(flow, route) for route in _routes_to(lane, incoming)]
            if not routes:
                raise InvalidPlan(f"nothing is written into lane {lane} before it is read")
            for source, node in routes:
                edge = Edge(base + source, node, base + lane)
                picked = edge.picked()
                found = Carried(
                    edge, writer[source], picked, native(edge) if picked is None else None
                )
                level = max(level, writer[source] + (not found.in_stage))
                if lane not in routed:
                    carried.append(found)
            routed.add(lane)
        placed.append(Placed(view, operator, level))
        if not isinstance(operator, Sink):
            writer[operator.output] = level
    return placed, carried


def _routes_to(lane: int, incoming: dict[int, list[Edge]]) -> Iterator[tuple[Edge, ...]]:
    """Yield every way by edges from a lane that an operator writes, the first edge first."""
    for edge in incoming.get(lane, ()):
        if edge.source in incoming:
            for route in _routes_to(edge.source, incoming):
                yield (*route, edge)
        else:
            yield (edge,)


def _composed(flow: Dataflow, route: Sequence[Edge]) -> tuple[int, Node]:
    node: Node = lane_scan(flow.lanes[route[0].source].columns)
    for edge in route:
        node = _over(edge.node, _renamed(node, flow.lanes[edge.source].columns))
    return route[0].source, node


def _renamed(node: Node, columns: Sequence[Column]) -> Node:
    """Return the node under the names of the lane it is written into."""
    if [c.name for c in node.columns] == [c.name for c in columns]:
        return node
    pairs = zip(node.columns, columns, strict=True)
    return Project(node, tuple(Named(to.name, reference(own).expression) for own, to in pairs))


def _over(node: Node, source: Node) -> Node:
    """Return an edge's operators over ``source`` instead of its scan."""
    match node:
        case Scan():
            return source
        case Filter():
            return Filter(_over(node.input, source), node.condition)
        case Project():
            return Project(_over(node.input, source), node.outputs)
        case Generate():
            made = node.outputs
            return Generate(_over(node.input, source), node.generator, made, node.outer)
        case Expand():
            return Expand(_over(node.input, source), node.projections, node.columns)
        case Window():
            return Window(_over(node.input, source), node.partition, node.order, node.calls)
        case _:
            raise InvalidPlan(f"a {type(node).__name__} is not linear")

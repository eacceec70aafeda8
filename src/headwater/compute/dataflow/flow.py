"""A dataflow while it is being made: rows on their way, and the parts made so far.

*Rows on their way* (:data:`Flow`) are a union of pieces; a piece is a lane, or a stored collection,
and the linear chain that is still to be applied to it. Nothing is written for a chain until an
operator reads it: then its steps become one edge, however many there are, so that between two
operators there is one passage through the JVM and not several. Equal flows are one lane.

:class:`Builder` collects the parts. It gives names that no plan has: those of a plan that begin
with an underscore are numbered (``compute/catalyst/lowering.py``), and it goes on counting behind
them. Names ending in ``_0`` belong to the operators.

Kept by: this module. Relied on by: the rules (``lower.py``, ``lower_join.py``, ``lower_match.py``,
``lower_group.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from headwater.collection.key import NotAKey, key_form
from headwater.compute.dataflow.edge import Edge, Lane, lane_scan
from headwater.compute.dataflow.graph import (
    VERSION,
    Arrangement,
    Constant,
    Dataflow,
    Laned,
    Operator,
    Origin,
    Output,
    Read,
    Scanned,
    State,
)
from headwater.compute.dataflow.passage import why_not_linear
from headwater.compute.ir.expression import Column, Expression, Field, Named
from headwater.compute.ir.node import Filter, Node, Project, Scan, reference, walk

ONE: Final = Expression("1", "int", False)
"""The constant by which rows are brought together that no key relates."""


class Unruled(Exception):
    """Raised where no rule applies; ``lowered`` makes a value of it."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(f"{kind}: {reason}")
        self.kind, self.reason = kind, reason


@dataclass(frozen=True, slots=True)
class Piece:
    """The rows of a source after a chain of linear operators over it."""

    source: int | Scanned
    node: Node
    """A chain over ``lane_scan`` of the source's columns."""

    @property
    def picked(self) -> tuple[str, ...] | None:
        """The source's columns that are passed on; ``None``: the chain computes."""
        return Edge(0, self.node, 0).picked()


Flow = tuple[Piece, ...]


def columns_of(flow: Flow) -> tuple[Column, ...]:
    """Return the columns of a flow; one may be NULL if it may be in any piece."""
    return tuple(
        Column(same[0].name, same[0].type, any(column.nullable for column in same))
        for same in zip(*(piece.node.columns for piece in flow), strict=True)
    )


def mapped(flow: Flow, change: Callable[[Node], Node]) -> Flow:
    """Return the flow with a linear operator added to every piece."""
    return tuple(replace(piece, node=change(piece.node)) for piece in flow)


def projected(flow: Flow, outputs: Sequence[Named]) -> Flow:
    """Return each row of the flow mapped to these expressions."""
    return mapped(flow, lambda node: _project(node, tuple(outputs)))


def _project(node: Node, outputs: tuple[Named, ...]) -> Node:
    """Return the projection; one that only picks from another is part of that."""
    picks = [output.expression.text for output in outputs]
    if not all(output.expression.is_column for output in outputs):
        return Project(node, outputs)
    if picks == [o.name for o in outputs] == [column.name for column in node.columns]:
        return node
    if isinstance(node, Project) and len(set(picks)) == len(picks):
        made = {output.name: output.expression for output in node.outputs}
        return _project(node.input, tuple(Named(o.name, made[o.expression.text]) for o in outputs))
    return Project(node, outputs)


def kept(flow: Flow, names: Iterable[str]) -> Flow:
    """Return the flow with just these columns, in this order."""
    wanted = tuple(names)

    def picked(node: Node) -> Node:
        known = {column.name: column for column in node.columns}
        return _project(node, tuple(reference(known[name]) for name in wanted))

    return mapped(flow, picked)


def filtered(flow: Flow, condition: Expression) -> Flow:
    """Return the rows of the flow for which the condition is true."""
    return mapped(flow, lambda node: Filter(node, condition))


def computed(flow: Flow, outputs: Sequence[Named]) -> Flow:
    """Return the flow with these columns added."""
    if not outputs:
        return flow
    return mapped(flow, lambda node: _project(node, (*map(reference, node.columns), *outputs)))


def is_constant(key: Sequence[str]) -> bool:
    """Whether a key is the column that is the same in all rows."""
    return len(key) == 1 and key[0].startswith("_one_")


def is_key(type_: Column | Expression) -> bool:
    """Whether values of this type can be (part of) a key."""
    try:
        key_form(Column("_c_0", type_.type, True).sql_type.arrow)
    except NotAKey:
        return False
    return True


class Builder:
    """The parts of one dataflow."""

    def __init__(self, root: Node) -> None:
        numbers = (
            int(name.rpartition("_")[2])
            for node in walk(root)
            for name in _names(node)
            if name.startswith("_")
        )
        self._last = max(numbers, default=0)
        self._lanes: list[Lane] = []
        self._edges: list[Edge] = []
        self._operators: list[Operator] = []
        self._arrangements: dict[tuple[Origin, tuple[str, ...]], Arrangement] = {}
        self._states: list[State] = []
        self._reads: dict[Scanned, int] = {}
        self._written: dict[Flow, int] = {}
        self._constant: int | None = None

    def fresh(self, what: str) -> str:
        """Return a name that the plan does not have."""
        self._last += 1
        return f"_{what}_{self._last}"

    def lane(self, columns: Iterable[Column]) -> int:
        """Return a new lane with these columns."""
        self._lanes.append(Lane(tuple(columns)))
        return len(self._lanes) - 1

    def add(self, operator: Operator) -> None:
        """Add an operator; what it reads has been written by those before it."""
        self._operators.append(operator)

    def flow_of(self, lane: int) -> Flow:
        """Return the rows of a lane."""
        return (Piece(lane, lane_scan(self._lanes[lane].columns)),)

    def scanned(self, scan: Scan) -> Flow:
        """Return the rows of a stored collection."""
        return (Piece(Scanned(scan.relation, scan.fields), lane_scan(scan.columns)),)

    def constant(self) -> Flow:
        """Return the one row without columns that is always there."""
        if self._constant is None:
            self._constant = self.lane(())
            self.add(Constant(self._constant))
        return self.flow_of(self._constant)

    def lane_of(self, flow: Flow) -> int:
        """Return the lane that has the rows of a flow: the source's own, or one at its edges."""
        if flow in self._written:
            return self._written[flow]
        sources = [self._source(piece) for piece in flow]
        if len(flow) == 1 and isinstance(flow[0].node, Scan):
            lane = sources[0]
        else:
            lane = self.lane(columns_of(flow))
            for source, piece in zip(sources, flow, strict=True):
                edge = Edge(source, piece.node, lane)
                self._check(edge)
                self._edges.append(edge)
        self._written[flow] = lane
        return lane

    def _check(self, edge: Edge) -> None:
        *steps, _ = edge.chain()
        for step in steps:
            why = why_not_linear(step)
            if why is not None:
                raise Unruled(type(step).__name__.lower(), why)

    def _source(self, piece: Piece) -> int:
        if isinstance(piece.source, int):
            return piece.source
        if piece.source not in self._reads:
            lane = self.lane(piece.source.columns)
            self.add(Read(piece.source, lane))
            self._reads[piece.source] = lane
        return self._reads[piece.source]

    def origin(self, flow: Flow) -> Origin:
        """Return what an operator reads to have these rows: a stored collection if it does."""
        if len(flow) == 1 and isinstance(flow[0].source, Scanned):
            found = renamed(flow[0].source, flow[0])
            if found is not None:
                return found
        lane = self.lane_of(flow)
        return Laned(lane, self._lanes[lane].columns)

    def arrangement(self, of: Origin, key: Sequence[str]) -> str:
        """Return the name of the arrangement of an origin by a key; the same one is there once."""
        wanted = (of, tuple(key))
        if wanted not in self._arrangements:
            name = f"arrangement_{len(self._arrangements) + 1}"
            self._arrangements[wanted] = Arrangement(name, *wanted)
        return self._arrangements[wanted].name

    def state(self, columns: Iterable[Column], key: Sequence[str], *, ordered: bool = False) -> str:
        """Return the name of a new state."""
        name = f"state_{len(self._states) + 1}"
        self._states.append(State(name, tuple(columns), tuple(key), ordered))
        return name

    def finished(self, flow: Flow) -> Dataflow:
        """Return the dataflow whose output are these rows."""
        lane = self.lane_of(flow)
        return Dataflow(
            version=VERSION,
            lanes=tuple(self._lanes),
            edges=tuple(self._edges),
            operators=(*self._operators, Output(lane)),
            arrangements=tuple(self._arrangements.values()),
            states=tuple(self._states),
        )


class Context(Protocol):
    """What the rules know of the plan around them."""

    build: Builder
    narrows: bool
    """Whether a filter after a join is put below the arrangement of a lane."""

    def flow(self, node: Node) -> Flow:
        """Return the rows of an operator of the plan, with the columns needed of it."""
        ...

    def is_shared(self, node: Node) -> bool:
        """Whether more than one operator reads it."""
        ...


def renamed(source: Scanned, piece: Piece) -> Scanned | None:
    """Return the stored collection under the piece's names, if the piece does no more than pick."""
    picked = piece.picked
    if picked is None or len(set(picked)) != len(picked):
        return None
    fields = {field.column.name: field for field in source.fields}
    return Scanned(
        source.relation,
        tuple(
            Field(fields[name].field, column)
            for name, column in zip(picked, piece.node.columns, strict=True)
        ),
    )


def _names(node: Node) -> Iterable[str]:
    return (column.name for column in node.columns)

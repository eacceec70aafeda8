"""Lanes, and the edges between them: what flows in a dataflow, and what is done to it on the way.

A *lane* is a stream of updates ``(row, time, diff)`` with named columns. An *edge* maps each row of
one lane into rows of another: a chain of filters, projections, generators and expansions, without
state. One from a lane of *versions* may begin with a window, by version.

Kept by: the constructors. Relied on by: ``graph.py``, ``passage.py``, ``native.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from headwater.compute.ir.expression import Column, Field
from headwater.compute.ir.node import Expand, Filter, Generate, Node, Project, Scan, Window
from headwater.compute.ir.refusal import InvalidPlan

LANE: Final = "lane"
"""The relation that the scan at the bottom of an edge names: the rows of its source lane."""


VERSION_OF: Final = Column("_version_0", "bigint", False)
"""Of a row of a version: which one, of all of the step."""
PLACE: Final = Column("_place_0", "bigint", False)
"""Its number in the version, from 1 on: by the canonical order of its ties."""
UNTIL: Final = Column("_until_0", "bigint", True)
"""When the next version of its group begins; NULL: not in this step."""
BEFORE: Final = Column("_before_0", "boolean", False)
"""Whether the version is the one from before the step: its rows are there already."""


class Lane(msgspec.Struct, frozen=True):
    """The columns of a stream; its number is its place in the dataflow."""

    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its columns."""
        return tuple(column.name for column in self.columns)


class Edge(msgspec.Struct, frozen=True):
    """Rows of ``source`` mapped into ``target``, columns by position.

    ``node`` is a chain of filters, projections, generators and expansions over one scan of
    :data:`LANE`, whose fields are the source's columns under their own names; or over a window of
    it by :data:`VERSION_OF`.
    """

    source: int
    node: Node
    target: int

    def __post_init__(self) -> None:
        *chain, scan = self.chain()
        if not isinstance(scan, Scan) or scan.relation != LANE:
            raise InvalidPlan("an edge does not begin at its lane")
        if self.window is not None:
            chain.pop()
            if [e.text for e in self.window.partition] != [VERSION_OF.name]:
                raise InvalidPlan("a window in an edge is not by version")
        for step in chain:
            if not isinstance(step, Filter | Project | Generate | Expand):
                raise InvalidPlan(f"a {type(step).__name__} is not linear")

    @property
    def window(self) -> Window | None:
        """The window that it begins with, if any."""
        *steps, _ = self.chain()
        return steps[-1] if steps and isinstance(steps[-1], Window) else None

    def chain(self) -> Iterator[Node]:
        """Yield the operators from the last one down to the scan."""
        node = self.node
        while True:
            yield node
            if not node.inputs:
                return
            (node,) = node.inputs

    def picked(self) -> tuple[str, ...] | None:
        """Return the source's columns that are passed on, in order; ``None``: it computes."""
        (*chain, scan) = self.chain()
        origin = {column.name: column.name for column in scan.columns}
        for step in reversed(chain):
            if not isinstance(step, Project) or not all(
                o.expression.is_column for o in step.outputs
            ):
                return None
            origin = {o.name: origin[o.expression.text] for o in step.outputs}
        return tuple(origin[column.name] for column in self.node.columns)


def lane_scan(columns: tuple[Column, ...]) -> Scan:
    """Return the scan at the bottom of an edge whose source has these columns."""
    return Scan(LANE, tuple(Field(column.name, column) for column in columns))

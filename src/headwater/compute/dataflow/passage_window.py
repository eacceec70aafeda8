"""Windows in a passage: columns that are added to the stream before its edges are evaluated.

    stream in ──▶ SELECT *, __part ──▶ SELECT *, ranks ──▶ SELECT *, calls OVER … ──▶ the edges

An edge from a lane of versions may begin with a window by version (``graph.py``). It is Spark's own
window over the whole stream, in partitions of lane and version; a row of any other lane is a
partition of its own, and what a call looks at is NULL there: no value of another lane is ever
summed, compared or moved by the width of a frame.

    __part     of a lane of versions: the version; else a number that no other row has
    r_<edge>   the row's number in its version, where a call asks by it (``catalyst/ordered.py``)
    w_<edge>_<n>   the n-th call of the edge's window

Where an order is left open it is that of :data:`PLACE`, the canonical one. The stream is one
partition of Spark's, so a window sorts and exchanges nothing (``tests/spark/test_windows.py``): a
plan with an exchange could not be run again.

A call that fails would fail the step. Its arguments are columns of the lane, so what fails in
*them* has failed before, as data; a sum that may not fit its type is there in parts that do
(``lower_overflow.py``).

Kept by: this module. Relied on by: ``program.py``. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headwater.compute.catalyst import ordered
from headwater.compute.dataflow.edge import PLACE, VERSION_OF
from headwater.compute.dataflow.lanes import LANE, Stream
from headwater.compute.dataflow.passage import NumberedEdge, lane_names
from headwater.compute.dataflow.texts import replaced
from headwater.compute.ir.node import Window

PART: Final = "__part"
_BY: Final = (LANE, PART)


def window_layers(edges: Sequence[NumberedEdge], stream: Stream) -> list[list[str]]:
    """Return what to select from the stream before the edges, one ``selectExpr`` after another."""
    windows = [(edge, edge.edge.window) for edge in edges]
    windowed = [(edge, window) for edge, window in windows if window is not None]
    if not windowed:
        return []
    ranks: list[str] = []
    calls: list[str] = []
    for numbered, window in windowed:
        texts = _Texts(numbered, window, stream)
        ranks += texts.ranks()
        calls += texts.calls()
    layers = [_part(windowed, stream), ranks, calls]
    return [["*", *layer] for layer in layers if layer]


def _part(windowed: Sequence[tuple[NumberedEdge, Window]], stream: Stream) -> list[str]:
    versions = {edge.source: lane_names(edge.edge, stream)[VERSION_OF.name] for edge, _ in windowed}
    branches = " ".join(f"WHEN {lane} THEN {slot}" for lane, slot in sorted(versions.items()))
    return [f"CASE {LANE} {branches} ELSE monotonically_increasing_id() END AS {PART}"]


class _Texts:
    """The window of one edge."""

    def __init__(self, numbered: NumberedEdge, window: Window, stream: Stream) -> None:
        self.numbered, self.window = numbered, window
        self.names = {
            name: f"(CASE WHEN {LANE} = {numbered.source} THEN {slot} END)"
            for name, slot in lane_names(numbered.edge, stream).items()
        }
        # Without an order of its own the window's is the canonical one.
        own = f"r_{numbered.number}" if window.order else self.names[PLACE.name]
        self.names[ordered.RANK] = own
        self._calls = ordered.window_calls(window, _BY, PLACE.name)

    def ranks(self) -> list[str]:
        if not self.window.order or not any(ordered.RANK in text for text in self._calls):
            return []
        rank = ordered.ranked(_BY, self.window.order, PLACE.name)
        return [f"{replaced(rank, self.names)} AS r_{self.numbered.number}"]

    def calls(self) -> list[str]:
        columns = self.numbered.windowed().values()
        pairs = zip(self._calls, columns, strict=True)
        return [f"{replaced(text, self.names)} AS {column}" for text, column in pairs]

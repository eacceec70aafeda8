"""Where the nodes of a graph stand: columns in the direction of the data, few crossings.

A node stands one column to the right of the last of its inputs. An edge over several columns has a
place in each that it crosses, as a node has, so that it goes behind nobody. Within a column places
are ordered by the mean of their neighbours', swept to and fro a few times; ties keep the given
order, so that the picture does not jump when nothing changed. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

SWEEPS: Final = 4


@dataclass(frozen=True, slots=True)
class Placed:
    """A place in the grid: column from the left, row from the top (halves centre a column)."""

    id: str
    column: int
    row: float


Edge = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Layout:
    """A place for every node, and for every edge those that it goes through on its way."""

    nodes: tuple[Placed, ...]
    ways: Mapping[Edge, tuple[Placed, ...]]


def laid_out(ids: Sequence[str], edges: Sequence[Edge]) -> Layout:
    """Return where everything is.

    >>> found = laid_out(["a", "v", "w"], [("a", "v"), ("v", "w"), ("a", "w")])
    >>> [(p.id, p.column, p.row) for p in found.nodes]
    [('a', 0, 0.5), ('v', 1, 0.0), ('w', 2, 0.5)]
    >>> [(p.column, p.row) for p in found.ways["a", "w"]]
    [(1, 1.0)]
    """
    columns = _columns(ids, edges)
    chains = {edge: _chain(edge, columns) for edge in edges}
    for (source, _), chain in chains.items():
        columns |= {each: columns[source] + n for n, each in enumerate(chain[1:-1], 1)}
    layers: list[list[str]] = [[] for _ in range(max(columns.values(), default=-1) + 1)]
    for each, column in columns.items():
        layers[column].append(each)
    hops = [hop for chain in chains.values() for hop in pairwise(chain)]
    for sweep in range(SWEEPS):
        order = layers if sweep % 2 == 0 else layers[::-1]
        for layer in order:
            _arrange(layer, layers, hops)
    tallest = max((len(layer) for layer in layers), default=0)
    places = {
        each: Placed(each, column, row + (tallest - len(layer)) / 2)
        for column, layer in enumerate(layers)
        for row, each in enumerate(layer)
    }
    real = set(ids)
    return Layout(
        tuple(place for each, place in places.items() if each in real),
        {edge: tuple(places[each] for each in chain[1:-1]) for edge, chain in chains.items()},
    )


def _chain(edge: Edge, columns: Mapping[str, int]) -> list[str]:
    """Return the nodes of an edge and between them a name for each column that it crosses."""
    source, target = edge
    between = range(columns[source] + 1, columns[target])
    return [source, *(f"{source} → {target} {column}" for column in between), target]


def _columns(ids: Sequence[str], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    columns = dict.fromkeys(ids, 0)
    for _ in ids:  # As often as the longest path may be long.
        moved = False
        for source, target in edges:
            if columns[target] <= columns[source]:
                columns[target] = columns[source] + 1
                moved = True
        if not moved:
            break
    return columns


def _arrange(layer: list[str], layers: list[list[str]], edges: Sequence[tuple[str, str]]) -> None:
    place = {
        each: row + (max(map(len, layers)) - len(other)) / 2
        for other in layers
        for row, each in enumerate(other)
    }

    def mean(each: str) -> float:
        beside = [place[a] for a, b in edges if b == each] + [
            place[b] for a, b in edges if a == each
        ]
        return sum(beside) / len(beside) if beside else place[each]

    layer.sort(key=mean)

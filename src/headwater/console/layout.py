"""Where the nodes of a graph stand: columns in the direction of the data, few crossings.

A node stands one column to the right of the last of its inputs. Within a column nodes are ordered
by the mean place of their neighbours, swept to and fro a few times; ties keep the given order, so
that the picture does not jump when nothing changed. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

SWEEPS: Final = 4


@dataclass(frozen=True, slots=True)
class Placed:
    """A place in the grid: column from the left, row from the top (halves centre a column)."""

    id: str
    column: int
    row: float


def placed(ids: Sequence[str], edges: Sequence[tuple[str, str]]) -> tuple[Placed, ...]:
    """Return a place for every node.

    >>> [(p.id, p.column, p.row) for p in placed(["a", "b", "v"], [("a", "v"), ("b", "v")])]
    [('a', 0, 0.0), ('b', 0, 1.0), ('v', 1, 0.5)]
    """
    columns = _columns(ids, edges)
    layers: list[list[str]] = [[] for _ in range(max(columns.values(), default=-1) + 1)]
    for each in ids:
        layers[columns[each]].append(each)
    for sweep in range(SWEEPS):
        order = layers if sweep % 2 == 0 else layers[::-1]
        for layer in order:
            _arrange(layer, layers, edges)
    tallest = max((len(layer) for layer in layers), default=0)
    return tuple(
        Placed(each, column, row + (tallest - len(layer)) / 2)
        for column, layer in enumerate(layers)
        for row, each in enumerate(layer)
    )


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

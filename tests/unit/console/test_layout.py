"""Places of nodes: columns follow the data, and nobody stands on anybody."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.console.layout import Placed, laid_out


def placed(ids: list[str], edges: list[tuple[str, str]]) -> tuple[Placed, ...]:
    return laid_out(ids, edges).nodes


def test_a_diamond_keeps_its_shape() -> None:
    edges = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]
    places = {p.id: (p.column, p.row) for p in placed(["a", "b", "c", "d"], edges)}
    assert places == {"a": (0, 0.5), "b": (1, 0.0), "c": (1, 1.0), "d": (2, 0.5)}


def test_crossings_are_undone() -> None:
    edges = [("a", "y"), ("b", "x")]
    rows = {p.id: p.row for p in placed(["a", "b", "x", "y"], edges)}
    assert (rows["a"] < rows["b"]) == (rows["y"] < rows["x"])


def test_nothing_is_nowhere() -> None:
    assert placed([], []) == ()


@given(st.sets(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=25))
def test_data_flows_to_the_right(pairs: set[tuple[int, int]]) -> None:
    edges = [(f"n{a}", f"n{b}") for a, b in sorted(pairs) if a < b]
    found = laid_out([f"n{n}" for n in range(10)], edges)
    places = {p.id: p for p in found.nodes}
    crossed = [place for way in found.ways.values() for place in way]
    assert len({(p.column, p.row) for p in (*found.nodes, *crossed)}) == 10 + len(crossed)
    for source, target in edges:
        way = [places[source], *found.ways[source, target], places[target]]
        assert [p.column for p in way] == list(range(way[0].column, way[-1].column + 1))
        assert way[0].column < way[-1].column

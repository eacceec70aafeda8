"""Places of nodes: columns follow the data, and nobody stands on anybody."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.console.layout import placed


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
    places = {p.id: p for p in placed([f"n{n}" for n in range(10)], edges)}
    assert len({(p.column, p.row) for p in places.values()}) == 10
    for source, target in edges:
        assert places[source].column < places[target].column

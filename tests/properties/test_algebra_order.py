"""Laws of times and frontiers: partial order, bounded lattice, and what advancing preserves."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.algebra import order
from headwater.algebra.frontier import Frontier
from headwater.algebra.partitioned import PartitionedOffset, next_offset, source_frontier
from tests.strategies import (
    int_frontiers,
    partition_offsets,
    partitions,
    source_frontiers,
    source_times,
    source_times_antichains,
    times,
)

TIMES = [pytest.param(times, id="int"), pytest.param(source_times, id="partitioned")]
FRONTIERS = [
    pytest.param(int_frontiers, times, id="int"),
    pytest.param(source_times_antichains, source_times, id="partitioned"),
]
Data = st.DataObject


@pytest.mark.parametrize("elements", TIMES)
@given(data=st.data())
def test_times_are_partially_ordered(elements: st.SearchStrategy[Any], data: Data) -> None:
    a, b, c = (data.draw(elements) for _ in range(3))
    assert a <= a
    if a <= b and b <= a:
        assert a == b
    if a <= b and b <= c:
        assert a <= c


@pytest.mark.parametrize("elements", TIMES)
@given(data=st.data())
def test_join_is_the_least_upper_bound_where_there_is_one(
    elements: st.SearchStrategy[Any], data: Data
) -> None:
    a, b, c = (data.draw(elements) for _ in range(3))
    joined = order.join(a, b)
    assert joined == order.join(b, a)
    if joined is None:
        assert not (a <= c and b <= c)
    else:
        assert a <= joined
        assert b <= joined
        assert (joined <= c) == (a <= c and b <= c)


@pytest.mark.parametrize("elements", TIMES)
@given(data=st.data())
def test_meet_is_the_greatest_lower_bound(elements: st.SearchStrategy[Any], data: Data) -> None:
    a, b, c = (data.draw(elements) for _ in range(3))
    met = order.meet(a, b)
    assert met == order.meet(b, a)
    assert met <= a
    assert met <= b
    assert (c <= met) == (c <= a and c <= b)


@pytest.mark.parametrize(("frontiers", "elements"), FRONTIERS)
@given(data=st.data())
def test_frontier_operations_are_those_of_the_sets_beyond(
    frontiers: st.SearchStrategy[Any], elements: st.SearchStrategy[Any], data: Data
) -> None:
    """Meet is union, join is intersection, order is containment: the definition itself."""
    f, g, t = data.draw(frontiers), data.draw(frontiers), data.draw(elements)
    assert f.meet(g).allows(t) == (f.allows(t) or g.allows(t))
    assert f.join(g).allows(t) == (f.allows(t) and g.allows(t))
    if f <= g and g.allows(t):
        assert f.allows(t)
    if not f <= g:
        assert any(not f.allows(witness) for witness in g)


@pytest.mark.parametrize(("frontiers", "elements"), FRONTIERS)
@given(data=st.data())
def test_frontiers_are_a_distributive_lattice(
    frontiers: st.SearchStrategy[Any], elements: st.SearchStrategy[Any], data: Data
) -> None:
    f, g, h = (data.draw(frontiers) for _ in range(3))
    assert f.meet(g) == g.meet(f)
    assert f.join(g) == g.join(f)
    assert f.meet(f) == f.join(f) == f
    assert f.meet(g.meet(h)) == f.meet(g).meet(h)
    assert f.join(g.join(h)) == f.join(g).join(h)
    assert f.meet(f.join(g)) == f
    assert f.join(f.meet(g)) == f
    assert f.join(g.meet(h)) == f.join(g).meet(f.join(h))
    assert (f <= g) == (f.meet(g) == f) == (f.join(g) == g)
    assert (f <= g and g <= f) == (f == g)
    assert f != g or hash(f) == hash(g)
    assert f <= Frontier.closed()


@pytest.mark.parametrize(("frontiers", "elements"), FRONTIERS)
@given(data=st.data())
def test_advancing_is_invisible_beyond_the_frontier(
    frontiers: st.SearchStrategy[Any], elements: st.SearchStrategy[Any], data: Data
) -> None:
    f, s, t = data.draw(frontiers), data.draw(elements), data.draw(elements)
    advanced = f.advance(s)
    if f.allows(t):
        assert (s <= t) == (advanced is not None and advanced <= t)
    if advanced is not None:
        assert f.advance(advanced) == advanced


@pytest.mark.parametrize(("frontiers", "elements"), FRONTIERS)
@given(data=st.data())
def test_advancing_in_two_steps_is_advancing_once(
    frontiers: st.SearchStrategy[Any], elements: st.SearchStrategy[Any], data: Data
) -> None:
    f, s = data.draw(frontiers), data.draw(elements)
    g = f.join(data.draw(frontiers))
    first = f.advance(s)
    assert (None if first is None else g.advance(first)) == g.advance(s)


@given(partition_offsets, partitions, st.integers(0, 6))
def test_a_source_frontier_allows_what_was_not_ingested(
    offsets: dict[int | str, int], partition: int, offset: int
) -> None:
    """Also in partitions that it has never heard of."""
    frontier = source_frontier(offsets)
    record = PartitionedOffset.record(partition, offset)
    assert frontier.allows(record) == (offset >= offsets.get(partition, 0))
    assert next_offset(frontier, partition) == offsets.get(partition, 0)


@given(partition_offsets, partition_offsets)
def test_source_frontiers_compare_partition_by_partition(
    offsets: dict[int | str, int], others: dict[int | str, int]
) -> None:
    """The canonical form: no two frontiers say the same of all records and still differ."""
    named = {*offsets, *others}
    expected = all(offsets.get(p, 0) <= others.get(p, 0) for p in named)
    assert (source_frontier(offsets) <= source_frontier(others)) == expected


@given(source_frontiers, source_frontiers, partitions)
def test_source_frontiers_meet_and_join_by_offset(
    f: Frontier[PartitionedOffset], g: Frontier[PartitionedOffset], partition: int
) -> None:
    """A finished partition is later than every offset."""
    mine, theirs = next_offset(f, partition), next_offset(g, partition)
    present = [offset for offset in (mine, theirs) if offset is not None]
    assert next_offset(f.meet(g), partition) == min(present, default=None)
    expected = max(present) if len(present) == 2 else None
    assert next_offset(f.join(g), partition) == expected

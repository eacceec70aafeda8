"""Laws of Z-sets, of collections over time, and of batch descriptions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.algebra.description import Description, merged
from headwater.algebra.frontier import Frontier
from headwater.algebra.zset import Updates, ZSet
from tests.strategies import (
    descriptions,
    int_frontiers,
    keyed_zsets,
    source_times,
    source_times_antichains,
    source_updates,
    times,
    updates,
    zsets,
)

Keyed = ZSet[tuple[int, str]]


@given(zsets, zsets, zsets)
def test_zsets_are_a_commutative_group(a: ZSet[str], b: ZSet[str], c: ZSet[str]) -> None:
    zero: ZSet[str] = ZSet.empty()
    assert a + b == b + a
    assert a + (b + c) == (a + b) + c
    assert a + zero == a
    assert a - a == zero
    assert zero - (zero - a) == a
    assert hash(a + b) == hash(b + a)


@given(zsets, zsets, st.integers(-3, 3), st.integers(-3, 3))
def test_scaling_is_linear(a: ZSet[str], b: ZSet[str], m: int, n: int) -> None:
    assert (a + b).scale(m) == a.scale(m) + b.scale(m)
    assert a.scale(m) + a.scale(n) == a.scale(m + n)
    assert a.scale(m).scale(n) == a.scale(m * n)
    assert a.scale(m).total() == m * a.total()


@given(zsets, zsets)
def test_map_filter_and_flat_map_are_linear(a: ZSet[str], b: ZSet[str]) -> None:
    def merge(row: str) -> str:
        return "x" if row in "ab" else row

    def keep(row: str) -> bool:
        return row != "b"

    def double(row: str) -> tuple[str, ...]:
        return (row, row, "z")

    assert (a + b).map(merge) == a.map(merge) + b.map(merge)
    assert (a + b).filter(keep) == a.filter(keep) + b.filter(keep)
    assert (a + b).flat_map(double) == a.flat_map(double) + b.flat_map(double)
    assert a.map(merge).total() == a.total()


def _join(left: Keyed, right: Keyed) -> ZSet[tuple[int, str, str]]:
    return left.join(right, lambda row: row[0], lambda row: row[0], lambda x, y: (x[0], x[1], y[1]))


@given(keyed_zsets, keyed_zsets, keyed_zsets)
def test_join_is_bilinear(a: Keyed, b: Keyed, c: Keyed) -> None:
    assert _join(a + b, c) == _join(a, c) + _join(b, c)
    assert _join(a, b + c) == _join(a, b) + _join(a, c)
    assert _join(a, b).map(lambda row: (row[0], row[2], row[1])) == _join(b, a)


@given(keyed_zsets, keyed_zsets)
def test_join_is_the_filtered_product(a: Keyed, b: Keyed) -> None:
    product = [
        ((x[0], x[1], y[1]), m * n) for x, m in a.items() for y, n in b.items() if x[0] == y[0]
    ]
    assert _join(a, b) == ZSet.consolidate(product)


@given(zsets)
def test_distinct_forgets_counts_and_missing_rows(a: ZSet[str]) -> None:
    once = a.distinct()
    assert once.distinct() == once
    assert once.is_multiset
    assert set(once) == {row for row, count in a.items() if count > 0}
    assert sorted(once.rows()) == sorted(once)


@pytest.mark.parametrize(
    ("collections", "frontiers", "elements"),
    [
        pytest.param(updates, int_frontiers, times, id="int"),
        pytest.param(source_updates, source_times_antichains, source_times, id="partitioned"),
    ],
)
@given(data=st.data())
def test_advance_preserves_every_readable_time(
    collections: st.SearchStrategy[Any],
    frontiers: st.SearchStrategy[Any],
    elements: st.SearchStrategy[Any],
    data: st.DataObject,
) -> None:
    collection, since, time = data.draw(collections), data.draw(frontiers), data.draw(elements)
    advanced = collection.advance(since)
    if since.allows(time):
        assert advanced.at(time) == collection.at(time)
    assert advanced.advance(since) == advanced
    assert len(advanced) <= len(collection)
    later = since.join(data.draw(frontiers))
    assert advanced.advance(later) == collection.advance(later)


@given(updates, updates, times)
def test_reading_is_linear(a: Updates[str, int], b: Updates[str, int], time: int) -> None:
    assert (a + b).at(time) == a.at(time) + b.at(time)
    assert (a - b).at(time) == a.at(time) - b.at(time)


@given(updates, times)
def test_the_difference_of_two_reads_is_the_change(a: Updates[str, int], time: int) -> None:
    assert a.at(time) - a.at(time - 1) == a.change_at(time)
    assert Updates.from_changes({t: a.change_at(t) for t in a.times()}) == a


@given(updates, times, times, times)
def test_intervals_that_tile_hold_every_update_once(
    a: Updates[str, int], x: int, y: int, z: int
) -> None:
    first, second, third = sorted((x, y, z))
    whole = a.between(Frontier.of(first), Frontier.of(third))
    earlier = a.between(Frontier.of(first), Frontier.of(second))
    assert earlier + a.between(Frontier.of(second), Frontier.of(third)) == whole


@given(updates, descriptions(), times)
def test_a_compacted_batch_keeps_to_its_description(
    a: Updates[str, int], description: Description, time: int
) -> None:
    """The one guarantee of a description, and that `permits` knows all times that can result."""
    original = a.between(description.lower, description.upper)
    batch = original.advance(description.since)
    if description.readable_at(time):
        assert batch.at(time) == original.at(time)
    assert all(description.covers(t) for t in original.times())
    assert all(description.permits(t) for t in batch.times())


@given(updates, st.lists(times, min_size=2, max_size=5, unique=True), st.lists(times, min_size=5))
def test_merging_batches_preserves_what_can_be_read(
    a: Updates[str, int], bounds: list[int], sinces: list[int]
) -> None:
    bounds.sort()
    parts = [
        Description.of(lower, upper, since)
        for lower, upper, since in zip(bounds, bounds[1:], sinces, strict=False)
    ]
    batches = [a.between(part.lower, part.upper).advance(part.since) for part in parts]
    whole = merged(parts, Frontier.of(sinces[-1]))
    together: Updates[str, int] = sum(batches, Updates.empty())
    compacted = together.advance(whole.since)
    for time in range(14):
        if whole.readable_at(time):
            assert compacted.at(time) == a.between(whole.lower, whole.upper).at(time)
    assert all(whole.permits(t) for t in compacted.times())

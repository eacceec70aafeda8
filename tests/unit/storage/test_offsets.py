"""Offsets are the canonical frontiers of the algebra, as a table."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.algebra.partitioned import PartitionedOffset, next_offset, source_frontier
from headwater.storage.offsets import NOTHING, Offsets

tables = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 4), max_size=4)
offsets = tables.map(Offsets)


@given(offsets, offsets)
def test_the_order_is_the_one_of_the_algebra(a: Offsets, b: Offsets) -> None:
    assert (a <= b) == (a.frontier <= b.frontier)
    assert (a < b) == (a.frontier < b.frontier)
    assert (a == b) == (a.frontier == b.frontier)


@given(offsets, offsets, st.sampled_from("abcde"))
def test_meet_and_join_are_those_of_the_algebra(a: Offsets, b: Offsets, partition: str) -> None:
    for ours, theirs in (
        (a.meet(b), a.frontier.meet(b.frontier)),
        (a.join(b), a.frontier.join(b.frontier)),
    ):
        assert next_offset(theirs, partition) == ours[partition]


@given(tables, st.sampled_from("abcde"), st.integers(0, 5))
def test_what_may_still_come(table: dict[str, int], partition: str, offset: int) -> None:
    any_table: dict[int | str, int] = dict(table.items())
    allowed = source_frontier(any_table).allows(PartitionedOffset.record(partition, offset))
    assert Offsets(table).allows(partition, offset) == allowed


def test_a_partition_at_zero_is_one_never_seen() -> None:
    assert Offsets({"a": 0}) == NOTHING
    assert len(Offsets({"a": 0, "b": 2})) == 1
    assert "a" not in Offsets({"a": 0})
    assert hash(Offsets({"b": 2, "a": 1})) == hash(Offsets({"a": 1, "b": 2}))


def test_a_negative_offset_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        Offsets({"a": -1})


def test_many_partitions_compare_in_linear_time() -> None:
    """Not timed: with a comparison of every pair this would not end while somebody waits."""
    many = {f"file-{n:06}": n + 1 for n in range(100_000)}
    assert Offsets(many) <= Offsets({**many, "file-000000": 5})

"""Hypothesis strategies for our own types. Small domains: collisions are where the bugs are."""

from __future__ import annotations

from hypothesis import strategies as st

from headwater.algebra.description import Description
from headwater.algebra.frontier import Frontier
from headwater.algebra.partitioned import (
    Cut,
    PartitionedOffset,
    PartitionRange,
    SourceFrontier,
    source_frontier,
)
from headwater.algebra.zset import Updates, ZSet

times = st.integers(0, 12)
diffs = st.integers(-3, 3)
rows = st.sampled_from(["a", "b", "c", "d"])
keyed_rows = st.tuples(st.integers(0, 2), rows)

int_frontiers: st.SearchStrategy[Frontier[int]] = st.one_of(
    st.builds(Frontier.of, times), st.just(Frontier.closed())
)

partitions = st.integers(0, 4)
partition_offsets = st.dictionaries(partitions, st.integers(0, 5), max_size=4)


def _cuts() -> st.SearchStrategy[Cut]:
    inner = st.builds(Cut, partitions, st.sampled_from([-1, 1]))
    return st.one_of(st.just(Cut.START), inner, st.just(Cut.END))


@st.composite
def partition_ranges(draw: st.DrawFn) -> PartitionRange:
    lower, upper = draw(_cuts()), draw(_cuts())
    found = PartitionRange.between(lower, upper) or PartitionRange.between(upper, lower)
    return found or PartitionRange.single(draw(partitions))


source_times = st.builds(PartitionedOffset, partition_ranges(), st.integers(0, 5))
source_times_antichains: st.SearchStrategy[SourceFrontier] = st.lists(source_times, max_size=4).map(
    lambda found: Frontier.of(*found)
)
source_frontiers: st.SearchStrategy[SourceFrontier] = st.builds(
    source_frontier, partition_offsets, st.frozensets(partitions, max_size=2)
)

zsets: st.SearchStrategy[ZSet[str]] = st.lists(st.tuples(rows, diffs), max_size=8).map(
    ZSet.consolidate
)
keyed_zsets: st.SearchStrategy[ZSet[tuple[int, str]]] = st.lists(
    st.tuples(keyed_rows, diffs), max_size=8
).map(ZSet.consolidate)
updates: st.SearchStrategy[Updates[str, int]] = st.lists(
    st.tuples(rows, times, diffs), max_size=10
).map(Updates.consolidate)
source_updates: st.SearchStrategy[Updates[str, PartitionedOffset]] = st.lists(
    st.tuples(rows, source_times, diffs), max_size=8
).map(Updates.consolidate)


@st.composite
def descriptions(draw: st.DrawFn) -> Description:
    lower = draw(times)
    upper = draw(st.one_of(st.none(), st.integers(lower + 1, 16)))
    return Description.of(lower, upper, draw(times))

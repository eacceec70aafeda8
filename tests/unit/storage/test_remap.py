"""Remap and reclock with numbers: usage, frontiers, compaction, inversion, races, restarts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.storage.errors import BrokenRemap, CompactedBinding, UpstreamRegressed
from headwater.storage.offsets import NOTHING, Offsets
from headwater.storage.reclock import offsets_at, reclock_frontier, time_of, times_of
from headwater.storage.remap import Binding, Minted, Probe, Remap, mint
from headwater.storage.resumption import Uppers, resumption


def p(*offsets: int) -> Offsets:
    return Offsets({f"p{n}": offset for n, offset in enumerate(offsets)})


def minted(remap: Remap, at_ms: int, offsets: Offsets) -> Remap:
    found = mint("s", remap, Probe(at_ms, offsets))
    assert found is not None
    return remap.bind(found.binding.time, found.upper, found.binding.offsets)


# Three probes, at 1000, 2000 and 3000. Known before 3001.
REMAP = minted(minted(minted(Remap.empty(), 1000, p(3)), 2000, p(7, 2)), 3000, p(9, 2))


# ---- usage -----------------------------------------------------------------------------------


def test_the_first_binding_is_at_time_zero() -> None:
    assert [b.time for b in REMAP.bindings] == [0, 2000, 3000]
    assert REMAP.at(0) == p(3)
    assert REMAP.at(999) == REMAP.at(1999) == p(3)
    assert REMAP.at(2000) == p(7, 2)
    assert REMAP.upper == 3001


def test_also_where_nothing_is_upstream_yet() -> None:
    remap = minted(Remap.empty(), 1000, NOTHING)
    assert remap == Remap((Binding(0, NOTHING),), 0, 1001)
    assert minted(remap, 1500, p(1)).at(1500) == p(1)


def test_each_offset_has_the_time_of_the_first_binding_that_covers_it() -> None:
    assert times_of(REMAP, "p0", np.arange(9)).tolist() == [0, 0, 0, *[2000] * 4, 3000, 3000]
    assert times_of(REMAP, "p1", np.arange(2)).tolist() == [2000, 2000]
    assert time_of(REMAP, "p0", 9) is None
    assert time_of(REMAP, "p7", 0) is None


def test_a_record_that_is_not_bound_has_no_time() -> None:
    with pytest.raises(ValueError, match="offset 9 of partition 'p0' is not bound"):
        times_of(REMAP, "p0", np.array([1, 9]))


def test_a_probe_that_brings_nothing_just_moves_the_upper() -> None:
    found = mint("s", REMAP, Probe(4000, p(9, 2)))
    assert found is not None
    assert not found.changes
    assert found.updates().num_rows == 0
    assert REMAP.bind(4000, 4001, p(9, 2)) == Remap(REMAP.bindings, 0, 4001)


def test_a_clock_that_is_set_back_or_stands_still_mints_nothing() -> None:
    assert mint("s", REMAP, Probe(3000, p(10, 2))) is None
    assert mint("s", REMAP, Probe(17, p(10, 2))) is None


def test_a_probe_that_went_back_is_definite() -> None:
    with pytest.raises(UpstreamRegressed, match="partition 'p1' was at offset 2 and is at 0 now"):
        mint("s", REMAP, Probe(4000, p(12)))


# ---- frontiers, and their inverse --------------------------------------------------------------


@pytest.mark.parametrize(
    ("read", "complete"),
    [
        (NOTHING, 0),
        (p(2), 0),
        (p(3), 2000),
        (p(6, 2), 2000),
        (p(7, 1), 2000),
        (p(7, 2), 3000),
        (p(8, 9), 3000),
        (p(9, 2), 3001),
        (p(90, 20), 3001),
    ],
)
def test_a_frontier_of_the_source_completes_our_times_before(read: Offsets, complete: int) -> None:
    assert reclock_frontier(REMAP, read) == complete


@pytest.mark.parametrize(
    ("upper", "durable"),
    [
        (0, NOTHING),
        (1, p(3)),
        (2000, p(3)),
        (2001, p(7, 2)),
        (3000, p(7, 2)),
        (3001, p(9, 2)),
    ],
)
def test_inverted_it_is_the_binding_just_before(upper: int, durable: Offsets) -> None:
    assert offsets_at(REMAP, upper) == durable


def test_a_time_that_is_not_bound_cannot_be_inverted() -> None:
    with pytest.raises(ValueError, match="not bound yet"):
        offsets_at(REMAP, 3002)


# ---- compaction ------------------------------------------------------------------------------


def test_compaction_forgets_which_offset_had_which_time() -> None:
    compacted = REMAP.compact(2000)
    assert compacted == Remap((Binding(2000, p(7, 2)), Binding(3000, p(9, 2))), 2000, 3001)
    for offset in range(7):
        with pytest.raises(CompactedBinding, match="compacted to time 2000"):
            times_of(compacted, "p0", np.array([offset]))
    assert times_of(compacted, "p0", np.array([7, 8])).tolist() == [3000, 3000]
    with pytest.raises(CompactedBinding):
        compacted.at(1999)


def test_between_bindings_it_keeps_the_last_one() -> None:
    assert REMAP.compact(2500).bindings == (Binding(2500, p(7, 2)), Binding(3000, p(9, 2)))
    assert REMAP.compact(2500).compact(2100) == REMAP.compact(2500)


def test_it_never_goes_past_what_is_known() -> None:
    assert REMAP.compact(10**9) == Remap((Binding(3000, p(9, 2)),), 3000, 3001)


def test_compaction_to_the_resumption_time_itself_would_lose_where_to_resume() -> None:
    """What `strictly below` is for: an output complete before 3000 resumes at remap(2999)."""
    found = resumption(Uppers({"out": 3000}, 3000, REMAP.upper), REMAP)
    assert (found.time, found.offsets, found.remap_since) == (3000, p(7, 2), 2999)
    assert offsets_at(REMAP.compact(found.remap_since), 3000) == p(7, 2)
    with pytest.raises(CompactedBinding):
        offsets_at(REMAP.compact(found.time), 3000)


def test_restart_right_after_compaction() -> None:
    found = resumption(Uppers({"out": 3000}, 3000, REMAP.upper), REMAP)
    again = REMAP.compact(found.remap_since)
    assert resumption(Uppers({"out": 3000}, 3000, again.upper), again) == found
    # Everything from there on has the time it had before.
    assert times_of(again, "p0", np.array([7, 8])).tolist() == [3000, 3000]
    # And the source goes on.
    assert minted(again, 4000, p(12, 3)).at(4000) == p(12, 3)


# ---- resumption ------------------------------------------------------------------------------


@pytest.mark.parametrize("behind", ["a", "b", "dead_letters", "remap"])
def test_whatever_is_behind_holds_all_of_it_back(behind: str) -> None:
    uppers: dict[str, int] = dict.fromkeys(["a", "b", "dead_letters", "remap"], 3001)
    uppers[behind] = 2000
    found = resumption(
        Uppers({n: uppers[n] for n in "ab"}, uppers["dead_letters"], uppers["remap"]), REMAP
    )
    assert (found.time, found.offsets) == (2000, p(3))


def test_a_new_output_starts_from_the_beginning() -> None:
    found = resumption(Uppers({"a": 3001, "new": 0}, 3001, 3001), REMAP)
    assert (found.time, found.offsets, found.remap_since) == (0, NOTHING, 0)


# ---- as a collection -------------------------------------------------------------------------


def rows_of(found: Minted) -> list[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = found.updates().to_pylist()
    return rows


def test_a_binding_retracts_what_it_replaces() -> None:
    first = Remap.empty().bind(0, 1001, p(3, 1))
    found = mint("s", first, Probe(2000, p(7, 1, 4)))
    assert found is not None
    assert rows_of(found) == [
        {"partition": "p0", "offset": 3, "__time": 2000, "__diff": -1},
        {"partition": "p0", "offset": 7, "__time": 2000, "__diff": 1},
        {"partition": "p2", "offset": 4, "__time": 2000, "__diff": 1},
    ]


def test_a_collection_that_is_no_remap_is_refused() -> None:
    row = {"partition": "p0", "offset": 3, "__time": 0, "__diff": 1}
    for rows, why in (
        ([row, row], "not one offset"),
        ([row, {**row, "offset": 4}], "not one offset"),
        ([row, {**row, "__time": 5, "__diff": -1}], "goes back"),
    ):
        with pytest.raises(BrokenRemap, match=why):
            Remap.read(rows, 0, 10)
    with pytest.raises(BrokenRemap):
        Remap((Binding(3, p(1)),), 0, 10)


# ---- properties ------------------------------------------------------------------------------

steps = st.lists(
    st.tuples(st.integers(1, 4), st.tuples(st.integers(0, 3), st.integers(0, 3))), max_size=8
)


def told(story: list[tuple[int, tuple[int, int]]]) -> tuple[Remap, list[Mapping[str, Any]]]:
    """Mint a binding per step: so much later, so much further in each partition."""
    remap, rows, now, at = Remap.empty(), list[Mapping[str, Any]](), 0, (0, 0)
    for later, (a, b) in story:
        now, at = now + later, (at[0] + a, at[1] + b)
        found = mint("s", remap, Probe(now, p(*at)))
        assert found is not None
        rows += rows_of(found)
        remap = remap.bind(found.binding.time, found.upper, found.binding.offsets)
    return remap, rows


@given(steps)
def test_a_remap_is_what_its_collection_says(story: list[tuple[int, tuple[int, int]]]) -> None:
    remap, rows = told(story)
    assert Remap.read(rows, 0, remap.upper) == remap


@given(steps, st.integers(0, 40))
def test_starting_at_a_since_is_having_compacted_to_it(
    story: list[tuple[int, tuple[int, int]]], since: int
) -> None:
    remap, rows = told(story)
    since = max(0, min(since, remap.upper - 1))
    compacted = remap.compact(since)
    if remap.upper:
        assert Remap.read(rows, since, remap.upper) == compacted
    for time in range(since, remap.upper):
        assert compacted.at(time) == remap.at(time)


@given(steps, st.integers(0, 1), st.integers(0, 24))
def test_reclock_is_the_definition(
    story: list[tuple[int, tuple[int, int]]], partition: int, offset: int
) -> None:
    """A record is there at exactly the times whose binding it is not beyond."""
    remap, _ = told(story)
    name = f"p{partition}"
    first = time_of(remap, name, offset)
    for time in range(remap.upper):
        there = not remap.at(time).allows(name, offset)
        assert there == (first is not None and first <= time)


@given(steps, st.integers(0, 24), st.integers(0, 24))
def test_a_frontier_and_its_inverse(
    story: list[tuple[int, tuple[int, int]]], a: int, b: int
) -> None:
    remap, _ = told(story)
    read = p(a, b)
    complete = reclock_frontier(remap, read)
    # The definition: exactly the times whose whole content was read.
    assert all(remap.at(time) <= read for time in range(complete))
    assert complete == remap.upper or not remap.at(complete) <= read
    assert offsets_at(remap, complete) <= read
    for upper in range(remap.upper + 1):
        assert reclock_frontier(remap, offsets_at(remap, upper)) >= upper

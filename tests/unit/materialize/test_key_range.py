"""Key hashes and key ranges."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.materialize.key_range import (
    KEY_HASH_MAX,
    InvalidKeyRange,
    KeyHash,
    KeyRange,
    key_hash,
    key_hashes,
    tiles,
)
from headwater.materialize.tuples import pack
from tests.formats.packed_tuple_vectors import FLOW_KEY_HASHES, vectors

HASHES = st.integers(0, KEY_HASH_MAX).map(KeyHash) | st.integers(0, 8).map(KeyHash)
RANGES = st.tuples(HASHES, HASHES).map(lambda pair: KeyRange(min(pair), max(pair)))


def test_flows_vectors() -> None:
    for elements, expected in FLOW_KEY_HASHES:
        assert key_hash(pack(elements)) == expected, elements


def test_golden_at_once_and_one_by_one() -> None:
    golden = vectors()
    packed = pa.array([vector.packed for vector in golden], pa.large_binary())
    expected = [vector.key_hash for vector in golden]
    assert key_hashes(packed).tolist() == expected
    assert key_hashes(packed.slice(7)).tolist() == expected[7:]
    assert [key_hash(vector.packed) for vector in golden[::9]] == expected[::9]


def test_more_rows_than_fit_at_once() -> None:
    one = [vector.packed for vector in vectors()]
    many = pa.array(one * 100, pa.large_binary())
    assert key_hashes(many).tolist() == key_hashes(pa.array(one, pa.large_binary())).tolist() * 100


def test_no_rows() -> None:
    assert key_hashes(pa.array([], pa.large_binary())).tolist() == []


@given(RANGES, RANGES, HASHES)
def test_ranges_are_inclusive_sets(a: KeyRange, b: KeyRange, probe: KeyHash) -> None:
    for value in (probe, a.begin, a.end, b.begin, b.end):
        assert a.owns(value) == (value in range(a.begin, a.end + 1))
    common = range(max(a.begin, b.begin), min(a.end, b.end) + 1)
    assert a.overlaps(b) == b.overlaps(a) == bool(common)
    assert a.covers(b) == (a.owns(b.begin) and a.owns(b.end))


@given(st.lists(st.integers(0, 7), max_size=6))
def test_splitting_keeps_the_tiling(which: list[int]) -> None:
    ranges = [KeyRange.full()]
    for at in which:
        ranges[at % len(ranges) : at % len(ranges) + 1] = ranges[at % len(ranges)].split()
    assert tiles(ranges[::-1])
    assert not tiles(ranges[1:])
    assert not tiles([*ranges, ranges[-1]])


def test_bounds_are_checked() -> None:
    for begin, end in ((1, 0), (-1, 0), (0, KEY_HASH_MAX + 1)):
        with pytest.raises(InvalidKeyRange):
            KeyRange(KeyHash(begin), KeyHash(end))
    with pytest.raises(InvalidKeyRange):
        KeyRange(KeyHash(5), KeyHash(5)).split()

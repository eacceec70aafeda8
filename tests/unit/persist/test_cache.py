"""The cache of segments: it answers without the blob, and never holds more than its bound."""

from __future__ import annotations

from collections import Counter

import xxhash

from headwater.persist.batch import Segment
from headwater.persist.blob import MemoryBlob
from headwater.persist.cache import SegmentCache
from headwater.persist.metrics import Metrics


class CountedBlob(MemoryBlob):
    """Counts how often each object is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()

    def get_range(self, key: str, offset: int, length: int) -> bytes | None:
        self.asked[key] += 1
        return super().get_range(key, offset, length)


def segment(blob: MemoryBlob, key: str, size: int) -> Segment:
    data = key.encode() * size
    blob.create(key, data)
    return Segment(key, 0, len(data), xxhash.xxh3_64_intdigest(data))


def test_the_bound_holds_and_the_oldest_use_goes_first() -> None:
    blob, metrics = CountedBlob(), Metrics()
    cache = SegmentCache(blob, metrics, limit_bytes=30)
    a, b, c, d = (segment(blob, key, 10) for key in "abcd")
    for wanted in (a, b, c):
        assert cache.fetch(wanted) == wanted.key.encode() * 10
    cache.fetch(a)  # b is now the one that was used longest ago
    cache.fetch(d)
    assert metrics.cache_bytes._value.get() == 30
    assert blob.asked == {"a": 1, "b": 1, "c": 1, "d": 1}
    for kept in (a, c, d):
        cache.fetch(kept)
    assert blob.asked == {"a": 1, "b": 1, "c": 1, "d": 1}
    cache.fetch(b)
    assert blob.asked["b"] == 2
    assert metrics.cache_hits._value.get() == 4
    assert metrics.cache_misses._value.get() == 5


def test_what_is_larger_than_the_bound_drives_nothing_out() -> None:
    blob, metrics = CountedBlob(), Metrics()
    cache = SegmentCache(blob, metrics, limit_bytes=30)
    small, large = segment(blob, "s", 10), segment(blob, "l", 31)
    cache.fetch(small)
    for _ in range(2):
        assert cache.fetch(large) == b"l" * 31
    cache.fetch(small)
    assert blob.asked == {"s": 1, "l": 2}
    assert metrics.cache_bytes._value.get() == 10


def test_what_is_not_there_is_asked_for_again() -> None:
    blob = CountedBlob()
    cache = SegmentCache(blob, Metrics(), limit_bytes=30)
    gone = Segment("gone", 0, 3, 0)
    assert cache.fetch(gone) is None
    blob.create("gone", b"now")
    assert cache.fetch(gone) == b"now"

"""A bounded cache of verified segments, in front of a blob.

Objects never change, so an entry is right for ever; the bound is in bytes, the oldest use goes
first. Where the blob has local files, segments are memory-mapped instead: the operating system's
page cache is the cache then, and it has its own bound.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, Final

import pyarrow as pa
import xxhash

from headwater.base.errors import Indeterminate
from headwater.persist.batch import Segment
from headwater.persist.location import Blob
from headwater.persist.metrics import Metrics

CACHE_BYTES_DEFAULT: Final = 128 * 1024 * 1024


class SegmentCache:
    """Segments by (object, offset)."""

    def __init__(
        self, blob: Blob, metrics: Metrics, limit_bytes: int = CACHE_BYTES_DEFAULT
    ) -> None:
        self._blob = blob
        self._metrics = metrics
        self._limit_bytes = limit_bytes
        self._held: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def fetch(self, segment: Segment) -> Any:
        """Return a buffer with the segment's bytes; ``None`` if its object is gone."""
        path = self._blob.local_path(segment.key)
        if path is not None:
            try:
                with pa.memory_map(str(path)) as mapped:
                    if mapped.size() <= segment.offset:
                        return b""  # It was cut. Whoever verifies the segment says so.
                    mapped.seek(segment.offset)
                    return mapped.read_buffer(segment.length)
            except FileNotFoundError:
                return None
            except OSError as cause:
                raise Indeterminate(f"{path}: {cause}") from cause
        where = (segment.key, segment.offset)
        with self._lock:
            data = self._held.get(where)
            if data is not None:
                self._held.move_to_end(where)
                self._metrics.cache_hits.inc()
                return data
        self._metrics.cache_misses.inc()
        data = self._blob.get_range(segment.key, segment.offset, segment.length)
        # Bytes that went wrong on their way are refused by whoever verifies them; kept here, they
        # would be refused for ever, though the object is whole.
        if data is not None and xxhash.xxh3_64_intdigest(data) == segment.checksum:
            self._keep(where, data)
        return data

    def _keep(self, where: tuple[str, int], data: bytes) -> None:
        if len(data) > self._limit_bytes:
            return
        with self._lock:
            if where not in self._held:
                self._held[where] = data
                self._bytes += len(data)
            while self._bytes > self._limit_bytes:
                _, dropped = self._held.popitem(last=False)
                self._bytes -= len(dropped)
            self._metrics.cache_bytes.set(self._bytes)

"""How far a stream from outside is, and its rows between two positions.

A *position* says of each part of a stream (a partition of a topic) the next offset. It is noted
with the rows that a flow makes of them, in one entry (``pipelines/flows.py``); so a run that dies
has taken nothing, and what was taken is never asked for again.

    kafka   parts ``topic/partition``; the id of a topic is a part of it, too, so that one that was
            deleted and made again is told
    rate    ``start``, when the first run found it (in ms), and ``seconds`` since then. Number n
            came at start + n / rowsPerSecond, so the same numbers have the same times

Rows pass through the process that runs the pipeline.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from headwater.base.clock import Clock, SystemClock
from headwater.base.errors import HeadwaterError
from headwater.compute.declared.feeds import NUMBERS, Feed

Position = Mapping[str, int]

_SECOND_MS: Final = 1_000


class FeedFailed(HeadwaterError):
    """A stream that cannot be read now."""

    def __init__(self, feed: Feed, why: str) -> None:
        super().__init__(f"the stream {feed.name} cannot be read: {why}")


class Reading(Protocol):
    """A stream that can be asked."""

    def first(self) -> Position:
        """Return where somebody begins who has taken nothing."""
        ...

    def now(self, before: Position) -> Position:
        """Return how far it is for somebody who is at ``before``."""
        ...

    def rows(self, before: Position, until: Position) -> pa.Table:
        """Return the rows between two positions."""
        ...

    def close(self) -> None:
        """Let go of what it holds."""
        ...


@contextmanager
def reading(feed: Feed, clock: Clock | None = None) -> Iterator[Reading]:
    """Open a stream, to ask how far it is and to read it."""
    made: Reading
    if feed.format == "rate":
        made = _Rate(feed, clock or SystemClock())
    else:
        from headwater.pipelines.feed_kafka import Topics  # An extra.

        made = Topics(feed)
    try:
        yield made
    finally:
        made.close()


class _Rate:
    """Numbers, so many a second."""

    def __init__(self, feed: Feed, clock: Clock) -> None:
        self._per_second = int(feed.options.get("rowspersecond", "1"))
        self._clock = clock

    def first(self) -> Position:
        return {"start": self._clock.now_ms(), "seconds": 0}

    def now(self, before: Position) -> Position:
        passed = max(0, self._clock.now_ms() - before["start"]) // _SECOND_MS
        return {**before, "seconds": max(before["seconds"], passed)}

    def rows(self, before: Position, until: Position) -> pa.Table:
        numbers = np.arange(*(at["seconds"] * self._per_second for at in (before, until)))
        stamps = until["start"] * 1_000 + numbers * 1_000_000 // self._per_second
        columns = [pa.array(stamps, NUMBERS.field("timestamp").type), pa.array(numbers)]
        return pa.Table.from_arrays(columns, schema=NUMBERS)

    def close(self) -> None:
        """Nothing is held."""

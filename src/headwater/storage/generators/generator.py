"""A generator as a source: a stream that is a function of the place, and a clock that drives it.

A :class:`Stream` has one partition. Its offsets are its places, from 0 on, and what is at a place
depends on the place and the seed alone; so any range can be read at any time, and upstream (there
is none) needs to keep nothing: reliance *none*.

How far it is follows the clock, in one of two ways. With ``start_ms``: ``per_second`` places since
then; it belongs to the definition, never the start of the process. Without: it goes on from the
place that is durable, at that pace, from the moment it is made, so that nothing comes of the time
in which nobody ran it. ``first`` places are there at once. It never goes back, also not after a
restart with a clock that was set back: what was committed was there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from headwater.base.clock import Clock
from headwater.persist.evolution import DIFF
from headwater.storage.generators.chance import Longs
from headwater.storage.offsets import Offsets
from headwater.storage.source import OFFSET, PARTITION, PLACE, Records, Reliance

GENERATED: Final = "0"
"""The one partition of every generator."""

PLACES_AT_ONCE: Final = 10_000


class Stream(Protocol):
    """What a generator makes."""

    @property
    def name(self) -> str:
        """Used in errors and in status."""
        ...

    @property
    def outputs(self) -> Mapping[str, pa.Schema]:
        """The payload of each output: data columns and ``__diff``, or raw messages."""
        ...

    def at(self, places: Longs) -> Iterator[tuple[str, Longs, pa.Table]]:
        """Return what is at these places: the output, the place of each row, the payload."""
        ...


class Generator:
    """A stream, driven by a clock."""

    reliance: Final = Reliance.NONE

    def __init__(
        self,
        stream: Stream,
        clock: Clock,
        *,
        start_ms: int | None = None,
        per_second: float = 1.0,
        limit: int | None = None,
        first: int = 0,
    ) -> None:
        self._stream = stream
        self._clock = clock
        self._resumes = start_ms is None
        self._start_ms = clock.now_ms() if start_ms is None else start_ms
        self._per_second = per_second
        self._limit = limit
        self._first = first
        self._reached = 0

    @property
    def name(self) -> str:
        """Used in errors and in status."""
        return self._stream.name

    def probe(self) -> Offsets:
        """Return how many places the clock has passed."""
        elapsed = max(0, self._clock.now_ms() - self._start_ms)
        due = self._first + int(elapsed * self._per_second / 1000)
        due = due if self._limit is None else min(due, self._limit)
        self._reached = max(self._reached, due)
        return Offsets({GENERATED: self._reached})

    def read(self, lower: Offsets, upper: Offsets) -> Iterator[Records]:
        """Make the places of a range."""
        first, last = lower[GENERATED], upper[GENERATED]
        for start in range(first, last, PLACES_AT_ONCE):
            places = np.arange(start, min(last, start + PLACES_AT_ONCE), dtype=np.int64)
            for output, at, payload in self._stream.at(places):
                if len(at):
                    yield Records(output, placed(GENERATED, at, payload))

    def estimate(self, upper: Offsets) -> int:
        """Return how many places there are."""
        return upper[GENERATED]

    def commit(self, offsets: Offsets) -> None:
        """Nothing is kept; but what was there once stays there."""
        if self._resumes and offsets[GENERATED] > self._reached:
            self._first, self._start_ms = offsets[GENERATED], self._clock.now_ms()
        self._reached = max(self._reached, offsets[GENERATED])

    def close(self) -> None:
        """Nothing to release."""


def placed(partition: str, offsets: Longs, payload: pa.Table) -> pa.Table:
    """Return a payload with the place of each record before it."""
    names = pa.repeat(pa.scalar(partition, pa.string()), len(offsets))
    table = payload.add_column(0, PLACE.field(OFFSET), pa.array(offsets, pa.int64()))
    return table.add_column(0, PLACE.field(PARTITION), names)


def with_diffs(table: pa.Table, diffs: Longs | int) -> pa.Table:
    """Return data columns with a diff for each row."""
    values = np.broadcast_to(np.asarray(diffs, np.int64), (table.num_rows,))
    return table.append_column(pa.field(DIFF, pa.int64(), nullable=False), pa.array(values))

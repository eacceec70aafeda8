"""A persisted collection as the source of a dataflow: the snapshot, then every update, once.

    for event in persisted_source(read, as_of):   # Updates | Progress

First come the updates of the snapshot, all at ``as_of``, part by part (they add up to the
collection at ``as_of`` and are not consolidated across parts), then the progress ``as_of + 1``,
then updates strictly after ``as_of`` at their own times, with progress, for ever or until the
collection closes. Both sides are delivered, errors as data. Nothing is lost or doubled in between:
snapshot and listener are cut out of immutable states at the same time.

Memory is that of one part. Spark has the same feed as ``readStream.format("headwater")``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from headwater.algebra.frontier import Frontier
from headwater.persist import evolution
from headwater.persist.batch import MINIMUM, Part
from headwater.persist.client import ReadHandle
from headwater.persist.compact import advance
from headwater.persist.evolution import ERROR_SCHEMA
from headwater.persist.narrow import read_rows
from headwater.persist.part import PartMissing
from headwater.persist.read import Event, Listen, Progress, Snapshot, Updates, not_there


class PersistedSource:
    """Iterate it, or call :meth:`fetch`; :meth:`close` releases what is held for it."""

    def __init__(self, snapshot: Snapshot, listen: Listen) -> None:
        self._snapshot: Snapshot | None = snapshot
        self._first = self._snapshot_events(snapshot)
        self._listen = listen

    def fetch(self, timeout: float | None = None) -> Event | None:
        """Return the next event; ``None`` if there is none in time, or the collection closed."""
        event = next(self._first, None)
        if event is not None:
            return event
        self._snapshot = None  # its pins end here
        return self._listen.fetch(timeout)

    def close(self) -> None:
        """Stop, and let history and objects go."""
        self._first = iter(())
        self._snapshot = None
        self._listen.close()

    def __iter__(self) -> Iterator[Event]:
        while True:
            event = self.fetch()
            if event is None:
                return
            yield event

    @staticmethod
    def _snapshot_events(snapshot: Snapshot) -> Iterator[Event]:
        lower, upper = Frontier.of(MINIMUM), Frontier.of(snapshot.as_of + 1)
        no_rows = evolution.updates_schema(snapshot.schema).empty_table()
        no_errors = evolution.updates_schema(ERROR_SCHEMA).empty_table()
        for part in snapshot.parts:
            updates = _read(snapshot, part)
            if updates.num_rows:
                ok, errors = (no_rows, updates) if part.errors else (updates, no_errors)
                yield Updates(lower, upper, ok, errors)
        yield Progress(upper)


def _read(snapshot: Snapshot, part: Part) -> pa.Table:
    try:
        updates = read_rows(snapshot._core, snapshot.collection, part, snapshot._codec)
    except PartMissing as missing:
        raise not_there(snapshot._core, snapshot.name, missing.key) from missing
    return advance(updates, snapshot.as_of)


def persisted_source(read: ReadHandle, as_of: int, timeout: float | None = None) -> PersistedSource:
    """Return the collection from ``as_of`` on; waits until ``as_of`` is sealed."""
    return PersistedSource(*read.snapshot_and_listen(as_of, timeout))

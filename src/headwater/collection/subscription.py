"""Subscriptions: a collection's contents at a time, then every update after it, in order.

Events, each with the subscription's own ``upper`` in line: what is before it will not come again.

    Updates(lower, upper, ok, errors)   the snapshot first (at time as_of), then updates
    Progress(upper)                     nothing more before upper

The first event waits while ``as_of`` is not known yet. Nothing is lost or doubled between the two:
both are cut out of the log's states by time, whatever is written meanwhile. Adding up everything
received gives the collection, both sides of it, at every time from ``as_of`` to ``upper``.

A filter and a projection are applied where the data is read: parts whose statistics exclude the
filter are not even fetched. The error side is never filtered, because an error has no columns.

The subscription rests on the read capability that it was made with: keep it until the snapshot has
come, and move it only to what has been received.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from headwater.algebra.frontier import Frontier
from headwater.base.ids import GlobalId
from headwater.persist import evolution
from headwater.persist.batch import MINIMUM, Times
from headwater.persist.core import Core
from headwater.persist.decision import collection_of
from headwater.persist.evolution import DIFF, TIME
from headwater.persist.narrow import Narrowing
from headwater.persist.read import (
    Event,
    Listen,
    Progress,
    Snapshot,
    Updates,
    check_readable,
    parts_at,
)
from headwater.persist.state import CollectionState, State


class Subscription:
    """See the module's docstring. Iterate, or call :meth:`fetch`."""

    def __init__(
        self, core: Core, gid: GlobalId, as_of: int, *, snapshot: bool, narrowing: Narrowing
    ) -> None:
        collection = collection_of(core.look(), gid)
        check_subscription(collection, as_of, narrowing)
        self._core = core
        self._id = gid
        self._as_of = as_of
        self._narrowing = narrowing
        self._upper: Times = Frontier.of(MINIMUM if snapshot else as_of + 1)
        self._wants_snapshot = snapshot
        self._closed = False
        # Its hold on history begins at as_of, so it covers the snapshot too.
        self._listen = Listen(core, collection, as_of, narrowing=narrowing)
        self._pending: list[Event] = []

    @property
    def upper(self) -> Times:
        """Everything before it has been delivered."""
        return self._upper

    def fetch(self, timeout: float | None = None) -> Event | None:
        """Return the next event; ``None`` if none comes in time, or none will come any more."""
        event = None if self._closed else self._next(timeout)
        if event is not None:
            self._upper = event.upper
        return event

    def _next(self, timeout: float | None) -> Event | None:
        if self._pending:
            return self._pending.pop(0)
        return self._snapshot(timeout) if self._wants_snapshot else self._listen.fetch(timeout)

    def _snapshot(self, timeout: float | None) -> Event | None:
        collection = self._core.wait(self._known, timeout)
        if collection is None or self._closed:
            return None
        parts = tuple(parts_at(collection, self._as_of))
        ok, errors = Snapshot(self._core, collection, self._as_of, parts, self._narrowing).sides()
        self._wants_snapshot = False
        upper: Times = Frontier.of(self._as_of + 1)
        progress = Progress(upper)
        if not ok.num_rows and not errors.num_rows:
            return progress
        self._pending.append(progress)
        return Updates(Frontier.of(MINIMUM), upper, self._timed(ok), self._timed(errors))

    def _known(self, state: State) -> CollectionState | None:
        collection = collection_of(state, self._id)
        if self._closed:
            return collection
        check_readable(collection.name, collection, self._as_of)
        return None if state.upper(collection).allows(self._as_of) else collection

    def _timed(self, rows: pa.Table) -> pa.Table:
        times = pa.repeat(pa.scalar(self._as_of, pa.int64()), rows.num_rows)
        at = rows.schema.get_field_index(DIFF)
        return rows.add_column(at, pa.field(TIME, pa.int64(), nullable=False), times)

    def close(self) -> None:
        """Stop, also a fetch that waits in another thread, and release what is held for it."""
        self._closed = True
        self._listen.close()

    def __iter__(self) -> Iterator[Event]:
        while True:
            event = self.fetch()
            if event is None:
                return
            yield event


def check_subscription(collection: CollectionState, as_of: int, narrowing: Narrowing) -> None:
    """Refuse a time before since, and columns that are not there."""
    check_readable(collection.name, collection, as_of)
    narrowing.check(collection.name, evolution.from_bytes(collection.schemas[-1]))

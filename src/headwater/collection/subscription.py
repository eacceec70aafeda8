"""Subscriptions: a collection's contents at a time, then every update after it, in order.

Events, each with the subscription's own ``upper`` in line: what is before it will not come again.

    Updates(lower, upper, ok, errors)   the snapshot first (times advanced to as_of), then updates
    Progress(upper)                     nothing more before upper

A filter and a projection are applied where the data is read, before it travels: parts whose
statistics exclude the filter are not even fetched. The errors of a collection are never filtered.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from headwater.algebra.frontier import Frontier
from headwater.base.ids import GlobalId
from headwater.persist.batch import MINIMUM, Times
from headwater.persist.consolidate import consolidate
from headwater.persist.core import Core
from headwater.persist.decision import collection_of
from headwater.persist.evolution import DIFF, ERROR_SCHEMA, TIME, updates_schema
from headwater.persist.read import (
    Event,
    Listen,
    Progress,
    Updates,
    check_readable,
    take_snapshot,
)
from headwater.persist.stats import Predicate


class Subscription:
    """See the module's docstring. Iterate, or call :meth:`fetch`."""

    def __init__(
        self,
        core: Core,
        gid: GlobalId,
        as_of: int,
        *,
        snapshot: bool,
        where: tuple[Predicate, ...],
        columns: tuple[str, ...] | None,
    ) -> None:
        collection = collection_of(core.state, gid)
        check_readable(collection.name, collection, as_of)
        self._core = core
        self._id = gid
        self._as_of = as_of
        self._where = where
        self._columns = columns
        self._upper: Times = Frontier.of(MINIMUM if snapshot else as_of + 1)
        self._wants_snapshot = snapshot
        self._listen = Listen(core, collection, as_of)  # Its hold covers the snapshot too.
        self._pending: list[Event] = []

    @property
    def upper(self) -> Times:
        """Everything before it has been delivered."""
        return self._upper

    def fetch(self, timeout: float | None = None) -> Event | None:
        """Return the next event; ``None`` if none comes in time, or the collection is closed."""
        event = self._next(timeout)
        if event is not None:
            self._upper = event.upper
        return event

    def _next(self, timeout: float | None) -> Event | None:
        if self._pending:
            return self._pending.pop(0)
        if self._wants_snapshot:
            return self._snapshot(timeout)
        event = self._listen.fetch(timeout)
        if not isinstance(event, Updates):
            return event
        kept = self._narrow(event.ok)
        if not kept.num_rows and not event.errors.num_rows:
            return self._next(timeout)
        return Updates(event.lower, event.upper, kept, event.errors)

    def _snapshot(self, timeout: float | None) -> Event | None:
        snapshot = take_snapshot(self._core, self._id, self._as_of, timeout)
        if snapshot is None:
            return None
        self._wants_snapshot = False
        upper: Times = Frontier.of(self._as_of + 1)
        self._pending.append(Progress(upper))
        narrowed = snapshot.where(*self._where) if self._where else snapshot
        if self._columns is not None:
            narrowed = narrowed.select(*self._columns)
        errors = snapshot.errors()
        ok = narrowed.to_table() if not errors.num_rows else None
        return Updates(
            Frontier.of(MINIMUM),
            upper,
            self._timed(ok) if ok is not None else updates_schema(snapshot.schema).empty_table(),
            self._timed(errors) if errors.num_rows else updates_schema(ERROR_SCHEMA).empty_table(),
        )

    def _timed(self, rows: pa.Table) -> pa.Table:
        times = pa.array([self._as_of] * rows.num_rows, pa.int64())
        at = rows.schema.get_field_index(DIFF)
        return rows.add_column(at, pa.field(TIME, pa.int64(), nullable=False), times)

    def _narrow(self, updates: pa.Table) -> pa.Table:
        for predicate in self._where:
            updates = updates.filter(predicate.matches(updates))
        if self._columns is not None:
            updates = consolidate(updates.select([*self._columns, TIME, DIFF]))
        return updates

    def close(self) -> None:
        """Stop, and release what is held for it."""
        self._listen.close()

    def __iter__(self) -> Iterator[Event]:
        while True:
            event = self.fetch()
            if event is None:
                return
            yield event

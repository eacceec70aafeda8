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

One that *goes on* follows what takes the place of its collection, too (``succession``): everything
before the old one's end, then the difference at the new one's begin, then that. It is told as
updates like any others. Other columns end it (:class:`OtherColumns`), after all that came before.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from headwater.algebra.frontier import Frontier
from headwater.base.errors import InvalidUsage
from headwater.base.ids import GlobalId
from headwater.collection import succession
from headwater.collection.difference import Difference
from headwater.collection.succession import Succession, changed_columns
from headwater.persist import evolution
from headwater.persist.batch import MINIMUM, Times
from headwater.persist.compact import advance
from headwater.persist.consolidate import consolidate
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


class OtherColumns(InvalidUsage):
    """What takes the place of a collection has other columns than those that were told."""

    def __init__(self, name: str, begin: int, changes: list[str]) -> None:
        super().__init__(
            f"collection {name!r} goes on with other columns from {begin} on: "
            f"{'; '.join(changes)}; subscribe again"
        )
        self.begin = begin
        self.changes = changes


class Subscription:
    """See the module's docstring. Iterate, or call :meth:`fetch`."""

    def __init__(
        self,
        core: Core,
        gid: GlobalId,
        as_of: int,
        *,
        snapshot: bool,
        narrowing: Narrowing,
        goes_on: bool = False,
    ) -> None:
        state = core.look()
        if goes_on:
            gid, as_of = _begun(state, gid, as_of, snapshot=snapshot)
        collection = collection_of(state, gid)
        check_subscription(collection, as_of, narrowing)
        self._core = core
        self._id = gid
        self._as_of = as_of
        self._narrowing = narrowing
        self._goes_on = goes_on
        self._upper: Times = Frontier.of(MINIMUM if snapshot else as_of + 1)
        self._wants_snapshot = snapshot
        self._closed = False
        # Its hold on history begins at as_of, so it covers the snapshot too.
        self._listen = self._listening(collection, as_of)
        self._pending: list[Event] = []

    @property
    def id(self) -> GlobalId:
        """The collection that it follows now."""
        return self._id

    @property
    def as_of(self) -> int:
        """The time of that collection at which it begins."""
        return self._as_of

    @property
    def upper(self) -> Times:
        """Everything before it has been delivered."""
        return self._upper

    def is_led_over(self, state: State) -> bool:
        """Whether what it follows now goes on as something else."""
        return self._goes_on and succession.succession(state, self._id) is not None

    def fetch(self, timeout: float | None = None) -> Event | None:
        """Return the next event; ``None`` if none comes in time, or none will come any more."""
        event = None if self._closed else self._next(timeout)
        if event is not None:
            self._upper = event.upper
        return event

    def _next(self, timeout: float | None) -> Event | None:
        if self._pending:
            return self._pending.pop(0)
        if self._wants_snapshot:
            return self._snapshot(timeout)
        if not self._goes_on:
            return self._listen.fetch(timeout)
        found = self._core.wait(self._what_comes, timeout)
        if found is None or self._closed:
            return None
        return self._lead_over(found) if isinstance(found, Succession) else self._listen.fetch(0.0)

    def _snapshot(self, timeout: float | None) -> Event | None:
        found = self._core.wait(self._known, timeout)
        if found is None or self._closed:
            return None
        collection, as_of = found
        if collection.id != self._id:
            # Replaced before it had come as far as our first time.
            self._follow(collection, as_of)
        parts = tuple(parts_at(collection, as_of))
        ok, errors = Snapshot(self._core, collection, as_of, parts, self._narrowing).sides()
        self._wants_snapshot = False
        upper: Times = Frontier.of(as_of + 1)
        progress = Progress(upper)
        if not ok.num_rows and not errors.num_rows:
            return progress
        self._pending.append(progress)
        return Updates(Frontier.of(MINIMUM), upper, self._timed(ok), self._timed(errors))

    def _known(self, state: State) -> tuple[CollectionState, int] | None:
        gid, as_of = self._id, self._as_of
        if self._closed:
            return collection_of(state, gid), as_of
        if self._goes_on:
            gid, as_of = _of_contents(state, gid, as_of)
        collection = collection_of(state, gid)
        check_readable(collection.name, collection, as_of)
        return None if state.upper(collection).allows(as_of) else (collection, as_of)

    def _timed(self, rows: pa.Table) -> pa.Table:
        times = pa.repeat(pa.scalar(self._as_of, pa.int64()), rows.num_rows)
        at = rows.schema.get_field_index(DIFF)
        return rows.add_column(at, pa.field(TIME, pa.int64(), nullable=False), times)

    # ---- what takes its place ------------------------------------------------------------------

    def _listening(self, collection: CollectionState, as_of: int) -> Listen:
        def end(state: State) -> int | None:
            found = succession.succession(state, collection.id) if self._goes_on else None
            return None if found is None else found.end

        return Listen(self._core, collection, as_of, narrowing=self._narrowing, end=end)

    def _what_comes(self, state: State) -> State | Succession | None:
        """Return what is next: more of this, or the way over; ``None``: neither yet."""
        if self._closed or self._listen.moves(state):
            return state
        way = succession.successor(state, self._id)
        if way is None or not Frontier.of(way.end) <= self._listen.frontier:
            return None
        return None if state.upper(collection_of(state, way.new)).allows(way.begin) else way

    def _lead_over(self, way: Succession) -> Event:
        """Return the difference between what was followed and what goes on, at its begin."""
        state = self._core.state
        old, new = collection_of(state, self._id), collection_of(state, way.new)
        columns = [evolution.from_bytes(each.schemas[-1]) for each in (old, new)]
        changes = changed_columns(*columns)
        if changes:
            raise OtherColumns(old.name, way.begin, changes)
        difference = Difference(self._core, old.id, way.end - 1, new.id, way.begin + 1)
        pieces = [self._narrowing.rows(each) for each in difference.updates() if each.num_rows]
        schema = evolution.updates_schema(self._narrowing.schema(columns[1]))
        loose = [f if f.name in (TIME, DIFF) else f.with_nullable(True) for f in schema]
        updates = pa.concat_tables(
            [pa.schema(loose).empty_table(), *pieces], promote_options="permissive"
        )
        ok, errors = consolidate(advance(updates, way.begin)), difference.errors()
        lower, upper = self._listen.frontier, Frontier.of(way.begin + 1)
        self._follow(new, way.begin)
        progress = Progress(upper)
        if not ok.num_rows and not errors.num_rows:
            return progress
        self._pending.append(progress)
        return Updates(lower, upper, ok, errors)

    def _follow(self, collection: CollectionState, as_of: int) -> None:
        self._id, self._as_of = collection.id, as_of
        before, self._listen = self._listen, self._listening(collection, as_of)
        before.close()
        if self._closed:  # Meanwhile, by another thread, which knew of the other one only.
            self._listen.close()

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


def _begun(state: State, newest: GlobalId, as_of: int, *, snapshot: bool) -> tuple[GlobalId, int]:
    """Return the collection that says what there is at a time, and at which time of its own."""
    gid = succession.at(state, newest, as_of)
    if snapshot:
        return _of_contents(state, gid, as_of)
    way = succession.successor(state, gid)
    return gid, as_of if way is None else min(as_of, way.end - 1)


def _of_contents(state: State, gid: GlobalId, as_of: int) -> tuple[GlobalId, int]:
    """Return the same for contents of which nothing was told: none are between end and begin."""
    while (way := succession.successor(state, gid)) is not None and as_of >= way.end:
        gid, as_of = way.new, max(as_of, way.begin)
    return gid, as_of


def check_subscription(collection: CollectionState, as_of: int, narrowing: Narrowing) -> None:
    """Refuse a time before since, and columns that are not there."""
    check_readable(collection.name, collection, as_of)
    narrowing.check(collection.name, evolution.from_bytes(collection.schemas[-1]))

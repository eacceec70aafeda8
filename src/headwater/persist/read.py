"""Reading: a collection at a time, and from a time on.

**Snapshot**: the collection at ``as_of``: every update at times <= ``as_of``, from one state. The
state is a value, so a snapshot says the same for ever; its objects are pinned against our own
garbage collection. A reader in another process has no pin: where an object was collected under it,
the newest state is fetched and reading starts again, or a named error is raised. Never some rows.

**Listen**: updates strictly after ``as_of``, each exactly once, at its own time, delivered when
sealed, with progress. Between two events nothing is lost or doubled: both are cut out of immutable
states by the interval ``[frontier, upper)``. A batch whose times were compacted past our frontier
cannot be cut so; that is an error (only a listener without a hold can meet it), not wrong rows.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import pyarrow as pa

from headwater.algebra.frontier import Frontier
from headwater.base.errors import HeadwaterError
from headwater.base.ids import GlobalId
from headwater.persist import evolution
from headwater.persist.batch import TIME_LIMIT, Part, Times
from headwater.persist.codec import Codec, check_reads
from headwater.persist.compact import advance
from headwater.persist.consolidate import consolidate
from headwater.persist.core import Core
from headwater.persist.decision import collection_of
from headwater.persist.errors import (
    AsOfBeforeSince,
    ClosedCollection,
    CodecMismatch,
    CollectionHasErrors,
    Corrupt,
    PartCollected,
    TimeOutOfBounds,
)
from headwater.persist.evolution import DIFF, ERROR_SCHEMA, TIME
from headwater.persist.narrow import Narrowing, is_upgraded, read_rows
from headwater.persist.part import PIECE_BYTES, PartMissing, read_part_pieces, unwritten_part
from headwater.persist.state import CollectionState, State, bound
from headwater.persist.stats import Predicate
from headwater.persist.volatile import check_here

REFETCH_MAX: Final = 8

EVERYTHING: Final = Narrowing()

Result = TypeVar("Result")


def parts_at(collection: CollectionState, as_of: int) -> Iterator[Part]:
    """Return the parts that can have updates at times <= ``as_of``."""
    for batch in collection.batches:
        if bound(batch.lower) > as_of:
            return
        for part in batch.parts:
            # A merged part may hold times advanced to a since beyond as_of only if since passed
            # it; the caller has checked that it has not.
            seen = part.through(0, as_of + 1)
            if seen is not None:
                yield seen


def check_readable(name: str, collection: CollectionState, as_of: int) -> None:
    """Refuse a time before since."""
    if not 0 <= as_of < TIME_LIMIT:
        raise TimeOutOfBounds(f"reading collection {name!r}", as_of)
    if not collection.since.allows(as_of):
        raise AsOfBeforeSince(name, as_of, collection.since)


def not_there(core: Core, name: str, key: str) -> HeadwaterError:
    """Return the error for an object of a collection that is not there: let go, or lost.

    The newest state tells: what it refers to is never let go, and was there before it was told.
    """
    return _lost(key) if key in core.refresh().references else PartCollected(name, key)


def _lost(key: str) -> Corrupt:
    return Corrupt(f"object {key}", "the log refers to it and it is not there")


class Snapshot:
    """A collection at a time; see the module's docstring."""

    def __init__(
        self,
        core: Core,
        collection: CollectionState,
        as_of: int,
        parts: Sequence[Part],
        narrowing: Narrowing = EVERYTHING,
        codec: Codec | None = None,
    ) -> None:
        if codec is not None:
            check_reads(collection.name, collection.codec, codec)
        self.as_of = as_of
        self.name = collection.name
        self.id = collection.id
        self._core = core
        self._collection = collection
        self._narrowing = narrowing
        self._codec = codec
        self._parts = tuple(parts)
        self.threads = False
        """Whether a part's columns are decoded side by side: for a reader that only waits."""
        self._finalizer = weakref.finalize(self, core.pin(self._parts))

    @property
    def schema(self) -> pa.Schema:
        """The data columns."""
        if self._codec is not None:
            return self._codec.schema
        return evolution.from_bytes(self._collection.schemas[-1])

    @property
    def narrowing(self) -> Narrowing:
        """Which rows and columns of the collection it has."""
        return self._narrowing

    @property
    def parts(self) -> tuple[Part, ...]:
        """What it is made of."""
        return self._parts

    @property
    def collection(self) -> CollectionState:
        """The collection, in the state the snapshot was taken from."""
        return self._collection

    def where(self, *predicates: Predicate) -> Snapshot:
        """Return the snapshot of only the rows that satisfy all predicates."""
        both = (*self._narrowing.predicates, *predicates)
        return self._with(self._parts, replace(self._narrowing, predicates=both))

    def select(self, *columns: str) -> Snapshot:
        """Return the snapshot of only these columns (rows may then be equal and add up)."""
        return self._with(self._parts, replace(self._narrowing, columns=columns))

    def with_updates(self, updates: pa.Table) -> Snapshot:
        """Return the snapshot with updates on top that nobody has committed: rows with diffs."""
        part = unwritten_part(updates, self._collection, self.as_of)
        return self._with((*self._parts, part), self._narrowing) if updates.num_rows else self

    def split(self, count: int) -> list[Snapshot]:
        """Return up to ``count`` snapshots that together are this one."""
        pieces = [self._parts[index::count] for index in range(max(1, count))]
        return [self._with(p, self._narrowing) for p in pieces if p] or [self]

    def _with(self, parts: Sequence[Part], narrowing: Narrowing) -> Snapshot:
        narrowing.check(self.name, self.schema)
        return Snapshot(self._core, self._collection, self.as_of, parts, narrowing, self._codec)

    def updates(self) -> Iterator[pa.Table]:
        """Yield the updates piece by piece, times advanced to ``as_of``; memory is that of one.

        Not consolidated across parts. Raises :class:`PartCollected` if an object vanished under
        an independent reader; nothing that was yielded before is to be used then.
        """
        try:
            self._check_errors()
            for part in self._parts:
                if not part.errors:
                    yield from self._pieces(part)
        except PartMissing as missing:
            raise not_there(self._core, self.name, missing.key) from missing

    def to_table(self) -> pa.Table:
        """Return the multiset at ``as_of``: data columns and ``__diff``, consolidated."""
        return self._refetching(Snapshot._ok_unless_errors)

    def sides(self) -> tuple[pa.Table, pa.Table]:
        """Return both sides at ``as_of``, the rows also where there are errors: for whoever
        follows the collection, and will hear when an error is retracted."""
        return self._refetching(lambda snapshot: (snapshot._ok(), snapshot._errors()))

    def _refetching(self, read: Callable[[Snapshot], Result]) -> Result:
        snapshot = self
        for _ in range(REFETCH_MAX):
            try:
                return read(snapshot)
            except PartMissing as missing:
                gone = missing.key
                snapshot = snapshot._refetched(gone)
        raise PartCollected(self.name, gone)

    def _ok_unless_errors(self) -> pa.Table:
        self._check_errors()
        return self._ok()

    def _ok(self) -> pa.Table:
        return self._table([part for part in self._parts if not part.errors])

    def rows(self) -> list[tuple[Any, int]]:
        """Return the multiset at ``as_of``: each distinct row as the codec knows it, how often."""
        if self._codec is None:
            raise CodecMismatch(self.name, str(self._collection.codec), "none")
        table = self.to_table()
        rows = self._codec.decode(table.drop_columns([DIFF]), self._codec.version)
        return list(zip(rows, table.column(DIFF).to_pylist(), strict=True))

    def errors(self) -> pa.Table:
        """Return the error side at ``as_of``."""
        try:
            return self._errors()
        except PartMissing as missing:
            raise not_there(self._core, self.name, missing.key) from missing

    def _errors(self) -> pa.Table:
        empty = evolution.updates_schema(ERROR_SCHEMA).empty_table()
        tables = [self._read(part) for part in self._parts if part.errors] or [empty]
        return consolidate(pa.concat_tables(tables)).drop_columns([TIME])

    def _check_errors(self) -> None:
        if any(part.errors for part in self._parts):
            errors = self._errors()
            if errors.num_rows:
                messages = tuple(errors.column("message").to_pylist())
                raise CollectionHasErrors(self.name, self.as_of, messages)

    def _table(self, parts: Sequence[Part]) -> pa.Table:
        tables = [self._stored(part) for part in parts]
        # All are at as_of now: their times tell no update from another, and need not be looked at.
        kept = [table.drop_columns([TIME]) for table in tables if table.num_rows]
        if not kept:
            return evolution.updates_schema(self._columns()).empty_table().drop_columns([TIME])
        single = len(kept) == 1 and len(parts) == 1 and self._narrowing.columns is None
        if single and parts[0].consolidated and parts[0].time_min == parts[0].time_max:
            # One merged part, all at one time: nothing in it can add up.
            return kept[0]
        return consolidate(pa.concat_tables(kept))

    def _columns(self) -> pa.Schema:
        return self._narrowing.schema(self.schema)

    def _read(self, part: Part) -> pa.Table:
        """Return what a part has at ``as_of``, its times advanced to it."""
        return advance(self._stored(part), self.as_of)

    def _pieces(self, part: Part) -> Iterator[pa.Table]:
        """Yield the same, a piece at a time; whole, where a codec must see all of it."""
        core, collection = self._core, self._collection
        if is_upgraded(part, collection, self._codec):
            yield self._read(part)
            return
        if self._narrowing.skips(core, collection, part, self._codec):
            return
        for piece in read_part_pieces(
            part, collection, fetch=core.fetch, layouts=core.layouts, piece_bytes=PIECE_BYTES
        ):
            yield advance(self._narrowing.rows(piece), self.as_of)
        core.metrics.parts_read.inc()

    def _stored(self, part: Part) -> pa.Table:
        """Return what a part has at ``as_of``, at the times that are stored."""
        if self._narrowing.skips(self._core, self._collection, part, self._codec):
            return evolution.updates_schema(self._columns()).empty_table()
        updates = read_rows(self._core, self._collection, part, self._codec, threads=self.threads)
        self._core.metrics.parts_read.inc()
        return updates if part.errors else self._narrowing.rows(updates)

    def _refetched(self, gone: str) -> Snapshot:
        state = self._core.refresh()
        collection = collection_of(state, self.id)
        check_readable(self.name, collection, self.as_of)
        if gone in state.references:
            raise _lost(gone)
        if len(self._parts) != sum(1 for _ in parts_at(self._collection, self.as_of)):
            # A piece of a snapshot: the new state is cut into other parts, and which of them
            # stand for ours cannot be said. All of them would be rows that others have, too.
            raise PartCollected(self.name, gone)
        parts = tuple(parts_at(collection, self.as_of))
        return Snapshot(self._core, collection, self.as_of, parts, self._narrowing, self._codec)


@dataclass(frozen=True, slots=True)
class Updates:
    """Updates at times in ``[lower, upper)``, each exactly once; both sides."""

    lower: Times
    upper: Times
    ok: pa.Table
    errors: pa.Table


@dataclass(frozen=True, slots=True)
class Progress:
    """Nothing before ``upper`` will come any more."""

    upper: Times


Event = Updates | Progress


class Hold:
    """A hold of this process on a collection's history, moved along as a listener gets on."""

    def __init__(self, core: Core, gid: GlobalId, time: int) -> None:
        self._core = core
        self._id = gid
        self._lock = threading.Lock()
        self._release: Callable[[], None] | None = core.in_use.hold(gid, time)

    def move(self, time: int) -> None:
        with self._lock:
            # Another thread may have closed the listener since: what is released stays released.
            if self._release is not None:
                taken = self._core.in_use.hold(self._id, time)
                self._release()
                self._release = taken

    def release(self) -> None:
        with self._lock:
            if self._release is not None:
                self._release()
            self._release = None


class Listen:
    """Updates strictly after a time; see the module's docstring. Iterate, or call ``next``."""

    def __init__(
        self,
        core: Core,
        collection: CollectionState,
        as_of: int,
        codec: Codec | None = None,
        narrowing: Narrowing = EVERYTHING,
        end: Callable[[State], int | None] = lambda _: None,
    ) -> None:
        """``end``: before which time a state has what is wanted; ``None``: all of it is."""
        if codec is not None:
            check_reads(collection.name, collection.codec, codec)
        check_here(collection, core.keeps_volatile)
        self._core = core
        self._codec = codec
        self._narrowing = narrowing
        self._end = end
        self._closed = False
        self._id = collection.id
        self._name = collection.name
        self._frontier: Times = Frontier.of(as_of + 1)
        self._pending: list[Event] = []
        self._hold = Hold(core, self._id, as_of)
        self._finalizer = weakref.finalize(self, self._hold.release)

    @property
    def frontier(self) -> Times:
        """Everything before it has been delivered."""
        return self._frontier

    def fetch(self, timeout: float | None = None) -> Event | None:
        """Return the next event; ``None`` if there is none in time, or no more at all.

        There are no more when the collection is closed for writing, or this listen is closed.
        """
        if self._pending and not self._closed:
            return self._pending.pop(0)
        if self._frontier.is_closed:
            return None
        state = self._core.wait(self._moved, timeout)
        if state is None or self._closed:
            return None
        for _ in range(REFETCH_MAX):
            try:
                return self._cut(state)
            except PartMissing as missing:
                gone = missing.key
                state = self._core.refresh()
                if gone in state.references:
                    raise _lost(gone) from missing
        raise PartCollected(self._name, gone)

    def moves(self, state: State) -> bool:
        """Whether :meth:`fetch` would not wait: there is more, or there will be none."""
        return bool(self._pending) or self._frontier.is_closed or self._moved(state) is not None

    def _moved(self, state: State) -> State | None:
        return state if self._closed or self._frontier < self._upper(state) else None

    def _upper(self, state: State) -> Times:
        upper, end = state.upper(collection_of(state, self._id)), self._end(state)
        return upper if end is None else upper.meet(Frontier.of(end))

    def _cut(self, state: State) -> Event:
        collection = collection_of(state, self._id)
        lower, upper = self._frontier, self._upper(state)
        ok: list[pa.Table] = []
        errors: list[pa.Table] = []
        for batch in collection.batches:
            if not lower < batch.upper:
                continue
            # Also where nothing is left of it: what fell together may have been ours to deliver.
            if not self._precise(batch.since, batch.lower):
                raise AsOfBeforeSince(self._name, lower.only() - 1, collection.since)
            for part in batch.parts:
                seen = part.through(lower.only(), bound(upper))
                if seen is None or self._narrowing.skips(self._core, collection, seen, self._codec):
                    continue
                table = read_rows(self._core, collection, seen, self._codec)
                table = table if part.errors else self._narrowing.rows(table)
                if table.num_rows:
                    (errors if part.errors else ok).append(table)
        self._move_to(upper)
        progress = Progress(upper)
        if not ok and not errors:
            return progress
        self._pending.append(progress)
        data = evolution.from_bytes(collection.schemas[-1])
        if self._codec is not None:
            data = self._codec.schema
        schema = evolution.updates_schema(self._narrowing.schema(data))
        none = evolution.updates_schema(ERROR_SCHEMA)
        return Updates(
            lower,
            upper,
            consolidate(pa.concat_tables(ok)) if ok else schema.empty_table(),
            consolidate(pa.concat_tables(errors)) if errors else none.empty_table(),
        )

    def _precise(self, since: Times, lower: Times) -> bool:
        """Whether times of a batch at or after our frontier are still its own."""
        return since <= Frontier.of(max(self._frontier.only() - 1, bound(lower)))

    def _move_to(self, upper: Times) -> None:
        self._frontier = upper
        if upper.is_closed:
            self._hold.release()
        else:
            self._hold.move(upper.only() - 1)

    def close(self) -> None:
        """Stop listening, also in another thread, and release what is held for it."""
        self._closed = True
        self._core.wake()
        self._finalizer()

    def __iter__(self) -> Iterator[Event]:
        while True:
            event = self.fetch()
            if event is None:
                return
            yield event


def take_snapshot(
    core: Core,
    gid: GlobalId,
    as_of: int,
    timeout: float | None = None,
    codec: Codec | None = None,
) -> Snapshot | None:
    """Wait until ``as_of`` is sealed and return the snapshot; ``None`` when time is up."""

    def ready(state: State) -> CollectionState | None:
        collection = collection_of(state, gid)
        check_here(collection, core.keeps_volatile)
        check_readable(collection.name, collection, as_of)
        return None if state.upper(collection).allows(as_of) else collection

    while True:
        # Refused or known on what we have seen; a reader that lags looks at the log itself first.
        collection = core.wait(ready, timeout)
        if collection is None:
            return None
        parts = tuple(parts_at(collection, as_of))
        snapshot = Snapshot(core, collection, as_of, parts, codec=codec)
        if not core.in_use.is_claimed(parts):
            return snapshot
        # Collected between our look at the state and our pin: the state has moved on since.


def latest_readable(core: Core, gid: GlobalId) -> int:
    """Return the newest time that is sealed; where none is readable yet, the first that will be."""
    state = core.state
    collection = collection_of(state, gid)
    check_here(collection, core.keeps_volatile)
    upper = state.upper(collection)
    if upper.is_closed:
        times = [part.time_max for batch in collection.batches for part in batch.parts]
        if collection.since.is_closed:
            raise ClosedCollection(collection.name)
        return max([collection.since.only(), *times])
    if collection.since.is_closed:
        raise AsOfBeforeSince(collection.name, max(upper.only() - 1, 0), collection.since)
    return max(upper.only() - 1, collection.since.only())


__all__ = ["Event", "Listen", "Progress", "Snapshot", "Updates", "latest_readable", "take_snapshot"]

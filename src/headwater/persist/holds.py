"""Decisions about holds: how read and write capabilities move the frontiers they hold.

    since  =  the meet of the live readers' since        (closed when none is left)
    upper  =  the meet of the live writers' frontiers     (closed when none is left; but a table on
              a timeline then follows that again, which is a writer of it too)

Both only ever move forwards, and only when somebody moves or drops a capability *explicitly*. A
lease that runs out makes its capability useless at once, but moves nothing by itself: two expiries
in a row would else carry the frontier past a reader that is just coming back. The next explicit
move sweeps the expired away.

An update through a write capability has a token. Its retry is answered "already", with rows or
without: the newest one of each capability as long as that lives (a writer waits for the answer of
one before it asks for the next), older ones as long as the collection remembers tokens
(``TOKENS_KEPT``). A retry that is later still is refused, because the frontier has moved past it:
it is never written twice.
"""

from __future__ import annotations

from functools import reduce

import msgspec

from headwater.algebra.frontier import Frontier
from headwater.persist import commands as c
from headwater.persist.batch import Times, Unsealed
from headwater.persist.changes import (
    Change,
    Reader,
    ReaderSet,
    Sealed,
    SinceMoved,
    Writer,
    WriterSet,
    Written,
)
from headwater.persist.decision import DONE, Decision, check_parts, collection_of, in_bounds
from headwater.persist.errors import (
    CompactionRegression,
    DuplicateCollection,
    InvalidBounds,
    InvalidCapability,
    NoOwner,
    NotTheOnlyWriter,
    SealRegression,
    UpdateBeyondUpper,
    WriteBeforeUpper,
)
from headwater.persist.state import OWNER, CollectionState, State

replace = msgspec.structs.replace


def _since_changes(
    collection: CollectionState, readers: dict[str, Reader], now_ms: int
) -> list[Change]:
    """Return what an explicit move of a reader brings: expired holds go, since follows the rest.

    Only here do leases have an effect: expiry by itself moves nothing, because two expiries in a
    row would else move the frontier past a reader that is just coming back.
    """
    changes: list[Change] = []
    alive: dict[str, Reader] = {}
    for reader_id, reader in readers.items():
        if _expired(reader, now_ms):
            changes.append(ReaderSet(collection.id, reader_id, None))
        else:
            alive[reader_id] = reader
    if not any(reader.since <= collection.since for reader in alive.values()):
        # Else somebody holds it where it is: one of the many that read it, and move one by one.
        wanted: Times = reduce(Frontier.meet, (r.since for r in alive.values()), Frontier.closed())
        since = collection.since.join(wanted)
        if since != collection.since:
            changes.append(SinceMoved(collection.id, since))
    return changes


def allow_compaction(state: State, command: c.AllowCompaction, now_ms: int) -> Decision:
    """Move the owner's holds."""
    changes: list[Change] = []
    ids = [gid for gid, _ in command.since]
    if len(set(ids)) != len(ids):
        raise DuplicateCollection(ids)
    for gid, since in command.since:
        collection = collection_of(state, gid)
        owner = collection.readers.get(OWNER)
        if owner is None:
            raise NoOwner(collection.name)
        in_bounds(f"collection {collection.name!r}", since)
        if not owner.since <= since:
            raise CompactionRegression(collection.name, since, owner.since)
        if owner.since == since:
            continue
        moved = Reader(since, OWNER)
        changes.append(ReaderSet(gid, OWNER, moved))
        readers = {**collection.readers, OWNER: moved}
        changes.extend(_since_changes(collection, readers, now_ms))
    return Decision(c.Done(), tuple(changes))


def _reader(collection: CollectionState, reader_id: str, now_ms: int) -> Reader:
    reader = collection.readers.get(reader_id)
    what = f"read capability on collection {collection.name!r}"
    if reader is None or reader_id == OWNER:
        raise InvalidCapability(what, "it was dropped, or never existed")
    if _expired(reader, now_ms):
        raise InvalidCapability(what, f"its lease of {reader.lease_ms} ms has expired")
    return reader


def open_reader(state: State, command: c.OpenReader, now_ms: int) -> Decision:
    """Make a read capability; the same id again is the same capability."""
    collection = collection_of(state, command.id)
    existing = collection.readers.get(command.reader_id)
    if existing is not None:
        return Decision(c.Held(existing.since))
    since = collection.since if command.since is None else command.since
    in_bounds(f"collection {collection.name!r}", since)
    if not collection.since <= since:
        raise CompactionRegression(collection.name, since, collection.since)
    expires = now_ms + command.lease_ms if command.lease_ms else 0
    reader = Reader(since, command.purpose, command.lease_ms, expires)
    return Decision(c.Held(since), (ReaderSet(collection.id, command.reader_id, reader),))


def move_reader(
    state: State, command: c.DowngradeReader | c.DropReader | c.RenewReader, now_ms: int
) -> Decision:
    """Move, drop or renew a read capability."""
    collection = collection_of(state, command.id)
    if isinstance(command, c.DropReader) and command.reader_id not in collection.readers:
        return DONE  # dropping is idempotent: its reply may have been lost
    reader = _reader(collection, command.reader_id, now_ms)
    expires = now_ms + reader.lease_ms if reader.lease_ms else 0
    match command:
        case c.RenewReader():
            renewed = Reader(reader.since, reader.purpose, reader.lease_ms, expires)
            changes = (ReaderSet(collection.id, command.reader_id, renewed),)
            return Decision(c.Held(reader.since), changes)
        case c.DowngradeReader():
            in_bounds(f"collection {collection.name!r}", command.since)
            if not reader.since <= command.since:
                raise CompactionRegression(collection.name, command.since, reader.since)
            moved = Reader(command.since, reader.purpose, reader.lease_ms, expires)
            readers = {**collection.readers, command.reader_id: moved}
            outcome: c.Outcome = c.Held(command.since)
            first: Change = ReaderSet(collection.id, command.reader_id, moved)
        case c.DropReader():
            readers = {k: v for k, v in collection.readers.items() if k != command.reader_id}
            outcome, first = c.Done(), ReaderSet(collection.id, command.reader_id, None)
    return Decision(outcome, (first, *_since_changes(collection, readers, now_ms)))


def _writer(collection: CollectionState, writer_id: str, now_ms: int) -> Writer:
    writer = collection.writers.get(writer_id)
    what = f"write capability on collection {collection.name!r}"
    if writer is None:
        raise InvalidCapability(what, "it was dropped, or never existed")
    if _expired(writer, now_ms):
        raise InvalidCapability(what, f"its lease of {writer.lease_ms} ms has expired")
    return writer


def open_writer(state: State, command: c.OpenWriter, now_ms: int) -> Decision:
    """Make a write capability; the same id again is the same capability."""
    collection = collection_of(state, command.id)
    existing = collection.writers.get(command.writer_id)
    if existing is not None:
        return Decision(c.Held(existing.frontier))
    upper = state.upper(collection)
    frontier = upper if command.frontier is None else command.frontier
    in_bounds(f"collection {collection.name!r}", frontier)
    if not upper <= frontier:
        raise SealRegression(collection.name, frontier, upper)
    expires = now_ms + command.lease_ms if command.lease_ms else 0
    writer = Writer(frontier, command.purpose, command.lease_ms, expires)
    return Decision(c.Held(frontier), (WriterSet(collection.id, command.writer_id, writer),))


def _expired(holder: Reader | Writer, now_ms: int) -> bool:
    return bool(holder.lease_ms) and holder.expires_ms <= now_ms


def expired_writers(collection: CollectionState, now_ms: int) -> list[Change]:
    """Return what sweeps the expired write capabilities away."""
    return [
        WriterSet(collection.id, writer_id, None)
        for writer_id, writer in collection.writers.items()
        if _expired(writer, now_ms)
    ]


def _upper_changes(
    state: State,
    collection: CollectionState,
    writers: dict[str, Writer],
    now_ms: int,
) -> list[Change]:
    """Seal up to the meet of the write capabilities that are left; none left closes."""
    changes: list[Change] = []
    alive: dict[str, Writer] = {}
    for writer_id, writer in writers.items():
        if _expired(writer, now_ms):
            changes.append(WriterSet(collection.id, writer_id, None))
        else:
            alive[writer_id] = writer
    if not alive and collection.timeline is not None:
        return changes
    wanted: Times = reduce(Frontier.meet, (w.frontier for w in alive.values()), Frontier.closed())
    current = state.upper(collection)
    if current < wanted:
        changes.append(Sealed(collection.id, wanted))
    return changes


def update_and_downgrade(state: State, command: c.UpdateAndDowngrade, now_ms: int) -> Decision:
    """Write in ``[frontier, new_frontier)``, and move the capability, in one."""
    collection = collection_of(state, command.id)
    writer = _writer(collection, command.writer_id, now_ms)
    # Before the frontier is looked at: that was moved by the very update whose reply was lost.
    if command.token == writer.last_update or collection.remembers(command.token):
        return Decision(c.AlreadyDone())
    in_bounds(f"collection {collection.name!r}", command.new_frontier)
    if not writer.frontier < command.new_frontier:
        raise InvalidBounds(collection.name, writer.frontier, command.new_frontier)
    check_parts(state, collection, command.parts)
    for part in command.parts:
        if not writer.frontier.allows(part.time_min):
            raise WriteBeforeUpper(collection.name, part.time_min, writer.frontier)
        if command.new_frontier.allows(part.time_max):
            raise UpdateBeyondUpper(collection.name, part.time_max, command.new_frontier)
    return _moved_writer(state, collection, command.writer_id, writer, command, now_ms)


def _moved_writer(
    state: State,
    collection: CollectionState,
    writer_id: str,
    writer: Writer,
    command: c.UpdateAndDowngrade,
    now_ms: int,
) -> Decision:
    expires = now_ms + writer.lease_ms if writer.lease_ms else 0
    moved = replace(
        writer,
        frontier=command.new_frontier,
        expires_ms=expires,
        last_update=command.token,
    )
    writers = {**collection.writers, writer_id: moved}
    changes: list[Change] = [WriterSet(collection.id, writer_id, moved)]
    if command.parts:
        changes.append(Written(collection.id, Unsealed(command.token, command.parts)))
    changes.extend(_upper_changes(state, collection, writers, now_ms))
    return Decision(c.Held(command.new_frontier), tuple(changes))


def move_writer(
    state: State, command: c.DowngradeWriter | c.DropWriter | c.RenewWriter, now_ms: int
) -> Decision:
    """Move, drop or renew a write capability."""
    collection = collection_of(state, command.id)
    if isinstance(command, c.DropWriter) and command.writer_id not in collection.writers:
        return DONE
    writer = _writer(collection, command.writer_id, now_ms)
    expires = now_ms + writer.lease_ms if writer.lease_ms else 0
    match command:
        case c.RenewWriter():
            renewed = replace(writer, expires_ms=expires)
            changes = (WriterSet(collection.id, command.writer_id, renewed),)
            return Decision(c.Held(writer.frontier), changes)
        case c.DowngradeWriter():
            in_bounds(f"collection {collection.name!r}", command.frontier)
            if not writer.frontier <= command.frontier:
                raise SealRegression(collection.name, command.frontier, writer.frontier)
            moved = replace(writer, frontier=command.frontier, expires_ms=expires)
            writers = {**collection.writers, command.writer_id: moved}
            outcome: c.Outcome = c.Held(command.frontier)
            first: Change = WriterSet(collection.id, command.writer_id, moved)
        case c.DropWriter():
            writers = {k: v for k, v in collection.writers.items() if k != command.writer_id}
            outcome, first = c.Done(), WriterSet(collection.id, command.writer_id, None)
    return Decision(outcome, (first, *_upper_changes(state, collection, writers, now_ms)))


def retire_writer(state: State, command: c.RetireWriter, now_ms: int) -> Decision:
    """Take the only write capability away and leave the upper where it is.

    Whoever presented it writes from now on by ``compare_and_append``. Another capability would hold
    the upper back, and its drop, as that of the last one, would close the collection: refused.
    """
    collection = collection_of(state, command.id)
    _writer(collection, command.writer_id, now_ms)
    for writer_id, writer in collection.writers.items():
        if writer_id != command.writer_id and not _expired(writer, now_ms):
            raise NotTheOnlyWriter(collection.name, writer.purpose, writer.frontier)
    retired = (command.writer_id, *(w for w in collection.writers if w != command.writer_id))
    return Decision(c.Done(), tuple(WriterSet(collection.id, w, None) for w in retired))

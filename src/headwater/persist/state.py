"""The state of a location, and how each change of the log moves it.

``apply(state, entry) -> state`` is pure and total: the same entries give the same state for ever,
in every process. States are immutable values; a reader keeps one as long as it likes.

Invariants of a collection (``violations`` lists every breach; fsck and the simulations call it):

- batches tile ``[0, batches[-1].upper)`` and hold nothing at or after ``upper``;
  between the last batch's upper and the collection's upper there are no updates;
- every batch's since <= the collection's since; no unsealed time is before ``upper``;
- ``since`` and ``upper`` never move back; ``since`` <= every live reader's since;
- ids and names are unique, also against the destroyed.

The upper of a collection on a timeline is *derived*: ``max(own, timeline)``, unless it is *apart*:
it has unsealed writes that the timeline must not step over, or write capabilities, which then say
how far it is. So ``advance`` costs the same whatever the number of collections.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import immutables
import msgspec

from headwater.algebra.frontier import Frontier
from headwater.base.ids import Epoch, GlobalId, RoleName, SeqNo
from headwater.persist.batch import MINIMUM, Part, Segment, Times
from headwater.persist.changes import (
    Appended,
    Change,
    Collected,
    CollectionCreated,
    CollectionDestroyed,
    Entry,
    IdReserved,
    ItemSet,
    Merged,
    Reader,
    Role,
    RoleSet,
    RolledUp,
    Sealed,
    TimelineAdvanced,
    WriterSet,
    Written,
)
from headwater.persist.collection_state import (
    OWNER,
    TOKENS_KEPT,
    CollectionState,
    bound,
    changed,
    replace,
)
from headwater.persist.errors import Corrupt

__all__ = [
    "OWNER",
    "TOKENS_KEPT",
    "CollectionState",
    "Rollup",
    "State",
    "Timeline",
    "apply",
    "apply_change",
    "bound",
    "replace",
    "violations",
]


class Timeline(msgspec.Struct, frozen=True):
    """A timeline: how far it is, and which collections do not simply follow it."""

    upper: int
    apart: frozenset[GlobalId] = frozenset()


class Rollup(msgspec.Struct, frozen=True):
    """A whole state in blob."""

    seqno: SeqNo
    key: str


class State(msgspec.Struct, frozen=True):
    """The whole location, after the entry ``seqno``."""

    seqno: SeqNo = SeqNo(-1)
    clock_ms: int = 0
    next_id: int = 1
    reserved: frozenset[GlobalId] = frozenset()
    """Ids that were handed out and are not bound yet."""
    roles: immutables.Map[RoleName, Role] = immutables.Map()
    timelines: immutables.Map[str, Timeline] = immutables.Map()
    collections: immutables.Map[GlobalId, CollectionState] = immutables.Map()
    graveyard: immutables.Map[str, GlobalId] = immutables.Map()
    items: immutables.Map[str, bytes] = immutables.Map()
    rollups: tuple[Rollup, ...] = ()
    garbage: immutables.Map[str, SeqNo] = immutables.Map()
    """Objects no collection refers to any more, with the entry that let them go."""
    names: immutables.Map[str, GlobalId] = immutables.Map()
    """Derived: name to id of the living."""
    references: immutables.Map[str, int] = immutables.Map()
    """Derived: how many parts refer to each object; those of volatile collections do not count."""
    volatile: frozenset[GlobalId] = frozenset()
    """Derived: the collections that are not durable."""

    def upper(self, collection: CollectionState) -> Times:
        """Return the collection's upper: its own, or its timeline's where it just follows."""
        if collection.timeline is None:
            return collection.own_upper
        timeline = self.timelines[collection.timeline]
        if collection.id in timeline.apart:
            return collection.own_upper
        return collection.own_upper.join(Frontier.of(timeline.upper))

    def epoch(self, role: RoleName) -> Epoch:
        """Return the role's current epoch; 0 if it was never held."""
        held = self.roles.get(role)
        return Epoch(0) if held is None else held.epoch


def _advance(state: State, change: TimelineAdvanced) -> State:
    timeline = state.timelines.get(change.timeline)
    if timeline is None:
        created = Timeline(change.upper)
        return replace(state, timelines=state.timelines.set(change.timeline, created))
    upper = Frontier.of(change.upper)
    collections = state.collections
    apart = set(timeline.apart)
    for member in timeline.apart:
        collection = collections[member]
        if collection.writers or collection.unsealed.time_min < change.upper:
            continue
        if not upper <= collection.own_upper:
            collections = collections.set(member, replace(collection, own_upper=upper))
        if not collection.unsealed:
            apart.discard(member)
    advanced = Timeline(change.upper, frozenset(apart))
    return replace(
        state, collections=collections, timelines=state.timelines.set(change.timeline, advanced)
    )


def _moved_parts(
    old: CollectionState, new: CollectionState | None, change: Change
) -> tuple[Iterable[Part], Iterable[Part]]:
    """Return the parts a change can have let go, and those it can have brought.

    Only what the change is about: to look at all parts would make every write cost what the
    collection has gathered.
    """
    match change:
        case Written():
            return (), change.unsealed.parts
        case Merged():
            merged = (batch for batch in old.batches if batch.no in change.inputs)
            return (part for batch in merged for part in batch.parts), change.parts
        case Sealed() | Appended() if new is not None:
            sealed = (part for batch in new.batches[len(old.batches) :] for part in batch.parts)
            if new.unsealed is old.unsealed:
                return (), sealed
            left = (part for unsealed in new.unsealed for part in unsealed.parts)
            return (part for unsealed in old.unsealed for part in unsealed.parts), chain(
                sealed, left
            )
        case CollectionDestroyed():
            return old.parts(), ()
        case _:
            return (), ()


def _references(state: State, released: Iterable[Part], gained: Iterable[Part]) -> State:
    """Recount the objects that are referred to; those let go become garbage."""
    references, garbage = state.references, state.garbage
    before = {id(part): part for part in released}
    after = {id(part): part for part in gained}
    if not before and not after:
        return state
    for key, part in after.items():
        if key not in before and isinstance(part.where, Segment):
            count = references.get(part.where.key, 0)
            references = references.set(part.where.key, count + 1)
            if part.where.key in garbage:
                garbage = garbage.delete(part.where.key)
    for key, part in before.items():
        if key not in after and isinstance(part.where, Segment):
            count = references[part.where.key] - 1
            if count:
                references = references.set(part.where.key, count)
            else:
                references = references.delete(part.where.key)
                garbage = garbage.set(part.where.key, state.seqno)
    if references is state.references:
        return state
    return replace(state, references=references, garbage=garbage)


def apply_change(state: State, change: Change) -> State:
    """Return the state after one change."""
    match change:
        case CollectionCreated():
            created = CollectionState(
                id=change.id,
                name=change.name,
                schemas=(change.schema,),
                key=change.key,
                layout=change.layout,
                codecs=(change.codec,),
                own_upper=change.start,
                since=change.start,
                timeline=change.timeline,
                readers={OWNER: Reader(change.start, OWNER)} if change.owner else {},
                volatile_from=change.start if change.volatile else None,
            )
            volatile = state.volatile | {change.id} if change.volatile else state.volatile
            return replace(
                state,
                next_id=max(state.next_id, change.id + 1),
                reserved=state.reserved - {change.id},
                collections=state.collections.set(change.id, created),
                names=state.names.set(change.name, change.id),
                volatile=volatile,
            )
        case IdReserved():
            return replace(
                state, next_id=change.id + 1, reserved=state.reserved | frozenset((change.id,))
            )
        case TimelineAdvanced():
            return _advance(state, change)
        case RoleSet():
            return replace(state, roles=state.roles.set(change.role, change.value))
        case ItemSet():
            if change.value is not None:
                return replace(state, items=state.items.set(change.key, change.value))
            if change.key in state.items:
                return replace(state, items=state.items.delete(change.key))
            return state
        case RolledUp():
            # The previous one stays readable for whoever is just loading it.
            kept = (*state.rollups[-1:], Rollup(change.seqno, change.key))
            garbage = state.garbage
            for old in state.rollups[:-1]:
                garbage = garbage.set(old.key, state.seqno)
            return replace(state, rollups=kept, garbage=garbage)
        case Collected():
            garbage = state.garbage
            for key in change.keys:
                if key in garbage:
                    garbage = garbage.delete(key)
            return replace(state, garbage=garbage)
        case _:
            return _apply_to_collection(state, change)


def _apply_to_collection(state: State, change: Change) -> State:
    assert not isinstance(
        change,
        CollectionCreated
        | IdReserved
        | TimelineAdvanced
        | RoleSet
        | ItemSet
        | RolledUp
        | Collected,
    )
    old = state.collections[change.id]
    new = changed(old, change, state.upper(old))
    if old.volatile_from is None:  # Else no process but its own could say the same.
        state = _references(state, *_moved_parts(old, new, change))
    timelines = state.timelines
    if old.timeline is not None and isinstance(change, Written | WriterSet | CollectionDestroyed):
        timeline = timelines[old.timeline]
        member = frozenset((old.id,))
        apart = timeline.apart | member if new is not None else timeline.apart - member
        if len(apart) != len(timeline.apart):
            timelines = timelines.set(old.timeline, Timeline(timeline.upper, apart))
    if new is None:
        return replace(
            state,
            collections=state.collections.delete(old.id),
            names=state.names.delete(old.name),
            graveyard=state.graveyard.set(old.name, old.id),
            timelines=timelines,
            volatile=state.volatile - {old.id},
        )
    return replace(state, collections=state.collections.set(old.id, new), timelines=timelines)


def apply(state: State, entry: Entry) -> State:
    """Return the state after ``entry``; refuse an entry that cannot be the next one."""
    if entry.seqno != state.seqno + 1:
        raise Corrupt(f"log entry {entry.seqno}", f"it does not follow entry {state.seqno}")
    current = state.epoch(entry.role)
    if entry.epoch != current and not _takes_role(entry):
        raise Corrupt(
            f"log entry {entry.seqno}",
            f"role {entry.role!r} wrote it in epoch {entry.epoch}, but is in epoch {current}",
        )
    state = replace(state, seqno=entry.seqno, clock_ms=max(state.clock_ms, entry.clock_ms))
    for change in entry.changes:
        state = apply_change(state, change)
    role = state.roles.get(entry.role)
    if role is not None and role.epoch == entry.epoch:
        written = replace(
            role, last_entry=entry.nonce, closed_step=max(role.closed_step, entry.closed_step)
        )
        state = replace(state, roles=state.roles.set(entry.role, written))
    return state


def _takes_role(entry: Entry) -> bool:
    return any(
        isinstance(change, RoleSet)
        and change.role == entry.role
        and change.value.epoch == entry.epoch
        for change in entry.changes
    )


def violations(state: State) -> Iterator[str]:
    """Name every broken invariant of a state."""
    references: dict[str, int] = {}
    for collection in state.collections.values():
        where = f"collection {collection.name!r} (id {collection.id})"
        if len(collection.codecs) != len(collection.schemas):
            yield f"{where}: its codecs and its schemas are not as many"
        upper, expected = state.upper(collection), Frontier.of(MINIMUM)
        for batch in collection.batches:
            if batch.lower != expected:
                yield f"{where}: batch {batch.no} begins at {batch.lower}, not at {expected}"
            if not batch.since <= collection.since:
                yield f"{where}: batch {batch.no} is compacted to {batch.since}, past the since"
            expected = batch.upper
        if not expected <= upper:
            yield f"{where}: its batches reach {expected}, past its upper {upper}"
        for unsealed in collection.unsealed:
            if not upper.allows(unsealed.time_min):
                yield f"{where}: unsealed write {unsealed.token} is before the upper {upper}"
        for part in collection.parts():
            if isinstance(part.where, Segment) and collection.volatile_from is None:
                references[part.where.key] = references.get(part.where.key, 0) + 1
            if not 0 <= part.schema < len(collection.schemas):
                yield f"{where}: a part names schema {part.schema}, which does not exist"
        for reader_id, reader in collection.readers.items():
            expired = reader.lease_ms and reader.expires_ms <= state.clock_ms
            if not expired and not collection.since <= reader.since:
                yield f"{where}: since {collection.since} passed reader {reader_id[:6]}…"
        for writer_id, writer in collection.writers.items():
            expired = writer.lease_ms and writer.expires_ms <= state.clock_ms
            if not expired and not upper <= writer.frontier:
                yield f"{where}: upper {upper} passed writer {writer_id[:6]}…"
        if state.names.get(collection.name) != collection.id:
            yield f"{where}: its name belongs to id {state.names.get(collection.name)}"
        if collection.name in state.graveyard:
            yield f"{where}: its name was destroyed"
        if collection.id >= state.next_id:
            yield f"{where}: its id was never handed out"
    if dict(state.references) != references:
        yield "reference counts of objects are wrong"
    for key in state.garbage:
        if key in references:
            yield f"object {key} is garbage and referenced"

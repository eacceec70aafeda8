"""Decisions: from a state and a command to an outcome and the changes that bring it about.

Pure: no clock, no storage, no randomness. Everything that can be wrong with a request is found
here, against the state just before it commits; whoever loses the race for the next entry decides
again on the new state (``persist/machine.py``).

    decide(state, command, now_ms) -> Decision(outcome, changes)      or raises InvalidUsage

A decision without changes says nothing new to the log: it is committed already, or refused.
"""

from __future__ import annotations

from headwater.algebra.frontier import Frontier
from headwater.base.ids import Epoch, GlobalId
from headwater.persist import commands as c
from headwater.persist import evolution, holds, volatile
from headwater.persist.batch import Times, Unsealed
from headwater.persist.changes import (
    Appended,
    Change,
    Collected,
    CollectionCreated,
    CollectionDestroyed,
    IdReserved,
    ItemSet,
    Merged,
    Role,
    RoleSet,
    RolledUp,
    SchemaAdded,
    Sealed,
    TimelineAdvanced,
    Written,
)
from headwater.persist.decision import (
    DONE,
    Decision,
    check_parts,
    collection_named,
    collection_of,
    in_bounds,
)
from headwater.persist.errors import (
    AlreadyLocked,
    ClosedCollection,
    CodecMismatch,
    DestroyedCollection,
    DuplicateCollection,
    Fenced,
    HeldByWriter,
    IdNotReserved,
    InvalidBounds,
    LayoutMismatch,
    SealRegression,
    TimelineMismatch,
    TimelineRegression,
    UnknownTimeline,
    UpdateBeyondUpper,
    WriteBeforeUpper,
)
from headwater.persist.state import CollectionState, State, apply_change


def decide(state: State, command: c.Command, now_ms: int) -> Decision:
    """Decide one command. ``now_ms`` is the log's clock, as the entry will carry it."""
    match command:
        case c.ReserveId():
            reserved = GlobalId(state.next_id)
            return Decision(c.Reserved(reserved), (IdReserved(reserved),))
        case c.CreateOrLoad():
            return _create_or_load(state, command)
        case c.Destroy():
            return _destroy(state, command)
        case c.Write():
            return _write(state, command)
        case c.Seal():
            return _seal(state, command)
        case c.CompareAndAppend():
            return _compare_and_append(state, command)
        case c.AllowCompaction():
            return holds.allow_compaction(state, command, now_ms)
        case c.Advance():
            return _advance(state, command, now_ms)
        case c.OpenReader():
            return holds.open_reader(state, command, now_ms)
        case c.DowngradeReader() | c.DropReader() | c.RenewReader():
            return holds.move_reader(state, command, now_ms)
        case c.OpenWriter():
            return holds.open_writer(state, command, now_ms)
        case c.UpdateAndDowngrade():
            return holds.update_and_downgrade(state, command, now_ms)
        case c.DowngradeWriter() | c.DropWriter() | c.RenewWriter():
            return holds.move_writer(state, command, now_ms)
        case c.RetireWriter():
            return holds.retire_writer(state, command, now_ms)
        case c.ApplyMerge():
            return _apply_merge(state, command)
        case c.AddRollup():
            known = state.rollups and state.rollups[-1].seqno >= command.seqno
            return DONE if known else Decision(c.Done(), (RolledUp(command.seqno, command.key),))
        case c.ForgetGarbage():
            keys = tuple(key for key in command.keys if key in state.garbage)
            return Decision(c.Done(), (Collected(keys),)) if keys else DONE
        case c.AcquireRole():
            return _acquire_role(state, command)
        case c.ReleaseRole():
            return _release_role(state, command)
        case c.AssertRole():
            current = state.roles.get(command.role)
            if current is None or current.epoch != command.epoch:
                holder = "nobody" if current is None else current.holder
                raise Fenced(command.role, command.epoch, state.epoch(command.role), holder)
            return DONE
        case c.SetItem():
            if state.items.get(command.key) == command.value:
                return DONE
            return Decision(c.Done(), (ItemSet(command.key, command.value),))
        case c.Atomic():
            return _atomic(state, command, now_ms)


def _atomic(state: State, command: c.Atomic, now_ms: int) -> Decision:
    outcomes: list[c.Outcome] = []
    changes: list[Change] = []
    for part in command.commands:
        decision = decide(state, part, now_ms)
        if isinstance(decision.outcome, c.UpperMismatch | c.MergeNotApplied):
            return Decision(decision.outcome)
        outcomes.append(decision.outcome)
        for change in decision.changes:
            state = apply_change(state, change)
            changes.append(change)
    return Decision(c.All(tuple(outcomes)), tuple(changes), state)


# ---- life cycle ------------------------------------------------------------------------------


def _create_or_load(state: State, command: c.CreateOrLoad) -> Decision:
    if command.name in state.graveyard:
        raise DestroyedCollection(command.name)
    existing = state.names.get(command.name)
    if existing is None:
        return _create(state, command)
    if command.id is not None:
        same = command.id == existing
        why = "it was bound before" if same else f"that collection has id {existing}"
        raise IdNotReserved(command.id, command.name, why)
    collection = state.collections[existing]
    stored = collection.codec
    if stored.name != command.codec.name or stored.version > command.codec.version:
        raise CodecMismatch(command.name, str(stored), str(command.codec))
    if (collection.layout, collection.key) != (command.layout, command.key):
        raise LayoutMismatch(
            command.name,
            f"it has layout {collection.layout} keyed by {list(collection.key)}, "
            f"not {command.layout} keyed by {list(command.key)}",
        )
    if command.timeline not in {None, collection.timeline}:
        raise TimelineMismatch(command.name, collection.timeline, command.timeline)
    volatile.check_same(collection, command.volatile)
    newest = collection.schemas[-1]
    evolved = not evolution.same(newest, command.schema)
    if evolved:
        evolution.check(command.name, newest, command.schema)
    if not evolved and stored == command.codec:
        return Decision(c.Loaded(existing))
    change = SchemaAdded(existing, command.schema, command.codec)
    return Decision(c.Loaded(existing), (change,))


def _create(state: State, command: c.CreateOrLoad) -> Decision:
    if command.timeline is not None and command.timeline not in state.timelines:
        raise UnknownTimeline(command.timeline)
    if command.timeline is not None and command.volatile:
        raise TimelineMismatch(command.name, None, command.timeline)
    if command.id is not None and command.id not in state.reserved:
        bound = command.id in state.collections or command.id in state.graveyard.values()
        why = "it was bound before" if bound else "it was never reserved"
        raise IdNotReserved(command.id, command.name, why)
    in_bounds(f"collection {command.name!r}", Frontier.of(command.start))
    evolution.check_new(command.name, command.schema, command.key)
    start = command.start
    if command.timeline is not None:
        start = max(start, state.timelines[command.timeline].upper)
    gid = GlobalId(state.next_id) if command.id is None else command.id
    created = CollectionCreated(
        id=gid,
        name=command.name,
        schema=command.schema,
        key=command.key,
        layout=command.layout,
        codec=command.codec,
        start=Frontier.of(start),
        timeline=command.timeline,
        owner=command.owner,
        volatile=command.volatile,
    )
    return Decision(c.Created(gid), (created,))


def _destroy(state: State, command: c.Destroy) -> Decision:
    if command.name in state.graveyard:
        return Decision(c.Destroyed(existed=False))
    collection = collection_named(state, command.name)
    return Decision(c.Destroyed(existed=True), (CollectionDestroyed(collection.id),))


# ---- writing ---------------------------------------------------------------------------------


def _write(state: State, command: c.Write) -> Decision:
    collection = collection_of(state, command.id)
    upper = state.upper(collection)
    if collection.remembers(command.token):
        return Decision(c.AlreadyDone())
    if not command.parts:
        return DONE  # It says nothing, and its retry says nothing again: no token to remember.
    if upper.is_closed:
        raise ClosedCollection(collection.name)
    check_parts(state, collection, command.parts)
    # A retry so late that its token is forgotten was sealed long ago: it is refused here, and so
    # never doubled. While a write is unsealed its token is never forgotten.
    for part in command.parts:
        if not upper.allows(part.time_min):
            raise WriteBeforeUpper(collection.name, part.time_min, upper)
    return Decision(c.Done(), (Written(collection.id, Unsealed(command.token, command.parts)),))


def _check_writers(collection: CollectionState, upper: Times) -> None:
    """Refuse to move the upper past somebody's write capability, expired or not."""
    for writer in collection.writers.values():
        if not upper <= writer.frontier:
            raise HeldByWriter(collection.name, upper, writer.purpose, writer.frontier)


def _seal(state: State, command: c.Seal) -> Decision:
    if len(set(command.ids)) != len(command.ids):
        raise DuplicateCollection(list(command.ids))
    in_bounds("seal", command.upper)
    changes: list[Change] = []
    for gid in command.ids:
        collection = collection_of(state, gid)
        current = state.upper(collection)
        if current == command.upper:
            continue
        if not current <= command.upper:
            raise SealRegression(collection.name, command.upper, current)
        _check_writers(collection, command.upper)
        changes.append(Sealed(gid, command.upper))
    return Decision(c.Done(), tuple(changes))


def _compare_and_append(state: State, command: c.CompareAndAppend) -> Decision:
    collection = collection_of(state, command.id)
    # The token is looked at before the frontier: after a lost reply, the retry of a committed
    # append finds the upper moved by itself, and must not report a mismatch.
    if collection.remembers(command.token):
        return Decision(c.AlreadyDone())
    in_bounds(f"collection {collection.name!r}", command.lower, command.upper)
    if not command.lower < command.upper:
        raise InvalidBounds(collection.name, command.lower, command.upper)
    check_parts(state, collection, command.parts)
    for part in command.parts:
        if not command.lower.allows(part.time_min):
            raise WriteBeforeUpper(collection.name, part.time_min, command.lower)
        if command.upper.allows(part.time_max):
            raise UpdateBeyondUpper(collection.name, part.time_max, command.upper)
    current = state.upper(collection)
    if current != command.lower:
        return Decision(c.UpperMismatch(collection.id, command.lower, current))
    _check_writers(collection, command.upper)
    appended = Appended(collection.id, command.token, command.upper, command.parts)
    return Decision(c.Done(), (appended,))


def _advance(state: State, command: c.Advance, now_ms: int) -> Decision:
    timeline = state.timelines.get(command.timeline)
    if command.upper is None:
        if timeline is None:
            raise UnknownTimeline(command.timeline)
        upper = timeline.upper
    else:
        upper = command.upper
    in_bounds(f"timeline {command.timeline!r}", Frontier.of(upper))
    if timeline is not None and upper < timeline.upper:
        raise TimelineRegression(command.timeline, upper, timeline.upper)
    if timeline is not None and upper == timeline.upper and not timeline.apart:
        return DONE
    # The timeline is a writer of its tables like any other: its move sweeps the expired away.
    changes: list[Change] = []
    for member in sorted(timeline.apart) if timeline is not None else ():
        changes.extend(holds.expired_writers(state.collections[member], now_ms))
    return Decision(c.Done(), (*changes, TimelineAdvanced(command.timeline, upper)))


# ---- maintenance and roles -------------------------------------------------------------------


def _apply_merge(state: State, command: c.ApplyMerge) -> Decision:
    collection = state.collections.get(command.id)
    if collection is None:
        return Decision(c.MergeNotApplied())
    numbers = tuple(batch.no for batch in collection.batches)
    if command.inputs[0] not in numbers:
        return Decision(c.MergeNotApplied())
    first = numbers.index(command.inputs[0])
    if numbers[first : first + len(command.inputs)] != command.inputs:
        return Decision(c.MergeNotApplied())
    # A merge that advanced times past the collection's since would hide readable history.
    if not command.since <= collection.since:
        return Decision(c.MergeNotApplied())
    merged = Merged(command.id, command.inputs, command.since, command.parts)
    return Decision(c.Done(), (merged,))


def _acquire_role(state: State, command: c.AcquireRole) -> Decision:
    current = state.roles.get(command.role)
    if current is not None and current.held:
        reentrant = bool(current.reentrance_id) and current.reentrance_id == command.reentrance_id
        if not reentrant and not command.take_over:
            raise AlreadyLocked(command.role, current.holder, current.epoch)
    epoch = Epoch(state.epoch(command.role) + 1)
    role = Role(epoch, held=True, holder=command.holder, reentrance_id=command.reentrance_id)
    return Decision(c.Acquired(epoch), (RoleSet(command.role, role),))


def _release_role(state: State, command: c.ReleaseRole) -> Decision:
    current = state.roles.get(command.role)
    if current is None or current.epoch != command.epoch or not current.held:
        return DONE
    released = Role(
        current.epoch,
        held=False,
        holder=current.holder,
        reentrance_id=current.reentrance_id,
        last_entry=current.last_entry,
        closed_step=current.closed_step,
    )
    return Decision(c.Done(), (RoleSet(command.role, released),))

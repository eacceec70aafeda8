"""Volatile collections: the log knows that they are there, their process what they hold.

    in the log          id, name, schema, readers and so ``since``, and the end
    in the process      batches, unsealed writes, upper: the changes of :data:`KEPT`

All of it is one :class:`~.state.State` to whoever reads in that process: snapshots, listens, steps
and merges do not know the difference. An entry is still committed for every group of requests, also
for one with nothing to say in the log: so what was kept is acknowledged only by a process that was
not fenced, and in the order of everything else.

Who opens the location finds a volatile collection empty, its upper where it began. Whoever made it
fills it again, from what is durable: the same at every time from ``since`` on, else it must not be
volatile. The upper thus goes back at a restart, and comes again; ``since`` never does.

Parts too large for memory are objects under ordinary part names that no log refers to. So they are
no part of a rollup, of a backup, or of the counted references; while they are held, the process
that wrote them keeps its own sweep away from them (:func:`objects`), and when it is gone they are
swept by their stale epoch.

Other processes can name such a collection, hold it and drop it, and are refused to read it.

Pure. Kept by: ``machine`` (which commits the one part and keeps the other), ``encoding``
(:func:`stripped`), ``log`` (:func:`carried`), ``maintenance``. Relied on by: ``compute``, for the
outputs of views that are not durable, and their states.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headwater.base.ids import GlobalId, RoleName
from headwater.persist.changes import (
    Appended,
    Change,
    CollectionCreated,
    Merged,
    Sealed,
    Written,
)
from headwater.persist.collection_state import CollectionState, replace
from headwater.persist.errors import KeptElsewhere, NotVolatile
from headwater.persist.in_use import objects_of
from headwater.persist.part import PartName
from headwater.persist.state import State, apply_change
from headwater.persist.unsealed import UnsealedWrites

Kept = Written | Sealed | Appended | Merged
KEPT: Final = (Written, Sealed, Appended, Merged)
"""The changes that say what a collection holds, and how far it is known."""


def split(state: State, changes: Iterable[Change]) -> tuple[tuple[Change, ...], tuple[Kept, ...]]:
    """Return of changes decided on a state those for the log, and those that stay here."""
    made: set[GlobalId] = set()
    logged: list[Change] = []
    kept: list[Kept] = []
    for change in changes:
        if isinstance(change, CollectionCreated) and change.volatile:
            made.add(change.id)
        if isinstance(change, KEPT) and (change.id in state.volatile or change.id in made):
            kept.append(change)
        else:
            logged.append(change)
    return tuple(logged), tuple(kept)


def with_kept(state: State, kept: Iterable[Kept]) -> State:
    """Return the state after changes that stay here; of what is gone by now there is nothing."""
    for change in kept:
        if change.id in state.volatile:
            state = apply_change(state, change)
    return state


def stripped(collection: CollectionState) -> CollectionState:
    """Return a collection as the log knows it."""
    if collection.volatile_from is None:
        return collection
    return replace(
        collection,
        own_upper=collection.volatile_from,
        batches=(),
        unsealed=UnsealedWrites(),
        next_batch=0,
        tokens=(),
    )


def carried(before: State, after: State) -> State:
    """Return a state that was loaded anew, with what this process kept of the one before it."""
    collections = after.collections
    for gid in before.volatile & after.volatile:
        held = before.collections[gid]
        again = replace(
            collections[gid],
            own_upper=held.own_upper,
            batches=held.batches,
            unsealed=held.unsealed,
            next_batch=held.next_batch,
            tokens=held.tokens,
        )
        collections = collections.set(gid, again)
    return after if collections is after.collections else replace(after, collections=collections)


def objects(state: State) -> frozenset[str]:
    """Return the objects that volatile collections of this process are in."""
    return frozenset(
        key for gid in state.volatile for key in objects_of(state.collections[gid].parts())
    )


def may_be_kept(state: State, key: str, ours: RoleName) -> bool:
    """Whether the process of another role may keep an object that the log does not know."""
    name = PartName.parse(key)
    if name is None or name.role == ours or not state.volatile:
        return False
    return name.epoch == state.epoch(name.role)


def check_same(collection: CollectionState, wanted: bool) -> None:
    """Refuse to take a collection for one that is durable, or that is not."""
    if wanted is not (collection.volatile_from is not None):
        raise NotVolatile(collection.name, wanted=wanted)


def check_here(collection: CollectionState, keeps: bool) -> None:
    """Refuse a reader where a volatile collection is not kept: it would wait for ever."""
    if collection.volatile_from is not None and not keeps:
        raise KeptElsewhere(collection.name)

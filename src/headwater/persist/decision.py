"""What a decision is, and the look-ups every decision shares."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headwater.base.ids import GlobalId
from headwater.persist import commands as c
from headwater.persist.batch import TIME_LIMIT, Part, Segment, Times
from headwater.persist.changes import Change
from headwater.persist.errors import (
    DestroyedCollection,
    StalePart,
    TimeOutOfBounds,
    UnknownCollection,
)
from headwater.persist.part import PartName
from headwater.persist.state import CollectionState, State


@dataclass(frozen=True, slots=True)
class Decision:
    """What came of a command, and what the log will say about it."""

    outcome: c.Outcome
    changes: tuple[Change, ...] = ()
    after: State | None = None
    """The state after the changes, where it had to be known to decide."""


DONE = Decision(c.Done())


def collection_of(state: State, gid: GlobalId) -> CollectionState:
    """Return the living collection with this id."""
    found = state.collections.get(gid)
    if found is not None:
        return found
    for name, dead in state.graveyard.items():
        if dead == gid:
            raise DestroyedCollection(name)
    raise UnknownCollection(f"with id {gid}")


def collection_named(state: State, name: str) -> CollectionState:
    """Return the living collection with this name."""
    if name in state.graveyard:
        raise DestroyedCollection(name)
    gid = state.names.get(name)
    if gid is None:
        raise UnknownCollection(repr(name))
    return state.collections[gid]


def in_bounds(what: str, *frontiers: Times) -> None:
    """Refuse a frontier at a time that cannot be."""
    for frontier in frontiers:
        for time in frontier:
            if not 0 <= time < TIME_LIMIT:
                raise TimeOutOfBounds(what, time)


def check_parts(state: State, collection: CollectionState, parts: Iterable[Part]) -> None:
    """Refuse parts at times that cannot be, and those that may be swept at any moment."""
    for part in parts:
        if isinstance(part.where, Segment) and part.where.key not in state.references:
            name = PartName.parse(part.where.key)
            if name is not None and name.is_over(state):
                raise StalePart(collection.name, part.where.key)
        for time in (part.time_min, part.time_max):
            if not 0 <= time < TIME_LIMIT:
                raise TimeOutOfBounds(f"update for collection {collection.name!r}", time)

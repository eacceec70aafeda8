"""Successions: one collection that goes on as another, from a time on.

    old   ──────────│ end
    new          ───┼── begin ───────────

What was replaced at ``begin`` is, for whoever follows it: the old one at all times before ``end``,
nothing new between ``end`` and ``begin``, at ``begin`` the difference ``new(begin) - old(end - 1)``
(``difference``), and the new one afterwards. ``end`` is ``begin``, unless the old one stands still
before it and will never be so far.

A succession is the item ``succession/<old>`` of the log, set in the entry that swaps the two, and
removed with the old collection. So every state says the same of both, and one that is cut out of
it (``subscription``) is never partly of one meaning and partly of another.

Invariant:      nobody was told anything of the old one at or after ``begin`` before the swap: it is
                the time of the swap's own entry, which nothing that was sealed before has reached.
Kept by:        whoever swaps (``adapter/replacement.py``), and keeps the old one for as long as
                somebody may have to read it.
Relied on by:   subscriptions, durable ones and those that run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
import pyarrow as pa

from headwater.base.decoding import from_json
from headwater.base.ids import GlobalId
from headwater.collection.schema import type_of
from headwater.persist.commands import SetItem
from headwater.persist.state import State

PREFIX: Final = "succession/"


class Succession(msgspec.Struct, frozen=True):
    """Which collection goes on, and when."""

    new: GlobalId
    end: int
    begin: int


def put(old: GlobalId, succession: Succession) -> SetItem:
    """Return the command that says how a collection goes on."""
    return SetItem(f"{PREFIX}{old}", msgspec.json.encode(succession))


def remove(old: GlobalId) -> SetItem:
    """Return the command that forgets it."""
    return SetItem(f"{PREFIX}{old}", None)


def succession(state: State, old: GlobalId) -> Succession | None:
    """Return how a collection goes on, if it does, as it was put down."""
    value = state.items.get(f"{PREFIX}{old}")
    return None if value is None else from_json(value, Succession)


def successor(state: State, old: GlobalId) -> Succession | None:
    """Return how a collection goes on: with the first one after it that ever means anything."""
    found = succession(state, old)
    while found is not None:
        following = succession(state, found.new)
        if following is None or following.end > found.begin:
            return found
        # Replaced itself, before it had come as far as its own begin.
        begin = max(found.begin, following.begin)
        found = Succession(following.new, found.end, begin)
    return None


def line(state: State, newest: GlobalId) -> tuple[GlobalId, ...]:
    """Return a collection and all before it that go on as it, the oldest first."""
    before = {known.new: old for old, known in _all(state)}
    found = [newest]
    while found[-1] in before:
        found.append(before[found[-1]])
    return tuple(reversed(found))


def at(state: State, newest: GlobalId, time: int) -> GlobalId:
    """Return the collection of a line that says what there is at a time."""
    *before, last = line(state, newest)
    for gid in before:
        following = successor(state, gid)
        if following is not None and time < following.begin:
            return gid
    return last


def _all(state: State) -> Iterator[tuple[GlobalId, Succession]]:
    for key, value in state.items.items():
        if key.startswith(PREFIX):
            yield GlobalId(int(key.removeprefix(PREFIX))), from_json(value, Succession)


def changed_columns(old: pa.Schema, new: pa.Schema) -> list[str]:
    """Say how the columns differ for who reads them; whether one may be NULL is not among it.

    >>> old = pa.schema([("k", pa.int32()), ("v", pa.string()), ("w", pa.string())])
    >>> new = pa.schema([pa.field("k", pa.int32(), nullable=False), ("v", pa.int64())])
    >>> changed_columns(old, new)
    ['column "v" was text and would be bigint', 'column "w" would be gone']
    >>> changed_columns(old, pa.schema([old.field(1), old.field(0), old.field(2)]))
    ['the order of the columns would change']
    """
    types = [{field.name: type_of(field) for field in schema} for schema in (old, new)]
    found = []
    for name, was in types[0].items():
        will = types[1].get(name)
        if will is None:
            found.append(f'column "{name}" would be gone')
        elif will != was:
            found.append(f'column "{name}" was {was.postgres} and would be {will.postgres}')
    found += [f'column "{name}" would be new' for name in types[1] if name not in types[0]]
    return found or (["the order of the columns would change"] if old.names != new.names else [])

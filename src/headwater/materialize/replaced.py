"""A binding whose collection was replaced by another: it goes on from the difference.

While a view is replaced its materializations rest. From then on a binding has the new collection,
and remembers the old one (:class:`Was`), with the hold that it had on it; or several of them, if
it is replaced again before that is forgotten:

    old   ─────────c────────│ until
    new              ───────┼──────────T───────
    endpoint       old(c)              new(T):   delivered  new(T) - old(c)  in one transaction

``until`` is not before any checkpoint that was committed from the old one, and all that are made
from the new one are after it. So a checkpoint alone says which of the two it is of, whoever asks
and whenever: a session that begins again after a crash does the same, and the endpoint sees every
change once.

The old collection is needed until every shard's endpoint has confirmed a checkpoint after
``until``. Then the hold on the new one, which is opened just before ``until``, has moved
(``recovery``), and :func:`settled` says so. A subscription goes on over a replacement by the same
difference (``collection/succession.py``), at the time of the swap itself: it tells every time, and
an endpoint has only those of checkpoints.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import msgspec
import pyarrow as pa

from headwater.algebra.frontier import Frontier
from headwater.base.errors import HeadwaterError, InvalidUsage
from headwater.base.ids import GlobalId
from headwater.collection.capability import ReadCapability, from_text, new_token
from headwater.collection.schema import type_of
from headwater.materialize.definition import Definition, Was
from headwater.persist import evolution
from headwater.persist.commands import Command, OpenReader
from headwater.persist.decision import collection_of
from headwater.persist.state import State

_PURPOSE: Final = "materialization {name}"


class CannotGoOn(InvalidUsage):
    """A materialization that cannot be moved to another collection."""

    def __init__(self, binding: str, why: str) -> None:
        super().__init__(f"its binding of {binding!r} {why}")


class CannotBeMoved(InvalidUsage):
    """Which materialization it is that cannot."""

    def __init__(self, name: str, why: HeadwaterError) -> None:
        super().__init__(f"materialization {name!r}: {why}")
        self.name = name
        self.why = why


def check_replaceable(definition: Definition, gone: Collection[GlobalId]) -> None:
    """Refuse what could not go on, whatever the new collections are."""
    for binding in definition.bindings:
        if binding.collection not in gone:
            continue
        if binding.append_only:
            raise CannotGoOn(
                binding.name, "promises APPEND_ONLY, and a replacement takes rows back"
            )


def check_columns(
    state: State, definition: Definition, swapped: Mapping[GlobalId, GlobalId]
) -> None:
    """Refuse collections that lack columns which are delivered, or have them of other types."""
    for old, new in swapped.items():
        check_schema(state, definition, old, _columns(state, new))


def _columns(state: State, gid: GlobalId) -> pa.Schema:
    return evolution.from_bytes(collection_of(state, gid).schemas[-1])


def check_schema(state: State, definition: Definition, old: GlobalId, new: pa.Schema) -> None:
    """Refuse columns in place of those of one collection."""
    others = {field.name: field for field in new}
    for binding in definition.bindings:
        if binding.collection != old:
            continue
        for field in _columns(state, old):
            name, other = field.name, others.get(field.name)
            if other is None or other.type != field.type:
                fate = "go" if other is None else f"be {type_of(other)}, no longer {type_of(field)}"
                raise CannotGoOn(binding.name, f"delivers the column {name!r}, which would {fate}")


def moved(
    state: State, definition: Definition, swapped: Mapping[GlobalId, GlobalId]
) -> tuple[Definition, tuple[Command, ...]]:
    """Return a materialization over the new collections, and what opens its holds on them."""
    bindings, reads = list(definition.bindings), list(definition.reads)
    opens: list[Command] = []
    for index, binding in enumerate(definition.bindings):
        new = swapped.get(binding.collection)
        if new is None:
            continue
        old = collection_of(state, binding.collection)
        since = collection_of(state, new).since
        # A closed collection is complete for ever; checkpoints are not after what it last had.
        ends = [part.time_max + 1 for part in old.parts()] if state.upper(old).is_closed else []
        upper = max(ends, default=0) if state.upper(old).is_closed else state.upper(old).only()
        former = [was.until for was in binding.was]
        # It can be read just before, too, where the hold is until somebody is past it.
        until = max(upper, 1 if since.is_closed else since.only() + 1, *former)
        held = Frontier.of(until - 1)
        read = ReadCapability(new, new_token(), held)
        purpose = _PURPOSE.format(name=definition.name)
        opens.append(OpenReader(new, read.holder, purpose, held))
        was = Was(binding.collection, definition.reads[index], until)
        bindings[index] = msgspec.structs.replace(binding, collection=new, was=(*binding.was, was))
        reads[index] = read.to_text()
    changed = msgspec.structs.replace(definition, bindings=tuple(bindings), reads=tuple(reads))
    return changed, tuple(opens)


def formers(definition: Definition) -> set[GlobalId]:
    """Return the collections that a materialization was made of, and may have to read."""
    return {was.collection for binding in definition.bindings for was in binding.was}


def settled(state: State, definition: Definition) -> bool:
    """Whether every endpoint has confirmed what the collections of now have."""
    for binding, text in zip(definition.bindings, definition.reads, strict=True):
        if binding.was:
            read = from_text(text)
            held = collection_of(state, read.id).readers[read.holder].since
            if not held.is_closed and held.only() < binding.was[-1].until:
                return False
    return True

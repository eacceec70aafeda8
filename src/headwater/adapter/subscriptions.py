"""Named subscriptions: consumers whose place is kept for them.

    CREATE SUBSCRIPTION s TO object            from now on
    SUBSCRIBE TO SUBSCRIPTION s …              what has not been acknowledged
    ACKNOWLEDGE s UP TO t                      everything before t has been taken
    DROP SUBSCRIPTION s

Its place is in the catalog, and beside it, moved in the same entry, a reader of the collection
without a lease. So what is not acknowledged survives restarts and take-overs, and is never
compacted away. Until the first acknowledgement a consumer begins with the contents at ``start``;
after one of ``t`` it goes on with the changes at times ``>= t``, each exactly once.

Where the object was replaced (``adapter/replacement.py``) a subscription has a reader of every
collection of the line that is not acknowledged yet (``collection/succession.py``): of an old one
until a time after the begin of the one that took its place was acknowledged. So it is kept until
then, and what is delivered is the old one's changes, the difference, and the new one's changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from headwater.adapter import catalog, namespaces
from headwater.adapter.catalog import Sources
from headwater.adapter.change import Change, Made
from headwater.adapter.errors import InvalidDefinition, WrongKind
from headwater.adapter.sql.statements import Acknowledge, AsOf, CreateSubscription, Subscribe
from headwater.adapter.timeline import DEFAULT
from headwater.algebra.frontier import Frontier
from headwater.base.ids import GlobalId
from headwater.collection import succession
from headwater.persist.commands import Command, DowngradeReader, DropReader, OpenReader
from headwater.persist.state import State

_READER: Final = "subscription/"


def create(statement: CreateSubscription, sql: str, new_id: Callable[[], GlobalId]) -> Change:
    """Plan a subscription: from when on it is, is settled when it commits."""
    oid = f"u{new_id()}"
    return Change("CREATE SUBSCRIPTION", (Made(lambda then: created(then, statement, sql, oid)),))


def created(state: State, statement: CreateSubscription, sql: str, oid: str) -> tuple[Command, ...]:
    """Return the commands that make a subscription, from the newest complete time on."""
    name = namespaces.placed(state, statement.name)
    catalog.refuse_duplicate(state, name)
    on, gid = catalog.relation(state, statement.on)
    collection = state.collections[gid]
    upper = state.upper(collection)
    since = 0 if collection.since.is_closed else collection.since.only()
    start = max(since if upper.is_closed else max(since, upper.only() - 1), on.begins)
    place = catalog.Place(start, start)
    bound = {statement.on: on.id}
    named = catalog.Object(
        name, "subscription", sql, uses=(on.id,), id=oid, place=place, bindings=bound
    )
    purpose = f"subscription {name}"
    opened = OpenReader(gid, reader_of(named), purpose, Frontier.of(start))
    return opened, catalog.put(named)


def going_on(found: catalog.Object, new: GlobalId, begin: int) -> Command:
    """Return the command that keeps what takes the place of its collection, from ``begin`` on."""
    return OpenReader(new, reader_of(found), f"subscription {found.name}", Frontier.of(begin))


def acknowledged(state: State, statement: Acknowledge) -> tuple[Command, ...]:
    """Return the commands that move a subscription on; it never goes back."""
    found = _named(state, statement.name)
    assert found.place is not None
    on = catalog.by_id(state, found.uses[0])
    upper = _complete(state, found)
    if statement.time < found.place.acknowledged:
        raise InvalidDefinition(
            f"subscription {statement.name} is acknowledged up to {found.place.acknowledged}"
        )
    if statement.time > upper:
        raise InvalidDefinition(f'"{on.name}" is complete before {upper} only')
    if statement.time <= found.place.start:
        return ()  # Its contents at the start are still to be taken.
    moved = catalog.changed(found, place=catalog.Place(found.place.start, statement.time))
    return (*_moved(state, found, statement.time - 1), catalog.put(moved))


def _complete(state: State, found: catalog.Object) -> int:
    """Return before which time a subscription can have got all there is."""
    told = []
    for gid in _kept(state, found):
        upper, way = state.upper(state.collections[gid]), succession.successor(state, gid)
        # Nobody has seen a time that has not been, also of what is complete for ever.
        known = state.timelines[DEFAULT].upper if upper.is_closed else upper.only()
        told.append(known if way is None else min(known, way.end))
    return max(told)


def _moved(state: State, found: catalog.Object, time: int) -> Iterator[Command]:
    """Yield what lets go all that is not needed to go on after ``time``."""
    for gid in _kept(state, found):
        way = succession.successor(state, gid)
        if way is not None and way.begin <= time:
            yield DropReader(gid, reader_of(found))
            continue
        held = state.collections[gid].readers[reader_of(found)].since.only()
        wanted = time if way is None else min(time, way.end - 1)
        if wanted > held:
            yield DowngradeReader(gid, reader_of(found), Frontier.of(wanted))


def dropped(state: State, gone: Iterable[catalog.Object]) -> tuple[Command, ...]:
    """Return the commands that drop subscriptions, and let their history go."""
    drops: list[Command] = []
    for each in gone:
        drops += [DropReader(gid, reader_of(each)) for gid in _kept(state, each)]
        drops.append(catalog.remove(each.name))
    return tuple(drops)


def _kept(state: State, found: catalog.Object) -> Iterator[GlobalId]:
    """Yield the collections that are kept for a subscription, the oldest first."""
    _, gid = catalog.relation(state, catalog.by_id(state, found.uses[0]).exact)
    for each in succession.line(state, gid):
        if reader_of(found) in state.collections[each].readers:
            yield each


def is_kept(state: State, gid: GlobalId) -> bool:
    """Whether a subscription still needs a collection."""
    collection = state.collections.get(gid)
    return collection is not None and any(r.startswith(_READER) for r in collection.readers)


def resumed(state: State, statement: Subscribe) -> Subscribe:
    """Return the subscription to the object itself that has what is not acknowledged."""
    found = _named(state, statement.name)
    assert found.place is not None
    begun = found.place.acknowledged > found.place.start
    return replace(
        statement,
        name=catalog.by_id(state, found.uses[0]).exact,
        named=False,
        snapshot=not begun,
        as_of=AsOf(found.place.acknowledged - 1 if begun else found.place.start),
    )


def read_at(state: State, sources: Sources, gid: GlobalId, time: int | None) -> Sources:
    """Return what is read at a time: as long as it is there, what a collection was before."""
    of = gid if time is None else succession.at(state, gid, time)
    if of == gid:
        return sources
    return replace(sources, collections={of: sources.collections[gid]}, begins={})


def reader_of(subscription: catalog.Object) -> str:
    """Return the name of its reader in the log."""
    return f"{_READER}{subscription.id}"


def _named(state: State, name: str) -> catalog.Object:
    found = catalog.named(state, name)
    if found.kind != "subscription":
        raise WrongKind(name, "subscription", found.kind)
    return found

"""Named subscriptions: consumers whose place is kept for them.

    CREATE SUBSCRIPTION s TO object            from now on
    SUBSCRIBE TO SUBSCRIPTION s …              what has not been acknowledged
    ACKNOWLEDGE s UP TO t                      everything before t has been taken
    DROP SUBSCRIPTION s

Its place is in the catalog, and beside it, moved in the same entry, a reader of the collection
without a lease. So what is not acknowledged survives restarts and take-overs, and is never
compacted away. Until the first acknowledgement a consumer begins with the contents at ``start``;
after one of ``t`` it goes on with the changes at times ``>= t``, each exactly once.
"""

from __future__ import annotations

from dataclasses import replace

from headwater.adapter import catalog, namespaces
from headwater.adapter.errors import InvalidDefinition, WrongKind
from headwater.adapter.sql.statements import Acknowledge, AsOf, CreateSubscription, Subscribe
from headwater.algebra.frontier import Frontier
from headwater.persist.commands import Command, DowngradeReader, DropReader, OpenReader
from headwater.persist.state import State


def created(state: State, statement: CreateSubscription, sql: str, oid: str) -> tuple[Command, ...]:
    """Return the commands that make a subscription, from the newest complete time on."""
    name = namespaces.placed(state, statement.name)
    catalog.refuse_duplicate(state, name)
    on, gid = catalog.relation(state, statement.on)
    collection = state.collections[gid]
    upper = state.upper(collection)
    since = 0 if collection.since.is_closed else collection.since.only()
    start = since if upper.is_closed else max(since, upper.only() - 1)
    place = catalog.Place(start, start)
    named = catalog.Object(name, "subscription", sql, uses=(on.id,), id=oid, place=place)
    purpose = f"subscription {name}"
    opened = OpenReader(gid, reader_of(named), purpose, Frontier.of(start))
    return opened, catalog.put(named)


def acknowledged(state: State, statement: Acknowledge) -> tuple[Command, ...]:
    """Return the commands that move a subscription on; it never goes back."""
    found = _named(state, statement.name)
    assert found.place is not None
    on, gid = catalog.relation(state, catalog.by_id(state, found.uses[0]).exact)
    upper = state.upper(state.collections[gid])
    if statement.time < found.place.acknowledged:
        raise InvalidDefinition(
            f"subscription {statement.name} is acknowledged up to {found.place.acknowledged}"
        )
    if not upper.is_closed and statement.time > upper.only():
        raise InvalidDefinition(f'"{on.name}" is complete before {upper.only()} only')
    if statement.time <= found.place.start:
        return ()  # Its contents at the start are still to be taken.
    moved = catalog.changed(found, place=catalog.Place(found.place.start, statement.time))
    hold = DowngradeReader(gid, reader_of(found), Frontier.of(statement.time - 1))
    return hold, catalog.put(moved)


def dropped(state: State, found: catalog.Object) -> tuple[Command, ...]:
    """Return the commands that let its history go."""
    _, gid = catalog.relation(state, catalog.by_id(state, found.uses[0]).exact)
    return DropReader(gid, reader_of(found)), catalog.remove(found.name)


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


def reader_of(subscription: catalog.Object) -> str:
    """Return the name of its reader in the log."""
    return f"subscription/{subscription.id}"


def _named(state: State, name: str) -> catalog.Object:
    found = catalog.named(state, name)
    if found.kind != "subscription":
        raise WrongKind(name, "subscription", found.kind)
    return found

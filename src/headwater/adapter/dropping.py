"""``DROP``: what goes, with everything that is made of it, and in which order.

Objects go after all that is made of them. All of it is one entry of the log, but for what others
keep: materializations end before, each in an entry of its own, and a source whose upstream is let
go of ends with that entry. So a server that dies in between leaves nothing that is made of what
has gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headwater.adapter import (
    catalog,
    connections,
    namespaces,
    schema_definitions,
    sources,
    subscriptions,
)
from headwater.adapter.change import Change, Effect, Made, Step
from headwater.adapter.errors import DependentObjects, WrongKind
from headwater.adapter.sql.statements import Drop, DropSchema
from headwater.persist.commands import Command, Destroy
from headwater.persist.state import State

Removed = Callable[[State, str], tuple[Command, ...]]
"""What removes the view that is kept in a collection."""
Ended = Callable[[catalog.Object, tuple[Command, ...]], object]
"""Ends what others keep of an object, with these commands in its entry."""


class Dropping:
    """Plans what drops objects."""

    def __init__(self, removed: Removed, materialization: Ended, source: Ended) -> None:
        self._removed = removed
        self._materialization, self._source = materialization, source

    def objects(self, state: State, statement: Drop) -> Change:
        """Plan ``DROP … name, …``."""
        tag = f"DROP {statement.kind.upper()}"
        gone: dict[str, catalog.Object] = {}
        named: set[str] = set()
        for name in (statement.name, *statement.others):
            found = catalog.find(state, name)
            if found is None and statement.if_exists:
                continue
            if found is None:
                found = catalog.named(state, name)
            if found.kind != statement.kind:
                raise WrongKind(name, statement.kind, found.kind)
            sources.refuse_part(state, found)
            named.add(found.id)
            _add_with_users(state, found, gone)
        if not statement.cascade:
            # What a source keeps goes with it, and indexes with what they are of, as in PostgreSQL;
            # what is made of either does not.
            others = [
                each.name
                for each in gone.values()
                if each.id not in named and each.of not in gone and each.kind != "index"
            ]
            if others:
                raise DependentObjects(statement.kind, statement.name, ", ".join(others))
        return self._gone(tag, gone)

    def schemas(self, state: State, statement: DropSchema) -> Change:
        """Plan ``DROP SCHEMA``."""
        dropped = schema_definitions.dropped(state, statement)
        gone: dict[str, catalog.Object] = {}
        for each in schema_definitions.contents(state, dropped):
            _add_with_users(state, each, gone)
        if gone and not statement.cascade:
            users = ", ".join(each.name for each in gone.values())
            raise DependentObjects("schema", ", ".join(dropped), users)
        return self._gone("DROP SCHEMA", gone, tuple(map(namespaces.remove, dropped)))

    def _gone(
        self,
        tag: str,
        gone: Mapping[str, catalog.Object],
        last: tuple[Command, ...] = (),
    ) -> Change:
        """Return what drops these, each after all that is made of it, and then ``last``."""
        steps: list[Step] = []
        effects: list[Effect] = []
        for each in reversed(list(gone.values())):
            removed = catalog.remove(each.name)
            match each.kind:
                case "materialized view" | "index":
                    steps += (removed, Made(self._removal(each), of_views=True, removes=True))
                case "table":
                    steps += (removed, Destroy(each.collection))
                case "subscription":
                    steps.append(_let_go(each))
                case "secret" | "connection":
                    steps += connections.dropped(each)
                case "materialization":
                    steps.append(removed)
                    effects.append(self._ended(each, self._materialization, removed))
                case "source" if not each.of:
                    steps.append(removed)
                    effects.append(self._ended(each, self._source, removed, beneath=True))
                case "view" | "source":
                    steps.append(removed)
        return Change(tag, (*steps, *last), tuple(effects))

    def _removal(self, each: catalog.Object) -> Callable[[State], tuple[Command, ...]]:
        return lambda state: self._removed(state, each.collection)

    def _ended(
        self, each: catalog.Object, end: Ended, removed: Command, *, beneath: bool = False
    ) -> Effect:
        what = f'dropping {each.kind} "{each.name}"'
        return Effect(what, lambda also: end(each, also), (removed,), beneath)


def _let_go(each: catalog.Object) -> Made:
    """Drop a subscription: what it holds by then moves with every acknowledgement."""
    return Made(lambda state: subscriptions.dropped(state, (each,)))


def _add_with_users(state: State, each: catalog.Object, gone: dict[str, catalog.Object]) -> None:
    """Add an object, and after it everything that is made of it."""
    gone.pop(each.id, None)  # To the end: after all that it is made of.
    gone[each.id] = each
    for user in catalog.users(state, each.id):
        _add_with_users(state, user, gone)

"""Definitions of what lies outside: secrets, connections, sources.

One plan for each statement, as in :mod:`headwater.adapter.definitions`, which hands these over.
"""

from __future__ import annotations

from collections.abc import Callable

from headwater.adapter import catalog, connections, sources
from headwater.adapter.change import Change
from headwater.adapter.connections import Connections
from headwater.adapter.sql.connection_statements import AlterSecret, CreateConnection, CreateSecret
from headwater.adapter.sql.source_statements import CreateSource, TurnSource
from headwater.base.ids import GlobalId
from headwater.persist.commands import Command
from headwater.persist.state import State
from headwater.storage.controller import Ingestions

OutsideDefinition = CreateSource | TurnSource | CreateSecret | AlterSecret | CreateConnection


class Outside:
    """Plans definitions of what lies outside."""

    def __init__(self, ingestions: Ingestions, reached: Connections) -> None:
        self.reached = reached
        self._ingestions = ingestions

    def plan(
        self,
        state: State,
        statement: OutsideDefinition,
        sql: str,
        new_id: Callable[[], GlobalId],
    ) -> Change:
        """Return what a definition changes."""
        match statement:
            case CreateSource():
                return sources.create(state, statement, sql, new_id, self._ingestions, self.reached)
            case TurnSource():
                return sources.turn(state, statement, self._ingestions)
            case CreateSecret():
                return connections.create_secret(state, statement, new_id, self.reached.vault)
            case AlterSecret():
                return connections.alter_secret(state, statement, self.reached.vault)
            case CreateConnection():
                return connections.create_connection(state, statement, sql, new_id)

    def drop_source(self, each: catalog.Object, also: tuple[Command, ...]) -> None:
        """Drop a source, with other commands in its entry."""
        self._ingestions.drop(each.id, also)

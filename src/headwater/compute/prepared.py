"""Views that are made, or removed, in an entry with other things.

    preparing = controller.preparing
    prepared = preparing.prepare(state, "totals", sql, relations=names)   # compiled, or refused
    with preparing.changing():
        submit(Atomic((*prepared.commands(core.state), *others)))

What makes a view are commands that are right for one state: where the view starts, and which
arrangements it finds and shares. :meth:`PreparedView.commands` says them first as they were when
the query was compiled, and after that for the state that it is given: whoever is refused, or has
waited since, asks again. The query is compiled once. The state may be one that nobody has
committed: of a transaction that creates a table, and a view of it.

Kept by: this module. Relied on by: the controller, and whoever defines objects in transactions.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from headwater.base.errors import InvalidUsage
from headwater.base.ids import Epoch
from headwater.collection.types import SqlType
from headwater.compute import definition
from headwater.compute.definition import Definition
from headwater.compute.install import (
    Installation,
    Installer,
    Named,
    Reserve,
    Wanted,
    removal,
    reserving,
)
from headwater.compute.ir import plan as plans
from headwater.compute.query import Query
from headwater.compute.select import mentioned
from headwater.persist.commands import Atomic, Command
from headwater.persist.core import Core
from headwater.persist.decision import collection_named
from headwater.persist.spark_end import or_ended
from headwater.persist.spark_parts import place_of
from headwater.persist.state import State


@dataclass(frozen=True, slots=True)
class Asked:
    """A view with a collection of its own, as somebody asks for it."""

    name: str
    query: Query
    relations: Mapping[str, str]
    """From the names in the query to the names of collections."""
    key: tuple[str, ...] = ()
    types: Sequence[SqlType] = ()
    rules: bool = True
    start: int | None = None
    kept_by: Epoch | None = None


class PreparedView:
    """One view, compiled; whoever asks is the only one who uses it."""

    def __init__(self, state: State, session: Any, reserve: Reserve, asked: Asked) -> None:
        self._session, self._reserve, self._asked = session, reserve, asked
        self._is_said = False
        self._made = self._installed(state, asked.query, "")

    @property
    def made(self) -> Installation:
        """The view as it was said last, and the commands that make it."""
        return self._made

    def commands(self, state: State) -> tuple[Command, ...]:
        """Return what makes the view, to be decided after ``state``."""
        if self._is_said:
            known = self._made.view
            self._made = self._installed(state, plans.decoded(known.plan), known.sql)
        self._is_said = True
        return self._made.commands

    def _installed(self, state: State, query: Query, text: str) -> Installation:
        asked = self._asked
        relations = asked.relations
        # Of all that there is, what the query does not speak of may be gone by now.
        names = mentioned(query, relations) if isinstance(query, str) else relations
        inputs = {name: collection_named(state, relations[name]) for name in names}
        wanted = Wanted(
            asked.name,
            query,
            inputs,
            Named(asked.name, asked.key, tuple(asked.types)),
            asked.start,
            asked.rules,
            kept_by=asked.kept_by,
        )
        if isinstance(query, plans.Plan):
            # The functions that it was compiled with, whatever is called so by now.
            wanted = replace(wanted, text=text, functions=query.functions)
        return Installer(state, self._session, self._reserve).install(wanted)


class Preparing:
    """Prepares views for one location."""

    def __init__(
        self, core: Core, session: Any, changing: threading.Lock, stepping: threading.Lock
    ) -> None:
        self._core, self._session = core, session
        self._changing, self._stepping = changing, stepping

    def create(self, asked: Asked, also: Sequence[Command]) -> Definition:
        """Make a view at once, in one entry with these commands."""
        view, commands = self._prepared(self._core.state, asked).made
        with self._changing:
            self._core.submit(Atomic((*commands, *also))).result()
        return view

    def prepare(
        self,
        state: State,
        name: str,
        query: Query,
        *,
        relations: Mapping[str, str],
        key: tuple[str, ...] = (),
        types: Sequence[SqlType] = (),
    ) -> PreparedView:
        """Return a view that is not there yet."""
        require_reachable_blob(self._core)
        with or_ended(self._session):
            return self._prepared(state, Asked(name, query, relations, key, types))

    def _prepared(self, state: State, asked: Asked) -> PreparedView:
        return PreparedView(state, self._session, reserving(self._core), asked)

    def removed(self, state: State, name: str) -> tuple[Command, ...]:
        """Return what removes a view of ``state``."""
        views = definition.stored(state)
        return tuple(
            command
            for view in views
            if view.name == name
            for command in removal(state, view, [each for each in views if each.id != view.id])
        )

    def changing(self) -> AbstractContextManager[object]:
        """Keep others from making or removing a view, while such commands are decided and commit.

        Else one might come in between that uses what the commands remove.
        """
        return self._changing

    def still(self) -> AbstractContextManager[object]:
        """Keep views from being stepped, where one is removed."""
        return self._stepping


def require_reachable_blob(core: Core) -> None:
    """Refuse views where Spark's tasks cannot open what is stored."""
    if place_of(core) is None:
        raise InvalidUsage(
            "views need a location whose objects Spark's tasks can open: a directory or an "
            "object store, not memory"
        )

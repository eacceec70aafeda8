"""The controller of views: it creates them, and steps those whose inputs have moved.

    controller = ViewController(client, session)
    view = controller.create_view("totals", "SELECT g, sum(x) FROM a JOIN b ON a.k = b.k GROUP BY g")
    controller.run_once()                    # or start(): a thread that wakes on commits
    controller.view_upper(view.id)
    controller.select("SELECT * FROM totals WHERE g > 1", as_of=7)

A view is durable: its definition is an item of the log, its progress is the upper of its output.
The controller keeps nothing else, so one that is started on a location goes on where the last one
was. ``relations`` translates the names of a query to names of collections; where it is not given,
a name in a query is the name of a collection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from headwater.base.ids import GlobalId
from headwater.compute.view import View
from headwater.persist.batch import Times
from headwater.persist.client import Client
from headwater.persist.commands import Command

Relations = Mapping[str, str]
"""From a name in a query to the name of a collection."""


class ViewController:
    """Creates, steps, queries; one per writing runtime. Safe to call from several threads."""

    def __init__(self, client: Client, session: Any) -> None:
        self._client = client
        self._session = session

    def create_view(
        self,
        name: str,
        sql: str,
        *,
        relations: Relations | None = None,
        also: Sequence[Command] = (),
    ) -> View:
        """Create a view durably, output collection ``name``; hydrated by its first step.

        It begins at the newest time at which all its inputs are readable. ``also`` is committed in
        the same log entry (the adapter's own record of the view). A query that cannot be maintained
        raises :class:`~headwater.base.errors.InvalidUsage`, and nothing is changed.
        """
        raise NotImplementedError

    def drop_view(self, name: str, *, also: Sequence[Command] = ()) -> bool:
        """Drop a view, its internal state, its output and its holds; whether there was one."""
        raise NotImplementedError

    def views(self) -> tuple[View, ...]:
        """Return the views of the location, in the order of creation."""
        raise NotImplementedError

    def view_upper(self, view: GlobalId | str) -> Times:
        """Return the upper of a view (by id or name): everything before it is exact, for ever."""
        raise NotImplementedError

    def failures(self) -> Mapping[GlobalId, str]:
        """Return why views do not advance, where their last step failed."""
        raise NotImplementedError

    def run_once(self) -> tuple[str, ...]:
        """Step every view whose inputs have moved; return the names of those that advanced."""
        raise NotImplementedError

    def start(self) -> None:
        """Step in the background, woken by commits, until :meth:`stop`."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop after the step in hand; the location stays open, and so does the session."""
        raise NotImplementedError

    def select(self, sql: str, as_of: int, *, relations: Relations | None = None) -> pa.Table:
        """Run a query of Spark SQL over collections, all of them at ``as_of``."""
        raise NotImplementedError

    def describe(self, sql: str, *, relations: Relations | None = None) -> pa.Schema:
        """Return the columns a query would have, without running it."""
        raise NotImplementedError

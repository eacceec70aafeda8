"""What the adapter needs of those who evaluate queries and keep views.

``compute.controller.ViewController`` is it, on Spark. The mechanics of the adapter (times, turns,
transactions) do not depend on who evaluates, and are tested with a small evaluator of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import pyarrow as pa

from headwater.adapter.dialect.transpile import Transpiled
from headwater.base.ids import GlobalId
from headwater.collection.types import SqlType
from headwater.persist.commands import Command
from headwater.persist.state import State

Translate = Callable[[str, Mapping[str, pa.Schema]], Transpiled]
"""Translates a query of PostgreSQL's dialect over relations with these columns."""


class Prepared(Protocol):
    """A view that is not there yet; its query is compiled."""

    def commands(self, state: State) -> tuple[Command, ...]:
        """Return what makes the view, to be decided after ``state``."""
        ...


class Preparing(Protocol):
    """Views that are made, or removed, in an entry with other things."""

    def prepare(
        self,
        state: State,
        name: str,
        query: Any,
        *,
        relations: Mapping[str, str],
        key: tuple[str, ...] = (),
        types: Sequence[SqlType] = (),
    ) -> Prepared:
        """Return a view of the query over collections of ``state``, or refuse it."""
        ...

    def removed(self, state: State, name: str) -> tuple[Command, ...]:
        """Return what removes a view of ``state``."""
        ...

    def changing(self) -> AbstractContextManager[object]:
        """Keep others from making or removing a view, while commands for that are committed."""
        ...

    def still(self) -> AbstractContextManager[object]:
        """Keep views from being stepped, where one is removed."""
        ...


class Evaluator(Protocol):
    """Evaluates queries of Spark SQL over collections, and maintains views of them."""

    @property
    def preparing(self) -> Preparing:
        """Who makes views in an entry with other things."""
        ...

    def select(
        self,
        sql: str,
        as_of: int,
        *,
        relations: Mapping[str, str] | None = None,
        local: Mapping[str, pa.Table] | None = None,
        tentative: Mapping[str, pa.Table] | None = None,
        group: str = "",
    ) -> pa.Table:
        """Return the rows of a query over collections, all at ``as_of``, and over these tables.

        ``tentative`` are updates that nobody has committed, with diffs, by the names of the
        collections on top of which they are read. Its jobs have the name ``group``;
        :meth:`cancel` ends them.
        """
        ...

    def cancel(self, group: str) -> None:
        """End the jobs of this name that run now; the query then fails. From any thread."""
        ...

    def describe(
        self, sql: str, *, relations: Mapping[str, str] | None = None, state: State | None = None
    ) -> pa.Schema:
        """Return the columns a query would have, over the collections of ``state`` (or now's)."""
        ...

    def create_view(
        self,
        name: str,
        query: Any,
        *,
        relations: Mapping[str, str] | None = None,
        key: tuple[str, ...] = (),
        start: int | None = None,
        types: Sequence[SqlType] = (),
        also: Sequence[Command] = (),
    ) -> object:
        """Keep a view of the query in the collection ``name``; ``also`` commits with it.

        The query is a text of Spark SQL, or a plan of whoever evaluates. It begins at ``start``, or
        at the newest time at which all it reads is readable. With a ``key`` the collection is laid
        out by these columns, so that rows are found by them. ``types``: those of its columns, where
        they are more than the query tells (a ``uuid`` is a text to it).
        """
        ...

    def drop_view(self, name: str, *, also: Sequence[Command] = ()) -> bool:
        """Drop a view."""
        ...

    def failures(self) -> Mapping[GlobalId, str]:
        """Return why views do not advance, by their collections."""
        ...

    def hydrating(self) -> Mapping[str, float]:
        """Return the views whose first step runs, and which part of it is done."""
        ...

    def explain_query(self, sql: str, *, relations: Mapping[str, str]) -> str:
        """Say by which operators a view of a query would be kept; nothing is made."""
        ...

    def explain(self, name: str) -> str:
        """Say how the view in the collection ``name`` is kept, and where it stands."""
        ...

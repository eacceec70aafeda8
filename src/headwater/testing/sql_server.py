"""A server without Spark and without a wire: the adapter's mechanics, rows evaluated by DuckDB.

    with SqlServer() as server:
        alice = server.session()
        alice("CREATE TABLE t (k bigint PRIMARY KEY, v text)")
        alice("INSERT INTO t VALUES (1, 'a')")
        alice("SELECT * FROM t")                                  # [(1, 'a')], sorted

Everything but the evaluation of queries is the real thing: location, timeline, group commit,
transactions. A server can be opened on the location of another, to restart or to take it over.
Views are kept by computing them again (:mod:`.duck_views`): what is about rules of maintenance is
tested with Spark. With ``shadow``, a directory that others may enter, questions about the
catalog are answered, too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self

import pyarrow as pa
import sqlglot
from sqlglot import exp

from headwater.adapter.catalog_queries import CatalogQueries
from headwater.adapter.coordinator import Coordinator
from headwater.adapter.pgwire.backend import Result
from headwater.adapter.session import ClientSession
from headwater.adapter.sql.parse import parse_for_session
from headwater.adapter.timeline import TICK_SECONDS, Timeline
from headwater.adapter.vault import Vault
from headwater.base.clock import Clock, ManualClock
from headwater.base.ids import GlobalId
from headwater.collection.run_layout import LAYOUTS
from headwater.collection.schema import telling
from headwater.collection.types import SqlType
from headwater.compute import definition
from headwater.compute.describe import described, written
from headwater.materialize.controller import Materializations
from headwater.persist import evolution
from headwater.persist.blob.memory import MemoryBlob
from headwater.persist.client import Client, open_location
from headwater.persist.commands import Command
from headwater.persist.consensus.memory import MemoryConsensus
from headwater.persist.core import Settings
from headwater.persist.decision import collection_named
from headwater.persist.multiplicity import repeat_rows
from headwater.persist.state import State
from headwater.storage.controller import Ingestions
from headwater.testing.duck import Duck
from headwater.testing.duck_views import DuckViews

Rows = list[tuple[Any, ...]]

PROMISE_SECONDS: Final = 20.0
"""After which a promise is taken for forgotten."""


class PreparedRows:
    """A view that is to be kept by computing it again."""

    def __init__(self, views: DuckViews, *what: Any) -> None:
        self._views, self._what = views, what

    def commands(self, state: State) -> tuple[Command, ...]:
        """Return what makes it."""
        self._views.run()
        return self._views.made(state, *self._what)


class PreparingRows:
    """Makes and removes views in entries with other things."""

    def __init__(self, rows: DuckRows) -> None:
        self._rows = rows

    def prepare(
        self,
        state: State,
        name: str,
        query: str,
        *,
        relations: Mapping[str, str],
        key: tuple[str, ...] = (),
        types: Sequence[SqlType] = (),
    ) -> PreparedRows:
        """Return a view that is not there yet."""
        schema = telling(self._rows.describe(query, relations=relations, state=state), types)
        return PreparedRows(self._rows.views, name, query, relations, schema, key)

    def removed(self, state: State, name: str) -> tuple[Command, ...]:
        """Return what removes a view."""
        return self._rows.views.removed(state, name)

    def changing(self) -> AbstractContextManager[object]:
        """Views share nothing here."""
        return nullcontext()

    def still(self) -> AbstractContextManager[object]:
        """Let no view be stepped."""
        return self._rows.views.paused()


class DuckRows:
    """Evaluates queries over snapshots, and keeps views by evaluating them again."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.views = DuckViews(client, self._answered)
        self.preparing = PreparingRows(self)
        self.group = ""
        """Under which name the last query ran."""
        self.cancelled: list[str] = []
        self.evaluated = 0
        """How many queries came here: those that need more than a probe."""

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
        """Return the rows of a query of Spark SQL."""
        self.evaluated += 1
        self.group = group
        return self._answered(sql, as_of, relations or {}, local or {}, tentative or {})

    def _answered(
        self,
        sql: str,
        as_of: int,
        relations: Mapping[str, str],
        local: Mapping[str, pa.Table] = MappingProxyType({}),
        tentative: Mapping[str, pa.Table] = MappingProxyType({}),
    ) -> pa.Table:
        tables = {}
        for name, collection in _read(sql, relations).items():
            snapshot = self._client.reader(collection).snapshot(as_of)
            if collection in tentative:
                snapshot = snapshot.with_updates(tentative[collection])
            tables[name] = repeat_rows(snapshot.to_table(), name)
        return _evaluated(sql, {**tables, **local})

    def cancel(self, group: str) -> None:
        """Note whose jobs were to be ended."""
        self.cancelled.append(group)

    def describe(
        self, sql: str, *, relations: Mapping[str, str] | None = None, state: State | None = None
    ) -> pa.Schema:
        """Return the columns of a query; a source that has no rows yet has columns, too."""
        state = state or self._client.core.state
        empty = {
            name: evolution.from_bytes(collection_named(state, each).schemas[-1]).empty_table()
            for name, each in _read(sql, relations or {}).items()
        }
        return _evaluated(sql, empty).schema

    def create_view(
        self,
        name: str,
        query: str,
        *,
        relations: Mapping[str, str] | None = None,
        key: tuple[str, ...] = (),
        start: int | None = None,
        types: Sequence[SqlType] = (),
        also: Sequence[Command] = (),
    ) -> object:
        """Keep a view, by computing it again."""
        known = relations or {}
        schema = telling(self.describe(query, relations=known), types)
        self.views.create(name, query, known, schema, key, start, also)
        return None

    def drop_view(self, name: str, *, also: Sequence[Command] = ()) -> bool:
        """Drop a view."""
        return self.views.drop(name, also)

    def failures(self) -> Mapping[GlobalId, str]:
        """Return the views that a test keeps from going on."""
        return self.views.broken

    def hydrating(self) -> Mapping[str, float]:
        """No first step takes long."""
        return {}

    def explain_query(self, sql: str, *, relations: Mapping[str, str]) -> str:
        """Say how a view of a query would be kept."""
        assert relations is not None
        return f"recomputed by DuckDB: {sql.split(maxsplit=1)[0]}\n"

    def explain(self, name: str) -> str:
        """Say how a view is kept."""
        (view,) = (v for v in definition.stored(self._client.core.state) if v.name == name)
        failure = self.failures().get(view.id)
        return written(described(self._client.core.state, view, failure, None))


def _read(sql: str, relations: Mapping[str, str]) -> dict[str, str]:
    """Return those relations that a query speaks of."""
    names = {table.name for table in sqlglot.parse_one(sql, read="spark").find_all(exp.Table)}
    return {name: collection for name, collection in relations.items() if name in names}


def _evaluated(sql: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    duck = Duck(tables)
    try:
        return duck.answer(sql)
    finally:
        duck.close()


class SqlSession:
    """One client, who writes texts and gets rows."""

    def __init__(self, session: ClientSession) -> None:
        self.session = session

    def __call__(self, sql: str) -> Rows:
        """Execute statements; return the rows of all of them, sorted."""
        rows: Rows = []
        for statement, text in parse_for_session(sql, self.session.dialect):
            result = self.session.execute(statement, text)
            for batch in result.batches:
                rows.extend(zip(*(column.to_pylist() for column in batch.columns), strict=True))
        return sorted(rows, key=repr)

    def open(self, sql: str) -> Generator[pa.RecordBatch, None, None]:
        """Execute one statement; return its batches, to be read one by one and closed."""
        ((statement, text),) = parse_for_session(sql, self.session.dialect)
        batches = self.session.execute(statement, text).batches
        assert isinstance(batches, Generator)
        return batches

    def tag(self, sql: str) -> str:
        """Execute one statement; return its tag."""
        return self.result(sql).tag

    def result(self, sql: str) -> Result:
        """Execute one statement; return all that it answers."""
        ((statement, text),) = parse_for_session(sql, self.session.dialect)
        return self.session.execute(statement, text)

    def promise(self, sql: str) -> Callable[[], Result] | None:
        """Begin one statement, if it can be promised; return what waits for its result."""
        ((statement, text),) = parse_for_session(sql, self.session.dialect)
        over = threading.Event()
        promised = self.session.promise(statement, text, over.set)
        if promised is None:
            return None

        def result() -> Result:
            assert over.wait(PROMISE_SECONDS), f"nothing became of {sql}"
            return promised.result()

        return result


class SqlServer:
    """A server on a location in memory, or wherever ``client`` is."""

    client: Client

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        client: Client | None = None,
        on: SqlServer | None = None,
        take_over: bool = False,
        shadow: Path | None = None,
        tick_seconds: float = TICK_SECONDS,
        sources_run: bool = False,
    ) -> None:
        """``sources_run``: by themselves, as in a server; else when the test says so."""
        self.clock = clock or ManualClock(1_000)
        if client is None:
            blob = MemoryBlob() if on is None else on.client.core.blob
            consensus = MemoryConsensus() if on is None else on.client.core.consensus
            client = open_location(
                blob=blob,
                consensus=consensus,
                layouts=LAYOUTS,
                settings=Settings(maintenance=False),
                clock=self.clock,
                take_over=take_over,
            )
        self.client = client
        self.timeline = Timeline(client, self.clock, tick_seconds)
        self.evaluator = DuckRows(client)
        self.ingestions = Ingestions(client, self.timeline, self.clock, threads=sources_run)
        self.ingestions.start()
        self.catalog_queries = (
            None if shadow is None else CatalogQueries(shadow, lambda: client.core.state)
        )
        self.materializations = Materializations(client)
        self.coordinator = Coordinator(
            client,
            self.timeline,
            self.evaluator,
            self.materializations,
            ingestions=self.ingestions,
            catalog_queries=self.catalog_queries,
            vault=Vault.of_key(bytes(32)),
        )

    def session(self) -> SqlSession:
        """Open a session."""
        return SqlSession(self.coordinator.open_session())

    def stop(self) -> None:
        """Stop; the location stays as it is."""
        self.ingestions.stop()
        self.materializations.stop()
        self.evaluator.views.stop()
        if self.catalog_queries is not None:
            self.catalog_queries.stop()
        self.timeline.stop()
        self.client.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

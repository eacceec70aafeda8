"""The two servers that are asked: ours, in this process on a Spark that is there, and PostgreSQL.

    with served(spark, client) as servers:
        Batch(servers, World(random), queries).run()

PostgreSQL is a second instance of the shadow's own binaries, so it has the shadow's version and
order of texts. Ours is asked over the wire. A view is read as the collection that it is, in the
wire's texts: to have Spark copy a few rows is most of what a query costs; one in some is read over
the wire all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from headwater.adapter import catalog
from headwater.adapter.catalog_queries import CatalogQueries
from headwater.adapter.coordinator import Coordinator
from headwater.adapter.pgwire import WireServer
from headwater.adapter.pgwire.text_form import to_text
from headwater.adapter.shadow import bootstrap
from headwater.adapter.shadow.instance import Instance
from headwater.adapter.timeline import DEFAULT, Timeline
from headwater.base.clock import SystemClock
from headwater.collection.schema import type_of
from headwater.compute.controller import ViewController
from headwater.materialize.controller import Materializations
from headwater.persist.client import Client
from headwater.persist.errors import CollectionHasErrors
from headwater.persist.multiplicity import repeat_rows
from headwater.persist.state import State
from headwater.testing.answers.answer import Answer, Failed, Rows, ask
from headwater.testing.shadow_directory import shadow_directory

ANSWER_SECONDS: Final = 60
"""How long PostgreSQL has for a query: some join all that there is."""

WIRE_EVERY: Final = 10
"""Of so many views one is read over the wire."""

IN_ERROR: Final = "XX001"
"""What reading a view says that has an error in it: whatever it was."""


@dataclass
class Servers:
    """Ours and PostgreSQL, each with a connection in autocommit."""

    ours: psycopg.Connection[Any]
    theirs: psycopg.Connection[Any]
    client: Client
    views: ViewController
    batches: int = 0
    _read: int = 0

    def both(self, *statements: str) -> None:
        """Execute statements on both sides, as one transaction each; they must do the same."""
        for connection in (self.ours, self.theirs):
            for statement in ("BEGIN", *statements, "COMMIT"):
                _done(connection, statement)

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Have a schema of its own on both sides, for as long as a batch takes."""
        self.batches += 1
        connections = (self.ours, self.theirs)
        for connection in connections:
            _done(connection, f"CREATE SCHEMA b{self.batches}")
            _done(connection, f"SET search_path = b{self.batches}")
        yield
        for connection in connections:
            _done(connection, f"DROP SCHEMA b{self.batches} CASCADE")

    def view(self, name: str) -> Answer:
        """Return what a view holds."""
        self._read += 1
        if self._read % WIRE_EVERY == 0:
            return ask(self.ours, f"SELECT * FROM {name}")  # noqa: S608 - our own name
        core = self.client.core
        found = catalog.named(core.state, f"b{self.batches}.{name}")
        gid = core.state.names[found.collection]
        time = core.state.timelines[DEFAULT].upper - 1

        def ready(state: State) -> bool | None:
            if gid in self.views.failures():
                return False
            return None if state.upper(state.collections[gid]).allows(time) else True

        complete = core.wait(ready, ANSWER_SECONDS)
        if not complete:
            why = self.views.failures().get(gid, "it takes too long")
            return Failed("55000", f"the view is not complete: {why}")
        snapshot = self.client.reader(found.collection).snapshot(time)
        try:
            table = repeat_rows(snapshot.to_table(), name)
        except CollectionHasErrors as error:
            return Failed(IN_ERROR, error.errors[0])
        columns = [
            [None if value is None else value.decode() for value in to_text(column, type_of(field))]
            for column, field in zip(table.combine_chunks().columns, table.schema, strict=True)
        ]
        oids = tuple(type_of(field).oid for field in table.schema)
        return Rows(oids, tuple(zip(*columns, strict=True)))


def _done(connection: psycopg.Connection[Any], statement: str) -> None:
    found = ask(connection, statement)
    assert not isinstance(found, Failed), (statement, found)


@contextmanager
def served(session: Any, client: Client) -> Iterator[Servers]:
    """Serve a location beside a PostgreSQL."""
    with shadow_directory() as directory:
        instance = Instance(directory)
        instance.start()
        theirs = instance.connect(bootstrap.ADMIN)
        theirs.autocommit = True
        theirs.execute(f"SET statement_timeout = '{ANSWER_SECONDS}s'")
        timeline = Timeline(client, SystemClock())
        views, deliveries = ViewController(client, session), Materializations(client)
        shadow = CatalogQueries(directory.parent / "mirror", lambda: client.core.state)
        coordinator = Coordinator(client, timeline, views, deliveries, catalog_queries=shadow)
        views.start()
        timeline.start()
        try:
            with WireServer("127.0.0.1", 0, coordinator) as wire:
                where = f"host={wire.host} port={wire.port} user=headwater"
                with psycopg.connect(where, autocommit=True) as ours:
                    yield Servers(ours, theirs, client, views)
        finally:
            views.stop()
            timeline.stop()
            shadow.stop()
            with suppress(psycopg.Error):
                theirs.close()
            instance.stop()

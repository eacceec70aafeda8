"""What an open database is made of: the parts of a server, without a wire, put together once.

    persist ─▶ timeline ─▶ evaluator (Spark when needed) ─▶ coordinator

Read-only: the same parts over a runtime that follows the log. Nothing ticks, nothing is kept up to
date, and whatever would write is refused before it begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwater.adapter import catalog
from headwater.adapter.catalog import Sources
from headwater.adapter.coordinator import Coordinator
from headwater.adapter.limit import Limit
from headwater.adapter.sql.statements import (
    AsOf,
    Delete,
    Insert,
    Select,
    Statement,
    Subscribe,
    Update,
)
from headwater.adapter.timeline import DEFAULT, Timeline
from headwater.adapter.timestamps import STRICT, Isolation, Serializable
from headwater.api.evaluator import LazyEvaluator
from headwater.api.lazy_spark import LazySpark
from headwater.base.clock import SystemClock
from headwater.base.errors import HeadwaterError, InvalidUsage
from headwater.collection.run_layout import LAYOUTS
from headwater.materialize.controller import Materializations
from headwater.persist.client import Client, open_location
from headwater.persist.core import SERVER
from headwater.persist.location import Blob, Consensus
from headwater.persist.state import State
from headwater.storage.controller import Ingestions


class NothingHere(InvalidUsage):
    """There is no location where one was looked for."""

    def __init__(self, location: str, why: str) -> None:
        super().__init__(
            f"there is no location {location!r} to read ({why}); check the path, or make one with "
            f"`headwater serve --data {location}` or headwater.open(…, writable=True)"
        )


class ReadOnlyDatabase(InvalidUsage):
    """A statement that writes, where only reading was asked for."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} writes, and this database was opened to be read; send it to the server that "
            f"runs the location, or open it with writable=True where none does"
        )


def open_client(
    location: str | Path,
    *,
    writable: bool,
    blob: str | Blob | None,
    consensus: str | Consensus | None,
    take_over: bool,
) -> Client:
    """Open the runtime of a location; a reader creates nothing."""
    if not writable and blob is None and consensus is None and not Path(location).is_dir():
        raise NothingHere(str(location), "it is no directory")
    clock = SystemClock()
    client = open_location(
        location,
        blob=blob,
        consensus=consensus,
        read_only=not writable,
        take_over=take_over and writable,
        layouts=LAYOUTS,
        clock=clock,
    )
    if not writable and DEFAULT not in client.core.state.timelines:
        client.stop()
        raise NothingHere(str(location), "no server has been here yet")
    return client


class Engine:
    """The parts of one open database."""

    def __init__(self, client: Client, spark: LazySpark, *, timeout_ms: int) -> None:
        self.client = client
        self.spark = spark
        self.writable = not client.core.read_only
        self.timeout_ms = timeout_ms
        self.timeline = Timeline(client, client.core.clock)
        self.evaluator = LazyEvaluator(client, spark)
        self.materializations = Materializations(client)
        self.ingestions = Ingestions(client, self.timeline, client.core.clock)
        self.coordinator = Coordinator(
            client,
            self.timeline,
            self.evaluator,
            self.materializations,
            ingestions=self.ingestions,
        )
        if self.writable:
            self.timeline.start()
            self.materializations.start()
            self.ingestions.start()

    def close(self) -> None:
        """Stop in the opposite order."""
        if self.writable:
            self.ingestions.stop()
            self.materializations.stop()
        self.evaluator.stop()
        self.timeline.stop()
        self.client.stop()
        self.spark.close()

    def state(self) -> State:
        """Return the newest state: what anybody was told before is in it."""
        return self.client.core.look()

    @property
    def isolation(self) -> Isolation:
        """How times are chosen where nobody said.

        Views that nobody brings up to date would be waited for in vain: where nobody runs the
        location, a read takes the newest time at which everything is complete.
        """
        role = self.client.core.state.roles.get(SERVER)
        return STRICT if self.writable or (role is not None and role.held) else Serializable()

    def admit(self, statement: Statement, sql: str) -> None:
        """Refuse a statement that may not run here, and get ready for what it reads."""
        self.state()
        if not self.writable and writes(statement):
            raise ReadOnlyDatabase(" ".join(sql.split()[:3]))
        self.keep_views(read_by(statement))

    def keep_views(self, names: tuple[str, ...]) -> None:
        """Have the views among what is read brought up to date, by whoever has to."""
        if not self.writable or not names:
            return
        state = self.state()
        derived = self.coordinator.reads.sources(names).derived.values()
        if any(catalog.named(state, name).kind == "materialized view" for name in derived):
            _ = self.evaluator.views

    @contextmanager
    def chosen(self, name: str, as_of: int | None) -> Iterator[tuple[Sources, int]]:
        """Choose and hold a time at which a relation is complete."""
        self.state()
        self.keep_views((name,))
        reads = self.coordinator.reads
        sources = reads.sources((name,))
        at = None if as_of is None else AsOf(as_of)
        limit = Limit(self.timeout_ms)
        with reads.chosen(sources, self.isolation, at, limit) as time:
            yield sources, time

    def collection_of(self, name: str) -> Any:
        """Return the collection of a relation; None: it is a view that is only a text."""
        state = self.state()
        found = catalog.named(state, name)
        return state.collections[state.names[found.collection]] if found.collection else None

    @property
    def failure(self) -> HeadwaterError | None:
        """Why nothing can be committed any more (it was fenced, say), if so."""
        machine = self.client.core.machine
        return None if machine is None else machine.failure


def writes(statement: Statement) -> bool:
    """Whether a statement changes the location."""
    from headwater.adapter.definitions import Definition

    return isinstance(statement, Definition | Insert | Update | Delete)


def read_by(statement: Statement) -> tuple[str, ...]:
    """Return the names of what a statement reads."""
    match statement:
        case Select(tables=tables) | Update(tables=tables) | Delete(tables=tables):
            return tables
        case Insert(query=query):
            return () if query is None else query.tables
        case Subscribe(name=name, named=False):
            return (name,)
        case _:
            return ()

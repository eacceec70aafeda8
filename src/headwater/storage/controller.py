"""Which sources there are, and that each of them runs.

A source is durable as the item ``source/<id>`` (``storage/definition.py``), written in the entry
that makes its collections: outputs, remap, dead letters, all on the timeline, and all kept where
they are born until the first binding, so that nobody reads a source before what was upstream
when it was made. Whoever opens the location runs all of them again, each in a thread of its own;
each resumes where it was durable. A source that stalls or fails touches no other. One that is
paused is not run until it is resumed; what it has bound is then appended first.

:meth:`Ingestions.statuses` is what the system views and the console show of all this.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec

from headwater.base.clock import Clock
from headwater.base.errors import HeadwaterError, InvalidUsage
from headwater.base.ids import GlobalId
from headwater.persist import evolution
from headwater.persist.client import Client
from headwater.persist.commands import (
    Atomic,
    Command,
    CreateOrLoad,
    Destroy,
    OpenReader,
    OpenWriter,
    SetItem,
)
from headwater.storage import dead_letters, remap
from headwater.storage.definition import (
    PREFIX,
    Connections,
    FromPostgres,
    SourceDefinition,
    decoded,
    encoded,
    upstream_of,
)
from headwater.storage.following import Following
from headwater.storage.inbox import Inbox, destroyed
from headwater.storage.ingestion import Ingestion
from headwater.storage.outputs import BOUND, HOLD, Definition, Statistics, bound_by, hold_of
from headwater.storage.runner import Condition, Runner, Status
from headwater.storage.source import Reliance
from headwater.storage.sources.postgres import drop_slot

STOP_SECONDS: Final = 20.0
"""How long a source is waited for when it is to stop."""

GOING_ON: Final = (Condition.STARTING, Condition.RUNNING, Condition.STALLED)

LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """How one source is doing."""

    id: str
    kind: str
    status: Status
    history: tuple[Status, ...]
    """The newest changes of status, oldest first."""
    statistics: Statistics
    """Counters since this process began to run it, its snapshot, the offsets known and durable."""
    reliance: Reliance = Reliance.RETAINED
    """What it needs upstream to keep."""

    @property
    def lag(self) -> int:
        """How many offsets are known upstream and not durable here."""
        return self.statistics.lag


@dataclass(slots=True)
class _Running:
    definition: SourceDefinition
    runner: Runner
    thread: threading.Thread | None = None

    @property
    def goes_on(self) -> bool:
        """Whether somebody lets it tick, and it is not just ending."""
        ticks = self.thread is None or self.thread.is_alive()
        return ticks and self.runner.status.condition in GOING_ON

    def end(self) -> None:
        """Wait until it has stopped; without a thread, stop it here."""
        if self.thread is not None:
            # It may be in the middle of a call to somebody who does not answer. What it commits
            # after that is refused: the role, or the collections, are not there any more.
            self.thread.join(STOP_SECONDS)
            return
        with suppress(HeadwaterError):  # Fenced, or the location is closed: nothing to give back.
            self.runner.finish()


def no_connections(connection: str) -> Mapping[str, object]:
    """Know no connection."""
    raise InvalidUsage(f"there is no connection {connection!r}")


def new_collections(
    kept: Definition, timeline: str, ids: Mapping[str, GlobalId]
) -> Iterator[Command]:
    """Return what makes the collections of a source: born where the timeline is, and kept there."""
    beside = ((kept.remap, remap.SCHEMA), (kept.dead_letters, dead_letters.SCHEMA))
    for name, schema in beside:
        yield CreateOrLoad(name, evolution.to_bytes(schema), timeline=timeline, id=ids[name])
    yield OpenReader(ids[kept.remap], hold_of(kept), HOLD)
    for output in kept.outputs:
        envelope, gid = output.envelope, ids[output.collection]
        yield CreateOrLoad(
            output.collection,
            evolution.to_bytes(envelope.schema),
            envelope.key,
            envelope.layout,
            timeline=timeline,
            id=gid,
        )
        yield OpenReader(gid, hold_of(kept), HOLD)
    for gid in ids.values():
        yield OpenWriter(gid, bound_by(kept), BOUND)


class Ingestions:
    """All sources of a location."""

    def __init__(
        self,
        client: Client,
        following: Following,
        clock: Clock,
        *,
        connections: Connections = no_connections,
        threads: bool = True,
        session: Any = None,
    ) -> None:
        """Run nothing yet; without ``threads``, whoever calls :meth:`tick` lets sources run.

        The tasks of ``session``, a SparkSession, read what is large.
        """
        self._client = client
        self._following = following
        self._clock = clock
        self._threads = threads
        self._tasks: Any = None
        if session is not None:
            from headwater.storage.spark import SparkTasks

            self._tasks = partial(SparkTasks, session)
        self._running: dict[str, _Running] = {}
        self._opening = threading.Lock()
        self._inboxes: dict[str, Inbox] = {}
        self.connections = connections

    def start(self) -> None:
        """Run every source that the log knows."""
        for definition in self.definitions():
            self._run(definition)

    def stop(self) -> None:
        """Stop them all; nothing is lost by it."""
        for running in self._running.values():
            running.runner.stop()
        for running in self._running.values():
            running.end()
        self._running.clear()
        for inbox in self._inboxes.values():
            inbox.close()
        self._inboxes.clear()

    def definitions(self) -> Iterator[SourceDefinition]:
        """Return every source that the log knows."""
        for key, value in sorted(self._client.core.state.items.items()):
            if key.startswith(PREFIX):
                yield decoded(value)

    def inbox(self, source: str) -> Inbox:
        """Return the inbox of a source that is fed by others; one for all of this process."""
        with self._opening:
            found = self._inboxes.get(source)
            if found is None:
                found = self._inboxes[source] = Inbox(self._client, source, self._clock)
                found.arrived = partial(self._wake, source)
            return found

    def _wake(self, source: str) -> None:
        running = self._running.get(source)
        if running is not None:
            running.runner.wake()

    def statuses(self) -> tuple[SourceStatus, ...]:
        """Return how every source is doing."""
        return tuple(
            SourceStatus(
                id_,
                each.definition.kind,
                each.runner.status,
                each.runner.history,
                each.runner.statistics,
                each.definition.reliance,
            )
            for id_, each in sorted(self._running.copy().items())
        )

    def tick(self) -> None:
        """Let every source ingest what is new, in this thread."""
        for each in list(self._running.values()):
            if not each.definition.paused:
                each.runner.once()

    # ---- making and dropping -----------------------------------------------------------------

    def create(
        self,
        definition: SourceDefinition,
        ids: Mapping[str, GlobalId],
        also: tuple[Command, ...] = (),
    ) -> None:
        """Make a source, with other commands in the same entry, and run it.

        ``ids``: reserved, for every collection that it keeps.
        """
        item = SetItem(PREFIX + definition.id, encoded(definition))
        commands = new_collections(definition.ingestion, self._following.name, ids)
        self._client.core.submit(Atomic((*commands, item, *also))).result()
        self._run(definition)

    def drop(self, source: str, also: tuple[Command, ...] = ()) -> None:
        """Stop a source for good; its collections go, after other commands in the same entry."""
        running = self._running.pop(source, None)
        if running is not None:
            running.runner.stop()
            running.end()
        inbox = self._inboxes.pop(source, None)
        if inbox is not None:
            inbox.close()
        value = self._client.core.state.items.get(PREFIX + source)
        gone: list[Command] = []
        if value is not None:
            definition = decoded(value)
            kept = definition.ingestion
            names = (*(o.collection for o in kept.outputs), kept.remap, kept.dead_letters)
            gone = [SetItem(PREFIX + source, None), *map(Destroy, names)]
            gone += destroyed(self._client, source)
        self._client.core.submit(Atomic((*also, *gone))).result()
        if value is not None:
            self._release_upstream(definition)

    # ---- pausing and resuming ----------------------------------------------------------------

    def pause(self, source: str, also: tuple[Command, ...] = ()) -> None:
        """Let a source stand still, also over restarts; what it is in the middle of it ends."""
        definition = msgspec.structs.replace(self._defined(source), paused=True)
        self._keep(definition, also)
        self._again(definition)

    def resume(self, source: str, also: tuple[Command, ...] = ()) -> None:
        """Let a source go on: one that is paused or failed runs, one that is stalled tries now."""
        definition = msgspec.structs.replace(self._defined(source), paused=False)
        self._keep(definition, also)
        running = self._running.get(source)
        if running is not None and running.goes_on:
            running.runner.wake()
            return
        self._again(definition)

    def _defined(self, source: str) -> SourceDefinition:
        value = self._client.core.state.items.get(PREFIX + source)
        if value is None:
            raise InvalidUsage(f"there is no source {source!r}")
        return decoded(value)

    def _keep(self, definition: SourceDefinition, also: tuple[Command, ...]) -> None:
        item = SetItem(PREFIX + definition.id, encoded(definition))
        self._client.core.submit(Atomic((item, *also))).result()

    def _again(self, definition: SourceDefinition) -> None:
        """Run a source as it is defined now, in the place of whoever ran it before.

        Should that one hang in a call to upstream, it is refused with its next commit.
        """
        before = self._running.pop(definition.id, None)
        if before is not None and not before.definition.paused:
            before.runner.stop()
            before.end()
        self._run(definition, None if before is None else before.runner)

    def _release_upstream(self, definition: SourceDefinition) -> None:
        """Let upstream forget the source; if it is away, say what is left there."""
        upstream = definition.upstream
        if not isinstance(upstream, FromPostgres):
            return
        try:
            drop_slot(str(self.connections(upstream.connection)["dsn"]), upstream.slot)
        except HeadwaterError:
            LOG.warning(
                "source %s is dropped, and its replication slot %r could not be: drop it with "
                "pg_drop_replication_slot, or it pins the log of its server",
                definition.id,
                upstream.slot,
            )

    def _run(self, definition: SourceDefinition, before: Runner | None = None) -> None:
        def start() -> Ingestion:
            source = upstream_of(definition, self._clock, self.connections, self.inbox)
            kept = definition.ingesting(self.connections)
            return Ingestion(self._client, kept, source, self._following, self._tasks)

        begins = Condition.PAUSED if definition.paused else Condition.STARTING
        runner = Runner(
            start, self._clock, interval_ms=definition.poll_ms, begins=begins, before=before
        )
        running = _Running(definition, runner)
        self._running[definition.id] = running
        if self._threads and not definition.paused:

            def run() -> None:
                with suppress(Exception):  # It stands in the status.
                    runner.run()

            running.thread = threading.Thread(
                target=run, name=f"headwater-source-{definition.id}", daemon=True
            )
            running.thread.start()

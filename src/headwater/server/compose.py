"""One server: every part built once, started in order, stopped in the opposite order.

    persist ─▶ timeline ─▶ views (Spark) ─▶ materializations ─▶ sources ─▶ coordinator ─▶ wire
                                                                              └─▶ console
                 ╲─▶ the shadow PostgreSQL ─────────────────────────────────▶┘

The door opens before Spark is warm (``compute/warming.py``): whoever needs it waits, the rest does
not. Stopping is not needed for safety: whatever was acknowledged is in the log, and the next start
goes on from there.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any, Self

from prometheus_client import CollectorRegistry

from headwater.adapter import replacement
from headwater.adapter.catalog_queries import CatalogQueries
from headwater.adapter.coordinator import Coordinator
from headwater.adapter.pgwire import tls
from headwater.adapter.pgwire.server import WireServer, check_address, is_loopback
from headwater.adapter.pgwire.users import UserList
from headwater.adapter.timeline import Timeline
from headwater.adapter.vault import Vault, default_key_file
from headwater.adapter.webhooks import Webhooks
from headwater.base import tracing
from headwater.base.clock import SystemClock
from headwater.base.errors import HeadwaterError
from headwater.collection.run_layout import LAYOUTS
from headwater.compute.controller import ViewController
from headwater.compute.session import SparkSettings
from headwater.compute.warming import WarmingSession
from headwater.console.sight import Sight
from headwater.materialize.controller import Materializations
from headwater.materialize.in_task import ShardTasks
from headwater.persist.client import open_location
from headwater.persist.spark import run_in_background, slots
from headwater.server import metrics, otel, preflight
from headwater.server.config import Address, ServerConfig
from headwater.server.http import HttpServer, health
from headwater.server.logs import tell
from headwater.server.watch import Watch
from headwater.server.webhooks import WebhookDoor
from headwater.storage.controller import Ingestions

__all__ = ["Server", "ServerConfig"]


class Server:
    """A running server."""

    def __init__(self, config: ServerConfig) -> None:
        # Before anything is opened or started: what a person can mend is told at once.
        users = None if config.users is None else UserList.of_file(config.users)
        encryption = None
        if config.tls_certificate is not None and config.tls_key is not None:
            encryption = tls.of_files(
                config.tls_certificate, config.tls_key, required=config.tls_required
            )
        check_address(config.host, users)
        if config.console is not None:
            check_address(config.console.host, users)
        settings = spark_settings(config)
        preflight.check(config)
        self.config, self._users = config, users
        with ExitStack() as undo:
            self._build(config, settings, encryption, undo)
            self._open = undo.pop_all()
        """What is open or runs, to be ended in the opposite order."""

    def _build(
        self, config: ServerConfig, settings: SparkSettings, encryption: Any, undo: ExitStack
    ) -> None:
        if config.otel:
            sent = otel.opened()
            undo.callback(sent.close)
            tracing.collect(sent)
            undo.callback(tracing.collect, None)
        self.console: HttpServer | None = None
        if config.console is not None:
            self.console = HttpServer(
                config.console, self._application, config.tls_certificate, config.tls_key
            )
            undo.callback(self.console.stop)
        clock = SystemClock()
        self.client = open_location(
            config.data,
            blob=config.blob or None,
            consensus=config.consensus or None,
            reentrance_id=preflight.reentrance_id(config),
            take_over=config.take_over,
            layouts=LAYOUTS,
            clock=clock,
        )
        undo.callback(self.client.stop)
        tell("the location is open", epoch=self.client.core.epoch, **config.shown())
        self.timeline = Timeline(self.client, clock, config.tick_ms / 1000)
        self.catalog_queries = CatalogQueries(
            config.data / "shadow",
            lambda: self.client.core.state,
            () if self._users is None else self._users.names,
        )
        self.session = WarmingSession(settings)
        undo.callback(self.session.close)
        self.views = ViewController(self.client, self.session)
        self.materializations = Materializations(
            self.client,
            tasks=partial(run_in_background, self.session),
            shard_tasks=ShardTasks(
                partial(run_in_background, self.session),
                settings.host,
                partial(slots, self.session),
                by_default=not settings.is_local,
            ),
        )
        self.ingestions = Ingestions(self.client, self.timeline, clock, session=self.session)
        coordinator = Coordinator(
            self.client,
            self.timeline,
            self.views,
            self.materializations,
            ingestions=self.ingestions,
            catalog_queries=self.catalog_queries,
            vault=Vault.of_file(config.secrets_key or default_key_file()),
        )
        self.webhooks = Webhooks(self.client.core, self.ingestions, coordinator.connections)
        self.wire = WireServer(
            config.host, config.port, coordinator, users=self._users, tls=encryption
        )
        self.sight = Sight(coordinator.seen, coordinator.open_session, self.ingestions.statuses)
        self.watch = Watch(self.sight.picture)

    def start(self) -> Self:
        """Start everything; when this returns, clients can connect. What fails leaves nothing."""
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def _start(self) -> None:
        replacement.drop_abandoned(self.client.core, self.views, self.materializations)
        for part in (
            self.catalog_queries,
            self.timeline,
            self.views,
            self.materializations,
            self.ingestions,
        ):
            part.start()
            self._open.callback(part.stop)
        try:
            self.wire.start()
        except OSError as error:
            raise preflight.cannot_listen(self.config.address, "--listen", error) from None
        self._open.callback(self.wire.stop)
        tell("clients may connect", address=Address(self.wire.host, self.wire.port))
        self.watch.start()
        self._open.callback(self.watch.stop)
        if self.console is not None:
            self.console.start()
            self._open.callback(self.console.stop)
            tell("the console is served", url=self.console.url)

    @property
    def failure(self) -> HeadwaterError | None:
        """Why the server cannot go on: it was fenced, its log is broken, Spark did not start."""
        machine = self.client.core.machine
        broken = None if machine is None else machine.failure
        return broken or self.session.failure

    @property
    def psql(self) -> str:
        """The line with which a person connects."""
        return f"psql -h {self.wire.host} -p {self.wire.port} -U headwater"

    def stop(self) -> None:
        """Stop what was started, in the opposite order."""
        self.session.start_no_more()
        self._open.close()
        tell("stopped")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _application(self) -> Any:
        # Imported here, in the console's thread: the door does not wait for its libraries.
        from headwater.console.app import application

        config = self.config.console
        assert config is not None
        registry = CollectorRegistry()
        registry.register(metrics.ObjectMetrics(self.sight.picture, self.session))
        counted = self.client.core.metrics.registry
        shown = application(
            self.sight,
            lambda: metrics.text(counted, registry),
            lambda: health(self.failure, self.session.ready, self.client.core.retries.room.full),
            loopback=is_loopback(config.host),
            check=None if self._users is None else self._users.admits,
        )
        return WebhookDoor(shown, self.webhooks.open, lambda: self.failure)


def spark_settings(config: ServerConfig) -> SparkSettings:
    """Return how Spark is run."""
    memory = preflight.spark_memory(
        config.spark_memory_mib, preflight.total_mib(), preflight.available_mib()
    )
    return SparkSettings(
        master=config.spark_master,
        cores=config.spark_cores,
        host=config.spark_host,
        driver_memory=f"{memory}m",
        # What is collected is in the heap several times: as a task's result, read, decoded.
        collect_mib=memory // 8,
        result_mib=config.query_result_mib,
        extra=config.spark,
    )

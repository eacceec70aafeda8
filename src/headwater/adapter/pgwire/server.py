"""A PostgreSQL server to its clients: :class:`WireServer` listens and runs connections.

It has an event loop in a thread of its own, so that the rest of the process is plain blocking
code. Between ``start`` and ``stop`` it accepts; ``stop`` closes every connection, lets running
statements end, closes their sessions and joins the thread. Both are called once, by whoever
composes the server.

It knows no passwords yet, so it listens on loopback only and refuses any other address.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import struct
import threading
from concurrent.futures import Future
from typing import Any, Self

from pg_mimic.server import PgServer
from pg_mimic.stream import ConnectionClosed, PgStream

from headwater.adapter.pgwire import variables
from headwater.adapter.pgwire.backend import Backend
from headwater.adapter.pgwire.connection import WireConnection
from headwater.base.errors import InvalidUsage


class NotLoopback(InvalidUsage):
    """The address would let others in without a password."""

    def __init__(self, host: str) -> None:
        super().__init__(
            f"{host} is not a loopback address and there is no authentication yet: "
            "listen on 127.0.0.1 or ::1"
        )


class _Connections(PgServer):  # type: ignore[misc]  # pg-mimic is Any here
    """pg-mimic's listener, making connections of ours."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(lambda: None, server_version=variables.SERVER_VERSION)
        self.parameter_status = dict(variables.REPORTED)
        self._backend = backend
        self._sessions_closing: set[asyncio.Task[None]] = set()

    async def _handle_client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        # As pg-mimic's, which names its own Connection class where ours must stand.
        stream = PgStream(reader, writer)
        try:
            startup_params = await self._negotiate_startup(stream)
        except (ConnectionClosed, ConnectionError):
            return
        if startup_params is None:
            return  # It was a cancel request.
        pid = self._allocate_pid()
        (secret,) = struct.unpack("!i", os.urandom(4))
        connection = WireConnection(stream, self, pid, secret, startup_params, self._backend)
        self._connections[pid] = connection
        try:
            await connection.run()
        finally:
            self._connections.pop(pid, None)
            # A task of its own: stopping cancels this one, and the session is closed all the same.
            closing = asyncio.create_task(connection.close_session())
            self._sessions_closing.add(closing)
            closing.add_done_callback(self._sessions_closing.discard)

    async def stop(self) -> None:
        """Close the listener and every connection, and wait until their sessions are closed."""
        running = tuple(self._tasks)
        self.close()
        await asyncio.gather(*running, return_exceptions=True)
        await asyncio.gather(*self._sessions_closing)
        await self.wait_closed()


class WireServer:
    """PostgreSQL's protocol on ``host:port`` (port 0: a free one), statements to ``backend``."""

    def __init__(self, host: str, port: int, backend: Backend) -> None:
        if not _is_loopback(host):
            raise NotLoopback(host)
        self._host = host
        self._port = port
        self._backend = backend
        self._listening: Future[int] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="headwater-wire", daemon=True)

    @property
    def host(self) -> str:
        """The address it listens on."""
        return self._host

    @property
    def port(self) -> int:
        """The port it listens on; known once it is started."""
        return self._listening.result(timeout=0)

    def start(self) -> None:
        """Listen. Raises ``OSError`` if the address cannot be had."""
        self._thread.start()
        try:
            self._listening.result()
        except OSError:
            self._thread.join()
            raise

    def stop(self) -> None:
        """Close every connection and stop listening; returns when all sessions are closed."""
        if self._loop is not None and self._stopping is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        connections = _Connections(self._backend)
        try:
            listener: Any = await connections.start_server(self._host, self._port)
        except OSError as error:
            self._listening.set_exception(error)
            return
        self._listening.set_result(listener.sockets[0].getsockname()[1])
        await self._stopping.wait()
        await connections.stop()


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

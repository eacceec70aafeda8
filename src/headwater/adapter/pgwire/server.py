"""A PostgreSQL server to its clients: :class:`WireServer` listens and runs connections.

It has an event loop in a thread of its own, so that the rest of the process is plain blocking
code. Between ``start`` and ``stop`` it accepts; ``stop`` tells every client, closes every
connection, lets running statements end (a session that can be asked is asked), closes their
sessions and joins the thread. Both are called once, by whoever composes the server.

Without users it listens on loopback only: any other address is refused before anything starts.

What one client does costs the others nothing: what it may send before and after it is let in, how
long it may take to be let in, and how many there may be, are bounded by :class:`Limits`; its
statements run in a thread of its own; what it does not read stops its own statement.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import secrets
import shlex
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, Self

from headwater.adapter.errors import (
    AdapterError,
    InvalidSetting,
    UnknownSetting,
    Unsupported,
)
from headwater.adapter.pgwire import messages, refusals, variables
from headwater.adapter.pgwire.arrivals import Arrivals
from headwater.adapter.pgwire.authentication import Authentication
from headwater.adapter.pgwire.backend import Backend
from headwater.adapter.pgwire.calls import Calls
from headwater.adapter.pgwire.connection import Connection
from headwater.adapter.pgwire.execution import Execution
from headwater.adapter.pgwire.framing import Disconnected, Stream
from headwater.adapter.pgwire.startup import CancelRequest, Startup, negotiate
from headwater.adapter.pgwire.tls import Tls
from headwater.adapter.pgwire.users import Users
from headwater.adapter.pgwire.worker import Worker
from headwater.adapter.setting_errors import NotHonoured
from headwater.adapter.sql.names import DATABASE
from headwater.adapter.sql.statements import SetVariable
from headwater.base.errors import InvalidUsage

LOG = logging.getLogger(__name__)

BACKLOG: Final = 1024
SECRET_BYTES: Final = 32
SECRET_BYTES_OLD: Final = 4
"""What clients of protocol 3.0 can hold."""
_PID_MAX: Final = (1 << 31) - 1
_NOT_VARIABLES: Final = ("user", "database", "options", "replication")


class NotLoopback(InvalidUsage):
    """The address would let others in without a password."""

    def __init__(self, host: str) -> None:
        super().__init__(
            f"{host} is not a loopback address, and there are no users: "
            "make one with `headwater user NAME --users FILE` and serve with --users FILE, "
            "or listen on 127.0.0.1 or ::1"
        )


@dataclass(frozen=True, slots=True)
class Limits:
    """What clients may make the server hold."""

    connections_max: int = 1_000
    startup_seconds: float = 60.0
    message_bytes_max: int = 64 << 20


def check_address(host: str, users: Users | None) -> None:
    """Refuse an address that would let others in without a password."""
    if not is_loopback(host) and not users:
        raise NotLoopback(host)


class _Listener:
    """The connections of a server, in its event loop."""

    def __init__(
        self, backend: Backend, users: Users | None, tls: Tls | None, limits: Limits
    ) -> None:
        self._backend = backend
        self._tls = tls
        self._limits = limits
        self._authentication = Authentication(users, None if tls is None else tls.channel)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._streams: set[Stream] = set()
        self._running: dict[int, tuple[bytes, Calls]] = {}
        self._last_pid = 0
        self._server: asyncio.Server | None = None
        self._stopping = False
        self._arrivals: Arrivals | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; the port."""
        self._arrivals = Arrivals(asyncio.get_running_loop())
        self._server = await asyncio.start_server(self._connected, host, port, backlog=BACKLOG)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close the listener and every connection, and wait until their sessions are closed."""
        assert self._server is not None
        self._stopping = True
        self._server.close()
        running = tuple(self._tasks)
        for task in running:
            task.cancel()
        streams = tuple(self._streams)
        await asyncio.gather(*running, return_exceptions=True)
        await asyncio.gather(*self._closing)
        for stream in streams:
            stream.abort()  # What a client has not taken by now it does not take.
        await self._server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        stream = Stream(reader, writer, self._limits.message_bytes_max)
        self._streams.add(stream)
        try:
            # Beyond all clients there is room for as many that are only coming in or cancelling.
            if not self._stopping and len(self._tasks) <= 2 * self._limits.connections_max:
                await self._serve(stream)
        except (Disconnected, ConnectionError):
            LOG.debug("a client is gone")
        except asyncio.CancelledError:
            stream.write(refusals.response(refusals.ShuttingDown(), "FATAL"))
        except Exception:
            LOG.exception("a connection ended with an unexpected error")
        finally:
            self._tasks.discard(task)
            self._streams.discard(stream)
            stream.close()

    async def _serve(self, stream: Stream) -> None:
        try:
            async with asyncio.timeout(self._limits.startup_seconds):
                wanted = await self._negotiate(stream)
                if isinstance(wanted, CancelRequest):
                    self._cancel(wanted)
                    return
                await self._let_in(stream, wanted)
        except TimeoutError:
            return  # As PostgreSQL: who does not come in is not spoken to.
        except AdapterError as error:
            stream.write(refusals.response(error, "FATAL"))
            await stream.linger()
            return
        await self._run(stream, wanted)

    async def _negotiate(self, stream: Stream) -> Startup | CancelRequest:
        context = None if self._tls is None else self._tls.context
        required = self._tls is not None and self._tls.required
        return await negotiate(stream, context, tls_required=required)

    def _cancel(self, request: CancelRequest) -> None:
        secret, calls = self._running.get(request.pid, (b"", None))
        if calls is not None and hmac.compare_digest(secret, request.secret):
            calls.cancel("request")

    async def _let_in(self, stream: Stream, wanted: Startup) -> None:
        user = wanted.parameters.get("user", "")
        if not user:
            raise refusals.NoUser
        if wanted.parameters.get("replication", "false") not in ("false", "off", "no", "0"):
            raise Unsupported("a replication connection")
        await self._authentication.let_in(stream, user)
        database = wanted.parameters.get("database", DATABASE)
        if database not in (DATABASE, user):  # A client that names none names its user.
            raise refusals.UnknownDatabase(database, DATABASE)
        if len(self._running) >= self._limits.connections_max:
            raise refusals.TooManyConnections

    async def _run(self, stream: Stream, wanted: Startup) -> None:
        pid = self._new_pid()
        secret = secrets.token_bytes(SECRET_BYTES if wanted.minor >= 2 else SECRET_BYTES_OLD)
        held = variables.SessionVariables()
        user = wanted.parameters["user"]
        about = {
            "pid": str(pid),
            "user": user,
            "address": stream.peer,
            "application_name": wanted.parameters.get("application_name", ""),
        }
        assert self._arrivals is not None, "it listens"
        worker = Worker(self._backend, f"headwater-wire-{pid}", self._arrivals, about)
        calls = Calls(stream, worker)
        execution = Execution(stream, calls, held, user, pid)
        self._running[pid] = (secret, calls)
        try:
            try:
                ignored = await _set_variables(calls, held, wanted.parameters)
            except AdapterError as error:
                stream.write(refusals.response(error, "FATAL"))
                await stream.linger()
                return
            stream.write(messages.authentication_ok())
            for warning in ignored if held.warns else ():
                told = {**refusals.fields(warning, "WARNING"), "C": "01000"}
                stream.write(messages.notice_response(told))
            reported = dict(variables.REPORTED)
            reported |= {name: held.show(name) for name in variables.FOLLOWED}
            for name, value in {**reported, "session_authorization": user}.items():
                stream.write(messages.parameter_status(name, value))
            stream.write(messages.backend_key_data(pid, secret))
            await Connection(stream, calls, execution).run()
        finally:
            del self._running[pid]
            calls.stop_reading()
            execution.close()
            # A task of its own: stopping cancels this one, and the session is closed all the same.
            closing = asyncio.create_task(_close(worker, pid))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def _new_pid(self) -> int:
        while True:
            self._last_pid = self._last_pid % _PID_MAX + 1
            if self._last_pid not in self._running:
                return self._last_pid


async def _close(worker: Worker, pid: int) -> None:
    worker.cancel("gone")
    try:
        await worker.close()
    except Exception:
        LOG.exception("the session of connection %d did not close", pid)


async def _set_variables(
    calls: Calls, held: variables.SessionVariables, parameters: Mapping[str, str]
) -> list[AdapterError]:
    """Set what the start-up packet says, ours here and the backend's there.

    What would be refused of a SET because it stays what it is, is a warning here: drivers send
    their machine's time zone unasked. But bytes in another encoding would be read as something
    else.
    """
    ignored: list[AdapterError] = []
    wanted = _options(parameters.get("options", ""))
    wanted |= {
        name.lower(): value for name, value in parameters.items() if name not in _NOT_VARIABLES
    }
    for name, value in wanted.items():
        try:
            await _start_with(calls, held, name, value)
        except NotHonoured as error:
            if name == "client_encoding":
                raise
            ignored.append(error)
    return ignored


async def _start_with(
    calls: Calls, held: variables.SessionVariables, name: str, value: str
) -> None:
    if held.holds(name) or held.shares(name):
        held.start(name, value)
    if not held.holds(name):
        try:
            statement = SetVariable(name, value)
            await calls.worker.execute(statement, f"SET {name} = '{value}'")
        except UnknownSetting:
            if not held.shares(name):
                raise


def _options(written: str) -> dict[str, str]:
    """``-c name=value`` and ``--name=value``, as of a command line."""
    options: dict[str, str] = {}
    try:
        words = iter(shlex.split(written))
    except ValueError as error:
        raise InvalidSetting(f"invalid command-line arguments: {written}") from error
    for word in words:
        if word == "-c":
            setting = next(words, "")
        elif word.startswith(("-c", "--")):
            setting = word[2:]
        else:
            raise InvalidSetting(f"invalid command-line argument for server process: {word}")
        name, equals, value = setting.partition("=")
        if not equals:
            raise InvalidSetting(f"-c {setting} requires a value")
        options[name.replace("-", "_").lower()] = value
    return options


class WireServer:
    """PostgreSQL's protocol on ``host:port`` (port 0: a free one), statements to ``backend``."""

    def __init__(
        self,
        host: str,
        port: int,
        backend: Backend,
        *,
        users: Users | None = None,
        tls: Tls | None = None,
        limits: Limits | None = None,
    ) -> None:
        check_address(host, users)
        self._host = host
        self._port = port
        self._listener = _Listener(backend, users, tls, limits or Limits())
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
        try:
            port = await self._listener.start(self._host, self._port)
        except OSError as error:
            self._listening.set_exception(error)
            return
        self._listening.set_result(port)
        await self._stopping.wait()
        await self._listener.stop()


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

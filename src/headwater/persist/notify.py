"""Telling readers of new entries: a hint that travels faster than looking.

A writer with ``Settings.notify`` listens on a socket and announces where, as the durable item
``notify/address``. A reader that was opened ``notified`` finds the item in the state, connects, and
looks at the log at every message. A message is the sequence number of an entry and nothing else:

    server -> reader   magic ``HWN1``, 16 bytes that the announcement promised, then for ever
                       the newest sequence number, 8 bytes, big endian

The 16 bytes prove that the listener is the announced one: after a crash somebody else may have its
port. Nothing is ever sent by the reader.

**Never needed for correctness.** A message may come late, twice or not at all, and only says
"look": what is true is in the log. So a slow reader is sent just the newest number, and a reader
that loses its connection polls as an independent one does, while it tries to connect again. A
connected one still looks every ``notified_poll_ms``: other roles commit without our knowledge.
"""

from __future__ import annotations

import contextlib
import secrets
import selectors
import socket
import struct
import threading
from typing import Final

import msgspec

from headwater.base.decoding import from_json
from headwater.base.errors import HeadwaterError
from headwater.base.ids import SeqNo
from headwater.base.retry import Retry, RetryPolicy
from headwater.persist.commands import SetItem
from headwater.persist.core import THREADS, Core
from headwater.persist.state import State

ADDRESS: Final = "notify/address"
MAGIC: Final = b"HWN1"
TOKEN_BYTES: Final = 16
PEERS_MAX: Final = 256
CONNECT_TIMEOUT_S: Final = 1.0
RECONNECT: Final = RetryPolicy(first_ms=50, limit_ms=5_000, attempts_max=2**31)
"""Attempts without end: a reader outlives many writers, and polls meanwhile."""

_SEQNO: Final = struct.Struct(">q")


class Announcement(msgspec.Struct, frozen=True):
    """Where a writer listens, and how it proves to be the one."""

    host: str
    port: int
    token: str


def announced(state: State) -> Announcement | None:
    """Return the announcement in a state; one that cannot be read is none."""
    item = state.items.get(ADDRESS)
    if item is None:
        return None
    try:
        address = from_json(item, Announcement)
        bytes.fromhex(address.token)
    except (msgspec.DecodeError, ValueError):
        return None
    return address


class _Peer:
    """A connected reader: what is left of the message in flight, and the newest number sent."""

    def __init__(self, connection: socket.socket, hello: bytes) -> None:
        self.connection = connection
        self.rest = hello
        self.told = SeqNo(-2)

    def send(self, newest: SeqNo) -> bool:
        """Send as much as the socket takes without waiting; whether all was taken."""
        while True:
            if not self.rest:
                if self.told >= newest:
                    return True
                self.rest, self.told = _SEQNO.pack(newest), newest
            try:
                sent = self.connection.send(self.rest)
            except BlockingIOError:
                return False
            self.rest = self.rest[sent:]


class Notifier:
    """The writer's half: one thread that sends the newest sequence number to everybody."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._newest = core.state.seqno
        self._stop = False
        self._token = secrets.token_bytes(TOKEN_BYTES)
        self._listener = socket.create_server((core.settings.notify_host, 0))
        self._listener.setblocking(False)
        self._bell, self._ear = socket.socketpair()
        self._bell.setblocking(False)
        self._ear.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._peers: dict[socket.socket, _Peer] = {}
        self._thread = threading.Thread(target=self._run, name=f"{THREADS}notifier", daemon=True)

    @property
    def announcement(self) -> Announcement:
        """Where we listen."""
        host, port = self._listener.getsockname()[:2]
        return Announcement(host, port, self._token.hex())

    def start(self) -> None:
        """Listen, announce, and go on until the runtime stops."""
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._ear, selectors.EVENT_READ)
        self._thread.start()
        self._core.subscribe(self._publish)
        self._core.on_stop.append(self.stop)
        item = msgspec.json.encode(self.announcement)
        self._core.submit(SetItem(ADDRESS, item)).result()

    def stop(self) -> None:
        """Withdraw the announcement and close every connection."""
        machine = self._core.machine
        if machine is not None and announced(self._core.state) == self.announcement:
            # Fenced or out of storage: the announcement stays, and leads nowhere.
            with contextlib.suppress(HeadwaterError):
                machine.submit(SetItem(ADDRESS, None)).result()
        self._stop = True
        self._ring()
        self._thread.join()

    def _publish(self, state: State) -> None:
        """Called in the committing thread: one byte into a pipe and no waiting."""
        self._newest = state.seqno
        self._ring()

    def _ring(self) -> None:
        # A full pipe is a bell that rings already; a closed one has nobody to hear it.
        with contextlib.suppress(OSError):
            self._bell.send(b"!")

    def _run(self) -> None:
        while not self._stop:
            for key, events in self._selector.select():
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj is self._ear:
                    self._drain()
                else:
                    assert isinstance(key.fileobj, socket.socket)
                    peer = self._peers.get(key.fileobj)
                    if peer is not None:  # else it was dropped on account of an earlier event
                        self._serve(peer, bool(events & selectors.EVENT_READ))
        for peer in list(self._peers.values()):
            self._forget(peer)
        self._selector.close()
        for mine in (self._listener, self._bell, self._ear):
            mine.close()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        if len(self._peers) >= PEERS_MAX:
            connection.close()
            return
        connection.setblocking(False)
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = _Peer(connection, MAGIC + self._token)
        self._peers[connection] = peer
        self._selector.register(connection, selectors.EVENT_READ)
        self._send(peer)

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._ear.recv(4096):
                pass
        for peer in list(self._peers.values()):
            self._send(peer)

    def _serve(self, peer: _Peer, readable: bool) -> None:
        if readable:
            try:
                gone = not peer.connection.recv(4096)
            except BlockingIOError:
                gone = False
            except OSError:
                gone = True
            if gone:
                self._forget(peer)
                return
        self._send(peer)

    def _send(self, peer: _Peer) -> None:
        try:
            through = peer.send(self._newest)
        except OSError:
            self._forget(peer)
            return
        events = selectors.EVENT_READ | (0 if through else selectors.EVENT_WRITE)
        self._selector.modify(peer.connection, events)

    def _forget(self, peer: _Peer) -> None:
        del self._peers[peer.connection]
        self._selector.unregister(peer.connection)
        peer.connection.close()


class _Lost(Exception):
    """The connection ended, or was not what was announced."""


class Notified:
    """The reader's half: one thread that looks at the log when it is told to."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._stop = False
        self._changed = threading.Event()
        self._tried: Announcement | None = None
        self._connection: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, name=f"{THREADS}notified", daemon=True)

    def start(self) -> None:
        """Connect in the background, and stay connected until the runtime stops."""
        self._core.subscribe(self._look_at_address)
        self._core.on_stop.append(self.stop)
        self._thread.start()

    def stop(self) -> None:
        """Disconnect."""
        self._stop = True
        self._changed.set()
        connection = self._connection
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def _look_at_address(self, state: State) -> None:
        if announced(state) != self._tried:
            self._changed.set()

    def _run(self) -> None:
        retry = Retry(RECONNECT, self._core.clock)
        while not self._stop:
            self._changed.clear()
            self._tried = announced(self._core.state)
            try:
                if self._tried is None:
                    raise _Lost("no writer announces where it listens")
                self._follow(self._tried, retry)
            except (OSError, _Lost, HeadwaterError) as error:
                self._set_notified(now=False)
                failed = retry.failed(error)
                assert failed is not None, "attempts without end"
                self._changed.wait(max(0, failed.next_try_ms - self._core.clock.now_ms()) / 1000)
                self._look()

    def _look(self) -> None:
        """Look at the log for a new address; if that fails now, whoever waits will be told."""
        if not self._stop:
            with contextlib.suppress(HeadwaterError):
                self._core.refresh()

    def _follow(self, address: Announcement, retry: Retry) -> None:
        """Connect, and refresh at every message until the connection ends."""
        place = (address.host, address.port)
        with socket.create_connection(place, CONNECT_TIMEOUT_S) as connection:
            self._connection = connection
            if self._stop:
                return
            hello = MAGIC + bytes.fromhex(address.token)
            if _receive(connection, len(hello)) != hello:
                raise _Lost(f"{address.host}:{address.port} is somebody else's now")
            # The hello had its time limit; from here on silence only says that nothing changed.
            connection.settimeout(None)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            retry.over()
            while True:
                (told,) = _SEQNO.unpack(_receive(connection, _SEQNO.size))
                if told > self._core.state.seqno:
                    self._core.refresh()
                self._set_notified(now=True)

    def _set_notified(self, *, now: bool) -> None:
        if self._core.notified != now:
            self._core.notified = now
            self._core.wake()  # whoever waits has another rhythm now


def _receive(connection: socket.socket, count: int) -> bytes:
    """Return exactly ``count`` bytes."""
    received = b""
    while len(received) < count:
        piece = connection.recv(count - len(received))
        if not piece:
            raise _Lost("the writer closed the connection")
        received += piece
    return received

"""The channel between a session and the task that carries it: sealed frames over one connection.

    task    ─▶  id of the session (16 bytes)                    it dials; it was given the address
    session ─▶  nonce (32 bytes)
    both    ─▶  length (4 bytes) | AES-256-GCM of a message     frames, as long as both are there

What crosses may be a secret (the configuration of an endpoint), and the task takes what it is told
for pickled values. So each side must know that the other one is who it was meant to be: both have
the session's secret, which went to the task with its code, and nobody else does. The key of a
direction is made of that secret, the nonce and the direction; the number of a frame is its own
nonce. A frame that was made up, repeated, left out or sent elsewhere does not open, and the channel
is over.

Invariant:      messages arrive in the order in which they were sent, each once, or not at all.
Kept by:        this module. Relied on by: ``in_task`` (our end), ``carrying`` (the task's end).
"""

from __future__ import annotations

import secrets
import select
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from headwater.base.errors import HeadwaterError

ID_BYTES: Final = 16
SECRET_BYTES: Final = 32
NONCE_BYTES: Final = 32
FRAME_BYTES_MAX: Final = 256 << 20
POLL_MILLISECONDS: Final = 200
GREETING_SECONDS: Final = 30.0
"""How long the other side may take to say who it is."""
GREETING_BYTES_MAX: Final = 4096
"""And how much it may say for that: nobody knows yet that it is no stranger."""

_LENGTH: Final = struct.Struct(">I")
_NUMBER: Final = struct.Struct(">IQ")
_KEEPALIVE: Final = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
_TO_TASK: Final = b"to the task"
_TO_SESSION: Final = b"to the session"


class ChannelClosed(HeadwaterError):
    """The other side is gone, or is not who it should be."""

    def __init__(self, why: object = "the other side has closed it") -> None:
        super().__init__(f"the channel between a session and its task is closed: {why}")
        self.why = str(why)


class Channel:
    """One end of a channel; used by one thread, and closed by any."""

    def __init__(
        self, connection: socket.socket, secret: bytes, nonce: bytes, *, in_task: bool
    ) -> None:
        self._connection = connection
        ours, theirs = (_TO_SESSION, _TO_TASK) if in_task else (_TO_TASK, _TO_SESSION)
        self._sealing, self._opening = _key(secret, nonce, ours), _key(secret, nonce, theirs)
        self._sent = self._received = 0
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A machine that is gone says nothing: after a minute of that it is taken for gone.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE:
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def send(self, message: bytes) -> None:
        """Say something."""
        sealed = self._sealing.encrypt(_NUMBER.pack(0, self._sent), message, None)
        self._sent += 1
        try:
            self._connection.sendall(_LENGTH.pack(len(sealed)) + sealed)
        except OSError as error:
            raise ChannelClosed(error) from None

    def receive(
        self, meanwhile: Callable[[], None] | None = None, bytes_max: int = FRAME_BYTES_MAX
    ) -> bytes:
        """Wait for what is said next; ``meanwhile`` is called now and then, and may raise."""
        while meanwhile is not None and not self.readable(POLL_MILLISECONDS):
            meanwhile()
        (length,) = _LENGTH.unpack(received(self._connection, _LENGTH.size))
        if length > bytes_max:
            raise ChannelClosed("a frame is too long")
        sealed = received(self._connection, length)
        try:
            opened = self._opening.decrypt(_NUMBER.pack(0, self._received), sealed, None)
        except InvalidTag:
            raise ChannelClosed("a frame was not sealed by the other side") from None
        self._received += 1
        return opened

    def readable(self, milliseconds: int = 0) -> bool:
        """Whether something was said, or the other side is gone."""
        descriptor = self._connection.fileno()
        if descriptor < 0:
            return True
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(milliseconds))

    def close(self) -> None:
        """Be gone; whoever waits on either side is told."""
        hang_up(self._connection)


def hang_up(connection: socket.socket) -> None:
    """Close a connection, also under a thread that waits for it."""
    with suppress(OSError):  # It was closed, or never was open.
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def received(connection: socket.socket, size: int) -> bytes:
    """Return exactly so many bytes."""
    data = bytearray()
    while len(data) < size:
        try:
            piece = connection.recv(min(size - len(data), 1 << 20))
        except OSError as error:
            raise ChannelClosed(error) from None
        if not piece:
            raise ChannelClosed
        data += piece
    return bytes(data)


def dial(host: str, port: int, session: bytes, secret: bytes) -> Channel:
    """Reach a session from a task."""
    connection = socket.create_connection((host, port), GREETING_SECONDS)
    try:
        connection.sendall(session)
        nonce = received(connection, NONCE_BYTES)
        # A second attempt waits here, until it is told that the session is over.
        return Channel(connection, secret, nonce, in_task=True)
    except BaseException:
        connection.close()
        raise


def answer(connection: socket.socket, secret: bytes) -> Channel:
    """Answer a task that has said which session it wants."""
    nonce = secrets.token_bytes(NONCE_BYTES)
    connection.sendall(nonce)
    return Channel(connection, secret, nonce, in_task=False)


def _key(secret: bytes, nonce: bytes, direction: bytes) -> AESGCM:
    return AESGCM(blake2b(nonce + direction, key=secret, digest_size=32).digest())

"""Messages over a socket: lengths checked before anything is read, writes under backpressure.

A :class:`Stream` is one client's socket. Invariants:

- A length is judged by :func:`~.frontend.payload_bytes_max` before a byte of the payload is
  waited for; what the client sends too much of is never held.
- ``write`` only queues, ``flush`` sends when there is much, and ``drain`` sends and waits until the
  client has taken enough. Whoever produces rows drains between pieces, so a client that does not
  read holds back its own statement only.
- The end of the client's stream is :class:`Disconnected`, whatever the operating system calls it.

Keep-alive is on, so that a peer that vanished without a word is noticed by the kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from typing import Final

from headwater.adapter.errors import ProtocolError
from headwater.adapter.pgwire import frontend

STARTUP_BYTES_MAX: Final = 10_000
"""PostgreSQL's bound: names and options, before anybody has shown a password."""

KEEPALIVE_IDLE_SECONDS: Final = 60
KEEPALIVE_PROBES: Final = 5
FLUSH_BYTES: Final = 1 << 16
CLOSE_SECONDS: Final = 5.0
LINGER_SECONDS: Final = 1.0
LINGER_BYTES_MAX: Final = 1 << 20

_HEADER = struct.Struct("!ci")
_STARTUP_HEADER = struct.Struct("!ii")


class Disconnected(Exception):
    """The client is gone."""


class Stream:
    """One client's socket, in messages."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        message_bytes_max: int,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._message_bytes_max = message_bytes_max
        self._encrypted = False
        self._queued = bytearray()
        self._said_all = False
        _keep_alive(writer)

    @property
    def encrypted(self) -> bool:
        """Whether TLS is on."""
        return self._encrypted

    @property
    def peer(self) -> str:
        """Where the client is: its address and port, or nothing for a socket in a directory."""
        address = self._writer.get_extra_info("peername")
        return f"{address[0]}:{address[1]}" if isinstance(address, tuple) else ""

    async def read_startup(self) -> tuple[int, bytes]:
        """The first packet, which has no tag: its code and the rest."""
        length, code = _STARTUP_HEADER.unpack(await self._exactly(_STARTUP_HEADER.size))
        if not _STARTUP_HEADER.size <= length <= STARTUP_BYTES_MAX:
            raise ProtocolError("invalid length of startup packet")
        return code, await self._exactly(length - _STARTUP_HEADER.size)

    async def read(self) -> frontend.FrontendMessage:
        """The next message. A :class:`ProtocolError` here means that the place is lost."""
        tag, payload = await self.read_raw()
        return frontend.decode(tag, payload)

    async def read_raw(self) -> tuple[bytes, bytes]:
        """The next message, not yet decoded: what is wrong inside it does not lose the place."""
        tag, length = _HEADER.unpack(await self._exactly(_HEADER.size))
        payload_bytes = length - 4
        if not 0 <= payload_bytes <= frontend.payload_bytes_max(tag, self._message_bytes_max):
            raise ProtocolError(
                "invalid message length",
                detail=f"A message may have at most {self._message_bytes_max} bytes.",
            )
        return tag, await self._exactly(payload_bytes)

    async def start_tls(self, context: ssl.SSLContext) -> None:
        """Shake hands. The client has been told that it may."""
        await self.drain()
        # What came before the handshake was not protected: somebody may have put it there.
        if self.has_input:
            raise ProtocolError("received unencrypted data after SSL request")
        try:
            await self._writer.start_tls(context)
        except (OSError, ssl.SSLError) as error:
            raise Disconnected from error
        self._encrypted = True

    @property
    def has_input(self) -> bool:
        """Whether the client has sent what nobody has read."""
        return bool(self._reader._buffer)  # type: ignore[attr-defined]

    @property
    def has_message(self) -> bool:
        """Whether a whole message is there, so that reading it waits for nothing."""
        input_: bytearray = self._reader._buffer  # type: ignore[attr-defined]
        if len(input_) < _HEADER.size:
            return False
        return len(input_) > int.from_bytes(input_[1 : _HEADER.size], "big")

    @property
    def next_tag(self) -> bytes:
        """The tag of the message that is there."""
        return bytes(self._reader._buffer[:1])  # type: ignore[attr-defined]

    def write(self, data: bytes) -> None:
        """Queue what is to be sent."""
        self._queued += data

    async def flush(self) -> None:
        """Send what is queued if it is much: answers to a pipeline go out together."""
        if len(self._queued) >= FLUSH_BYTES:
            await self.drain()

    async def drain(self) -> None:
        """Send what is queued and wait until the client has taken most of it."""
        if self._queued:
            # A copy, and the queue anew: the transport may keep what it is given.
            self._writer.write(bytes(self._queued))
            self._queued.clear()
        try:
            await self._writer.drain()
        except (OSError, ssl.SSLError) as error:
            raise Disconnected from error

    async def linger(self) -> None:
        """Let the client read our last words: closing with its bytes unread would recall them."""
        with contextlib.suppress(OSError, ssl.SSLError, Disconnected, TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                await self.drain()
                self._said_all = self._writer.can_write_eof()
                if self._said_all:
                    self._writer.write_eof()
                left = LINGER_BYTES_MAX
                while left > 0 and (taken := await self._reader.read(left)):
                    left -= len(taken)

    def close(self) -> None:
        """Close the socket; what is queued is still sent if the client takes it soon."""
        if self._writer.is_closing():
            return
        if self._queued and not self._said_all:
            self._writer.write(bytes(self._queued))
            self._queued.clear()
        left = self._writer.transport.get_write_buffer_size()
        if left and self._encrypted:
            self.abort()  # Once closing, a transport with TLS can no longer be aborted.
            return
        self._writer.close()
        if left:
            # A client that does not read would keep the socket, and what is queued, for ever.
            asyncio.get_running_loop().call_later(CLOSE_SECONDS, self.abort)

    def abort(self) -> None:
        """Close the socket at once."""
        self._writer.transport.abort()

    async def _exactly(self, count: int) -> bytes:
        try:
            return await self._reader.readexactly(count)
        except (asyncio.IncompleteReadError, OSError, ssl.SSLError) as error:
            raise Disconnected from error


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    connected: socket.socket | None = writer.get_extra_info("socket")
    if connected is None or connected.family not in (socket.AF_INET, socket.AF_INET6):
        return
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_SECONDS),
        ("TCP_KEEPINTVL", KEEPALIVE_IDLE_SECONDS // KEEPALIVE_PROBES),
        ("TCP_KEEPCNT", KEEPALIVE_PROBES),
    ):
        if hasattr(socket, name):  # They are not everywhere.
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

"""Cutting a stream of bytes into messages.

protobuf: each message has 4 bytes of length in front, little-endian. JSON: each message is a line.
The reader of a stream feeds what arrives and takes what is complete. There is no greatest message
in the protocol; :data:`FRAME_BYTES_MAX` is ours, just small enough that text on a connector's
standard output, read as a length, is seen at once to be none (four printable characters are at
least 538 million).
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from typing import Final

from headwater.materialize.protocol.machine import Side
from headwater.materialize.protocol.messages import Message
from headwater.materialize.wire import json_lines, protobuf
from headwater.materialize.wire.protobuf import MalformedMessage

FRAME_BYTES_MAX: Final = 512 * 1024 * 1024
_LENGTH: Final = struct.Struct("<I")


class Codec(enum.Enum):
    """The two forms of the wire, named as in ``FLOW_RUNTIME_CODEC``."""

    PROTOBUF = "proto"
    JSON = "json"


def frame(message: Message, side: Side, codec: Codec) -> bytes:
    """Return a message of a side as it goes into the pipe."""
    match codec:
        case Codec.PROTOBUF:
            payload = protobuf.encode(message, side)
            return _LENGTH.pack(len(payload)) + payload
        case Codec.JSON:
            return json_lines.encode(message, side) + b"\n"


class FrameReader:
    """The messages in a stream that a side sends."""

    def __init__(self, side: Side, codec: Codec) -> None:
        self._side = side
        self._codec = codec
        self._pending = bytearray()

    def feed(self, chunk: bytes) -> Iterator[Message]:
        """Take what arrived; yield the messages that are complete with it."""
        self._pending += chunk
        while (payload := self._next()) is not None:
            match self._codec:
                case Codec.PROTOBUF:
                    yield protobuf.decode(payload, self._side)
                case Codec.JSON:
                    if payload.strip():
                        yield json_lines.decode(payload, self._side)

    def end(self) -> None:
        """The stream has ended; it must not end within a message."""
        if self._pending.strip():
            raise MalformedMessage(
                f"the {self._side.value}'s stream ended within a message, after "
                f"{bytes(self._pending[:80])!r}"
            )

    def _next(self) -> bytes | None:
        match self._codec:
            case Codec.PROTOBUF:
                return self._next_delimited()
            case Codec.JSON:
                return self._next_line()

    def _next_delimited(self) -> bytes | None:
        if len(self._pending) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._pending)
        if length > FRAME_BYTES_MAX:
            raise MalformedMessage(
                f"a message of {length} bytes, which begins {bytes(self._pending[:80])!r}; "
                "does the connector print to its standard output?"
            )
        return self._take(_LENGTH.size, _LENGTH.size + length, 0)

    def _next_line(self) -> bytes | None:
        end = self._pending.find(b"\n")
        if end < 0:
            if len(self._pending) > FRAME_BYTES_MAX:
                raise MalformedMessage(f"a line of more than {FRAME_BYTES_MAX} bytes")
            return None
        return self._take(0, end, 1)

    def _take(self, start: int, end: int, after: int) -> bytes | None:
        if len(self._pending) < end:
            return None
        payload = bytes(self._pending[start:end])
        del self._pending[: end + after]
        return payload

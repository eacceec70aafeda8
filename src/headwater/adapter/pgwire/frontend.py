"""What a client says: the bytes of one message → one value of a closed union, or a refusal.

Pure and total: for every tag and every payload :func:`decode` returns a
:data:`FrontendMessage` or raises :class:`~headwater.adapter.errors.ProtocolError`, and nothing
else. A payload must be exactly its message: a count that does not fit the bytes, a string that
does not end, bytes left over are refused, so that no later code meets half a message.

:func:`payload_bytes_max` is asked before the payload is read: what a client may make us hold.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from headwater.adapter.errors import ProtocolError

BIND: Final = b"B"
CLOSE: Final = b"C"
COPY_DATA: Final = b"d"
COPY_DONE: Final = b"c"
COPY_FAIL: Final = b"f"
DESCRIBE: Final = b"D"
EXECUTE: Final = b"E"
FLUSH: Final = b"H"
FUNCTION_CALL: Final = b"F"
PARSE: Final = b"P"
PASSWORD: Final = b"p"
QUERY: Final = b"Q"
SYNC: Final = b"S"
TERMINATE: Final = b"X"

SMALL_BYTES_MAX: Final = 10_000
"""PostgreSQL's bound for messages without values."""

_INT32 = struct.Struct("!i")
_UINT16 = struct.Struct("!H")


@dataclass(frozen=True, slots=True)
class Query:
    """Statements of the simple protocol."""

    sql: str


@dataclass(frozen=True, slots=True)
class Parse:
    """Prepare a statement; type 0 leaves the choice to the server."""

    statement: str
    sql: str
    parameter_oids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bind:
    """Give a statement its parameters and make a portal of it."""

    portal: str
    statement: str
    parameter_formats: tuple[int, ...]
    parameters: tuple[bytes | None, ...]
    result_formats: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Describe:
    """What are the parameters and columns of a statement, or the columns of a portal?"""

    kind: Literal["statement", "portal"]
    name: str


@dataclass(frozen=True, slots=True)
class Execute:
    """Rows of a portal, at most ``rows_max``; 0 is all."""

    portal: str
    rows_max: int


@dataclass(frozen=True, slots=True)
class Close:
    """Forget a statement or portal."""

    kind: Literal["statement", "portal"]
    name: str


@dataclass(frozen=True, slots=True)
class Flush:
    """Send what you have."""


@dataclass(frozen=True, slots=True)
class Sync:
    """The end of a series; after an error the place to go on."""


@dataclass(frozen=True, slots=True)
class CopyData:
    """A piece of the rows of a COPY; its borders mean nothing."""

    data: bytes


@dataclass(frozen=True, slots=True)
class CopyDone:
    """The rows of a COPY are complete."""


@dataclass(frozen=True, slots=True)
class CopyFail:
    """The client gives up a COPY."""

    reason: str


@dataclass(frozen=True, slots=True)
class Password:
    """An answer during authentication; what it holds depends on the question."""

    data: bytes


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """The protocol's own function call, which nobody has used for twenty years."""


@dataclass(frozen=True, slots=True)
class Terminate:
    """Good-bye."""


FrontendMessage = (
    Query
    | Parse
    | Bind
    | Describe
    | Execute
    | Close
    | Flush
    | Sync
    | CopyData
    | CopyDone
    | CopyFail
    | Password
    | FunctionCall
    | Terminate
)


def payload_bytes_max(tag: bytes, large: int) -> int:
    """How long the payload of this message may be, when ``large`` is the bound for values."""
    if tag not in _DECODERS:
        raise ProtocolError(f"invalid frontend message type {tag[0]}")
    return large if tag in _LARGE else SMALL_BYTES_MAX


def decode(tag: bytes, payload: bytes) -> FrontendMessage:
    """The message with this tag and payload."""
    decoder = _DECODERS.get(tag)
    if decoder is None:
        raise ProtocolError(f"invalid frontend message type {tag[0]}")
    reader = Reader(payload)
    decoded = decoder(reader)
    reader.finish()
    return decoded


class Reader:
    """A place in a payload, moved by what is read; never beyond the end."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._at = 0

    @property
    def at_end(self) -> bool:
        """Whether everything has been read."""
        return self._at == len(self._payload)

    def take(self, count: int) -> bytes:
        """The next ``count`` bytes."""
        if count < 0 or count > len(self._payload) - self._at:
            raise ProtocolError("insufficient data left in message")
        self._at += count
        return self._payload[self._at - count : self._at]

    def rest(self) -> bytes:
        """Everything that is left."""
        return self.take(len(self._payload) - self._at)

    def uint16(self) -> int:
        """A count, or a format."""
        return int(_UINT16.unpack(self.take(2))[0])

    def int32(self) -> int:
        """A length, or a number of rows."""
        return int(_INT32.unpack(self.take(4))[0])

    def oid(self) -> int:
        """A type."""
        return self.int32() & 0xFFFF_FFFF

    def string(self) -> str:
        """Text up to its zero byte."""
        end = self._payload.find(b"\0", self._at)
        if end < 0:
            raise ProtocolError("invalid string in message")
        raw, self._at = self._payload[self._at : end], end + 1
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise ProtocolError("a string of the message is not UTF-8") from None

    def finish(self) -> None:
        """Complain about what is left."""
        if not self.at_end:
            raise ProtocolError("invalid message format")


def _parse(reader: Reader) -> Parse:
    name, sql = reader.string(), reader.string()
    return Parse(name, sql, tuple(reader.oid() for _ in range(reader.uint16())))


def _bind(reader: Reader) -> Bind:
    portal, statement = reader.string(), reader.string()
    parameter_formats = _formats(reader)
    parameters = tuple(_parameter(reader) for _ in range(reader.uint16()))
    if len(parameter_formats) > 1 and len(parameter_formats) != len(parameters):
        raise ProtocolError(
            f"bind message has {len(parameter_formats)} parameter formats "
            f"but {len(parameters)} parameters"
        )
    return Bind(portal, statement, parameter_formats, parameters, _formats(reader))


def _formats(reader: Reader) -> tuple[int, ...]:
    formats = tuple(reader.uint16() for _ in range(reader.uint16()))
    for code in formats:
        if code not in (0, 1):
            raise ProtocolError(f"unsupported format code: {code}")
    return formats


def _parameter(reader: Reader) -> bytes | None:
    length = reader.int32()
    return None if length == -1 else reader.take(length)


def _target(reader: Reader) -> tuple[Literal["statement", "portal"], str]:
    kind = reader.take(1)
    if kind == b"S":
        return "statement", reader.string()
    if kind == b"P":
        return "portal", reader.string()
    raise ProtocolError(f"invalid message subtype {kind[0]}")


def _function_call(reader: Reader) -> FunctionCall:
    reader.rest()
    return FunctionCall()


_DECODERS: dict[bytes, Callable[[Reader], FrontendMessage]] = {
    QUERY: lambda reader: Query(reader.string()),
    PARSE: _parse,
    BIND: _bind,
    DESCRIBE: lambda reader: Describe(*_target(reader)),
    EXECUTE: lambda reader: Execute(reader.string(), reader.int32()),
    CLOSE: lambda reader: Close(*_target(reader)),
    FLUSH: lambda _: Flush(),
    SYNC: lambda _: Sync(),
    COPY_DATA: lambda reader: CopyData(reader.rest()),
    COPY_DONE: lambda _: CopyDone(),
    COPY_FAIL: lambda reader: CopyFail(reader.string()),
    PASSWORD: lambda reader: Password(reader.rest()),
    FUNCTION_CALL: _function_call,
    TERMINATE: lambda _: Terminate(),
}
_LARGE = frozenset({QUERY, PARSE, BIND, COPY_DATA, FUNCTION_CALL})

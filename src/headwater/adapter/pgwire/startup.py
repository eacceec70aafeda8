"""Before a session: encryption, cancel requests, the version, the client's parameters.

:func:`negotiate` reads the packets without a tag and returns what the client wants:
:class:`Startup` (a session), :class:`CancelRequest`, or None (it left). Each kind of encryption may
be asked for once, so the exchange is bounded; the caller bounds it in time.

Versions: 3.0 to 3.2 are spoken. A newer minor version, or a protocol option (``_pq_.…``) we do not
know, is negotiated down; another major version is refused. A connection without TLS is refused
when the server requires it, but a cancel request is not: libpq sends those plain.
"""

from __future__ import annotations

import ssl
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headwater.adapter.errors import AdapterError, ProtocolError
from headwater.adapter.pgwire import messages
from headwater.adapter.pgwire.framing import Stream
from headwater.adapter.pgwire.frontend import Reader

MAJOR: Final = 3
MINOR_MAX: Final = 2

_CANCEL: Final = 80877102
_SSL: Final = 80877103
_GSSENC: Final = 80877104
_SECRET_BYTES: Final = range(4, 257)
_OPTION_PREFIX: Final = "_pq_."


@dataclass(frozen=True, slots=True)
class Startup:
    """A client that wants a session, in protocol 3.``minor``."""

    minor: int
    parameters: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """A client that wants the running statement of another connection to end."""

    pid: int
    secret: bytes


class UnsupportedVersion(AdapterError):
    """A major version of the protocol that is not ours."""

    condition = "UNSUPPORTED_PROTOCOL"
    sqlstate = "0A000"

    def __init__(self, major: int, minor: int) -> None:
        super().__init__(
            f"unsupported frontend protocol {major}.{minor}: "
            f"server supports {MAJOR}.0 to {MAJOR}.{MINOR_MAX}"
        )


class EncryptionRequired(AdapterError):
    """A client without TLS where the server requires it."""

    condition = "ENCRYPTION_REQUIRED"
    sqlstate = "28000"

    def __init__(self) -> None:
        super().__init__(
            "this server accepts encrypted connections only",
            hint="Connect with sslmode=require or stronger.",
        )


async def negotiate(
    stream: Stream, tls: ssl.SSLContext | None, *, tls_required: bool
) -> Startup | CancelRequest:
    """What the client wants."""
    asked: set[int] = set()
    while True:
        code, payload = await stream.read_startup()
        if code in (_SSL, _GSSENC) and code not in asked and not payload:
            asked.add(code)
            if code == _SSL and tls is not None and not stream.encrypted:
                stream.write(b"S")
                await stream.start_tls(tls)
            else:
                stream.write(b"N")
                await stream.drain()
            continue
        if code == _CANCEL:
            return _cancel_request(payload)
        startup = _startup(code, payload)
        if tls_required and not stream.encrypted:
            raise EncryptionRequired
        unknown = [name for name in startup.parameters if name.startswith(_OPTION_PREFIX)]
        if startup.minor > MINOR_MAX or unknown:
            minor = min(startup.minor, MINOR_MAX)
            stream.write(messages.negotiate_protocol_version(minor, unknown))
            parameters = {
                name: value for name, value in startup.parameters.items() if name not in unknown
            }
            return Startup(minor, parameters)
        return startup


def _cancel_request(payload: bytes) -> CancelRequest:
    if len(payload) - 4 not in _SECRET_BYTES:
        raise ProtocolError("invalid length of cancel request packet")
    (pid,) = struct.unpack("!i", payload[:4])
    return CancelRequest(pid, payload[4:])


def _startup(code: int, payload: bytes) -> Startup:
    major, minor = code >> 16, code & 0xFFFF
    if major != MAJOR:
        raise UnsupportedVersion(major, minor)
    reader = Reader(payload)
    parameters: dict[str, str] = {}
    while name := reader.string():
        parameters[name] = reader.string()
    reader.finish()
    return Startup(minor, parameters)

"""Letting a client in: who it says it is, and the proof.

Without users everybody is believed (the server listens on loopback only then). With users the proof
is SCRAM-SHA-256, over TLS with channel binding if the client can. An unknown user is put through
the same exchange with a verifier that nobody satisfies, and refused in the same words.
"""

from __future__ import annotations

import secrets

from headwater.adapter.errors import ProtocolError
from headwater.adapter.pgwire import frontend, messages, scram
from headwater.adapter.pgwire.framing import Stream
from headwater.adapter.pgwire.refusals import WrongPassword
from headwater.adapter.pgwire.users import Users

NONCE_BYTES = 18


class Authentication:
    """What the server knows for letting clients in."""

    def __init__(self, users: Users | None, channel: bytes | None) -> None:
        self._users = users
        self._channel = channel
        self._mock_secret = secrets.token_bytes(32)

    async def let_in(self, stream: Stream, user: str) -> None:
        """Return when the client has proved that it is ``user``; raise if it has not."""
        if self._users is None:
            return
        channel = self._channel if stream.encrypted else None
        mechanisms = [scram.MECHANISM]
        if channel is not None:
            mechanisms.insert(0, scram.MECHANISM_PLUS)
        stream.write(messages.authentication_sasl(mechanisms))
        await stream.drain()
        mechanism, client_first = _initial_response(await self._answer(stream))
        if mechanism not in mechanisms:
            raise ProtocolError("client selected an invalid SASL authentication mechanism")
        verifier = self._users.verifier(user) or scram.mock_verifier(self._mock_secret, user)
        exchange = scram.Exchange(
            verifier,
            secrets.token_urlsafe(NONCE_BYTES),
            channel=channel if mechanism == scram.MECHANISM_PLUS else None,
            plus_offered=channel is not None,
        )
        stream.write(messages.authentication_sasl_continue(exchange.first(client_first)))
        await stream.drain()
        try:
            server_final = exchange.final(await self._answer(stream))
        except scram.NotProved:
            raise WrongPassword(user) from None
        stream.write(messages.authentication_sasl_final(server_final))

    async def _answer(self, stream: Stream) -> bytes:
        message = await stream.read()
        if not isinstance(message, frontend.Password):
            raise ProtocolError("expected SASL response")
        return message.data


def _initial_response(data: bytes) -> tuple[str, bytes]:
    reader = frontend.Reader(data)
    mechanism, length = reader.string(), reader.int32()
    response = b"" if length == -1 else reader.take(length)
    reader.finish()
    return mechanism, response

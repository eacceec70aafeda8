"""SCRAM-SHA-256 (RFC 5802, 7677), the server's side: pure, the nonce passed in.

A :class:`Verifier` is what a server keeps of a password: with it one can check a client that knows
the password, and prove to the client that one knows the verifier, but not pose as the client. Its
text is PostgreSQL's (``SCRAM-SHA-256$iterations:salt$stored:server``), so that verifiers can be
taken from there and given back.

:class:`Exchange` is one conversation: client-first → server-first, client-final → server-final, or
:class:`NotProved`. With ``channel`` (the hash of our certificate) the mechanism is ``-PLUS``, and
the client must show that it speaks through the same TLS; a client that could and was told that we
cannot has been lied to by somebody between us, and is refused.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import stringprep
import unicodedata
from dataclasses import dataclass
from typing import Final

from headwater.adapter.errors import ProtocolError

MECHANISM: Final = "SCRAM-SHA-256"
MECHANISM_PLUS: Final = "SCRAM-SHA-256-PLUS"
CHANNEL_TYPE: Final = "tls-server-end-point"
ITERATIONS: Final = 4096
"""PostgreSQL's default; the cost of a guess for whoever steals the verifiers."""

SALT_BYTES: Final = 16
_ITERATIONS_MAX: Final = 10_000_000
_KEY_BYTES: Final = 32
_NONCE = re.compile(r"[\x21-\x2b\x2d-\x7e]+")  # printable, no comma


class NotProved(Exception):
    """The client does not know the password."""


class InvalidVerifier(ValueError):
    """A text that is no verifier."""


@dataclass(frozen=True, slots=True)
class Verifier:
    """What is kept of a password."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    @classmethod
    def of_password(cls, password: str, salt: bytes, iterations: int = ITERATIONS) -> Verifier:
        """The verifier of a password. The salt must be new, and random."""
        salted = hashlib.pbkdf2_hmac("sha256", prepared(password).encode(), salt, iterations)
        client_key = _hmac(salted, b"Client Key")
        return cls(
            iterations, salt, hashlib.sha256(client_key).digest(), _hmac(salted, b"Server Key")
        )

    @classmethod
    def of_text(cls, text: str) -> Verifier:
        """Read what :meth:`__str__` wrote, or PostgreSQL's ``pg_authid.rolpassword``."""
        try:
            mechanism, parameters, keys = text.strip().split("$")
            iterations, salt = parameters.split(":")
            stored, server = (base64.b64decode(key, validate=True) for key in keys.split(":"))
            found = cls(int(iterations), base64.b64decode(salt, validate=True), stored, server)
        except (ValueError, binascii.Error):
            raise InvalidVerifier("it is not SCRAM-SHA-256$iterations:salt$stored:server") from None
        if mechanism != MECHANISM or not found.salt or not 1 <= found.iterations <= _ITERATIONS_MAX:
            raise InvalidVerifier(f"it is no {MECHANISM} verifier")
        if len(found.stored_key) != _KEY_BYTES or len(found.server_key) != _KEY_BYTES:
            raise InvalidVerifier("its keys have not 32 bytes")
        return found

    def __str__(self) -> str:
        return (
            f"{MECHANISM}${self.iterations}:{_b64(self.salt)}"
            f"${_b64(self.stored_key)}:{_b64(self.server_key)}"
        )

    def __repr__(self) -> str:
        return f"Verifier(iterations={self.iterations})"  # The keys are nobody's to print.


def mock_verifier(secret: bytes, user: str) -> Verifier:
    """A verifier nobody can satisfy, always the same for a user who does not exist.

    So the exchange with an unknown user looks like that with a known one up to its end.
    """
    salt = _hmac(secret, b"salt" + user.encode())[:SALT_BYTES]
    return Verifier(
        ITERATIONS, salt, _hmac(secret, b"stored" + user.encode()), _hmac(secret, b"server")
    )


class Exchange:
    """One conversation with one client."""

    def __init__(
        self,
        verifier: Verifier,
        nonce: str,
        *,
        channel: bytes | None = None,
        plus_offered: bool = False,
    ) -> None:
        self._verifier = verifier
        self._nonce = nonce
        self._channel = channel
        self._plus_offered = plus_offered
        self._client_first_bare = ""
        self._server_first = ""
        self._header = ""

    def first(self, client_first: bytes) -> bytes:
        """server-first, in answer to client-first."""
        text = _text(client_first)
        flag, authzid, bare = (*text.split(",", 2), "", "")[:3]
        self._check_channel(flag)
        if authzid:
            raise ProtocolError("client uses authorization identity, but it is not supported")
        attributes = bare.split(",")
        if len(attributes) < 2 or not attributes[0].startswith("n="):
            raise ProtocolError("malformed SCRAM message")
        client_nonce = attributes[1].removeprefix("r=")
        if not attributes[1].startswith("r=") or _NONCE.fullmatch(client_nonce) is None:
            raise ProtocolError("malformed SCRAM nonce")
        self._header = f"{flag},{authzid},"
        self._client_first_bare = bare
        self._nonce = client_nonce + self._nonce
        verifier = self._verifier
        self._server_first = f"r={self._nonce},s={_b64(verifier.salt)},i={verifier.iterations}"
        return self._server_first.encode()

    def final(self, client_final: bytes) -> bytes:
        """server-final, in answer to client-final; or :class:`NotProved`."""
        text = _text(client_final)
        without_proof, separator, proof_text = text.rpartition(",p=")
        binding, _, rest = without_proof.partition(",")
        nonce = rest.split(",")[0]
        if not separator or not binding.startswith("c=") or not nonce.startswith("r="):
            raise ProtocolError("malformed SCRAM message")
        try:
            proof = base64.b64decode(proof_text, validate=True)
        except binascii.Error:
            raise ProtocolError("malformed SCRAM message") from None
        expected_binding = _b64(self._header.encode() + (self._channel or b""))
        if not hmac.compare_digest(binding[2:], expected_binding):
            raise ProtocolError("SCRAM channel binding check failed")
        if len(proof) != _KEY_BYTES or not hmac.compare_digest(nonce[2:], self._nonce):
            raise NotProved
        message = f"{self._client_first_bare},{self._server_first},{without_proof}".encode()
        signature = _hmac(self._verifier.stored_key, message)
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.sha256(client_key).digest(), self._verifier.stored_key):
            raise NotProved
        return f"v={_b64(_hmac(self._verifier.server_key, message))}".encode()

    def _check_channel(self, flag: str) -> None:
        if self._channel is not None:
            if flag != f"p={CHANNEL_TYPE}":
                raise ProtocolError(f"SCRAM channel binding of type {CHANNEL_TYPE} is wanted")
        elif flag == "y" and self._plus_offered:
            raise ProtocolError(
                "SCRAM channel binding negotiation error",
                detail="The client supports channel binding and thinks that the server does not; "
                "the server does.",
            )
        elif flag not in ("n", "y"):
            raise ProtocolError("unexpected channel binding in the SCRAM message")


def prepared(password: str) -> str:
    """SASLprep (RFC 4013); what it forbids is taken as it is, as PostgreSQL does."""
    if password.isascii():
        return password
    mapped = "".join(
        " " if stringprep.in_table_c12(character) else character
        for character in password
        if not stringprep.in_table_b1(character)
    )
    normal = unicodedata.normalize("NFKC", mapped)
    right_to_left = [stringprep.in_table_d1(character) for character in normal]
    forbidden = (
        not normal
        or any(table(character) for character in normal for table in _FORBIDDEN)
        or (
            any(right_to_left)
            and (
                any(stringprep.in_table_d2(character) for character in normal)
                or not (right_to_left[0] and right_to_left[-1])
            )
        )
    )
    return password if forbidden else normal


_FORBIDDEN = (
    stringprep.in_table_a1, stringprep.in_table_c12, stringprep.in_table_c21_c22,
    stringprep.in_table_c3, stringprep.in_table_c4, stringprep.in_table_c5,
    stringprep.in_table_c6, stringprep.in_table_c7, stringprep.in_table_c8,
    stringprep.in_table_c9,
)  # fmt: skip


def _hmac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _text(message: bytes) -> str:
    try:
        return message.decode("utf-8")
    except UnicodeDecodeError:
        raise ProtocolError("malformed SCRAM message") from None

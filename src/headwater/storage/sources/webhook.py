"""A webhook: what others POST to the server's HTTP port, through an inbox of our own.

One partition, whose offsets are the sequence numbers of an :class:`~headwater.storage.inbox.Inbox`:
a request is acknowledged when its messages are durable there, with their numbers. So whoever sends
needs to keep nothing after that, and what we read upstream is our own collection.

**Probe** is how far the inbox is; what one request carries is on one side of it. **Read** of a
range is exactly those numbers. **Commit** lets the inbox destroy what is durable in the outputs.
Reliance *bounded*.

:func:`divided` says which messages a request is; :class:`Signature` whether its sender knows the
secret. Both are pure; the door on the HTTP port is ``server/webhooks.py``.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import msgspec
import numpy as np
import pyarrow as pa

from headwater.storage.decode import HEADERS_TYPE
from headwater.storage.generators.generator import placed
from headwater.storage.inbox import SEQUENCE, Inbox
from headwater.storage.offsets import Offsets
from headwater.storage.source import HEADERS, MESSAGE, TIMESTAMP, Records, Reliance

OUTPUT: Final = "requests"
INBOX: Final = "0"
"""The one partition."""

Body = Literal["message", "lines", "array"]
Algorithm = Literal["sha256", "sha1", "sha512"]
Spelling = Literal["hex", "base64"]

_HEADERS: Final = msgspec.json.Decoder(list[tuple[str, str]])
_NEVER_KEPT: Final = frozenset({"authorization", "cookie", "proxy-authorization"})


class Webhook:
    """The messages of an inbox."""

    reliance: Final = Reliance.BOUNDED

    def __init__(self, inbox: Inbox, *, include: Sequence[str] = (), name: str = "webhook") -> None:
        self.name = name
        self._inbox = inbox
        self._include = tuple(include)

    def probe(self) -> Offsets:
        """Return how far the inbox is."""
        return Offsets({INBOX: self._inbox.reached})

    def read(self, lower: Offsets, upper: Offsets) -> Iterator[Records]:
        """Return the messages of a range."""
        for rows in self._inbox.read(lower[INBOX], upper[INBOX]):
            nothing = pa.nulls(rows.num_rows, pa.binary())
            body = rows.column("body").combine_chunks()
            payload = pa.Table.from_arrays([nothing, body], schema=MESSAGE)
            if TIMESTAMP in self._include:
                payload = payload.append_column(TIMESTAMP, rows.column("received"))
            if HEADERS in self._include:
                found = rows.column("headers").to_pylist()
                listed = [_HEADERS.decode(each) if each else [] for each in found]
                column = pa.array(
                    [[{"key": k, "value": v.encode()} for k, v in each] for each in listed],
                    HEADERS_TYPE,
                )
                payload = payload.append_column(HEADERS, column)
            places = rows.column(SEQUENCE).to_numpy().astype(np.int64)
            yield Records(OUTPUT, placed(INBOX, places, payload))

    def commit(self, offsets: Offsets) -> None:
        """Let the inbox forget what is durable."""
        self._inbox.forget(offsets[INBOX])

    def close(self) -> None:
        """Nothing to close: the inbox takes messages also while nobody reads it."""


def divided(body: bytes, into: Body) -> list[bytes]:
    """Return the messages of a request.

    What cannot be divided is one message: whoever decodes it says what is wrong with it.
    """
    match into:
        case "message":
            return [body]
        case "lines":
            lines = (line.removesuffix(b"\r") for line in body.split(b"\n"))
            return [line for line in lines if line]
        case "array":
            try:
                return [bytes(each) for each in msgspec.json.decode(body, type=list[msgspec.Raw])]
            except msgspec.DecodeError:
                return [body]


def kept_headers(headers: Sequence[tuple[bytes, bytes]], without: str) -> bytes:
    """Return the headers of a request as they are kept: without what lets its sender in."""
    listed = []
    for key, value in headers:
        name = key.decode("latin-1").lower()
        if name not in _NEVER_KEPT and name != without.lower():
            listed.append((name, value.decode("latin-1")))
    return msgspec.json.encode(listed)


@dataclass(frozen=True, slots=True)
class Signature:
    """How a sender shows that it knows the secret: an HMAC of the body, in a header."""

    header: str
    algorithm: Algorithm = "sha256"
    spelling: Spelling = "hex"

    def is_by(self, secret: str, body: bytes, given: str | None) -> bool:
        """Whether ``given`` is the signature of ``body`` with ``secret``, ``sha256=…`` or bare."""
        if given is None:
            return False
        text = given.strip().removeprefix(f"{self.algorithm}=")
        expected = hmac.digest(secret.encode(), body, getattr(hashlib, self.algorithm))
        try:
            decode = bytes.fromhex if self.spelling == "hex" else base64.b64decode
            found = decode(text)
        except (ValueError, binascii.Error):
            return False
        return hmac.compare_digest(expected, found)

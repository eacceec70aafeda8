"""A webhook as a driver of the protocol: the recovery log keeps the checkpoint, HTTP takes rows.

A transaction's documents are sent when it commits, as JSON arrays of at most :data:`BODY_BYTES`,
each by a POST to ``url/target`` that must be answered with 2xx; only then StartedCommit is said,
and Acknowledged right after it. A transaction that failed half way is sent again: delivery is **at
least once**. So that a receiver can tell, each request carries

    Idempotency-Key         materialization, key range, checkpoint, binding, number of the request
    X-Headwater-Signature   sha256=HMAC of the body under the secret, if there is one

A transaction that is sent again has the same documents in the same requests, under the same keys
(``intent``): a request is as full as it can be, however its documents came here; NULLs do not
count, for a column may have been added since. So who remembers keys has each request once, and in
order.

What may pass (no connection, 408, 429, 5xx) is tried again, :data:`ATTEMPTS_MAX` times; any other
answer is an error.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, groupby
from typing import Any, ClassVar, Final
from urllib.parse import quote, urlsplit

import msgspec

from headwater.base.errors import Determinate, Indeterminate, InvalidUsage
from headwater.materialize.checkpoint import to_text
from headwater.materialize.documents import to_documents
from headwater.materialize.drivers.columns import columns_of, constraints, json_fields
from headwater.materialize.drivers.responder import NotServed, specified
from headwater.materialize.protocol.messages import (
    Acknowledge,
    Acknowledged,
    Applied,
    Apply,
    Flush,
    Flushed,
    Load,
    LoadMany,
    Open,
    Opened,
    Request,
    Response,
    Spec,
    StartCommit,
    StartedCommit,
    Store,
    StoreMany,
    Validate,
    Validated,
    ValidatedBinding,
)
from headwater.materialize.protocol.specs import (
    Checkpoint,
    CollectionSpec,
    MaterializationSpec,
)

BODY_BYTES: Final = 1 << 20
ATTEMPTS_MAX: Final = 5
RETRY_SECONDS: Final = 0.2
TIMEOUT_SECONDS: Final = 30.0
_PASSING: Final = frozenset({408, 429, *range(500, 600)})
_OK: Final = range(200, 300)


class WebhookRefused(Determinate):
    """An answer that trying again would not change."""

    def __init__(self, url: str, status: int, reason: str) -> None:
        super().__init__(f"the webhook {url} answered {status}: {reason}")


class WebhookDriver:
    """A driver for one webhook."""

    documentation_url: ClassVar[str] = "https://www.rfc-editor.org/rfc/rfc9110"
    config_schema: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "required": ["url"],
        "properties": {
            "url": {"type": "string", "title": "Address below which targets are"},
            "secret": {"type": "string", "title": "Key of the signature", "secret": True},
        },
    }
    resource_schema: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "required": ["path"],
        "properties": {
            "path": {"type": "string", "title": "Path below the address", "x-collection-name": True}
        },
    }

    def __init__(self) -> None:
        self._materialization = MaterializationSpec()
        self._config: Mapping[str, Any] = {}
        self._range = ""
        self._pending: list[StoreMany] = []
        self._closed = threading.Event()

    def respond(self, request: Request) -> Iterator[Response]:
        """Act upon a request; yield the responses to it."""
        match request:
            case Spec():
                yield specified(self)
            case Validate():
                yield _validated(request)
            case Apply():
                yield Applied()
            case Open():
                assert request.materialization is not None
                assert request.range is not None
                self._materialization = request.materialization
                self._config = msgspec.json.decode(request.materialization.config_json)
                self._range = f"{request.range.key_begin:08x}-{request.range.key_end:08x}"
                yield Opened()
                # There is nothing to apply: what was sent was sent.
                yield Acknowledged()
            case Acknowledge():
                return
            case Flush():
                yield Flushed()
            case StoreMany():
                self._pending.append(request)
            case StartCommit():
                self._send_all(request.runtime_checkpoint or Checkpoint())
                yield StartedCommit()
                yield Acknowledged()
            case Load() | LoadMany() | Store():
                raise NotServed(request)

    def close(self) -> None:
        """Send nothing more."""
        self._closed.set()

    def _send_all(self, checkpoint: Checkpoint) -> None:
        pending, self._pending = self._pending, []
        at = hashlib.blake2b(to_text(checkpoint).encode(), digest_size=8).hexdigest()
        json = [json_fields(columns_of(binding)) for binding in self._materialization.bindings]
        for number, (binding, body) in enumerate(_bodies(pending, json)):
            path = self._materialization.bindings[binding].resource_path[-1]
            name = quote(self._materialization.name, safe="")
            self._post(path, body, f"{name}/{self._range}/{at}/{binding}/{number}")

    def _post(self, path: str, body: bytes, key: str) -> None:
        url = f"{self._config['url'].rstrip('/')}/{quote(path)}"
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        secret = self._config.get("secret")
        if secret:
            signature = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
            headers["X-Headwater-Signature"] = f"sha256={signature}"
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                status, reason = _request(url, body, headers)
            except (OSError, http.client.HTTPException) as error:
                failed = f"the webhook {url} cannot be reached: {error}"
            else:
                if status in _OK:
                    return
                if status not in _PASSING:
                    raise WebhookRefused(url, status, reason)
                failed = f"the webhook {url} answered {status}: {reason}"
            if attempt == ATTEMPTS_MAX or self._closed.wait(RETRY_SECONDS * 2**attempt):
                raise Indeterminate(failed)


def _validated(request: Validate) -> Validated:
    url = urlsplit(msgspec.json.decode(request.config_json)["url"])
    if url.scheme not in ("http", "https") or not url.hostname:
        raise InvalidUsage(f"{url.geturl()!r} is no address of a webhook: use http or https")
    return Validated(
        tuple(
            ValidatedBinding(
                constraints=tuple(
                    constraints(
                        binding.collection or CollectionSpec(), {}, lambda _, __: True, delta=True
                    )
                ),
                resource_path=(msgspec.json.decode(binding.resource_config_json)["path"],),
                delta_updates=True,
            )
            for binding in request.bindings
        )
    )


def _bodies(
    pending: list[StoreMany], json: Sequence[Collection[str]]
) -> Iterator[tuple[int, bytes]]:
    """Yield JSON arrays of documents, none much larger than the limit, in the order of stores.

    ``json``: of each binding, the columns that are JSON.
    """
    for binding, stores in groupby(pending, key=lambda store: store.binding):
        texts: list[bytes] = []
        size = 0
        each = (to_documents(store.rows, json[binding]) for store in stores)
        for document in chain.from_iterable(each):
            text = msgspec.json.encode(document)
            # Without NULLs: a column that is added before it is sent again moves no document.
            counted = len(text) - sum(_null_bytes(n) for n, v in document.items() if v is None)
            if texts and size + counted > BODY_BYTES:
                yield binding, b"[" + b",".join(texts) + b"]"
                texts, size = [], 0
            texts.append(text)
            size += counted + 1
        if texts:
            yield binding, b"[" + b",".join(texts) + b"]"


@cache
def _null_bytes(name: str) -> int:
    return len(msgspec.json.encode({name: None})) - 1


def _request(url: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, str]:
    """Send one request; return the answer's status and the beginning of its text."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=TIMEOUT_SECONDS)
    try:
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", path, body, dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.read(200).decode(errors="replace") or answer.reason
    finally:
        connection.close()

"""The door for webhooks, on the HTTP port before everything else: ``POST /webhook/<source>``.

| answer | when |
|---|---|
| 200 | what was sent is durable; the body says how many messages it was, and the first's number |
| 401 | the signature is missing or wrong |
| 403 | a page of another origin, to a webhook without a signature |
| 404, 405 | no webhook of this name; another method than POST |
| 413 | larger than the source takes |
| 415 | a body that is compressed |
| 429 | too much waits already; ``Retry-After`` says when to come again |
| 503 | the server stops, was fenced or cannot write: perhaps not durable, so send it again |

A sender that hears nothing, or 5xx, sends again; then a message may be there twice, and an upsert
by a key of its own makes that one.

The console's guard is not asked: who may hand something over is said by the webhook itself.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from headwater.adapter.webhooks import Open
from headwater.base.errors import HeadwaterError
from headwater.storage.inbox import Overloaded, Received
from headwater.storage.sources.webhook import divided, kept_headers

LOG: Final = logging.getLogger(__name__)

PATH: Final = "/webhook/"
RETRY_SECONDS: Final = 1


class _Refused(Exception):
    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class WebhookDoor:
    """An ASGI application that takes webhooks, and leaves everything else to another."""

    def __init__(
        self, app: Any, find: Callable[[str], Open | None], failure: Callable[[], object]
    ) -> None:
        self._app = app
        self._find = find
        self._failure = failure

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        if scope["type"] != "http" or not scope["path"].startswith(PATH):
            await self._app(scope, receive, send)
            return
        try:
            status, body = 200, await self._taken(scope, receive)
        except _Refused as refused:
            status, body = refused.status, {"error": str(refused)}
        except Overloaded as error:
            status, body = 429, {"error": str(error)}
        except HeadwaterError as error:
            status, body = 503, {"error": f"not durable: {error}"}
        except Exception:
            LOG.exception("a webhook could not be answered")
            status, body = 503, {"error": "not durable: the server has a mistake, see its log"}
        await _answer(send, status, body)

    async def _taken(self, scope: Any, receive: Any) -> dict[str, Any]:
        """Make a request durable; return what is to be answered."""
        name = unquote(scope["path"].removeprefix(PATH))
        if self._failure() is not None:
            raise _Refused(503, "the server cannot go on; see /healthz")
        webhook = self._find(name)
        if webhook is None:
            raise _Refused(404, f"there is no webhook {name!r}")
        if scope["method"] != "POST":
            raise _Refused(405, "a webhook takes POST")
        headers = {key.lower(): value.decode("latin-1") for key, value in scope["headers"]}
        _check_plain(headers)
        if webhook.secret is None:
            _check_origin(headers)
        body = await _read(receive, headers, webhook.webhook.bytes_max)
        given = headers.get(webhook.webhook.header.lower().encode())
        if not webhook.admits(body, given):
            header = webhook.webhook.header
            raise _Refused(401, f"the header {header} is not the signature of this body")
        kept = None
        if webhook.keeps_headers:
            kept = kept_headers(scope["headers"], webhook.webhook.header)
        messages = [Received(each, kept) for each in divided(body, webhook.webhook.body)]
        if not messages:
            return {"messages": 0}
        first = await asyncio.wrap_future(webhook.inbox.append(messages))
        return {"messages": len(messages), "first": first}


def _check_plain(headers: dict[bytes, str]) -> None:
    encoding = headers.get(b"content-encoding", "identity").lower()
    if encoding != "identity":
        raise _Refused(415, f"a body encoded as {encoding}; send it plain")


def _check_origin(headers: dict[bytes, str]) -> None:
    """Without a signature, a page elsewhere must not send in its visitor's name."""
    origin = headers.get(b"origin")
    if origin is not None and urlsplit(origin).netloc != headers.get(b"host", ""):
        raise _Refused(403, "pages of other origins need a webhook with a signature")


async def _read(receive: Any, headers: dict[bytes, str], bytes_max: int) -> bytes:
    """Return the body; refuse one that is too large, if it says so before it comes."""
    length = headers.get(b"content-length", "0")
    if not length.isdigit() or int(length) > bytes_max:
        raise _Refused(413, f"more than {bytes_max} bytes; see MAX BYTES of the source")
    found = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Refused(400, "the request was not finished")
        found += message.get("body", b"")
        if len(found) > bytes_max:
            raise _Refused(413, f"more than {bytes_max} bytes; see MAX BYTES of the source")
        if not message.get("more_body", False):
            return bytes(found)


async def _answer(send: Any, status: int, body: dict[str, Any]) -> None:
    headers = [(b"content-type", b"application/json")]
    if status == 429:
        headers.append((b"retry-after", str(RETRY_SECONDS).encode()))
    if status == 405:
        headers.append((b"allow", b"POST"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(body).encode()})

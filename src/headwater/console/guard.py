"""Who may use the console: an ASGI layer before everything else on its port.

- A page of another origin must not speak to us in its visitor's name: an ``Origin`` that is not our
  own host is refused. Bound to loopback, so is a ``Host`` that is not (a name that somebody else
  made to point here).
- With users, a name and password are asked for (HTTP Basic, compared with the same SCRAM verifiers
  as those of SQL clients); from then on a cookie with a token of this process stands for them,
  because not every browser sends a password along with a web socket.
- ``/healthz`` is for everybody.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final
from urllib.parse import urlsplit

COOKIE: Final = "headwater-console"
_OPEN: Final = ("/healthz",)
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")

Check = Callable[[str, str], bool]
"""Whether a password is that of a user."""


class Guard:
    """Lets requests through to ``app``."""

    def __init__(self, app: Any, *, loopback: bool, check: Check | None) -> None:
        self._app = app
        self._loopback = loopback
        self._check = check
        self._token = secrets.token_urlsafe(32)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = {
            key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]
        }
        if self._foreign(headers):
            await _refuse(scope, send, 403, "this console is not for pages of other origins")
            return
        if self._check is None or scope["path"] in _OPEN or self._has_cookie(headers):
            await self._app(scope, receive, send)
            return
        if not self._knows(headers.get("authorization", "")):
            await _refuse(scope, send, 401, "who are you? use a user of this server")
            return

        async def with_cookie(message: Any) -> None:
            if message["type"] == "http.response.start":
                cookie = f"{COOKIE}={self._token}; Path=/; HttpOnly; SameSite=Strict"
                kept = [*message.get("headers", []), (b"set-cookie", cookie.encode())]
                message = {**message, "headers": kept}
            await send(message)

        await self._app(scope, receive, with_cookie)

    def _foreign(self, headers: dict[str, str]) -> bool:
        host = headers.get("host", "")
        if self._loopback and urlsplit(f"//{host}").hostname not in _LOOPBACK:
            return True
        origin = headers.get("origin")
        return origin is not None and urlsplit(origin).netloc != host

    def _has_cookie(self, headers: dict[str, str]) -> bool:
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return found is not None and hmac.compare_digest(found.value, self._token)

    def _knows(self, authorization: str) -> bool:
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() != "basic" or self._check is None:
            return False
        try:
            user, _, password = base64.b64decode(given, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return False
        return self._check(user, password)


async def _refuse(scope: Any, send: Any, status: int, why: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    if status == 401:
        headers.append((b"www-authenticate", b'Basic realm="Headwater", charset="UTF-8"'))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": why.encode()})

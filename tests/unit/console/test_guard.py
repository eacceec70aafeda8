"""Who is let through to the console."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from headwater.adapter.pgwire.users import UserList, new_verifier
from headwater.console.guard import COOKIE, Guard

USERS = UserList({"ann": new_verifier("secret")})


async def _page(scope: Any, receive: Any, send: Any) -> None:
    del receive
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"page"})


def asked(guard: Guard, path: str = "/", kind: str = "http", **headers: str) -> list[Any]:
    """Return what is sent for a request."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    given = {"host": "127.0.0.1:6876", **headers}
    pairs = [(key.encode(), value.encode()) for key, value in given.items()]
    scope = {"type": kind, "path": path, "headers": pairs}
    asyncio.run(guard(scope, None, send))
    return sent


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_without_users_this_machine_may_and_other_pages_may_not() -> None:
    guard = Guard(_page, loopback=True, check=None)
    assert asked(guard)[0]["status"] == 200
    assert asked(guard, origin="http://127.0.0.1:6876")[0]["status"] == 200
    assert asked(guard, origin="http://evil.example")[0]["status"] == 403
    assert asked(guard, host="evil.example:6876")[0]["status"] == 403
    socket = asked(guard, kind="websocket", origin="http://evil.example")
    assert socket == [{"type": "websocket.close", "code": 1008}]
    assert asked(guard, kind="websocket")[0]["type"] == "websocket.accept"


def test_with_users_a_password_is_asked_for_once() -> None:
    guard = Guard(_page, loopback=False, check=USERS.admits)
    refused = asked(guard, host="console.example")[0]
    assert refused["status"] == 401
    assert any(key == b"www-authenticate" for key, _ in refused["headers"])
    let_in = asked(guard, authorization=basic("ann", "secret"))[0]
    assert let_in["status"] == 200
    cookie = dict(let_in["headers"])[b"set-cookie"].decode()
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert "secret" not in cookie
    kept = cookie.split(";")[0]
    assert asked(guard, kind="websocket", cookie=kept)[0]["type"] == "websocket.accept"
    other = Guard(_page, loopback=False, check=USERS.admits)
    assert asked(other, cookie=kept)[0]["status"] == 401, "a cookie is of one process"


@pytest.mark.parametrize(
    "authorization",
    [basic("ann", "wrong"), basic("bob", "secret"), "Basic !", "Bearer x", "Basic /w==", ""],
)
def test_what_is_no_password_is_refused(authorization: str) -> None:
    guard = Guard(_page, loopback=False, check=USERS.admits)
    assert asked(guard, authorization=authorization)[0]["status"] == 401
    assert asked(guard, cookie=f"{COOKIE}=guess")[0]["status"] == 401
    assert asked(guard, "/healthz", authorization=authorization)[0]["status"] == 200

"""Webhooks by SQL and HTTP: a request that was answered with 200 is there, exactly once.

The HTTP server is the real one, on a free port; rows are evaluated by DuckDB.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from headwater.adapter.errors import AdapterError
from headwater.adapter.webhooks import Webhooks
from headwater.base.clock import SystemClock
from headwater.base.errors import HeadwaterError
from headwater.server.config import Address
from headwater.server.http import HttpServer
from headwater.server.webhooks import WebhookDoor
from headwater.storage import inbox as inbox_module
from headwater.testing.sql_server import SqlServer

pytestmark = pytest.mark.server

KEY = "a secret of theirs"
LIMIT_S = 60


async def elsewhere(scope: Any, receive: Any, send: Any) -> None:
    """What is behind the door: the console, in a server."""
    del receive
    if scope["type"] != "lifespan":
        await send({"type": "http.response.start", "status": 418, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})


class Door:
    """A server of SQL and HTTP, and a client that posts."""

    def __init__(self, server: SqlServer) -> None:
        self.server = server
        self.sql = server.session()
        self.failure: HeadwaterError | None = None
        core, ingestions = server.client.core, server.ingestions
        webhooks = Webhooks(core, ingestions, server.coordinator.connections)
        door = WebhookDoor(elsewhere, webhooks.open, lambda: self.failure)
        self.http = HttpServer(Address("127.0.0.1", 0), lambda: door)
        self.http.start()

    def post(
        self,
        path: str,
        body: bytes,
        headers: dict[str, str] | None = None,
        *,
        method: str = "POST",
        signed: bool = True,
    ) -> tuple[int, Any]:
        given = dict(headers or {})
        if signed:
            digest = hmac.new(KEY.encode(), body, hashlib.sha256).hexdigest()
            given.setdefault("X-Hub-Signature-256", f"sha256={digest}")
        address = self.http.address
        connection = http.client.HTTPConnection(address.host, address.port, timeout=LIMIT_S)
        try:
            connection.request(method, path, body, given)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def close(self) -> None:
        self.http.stop()


@pytest.fixture
def door() -> Iterator[Door]:
    with SqlServer(SystemClock()) as server:
        door = Door(server)
        try:
            door.sql(f"CREATE SECRET theirs AS '{KEY}'")
            yield door
        finally:
            door.close()


SIGNED = "HMAC SECRET theirs, HEADER 'X-Hub-Signature-256'"


def test_what_was_answered_is_there_once_after_a_restart_too(door: Door) -> None:
    sql = door.sql
    sql(
        f"CREATE SOURCE w (k bigint NOT NULL, v text) FROM WEBHOOK ({SIGNED}) FORMAT JSON "
        "INCLUDE TIMESTAMP AS at, HEADERS AS written ON ERROR SKIP"
    )
    assert door.post("/webhook/w", b'{"k": 0, "v": "early"}', {"X-Event": "push"})[0] == 200
    door.server.ingestions.tick()
    assert sql("SELECT k, v FROM w") == [(0, "early")]
    ((written,),) = sql("SELECT written FROM w")
    assert {"key": "x-event", "value": "push"} in json.loads(written)
    assert "signature" not in written
    assert sql("SELECT source_kind, reliance FROM hw_sources") == [("webhook", "bounded")]

    def one(n: int) -> tuple[int, Any]:
        return door.post("/webhook/w", b'{"k": %d, "v": "x"}' % n)

    with ThreadPoolExecutor(8) as many:
        answers = list(many.map(one, range(1, 41)))
    assert {status for status, _ in answers} == {200}
    assert sorted(said["first"] for _, said in answers) == list(range(1, 41))
    assert door.post("/webhook/w", b"no json") == (200, {"messages": 1, "first": 41})
    again = SqlServer(SystemClock(), on=door.server, take_over=True)
    try:
        assert door.post("/webhook/w", b'{"k": 99}')[0] == 503, "it was fenced"
        sql = again.session()
        again.ingestions.tick()
        assert sql("SELECT count(*), count(DISTINCT k), max(k) FROM w") == [(41, 41, 40)]
        assert sql('SELECT "offset", value FROM w_errors') == [(41, b"no json")]
        assert sql("SELECT * FROM w_progress") == [("0", 42)]
        names = again.client.core.state.names
        assert [name for name in names if "/inbox/" in name]
        sql("DROP SOURCE w; DROP SECRET theirs")
        assert not [name for name in again.client.core.state.names if "/inbox/" in name]
    finally:
        again.stop()


def test_who_may_hand_something_over(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    door.sql(f"CREATE SOURCE w FROM WEBHOOK ({SIGNED}, MAX BYTES 20) FORMAT TEXT")
    door.sql("CREATE SOURCE everybody FROM WEBHOOK (UNSIGNED TRUE) FORMAT BYTES")
    post = door.post
    assert post("/webhook/w", b"hello")[0] == 200
    assert post("/webhook/w", b"hello", signed=False)[0] == 401
    status, said = post("/webhook/w", b"hello", {"X-Hub-Signature-256": "sha256=00"})
    assert (status, KEY in str(said)) == (401, False)
    assert "X-Hub-Signature-256" in said["error"]
    assert post("/webhook/everybody", b"\xff", signed=False)[0] == 200
    assert post("/webhook/everybody", b"x", {"Origin": "http://evil"}, signed=False)[0] == 403
    assert post("/webhook/nobody", b"hello")[0] == 404
    assert post("/webhook/theirs", b"hello")[0] == 404, "a secret is none"
    assert post("/webhook/w", b"", method="GET")[0] == 405
    status, said = post("/webhook/w", b"x" * 21)
    assert (status, "MAX BYTES" in said["error"]) == (413, True)
    assert post("/webhook/w", b"x", {"Content-Encoding": "gzip"})[0] == 415
    assert post("/elsewhere", b"")[0] == 418
    door.sql("ALTER SECRET theirs AS 'another'")
    assert post("/webhook/w", b"hello")[0] == 401, "the new one counts at once"
    door.sql(f"ALTER SECRET theirs AS '{KEY}'")
    assert post("/webhook/w", b"again")[0] == 200
    monkeypatch.setattr(inbox_module, "BACKLOG_MAX", 1)
    status, said = post("/webhook/w", b"more")
    assert (status, "try again later" in said["error"]) == (429, True)
    door.server.ingestions.tick()
    assert post("/webhook/w", b"more")[0] == 200
    door.failure = HeadwaterError("the log is broken")
    assert post("/webhook/w", b"lost")[0] == 503
    door.failure = None
    door.server.ingestions.tick()
    assert door.sql("SELECT * FROM w") == [("again",), ("hello",), ("more",)]
    assert door.sql("SELECT * FROM everybody") == [(b"\xff",)]


def test_many_in_one_request_and_upserts(door: Door) -> None:
    sql = door.sql
    sql(f"CREATE SOURCE many (n bigint) FROM WEBHOOK ({SIGNED}, BODY 'array') FORMAT JSON")
    sql(f"CREATE SOURCE rows (a bigint, b text) FROM WEBHOOK ({SIGNED}, BODY 'lines') FORMAT CSV")
    sql(
        f"CREATE SOURCE kept (k bigint NOT NULL, v text) FROM WEBHOOK ({SIGNED}, BODY 'lines') "
        "FORMAT JSON ENVELOPE UPSERT (KEY (k))"
    )
    assert door.post("/webhook/many", b'[{"n": 1}, {"n": 2}]')[1] == {"messages": 2, "first": 0}
    assert door.post("/webhook/many", b"[]") == (200, {"messages": 0})
    assert door.post("/webhook/rows", b"1,x\r\n2,y\n")[0] == 200
    for _ in range(2):  # Sent again, because the answer was lost: an upsert makes it one.
        assert door.post("/webhook/kept", b'{"k": 7, "v": "a"}\n{"k": 7, "v": "b"}\n')[0] == 200
    door.server.ingestions.tick()
    assert sql("SELECT * FROM many") == [(1,), (2,)]
    assert sql("SELECT * FROM rows") == [(1, "x"), (2, "y")]
    assert sql("SELECT v FROM kept WHERE k = 7") == [("b",)]
    sql("ALTER SOURCE kept PAUSE")
    assert door.post("/webhook/kept", b'{"k": 8, "v": "c"}')[0] == 200, "it is kept meanwhile"
    door.server.ingestions.tick()
    assert sql("SELECT k FROM kept") == [(7,)]
    sql("ALTER SOURCE kept RESUME")
    door.server.ingestions.tick()
    assert sql("SELECT k FROM kept") == [(7,), (8,)]


MISTAKES = [
    ("WEBHOOK FORMAT TEXT", "either signed or not"),
    ("WEBHOOK (UNSIGNED FALSE) FORMAT TEXT", "either signed or not"),
    ("WEBHOOK (HMAC SECRET theirs, UNSIGNED TRUE) FORMAT TEXT", "either signed or not"),
    ("WEBHOOK (HMAC 'open') FORMAT TEXT", "HMAC is a secret"),
    ("WEBHOOK (HMAC SECRET nothing) FORMAT TEXT", '"nothing" does not exist'),
    ("WEBHOOK (UNSIGNED TRUE, HEADER 'X') FORMAT TEXT", "belong to HMAC SECRET"),
    ("WEBHOOK (HMAC SECRET theirs, ALGORITHM 'md5') FORMAT TEXT", "sha256, sha1, sha512"),
    ("WEBHOOK (UNSIGNED TRUE, MAX BYTES 0) FORMAT TEXT", "between 1 and"),
    ("WEBHOOK (UNSIGNED TRUE, SPEED 3) FORMAT TEXT", "takes no option SPEED"),
    ("WEBHOOK (UNSIGNED TRUE)", "needs a FORMAT"),
    ("WEBHOOK (UNSIGNED TRUE) FORMAT TEXT INCLUDE KEY", "TIMESTAMP, HEADERS and OFFSET"),
]


def test_what_it_cannot_be(door: Door) -> None:
    for webhook, why in MISTAKES:
        with pytest.raises(AdapterError, match=why):
            door.sql(f"CREATE SOURCE w FROM {webhook}")

"""A webhook: what it receives, what is tried again, what is told; against a real HTTP server."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pyarrow as pa
import pytest

from headwater.base.errors import InvalidUsage
from headwater.collection.schema import Column, arrow_schema
from headwater.collection.types import scalar
from headwater.materialize.controller import Materializations
from headwater.materialize.definition import Binding, Endpoint
from headwater.materialize.drivers import webhook
from headwater.materialize.drivers.registry import Guarantee
from headwater.persist.client import Client, ReadHandle, WriteHandle, open_location
from headwater.persist.evolution import updates_schema

SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.string())])
SECRET = "s3cret"
WAIT_SECONDS = 120.0


@dataclass
class Received:
    """What came, and what is answered to it."""

    requests: list[tuple[str, dict[str, str], list[Any]]] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    """For the next requests; 200 when there are no more."""
    url: str = ""

    def documents(self) -> list[Any]:
        """What a receiver has that looks at idempotency keys."""
        kept = {headers["Idempotency-Key"]: body for _, headers, body in self.requests}
        return [document for body in kept.values() for document in body]


@pytest.fixture
def received() -> Iterator[Received]:
    into = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            expected = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
            assert self.headers["X-Headwater-Signature"] == f"sha256={expected}"
            into.requests.append((self.path, dict(self.headers), json.loads(body)))
            self.send_response(into.answers.pop(0) if into.answers else 200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    server = HTTPServer(("127.0.0.1", 0), Handler)
    into.url = f"http://127.0.0.1:{server.server_address[1]}/hooks"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield into
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with open_location(tmp_path / "data") as opened:
        yield opened


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "RETRY_SECONDS", 0.001)


def _eventually(condition: Callable[[], bool]) -> None:
    deadline = monotonic() + WAIT_SECONDS
    while not condition():
        assert monotonic() < deadline, "it never came"
        sleep(0.02)


def _append(
    write: WriteHandle, upper: int, *rows: tuple[int, str, int], schema: pa.Schema = SCHEMA
) -> None:
    columns: dict[str, list[Any]] = {
        "k": [k for k, _, _ in rows],
        "v": [v for _, v, _ in rows],
        "__time": [upper - 1] * len(rows),
        "__diff": [diff for _, _, diff in rows],
    }
    table = pa.table(columns, schema=updates_schema(schema))
    write.compare_and_append(table, write.upper, upper).result()


def _installed(client: Client, url: str) -> tuple[WriteHandle, ReadHandle, Materializations]:
    write, read = client.create_or_load("c", SCHEMA)
    running = Materializations(client, retry_seconds=0.02)
    endpoint = Endpoint("webhook", {"url": url, "secret": SECRET})
    running.install("m", endpoint, (_binding(read),))
    return write, read, running


def _binding(read: ReadHandle) -> Binding:
    return Binding("c", read.id, "orders", ("k",), delta_updates=True)


def _checkpoint(running: Materializations) -> int | None:
    found = running.get("m")
    assert found is not None
    return found.status.checkpoint


def test_documents_arrive_signed_and_in_order(
    client: Client, received: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "BODY_BYTES", 70)  # Two documents fit into a request.
    write, _, running = _installed(client, received.url)
    _append(write, 2, (1, "a", 1), (2, "b", 1), (3, "c", 1))
    _eventually(lambda: _checkpoint(running) == 2)
    _append(write, 3, (2, "b", -1))
    _eventually(lambda: _checkpoint(running) == 3)
    running.stop()
    assert {path for path, _, _ in received.requests} == {"/hooks/orders"}
    assert [len(body) for _, _, body in received.requests] == [2, 1, 1]
    assert received.documents() == [
        {"k": 1, "v": "a", "_meta/op": "c"},
        {"k": 2, "v": "b", "_meta/op": "c"},
        {"k": 3, "v": "c", "_meta/op": "c"},
        {"k": 2, "v": "b", "_meta/op": "d"},
    ]


def test_json_arrives_as_json(client: Client, received: Received) -> None:
    schema = pa.schema([SCHEMA.field("k"), *arrow_schema([Column("v", scalar("jsonb"))])])
    write, read = client.create_or_load("j", schema)
    running = Materializations(client, retry_seconds=0.02)
    endpoint = Endpoint("webhook", {"url": received.url, "secret": SECRET})
    binding = Binding("j", read.id, "orders", ("k",), delta_updates=True, document="doc")
    running.install("m", endpoint, (binding,))
    _append(write, 2, (1, '{"a": [1.5, "x"]}', 1), (2, '"x"', 1), schema=schema)
    _eventually(lambda: _checkpoint(running) == 2)
    running.stop()
    assert received.documents() == [
        {"k": k, "v": v, "doc": {"k": k, "v": v}, "_meta/op": "c"}
        for k, v in ((1, {"a": [1.5, "x"]}), (2, "x"))
    ]


def test_what_may_pass_is_tried_again_with_the_same_key(client: Client, received: Received) -> None:
    write, _, running = _installed(client, received.url)
    received.answers += [503, 429, 500, 408, 503, 503, 500]  # More than one session tries.
    _append(write, 2, (1, "a", 1))
    _eventually(lambda: _checkpoint(running) == 2)
    running.stop()
    keys = Counter(headers["Idempotency-Key"] for _, headers, _ in received.requests)
    assert list(keys.values()) == [8]
    assert received.documents() == [{"k": 1, "v": "a", "_meta/op": "c"}]


def test_what_is_refused_stalls_visibly(client: Client, received: Received) -> None:
    write, _, running = _installed(client, received.url)
    received.answers += [404] * 10_000
    _append(write, 2, (1, "a", 1))
    found = running.get("m")
    assert found is not None
    _eventually(lambda: "answered 404" in found.status.error)
    received.answers.clear()
    _eventually(lambda: _checkpoint(running) == 2)
    running.stop()


def test_it_is_told_that_it_is_at_least_once(client: Client, received: Received) -> None:
    _, read = client.create_or_load("c", SCHEMA)
    running = Materializations(client)
    would = running.dry_run("m", Endpoint("webhook", {"url": received.url}), (_binding(read),))
    assert would.guarantees == (("c", Guarantee.AT_LEAST_ONCE),)
    assert "more than once" in would.warnings[0]
    with pytest.raises(InvalidUsage, match="use http or https"):
        running.dry_run("m", Endpoint("webhook", {"url": "ftp://x"}), (_binding(read),))
    standard = Binding("c", read.id, "orders", ("k",))
    with pytest.raises(InvalidUsage, match="say DELTA UPDATES"):
        running.dry_run("m", Endpoint("webhook", {"url": received.url}), (standard,))

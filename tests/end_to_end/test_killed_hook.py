"""A webhook whose receiver kills the server: it is told again what it was told, and then the rest.

The server is killed (SIGKILL) or frozen by the receiver itself, in the middle of a transaction of
several requests. Its successor's first statement deletes rows that the attempt had told of. Then
who puts documents under their key has what the table has, and so has who remembers idempotency
keys; each key stands for one body. A frozen server goes on after its successor has delivered: what
it still sends is known.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from time import monotonic, sleep
from typing import Any

import psycopg
import pytest

from headwater.testing.wire_process import Nursery, Serving

pytestmark = pytest.mark.server

WAIT_SECONDS = 120.0
ROWS = 30
WIDE = "x" * 100_000
"""So that a request has ten rows."""


class Receiver:
    """Takes requests, and strikes the server in the middle of some."""

    def __init__(self) -> None:
        self.by_key: dict[int, str] = {}
        self.once: Counter[tuple[int, str]] = Counter()
        self.bodies: dict[str, bytes] = {}
        self.repeated = 0
        self.wrong: list[str] = []
        self._lock = threading.Lock()
        self._victim: tuple[int, signal.Signals] | None = None
        self._left = 0
        self.struck = threading.Event()

    def strike(self, pid: int, how: signal.Signals, requests: int) -> None:
        """Send a signal to a process when so many requests more have come."""
        self.struck.clear()
        self._victim, self._left = (pid, how), requests

    def take(self, key: str, body: bytes) -> bool:
        """Take a request; return whether it is answered."""
        with self._lock:
            documents: list[dict[str, Any]] = json.loads(body)
            for document in documents:
                if document["_meta/op"] == "d":
                    self.by_key.pop(document["k"], None)
                else:
                    self.by_key[document["k"]] = document["v"]
            known = self.bodies.setdefault(key, body)
            if known is body:
                for document in documents:
                    row = (document["k"], document["v"])
                    self.once[row] += -1 if document["_meta/op"] == "d" else 1
            else:
                self.repeated += 1
                if known != body:
                    self.wrong.append(f"{key}: {known[:200]!r}, then {body[:200]!r}")
            self._left -= 1
            if self._victim is None or self._left:
                return True
            pid, how = self._victim
            os.kill(pid, how)
            self._victim = None
            self.struck.set()
            return how is not signal.SIGKILL


@pytest.fixture
def received() -> Iterator[tuple[Receiver, str]]:
    into = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if into.take(self.headers["Idempotency-Key"], body):
                with suppress(OSError):
                    self.send_response(200)
                    self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield into, f"http://127.0.0.1:{server.server_address[1]}/hooks"
    server.shutdown()
    thread.join()
    server.server_close()


def _run(serving: Serving, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(
        host="127.0.0.1", port=serving.port, user="headwater", dbname="headwater", autocommit=True
    ) as connection:
        cursor = connection.execute(sql.encode(), values or None)
        return list(cursor.fetchall()) if cursor.description is not None else []


@pytest.mark.parametrize("rounds", [2, pytest.param(24, marks=pytest.mark.soak)])
def test_a_receiver_that_strikes_the_server(
    tmp_path: Path, received: tuple[Receiver, str], rounds: int
) -> None:
    receiver, url = received
    random = Random(rounds)
    with Nursery() as nursery:
        serving = nursery.serve(tmp_path)
        _run(serving, "CREATE TABLE t (k bigint PRIMARY KEY, v text)")
        into = f"INTO WEBHOOK (URL '{url}') (t AS hook KEY (k) DELTA UPDATES)"
        _run(serving, f"CREATE MATERIALIZATION m {into}")
        for number in range(rounds):
            how = signal.SIGSTOP if number % 2 else signal.SIGKILL
            receiver.strike(serving.pid, how, random.randint(1, 3))
            low = ROWS * number
            rows = ", ".join(f"({k}, '{WIDE}{k}')" for k in range(low, low + ROWS))
            _sent(serving, f"INSERT INTO t VALUES {rows}")
            assert receiver.struck.wait(WAIT_SECONDS)
            struck, serving = serving, nursery.serve(tmp_path, take_over=True)
            _run(serving, f"DELETE FROM t WHERE k >= {low} AND k % 2 = {random.randint(0, 1)}")
            _eventually(lambda: receiver.by_key == _table(serving))  # noqa: B023
            _judge_once(receiver, serving)
            if how is signal.SIGSTOP:
                struck.thaw()
                struck.await_fenced()
                _judge_once(receiver, serving)
                # Who goes by keys alone may have been taken back by what came late.
                receiver.by_key = _table(serving)
        assert receiver.repeated >= rounds, "each was in the middle of something"


def _sent(serving: Serving, sql: str) -> None:
    """Send a statement, whose answer may never come."""

    def run() -> None:
        with suppress(psycopg.Error):
            _run(serving, sql)

    threading.Thread(target=run, daemon=True).start()


def _table(serving: Serving) -> dict[int, str]:
    return dict(_run(serving, "SELECT k, v FROM t"))


def _judge_once(receiver: Receiver, serving: Serving) -> None:
    left = {row: count for row, count in receiver.once.items() if count}
    assert left == dict.fromkeys(_table(serving).items(), 1)
    assert not receiver.wrong


def _eventually(condition: Callable[[], bool]) -> None:
    deadline = monotonic() + WAIT_SECONDS
    while not condition():
        assert monotonic() < deadline, "it never came"
        sleep(0.05)

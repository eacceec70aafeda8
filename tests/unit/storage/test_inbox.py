"""An inbox: durable before it is told so, exact numbers over segments and restarts, bounded."""

from __future__ import annotations

import base64
import hashlib
import hmac
import threading
from concurrent.futures import Future
from contextlib import suppress

import pytest

from headwater.base.clock import ManualClock
from headwater.persist.blob.memory import MemoryBlob
from headwater.persist.client import Client, open_location
from headwater.persist.consensus.memory import MemoryConsensus
from headwater.persist.core import Settings
from headwater.persist.errors import Stopped
from headwater.storage import inbox as module
from headwater.storage.inbox import Inbox, Overloaded, Received, destroyed
from headwater.storage.sources.webhook import Body, Signature, divided, kept_headers
from headwater.testing.crash import quiet_crashes
from headwater.testing.unreliable import Crash, FailNth

LIMIT_S = 60.0


class World:
    """Ports that outlive the processes."""

    def __init__(self) -> None:
        self.blob, self.log, self.clock = MemoryBlob(), MemoryConsensus(), ManualClock(1_000)

    def open(self, process: FailNth | None = None) -> Client:
        return open_location(
            blob=process.blob(self.blob) if process else self.blob,
            consensus=process.consensus(self.log) if process else self.log,
            take_over=True,
            clock=self.clock,
            settings=Settings(maintenance=False),
        )


def bodies(inbox: Inbox, lower: int = 0) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    for rows in inbox.read(lower, inbox.reached):
        numbers, texts = (rows.column(name).to_pylist() for name in ("sequence", "body"))
        found += zip(numbers, texts, strict=True)
    return found


def put(inbox: Inbox, *texts: bytes) -> int:
    return inbox.append([Received(text) for text in texts]).result(LIMIT_S)


def held(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Have commits wait: for the first event, having told the second."""
    going, there = threading.Event(), threading.Event()
    commit = Inbox._commit

    def slow(self: Inbox, messages: list[Received]) -> int:
        there.set()
        assert going.wait(LIMIT_S)
        return commit(self, messages)

    monkeypatch.setattr(Inbox, "_commit", slow)
    return going, there


def test_many_that_come_at_once_are_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    with World().open() as client:
        inbox = Inbox(client, "u1", ManualClock(1_000))
        going, there = held(monkeypatch)
        first = inbox.append([Received(b"0")])
        assert there.wait(LIMIT_S)
        rest = [inbox.append([Received(b"%d" % n), Received(b"+")]) for n in range(1, 50)]
        before = client.core.state.seqno
        going.set()
        assert first.result(LIMIT_S) == 0
        assert [each.result(LIMIT_S) for each in rest] == list(range(1, 99, 2))
        assert client.core.state.seqno - before <= 2, "two batches, whoever came when"
        assert [number for number, _ in bodies(inbox)] == list(range(99))
        inbox.close()


def test_segments_go_when_they_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEGMENT_BYTES", 1)
    world = World()
    with world.open() as client:
        inbox = Inbox(client, "u1", world.clock)
        for n in range(6):
            assert put(inbox, b"a%d" % n, b"b%d" % n) == 2 * n
        inbox.forget(7)  # The fourth segment has 6 and 7: it stays.
        assert len(destroyed(client, "u1")) == 3
        assert [number for number, _ in bodies(inbox, 7)] == [7, 8, 9, 10, 11]
        inbox.forget(12)
        assert len(destroyed(client, "u1")) == 1, "the last one is written"
        inbox.close()
    with world.open() as client:
        again = Inbox(client, "u1", world.clock)
        assert again.reached == 12
        assert put(again, b"more") == 12
        assert bodies(again, 12) == [(12, b"more")]
        again.close()


@pytest.mark.parametrize("mode", ["before", "after"])
def test_what_was_acknowledged_is_there_whoever_dies(mode: str) -> None:
    world, told = World(), {}
    for nth in range(1, 20):
        process = FailNth(nth, mode)  # type: ignore[arg-type]
        text = b"%s %d" % (mode.encode(), nth)
        opened: Inbox | None = None
        with quiet_crashes(), suppress(Crash, Stopped):  # wherever it died
            client = world.open(process)
            opened = Inbox(client, "u1", world.clock)
            told[put(opened, text)] = text
            told[put(opened, text + b"+")] = text + b"+"
            opened.close()
            client.stop()
        if opened is not None:
            opened.close()
    with world.open() as client:
        inbox = Inbox(client, "u1", world.clock)
        found = dict(bodies(inbox))
        assert list(found) == list(range(inbox.reached)), "no gap, none twice"
        assert told.items() <= found.items()
        assert told, "some lived"
        inbox.close()


def test_it_takes_no_more_than_it_can_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKLOG_MAX", 3)
    with World().open() as client:
        inbox = Inbox(client, "u1", ManualClock(1_000))
        put(inbox, b"1", b"2", b"3", b"4")
        with pytest.raises(Overloaded, match="not ingested yet"):
            inbox.append([Received(b"5")])
        inbox.forget(4)
        assert put(inbox, b"5") == 4
        inbox.close()
        with pytest.raises(Stopped):
            inbox.append([Received(b"6")])


def test_what_waits_when_it_is_closed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with World().open() as client:
        inbox = Inbox(client, "u1", ManualClock(1_000))
        going, there = held(monkeypatch)
        first: Future[int] = inbox.append([Received(b"1")])
        assert there.wait(LIMIT_S)
        second = inbox.append([Received(b"2")])
        closing = threading.Thread(target=inbox.close)
        closing.start()
        while not inbox._closed:
            pass
        going.set()
        closing.join(LIMIT_S)
        assert first.result(LIMIT_S) == 0, "it was under way"
        with pytest.raises(Stopped):
            second.result(LIMIT_S)


# ---- requests --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "into", "messages"),
    [
        (b'{"a": 1}\n', "message", [b'{"a": 1}\n']),
        (b"a\r\n\nb\nc", "lines", [b"a", b"b", b"c"]),
        (b"\n", "lines", []),
        (b' [ {"a": [1, 2]}, "x", 3 ]', "array", [b'{"a": [1, 2]}', b'"x"', b"3"]),
        (b"[]", "array", []),
        (b'{"a": 1}', "array", [b'{"a": 1}']),
        (b"[1, ", "array", [b"[1, "]),
    ],
)
def test_a_request_is_messages(body: bytes, into: Body, messages: list[bytes]) -> None:
    assert divided(body, into) == messages


def test_signatures() -> None:
    body = b"\x00 any bytes"
    hexed = hmac.new(b"key", body, hashlib.sha256).hexdigest()
    plain = Signature("X-Hub-Signature-256")
    assert plain.is_by("key", body, hexed)
    assert plain.is_by("key", body, f"sha256={hexed.upper()}")
    for wrong in (None, "", "zz", hexed[:-2], f"sha1={hexed}", f"{hexed}00", "ä"):
        assert not plain.is_by("key", body, wrong)
    assert not plain.is_by("other", body, hexed)
    assert not plain.is_by("key", body + b".", hexed)
    shopify = Signature("X", "sha256", "base64")
    encoded = base64.b64encode(hmac.digest(b"k", b"b", "sha256")).decode()
    assert shopify.is_by("k", b"b", encoded)
    assert not shopify.is_by("k", b"b", encoded[1:])


def test_what_lets_a_sender_in_is_not_kept() -> None:
    headers = [(b"Authorization", b"Basic x"), (b"X-Sig", b"s"), (b"X-Event", b"push")]
    assert kept_headers(headers, "x-sig") == b'[["x-event","push"]]'

"""Clients that lie, stall, vanish or come in thousands; others do not notice.

In every test an honest client works beside them, before, meanwhile and after.
"""

from __future__ import annotations

import gc
import random
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import islice
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from headwater.adapter.pgwire import Limits, WireServer
from headwater.adapter.pgwire.tls import Tls
from headwater.testing.awaited import until
from tests.end_to_end.memory_backend import WAIT_SECONDS, Memory

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("quiet")]

STARTUP = struct.pack("!i", 196608) + b"user\0headwater\0\0"
QUICK_CONNECTS = 300
QUICK_CONNECTS_SOAK = 10_000


def packet(payload: bytes) -> bytes:
    return struct.pack("!i", len(payload) + 4) + payload


def message(tag: bytes, payload: bytes = b"") -> bytes:
    return tag + packet(payload)


def connected(wire: WireServer, sent: bytes = b"") -> socket.socket:
    client = socket.create_connection((wire.host, wire.port), WAIT_SECONDS)
    client.sendall(sent)
    return client


def logged_in(wire: WireServer) -> socket.socket:
    client = connected(wire, packet(STARTUP))
    seen = b""
    while not seen.endswith(b"Z\0\0\0\5I"):
        seen += client.recv(65536)
    return client


def everything(client: socket.socket) -> bytes:
    """What the server says until it hangs up, by a clean end or a reset."""
    seen = b""
    try:
        while piece := client.recv(65536):
            seen += piece
    except ConnectionError:
        pass
    return seen


@pytest.fixture
def honest(wire: WireServer) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(
        host=wire.host, port=wire.port, user="headwater", autocommit=True
    ) as connection:
        yield connection
        assert connection.execute("select one").fetchone() == (1,)


def works(honest: psycopg.Connection[Any]) -> bool:
    return honest.execute("select one").fetchone() == (1,)


@contextmanager
def beside(honest: psycopg.Connection[Any]) -> Iterator[list[int]]:
    """The honest client works all the while; how often it did."""
    done = [0]
    failed: list[BaseException] = []
    stop = threading.Event()

    def work() -> None:
        try:
            while not stop.is_set():
                assert works(honest)
                done[0] += 1
        except BaseException as error:  # noqa: BLE001, it is told below
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join(WAIT_SECONDS)
    assert not failed
    assert done[0] > 0


# --- lies -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "first",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),  # TLS without asking
        b"\0\0\0\0\0\0\0\0",
        b"\xff\xff\xff\xff\0\3\0\0",
        struct.pack("!ii", 1 << 30, 196608),
        packet(struct.pack("!i", 196608) + b"user"),
        packet(struct.pack("!i", 196608) + b"user\0headwater\0"),
        packet(struct.pack("!i", 196608) + b"user\0\xff\xfe\0\0"),
        packet(struct.pack("!i", 80877102) + b"\0"),
        packet(struct.pack("!i", 80877103)) * 3,
        packet(struct.pack("!i", 196608) + b"user\0x\0replication\0true\0\0"),
        packet(struct.pack("!i", 196608) + b"user\0x\0options\0'\0\0"),
        b"",
    ],
)
def test_rubbish_instead_of_a_start(
    wire: WireServer, honest: psycopg.Connection[Any], first: bytes
) -> None:
    with closing(connected(wire, first)) as client:
        client.shutdown(socket.SHUT_WR)
        said = everything(client)
    # Nothing, an answer about encryption, or an error that says that it is the end.
    assert not said.lstrip(b"N") or b"SFATAL" in said
    assert works(honest)


@pytest.mark.parametrize(
    "lie",
    [
        b"!" + packet(b""),  # no such message
        b"Q" + struct.pack("!i", -1),
        b"Q" + struct.pack("!i", 3),
        b"Q" + struct.pack("!i", (1 << 31) - 1),
        b"S" + struct.pack("!i", 20_000) + bytes(100),  # Sync carries nothing
        b"Q" + struct.pack("!i", 70 << 20) + b"x" * 1000,  # more than the server holds
    ],
)
def test_framing_that_cannot_be_trusted_ends_the_connection(
    wire: WireServer, honest: psycopg.Connection[Any], lie: bytes
) -> None:
    with closing(logged_in(wire)) as client:
        client.sendall(lie)
        said = everything(client)
    assert b"SFATAL\0VFATAL\0C08P01" in said
    assert works(honest)


@pytest.mark.parametrize(
    "lie",
    [
        message(b"Q", b"no end"),
        message(b"Q", b"\xff\0"),
        message(b"P", b"\0\0\x7f\xff"),
        message(b"B", b"\0\0\0\1\0\7\0\0\0\0"),
        message(b"B", b"\0\0\0\0\0\1\x7f\xff\xff\xff\0\0"),
        message(b"D", b"X\0"),
        message(b"E", b"\0"),
        message(b"F", b"\0\0\0\1"),
        message(b"p", b"secret\0"),
    ],
)
def test_a_wrong_message_is_an_error_and_the_connection_goes_on(
    wire: WireServer, honest: psycopg.Connection[Any], lie: bytes
) -> None:
    with closing(logged_in(wire)) as client:
        client.sendall(lie + message(b"S") + message(b"Q", b"select one\0") + message(b"X"))
        said = everything(client)
    assert b"SERROR" in said
    assert b"SELECT 1\0" in said
    assert works(honest)


def test_random_bytes_and_random_messages(
    wire: WireServer, honest: psycopg.Connection[Any]
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(60):
        with closing(logged_in(wire)) as client:
            for _ in range(chance.randrange(8)):
                payload = chance.randbytes(chance.randrange(40))
                tag = bytes([chance.choice(b"PBDECHSQdcfpF")])
                client.sendall(message(tag, payload + chance.choice((b"", b"\0"))))
            if chance.random() < 0.5:
                client.sendall(chance.randbytes(chance.randrange(1, 20)))
            client.shutdown(socket.SHUT_WR)
            everything(client)
    assert works(honest)


def test_what_is_said_before_the_handshake_is_not_believed(memory: Memory) -> None:
    tls = Tls(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), None)
    with WireServer("127.0.0.1", 0, memory, tls=tls) as wire:
        injected = packet(struct.pack("!i", 80877103)) + packet(STARTUP)
        with closing(connected(wire, injected)) as client:
            said = everything(client)
        assert said.startswith(b"S")
        assert b"unencrypted data" in said
        rubbish = packet(struct.pack("!i", 80877103))
        with closing(connected(wire, rubbish)) as client:
            assert client.recv(1) == b"S"
            client.sendall(b"this is no handshake" * 10)
            everything(client)


def test_a_cancel_request_needs_the_secret(
    wire: WireServer, memory: Memory, honest: psycopg.Connection[Any]
) -> None:
    outcome: list[Any] = []
    waiting = threading.Thread(
        target=lambda: outcome.append(honest.execute("select waiting").fetchall())
    )
    waiting.start()
    assert memory.waiting.acquire(timeout=WAIT_SECONDS)
    for pid in range(4):
        for secret in (b"\0\0\0\0", bytes(32), b"guess"):
            request = packet(struct.pack("!ii", 80877102, pid) + secret)
            with closing(connected(wire, request)) as client:
                assert everything(client) == b""
    assert memory.cancelled == []
    memory.release.set()
    waiting.join(WAIT_SECONDS)
    assert outcome == [[]]


# --- stalling and vanishing -----------------------------------------------------------------------


def test_who_does_not_come_in_is_sent_away(memory: Memory) -> None:
    with WireServer("127.0.0.1", 0, memory, limits=Limits(startup_seconds=0.2)) as wire:
        for half in (b"", packet(STARTUP)[:9], packet(struct.pack("!i", 80877103))):
            with closing(connected(wire, half)) as client:
                assert everything(client).strip(b"N") == b""
        with psycopg.connect(host=wire.host, port=wire.port, user="headwater") as patient:
            threading.Event().wait(0.4)
            assert patient.execute("select one").fetchone() == (1,)


def test_half_a_message_holds_up_nobody(wire: WireServer, honest: psycopg.Connection[Any]) -> None:
    stalled = []
    for cut in range(1, 12):
        client = logged_in(wire)
        client.sendall(message(b"Q", b"select one\0")[:cut])
        stalled.append(client)
    assert works(honest)
    for client in stalled:
        client.close()


@pytest.mark.parametrize("how", ["closes", "resets"])
def test_a_client_that_vanishes_leaves_nothing(
    wire: WireServer, memory: Memory, honest: psycopg.Connection[Any], how: str
) -> None:
    assert works(honest)
    memory.tables["t"] = pa.table({"s": ["x" * 1000] * 50_000})
    for query in (b"select * from t\0", b"select endless\0", b"select waiting\0", b"begin\0",
                  b"copy t from stdin\0", b"copy t to stdout\0"):  # fmt: skip
        client = logged_in(wire)
        client.sendall(message(b"Q", query))
        if query == b"select waiting\0":
            assert memory.waiting.acquire(timeout=WAIT_SECONDS)
        else:
            client.recv(100)
        if how == "resets":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        until = time.monotonic() + WAIT_SECONDS
        while (memory.sessions_open, memory.streams_open) != (1, 0):
            assert time.monotonic() < until, query
            threading.Event().wait(0.005)
    assert memory.tables["t"].num_rows == 50_000
    assert works(honest)


def test_a_client_that_does_not_read_stops_its_own_statement_only(
    wire: WireServer, memory: Memory, honest: psycopg.Connection[Any]
) -> None:
    memory.tables["t"] = pa.table({"s": ["x" * 10_000] * 20_000})
    with closing(logged_in(wire)) as client:
        client.sendall(message(b"Q", b"select * from t\0"))
        given = -1
        while given != memory.rows_given or given == 0:
            given = memory.rows_given
            assert works(honest)
            threading.Event().wait(0.1)
        assert given < 20_000  # It stands still, far from the end.
        with beside(honest):
            threading.Event().wait(0.2)


def test_a_client_that_only_talks_is_not_listened_to_for_ever(
    wire: WireServer, honest: psycopg.Connection[Any]
) -> None:
    """Answers nobody reads fill the socket, and then nothing more is read."""
    with closing(logged_in(wire)) as client:
        client.settimeout(1.0)
        query = message(b"Q", b"select one\0") * 1000
        sent = iter(lambda: client.send(query), 0)
        with pytest.raises(TimeoutError):
            list(islice(sent, 10_000))
        assert works(honest)


def test_stopping_does_not_wait_for_who_does_not_read(memory: Memory) -> None:
    memory.tables["t"] = pa.table({"s": ["x" * 10_000] * 20_000})
    server = WireServer("127.0.0.1", 0, memory)
    server.start()
    clients = [logged_in(server) for _ in range(3)]
    for client in clients:
        client.sendall(message(b"Q", b"select * from t\0"))
        client.recv(10)
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    stopping.join(WAIT_SECONDS)
    assert not stopping.is_alive()
    assert (memory.sessions_open, memory.streams_open) == (0, 0)
    for client in clients:
        client.close()


# --- many -----------------------------------------------------------------------------------------


def test_there_is_a_limit(memory: Memory) -> None:
    with WireServer("127.0.0.1", 0, memory, limits=Limits(connections_max=3)) as wire:
        clients = [logged_in(wire) for _ in range(3)]
        with closing(connected(wire, packet(STARTUP))) as client:
            assert b"C53300" in everything(client)
        clients.pop().close()
        until = time.monotonic() + WAIT_SECONDS
        while True:
            with closing(connected(wire, packet(STARTUP))) as client:
                if client.recv(1) == b"R":
                    break
            assert time.monotonic() < until
        for client in clients:
            client.close()


def quick_connects(wire: WireServer, count: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(count):
        kind = chance.randrange(4)
        if kind == 0:
            connected(wire).close()
        elif kind == 1:
            connected(wire, packet(STARTUP)).close()
        elif kind == 2:
            connected(wire, packet(STARTUP) + message(b"Q", b"select one\0")).close()
        else:
            client = logged_in(wire)
            client.sendall(message(b"X"))
            assert everything(client) == b""
            client.close()


def settled(memory: Memory) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while memory.sessions_open > 1:
        assert time.monotonic() < until
        threading.Event().wait(0.01)


def test_hundreds_of_quick_connects(
    wire: WireServer, memory: Memory, honest: psycopg.Connection[Any]
) -> None:
    threads = threading.active_count()
    with beside(honest):
        quick_connects(wire, QUICK_CONNECTS)
    settled(memory)
    for _ in range(200):  # A thread that has no work ends a moment later.
        if threading.active_count() <= threads + 2:
            break
        threading.Event().wait(0.05)
    assert threading.active_count() <= threads + 2, threading.enumerate()


@pytest.mark.soak
def test_thousands_of_quick_connects(
    wire: WireServer, memory: Memory, honest: psycopg.Connection[Any]
) -> None:
    with beside(honest):
        quick_connects(wire, QUICK_CONNECTS_SOAK)
    settled(memory)


def test_a_hundred_idle_clients_and_one_that_works(
    wire: WireServer, memory: Memory, honest: psycopg.Connection[Any]
) -> None:
    idle = [logged_in(wire) for _ in range(100)]
    with beside(honest):
        threading.Event().wait(0.1)
    assert memory.sessions_open == 1  # Who asks nothing has no session, and no thread.
    for client in idle:
        client.close()


def test_a_cursor_ends_with_its_connection(wire: WireServer, memory: Memory) -> None:
    """Not when the collector of garbage finds it: what it reads is held for it."""
    memory.tables["t"] = pa.table({"n": pa.array(range(5), pa.int64())})
    gc.disable()
    try:
        address = f"host={wire.host} port={wire.port} user=headwater dbname=headwater"
        with psycopg.connect(address) as client:
            client.execute("declare c cursor for select * from t")
            assert client.execute("fetch 2 from c").fetchall() == [(0,), (1,)]
            assert memory.streams_open == 1
            client.close()
        until(lambda: not memory.sessions_open, "the end of every session")
        assert memory.streams_open == 0
    finally:
        gc.enable()

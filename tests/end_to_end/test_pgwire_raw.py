"""The wire message by message, and how a server begins and ends."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import psycopg
import pyarrow as pa
import pytest

from headwater.adapter.pgwire import WireServer
from headwater.adapter.pgwire.server import NotLoopback
from headwater.testing.awaited import until
from tests.end_to_end import tables_backend
from tests.end_to_end.tables_backend import WAIT_SECONDS, Tables, connect

pytestmark = pytest.mark.server

backend = tables_backend.backend
server = tables_backend.server


# --- the protocol itself --------------------------------------------------------------------------


def message(tag: bytes, payload: bytes = b"") -> bytes:
    return tag + struct.pack("!i", len(payload) + 4) + payload


class RawClient:
    """A client that sends what it is told and reads messages until ReadyForQuery."""

    def __init__(self, server: WireServer) -> None:
        self.socket = socket.create_connection((server.host, server.port), WAIT_SECONDS)
        startup = struct.pack("!i", 196608) + b"user\0headwater\0\0"
        self.socket.sendall(struct.pack("!i", len(startup) + 4) + startup)
        self.file = self.socket.makefile("rb")
        self.until_ready()

    def until_ready(self) -> list[tuple[bytes, bytes]]:
        seen: list[tuple[bytes, bytes]] = []
        while not seen or seen[-1][0] != b"Z":
            tag, length = struct.unpack("!ci", self.file.read(5))
            seen.append((tag, self.file.read(length - 4)))
        return seen

    def tags(self, *messages: bytes) -> str:
        self.socket.sendall(b"".join(messages))
        return b"".join(tag for tag, _ in self.until_ready()).decode()

    def close(self) -> None:
        self.file.close()
        self.socket.close()


@pytest.fixture
def raw(server: WireServer) -> Iterator[RawClient]:
    client = RawClient(server)
    yield client
    client.close()


def parse(sql: str) -> bytes:
    return message(b"P", b"\0" + sql.encode() + b"\0\0\0")


BIND = message(b"B", b"\0\0" + b"\0\0" * 3)
DESCRIBE_STATEMENT, DESCRIBE_PORTAL = message(b"D", b"S\0"), message(b"D", b"P\0")
SYNC = message(b"S")


def execute(rows_max: int = 0) -> bytes:
    return message(b"E", b"\0" + struct.pack("!i", rows_max))


def test_messages_of_the_extended_protocol(raw: RawClient, backend: Tables) -> None:
    backend.tables["t"] = pa.table({"n": pa.array(range(5), pa.int64())})
    select = parse("select * from t")
    assert raw.tags(select, DESCRIBE_STATEMENT, SYNC) == "1tTZ"
    assert raw.tags(select, BIND, DESCRIBE_PORTAL, execute(), SYNC) == "12TDDDDDCZ"
    assert raw.tags(select, BIND, execute(2), execute(2), execute(2), SYNC) == "12DDsDDsDCZ"
    assert backend.texts.count("select * from t") == 3  # each once, described or not
    assert raw.tags(parse("create table u (a int)"), DESCRIBE_STATEMENT, SYNC) == "1tnZ"
    assert raw.tags(BIND, DESCRIBE_PORTAL, execute(), SYNC) == "2nCZ"
    assert raw.tags(parse(""), BIND, DESCRIBE_PORTAL, execute(), SYNC) == "12nIZ"
    assert raw.tags(message(b"Q", b" ; \0")) == "IZ"


def test_after_an_error_messages_are_skipped_until_sync(raw: RawClient, backend: Tables) -> None:
    assert raw.tags(parse("selec 1"), BIND, execute(), SYNC) == "EZ"
    assert raw.tags(parse("select 1; select 2"), SYNC) == "EZ"
    assert raw.tags(message(b"B", b"\0none\0" + b"\0\0" * 3), SYNC) == "EZ"
    assert raw.tags(message(b"E", b"none\0" + struct.pack("!i", 0)), SYNC) == "EZ"
    # A portal ends with its transaction.
    assert raw.tags(parse("select one"), BIND, SYNC) == "12Z"
    assert raw.tags(execute(), SYNC) == "EZ"
    assert raw.tags(message(b"Q", b"select one\0")) == "TDCZ"


def test_a_client_that_vanishes_leaves_no_session(server: WireServer, backend: Tables) -> None:
    client = RawClient(server)
    backend.tables["t"] = pa.table({"s": ["x" * 1000] * 100_000})
    client.socket.sendall(message(b"Q", b"select * from t\0"))
    client.close()  # with rows still on their way
    for _ in range(100 * WAIT_SECONDS):
        if backend.sessions_open == 0 and "select * from t" in backend.texts:
            return
        threading.Event().wait(0.01)
    pytest.fail("the session of a client that is gone is still open")


# --- the server -----------------------------------------------------------------------------------


def test_it_listens_on_loopback_only(backend: Tables) -> None:
    for host in ("0.0.0.0", "192.0.2.1", "example.org", ""):
        with pytest.raises(NotLoopback):
            WireServer(host, 0, backend)


def test_a_taken_port_is_an_error_at_start(server: WireServer, backend: Tables) -> None:
    second = WireServer(server.host, server.port, backend)
    with pytest.raises(OSError, match="address already in use"):
        second.start()
    second.stop()


def test_stop_closes_connections_and_lets_a_statement_end(backend: Tables) -> None:
    server = WireServer("127.0.0.1", 0, backend)
    server.start()
    idle = connect(server, autocommit=True)
    idle.execute("select one")
    busy = RawClient(server)
    busy.socket.sendall(message(b"Q", b"select wait\0"))
    until(lambda: "select wait" in backend.texts, "the statement that waits")
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    backend.release.set()
    stopping.join(WAIT_SECONDS)
    assert not stopping.is_alive()
    assert backend.sessions_open == 0
    with pytest.raises(psycopg.OperationalError):
        idle.execute("select one")
    idle.close()
    busy.close()

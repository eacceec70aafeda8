"""Connectors as processes: our driver behind a pipe, and programs that do everything wrong."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pyarrow as pa
import pytest

from headwater.materialize.controller import Materializations
from headwater.materialize.definition import Binding, Endpoint
from headwater.materialize.delivery import Stream
from headwater.materialize.disclosing import Disclosing
from headwater.materialize.drivers.sqlite import SqliteDriver
from headwater.materialize.options import endpoint as into
from headwater.materialize.protocol import messages as m
from headwater.materialize.protocol.machine import ProtocolViolation
from headwater.materialize.shards import Materialization
from headwater.materialize.status import State
from headwater.materialize.transport import grpc_call
from headwater.materialize.transport.child_process import ChildProcess, ConnectorFailed
from headwater.materialize.transport.grpc_call import PeerFailed
from headwater.materialize.transport.grpc_server import GrpcServer
from headwater.materialize.transport.grpc_stream import GrpcStream
from headwater.materialize.wire.framing import Codec
from headwater.materialize.wire.protobuf import MalformedMessage
from headwater.persist.client import Client, open_location
from headwater.persist.evolution import updates_schema

pytestmark = pytest.mark.server

CONNECTOR = [sys.executable, "-m", "headwater", "connector", "sqlite"]
SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.string())])
WAIT_SECONDS = 60.0


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with open_location(tmp_path / "data") as opened:
        yield opened


def _eventually(condition: Callable[[], bool]) -> None:
    deadline = monotonic() + WAIT_SECONDS
    while not condition():
        assert monotonic() < deadline, "it never came"
        sleep(0.02)


def _updates(*triples: tuple[tuple[int, str], int, int]) -> pa.Table:
    columns: dict[str, list[Any]] = {
        "k": [row[0] for row, _, _ in triples],
        "v": [row[1] for row, _, _ in triples],
        "__time": [time for _, time, _ in triples],
        "__diff": [diff for _, _, diff in triples],
    }
    return pa.table(columns, schema=updates_schema(SCHEMA))


def _stream(running: Materialization) -> Stream:
    """Return the stream of the one shard's session."""
    courier = running.shards[0].courier
    assert courier is not None
    return courier.stream


def _rows(path: Path, columns: str, table: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as db:
        try:
            return sorted(db.execute(f"SELECT {columns} FROM {table}").fetchall(), key=repr)
        except sqlite3.OperationalError:
            return []  # The table is not there yet.


@pytest.mark.parametrize(
    "codec", [Codec.PROTOBUF, pytest.param(Codec.JSON, marks=pytest.mark.soak)]
)
def test_a_driver_behind_a_pipe_is_killed_and_goes_on(
    client: Client, tmp_path: Path, codec: Codec
) -> None:
    endpoint = tmp_path / "e.db"
    write, read = client.create_or_load("c", SCHEMA, key=("k",))
    running = Materializations(client, retry_seconds=0.05)
    config = {"command": CONNECTOR, "codec": codec.value, "config": {"path": str(endpoint)}}
    running.install(
        "m",
        Endpoint("connector", config),
        (
            Binding("c", read.id, "rows", ("k",)),
            Binding("c", read.id, "sums", ("v",), reduce=(("k", "sum"),)),
            Binding("c", read.id, "log", ("k",), delta_updates=True),
        ),
    )
    found = running.get("m")
    assert found is not None
    write.compare_and_append(_updates(((1, "a"), 1, 1), ((2, "a"), 1, 1)), 0, 2).result()
    _eventually(lambda: found.status.checkpoint == 2)
    stream = _stream(found)
    assert isinstance(stream, ChildProcess)
    os.kill(stream.pid, signal.SIGKILL)
    changed = _updates(((1, "a"), 2, -1), ((1, "b"), 2, 1), ((3, "a"), 2, 1))
    write.compare_and_append(changed, 2, 3).result()
    _eventually(lambda: found.status.checkpoint == 3)
    running.stop()
    assert found.status.state is State.STOPPED
    assert _rows(endpoint, "k, v", "rows") == [(1, "b"), (2, "a"), (3, "a")]
    assert _rows(endpoint, "v, k", "sums") == [("a", 5), ("b", 1)]
    log = _rows(endpoint, 'k, v, "_meta/op"', "log")
    assert log == [(1, "a", "c"), (1, "a", "d"), (1, "b", "c"), (2, "a", "c"), (3, "a", "c")]


@contextmanager
def _serving(address: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that serves the driver by gRPC, and its port."""
    process = subprocess.Popen([*CONNECTOR, "--grpc", address], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        yield process, json.loads(process.stderr.readline())["port"]
    finally:
        process.kill()
        process.communicate()


def test_a_driver_behind_grpc_is_killed_and_goes_on(client: Client, tmp_path: Path) -> None:
    endpoint = tmp_path / "e.db"
    write, read = client.create_or_load("c", SCHEMA, key=("k",))
    running = Materializations(client, retry_seconds=0.05)
    bindings = (
        Binding("c", read.id, "rows", ("k",)),
        Binding("c", read.id, "sums", ("v",), reduce=(("k", "sum"),)),
    )
    with _serving("127.0.0.1:0") as (process, port):
        options = {"ENDPOINT": f"127.0.0.1:{port}", "CONFIG": json.dumps({"path": str(endpoint)})}
        running.install("m", into("connector", options), bindings, shards=2)
        found = running.get("m")
        assert found is not None
        write.compare_and_append(_updates(((1, "a"), 1, 1), ((2, "a"), 1, 1)), 0, 2).result()
        _eventually(lambda: found.status.checkpoint == 2)
        process.kill()
        process.wait()
        changed = _updates(((1, "a"), 2, -1), ((1, "b"), 2, 1), ((3, "a"), 2, 1))
        write.compare_and_append(changed, 2, 3).result()
        _eventually(lambda: "failed: UNAVAILABLE" in found.status.error)
    with _serving(f"127.0.0.1:{port}") as (process, _):
        _eventually(lambda: found.status.checkpoint == 3)
        running.stop()
        process.terminate()
        assert process.wait(WAIT_SECONDS) == 0
    assert _rows(endpoint, "k, v", "rows") == [(1, "b"), (2, "a"), (3, "a")]
    assert _rows(endpoint, "v, k", "sums") == [("a", 5), ("b", 1)]


def test_what_a_driver_behind_grpc_refuses_is_told(tmp_path: Path) -> None:
    server = GrpcServer(SqliteDriver, "127.0.0.1:0")
    try:
        stream = GrpcStream(f"127.0.0.1:{server.port}")
        stream.send(m.Validate("m", config_json=b'{"path":"/dev/null/e.db"}'))
        with pytest.raises(PeerFailed, match="INTERNAL: cannot open SQLite endpoint"):
            stream.receive()
        stream.abort()
        stream = GrpcStream(f"127.0.0.1:{server.port}")
        stream._call.send(b"no message")
        with pytest.raises(PeerFailed, match="INTERNAL"):
            stream.receive()
        stream.abort()
        stream = GrpcStream(f"127.0.0.1:{server.port}")
        stream.send(m.Spec())
        assert isinstance(stream.receive(), m.Specified)
        stream.end()
    finally:
        server.stop()


def test_an_address_where_nobody_is_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_call, "CONNECT_SECONDS", 0.2)
    with pytest.raises(PeerFailed, match=r"at 127\.0\.0\.1:1 cannot be reached"):
        GrpcStream("127.0.0.1:1")


def _program(text: str, receive_seconds: float = 30.0) -> ChildProcess:
    return ChildProcess([sys.executable, "-c", text], receive_seconds=receive_seconds)


def _ask(stream: ChildProcess, request: m.Request) -> m.Response:
    stream.send(request)
    return stream.receive()


OUT_OF_TURN = """
import sys
sys.stdin.buffer.read(4)
sys.stdout.buffer.write(bytes([2, 0, 0, 0, 0x22, 0]))  # Opened
sys.stdout.buffer.flush()
sys.stdin.buffer.read()
"""


@pytest.mark.parametrize(
    ("text", "error", "told"),
    [
        ("print('hello, I am starting up')", MalformedMessage, "standard output"),
        ("import sys; sys.exit('no such host')", ConnectorFailed, "status 1.*no such host"),
        ("import os; os.kill(os.getpid(), 9)", ConnectorFailed, "signal 9"),
        (OUT_OF_TURN, ProtocolViolation, "sent Opened"),
    ],
)
def test_what_a_connector_does_wrong_is_told(text: str, error: type[Exception], told: str) -> None:
    stream = _program(text)
    try:
        with pytest.raises(error, match=told):
            _ask(stream, m.Spec())
    finally:
        stream.abort()


def test_a_connector_that_hangs_is_given_up() -> None:
    stream = _program("import sys; sys.stdin.buffer.read(); sys.stdin.buffer.read()", 0.3)
    try:
        stream.send(m.Spec())
        with pytest.raises(ConnectorFailed, match=r"said nothing for 0\.3 s while Spec is unans"):
            stream.receive()
    finally:
        stream.abort()


def test_a_connector_that_cannot_be_started_is_told() -> None:
    with pytest.raises(ConnectorFailed, match=r"cannot be started.*whole path"):
        ChildProcess(["headwater-there-is-no-such-program"])


def test_what_a_connector_has_started_is_ended_with_it() -> None:
    """A shell that waits for its own child, which holds the same pipes."""
    child = "import sys; print('here', file=sys.stderr, flush=True); sys.stdin.buffer.read()"
    stream = ChildProcess(["sh", "-c", f'{sys.executable} -c "{child}"; true'])
    _eventually(lambda: stream._last == "here")
    stream.abort()
    assert not any(thread.is_alive() for thread in stream._threads)


def test_a_connector_is_told_a_secret_that_the_log_does_not_have(
    client: Client, tmp_path: Path
) -> None:
    """Again and again: each session asks anew, also for one that was killed."""
    endpoint = tmp_path / "e.db"
    write, read = client.create_or_load("c", SCHEMA, key=("k",))
    running = Materializations(client, retry_seconds=0.05)
    secret = json.dumps({"path": str(endpoint)})
    running.disclose = lambda config: dict.fromkeys(config["secrets"], secret)
    config = {"command": CONNECTOR, "secrets": {"config": "u7"}}
    running.install("m", Endpoint("connector", config), (Binding("c", read.id, "rows", ("k",)),))
    found = running.get("m")
    assert found is not None
    for time in range(1, 3):
        row = _updates(((time, "a"), time, 1))
        write.compare_and_append(row, write.upper, time + 1).result()
        _eventually(lambda: found.status.checkpoint == write.upper.only())
        stream = _stream(found)
        assert isinstance(stream, Disclosing)
        assert isinstance(stream._stream, ChildProcess)
        os.kill(stream._stream.pid, signal.SIGKILL)
    running.stop()
    assert _rows(endpoint, "k, v", "rows") == [(1, "a"), (2, "a")]
    kept = b"".join(client.core.state.items.values())
    assert str(endpoint).encode() not in kept
    assert "e.db" not in found.status.error


def test_a_clean_end() -> None:
    stream = ChildProcess(CONNECTOR)
    stream.send(m.Spec())
    said = stream.receive()
    assert isinstance(said, m.Specified)
    assert said.protocol == m.PROTOCOL
    stream.end()
    assert stream._process.returncode == 0


def test_an_error_of_the_driver_is_the_last_line_of_its_log(tmp_path: Path) -> None:
    stream = ChildProcess(CONNECTOR)
    try:
        with pytest.raises(ConnectorFailed, match="cannot open SQLite endpoint"):
            _ask(stream, m.Validate("m", config_json=b'{"path":"/dev/null/e.db"}'))
    finally:
        stream.abort()

"""Shards that tasks carry: what they deliver, who may carry them, what follows a lost one."""

from __future__ import annotations

import pickle
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from headwater.base.errors import InvalidUsage
from headwater.collection.difference import Difference
from headwater.materialize import carrying, channel, runtime
from headwater.materialize.channel import Channel, ChannelClosed, dial
from headwater.materialize.checkpoint import Position
from headwater.materialize.controller import Materializations
from headwater.materialize.definition import Binding, Endpoint
from headwater.materialize.delivery import Stream
from headwater.materialize.in_task import Expected, ShardTasks
from headwater.materialize.key_range import KeyRange
from headwater.materialize.pace import TASKS, THREADS
from headwater.materialize.recovery import entry_of
from headwater.materialize.sent import Sent, sent, sent_snapshot
from headwater.materialize.shards import Materialization
from headwater.materialize.status import State
from headwater.materialize.streams import stream_to
from headwater.persist.client import Client, ReadHandle, WriteHandle, open_location
from headwater.persist.errors import CollectionHasErrors
from headwater.persist.evolution import ERROR_SCHEMA, updates_schema
from headwater.persist.interval import Interval
from headwater.persist.spark_parts import Place, place_of

pytestmark = pytest.mark.usefixtures("sqlite_without_fsync")

SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.string())])
WAIT_SECONDS = 120.0
RETRY_SECONDS = 0.02
HOST = "127.0.0.1"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with open_location(tmp_path / "data") as opened:
        yield opened


def sent_off(work: Sequence[Callable[[str], bytes]]) -> list[bytes]:
    """Run what another process would be sent."""
    return [pickle.loads(pickle.dumps(one))("attempt") for one in work]


def _tasks(slots: int = 8, **more: Any) -> ShardTasks:
    return ShardTasks(sent_off, HOST, lambda: slots, **more)


def _append(write: WriteHandle, *changes: tuple[int, str, int]) -> int:
    """Make changes at the next time; return the upper after it."""
    time = write.upper.only()
    rows = [({"k": k, "v": v}, time, diff) for k, v, diff in changes]
    write.compare_and_append(rows, time, time + 1).result()
    return time + 1


def _eventually(condition: Callable[[], object]) -> None:
    deadline = monotonic() + WAIT_SECONDS
    while not condition():
        assert monotonic() < deadline, "it never came"
        sleep(0.01)


def _delivered(running: Materializations, upper: int, name: str = "m") -> Materialization:
    found = running.get(name)
    assert found is not None
    _eventually(lambda: found.status.checkpoint == upper)
    return found


def _dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as db:
        lines = [line for line in db.iterdump() if "INSERT" in line and "flow_" not in line]
    return sorted(lines)


def _bindings(read: ReadHandle) -> tuple[Binding, ...]:
    return (
        Binding("c", read.id, "chosen", ("k",), duplicates="first"),
        Binding("c", read.id, "sums", ("v",), reduce=(("k", "sum"),)),
        Binding("c", read.id, "log", ("k",), delta_updates=True),
    )


def _install(running: Materializations, path: Path, read: ReadHandle, **more: Any) -> None:
    binding = Binding("c", read.id, "target", ("k",))
    more = {"tuning": {"shards_in": TASKS}, **more}
    running.install("m", Endpoint("sqlite", {"path": str(path)}), (binding,), **more)


def test_tasks_deliver_what_threads_do(client: Client, tmp_path: Path) -> None:
    """All kinds of bindings; a first snapshot of several transactions; changes; a restart."""
    write, read = client.create_or_load("c", SCHEMA)
    upper = _append(write, *((k, f"v{k % 7}", 1) for k in range(200)), (1, "again", 1))
    running = Materializations(client, retry_seconds=RETRY_SECONDS, shard_tasks=_tasks())
    where = {THREADS: tmp_path / "threads.db", TASKS: tmp_path / "tasks.db"}
    for name, path in where.items():
        endpoint = Endpoint("sqlite", {"path": str(path)})
        tuning = {"shards_in": name, "spill_bytes": 2_000}
        running.install(name, endpoint, _bindings(read), tuning=tuning, shards=2)
    for changes in (
        [(1, "v1", -1), (2, "v2", -1), (2, "new", 1)],
        [(1, "v1", 1), (300, "more", 1), (300, "other", 1)],
    ):
        for name in where:
            _delivered(running, upper, name)
        upper = _append(write, *changes)
    carried = {name: _delivered(running, upper, name).status for name in where}
    running.stop()
    running.start()
    upper = _append(write, (300, "more", -1), (5, "v5", -1))
    for name in where:
        _delivered(running, upper, name)
    running.stop()
    ran = {name: {shard.runs_in for _, shard in s.ranges} for name, s in carried.items()}
    assert ran == {THREADS: {"thread"}, TASKS: {"task"}}
    # What the tasks asked for is in the log, and nowhere else is it kept.
    entries = [entry_of(client.core, TASKS, half) for half in KeyRange.tiling(2)]
    assert [entry.position for entry in entries] == [Position(upper)] * 2
    assert all(entry.max_keys for entry in entries)
    assert carried[TASKS].transactions > 4, "the first snapshot took several"
    counted = {(s.rows_loaded, s.rows_stored, s.rows_deleted) for s in carried.values()}
    assert len(counted) == 1
    assert _dump(where[TASKS]) == _dump(where[THREADS])
    assert len(_dump(where[TASKS])) > 400


def test_what_is_sent_reads_like_the_original(client: Client) -> None:
    write, old = client.create_or_load("old", SCHEMA)
    wider = pa.schema([*SCHEMA, pa.field("n", pa.int64())])
    write_new, new = client.create_or_load("new", wider)
    _append(write, (1, "a", 1), (2, "b", 1))
    _append(write, (1, "a", -1))
    row = {"k": 2, "v": "b", "n": 7}
    write_new.compare_and_append([(row, 0, 1)], 0, 2).result()
    core, place = client.core, _place(client)
    interval = Interval(core, old.id, 1, 2)
    snapshot = old.snapshot(1)
    originals: list[Any] = [interval, Difference(core, old.id, 0, new.id, 2), snapshot]
    others = [sent(place, one, interval.at_end()) for one in originals[:2]]
    for one, other in zip(originals, [*others, sent_snapshot(place, snapshot)], strict=True):
        read = pickle.loads(pickle.dumps(other))
        assert _rows(read.updates()) == _rows(one.updates())
    assert others[1].schema == originals[1].schema
    assert _rows(others[0].at_end().updates()) == _rows(interval.at_end().updates())
    assert _rows(others[1].at_end().updates()) == _rows(originals[1].at_end().updates())


def _rows(tables: Iterator[pa.Table]) -> list[Any]:
    return [row for table in tables for row in table.to_pylist()]


def _place(client: Client) -> Place:
    place = place_of(client.core)
    assert place is not None
    return place


def test_a_snapshot_with_errors_is_not_sent(client: Client) -> None:
    write, read = client.create_or_load("c", SCHEMA)
    rows = {"condition": ["X"], "message": ["division by zero"], "context": [None]}
    errors = pa.table({**rows, "__time": [0], "__diff": [1]}, updates_schema(ERROR_SCHEMA))
    write.compare_and_append([], 0, 1, errors=errors).result()
    with pytest.raises(CollectionHasErrors, match="division by zero"):
        sent_snapshot(_place(client), read.snapshot(0))


# ---- what a task cannot do -----------------------------------------------------------------------


def test_what_a_task_cannot_do_is_told_and_it_goes_on(client: Client, tmp_path: Path) -> None:
    write, read = client.create_or_load("c", SCHEMA)
    running = Materializations(client, retry_seconds=RETRY_SECONDS, shard_tasks=_tasks())
    _install(running, tmp_path / "e.db", read)
    _delivered(running, _append(write, (1, "a", 1)))
    _append(write, (7, "b", 1), (7, "c", 1))
    found = running.get("m")
    assert found is not None
    _eventually(lambda: "two rows have the key (7,)" in found.status.error)
    assert found.status.state is State.STALLED
    upper = _append(write, (7, "b", -1))
    _delivered(running, upper)
    # A column that came since the session began; the next session adds it first.
    wider = pa.schema([*SCHEMA, pa.field("w", pa.int64())])
    write, _ = client.create_or_load("c", wider)
    write.compare_and_append([({"k": 8, "v": "d", "w": 9}, upper, 1)], upper, upper + 1).result()
    _delivered(running, upper + 1)
    running.stop()
    with closing(sqlite3.connect(tmp_path / "e.db")) as db:
        rows = db.execute("SELECT k, v, w FROM target ORDER BY k").fetchall()
    assert rows == [(1, "a", None), (7, "c", None), (8, "d", 9)]


class _Killed(BaseException):
    """The process of a task is gone."""


class _Dying:
    """A stream whose process is killed at the n-th message."""

    def __init__(self, stream: Stream, left: list[int]) -> None:
        self._stream, self._left = stream, left

    def __getattr__(self, name: str) -> Any:
        if name in ("send", "receive") and self._left:
            self._left[0] -= 1
            if not self._left[0]:
                self._left.clear()
                raise _Killed
        return getattr(self._stream, name)


def _until_killed(work: Sequence[Callable[[str], bytes]]) -> list[bytes]:
    """Run a task; if its process is killed, again, as Spark would; then it has failed."""
    for attempt in range(2):
        try:
            return [one(f"attempt {attempt}") for one in work]
        except _Killed:
            continue
    raise RuntimeError("the executor is lost")


@pytest.mark.parametrize("event", [1, 9, 12])
def test_after_a_task_was_killed_another_follows(
    client: Client, tmp_path: Path, event: int
) -> None:
    write, read = client.create_or_load("c", SCHEMA)
    upper = _append(write, (1, "a", 1))
    left = [event]
    carry: Any = partial(carrying.carry, connect=lambda to: _Dying(stream_to(to), left))
    tasks = ShardTasks(_until_killed, HOST, lambda: 2, carry=carry)
    running = Materializations(client, retry_seconds=RETRY_SECONDS, shard_tasks=tasks)
    _install(running, tmp_path / "e.db", read, tuning={"shards_in": TASKS})
    _delivered(running, upper)
    found = _delivered(running, _append(write, (2, "b", 1)))
    _eventually(lambda: not left)
    _eventually(lambda: found.status.state is State.RUNNING and found.status.error == "")
    assert [shard.runs_in for _, shard in found.status.ranges] == ["task"]
    running.stop()
    assert len(_dump(tmp_path / "e.db")) == 2


def test_a_task_stops_in_the_middle_of_reading(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, read = client.create_or_load("c", SCHEMA)
    _append(write, (1, "a", 1))
    reading = threading.Event()

    def endless(self: Sent) -> Iterator[pa.Table]:
        while True:
            reading.set()
            yield self.schema.empty_table()

    monkeypatch.setattr(Sent, "updates", endless)
    running = Materializations(client, retry_seconds=RETRY_SECONDS, shard_tasks=_tasks())
    _install(running, tmp_path / "e.db", read)
    assert reading.wait(WAIT_SECONDS)
    running.stop()
    assert not _dump(tmp_path / "e.db")


# ---- who may carry a session ---------------------------------------------------------------------


class _Caught:
    """Tasks that somebody else starts: the test."""

    def __init__(self, **more: Any) -> None:
        self.work: list[Callable[[str], bytes]] = []
        self._over = threading.Event()
        self._open: list[Channel] = []
        self.tasks = ShardTasks(self._run, HOST, lambda: 4, **more)
        expected = self.tasks.reserve(TASKS)
        assert expected is not None
        self.expected: Expected = expected
        self.tasks.start(expected)
        _eventually(lambda: self.work)

    def _run(self, work: Sequence[Callable[[str], bytes]]) -> list[bytes]:
        self.work += work
        self._over.wait(WAIT_SECONDS)
        return [b""]

    def dialled(self, secret: bytes | None = None) -> Channel:
        host, port, session, right = self.work[0].args  # type: ignore[attr-defined]
        self._open.append(dial(host, port, session, secret or right))
        return self._open[-1]

    def arrived(self) -> Channel:
        self._open.append(self.expected.arrived.get(timeout=WAIT_SECONDS)[0])
        return self._open[-1]

    def close(self) -> None:
        self.tasks.over(self.expected)
        for one in self._open:
            one.close()
        self._over.set()
        self.tasks.close()


@pytest.fixture
def caught() -> Iterator[_Caught]:
    with closing(_Caught()) as found:
        yield found


def _arrive(dialled: Channel) -> None:
    dialled.send(msgspec.msgpack.encode(carrying.Arrived(1, "a")))


def test_a_session_is_one_tasks(caught: _Caught) -> None:
    first, twin = caught.dialled(), caught.dialled()
    _arrive(first)
    caught.arrived().send(b"told")
    assert first.receive() == b"told"
    _arrive(twin)
    _eventually(lambda: caught.expected.later)
    assert caught.expected.arrived.empty(), "nobody gets what was given away"
    assert not twin.readable(50), "it waits, or Spark would take it for done"
    caught.tasks.over(caught.expected)
    _eventually(twin.readable)
    with pytest.raises(ChannelClosed):
        twin.receive()
    late = caught.work[0]("third attempt")
    assert late == b"", "what comes after the end goes at once"


def test_nobody_gets_a_session_without_its_secret(caught: _Caught) -> None:
    stranger = caught.dialled(bytes(channel.SECRET_BYTES))
    _arrive(stranger)
    _eventually(stranger.readable)
    with pytest.raises(ChannelClosed):
        stranger.receive()
    _, port, *_ = caught.work[0].args  # type: ignore[attr-defined]
    with socket.create_connection((HOST, port)) as other:
        other.sendall(bytes(channel.ID_BYTES))
        assert other.recv(1) == b"", "there is no such session"
    assert caught.expected.arrived.empty()
    _arrive(caught.dialled())
    caught.arrived().send(b"told")  # The right one is not kept out.


def test_a_frame_that_was_made_up_repeated_or_left_out_does_not_open() -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    with closing(one), closing(other):
        pair = _Recorded(one), _Recorded(other)
        secret, nonce = bytes(32), bytes(32)
        said = Channel(pair[0], secret, nonce, in_task=True)  # type: ignore[arg-type]
        heard = Channel(pair[1], secret, nonce, in_task=False)  # type: ignore[arg-type]
        said.send(b"a secret")
        assert heard.receive() == b"a secret"
        frame = pair[0].sent[0]
        assert b"secret" not in frame
        for wrong in (frame, frame[:-1] + bytes([frame[-1] ^ 1])):
            one.sendall(wrong)
            with pytest.raises(ChannelClosed, match="not sealed"):
                heard.receive()
        said.send(b"left out")
        received = other.recv(1 << 16)
        said.send(b"and after it")
        with pytest.raises(ChannelClosed, match="not sealed"):
            heard.receive()
        assert received


class _Recorded:
    """A socket of a pair, with what was sent; options of TCP are none of its own."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.sent: list[bytes] = []

    def sendall(self, data: bytes) -> None:
        self.sent.append(data)
        self._connection.sendall(data)

    def setsockopt(self, *_: int) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def test_secrets_are_told_to_the_task_and_are_not_in_its_code(
    client: Client, tmp_path: Path
) -> None:
    write, read = client.create_or_load("c", SCHEMA)
    upper = _append(write, (1, "a", 1))
    shipped: list[bytes] = []

    def recorded(work: Sequence[Callable[[str], bytes]]) -> list[bytes]:
        shipped.extend(map(pickle.dumps, work))
        return sent_off(work)

    tasks = ShardTasks(recorded, HOST, lambda: 2)
    running = Materializations(client, retry_seconds=RETRY_SECONDS, shard_tasks=tasks)
    path = tmp_path / "secret.db"
    running.disclose = lambda config: {**config, "path": str(path)}
    binding = Binding("c", read.id, "target", ("k",))
    endpoint = Endpoint("sqlite", {"connection": "u1"})
    running.install("m", endpoint, (binding,), tuning={"shards_in": TASKS})
    _delivered(running, upper)
    running.stop()
    assert len(_dump(path)) == 1
    assert shipped
    assert not any(b"secret.db" in code for code in shipped)


# ---- where shards run ----------------------------------------------------------------------------


def test_half_of_the_slots_are_left_for_others(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, read = client.create_or_load("c", SCHEMA)
    upper = _append(write, *((k, "a", 1) for k in range(20)))
    slots = [4]
    monkeypatch.setattr(runtime, "MOVE_SECONDS", 0.0)
    tasks = ShardTasks(sent_off, HOST, lambda: slots[-1], by_default=True)
    running = Materializations(client, retry_seconds=RETRY_SECONDS, shard_tasks=tasks)
    _install(running, tmp_path / "e.db", read, shards=3, tuning={})
    found = _delivered(running, upper)
    ran = sorted(shard.runs_in for _, shard in found.status.ranges)
    assert ran == ["task", "task", "thread"]
    slots.append(6)
    _eventually(lambda: [s.runs_in for _, s in found.status.ranges] == ["task"] * 3)
    running.tune("m", {"shards_in": THREADS})
    found = _delivered(running, upper)
    _eventually(lambda: all(shard.runs_in == "thread" for _, shard in found.status.ranges))
    running.stop()


def test_where_there_are_no_tasks_nobody_may_ask_for_them(client: Client, tmp_path: Path) -> None:
    _, read = client.create_or_load("c", SCHEMA)
    without = Materializations(client, retry_seconds=RETRY_SECONDS)
    with pytest.raises(InvalidUsage, match="needs the Spark of a server"):
        _install(without, tmp_path / "e.db", read)
    with open_location(blob="memory:", consensus="memory:") as hidden:
        _, read = hidden.create_or_load("c", SCHEMA)
        running = Materializations(hidden, retry_seconds=RETRY_SECONDS, shard_tasks=_tasks())
        with pytest.raises(InvalidUsage, match="a location that Spark's tasks can read"):
            _install(running, tmp_path / "e.db", read)


def test_shards_are_threads_unless_somebody_says_otherwise(client: Client) -> None:
    on_a_cluster, here = _tasks(by_default=True), _tasks()
    assert on_a_cluster.reserve("") is not None
    assert on_a_cluster.reserve(THREADS) is None
    assert here.reserve("") is None
    assert here.reserve(TASKS) is not None

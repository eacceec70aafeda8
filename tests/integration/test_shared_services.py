"""A location on S3 and PostgreSQL: the whole life of a collection, many processes, outages."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

from headwater.algebra.frontier import Frontier
from headwater.base.retry import RetryState
from headwater.persist.client import Client, WriteHandle
from headwater.persist.commands import Done, SetItem
from headwater.persist.core import Settings
from headwater.persist.errors import AlreadyLocked, ReadOnly
from headwater.persist.maintenance import Maintenance
from headwater.persist.read import Progress, Updates
from headwater.persist.state import violations
from tests.integration.shared_location import PATIENT, SharedLocation

pytestmark = pytest.mark.server

SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.string())])
LARGE = 20_000
QUIET = Settings(maintenance=False, retry=PATIENT)


def rows(time: int, count: int = LARGE) -> pa.Table:
    """Many become an object in the bucket; a few stay in the log."""
    return pa.table(
        {
            "k": pa.array(range(count), pa.int64()),
            "v": pa.array([f"value {n % 97}" for n in range(count)]),
            "__time": pa.array([time] * count, pa.int64()),
            "__diff": pa.array([1] * count, pa.int64()),
        }
    )


def append(write: WriteHandle, time: int, count: int = 1) -> None:
    assert write.compare_and_append(rows(time, count), time, time + 1).result() == Done()


def objects(client: Client) -> int:
    return len(list(client.core.blob.list("part/")))


def assert_sound(client: Client) -> None:
    state = client.core.refresh()
    assert list(violations(state)) == []
    there = {info.key for info in client.core.blob.list("part/")}
    assert set(state.references) <= there


# ---- one process -----------------------------------------------------------------------------


def test_the_life_of_a_collection(location: SharedLocation) -> None:
    with location.open(settings=QUIET) as client:
        write, read = client.create_or_load("orders", SCHEMA, key=("k",))
        listen = read.listen(0)

        assert write.write([({"k": 1, "v": "small"}, 0, 1)]).result() == Done()
        assert objects(client) == 0
        assert write.write(rows(1)).result() == Done()
        assert objects(client) == 1
        assert write.seal(2).result() == Done()
        assert read.snapshot(0).to_table().to_pylist() == [{"k": 1, "v": "small", "__diff": 1}]
        assert read.snapshot(1).to_table().num_rows == LARGE + 1

        updates = listen.fetch()
        assert isinstance(updates, Updates)
        assert updates.ok.num_rows == LARGE  # strictly after 0
        assert listen.fetch() == Progress(Frontier.of(2))

        for time in range(2, 10):
            append(write, time, LARGE)
        write.allow_compaction(9).result()
        before = read.snapshot(9).to_table()
        maintenance = Maintenance(client.core)
        maintenance.merge_all()
        assert len(client.core.state.collections[read.id].batches) < 5
        # The snapshot is gone, the listener behind: only it holds the merge back.
        delivered = 0
        while listen.frontier < Frontier.of(10):
            event = listen.fetch()
            delivered += event.ok.num_rows if isinstance(event, Updates) else 0
        assert delivered == 8 * LARGE

        maintenance.roll_up(force=True)
        (first, *_) = client.core.consensus.scan(client.core.state.rollups[-1].seqno, 1)
        assert first.seqno == client.core.state.rollups[-1].seqno + 1, "the log was truncated"
        many = objects(client)
        maintenance.collect()
        assert objects(client) < many
        assert len(client.core.state.garbage) == 0
        assert read.snapshot(9).to_table().equals(before)
        assert_sound(client)

    with location.open(settings=QUIET) as again:
        write, read = again.create_or_load("orders", SCHEMA, key=("k",))
        assert again.core.epoch == 2
        assert (read.since, read.upper) == (Frontier.of(9), Frontier.of(10))
        assert read.snapshot(9).to_table().equals(before)
        assert write.seal(10).result() == Done()
        assert_sound(again)
        assert again.destroy("orders")
        Maintenance(again.core).collect()
        assert objects(again) == 0


def test_a_read_only_location_takes_and_writes_nothing(location: SharedLocation) -> None:
    with location.open() as writer:
        write, _ = writer.create_or_load("t", SCHEMA)
        append(write, 0, LARGE)
        with location.open(read_only=True) as reader:
            before = (writer.core.consensus.head(), objects(writer))
            read = reader.reader("t")
            assert read.snapshot(0).to_table().num_rows == LARGE
            with pytest.raises(ReadOnly):
                reader.create_or_load("u", SCHEMA)
            # Refused by the ports too, should anything above forget itself.
            with pytest.raises(Exception, match="read-only"):
                reader.core.blob.create("part/x/1-1-0", b"x")
            with pytest.raises(Exception, match="read-only"):
                reader.core.consensus.append(reader.core.state.seqno + 1, b"x")  # type: ignore[arg-type]
            assert (writer.core.consensus.head(), objects(writer)) == before
            listen = read.listen(0)
            append(write, 1)
            assert isinstance(listen.fetch(), Updates)


# ---- several processes -----------------------------------------------------------------------

OPEN = """
import sys
import pyarrow as pa
from headwater.persist.client import open_location
from headwater.persist.errors import AlreadyLocked, Fenced

schema = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.string())])

def opened(**how):
    return open_location(blob=sys.argv[1], consensus=sys.argv[2], **how)

def said(text):
    print(text, flush=True)

def told():
    return sys.stdin.readline().strip()
"""


@contextmanager
def process(location: SharedLocation, program: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program that opens the location; it ends when its standard input does."""
    child = subprocess.Popen(
        [sys.executable, "-c", OPEN + program, location.blob, location.consensus],
        env={
            **os.environ,
            **location.environment,
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield child
    finally:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.close()
        status = child.wait(60)
        rest = child.stdout.read()
        child.stdout.close()
        assert status == 0, rest


def heard(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def tell(child: subprocess.Popen[str], text: str) -> None:
    assert child.stdin is not None
    child.stdin.write(text + "\n")
    child.stdin.flush()


def test_another_process_reads_what_this_one_writes(location: SharedLocation) -> None:
    program = """
with opened(read_only=True) as client:
    read = client.reader("t")
    snapshot, listen = read.snapshot_and_listen(0)
    said(snapshot.to_table().num_rows)
    told()
    rows = 0
    while rows < 20_000:
        event = listen.fetch()
        rows += event.ok.num_rows if hasattr(event, "ok") else 0
    said(rows)
"""
    with location.open() as writer:
        write, _ = writer.create_or_load("t", SCHEMA)
        append(write, 0, 3)
        with process(location, program) as reader:
            assert heard(reader) == "3"
            append(write, 1, LARGE)
            tell(reader, "go on")
            assert heard(reader) == str(LARGE)


def test_the_lock_shows_its_holder(location: SharedLocation) -> None:
    with location.open(reentrance_id="ours") as client:
        write, _ = client.create_or_load("t", SCHEMA)
        with pytest.raises(AlreadyLocked, match=rf"held by pid {os.getpid()} on .*\(epoch 1\)"):
            location.open()
        with pytest.raises(AlreadyLocked):
            location.open(reentrance_id="theirs")
        append(write, 0)  # whoever was refused has taken nothing
    location.open().stop()


def test_a_holder_that_died_is_succeeded_by_its_reentrance_id(location: SharedLocation) -> None:
    program = """
import os
client = opened(reentrance_id="ours")
write, _ = client.create_or_load("t", schema)
write.compare_and_append([({"k": 7, "v": "x"}, 0, 1)], 0, 1).result()
said(os.getpid())
sys.stdout.flush()
os._exit(0)
"""
    with process(location, program) as child:
        pid = heard(child)
        child.wait(60)
    with pytest.raises(AlreadyLocked, match=f"held by pid {pid} on "):
        location.open()
    with location.open(reentrance_id="ours") as successor:
        assert successor.core.epoch == 2
        assert successor.reader("t").snapshot(0).to_table().column("k").to_pylist() == [7]


def test_a_take_over_fences_the_process_that_goes_on(location: SharedLocation) -> None:
    """The first one writes without a break; all it was told is there, nothing after the fence."""
    program = """
client = opened(reentrance_id="ours")
write, _ = client.create_or_load("t", schema)
said("open")
told()
time = 0
try:
    while True:
        write.compare_and_append([({"k": time, "v": "first"}, time, 1)], time, time + 1).result()
        time += 1
        if time == 5:
            said("five")
except Fenced as fenced:
    said(time)
    said(fenced)
try:
    write.seal(10**9)
except Fenced:
    said("still fenced")
client.stop()
"""
    with process(location, program) as first:
        assert heard(first) == "open"
        tell(first, "go")
        assert heard(first) == "five"
        with location.open(take_over=True, holder="the second one") as second:
            acknowledged = int(heard(first))
            assert "taken over by the second one" in heard(first)
            assert heard(first) == "still fenced"
            _, read = second.create_or_load("t", SCHEMA)
            there = read.upper.only()
            found = read.snapshot(there - 1).to_table()
            assert sorted(found.column("k").to_pylist()) == list(range(there))
            # Acknowledged is there. One more may be: committed, and its answer cut off.
            assert there in (acknowledged, acknowledged + 1)
            assert_sound(second)


# ---- outages ---------------------------------------------------------------------------------


def failing(client: Client, attempts: int) -> RetryState:
    """Wait until something has failed so often."""
    while True:
        state = client.core.retry_state
        if state is not None and state.attempts >= attempts:
            return state
        threading.Event().wait(0.002)


def sample(client: Client, name: str) -> float:
    value = client.core.metrics.registry.get_sample_value(f"headwater_persist_{name}")
    assert value is not None
    return value


def test_postgresql_goes_away_and_comes_back(location: SharedLocation) -> None:
    with location.open(settings=QUIET) as client:
        write, read = client.create_or_load("t", SCHEMA)
        for time in range(5):
            append(write, time)
        location.postgres.stop()
        try:
            pending = [
                write.compare_and_append(rows(time, count), time, time + 1)
                for time, count in ((5, 1), (6, LARGE), (7, 1))
            ]
            seen = failing(client, attempts=3)
            assert "PostgreSQL log" in seen.cause
            assert sample(client, "retry_attempts") >= 3
            assert sample(client, "retry_next_try_ms") > 0
            assert not any(future.done() for future in pending)
            # What is known is readable: the log is not asked.
            assert read.snapshot(4).to_table().num_rows == 1
        finally:
            location.postgres.start()
        assert [future.result() for future in pending] == [Done()] * 3
        assert read.snapshot(7).to_table().num_rows == LARGE
        assert client.core.retry_state is None
        assert sample(client, "retry_attempts") == 0
        assert_sound(client)


def test_connections_are_dropped_while_writers_write(location: SharedLocation) -> None:
    """Each append in doubt is looked up in the log; none is lost, none is doubled."""
    with location.open(settings=QUIET) as client:
        write, read = client.create_or_load("t", SCHEMA)
        done = threading.Event()
        dropped = 0

        def drop() -> None:
            nonlocal dropped
            while not done.is_set():
                dropped += location.postgres.terminate_connections()

        dropping = threading.Thread(target=drop)
        dropping.start()
        try:
            time = 0
            while time < 30 or dropped < 10:
                append(write, time)
                time += 1
        finally:
            done.set()
            dropping.join()
        found = read.snapshot(time - 1).to_table()
        assert found.to_pylist() == [{"k": 0, "v": "value 0", "__diff": time}]
        failures = client.core.metrics.failures
        assert sum(s.value for m in failures.collect() for s in m.samples) > 0
        assert_sound(client)


def test_the_bucket_goes_away_and_comes_back(location: SharedLocation) -> None:
    with location.open(settings=QUIET) as client:
        write, read = client.create_or_load("t", SCHEMA)
        append(write, 0, LARGE)
        snapshot = read.snapshot(0)
        fetched: list[pa.Table] = []
        reading = threading.Thread(target=lambda: fetched.append(snapshot.to_table()))
        location.cable.cut()
        try:
            large = write.write(rows(1))
            small = write.write([({"k": -1, "v": "behind"}, 1, 1)])
            seen = failing(client, attempts=3)
            assert "s3://" in seen.cause
            assert not large.done()
            assert not small.done(), "it keeps its place behind the large one"
            reading.start()
        finally:
            location.cable.mend()
        assert (large.result(), small.result()) == (Done(), Done())
        reading.join()
        assert fetched[0].num_rows == LARGE
        write.seal(2).result()
        assert read.snapshot(1).to_table().num_rows == LARGE + 1
        assert client.core.retry_state is None
        assert_sound(client)


def test_small_writes_go_on_without_the_bucket(location: SharedLocation) -> None:
    with location.open(settings=QUIET) as client:
        write, read = client.create_or_load("t", SCHEMA)
        location.cable.cut()
        try:
            for time in range(5):
                append(write, time)
            assert read.snapshot(4).to_table().to_pylist() == [
                {"k": 0, "v": "value 0", "__diff": 5}
            ]
        finally:
            location.cable.mend()


def test_maintenance_outlives_an_outage(location: SharedLocation) -> None:
    settings = Settings(retry=PATIENT, rollup_entries=8)
    with location.open(settings=settings) as client:
        write, read = client.create_or_load("t", SCHEMA)
        for time in range(6):
            append(write, time, LARGE)
        location.cable.cut()
        try:
            # Enough entries that a rollup is due, which needs the bucket.
            for number in range(50):
                client.core.submit(SetItem(f"item/{number}", b"x")).result()
            failing(client, attempts=2)
        finally:
            location.cable.mend()
        for time in range(6, 12):
            append(write, time, LARGE)
        while len(client.core.state.collections[read.id].batches) > 4 or not (
            client.core.state.rollups
        ):
            threading.Event().wait(0.01)
            client.core.submit(SetItem("tick", os.urandom(4))).result()
        assert read.snapshot(11).to_table().num_rows == LARGE
        assert_sound(client)


def test_stopping_without_postgresql_ends_and_loses_nothing(location: SharedLocation) -> None:
    client = location.open(settings=Settings(maintenance=False, retry=PATIENT, stop_ms=200))
    write, _ = client.create_or_load("t", SCHEMA)
    append(write, 0)
    location.postgres.stop()
    try:
        pending = write.seal(9)
        client.stop()
        assert pending.exception(timeout=0) is not None
    finally:
        location.postgres.start()
    with pytest.raises(AlreadyLocked):
        location.open()  # nobody could release the role
    with location.open(take_over=True) as again:
        # In doubt means either; and what was acknowledged is there.
        assert again.reader("t").upper in (Frontier.of(1), Frontier.of(9))
        assert again.reader("t").snapshot(0).to_table().num_rows == 1

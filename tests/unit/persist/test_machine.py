"""The committing loop survives what its callers do: only the one who is wrong is told so."""

from __future__ import annotations

import gc
import threading
import traceback
import weakref
from concurrent.futures import Future
from typing import Any

import pyarrow as pa
import pytest

from headwater.algebra.frontier import Frontier
from headwater.base.errors import HeadwaterError, InvalidUsage
from headwater.base.ids import SeqNo
from headwater.persist import machine
from headwater.persist.blob import MemoryBlob
from headwater.persist.client import Client, open_location
from headwater.persist.commands import (
    All,
    Atomic,
    Command,
    Done,
    OpenReader,
    Outcome,
    Seal,
    SetItem,
)
from headwater.persist.consensus import MemoryConsensus
from headwater.persist.core import Core, Settings
from headwater.persist.errors import Corrupt, SealRegression, Stopped
from headwater.persist.location import AppendOutcome, LogEntry
from headwater.persist.state import State

SCHEMA = pa.schema([pa.field("k", pa.int64())])
QUIET = Settings(maintenance=False)


def opened(blob: MemoryBlob | None = None, log: MemoryConsensus | None = None) -> Client:
    return open_location(
        blob=blob or MemoryBlob(),
        consensus=log or MemoryConsensus(),
        settings=QUIET,
        take_over=True,
    )


def large(time: int) -> pa.Table:
    return pa.table(
        {
            "k": pa.array(range(5_000), pa.int64()),
            "__time": pa.array([time] * 5_000, pa.int64()),
            "__diff": pa.array([1] * 5_000, pa.int64()),
        }
    )


def as_one_group(core: Core, commands: list[Any]) -> list[Future[Outcome]]:
    """Submit commands so that the machine finds all of them ready at once."""
    held: Future[Command] = Future()
    assert core.machine is not None
    futures = [core.machine.submit_prepared(held)]
    futures += [core.submit(command) for command in commands]
    held.set_result(SetItem("first", b"1"))
    return futures


# ---- wrong requests --------------------------------------------------------------------------


@pytest.mark.parametrize("upper", ["soon", 5.5, object()])
def test_a_time_that_is_none_is_refused_at_the_call(upper: Any) -> None:
    with opened() as client:
        write, read = client.create_or_load("t", SCHEMA)
        with pytest.raises(TypeError):
            write.seal(upper)
        assert write.seal(5).result() == Done()
        assert read.upper == Frontier.of(5)


def test_a_numpy_integer_is_a_time() -> None:
    numpy = pytest.importorskip("numpy")
    with opened() as client:
        write, read = client.create_or_load("t", SCHEMA)
        write.seal(numpy.int64(5)).result()
        assert read.upper == Frontier.of(5)


def test_a_command_that_cannot_be_decided_hurts_nobody_else() -> None:
    with opened() as client:
        write, read = client.create_or_load("t", SCHEMA)
        wrong: Any = Seal((write.id,), 5.5)  # type: ignore[arg-type]
        first, refused, last = as_one_group(client.core, [wrong, Seal((write.id,), Frontier.of(7))])
        assert first.result() == Done()
        with pytest.raises(TypeError):
            refused.result()
        assert last.result() == Done()
        assert read.upper == Frontier.of(7)


def test_what_follows_in_a_group_sees_all_that_an_atomic_command_did() -> None:
    with opened() as client:
        write, read = client.create_or_load("t", SCHEMA)
        both = Atomic((Seal((write.id,), Frontier.of(5)), SetItem("a", b"1")))
        _, first, too_late, last = as_one_group(
            client.core,
            [both, Seal((write.id,), Frontier.of(4)), Seal((write.id,), Frontier.of(6))],
        )
        assert first.result() == All((Done(), Done()))
        with pytest.raises(SealRegression):
            too_late.result()
        assert last.result() == Done()
        assert read.upper == Frontier.of(6)


@pytest.mark.parametrize("value", ["text", 2**70, object()])
def test_what_could_not_be_read_back_is_never_committed(value: Any) -> None:
    """It would poison the log: nobody could open the location any more."""
    blob, log = MemoryBlob(), MemoryConsensus()
    with opened(blob, log) as client:
        futures = as_one_group(client.core, [SetItem("bad", value), SetItem("good", b"2")])
        assert futures[0].result() == Done()
        with pytest.raises(InvalidUsage, match="cannot be written"):
            futures[1].result()
        assert futures[2].result() == Done()
    with opened(blob, log) as again:
        items = again.core.state.items
        assert (items["first"], items["good"], "bad" in items) == (b"1", b"2", False)


# ---- futures ---------------------------------------------------------------------------------


def test_a_submitted_request_cannot_be_withdrawn() -> None:
    """Else a cancellation could come between the commit and its announcement."""
    with opened() as client:
        write, read = client.create_or_load("t", SCHEMA)
        sealed = write.seal(5)
        assert not sealed.cancel()
        assert sealed.result() == Done()
        assert read.upper == Frontier.of(5)


def test_a_callback_may_submit_though_the_queue_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs in the thread that empties the queue, and must not wait for itself."""
    monkeypatch.setattr(machine, "QUEUE_MAX", 4)
    with opened() as client:
        core = client.core
        assert core.machine is not None
        held: Future[Command] = Future()
        first = core.machine.submit_prepared(held)
        behind: list[Future[Outcome]] = []
        submitted = threading.Event()

        def submit_more(_: Future[Outcome]) -> None:
            behind.extend(core.submit(SetItem(f"more/{n}", b"")) for n in range(10))
            submitted.set()

        first.add_done_callback(submit_more)
        blocked: Future[Command] = Future()
        futures = [core.machine.submit_prepared(blocked) for _ in range(3)]
        held.set_result(SetItem("first", b""))
        submitted.wait()
        blocked.set_result(SetItem("blocked", b""))
        assert [future.result() for future in (*futures, *behind)] == [Done()] * 13


def test_a_listener_that_fails_costs_nobody_his_answer(caplog: pytest.LogCaptureFixture) -> None:
    with opened() as client:

        def fails(_: State) -> None:
            raise RuntimeError("no listener")

        heard: list[SeqNo] = []
        client.core.subscribe(fails)
        client.core.subscribe(lambda state: heard.append(state.seqno))
        write, _ = client.create_or_load("t", SCHEMA)
        assert write.seal(5).result() == Done()
        assert heard == [1, 2]
    assert "no listener" in caplog.text


def test_the_same_refusal_many_times_does_not_grow() -> None:
    """An exception that is raised again keeps every frame it ever passed."""
    client = opened()
    write, read = client.create_or_load("t", SCHEMA)
    client.stop()
    for _ in range(50):
        for call in (lambda: write.seal(5), lambda: read.snapshot(9)):
            with pytest.raises(Stopped) as refused:
                call()
            assert len(traceback.extract_tb(refused.value.__traceback__)) < 20


# ---- parts and the end -----------------------------------------------------------------------


def test_a_write_that_races_with_the_end_of_the_pool_is_still_written() -> None:
    """Submitted before the stop, prepared after the pool had closed: nobody may wait for ever."""
    blob, log = MemoryBlob(), MemoryConsensus()
    client = opened(blob, log)
    write, _ = client.create_or_load("t", SCHEMA)
    client.core._prepare.shutdown()
    written = write.write(large(0))
    sealed = write.seal(1)
    client.stop()
    assert (written.result(timeout=0), sealed.result(timeout=0)) == (Done(), Done())
    with opened(blob, log) as again:
        assert again.reader("t").snapshot(0).to_table().num_rows == 5_000


def test_whoever_submits_too_much_waits() -> None:
    """The queue bounds how many requests there are, and this how large they are together."""
    gate = threading.Event()

    class Slow(MemoryBlob):
        def create(self, key: str, data: bytes) -> bool:
            gate.wait()
            return super().create(key, data)

    size = large(0).nbytes
    settings = Settings(maintenance=False, pending_bytes=2 * size)
    with open_location(blob=Slow(), consensus=MemoryConsensus(), settings=settings) as client:
        write, read = client.create_or_load("t", SCHEMA)
        futures: list[Future[Outcome]] = []
        submitted = [threading.Event() for _ in range(5)]

        def submit() -> None:
            for time, event in enumerate(submitted):
                futures.append(write.write(large(time)))
                event.set()

        submitter = threading.Thread(target=submit)
        submitter.start()
        assert submitted[1].wait(20)
        assert not submitted[2].wait(0.05)
        gate.set()
        submitter.join()
        assert [future.result() for future in futures] == [Done()] * 5
        write.seal(5).result()
        assert read.snapshot(4).to_table().num_rows == 5_000
        # One that is larger than all that is allowed passes alone.
        client.core._backlog.take(3 * size, wait=True)
        client.core._backlog.give_back(3 * size)


def test_a_second_stop_waits_for_the_first() -> None:
    """Whoever has stopped a location may open it again."""
    blob, log = MemoryBlob(), MemoryConsensus()
    client = open_location(blob=blob, consensus=log, settings=QUIET)
    core = client.core
    ending, go_on = threading.Event(), threading.Event()

    def linger() -> None:
        ending.set()
        go_on.wait()
        core.stop()  # from inside, it must not wait for itself

    core.on_stop.append(linger)
    first = threading.Thread(target=client.stop)
    first.start()
    ending.wait()
    second = threading.Thread(target=client.stop)
    second.start()
    second.join(0.05)
    assert second.is_alive()
    go_on.set()
    second.join()
    open_location(blob=blob, consensus=log, settings=QUIET).stop()  # the role is free
    first.join()


def test_a_hook_that_fails_does_not_keep_the_role(caplog: pytest.LogCaptureFixture) -> None:
    blob, log = MemoryBlob(), MemoryConsensus()
    client = open_location(blob=blob, consensus=log, settings=QUIET)

    def fails() -> None:
        raise RuntimeError("no hook")

    client.core.on_stop.append(fails)
    client.stop()
    open_location(blob=blob, consensus=log, settings=QUIET).stop()
    assert "no hook" in caplog.text


def test_requests_are_counted_with_the_time_they_took() -> None:
    with opened() as client:
        write, _ = client.create_or_load("t", SCHEMA)
        write.seal(1).result()
        client.core.submit(SetItem("k", b"v")).result()
        registry = client.core.metrics.registry
        count = registry.get_sample_value("headwater_persist_commit_seconds_count")
        # The last one may be answered and not yet counted.
        assert count in (2.0, 3.0, 4.0)


# ---- time ------------------------------------------------------------------------------------


class Restless:
    """A clock that shows another time at every look, now later, now earlier."""

    def __init__(self) -> None:
        self._now_ms = 1_000_000
        self._step_ms = 1

    def now_ms(self) -> int:
        self._step_ms *= -3
        self._now_ms += self._step_ms
        return self._now_ms

    def sleep(self, seconds: float) -> None:
        pass


def test_an_entry_carries_the_time_it_was_decided_at() -> None:
    """Else a lease would begin at a time that the log never was at."""
    client = open_location(
        blob=MemoryBlob(), consensus=MemoryConsensus(), settings=QUIET, clock=Restless()
    )
    with client:
        write, _ = client.create_or_load("t", SCHEMA)
        for number in range(6):
            before = client.core.state.clock_ms
            reader_id = f"r{number}"
            client.core.submit(OpenReader(write.id, reader_id, "test", lease_ms=500)).result()
            state = client.core.state
            assert state.clock_ms >= before
            reader = state.collections[write.id].readers[reader_id]
            assert reader.expires_ms == state.clock_ms + 500


# ---- a log that is not what it was -----------------------------------------------------------


class Restored:
    """A log that is exchanged under a running process for an older copy of itself."""

    def __init__(self) -> None:
        self._inner = MemoryConsensus()
        self._copy: list[LogEntry] = []

    def back_up(self) -> None:
        self._copy = list(self._inner.scan(SeqNo(0), 1_000))

    def restore(self) -> None:
        older = MemoryConsensus()
        for entry in self._copy:
            older.append(entry.seqno, entry.data)
        self._inner = older

    def head(self) -> SeqNo | None:
        return self._inner.head()

    def append(self, seqno: SeqNo, data: bytes) -> AppendOutcome:
        return self._inner.append(seqno, data)

    def scan(self, start: SeqNo, limit: int) -> tuple[LogEntry, ...]:
        return self._inner.scan(start, limit)

    def truncate(self, seqno: SeqNo) -> int:
        return self._inner.truncate(seqno)

    def close(self) -> None:
        pass


def test_a_backup_restored_under_a_writer_is_noticed() -> None:
    log = Restored()
    client = open_location(blob=MemoryBlob(), consensus=log, settings=QUIET)
    write, _ = client.create_or_load("t", SCHEMA)
    log.back_up()
    write.seal(5).result()
    write.seal(6).result()
    log.restore()
    with pytest.raises(Stopped) as told:
        write.seal(7).result()
    assert Corrupt.__name__ in told.value.__notes__[0]
    assert "ends at entry" in str(told.value)
    client.stop()


def test_a_runtime_that_failed_is_dropped_with_its_last_client() -> None:
    """What it remembers of its failure must not keep those alive to whom it was told."""
    blob, consensus = MemoryBlob(), MemoryConsensus()
    client = open_location(blob=blob, consensus=consensus, settings=QUIET)
    write, _ = client.create_or_load("t", SCHEMA)
    with open_location(blob=blob, consensus=consensus, settings=QUIET, take_over=True):
        for _ in range(2):
            with pytest.raises(HeadwaterError):
                write.seal(1).result()
        with pytest.raises(HeadwaterError):
            client.create_or_load("u", SCHEMA)
        gone = weakref.ref(client)
        del client, write
        gc.collect()
        assert gone() is None

"""Transient failures: retried inside, seen from outside, and given up in bounded time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pyarrow as pa
import pytest

from headwater.algebra.frontier import Frontier
from headwater.base.clock import ManualClock
from headwater.base.errors import Determinate, ExternalError, Indeterminate
from headwater.base.ids import BatchId, SeqNo
from headwater.base.retry import RetryPolicy, RetryState
from headwater.persist.blob import MemoryBlob
from headwater.persist.client import Client, open_location
from headwater.persist.commands import AlreadyDone, Done
from headwater.persist.consensus import MemoryConsensus
from headwater.persist.core import Settings
from headwater.persist.errors import Stopped
from headwater.testing.awaited import until
from headwater.testing.unreliable import InterceptedBlob, InterceptedConsensus, Kind, Outage

SCHEMA = pa.schema([pa.field("k", pa.int64())])
ATTEMPTS = 5
POLICY = RetryPolicy(first_ms=10, limit_ms=1_000, attempts_max=ATTEMPTS)
PATIENT = RetryPolicy(first_ms=1, limit_ms=2, attempts_max=1_000_000)
"""Attempts for as long as a test lets an outage last."""

Answer = TypeVar("Answer")


def rows(count: int, time: int) -> pa.Table:
    """5,000 rows are an object in blob; a few are inline in the log."""
    return pa.table(
        {
            "k": pa.array(range(count), pa.int64()),
            "__time": pa.array([time] * count, pa.int64()),
            "__diff": pa.array([1] * count, pa.int64()),
        }
    )


class LosesReplies:
    """Performs the next ``count`` calls that begin with ``call``, and loses their replies."""

    def __init__(self, call: str, count: int = 1) -> None:
        self.call, self.left = call, count

    def __call__(self, kind: Kind, call: str, perform: Callable[[], Answer]) -> Answer:
        answer = perform()
        if self.left and call.startswith(self.call):
            self.left -= 1
            raise Indeterminate(f"injected: the reply was lost: {call}")
        return answer

    def may_close(self) -> bool:
        return True


class World:
    """Storage in memory behind a switch."""

    def __init__(self) -> None:
        self.blob, self.log = MemoryBlob(), MemoryConsensus()
        self.outage = Outage()

    def open(self, retry: RetryPolicy = POLICY, *, read_only: bool = False) -> Client:
        return open_location(
            blob=self.outage.blob(self.blob),
            consensus=self.outage.consensus(self.log),
            clock=ManualClock(1_000),
            read_only=read_only,
            settings=Settings(maintenance=False, retry=retry),
        )


@contextmanager
def opened(world: World, retry: RetryPolicy = POLICY) -> Iterator[Client]:
    client = world.open(retry)
    try:
        yield client
    finally:
        world.outage.end()
        client.stop()


def failures(client: Client, kind: str) -> float:
    return float(client.core.metrics.failures.labels(kind)._value.get())


def sample(client: Client, name: str) -> float | None:
    return client.core.metrics.registry.get_sample_value(f"headwater_persist_{name}")


# ---- one request in an outage ----------------------------------------------------------------


def test_a_determinate_failure_is_retried_then_raised_and_nothing_has_changed() -> None:
    world = World()
    with opened(world) as client:
        write, read = client.create_or_load("t", SCHEMA)
        head = world.log.head()
        world.outage.begin(Determinate)
        with pytest.raises(Determinate, match="storage is down: append"):
            write.seal(5).result()
        assert failures(client, "determinate") == ATTEMPTS
        assert world.log.head() == head
        world.outage.end()
        assert read.upper == Frontier.of(0)
        assert write.seal(4).result() == Done()  # not {5}: that never happened


def test_a_determinate_failure_that_passes_is_not_seen() -> None:
    world = World()
    with opened(world, PATIENT) as client:
        write, read = client.create_or_load("t", SCHEMA)
        world.outage.begin(Determinate)
        sealed = write.seal(5)
        until(lambda: client.core.retry_state is not None, "another try")
        world.outage.end()
        assert sealed.result() == Done()
        assert read.upper == Frontier.of(5)


def test_an_indeterminate_failure_leaves_the_entry_to_the_next_request() -> None:
    world = World()
    with opened(world) as client:
        write, read = client.create_or_load("t", SCHEMA)
        head = world.log.head()
        assert head is not None
        token = BatchId("w1")
        world.outage.begin()
        with pytest.raises(Indeterminate, match=f"entry {head + 1} is unresolved"):
            write.write([({"k": 1}, 0, 1)], token=token).result()
        assert world.log.head() == head
        world.outage.end()

        # The next request resolves it first: what was in doubt is now there, once.
        assert write.seal(1).result() == Done()
        assert read.snapshot(0).to_table().to_pylist() == [{"k": 1, "__diff": 1}]
        assert write.write([({"k": 1}, 0, 1)], token=token).result() == AlreadyDone()


def test_a_request_that_finds_the_doubt_undecidable_is_in_doubt_itself() -> None:
    world = World()
    with opened(world) as client:
        write, read = client.create_or_load("t", SCHEMA)
        world.outage.begin()
        for time in range(3):
            with pytest.raises(Indeterminate, match="unresolved"):
                write.write([({"k": time}, time, 1)]).result()
        world.outage.end()
        write.seal(3).result()
        # Only the first was ever sent; the others never got so far, and are not there.
        assert read.snapshot(2).to_table().column("k").to_pylist() == [0]


def test_a_lost_reply_is_found_in_the_log() -> None:
    world = World()
    losing = LosesReplies("append", count=0)
    client = open_location(
        blob=world.blob,
        consensus=InterceptedConsensus(world.log, losing),
        clock=ManualClock(),
        settings=Settings(maintenance=False, retry=POLICY),
    )
    with client:
        write, read = client.create_or_load("t", SCHEMA)
        losing.left = 1
        assert write.write([({"k": 7}, 0, 1)]).result() == Done()
        losing.left = 1
        assert write.seal(1).result() == Done()
        assert read.snapshot(0).to_table().column("k").to_pylist() == [7]


def test_a_part_whose_first_attempt_did_happen_is_recognised() -> None:
    world = World()
    losing = LosesReplies("create", count=2)
    client = open_location(
        blob=InterceptedBlob(world.blob, losing),
        consensus=world.log,
        clock=ManualClock(),
        settings=Settings(maintenance=False, retry=POLICY),
    )
    with client:
        write, read = client.create_or_load("t", SCHEMA)
        assert write.write(rows(5_000, 0)).result() == Done()
        write.seal(1).result()
        assert losing.left == 0
        assert read.snapshot(0).to_table().num_rows == 5_000
        assert len(list(world.blob.list("part/"))) == 1


def test_a_part_that_cannot_be_written_fails_its_request_alone() -> None:
    world = World()
    switch = Outage()
    client = open_location(
        blob=switch.blob(world.blob),
        consensus=world.log,
        clock=ManualClock(),
        settings=Settings(maintenance=False, retry=POLICY),
    )
    with client:
        write, read = client.create_or_load("t", SCHEMA)
        switch.begin(Determinate)
        large, small = write.write(rows(5_000, 0)), write.write([({"k": -1}, 0, 1)])
        with pytest.raises(Determinate, match="create part/"):
            large.result()
        assert small.result() == Done()
        switch.end()
        write.seal(1).result()
        assert read.snapshot(0).to_table().column("k").to_pylist() == [-1]


# ---- seen from outside -----------------------------------------------------------------------


def test_an_outage_can_be_seen_while_it_lasts_and_not_after() -> None:
    world = World()
    with opened(world, PATIENT) as client:
        write, _ = client.create_or_load("t", SCHEMA)
        world.outage.begin()
        sealed = write.seal(5)
        seen: RetryState | None = None
        while seen is None or seen.attempts < 3:
            seen = client.core.retry_state
            threading.Event().wait(0.001)
        assert "storage is down" in seen.cause
        assert seen.next_try_ms >= 1_000
        attempts = sample(client, "retry_attempts")
        assert attempts is not None
        assert attempts >= 3
        assert (sample(client, "retry_next_try_ms") or 0) >= 1_000
        world.outage.end()
        assert sealed.result() == Done()
        assert client.core.retry_state is None
        assert sample(client, "retry_attempts") == 0


def test_an_outage_that_was_given_up_is_shown_until_storage_answers_again() -> None:
    world = World()
    with opened(world) as client:
        write, _ = client.create_or_load("t", SCHEMA)
        world.outage.begin()
        with pytest.raises(Indeterminate):
            write.seal(5).result()
        given_up = client.core.retry_state
        assert given_up is not None
        assert given_up.attempts == ATTEMPTS
        world.outage.end()
        write.seal(6).result()
        assert client.core.retry_state is None


def test_of_two_operations_that_fail_one_that_recovers_does_not_hide_the_other() -> None:
    world = World()
    with opened(world, PATIENT) as client:
        go_on = threading.Event()

        def failing_until_told() -> None:
            # A real pause: on a manual clock a million attempts are over in a moment.
            if not go_on.wait(0.001):
                raise Indeterminate("down")

        other = threading.Thread(target=client.core.retrying, args=(failing_until_told,))
        other.start()
        until(lambda: client.core.retry_state is not None, "another try")
        once = iter([Indeterminate("a moment"), None])

        def failing_once() -> None:
            failure = next(once)
            if failure is not None:
                raise failure

        client.core.retrying(failing_once)
        seen = client.core.retry_state
        go_on.set()
        other.join()
        assert seen is not None
        assert "down" in seen.cause
        assert client.core.retry_state is None


# ---- reading in an outage --------------------------------------------------------------------


@pytest.mark.parametrize("failure", [Determinate, Indeterminate])
def test_what_is_known_is_read_in_an_outage_of_the_log(failure: type[ExternalError]) -> None:
    world = World()
    with opened(world) as client:
        write, read = client.create_or_load("t", SCHEMA)
        write.compare_and_append([({"k": 1}, 0, 1)], 0, 5).result()
        world.outage.begin(failure)  # type: ignore[arg-type]
        assert read.snapshot(4).to_table().column("k").to_pylist() == [1]
        with pytest.raises(TimeoutError):
            read.snapshot(5, timeout=0.01)


def test_a_part_is_fetched_again_until_it_comes() -> None:
    world = World()
    with opened(world, PATIENT) as client:
        write, read = client.create_or_load("t", SCHEMA)
        write.compare_and_append(rows(5_000, 0), 0, 1).result()
        world.outage.begin()
        snapshot = read.snapshot(0)
        fetched: list[pa.Table] = []
        reading = threading.Thread(target=lambda: fetched.append(snapshot.to_table()))
        reading.start()
        until(lambda: client.core.retry_state is not None, "another try")
        world.outage.end()
        reading.join()
        assert fetched[0].num_rows == 5_000


def test_a_reader_gives_up_by_its_own_timeout() -> None:
    world = World()
    with opened(world) as client:
        client.create_or_load("t", SCHEMA)
        reader = world.open(PATIENT, read_only=True)
        read = reader.reader("t")
        world.outage.begin()
        with pytest.raises(Indeterminate):
            read.snapshot(5, timeout=0.05)
        reader.stop()


# ---- stopping in an outage -------------------------------------------------------------------


@pytest.mark.parametrize("failure", [Determinate, Indeterminate])
def test_stopping_in_an_outage_ends(failure: type[ExternalError]) -> None:
    """The waits of this policy would keep it for hours."""
    world = World()
    client = open_location(
        blob=world.outage.blob(world.blob),
        consensus=world.outage.consensus(world.log),
        settings=Settings(
            maintenance=False,
            retry=RetryPolicy(first_ms=3_600_000, limit_ms=3_600_000, attempts_max=100),
            stop_ms=50,
        ),
    )
    write, _ = client.create_or_load("t", SCHEMA)
    world.outage.begin(failure)  # type: ignore[arg-type]
    pending = [write.write(rows(5_000, time)) for time in range(4)]
    pending += [write.seal(time) for time in range(5, 2_000)]
    client.stop()
    for future in pending:
        assert isinstance(future.exception(timeout=0), ExternalError | Stopped)

    # Nobody released the role; nothing was lost either.
    world.outage.end()
    with open_location(blob=world.blob, consensus=world.log, take_over=True) as again:
        assert again.reader("t").upper in (Frontier.of(0), Frontier.of(5))


def test_a_stop_waits_out_a_short_outage_for_what_was_promised() -> None:
    world = World()
    client = world.open(PATIENT)
    write, _ = client.create_or_load("t", SCHEMA)
    world.outage.begin()
    pending = [write.write(rows(5_000, 0)), write.write([({"k": 1}, 0, 1)]), write.seal(1)]
    stopping = threading.Thread(target=client.stop)
    stopping.start()
    until(lambda: client.core.stopped, "the stop")
    threading.Event().wait(0.02)
    world.outage.end()
    stopping.join()
    assert [future.result(timeout=0) for future in pending] == [Done()] * 3
    assert SeqNo(1) <= (world.log.head() or -1)
    with world.open() as again:  # the role was released
        assert again.reader("t").snapshot(0).to_table().num_rows == 5_000

"""What this process is reading is safe from its own merges and collections, and only as long."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from headwater.algebra.frontier import Frontier
from headwater.base.ids import BatchId
from headwater.persist.batch import TIME_LIMIT
from headwater.persist.blob import MemoryBlob
from headwater.persist.client import Client, open_location, pending_parts
from headwater.persist.commands import Done, Seal, Write
from headwater.persist.consensus import MemoryConsensus
from headwater.persist.core import Settings
from headwater.persist.errors import AlreadyLocked, Corrupt, Fenced, TimeOutOfBounds
from headwater.persist.maintenance import Maintenance
from headwater.persist.read import Progress, Updates

SCHEMA = pa.schema([pa.field("k", pa.int64())])
QUIET = Settings(maintenance=False)


def rows(time: int, count: int = 5_000) -> pa.Table:
    return pa.table(
        {
            "k": pa.array(range(count), pa.int64()),
            "__time": pa.array([time] * count, pa.int64()),
            "__diff": pa.array([1] * count, pa.int64()),
        }
    )


def opened(blob: MemoryBlob, log: MemoryConsensus, **how: Any) -> Client:
    return open_location(blob=blob, consensus=log, settings=QUIET, **how)


def ends(work: Callable[[], None]) -> bool:
    """Whether the work comes to an end, and does not wait for itself."""
    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    worker.join(20)
    return not worker.is_alive()


# ---- finalizers ------------------------------------------------------------------------------


def test_a_snapshot_may_be_collected_at_any_allocation() -> None:
    """Its finalizer then runs in a thread that is just counting pins, or holds."""
    client = opened(MemoryBlob(), MemoryConsensus())
    write, read = client.create_or_load("t", SCHEMA)
    write.compare_and_append(rows(0), 0, 1).result()
    in_use = client.core.in_use

    def drop_in_the_middle() -> None:
        snapshot, listen = read.snapshot_and_listen(0)
        with in_use._lock:
            del snapshot, listen

    assert ends(drop_in_the_middle)
    assert in_use.pinned() == frozenset()
    assert in_use.merge_since(read.id, Frontier.of(9)) == Frontier.of(9)
    client.stop()


def test_a_listen_closed_while_it_fetches_holds_nothing() -> None:
    """Closing is the other thread's way to end it: a move that comes late must not hold again."""
    with opened(MemoryBlob(), MemoryConsensus()) as client:
        write, read = client.create_or_load("t", SCHEMA)
        listen = read.listen(0)
        listen.close()
        listen._hold.move(3)
        write.compare_and_append(rows(0), 0, 5).result()
        assert client.core.in_use.merge_since(read.id, Frontier.of(9)) == Frontier.of(9)


def test_a_snapshot_never_pins_what_is_being_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread was preempted between its look at the state and its pin."""
    blob, log = MemoryBlob(), MemoryConsensus()
    with opened(blob, log) as client:
        core = client.core
        write, read = client.create_or_load("t", SCHEMA)
        for time in range(4):
            write.compare_and_append(rows(time), time, time + 1).result()
        before = core.state.collections[read.id]
        maintenance = Maintenance(core)
        assert maintenance.merge_one(read.id)
        looks = [before]
        wait = core.wait

        def preempted(*arguments: Any) -> Any:
            return looks.pop() if looks else wait(*arguments)

        monkeypatch.setattr(core, "wait", preempted)
        taken: list[Any] = []
        delete = blob.delete

        def meanwhile(key: str) -> bool:
            deleted = delete(key)
            if not taken:
                taken.append(read.snapshot(3))
            return deleted

        monkeypatch.setattr(blob, "delete", meanwhile)
        maintenance.collect()
        assert sum(table.num_rows for table in taken[0].updates()) == 20_000


# ---- garbage ---------------------------------------------------------------------------------


def test_an_object_of_an_open_step_is_not_garbage() -> None:
    """One object has segments for several collections, and not all are committed at once."""
    blob, log = MemoryBlob(), MemoryConsensus()
    with opened(blob, log) as client:
        core = client.core
        one, _ = client.create_or_load("one", SCHEMA)
        two, read = client.create_or_load("two", SCHEMA)
        maintenance = Maintenance(core)
        with core.step() as step:
            pending = [*pending_parts(core, one.id, rows(0)), *pending_parts(core, two.id, rows(0))]
            first, second = step.write(pending)
            core.submit(Write(one.id, BatchId("1"), (first,))).result()
            client.destroy("one")
            maintenance.collect()
            assert core.submit(Write(two.id, BatchId("2"), (second,))).result() == Done()
            two.seal(1).result()
        assert read.snapshot(0).to_table().num_rows == 5_000
        client.destroy("two")
        maintenance.collect()
        assert list(blob.list("part/")) == []


def test_one_corrupted_collection_does_not_keep_the_rest_from_its_upkeep() -> None:
    blob, log = MemoryBlob(), MemoryConsensus()
    with opened(blob, log) as client:
        core = client.core
        bad, _ = client.create_or_load("bad", SCHEMA)
        good, _ = client.create_or_load("good", SCHEMA)
        for time in range(8):
            bad.compare_and_append(rows(time), time, time + 1).result()
        for info in list(blob.list("part/")):
            data = blob.get(info.key)
            assert data is not None
            blob.delete(info.key)
            blob.create(info.key, data[:-1] + bytes((data[-1] ^ 1,)))
        for time in range(8):
            good.compare_and_append(rows(time), time, time + 1).result()
        maintenance = Maintenance(core)
        maintenance.once()
        assert len(core.state.collections[good.id].batches) < 8
        assert len(core.state.collections[bad.id].batches) == 8
        assert "corrupted" in maintenance.last_error
        with pytest.raises(Corrupt):
            client.reader("bad").snapshot(7).to_table()


def test_upkeep_ends_when_the_role_is_lost() -> None:
    blob, log = MemoryBlob(), MemoryConsensus()
    first = open_location(blob=blob, consensus=log)
    write, _ = first.create_or_load("t", SCHEMA)
    (upkeep,) = [t for t in threading.enumerate() if t.name == "headwater-maintain"]
    with opened(blob, log, take_over=True):
        with pytest.raises(Fenced):
            write.seal(1).result()
        upkeep.join(20)
        assert not upkeep.is_alive()
    first.stop()


# ---- opening ---------------------------------------------------------------------------------


def test_an_opening_that_fails_half_way_gives_the_role_back() -> None:
    blob, log = MemoryBlob(), MemoryConsensus()
    nowhere = Settings(maintenance=False, notify=True, notify_host="256.0.0.1")
    with pytest.raises(OSError, match=r".+"):
        open_location(blob=blob, consensus=log, settings=nowhere)
    opened(blob, log).stop()


def test_an_opening_that_is_refused_takes_nothing() -> None:
    blob, log = MemoryBlob(), MemoryConsensus()
    with opened(blob, log, holder="the first one") as client:
        head = log.head()
        with pytest.raises(AlreadyLocked, match="the first one"):
            opened(blob, log)
        assert log.head() == head
        client.create_or_load("t", SCHEMA)


# ---- the ends of time ------------------------------------------------------------------------


def test_the_last_time_there_is() -> None:
    last = TIME_LIMIT - 1
    with opened(MemoryBlob(), MemoryConsensus()) as client:
        write, read = client.create_or_load("t", SCHEMA)
        listen = read.listen(0)
        assert write.write([({"k": 1}, last, 1)]).result() == Done()
        with pytest.raises(TimeOutOfBounds):
            write.write([({"k": 1}, last + 1, 1)]).result()
        with pytest.raises(TimeOutOfBounds):
            write.seal(last + 1).result()
        write.seal(last).result()
        assert listen.fetch() == Progress(Frontier.of(last))
        write.seal(None).result()  # only the end of time is after the last time
        assert read.snapshot().as_of == last
        assert read.snapshot(last).to_table().to_pylist() == [{"k": 1, "__diff": 1}]
        assert read.snapshot(last - 1).to_table().num_rows == 0
        updates = listen.fetch()
        assert isinstance(updates, Updates)
        assert updates.ok.column("__time").to_pylist() == [last]
        for beyond in (last + 1, -1):
            with pytest.raises(TimeOutOfBounds):
                read.snapshot(beyond)
        after = read.listen(last)
        assert after.fetch() == Progress(Frontier.closed())


def test_a_clock_that_goes_back_moves_nothing_back() -> None:
    from headwater.base.clock import ManualClock

    clock = ManualClock(10_000)
    with opened(MemoryBlob(), MemoryConsensus(), clock=clock) as client:
        write, _ = client.create_or_load("t", SCHEMA)
        before = client.core.state.clock_ms
        clock.set(5)
        write.seal(1).result()
        assert client.core.state.clock_ms == before
        # What is waited for is not a matter of what time it is.
        with pytest.raises(TimeoutError):
            client.reader("t").snapshot(9, timeout=0.01)


def test_nothing_at_all() -> None:
    with opened(MemoryBlob(), MemoryConsensus()) as client:
        write, read = client.create_or_load("t", SCHEMA)
        head = client.core.state.seqno
        assert write.write(rows(0, 0)).result() == Done()
        assert client.core.submit(Seal((), Frontier.of(5))).result() == Done()
        assert client.core.state.seqno == head  # neither says anything new
        write.compare_and_append(rows(0, 0), 0, 5).result()
        listen = read.listen(0)
        assert listen.fetch() == Progress(Frontier.of(5))
        assert read.snapshot(4).to_table().num_rows == 0
        assert read.snapshot(4).split(3)[0].to_table().num_rows == 0

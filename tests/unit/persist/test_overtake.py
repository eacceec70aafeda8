"""A request behind an unresolved one never overtakes it, whenever the lost message arrives.

The doubt is made by hand: an append is neither done nor refused but *on its way*, and arrives just
before the n-th call of the log after it, for every n. Whatever n is, the write stands in the log
once, before the seal that was asked for after it, and what the seal closed has the write in it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa
import pytest

from headwater.base.clock import ManualClock
from headwater.base.errors import Indeterminate
from headwater.base.ids import SeqNo
from headwater.base.retry import RetryPolicy
from headwater.persist.blob import MemoryBlob
from headwater.persist.changes import Sealed, Written
from headwater.persist.client import Client, open_location
from headwater.persist.commands import Done
from headwater.persist.consensus import MemoryConsensus
from headwater.persist.core import Settings
from headwater.persist.encoding import decode_entry
from headwater.persist.errors import Fenced
from headwater.persist.location import Blob, Consensus
from headwater.testing.unreliable import InterceptedBlob, InterceptedConsensus, Kind

SCHEMA = pa.schema([pa.field("k", pa.int64())])
CALLS_MAX = 12
"""More than an unresolved write and the seal behind it ever make."""

Answer = TypeVar("Answer")


class Delayed:
    """Takes one append off the wire and delivers it before the ``arrival``-th call after it."""

    def __init__(self, arrival: int) -> None:
        self._left = arrival
        self._armed = False
        self._on_its_way: Callable[[], object] | None = None

    def arm(self) -> None:
        self._armed = True

    def __call__(self, kind: Kind, call: str, perform: Callable[[], Answer]) -> Answer:
        if self._armed and call.startswith("append"):
            self._armed = False
            self._on_its_way = perform
            raise Indeterminate(f"injected: no answer yet: {call}")
        if self._on_its_way is not None:
            if self._left == 0:
                late, self._on_its_way = self._on_its_way, None
                late()
            self._left -= 1
        return perform()

    @property
    def arrived(self) -> bool:
        return not self._armed and self._on_its_way is None

    def may_close(self) -> bool:
        return True


def opened(blob: Blob, log: Consensus, attempts_max: int, *, take_over: bool = False) -> Client:
    return open_location(
        blob=blob,
        consensus=log,
        clock=ManualClock(),
        take_over=take_over,
        settings=Settings(
            maintenance=False, retry=RetryPolicy(first_ms=1, limit_ms=1, attempts_max=attempts_max)
        ),
    )


def story(log: MemoryConsensus) -> list[str]:
    """Return the writes and seals in the order of the log."""
    entries = [decode_entry(stored.seqno, stored.data) for stored in log.scan(SeqNo(0), 1_000)]
    changes = [change for entry in entries for change in entry.changes]
    return [type(change).__name__ for change in changes if isinstance(change, Written | Sealed)]


@pytest.mark.parametrize("arrival", range(CALLS_MAX))
@pytest.mark.parametrize("attempts_max", [1, 5])
def test_a_seal_waits_for_the_fate_of_the_write_before_it(arrival: int, attempts_max: int) -> None:
    blob, log, wire = MemoryBlob(), MemoryConsensus(), Delayed(arrival)
    with opened(blob, InterceptedConsensus(log, wire), attempts_max) as client:
        write, read = client.create_or_load("t", SCHEMA)
        wire.arm()
        written = write.write([({"k": 1}, 3, 1)])
        sealed = write.seal(5)
        if attempts_max == 1:
            # Given up, not decided: the caller does not know, the seal finds out.
            assert isinstance(written.exception(), Indeterminate)
            # It may share the write's group, and then its doubt.
            if sealed.exception() is not None:
                sealed = write.seal(5)
        else:
            assert written.result() == Done()
        assert sealed.result() == Done()
        assert read.snapshot(4).to_table().to_pylist() == [{"k": 1, "__diff": 1}]
    assert story(log) == ["Written", "Sealed"]


def test_every_arrival_was_tried() -> None:
    """The last one of the test above comes after all is over: no position is left out."""
    log, wire = MemoryConsensus(), Delayed(CALLS_MAX - 1)
    with opened(MemoryBlob(), InterceptedConsensus(log, wire), 5) as client:
        write, _ = client.create_or_load("t", SCHEMA)
        wire.arm()
        write.write([({"k": 1}, 3, 1)])
        write.seal(5).result()
    assert not wire.arrived


@pytest.mark.parametrize("arrival", range(CALLS_MAX))
def test_a_write_in_doubt_and_a_successor(arrival: int) -> None:
    """Another process takes over while the append is on its way: one of both is in the log."""
    blob, log, wire = MemoryBlob(), MemoryConsensus(), Delayed(arrival)
    first = opened(blob, InterceptedConsensus(log, wire), 1)
    write, _ = first.create_or_load("t", SCHEMA)
    wire.arm()
    with pytest.raises(Indeterminate):
        write.write([({"k": 1}, 3, 1)]).result()
    with opened(blob, InterceptedConsensus(log, wire), 5, take_over=True) as second:
        with pytest.raises(Fenced):
            write.seal(5).result()
        mine, read = second.create_or_load("t", SCHEMA)
        mine.seal(5).result()
        rows = read.snapshot(4).to_table().to_pylist()
        # Definite: in the log before the take-over, or never.
        assert rows in ([], [{"k": 1, "__diff": 1}])
        assert story(log) == (["Written", "Sealed"] if rows else ["Sealed"])
    first.stop()
    assert story(log) == (["Written", "Sealed"] if rows else ["Sealed"])


class Gate:
    """Holds every creation of an object until it is opened."""

    def __init__(self) -> None:
        self.reached, self.open = threading.Event(), threading.Event()

    def __call__(self, kind: Kind, call: str, perform: Callable[[], Answer]) -> Answer:
        if call.startswith("create part/"):
            self.reached.set()
            self.open.wait()
        return perform()

    def may_close(self) -> bool:
        return True


def test_a_seal_waits_for_parts_that_are_still_being_written() -> None:
    log, gate = MemoryConsensus(), Gate()
    with opened(InterceptedBlob(MemoryBlob(), gate), log, 5) as client:
        write, read = client.create_or_load("t", SCHEMA)
        other, _ = client.create_or_load("u", SCHEMA)
        large = pa.table(
            {
                "k": pa.array(range(5_000), pa.int64()),
                "__time": pa.array([3] * 5_000, pa.int64()),
                "__diff": pa.array([1] * 5_000, pa.int64()),
            }
        )
        behind = [write.write(large), write.seal(5), other.seal(9)]
        gate.reached.wait()
        assert not any(future.done() for future in behind)
        assert story(log) == []
        gate.open.set()
        assert [future.result() for future in behind] == [Done()] * 3
        assert read.snapshot(4).to_table().num_rows == 5_000
    assert story(log) == ["Written", "Sealed", "Sealed"]

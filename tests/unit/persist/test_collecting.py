"""Garbage is collected when it is worth it: by number, by size, in time, and by a successor."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.base.clock import ManualClock
from headwater.persist.blob import MemoryBlob
from headwater.persist.client import Client, WriteHandle, open_location
from headwater.persist.consensus import MemoryConsensus
from headwater.persist.core import Settings
from headwater.persist.maintenance import (
    GARBAGE_BYTES,
    GARBAGE_MS,
    GARBAGE_OBJECTS,
    Maintenance,
    is_worth_collecting,
)

SCHEMA = pa.schema([pa.field("k", pa.int64())])
ROWS = 5_000
BEGIN_MS = 1_000_000


def _updates(time: int, count: int = ROWS) -> pa.Table:
    return pa.table(
        {
            "k": pa.array(range(time * count, (time + 1) * count), pa.int64()),
            "__time": pa.array([time] * count, pa.int64()),
            "__diff": pa.array([1] * count, pa.int64()),
        }
    )


class _World:
    """A location in memory, its clock, and the one who keeps it up."""

    def __init__(self) -> None:
        self.blob, self.log, self.clock = MemoryBlob(), MemoryConsensus(), ManualClock(BEGIN_MS)
        self.client = self.opened()
        self.upkeep = Maintenance(self.client.core)
        self.write, self.read = self.client.create_or_load("t", SCHEMA)
        self.time = 0
        self.upkeep.once()

    def opened(self) -> Client:
        return open_location(
            blob=self.blob,
            consensus=self.log,
            clock=self.clock,
            take_over=True,
            settings=Settings(maintenance=False),
        )

    def merge(self, batches: int = 2) -> None:
        """Write batches that are merged when they are looked at next, and look."""
        _append(self.write, self.time, batches)
        self.time += batches
        self.upkeep.once()

    @property
    def garbage(self) -> int:
        return len(self.client.core.state.garbage)

    @property
    def objects(self) -> set[str]:
        return {info.key for info in self.blob.list("part/")}

    def is_clean(self) -> bool:
        return not self.garbage and self.objects == set(self.client.core.state.references)


def _append(write: WriteHandle, first: int, batches: int, count: int = ROWS) -> None:
    for time in range(first, first + batches):
        write.compare_and_append(_updates(time, count), time, time + 1).result()


@pytest.mark.parametrize(
    ("objects", "size", "waited_ms", "worth"),
    [
        (0, GARBAGE_BYTES, GARBAGE_MS, False),
        (1, 0, 0, False),
        (GARBAGE_OBJECTS - 1, GARBAGE_BYTES - 1, GARBAGE_MS - 1, False),
        (GARBAGE_OBJECTS, 0, 0, True),
        (1, GARBAGE_BYTES, 0, True),
        (1, 0, GARBAGE_MS, True),
    ],
)
def test_what_is_worth_it(objects: int, size: int, waited_ms: int, worth: bool) -> None:
    assert is_worth_collecting(objects, size, waited_ms) is worth


def test_a_merge_by_itself_collects_nothing_and_time_does() -> None:
    world = _World()
    world.merge()
    waiting = world.garbage
    assert waiting >= 2
    world.clock.set(BEGIN_MS + GARBAGE_MS - 1)
    world.upkeep.once()
    assert world.garbage == waiting
    assert len(world.objects) == waiting + len(world.client.core.state.references)
    world.clock.set(BEGIN_MS + GARBAGE_MS)
    world.upkeep.once()
    assert world.is_clean()
    # The time begins anew with the first that is let go after that, not with the last collection.
    world.clock.set(BEGIN_MS + 9 * GARBAGE_MS)
    world.upkeep.once()
    world.merge(4)
    assert world.garbage
    world.clock.set(BEGIN_MS + 8 * GARBAGE_MS)  # set back: it is not waited for
    world.upkeep.once()
    assert world.is_clean()


def test_it_gathers_up_to_a_number_while_no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.persist.maintenance.GARBAGE_OBJECTS", 16)
    world, most, collected = _World(), 0, 0
    for _ in range(16):
        before = world.garbage
        world.merge()
        collected += world.garbage < before
        most = max(most, world.garbage)
    assert 8 < most < 16
    assert 1 <= collected <= 4


def test_it_gathers_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    world = _World()
    world.merge()
    assert world.garbage
    limit = world.upkeep._let_go_bytes + 1
    monkeypatch.setattr("headwater.persist.maintenance.GARBAGE_BYTES", limit)
    world.upkeep.once()
    assert world.garbage
    world.merge(4)
    assert world.is_clean()
    monkeypatch.setattr("headwater.persist.maintenance.GARBAGE_BYTES", 100 * limit)
    world.merge(8)
    assert world.garbage, "what was collected does not count any more"


def test_what_is_still_read_waits_again() -> None:
    world = _World()
    _append(world.write, 0, 2)
    snapshot = world.read.snapshot(1)
    world.upkeep.once()
    world.clock.set(BEGIN_MS + GARBAGE_MS)
    world.upkeep.once()
    assert world.garbage
    assert snapshot.to_table().num_rows == 2 * ROWS
    del snapshot
    world.clock.set(BEGIN_MS + 2 * GARBAGE_MS)
    world.upkeep.once()
    assert world.is_clean()


def test_a_successor_begins_with_what_was_left() -> None:
    world = _World()
    world.merge()
    assert world.garbage
    world.client.core.stop(release=False)
    world.client = world.opened()
    Maintenance(world.client.core).once()
    assert world.is_clean()


def test_it_is_collected_in_the_background_without_any_more_commits(tmp_path: Path) -> None:
    clock = ManualClock(BEGIN_MS)
    with open_location(tmp_path, clock=clock) as client:
        write, read = client.create_or_load("t", SCHEMA)
        _append(write, 0, 4)
        core = client.core
        while len(core.state.collections[read.id].batches) == 4 or core.state.garbage:
            clock.set(clock.now_ms() + GARBAGE_MS)
            threading.Event().wait(0.01)
        assert read.snapshot(3).to_table().num_rows == 4 * ROWS

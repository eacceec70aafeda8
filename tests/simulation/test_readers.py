"""Readers beside merges and garbage collection, on real files and with real threads.

The collection is written so that every time tells what belongs to it: at ``t`` there are exactly
the rows ``0 … t``, except those a later time retracted. A reader that sees anything else has been
shown a half-collected part, two merges at once, or the future.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headwater.persist import read
from headwater.persist.blob.memory import MemoryBlob
from headwater.persist.client import Client, ReadHandle, open_location
from headwater.persist.consensus.memory import MemoryConsensus
from headwater.persist.core import Settings
from headwater.persist.errors import AsOfBeforeSince, PartCollected
from headwater.persist.maintenance import Maintenance
from headwater.persist.read import Updates

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())])
TIMES = 80
KEPT = 25
BIG = "x" * 9000


def rows_at(time: int) -> set[int]:
    """Every third row is retracted five times later."""
    return {k for k in range(time + 1) if k % 3 or k + 5 > time}


def updates_at(time: int) -> list[tuple[dict[str, Any], int, int]]:
    text = BIG if time % 4 == 0 else "small"
    updates: list[tuple[dict[str, Any], int, int]] = [({"k": time, "v": text}, time, 1)]
    gone = time - 5
    if gone >= 0 and gone % 3 == 0:
        old = BIG if gone % 4 == 0 else "small"
        updates.append(({"k": gone, "v": old}, time, -1))
    return updates


def write_all(client: Client, done: threading.Event) -> None:
    write, _ = client.create_or_load("c", SCHEMA)
    for time in range(TIMES):
        write.compare_and_append(updates_at(time), time, time + 1).result()
        if time > KEPT and time % 5 == 0:
            write.allow_compaction(time - KEPT).result()
    done.set()


def snapshots(client: Client, done: threading.Event, seed: int, wrong: list[str]) -> None:
    random, reader = Random(seed), client.reader("c")
    while True:
        ended = done.wait(0.004)  # leave the writer some of the interpreter
        upper = reader.upper.only()
        if upper:
            read_one(reader, random.randrange(max(0, upper - KEPT - 5), upper), wrong)
        if ended:
            return


def read_one(reader: ReadHandle, as_of: int, wrong: list[str]) -> None:
    try:
        table = reader.snapshot(as_of).to_table()
    except (AsOfBeforeSince, PartCollected):
        return  # named, and allowed: nothing holds this reader's history
    found = table.column("k").to_pylist()
    if sorted(found) != sorted(rows_at(as_of)) or set(table.column("__diff").to_pylist()) - {1}:
        wrong.append(f"at {as_of}: {sorted(set(found) ^ rows_at(as_of))}")


def listen(client: Client, wrong: list[str]) -> None:
    listening = client.reader("c").listen(0)
    while not listening.frontier.is_closed and listening.frontier.only() < TIMES:
        event = listening.fetch(timeout=30)
        if event is None:
            wrong.append(f"the listen is stuck at {listening.frontier}")
            return
        if isinstance(event, Updates):
            found = sorted((u["k"], u["__time"], u["__diff"]) for u in event.ok.to_pylist())
            due = sorted(
                (row["k"], time, diff)
                for at in range(event.lower.only(), event.upper.only())
                for row, time, diff in updates_at(at)
            )
            if found != due:
                wrong.append(f"listen over [{event.lower}, {event.upper}): {found} not {due}")


def test_readers_in_other_threads_and_runtimes(tmp_path: Path) -> None:
    settings = Settings(rollup_entries=10, poll_ms=5)
    done, wrong = threading.Event(), list[str]()
    with (
        open_location(tmp_path, settings=settings) as owner,
        open_location(tmp_path, read_only=True, settings=settings) as apart,
    ):
        owner.create_or_load("c", SCHEMA)
        work: list[Callable[[], None]] = [
            lambda: write_all(owner, done),
            lambda: snapshots(owner, done, 1, wrong),
            lambda: snapshots(owner, done, 2, wrong),
            lambda: snapshots(apart, done, 3, wrong),
            lambda: listen(owner, wrong),
        ]
        threads = [threading.Thread(target=item) for item in work]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        Maintenance(owner.core).once()
        batches = owner.core.state.collections[owner.core.state.names["c"]].batches
        collected = owner.core.metrics.collected._value.get()
    assert not wrong, wrong[:5]
    assert len(batches) < TIMES / 4, "nothing was merged"
    assert collected, "nothing was collected"


def merged_and_collected(client: Client) -> None:
    state = client.core.state
    collection = state.collections[state.names["c"]]
    maintenance = Maintenance(client.core)
    maintenance.merge_batches(collection, collection.batches)
    maintenance.collect()


@pytest.fixture
def memory_client() -> Client:
    return open_location(
        blob=MemoryBlob(), consensus=MemoryConsensus(), settings=Settings(maintenance=False)
    )


def test_what_a_snapshot_pins_is_not_collected(memory_client: Client) -> None:
    """Also when its history is given up, merged away and collected before it is read."""
    write, reader = memory_client.create_or_load("c", SCHEMA)
    for time in range(8):
        write.compare_and_append(updates_at(time), time, time + 1).result()
    snapshot = reader.snapshot(3)
    write.allow_compaction(7).result()
    merged_and_collected(memory_client)
    assert set(snapshot.to_table().column("k").to_pylist()) == rows_at(3)
    with pytest.raises(AsOfBeforeSince):
        reader.snapshot(3)
    del snapshot
    Maintenance(memory_client.core).collect()
    assert not memory_client.core.state.garbage
    memory_client.stop()


def test_a_snapshot_is_pinned_before_anything_can_be_collected_under_it(
    memory_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between choosing the state and pinning its objects, a merge and a collection may come."""
    write, reader = memory_client.create_or_load("c", SCHEMA)
    for time in range(8):
        write.compare_and_append(updates_at(time), time, time + 1).result()
    pin, armed = memory_client.core.pin, [True]

    def slowly(parts: Any) -> Callable[[], None]:
        if armed.pop() if armed else False:
            write.allow_compaction(4).result()
            merged_and_collected(memory_client)
        return pin(parts)

    monkeypatch.setattr(memory_client.core, "pin", slowly)
    snapshot = read.take_snapshot(memory_client.core, reader.id, 5)
    assert snapshot is not None
    # Part by part there is no second chance: nothing may have gone already.
    found = [k for table in snapshot.updates() for k in table.column("k").to_pylist()]
    assert set(found) >= rows_at(5)
    write.allow_compaction(7).result()
    merged_and_collected(memory_client)
    assert set(snapshot.to_table().column("k").to_pylist()) == rows_at(5)
    memory_client.stop()

"""Two owners racing in one process, and parts that come late from an owner that was fenced."""

from __future__ import annotations

import threading
from random import Random

import pyarrow as pa
import pytest

from headwater.algebra.frontier import Frontier
from headwater.base.ids import BatchId
from headwater.persist.blob.memory import MemoryBlob
from headwater.persist.client import Client, open_location, pending_parts
from headwater.persist.commands import CompareAndAppend, Done, UpperMismatch, Write
from headwater.persist.consensus.memory import MemoryConsensus
from headwater.persist.core import Settings
from headwater.persist.errors import Fenced, StalePart
from headwater.persist.maintenance import Maintenance
from headwater.persist.state import violations

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())])
BIG = "x" * 9000
SEED = 7


class Location:
    def __init__(self) -> None:
        self.blob, self.log = MemoryBlob(), MemoryConsensus()

    def open(self) -> Client:
        return open_location(
            blob=self.blob,
            consensus=self.log,
            take_over=True,
            settings=Settings(maintenance=False),
        )


def test_owners_take_the_location_from_each_other() -> None:
    """Threads open with take-over as fast as they can, write until fenced, and begin again.

    Every append that was acknowledged is there once; none that was fenced is.
    """
    location, rounds = Location(), 12
    told: list[int] = []
    refused: list[int] = []

    def own(first: int) -> None:
        random = Random(SEED + first)
        for turn in range(rounds):
            number = -1
            client = location.open()
            try:
                write, _ = client.create_or_load("c", SCHEMA)
                for n in range(random.choice((1, 3, 9))):
                    number = first * 10_000 + turn * 100 + n
                    upper = write.upper.only()
                    rows = [({"k": number, "v": BIG if n % 3 == 0 else ""}, upper, 1)]
                    outcome = write.compare_and_append(rows, upper, upper + 1).result()
                    (told if isinstance(outcome, Done) else refused).append(number)
                    assert isinstance(outcome, Done | UpperMismatch)
                if turn % 3 == 0:
                    Maintenance(client.core).once()
                    Maintenance(client.core).roll_up(force=True)
                    Maintenance(client.core).sweep()
            except Fenced:
                refused.append(number)
            finally:
                client.stop()

    threads = [threading.Thread(target=own, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with location.open() as client:
        rows = client.reader("c").snapshot().to_table().to_pylist()
        assert not list(violations(client.core.state))
    found = {row["k"]: row["__diff"] for row in rows}
    assert set(found.values()) == {1}
    assert set(told) <= set(found), f"seed {SEED}"
    assert not (set(found) - set(told)) & (set(refused) - set(told))


def test_a_zombies_late_part_is_never_visible_and_is_swept() -> None:
    location = Location()
    old = location.open()
    write, _ = old.create_or_load("c", SCHEMA)
    step = old.core.step()
    new = location.open()
    # The old owner does not know yet, and its task ends only now.
    parts = step.write(pending_parts(old.core, write.id, [({"k": 1, "v": BIG}, 0, 1)]))
    (late,) = [info.key for info in location.blob.list("part/")]
    with pytest.raises(Fenced):
        old.core.submit(Write(write.id, BatchId("late"), parts)).result()
    step.close()
    Maintenance(new.core).sweep()
    assert late not in {info.key for info in location.blob.list()}
    found, reader = new.create_or_load("c", SCHEMA)
    found.seal(1).result()
    assert reader.snapshot(0).to_table().num_rows == 0
    old.stop()
    new.stop()


def test_nobody_commits_a_part_that_may_be_swept() -> None:
    """Neither the part of a former epoch, nor one of a step that is closed."""
    location = Location()
    with location.open() as old:
        write, _ = old.create_or_load("c", SCHEMA)
        gid, rows = write.id, [({"k": 1, "v": BIG}, 0, 1)]
        with old.core.step() as step:
            stale = step.write(pending_parts(old.core, gid, rows))
    with location.open() as new:
        with new.core.step() as step:
            closed = step.write(pending_parts(new.core, gid, rows))
        new.create_or_load("other", SCHEMA)  # an entry that says that the step is closed
        for parts in (stale, closed):
            with pytest.raises(StalePart):
                new.core.submit(Write(gid, BatchId("t"), parts)).result()
            with pytest.raises(StalePart):
                new.core.submit(
                    CompareAndAppend(gid, BatchId("t"), Frontier.of(0), Frontier.of(1), parts)
                ).result()
        Maintenance(new.core).sweep()
        assert not list(location.blob.list("part/"))


def test_the_sweep_leaves_work_in_progress_alone() -> None:
    location = Location()
    with location.open() as client:
        write, reader = client.create_or_load("c", SCHEMA)
        with client.core.step() as step:
            rows = [({"k": 1, "v": BIG}, 0, 1)]
            parts = step.write(pending_parts(client.core, write.id, rows))
            write.seal(0).result()
            Maintenance(client.core).sweep()
            client.core.submit(Write(write.id, BatchId("t"), parts)).result()
        write.seal(1).result()
        Maintenance(client.core).sweep()
        assert reader.snapshot(0).to_table().num_rows == 1

"""Planted defects: each is caught by the checker that is there for it.

A test that has never failed has proved nothing. Here the code is broken on purpose, one promise at
a time, and what must notice it does. Each defect stands with the promise it breaks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headwater.base.errors import Determinate, HeadwaterError
from headwater.base.ids import BatchId, SeqNo
from headwater.persist import compact, decide, maintenance, read, state
from headwater.persist.blob.memory import MemoryBlob
from headwater.persist.client import open_location
from headwater.persist.commands import CompareAndAppend, Outcome, Write
from headwater.persist.consensus.memory import MemoryConsensus
from headwater.persist.consolidate import consolidate
from headwater.persist.core import Settings
from headwater.persist.decision import Decision
from headwater.persist.errors import MergeRefused, WriteBeforeUpper
from headwater.persist.evolution import DIFF
from headwater.persist.machine import Machine
from headwater.persist.state import State
from headwater.testing import history as h
from headwater.testing.nemesis import Nemesis, draw

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False)])
SEEDS_MAX = 300

Patch = pytest.MonkeyPatch


def no_token_check(patch: Patch) -> None:
    """A retry is not recognised: whatever it carries is written again."""
    fresh = count()

    def forgetful(
        decision: Callable[[State, Any], Decision],
    ) -> Callable[[State, Write | CompareAndAppend], Decision]:
        return lambda state, command: decision(
            state, replace(command, token=BatchId(f"fresh{next(fresh)}"))
        )

    patch.setattr(decide, "_write", forgetful(decide._write))
    patch.setattr(decide, "_compare_and_append", forgetful(decide._compare_and_append))


def sweep_ignores_open_steps(patch: Patch) -> None:
    """What no entry refers to *yet* is taken for garbage, before its entry is closed."""

    def hasty(state: State, keys: list[str]) -> list[str]:
        known = {*state.references, *state.garbage}
        return [key for key in keys if key.startswith("part/") and key not in known]

    patch.setattr(maintenance, "leaked", hasty)


def merge_loses_two_diffs(patch: Patch) -> None:
    """Two rows become one with the sum of their diffs: the total is right, the rows are not."""

    def lossy(updates: pa.Table) -> pa.Table:
        whole = consolidate(updates)
        if whole.num_rows < 2:
            return whole
        diffs = whole.column(DIFF).to_pylist()
        kept = [*diffs[:-2], diffs[-2] + diffs[-1]]
        index = whole.schema.get_field_index(DIFF)
        return whole.slice(0, len(kept)).set_column(
            index, whole.schema.field(DIFF), pa.array(kept, pa.int64())
        )

    patch.setattr(compact, "consolidate", lossy)


def merge_advances_too_far(patch: Patch) -> None:
    """Times are moved one past since: a read at since does not see them."""
    advance = compact.advance
    patch.setattr(compact, "advance", lambda updates, since: advance(updates, since + 1))


def stale_epoch_is_accepted(patch: Patch) -> None:
    """An owner that was taken over goes on committing, and everybody applies its entries."""
    patch.setattr(Machine, "_check_epoch", lambda _: None)
    patch.setattr(state, "_takes_role", lambda _: True)


def snapshot_shows_the_future(patch: Patch) -> None:
    """Parts are not cut at the time that was asked for."""

    def uncut(collection: state.CollectionState, as_of: int) -> Iterator[Any]:
        for batch in collection.batches:
            if state.bound(batch.lower) <= as_of:
                yield from batch.parts

    patch.setattr(read, "parts_at", uncut)


def listen_forgets_the_compaction(patch: Patch) -> None:
    """A batch whose times were advanced past the listener is delivered as if they were its own."""
    patch.setattr(read.Listen, "_precise", lambda *_: True)


def an_unresolved_entry_is_given_up(patch: Patch) -> None:
    """After a lost reply the entry is taken for lost, although it may stand in the log."""
    settle = Machine._settle

    def careless(self: Machine, retry: Any) -> bool | None:
        if self._unresolved is not None:
            self._unresolved = None
            self._catch_up(retry)
        return settle(self, retry)

    patch.setattr(Machine, "_settle", careless)
    no_token_check(patch)


def refused_means_perhaps(patch: Patch) -> None:
    """An error that says "it did not happen" is raised although it may have."""
    resolve = Machine._resolve

    def certain(group: Any, results: list[Any]) -> None:
        results = [
            Determinate(str(r)) if isinstance(r, HeadwaterError) and "lost" in str(r) else r
            for r in results
        ]
        resolve(group, results)

    patch.setattr(Machine, "_resolve", staticmethod(certain))


@dataclass(frozen=True)
class Planted:
    """A defect, and the steps that bring it out soonest."""

    plant: Callable[[Patch], None]
    steps: tuple[str, ...]

    def __str__(self) -> str:
        return self.plant.__name__


WRITES = ("write", "append", "seal")
PLANTED = [
    Planted(no_token_check, (*WRITES, "retry")),
    Planted(sweep_ignores_open_steps, (*WRITES, "begin_part", "commit_part", "sweep")),
    Planted(merge_loses_two_diffs, (*WRITES, "merge", "read_snapshot")),
    Planted(merge_advances_too_far, (*WRITES, "merge", "read_snapshot", "allow_compaction")),
    Planted(stale_epoch_is_accepted, (*WRITES, "take_over", "zombie")),
    Planted(snapshot_shows_the_future, (*WRITES, "read_snapshot")),
    Planted(
        listen_forgets_the_compaction,
        (*WRITES, "listen_independently", "merge", "allow_compaction"),
    ),
    Planted(an_unresolved_entry_is_given_up, (*WRITES, "atomic")),
    Planted(refused_means_perhaps, (*WRITES, "atomic")),
]


def findings(only: Sequence[str], synced: bool = True) -> list[str]:
    """Return what the nemesis says of the first plan that it does not like."""
    for seed in range(SEEDS_MAX):
        found = Nemesis(replace(draw(seed, only=only), synced=synced, threads=False)).run()
        if found:
            return found
    return []


@pytest.mark.parametrize("planted", PLANTED, ids=str)
def test_the_nemesis_finds(planted: Planted, monkeypatch: Patch) -> None:
    planted.plant(monkeypatch)
    assert findings(planted.steps), f"{planted} was not noticed in {SEEDS_MAX} seeds"


@pytest.mark.soak
@pytest.mark.parametrize("steps", [(*planted.steps,) for planted in PLANTED])
def test_the_same_plans_are_fine_without_the_defect(steps: tuple[str, ...]) -> None:
    for seed in range(15):
        assert not Nemesis(replace(draw(seed, only=steps), threads=False)).run(), f"seed {seed}"


def test_the_nemesis_finds_objects_that_were_not_synced() -> None:
    """A crash takes what was created and not synced, though the log refers to it."""
    assert findings(("write", "append", "seal", "crash", "read_snapshot"), synced=False)


def test_a_merge_that_loses_a_diff_is_refused(monkeypatch: Patch) -> None:
    """This one needs no nemesis: the sum of diffs is compared before anything is committed."""
    monkeypatch.setattr(compact, "consolidate", lambda updates: consolidate(updates).slice(1))
    with open_location(
        blob=MemoryBlob(), consensus=MemoryConsensus(), settings=Settings(maintenance=False)
    ) as client:
        write, reader = client.create_or_load("c", SCHEMA)
        for n in range(4):
            write.compare_and_append([({"k": n}, n, 1)], n, n + 1).result()
        collection = client.core.state.collections[write.id]
        with pytest.raises(MergeRefused):
            maintenance.Maintenance(client.core).merge_batches(collection, collection.batches)
        assert pc.sum(reader.snapshot(3).to_table().column(DIFF)).as_py() == 4


class SlowBlob(MemoryBlob):
    """Creates nothing before it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()

    def create(self, key: str, data: bytes) -> bool:
        self.released.wait()
        return super().create(key, data)


def overtaking_history() -> h.History:
    """Write a slow part, then seal past it without waiting; return what came of it."""
    schema, blob, recorded = pa.schema([pa.field("v", pa.string())]), SlowBlob(), h.History()
    with open_location(
        blob=blob, consensus=MemoryConsensus(), settings=Settings(maintenance=False)
    ) as client:
        write, _ = client.create_or_load("c", schema)
        asked: list[tuple[h.Operation, Future[Outcome]]] = []
        row: h.Update = ((1, "x"), 0, 1)
        operation = h.Operation("write", 1, recorded.tick(), {"c": (row,)})
        asked.append((operation, write.write([({"v": "x" * 9000}, 0, 1)])))
        asked.append((h.Operation("seal", 1, recorded.tick(), {}, {"c": 5}), write.seal(5)))
        # Wait until the seal was committed, if it is going to be: a hundredth of a second is ample
        # for the defect, and a correct runtime does not depend on it.
        threading.Timer(0.05, blob.released.set).start()
        for operation, future in asked:
            error = future.exception()
            operation.ended = recorded.tick()
            operation.outcome = h.Outcome.REFUSED if error else h.Outcome.ACKNOWLEDGED
            if isinstance(error, WriteBeforeUpper):
                operation.late_for = {"c": error.upper.only()}
            recorded.operations.append(operation)
    recorded.final["c"] = (((1, "x"), 1),) if not asked[0][1].exception() else ()
    return recorded


def out_of_order(self: Machine) -> list[Any]:
    """Take whatever is prepared, wherever it stands."""
    while True:
        with self._wake:
            ready = [request for request in self._queue if request.prepared.done()]
            for request in ready:
                self._queue.remove(request)
            if ready or (self._stopping and not self._queue):
                return ready
        time.sleep(0.001)


def test_a_seal_that_overtakes_a_write_is_found(monkeypatch: Patch) -> None:
    assert not list(h.violations(overtaking_history()))
    monkeypatch.setattr(Machine, "_next_group", out_of_order)
    assert any("made after it" in found for found in h.violations(overtaking_history()))


def test_a_truncation_that_comes_too_early_is_found(monkeypatch: Patch) -> None:
    """The log is cut although no entry names the rollup yet: a crash loses the state."""
    roll_up = maintenance.Maintenance.roll_up

    def early(self: maintenance.Maintenance, *, force: bool = False) -> None:
        if force:
            self._core.consensus.truncate(SeqNo(self._core.state.seqno))
        roll_up(self, force=force)

    monkeypatch.setattr(maintenance.Maintenance, "roll_up", early)
    assert findings((*WRITES, "roll_up", "crash", "crash_soon"))

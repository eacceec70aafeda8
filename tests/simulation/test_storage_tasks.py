"""A range that tasks read and fold: killed between any two effects, failing, and with defects.

The tasks run here, one after the other, in the world of ``storage_world.py``; its oracle says what
must come of it. That they run in other processes is shown by ``tests/spark/test_ingested.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import msgspec
import pytest

from headwater.persist.client import Client
from headwater.storage import fold_task, ingestion, tasks, upsert_range, written_by_tasks
from headwater.storage.kept import Kept
from headwater.storage.keyed_state import Before, KeyedState
from headwater.storage.stored_remap import read_remap
from headwater.testing.crash import quiet_crashes
from headwater.testing.stepped import stepped
from headwater.testing.unreliable import FailNth
from tests.seeds import seeds
from tests.simulation.killed_story import tell_until_killed
from tests.simulation.storage_world import (
    DEFINITION,
    TasksHere,
    World,
    complaints,
    in_memory,
)

PIECES, SHARES = "PieceTask", "FoldTask"
RANGES = 3


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingestion, "place_of", in_memory)
    monkeypatch.setattr(tasks, "MESSAGES_MIN", 1)
    monkeypatch.setattr(written_by_tasks, "FOLD_MIN", 1)
    monkeypatch.setattr(upsert_range, "MESSAGES_AT_ONCE", 2)


def world_of(failing: int | None = None) -> tuple[World, list[str]]:
    kinds: list[str] = []
    return World(tasks=partial(TasksHere, kinds=kinds, failing=failing)), kinds


def story(world: World, client: Client, seed: int) -> None:
    """Ingest until three ranges are there."""
    running = world.start(client)
    for range_ in range(RANGES):
        while (there := sum(world.upstream.offsets.values())) < (range_ + 1) * 8:
            world.upstream.grow(Random(f"{seed} {there}"), 1)
        world.clock.set(world.clock.now_ms() + 7)
        running.tick(world.clock.now_ms())
    running.tick(world.clock.now_ms() + 1)  # What the process before us has bound may come first.
    running.stop()


def finished(world: World, client: Client, seed: int) -> list[str]:
    """Run the story; return what is wrong with what came of it."""
    story(world, client, seed)
    found = list(complaints(client, world.upstream))
    done = read_remap(client.reader(DEFINITION.remap)).latest
    if done != world.upstream.offsets:
        found.append(f"ingested {done} of {world.upstream.offsets}")
    client.stop()
    return found


def told(world: World, seed: int) -> tuple[list[str], int]:
    """Return what is wrong with the story where nothing fails, and how many effects it has."""
    process = FailNth(10**9, "before")
    with stepped(Random(0)):
        client = world.open(process.blob(world.blob), process.consensus(world.log))
        return finished(world, client, seed), process.effects


@pytest.mark.parametrize("seed", seeds(1, 20))
def test_tasks_fold_what_the_oracle_says(seed: int) -> None:
    world, kinds = world_of()
    assert told(world, seed)[0] == []
    assert kinds == [PIECES, SHARES] * RANGES, "everything was done by tasks"


@pytest.mark.parametrize("failing", range(2 * RANGES))
def test_what_tasks_fail_to_do_is_done_here(failing: int) -> None:
    world, kinds = world_of(failing)
    assert told(world, 0)[0] == []
    assert len(kinds) == 2 * RANGES - (failing % 2 == 0), "what is not read is not folded"


@pytest.mark.parametrize("seed", seeds(1, 20))
def test_killed_between_any_two_effects(seed: int) -> None:
    effects = told(world_of()[0], seed)[1]
    for n in range(1 + seed % 6, effects + 1, 6):  # The others with the other seeds.
        (world, _), process = world_of(), FailNth(n, "before" if n % 3 else "after")
        with quiet_crashes(), stepped(Random(n)):
            tell_until_killed(process, world, partial(story, world, seed=seed))
            found = finished(world, world.open(), seed)
        assert not found, f"seed {seed}, killed at effect {n}: {found[:2]}"


# ---- planted defects -------------------------------------------------------------------------


def _drops_a_share(patch: pytest.MonkeyPatch) -> None:
    shares = upsert_range.put_aside_in_shares

    def but_the_last(envelope: Any, tables: Any, count: int) -> Any:
        return [each for each in shares(envelope, tables, count) if each[0] < count - 1]

    patch.setattr(tasks, "put_aside_in_shares", but_the_last)


def _cuts_each_batch_by_itself(patch: pytest.MonkeyPatch) -> None:
    """A key is in several shares: wherever its batch happens to be cut."""
    shares = upsert_range.put_aside_in_shares

    def by_place(envelope: Any, tables: Any, count: int) -> Any:
        whole = shares(envelope, tables, 1)
        return [(len(tables[0]) % count, rows, data) for _, rows, data in whole]

    patch.setattr(tasks, "put_aside_in_shares", by_place)


def _reads_state_at_the_wrong_time(patch: pytest.MonkeyPatch) -> None:
    before = KeyedState.before

    def earlier(self: KeyedState, place: Any, as_of: int | None) -> Any:
        return before(self, place, None if as_of is None else max(0, as_of - 7))

    patch.setattr(KeyedState, "before", earlier)


def _asks_nothing_of_the_output(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Kept, "as_of", lambda *_: None)


def _forgets_errors(patch: pytest.MonkeyPatch) -> None:
    call = fold_task.FoldTask.__call__

    def without(self: Any, attempt: str) -> bytes:
        data = msgspec.msgpack.decode(call(self, attempt), type=fold_task.Folded)
        parts = tuple(part for part in data.parts if not part.errors)
        return msgspec.msgpack.encode(msgspec.structs.replace(data, parts=parts))

    patch.setattr(fold_task.FoldTask, "__call__", without)


def _misses_a_part_of_the_output(patch: pytest.MonkeyPatch) -> None:
    asked = Before.asked

    def but_the_first(self: Before) -> Any:
        return asked(Before(self.reading, self.parts[1:], self.as_of))

    patch.setattr(Before, "asked", but_the_first)


DEFECTS = [
    _drops_a_share,
    _cuts_each_batch_by_itself,
    _reads_state_at_the_wrong_time,
    _asks_nothing_of_the_output,
    _forgets_errors,
    _misses_a_part_of_the_output,
]


@pytest.mark.parametrize("plant", DEFECTS, ids=lambda plant: plant.__name__.strip("_"))
def test_a_planted_defect_is_caught(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert any(told(world_of()[0], seed)[0] for seed in range(4))

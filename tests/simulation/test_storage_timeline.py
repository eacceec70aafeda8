"""Ingestions on a timeline that others move: killed at every effect, and between any two entries.

The oracle is that of ``storage_world.py``: at every time everything is the function of the durable
remap that the definitions say. The timeline ticks whenever upstream is read, which is between the
two entries of a tick of the source, and a table is written to in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Literal

import pytest

from headwater.adapter.timeline import DEFAULT, Timeline
from headwater.algebra.frontier import Frontier
from headwater.base.ids import GlobalId
from headwater.persist.client import Client
from headwater.persist.commands import (
    Advance,
    AllowCompaction,
    Atomic,
    OpenReader,
    Reserved,
    ReserveId,
    SetItem,
)
from headwater.persist.evolution import DIFF
from headwater.persist.state import violations
from headwater.storage import ingestion as module
from headwater.storage.controller import new_collections
from headwater.storage.ingestion import Ingestion
from headwater.storage.offsets import Offsets
from headwater.storage.source import Records
from headwater.storage.stored_remap import read_remap
from headwater.testing.crash import quiet_crashes
from headwater.testing.stepped import stepped
from headwater.testing.unreliable import FailNth
from tests.seeds import seeds
from tests.simulation.killed_story import tell_until_killed
from tests.simulation.storage_world import DEFINITION, ScriptedSource, World, complaints

TICKS = 3
NAMES = (
    DEFINITION.remap,
    DEFINITION.dead_letters,
    *(output.collection for output in DEFINITION.outputs),
)


@dataclass
class Interrupted(ScriptedSource):
    """Upstream, whose reading takes so long that the timeline moves."""

    timeline: Timeline | None = None
    client: Client | None = None

    def compacted(self) -> None:
        """Let the owner of remap keep no history at all, as a retention of nothing does."""
        assert self.client is not None
        state = self.client.core.state
        gid = state.names[DEFINITION.remap]
        newest = Frontier.of(state.timelines[DEFAULT].upper - 1)
        self.client.core.submit(AllowCompaction(((gid, newest),))).result()

    def read(self, lower: Offsets, upper: Offsets) -> Iterator[Records]:
        assert self.timeline is not None
        for records in super().read(lower, upper):
            self.timeline._clock.sleep(0.002)
            self.timeline.tick()
            self.compacted()
            yield records


def start(
    world: World, client: Client, held: tuple[str, ...] = NAMES
) -> tuple[Ingestion, Timeline]:
    timeline = Timeline(client, world.clock)
    if DEFINITION.remap not in client.core.state.names:
        ids: dict[str, GlobalId] = {}
        for name in NAMES:
            reserved = client.core.submit(ReserveId()).result()
            assert isinstance(reserved, Reserved)
            ids[name] = reserved.id
        holds = (OpenReader(ids[name], f"oracle/{name}", "oracle") for name in held)
        made = new_collections(DEFINITION, DEFAULT, ids)
        client.core.submit(Atomic((*made, *holds))).result()
    source = Interrupted(world.upstream, timeline=timeline, client=client)
    return Ingestion(client, DEFINITION, source, timeline), timeline


def story(world: World, client: Client, seed: int) -> None:
    running, timeline = start(world, client)
    for tick in range(TICKS):
        grown = min(TICKS - 1, tick)
        while sum(world.upstream.offsets.values()) < grown * 6:
            world.upstream.grow(Random(f"{seed} {sum(world.upstream.offsets.values())}"), 2)
        world.clock.set(world.clock.now_ms() + 7)
        if Random(f"{seed} {tick}").random() < 0.5:
            timeline.tick()
        running.tick(world.clock.now_ms())
    running.stop()


def wrong(client: Client, world: World) -> list[str]:
    found = [*complaints(client, world.upstream), *violations(client.core.state)]
    done = read_remap(client.reader(DEFINITION.remap)).latest
    if done != world.upstream.offsets:
        found.append(f"ingested {done} of {world.upstream.offsets}")
    state = client.core.state
    for name in NAMES:
        upper = state.upper(state.collections[state.names[name]]).only()
        if upper != state.timelines[DEFAULT].upper:
            found.append(f"{name} is at {upper}, the timeline at {state.timelines[DEFAULT].upper}")
    return found


def whole_story(seed: int) -> int:
    world, process = World(), FailNth(10**9, "before")
    with stepped(Random(0)):
        client = world.open(process.blob(world.blob), process.consensus(world.log))
        story(world, client, seed)
        assert not wrong(client, world)
        client.stop()
    return process.effects


def killed_and_resumed(seed: int, n: int, mode: Literal["before", "after"]) -> list[str]:
    world, process = World(), FailNth(n, mode)
    with quiet_crashes(), stepped(Random(n)):
        tell_until_killed(process, world, partial(story, world, seed=seed))
        again = world.open()
        story(world, again, seed)
        found = wrong(again, world)
        again.stop()
    return found


@pytest.mark.parametrize("seed", seeds(1, 40))
def test_killed_at_every_effect(seed: int) -> None:
    for n in range(1, whole_story(seed) + 1):
        # Over the seeds, each effect is met in both ways.
        mode: Literal["before", "after"] = "before" if (n + seed) % 2 else "after"
        found = killed_and_resumed(seed, n, mode)
        assert not found, f"seed {seed}, killed {mode} effect {n}: {found[:2]}"


def test_an_idle_source_pins_nothing_costs_no_entry_and_follows() -> None:
    """Ten minutes of simulated time: upstream's permission, remap, outputs and upsert state."""
    world = World()
    with stepped(Random(0)):
        client = world.open()
        running, timeline = start(world, client)
        world.upstream.grow(Random(1), 5)
        running.tick(world.clock.now_ms())
        for _ in range(20):
            world.clock.set(world.clock.now_ms() + 30_000)
            before = client.core.state.seqno
            running.tick(world.clock.now_ms())
            assert client.core.state.seqno == before
            timeline.tick()
            assert client.core.state.seqno == before + 1
            assert not wrong(client, world)
        assert world.upstream.forgotten == world.upstream.offsets
        state = client.core.state
        for kept in state.collections.values():
            assert state.upper(kept).only() == timeline.upper
            assert not kept.writers, f"{kept.name} is kept from following"
        client.stop()


def test_who_reads_while_a_range_is_ingested_waits_for_it() -> None:
    """Between the entries an output stays below the binding, however far the timeline goes."""
    world = World()
    seen: list[tuple[int, int]] = []
    with stepped(Random(0)):
        client = world.open()
        running, timeline = start(world, client)
        world.upstream.grow(Random(1), 6)
        running.tick(world.clock.now_ms())
        read = running.source.read

        def looked(lower: Offsets, upper: Offsets) -> Iterator[Records]:
            for records in read(lower, upper):
                state = client.core.state
                plain = state.upper(state.collections[state.names["plain"]]).only()
                seen.append((plain, read_remap(client.reader(DEFINITION.remap)).bindings[-1].time))
                yield records

        running.source.read = looked  # type: ignore[method-assign]
        world.upstream.grow(Random(2), 6)
        world.clock.set(world.clock.now_ms() + 50)
        running.tick(world.clock.now_ms())
        assert seen
        assert all(plain <= binding < timeline.upper for plain, binding in seen), seen
        assert not wrong(client, world)
        client.stop()


class Gone(Exception):
    """The process dies while it reads."""


def test_no_retention_takes_what_a_restart_needs() -> None:
    """Who keeps the history of remap keeps none, while a range is bound and not appended."""
    world = World()
    with stepped(Random(0)):
        client = world.open()
        running, _ = start(world, client, held=())
        world.upstream.grow(Random(1), 6)
        running.tick(world.clock.now_ms())
        world.upstream.grow(Random(2), 6)
        world.clock.set(world.clock.now_ms() + 50)
        read = running.source.read

        def dies(lower: Offsets, upper: Offsets) -> Iterator[Records]:
            yield next(read(lower, upper))
            raise Gone

        running.source.read = dies  # type: ignore[method-assign]
        with pytest.raises(Gone):
            running.tick(world.clock.now_ms())
        again, timeline = start(world, client, held=())
        again.tick(world.clock.now_ms())
        ok, errors = client.reader("plain").snapshot(timeline.upper - 1).sides()
        there = sum(ok.column(DIFF).to_pylist()) + sum(errors.column(DIFF).to_pylist())
        assert there == sum(world.upstream.offsets.values())
        client.stop()


# ---- planted defects -------------------------------------------------------------------------


def test_a_binding_that_holds_nothing_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entry 1 without its write capabilities: the timeline passes the binding."""
    monkeypatch.setattr(module, "OpenWriter", lambda *_: Advance(DEFAULT, None))
    world = World()
    with stepped(Random(0)):
        client = world.open()
        running, _ = start(world, client)
        for seed in (1, 2):
            world.upstream.grow(Random(seed), 6)
            world.clock.set(world.clock.now_ms() + 50)
            running.tick(world.clock.now_ms())
        assert wrong(client, world)
        client.stop()


def test_outputs_that_do_not_follow_again_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entry 2 that leaves its outputs apart."""
    monkeypatch.setattr(module, "Advance", lambda *_: SetItem("planted", None))
    world = World()
    with stepped(Random(0)):
        client = world.open()
        running, _ = start(world, client)
        world.upstream.grow(Random(1), 6)
        running.tick(world.clock.now_ms())
        assert any("the timeline at" in each for each in wrong(client, world))
        client.stop()

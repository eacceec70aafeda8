"""An ingestion that is killed at every effect, races with itself, and meets planted defects.

Whatever happens, at every time every collection is the function of the durable remap that the
oracle says (``storage_world.py``), and upstream, which forgets what it is told to forget, is never
asked for what it has forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Literal

import pyarrow as pa
import pytest

from headwater.base.errors import HeadwaterError
from headwater.collection.probe import PROBE_INDEX
from headwater.persist.client import Client
from headwater.persist.errors import Fenced
from headwater.storage import upsert_range
from headwater.storage.envelope import Changes, Upsert, key_text
from headwater.storage.ingestion import Ingestion
from headwater.storage.kept import Entry
from headwater.storage.offsets import NOTHING, Offsets
from headwater.storage.remap import Remap
from headwater.storage.resumption import Uppers
from headwater.storage.stored_remap import read_remap
from headwater.storage.told import BAD, ERROR, ROW, TOLD
from headwater.storage.upsert_range import RowsOf, folded
from headwater.testing.crash import quiet_crashes
from headwater.testing.stepped import stepped
from headwater.testing.unreliable import FailNth
from tests.seeds import seeds
from tests.simulation.killed_story import tell_until_killed
from tests.simulation.storage_world import (
    DEFINITION,
    ScriptedSource,
    World,
    actual,
    complaints,
    expected,
)

TICKS = 4


def story(world: World, client: Client, seed: int) -> None:
    """Ingest until the upstream of the story has been ingested, some of it in idle ticks."""
    running = world.start(client)
    for tick in range(TICKS):
        grown = min(TICKS - 1, tick)
        while sum(world.upstream.offsets.values()) < grown * 6:
            world.upstream.grow(Random(f"{seed} {len(world.upstream.partitions)}"), 1)
            world.upstream.grow(Random(f"{seed} {sum(world.upstream.offsets.values())}"), 1)
        world.clock.set(world.clock.now_ms() + 7)
        running.tick(world.clock.now_ms())
    running.stop()


def whole_story(seed: int) -> int:
    """Return how many effects the story has."""
    world, process = World(), FailNth(10**9, "before")
    with stepped(Random(0)):
        client = world.open(process.blob(world.blob), process.consensus(world.log))
        story(world, client, seed)
        assert not list(complaints(client, world.upstream))
        client.stop()
    return process.effects


def test_the_story_meets_every_kind_of_record() -> None:
    world = World()
    with stepped(Random(0)):
        client = world.open()
        story(world, client, 0)
        letters = client.reader(DEFINITION.dead_letters).snapshot().to_table()
        assert {"plain", "upsert"} == set(letters.column("output").to_pylist())
        assert client.reader("upsert").snapshot().sides()[0].num_rows
        client.stop()


@pytest.mark.parametrize("mode", ["before", "after"])
@pytest.mark.parametrize("seed", seeds(1, 20))
def test_killed_at_every_effect(mode: Literal["before", "after"], seed: int) -> None:
    for n in range(1, whole_story(seed) + 1):
        world, process = World(), FailNth(n, mode)
        with quiet_crashes(), stepped(Random(n)):
            tell_until_killed(process, world, partial(story, world, seed=seed))
            assert process.crashed, f"effect {n} was never reached"
            again = world.open()
            story(world, again, seed)
            found = list(complaints(again, world.upstream))
            done = read_remap(again.reader(DEFINITION.remap)).latest
            if done != world.upstream.offsets:
                found.append(f"ingested {done} of {world.upstream.offsets}")
            again.stop()
        assert not found, f"seed {seed}, killed {mode} effect {n}: {found[:2]}"


@pytest.mark.parametrize("seed", seeds(4, 300))
def test_any_interleaving_of_probes_crashes_and_restarts(seed: int) -> None:
    """Several ingesters, alive or zombies, in one location; upstream grows, clocks go back."""
    random, world = Random(seed), World()
    with quiet_crashes(), stepped(Random(seed)):
        client = world.open()
        running: list[Ingestion] = [world.start(client)]
        for _ in range(40):
            choice = random.random()
            if choice < 0.3:
                world.upstream.grow(random, random.randrange(4))
            elif choice < 0.4:
                running.append(world.start(client))  # the others are zombies from now on
            elif choice < 0.5:
                world.clock.set(max(0, world.clock.now_ms() + random.randrange(-30, 60)))
            else:
                world.clock.set(world.clock.now_ms() + random.randrange(3))
                chosen = random.choice(running)
                try:
                    chosen.tick(world.clock.now_ms())
                except Fenced:
                    running.remove(chosen)
            if random.random() < 0.2:
                assert not list(complaints(client, world.upstream)), f"seed {seed}"
        assert not list(complaints(client, world.upstream)), f"seed {seed}"
        client.stop()


# ---- racing ----------------------------------------------------------------------------------


def two_in_one_epoch(world: World, client: Client) -> tuple[Ingestion, Ingestion]:
    """Return two ingesters that no fence keeps apart: only the uppers do."""
    first, second = world.start(client), world.start(client)
    first._epoch = second._epoch
    return first, second


def test_two_that_probe_in_one_millisecond_agree_on_one_binding() -> None:
    """Both bind the same time to another frontier; one of them is, and the other one reads it."""
    world = World()
    with stepped(Random(0)):
        client = world.open()
        first, second = two_in_one_epoch(world, client)
        world.upstream.add("a", 1, 10)
        assert first.tick(2_000)
        world.upstream.add("a", 2, 20)
        assert not second.tick(2_000)
        assert second.statistics.races_lost == 1
        assert read_remap(client.reader(DEFINITION.remap)).latest == Offsets({"a": 1})
        assert second.tick(2_001)
        assert not list(complaints(client, world.upstream))
        client.stop()


def test_what_one_bound_the_other_may_append() -> None:
    """One dies between its entries; the other, already running, appends just that range."""
    world = World()
    with stepped(Random(0)):
        client = world.open()
        first, second = two_in_one_epoch(world, client)
        world.upstream.add("a", 1, 10)
        first._append_range = lambda: False  # type: ignore[method-assign]  # it dies here
        assert not first.tick(2_000)
        world.upstream.add("a", 2, 20)
        assert not second.tick(2_500)  # lost the race for the binding, and looks
        assert second.tick(2_500)
        assert world.upstream.reads == [(NOTHING, Offsets({"a": 1}))]
        assert not list(complaints(client, world.upstream))
        assert second.tick(2_600)
        assert world.upstream.reads[1:] == [(Offsets({"a": 1}), Offsets({"a": 2}))]
        client.stop()


def test_a_zombie_is_refused_and_changes_nothing() -> None:
    world = World()
    with stepped(Random(0)):
        client = world.open()
        zombie = world.start(client)
        world.upstream.add("a", 1, 10)
        owner = world.start(client)
        with pytest.raises(Fenced):
            zombie.tick(2_000)
        assert world.upstream.forgotten == NOTHING
        assert owner.tick(2_000)
        client.stop()


# ---- idle ------------------------------------------------------------------------------------


def test_an_idle_source_pins_nothing_and_costs_one_entry_a_tick() -> None:
    """Ten minutes of simulated time: upstream's permission, remap and upsert state all follow."""
    world = World()
    with stepped(Random(0)):
        client = world.open()
        running = Ingestion(client, DEFINITION, world.start(client).source)
        world.upstream.add("a", 1, 10)
        running.tick(1_000)
        before = client.core.state.seqno
        for second in range(2, 602):
            assert running.tick(second * 1_000)
        assert client.core.state.seqno - before == 600
        assert world.upstream.forgotten == Offsets({"a": 1})
        collections = client.core.state.collections.values()
        owner = {c.name: c.readers["owner"].since.only() for c in collections}
        assert owner[DEFINITION.remap] == 601_000
        holds = {c.name: c.readers for c in collections}
        assert holds["upsert"][running._hold].since.only() == 601_000
        assert len(world.upstream.reads) == 1
        client.stop()


def test_a_restart_reads_nothing_that_is_durable() -> None:
    world = World()
    with stepped(Random(0)):
        client = world.open()
        for n in range(3):
            world.upstream.add("a", n, n)
            running = world.start(client)
            assert running.resumption.offsets == Offsets({"a": n})
            running.tick(2_000 + n)
            running.stop()
        assert [read for read, _ in world.upstream.reads] == [Offsets({"a": n}) for n in range(3)]
        client.stop()


def test_restarts_on_a_remap_that_is_compacted_as_far_as_it_may_be() -> None:
    """Nobody holds history: of remap just what resumption needs is left, and that is enough."""
    random, world, told = Random(7), World(), Remap.empty()
    with stepped(Random(0)):
        client = world.open()
        for tick in range(12):
            world.upstream.grow(random, random.randrange(5))
            running = Ingestion(client, DEFINITION, ScriptedSource(world.upstream))
            now = 2_000 + 10 * tick
            assert running.tick(now)
            told = told.bind(now if told.bindings else 0, now + 1, world.upstream.offsets)
            left = read_remap(client.reader(DEFINITION.remap))
            assert (left.since, left.latest) == (now, world.upstream.offsets)
            assert actual(client, now) == expected(world.upstream, told, now)
        client.stop()


# ---- planted defects -------------------------------------------------------------------------


def _commits_before_durable(patch: pytest.MonkeyPatch) -> None:
    append_all = Ingestion._append_all

    def defective(self: Ingestion, *args: Any) -> None:
        self.source.commit(self._remap.latest)
        append_all(self, *args)

    patch.setattr(Ingestion, "_append_all", defective)


def _binds_after_data(patch: pytest.MonkeyPatch) -> None:
    """The binding is known to this process alone until its data is there."""
    append = Ingestion._append_range
    bind = Ingestion._append_binding

    def unbound(self: Ingestion, minted: Any) -> bool:
        self._bound(minted)
        self._late = minted  # type: ignore[attr-defined]
        return True

    def then_bound(self: Ingestion) -> bool:
        done = append(self)
        late = getattr(self, "_late", None)
        if late is not None:
            del self._late  # type: ignore[attr-defined]
            self._remap_kept.upper = late.lower
            remap = self._remap
            done = bind(self, late) if remap.upper != late.upper else _bound_late(self, late, bind)
        return done

    patch.setattr(Ingestion, "_append_binding", unbound)
    patch.setattr(Ingestion, "_append_range", then_bound)


def _bound_late(self: Ingestion, late: Any, bind: Callable[[Ingestion, Any], bool]) -> bool:
    bound = self._bound
    self._bound = lambda minted: None  # type: ignore[method-assign]
    try:
        return bind(self, late)
    finally:
        self._bound = bound  # type: ignore[method-assign]
        self._remap_kept.upper = late.upper


def _upserts_from_input(patch: pytest.MonkeyPatch) -> None:
    """The state is what this process has seen of its input."""
    seen: dict[Any, Any] = {}
    failed: dict[str, str] = {}

    def defective(
        envelope: Upsert, output: str, table: pa.Table, rows_of: RowsOf, errors: Any
    ) -> Changes:
        del rows_of, errors
        schema = pa.schema([pa.field(PROBE_INDEX, pa.int64()), *envelope.schema])

        def of_what_was_seen(keys: Any) -> pa.Table:
            asked = list(zip(*(column.to_pylist() for column in keys), strict=True))
            rows = [(n, *seen[key]) for n, key in enumerate(asked) if seen.get(key)]
            named = [dict(zip(schema.names, row, strict=True)) for row in rows]
            return pa.Table.from_pylist(named, schema=schema)

        found = folded(envelope, output, table, of_what_was_seen, failed)
        for row in table.to_pylist():  # In the order of time, key by key.
            there = tuple(row[name] for name in envelope.schema.names)
            key = tuple(row[name] for name in envelope.key)
            seen[key] = there if row[TOLD] == ROW else None
            failed.pop(key_text(key), None)
            if row[TOLD] == BAD:
                failed[key_text(key)] = row[ERROR]
        return found

    patch.setattr(upsert_range, "folded", defective)
    start = World.start

    def fresh(world: World, client: Client) -> Ingestion:
        seen.clear()  # a new process
        failed.clear()
        return start(world, client)

    patch.setattr(World, "start", fresh)


def _forgets_dead_letters(patch: pytest.MonkeyPatch) -> None:
    """Dead letters are appended on their own, later, and the meet does not look at them."""
    patch.setattr(Uppers, "meet", lambda self: min(self.remap, *self.outputs.values()))
    append_all = Ingestion._append_all

    def without_letters(self: Ingestion, entry: Any, upper: int, parts: Any, letters: Any) -> None:
        behind = Entry()
        append_all(self, behind, upper, parts, letters)
        mine = self._letters.write.id
        entry.commands += [c for c in behind.commands if getattr(c, "id", None) != mine]
        self._behind = [c for c in behind.commands if getattr(c, "id", None) == mine]  # type: ignore[attr-defined]

    appended = Ingestion._appended

    def then_letters(self: Ingestion, upper: int) -> None:
        self._commit(Entry(self._behind))  # type: ignore[attr-defined]
        appended(self, upper)

    patch.setattr(Ingestion, "_append_all", without_letters)
    patch.setattr(Ingestion, "_appended", then_letters)


DEFECTS = [_commits_before_durable, _binds_after_data, _upserts_from_input, _forgets_dead_letters]


@pytest.mark.soak
@pytest.mark.parametrize("plant", DEFECTS, ids=lambda plant: plant.__name__.strip("_"))
def test_a_planted_defect_is_caught(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each passes while nothing fails, and is caught by a kill at some effect."""
    plant(monkeypatch)
    assert whole_story(0)
    with pytest.raises((AssertionError, HeadwaterError, ValueError)):  # noqa: PT012 - by either
        test_killed_at_every_effect("before", 0)
        test_killed_at_every_effect("after", 0)

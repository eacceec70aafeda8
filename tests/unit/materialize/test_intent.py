"""What was begun is repeated first, as it was: whatever is changed, replaced or merged meanwhile.

The receiver (``tests/simulation/materialize_receivers.py``) compares each request that comes again
with what came under its key before. Faults at every event are in ``test_materialize_repeated.py``.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from time import monotonic, sleep

import pyarrow as pa
import pytest

from headwater.base.errors import Indeterminate
from headwater.materialize import runtime
from headwater.materialize.checkpoint import Position
from headwater.materialize.controller import Materializations
from headwater.materialize.definition import Binding, Endpoint
from headwater.materialize.drivers import registry, webhook
from headwater.materialize.drivers.registry import DRIVERS, Guarantee, guarantee, repeats
from headwater.materialize.in_task import ShardTasks
from headwater.materialize.intent import Intent
from headwater.materialize.key_range import KeyRange
from headwater.materialize.pace import TASKS
from headwater.materialize.recovery import RecoveryEntry, entry_of
from headwater.materialize.splits import NotDrained, inherited
from headwater.materialize.status import State
from headwater.persist.blob.memory import MemoryBlob
from headwater.persist.client import Client, open_location
from headwater.persist.commands import Atomic, Command
from headwater.persist.consensus.memory import MemoryConsensus
from headwater.persist.core import Settings
from headwater.persist.evolution import updates_schema
from headwater.persist.maintenance import Maintenance
from tests.seeds import seeds
from tests.simulation.materialize_receivers import SCHEMA, History, Hook, Receiver, Request

FULL = KeyRange.full()
LOW, HIGH = FULL.split()
WAIT_SECONDS = 60.0
ALWAYS = 1 << 60


class Door:
    """A receiver that may be down."""

    frozen: list[Request] | None = None

    def __init__(self) -> None:
        self.receiver = Receiver()
        self.steps = ALWAYS
        """How many there are until it is; a request is two: it comes, and it is answered."""

    def event(self) -> None:
        if self.steps <= 0:
            raise Indeterminate("the receiver is down")
        self.steps -= 1


@pytest.fixture
def client() -> Iterator[Client]:
    where = open_location(
        blob=MemoryBlob(), consensus=MemoryConsensus(), settings=Settings(maintenance=False)
    )
    with where as opened:
        yield opened


@pytest.fixture
def client_on_disk(tmp_path: Path) -> Iterator[Client]:
    with open_location(tmp_path / "data") as opened:
        yield opened


def _sent_off(work: Sequence[Callable[[str], bytes]]) -> list[bytes]:
    """Run what another process would be sent."""
    return [pickle.loads(pickle.dumps(one))("attempt") for one in work]


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Door:
    found = Door()
    hooked = replace(DRIVERS["webhook"], make=lambda: Hook(found))
    monkeypatch.setattr(registry, "DRIVERS", {**DRIVERS, "webhook": hooked})
    monkeypatch.setattr(webhook, "BODY_BYTES", 80)
    return found


def _eventually(condition: Callable[[], object]) -> None:
    deadline = monotonic() + WAIT_SECONDS
    while not condition():
        assert monotonic() < deadline, "it never came"
        sleep(0.005)


class Delivered:
    """A history that is delivered."""

    def __init__(self, client: Client, door: Door, seed: int = 3) -> None:
        self.client, self.door = client, door
        self.history = History(client, "c", seed)
        self.begin()

    def begin(self) -> None:
        """Have a server of its own."""
        tasks = ShardTasks(_sent_off, "127.0.0.1", lambda: 8)
        self.running = Materializations(self.client, retry_seconds=0.01, shard_tasks=tasks)

    def install(self, **more: object) -> None:
        to = Endpoint("webhook", {"url": "http://receiver"})
        self.running.install("m", to, Hook.bindings(self.history), **more)  # type: ignore[arg-type]

    @property
    def entry(self) -> RecoveryEntry:
        return entry_of(self.client.core, "m", FULL)

    def fail(self) -> Intent:
        """Let an attempt fail after its first request has come; return what is owed then."""
        self.door.steps = 1
        self.history.go_on()
        _eventually(lambda: self.entry.intent is not None and not self.door.steps)
        assert self.entry.intent is not None
        return self.entry.intent

    def come_to(self, history: History) -> None:
        """Let the receiver be up, until it is the view."""
        self.door.steps = ALWAYS
        upper = len(history.views) - 1

        def stands() -> bool:
            found = self.running.get("m")
            assert found is not None
            return found.status.reached == upper

        _eventually(stands)
        self.door.receiver.judge(history.views[-1], FULL)


@pytest.fixture
def delivered(client: Client, door: Door) -> Iterator[Delivered]:
    found = Delivered(client, door)
    yield found
    door.steps = 0
    found.running.stop()


@pytest.mark.parametrize("committed", [0, 1])
def test_tasks_repeat_it(client_on_disk: Client, door: Door, committed: int) -> None:
    delivered = Delivered(client_on_disk, door)
    if committed:
        delivered.history.go_on()
    delivered.install(tuning={"shards_in": TASKS})
    if committed:
        delivered.come_to(delivered.history)
    delivered.fail()
    delivered.history.go_on()
    delivered.come_to(delivered.history)
    found = delivered.running.get("m")
    assert found is not None
    assert [shard.runs_in for _, shard in found.status.ranges] == ["task"]
    delivered.running.stop()
    assert door.receiver.repeated


@pytest.mark.parametrize("committed", [0, 1])
def test_it_outlives_failures_pauses_and_owners(delivered: Delivered, committed: int) -> None:
    if committed:
        delivered.history.go_on()
    delivered.install()
    if committed:
        delivered.come_to(delivered.history)
    owed = delivered.fail()
    assert owed == Intent(Position(1 + committed), first=not committed)
    before = dict(delivered.door.receiver.bodies)
    delivered.history.go_on()
    delivered.running.pause("m")
    delivered.history.go_on()
    assert delivered.entry.intent == owed
    delivered.running.resume("m")
    _eventually(lambda: delivered.running.get("m").status.error)  # type: ignore[union-attr]
    delivered.running.stop()
    delivered.begin()
    delivered.running.start()
    assert (delivered.entry.intent, delivered.door.receiver.bodies) == (owed, before)
    delivered.come_to(delivered.history)
    assert delivered.door.receiver.repeated
    assert delivered.entry.intent is None


@pytest.mark.parametrize("committed", [0, 1])
@pytest.mark.parametrize("wider", [False, True])
def test_what_was_begun_with_a_view_that_is_replaced(
    delivered: Delivered, committed: int, wider: bool
) -> None:
    old = delivered.history
    if committed:
        old.go_on()
    delivered.install()
    if committed:
        delivered.come_to(old)
    delivered.fail()
    old.go_on()
    new = History(delivered.client, "new", 8)
    if wider:
        new.widen()
    for _ in range(4):
        new.go_on()

    def commit(also: tuple[Command, ...]) -> None:
        delivered.client.core.submit(Atomic(also)).result()

    delivered.running.replace({old.read.id: new.read.id}, commit)
    new.go_on()
    delivered.come_to(new)
    assert delivered.door.receiver.repeated


def test_a_column_that_was_added_since(delivered: Delivered) -> None:
    delivered.install()
    delivered.fail()
    delivered.history.widen()
    delivered.history.go_on()
    delivered.come_to(delivered.history)
    assert delivered.door.receiver.repeated


def test_a_backfill_forgets_it(delivered: Delivered) -> None:
    delivered.history.go_on()
    delivered.install()
    delivered.come_to(delivered.history)
    delivered.fail()
    delivered.history.go_on()
    delivered.running.pause("m")
    delivered.running.backfill("m")
    delivered.door.receiver = Receiver()  # Emptied, by whom it belongs to.
    delivered.door.steps = ALWAYS
    delivered.running.resume("m")
    delivered.come_to(delivered.history)
    assert not delivered.door.receiver.repeated


def test_parts_are_cut_where_they_were(
    client: Client, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under other limits, and after merges of what they were read from."""
    write, read = client.create_or_load("c", SCHEMA, key=("k",))
    random = Random(5)
    for time in range(6):
        ks = [k for k in range(300) if random.random() < 0.5 or time == 5]
        rows = [(k, f"{k}", k, time, 1) for k in ks if k % 6 == time]
        fields = updates_schema(SCHEMA)
        arrays = [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), fields, strict=True)]
        table = pa.Table.from_arrays(arrays, schema=fields)
        write.compare_and_append(table, time, time + 1).result()
    count = sum(table.num_rows for table in read.snapshot(5).updates())
    running = Materializations(client, retry_seconds=0.01)
    gid, to = read.id, Endpoint("webhook", {"url": "http://receiver"})
    door.steps = 31
    bindings = (
        Binding("c", gid, "rows", ("k",), delta_updates=True),
        Binding("c", gid, "sums", ("k",), delta_updates=True, reduce=(("n", "sum"),)),
    )
    running.install("m", to, bindings, tuning={"spill_bytes": 3_000})
    _eventually(lambda: not door.steps)
    running.pause("m")
    owed = entry_of(client.core, "m", FULL).intent
    assert owed is not None
    assert (owed.first, bool(owed.position.snapshot)) == (True, True)
    before = dict(door.receiver.bodies)
    maintenance = Maintenance(client.core)
    collection = client.core.state.collections[gid]
    assert maintenance.merge_batches(collection, collection.batches)
    running.tune("m", {"spill_bytes": 7_000})
    door.steps = ALWAYS
    running.resume("m")
    _eventually(lambda: running.get("m").status.checkpoint == 6)  # type: ignore[union-attr]
    running.stop()
    assert before.items() <= door.receiver.bodies.items()
    assert door.receiver.repeated
    assert set(door.receiver.rows.values()) == {1}
    assert (len(door.receiver.rows), len(door.receiver.sums)) == (count, count)


def _entries_of_a_transaction(delivered: Delivered) -> int:
    delivered.history.go_on()
    delivered.install()
    delivered.come_to(delivered.history)
    before = delivered.client.core.state.seqno
    delivered.history.go_on()
    delivered.come_to(delivered.history)
    return delivered.client.core.state.seqno - before - 1  # That of the history.


def test_it_costs_one_entry_and_only_where_it_must(
    delivered: Delivered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _entries_of_a_transaction(delivered) == 2
    # A driver that returns its checkpoint knows by itself what it has.
    monkeypatch.setattr(runtime, "repeats", lambda *_: True)
    delivered.running.install(
        "s",
        Endpoint("sqlite", {"path": str(tmp_path / "e.db")}),
        (Binding("c", delivered.history.read.id, "rows", ("k",)),),
    )
    found = delivered.running.get("s")
    assert found is not None
    _eventually(lambda: found.status.checkpoint == 2)
    delivered.running.pause("m")
    before = delivered.client.core.state.seqno
    delivered.history.go_on()
    _eventually(lambda: found.status.checkpoint == 3)
    assert delivered.client.core.state.seqno - before == 2
    assert not repeats("sqlite", {})


def test_who_owes_something_is_not_drained() -> None:
    owing = RecoveryEntry(Position(5), intent=Intent(Position(9)))
    with pytest.raises(NotDrained, match="owing"):
        inherited({FULL: owing}, LOW)
    with pytest.raises(NotDrained, match="drain them first"):
        inherited({LOW: RecoveryEntry(Position(5)), HIGH: owing}, FULL)


def test_where_the_last_write_wins_it_is_once() -> None:
    unguarded = {"guarded": False}
    assert guarantee("redis", unguarded, last_write_wins=True) is Guarantee.EFFECTIVELY_ONCE
    assert guarantee("redis", unguarded, last_write_wins=False) is Guarantee.AT_LEAST_ONCE
    assert guarantee("redis", {}, last_write_wins=False) is Guarantee.EXACTLY_ONCE
    assert [repeats("redis", config) for config in ({}, unguarded)] == [False, True]
    assert [repeats(name, {}) for name in ("webhook", "connector", "delta")] == [True, True, False]


class Shaky(Door):
    """A receiver that fails now and then."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = Random(seed)

    def event(self) -> None:
        if self.steps and self._random.random() < 0.15:
            raise Indeterminate("the receiver is down for a moment")


@pytest.mark.parametrize("seed", seeds(2, 60))
def test_shards_that_fail_are_split_and_joined(
    client: Client, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    print(f"seed {seed}")
    random, shaky = Random(seed), Shaky(seed)
    shaky.receiver.judges_by_key = True
    hooked = replace(DRIVERS["webhook"], make=lambda: Hook(shaky))
    monkeypatch.setattr(registry, "DRIVERS", {**DRIVERS, "webhook": hooked})
    monkeypatch.setattr(webhook, "BODY_BYTES", 80)
    delivered = Delivered(client, shaky, seed)
    delivered.install(shards=random.choice([1, 2]))
    for _ in range(12):
        delivered.history.go_on()
        if random.random() < 0.3:
            delivered.running.reshape("m", random.choice([1, 2, 3, 4]))
        sleep(random.choice([0, 0.01, 0.03]))
    found = delivered.running.get("m")
    assert found is not None
    upper = len(delivered.history.views) - 1
    shaky.steps = 0  # From now on it is up.

    def stands() -> bool:
        status = found.status
        # Shards that begin where all is delivered have nothing to reach.
        return upper in (status.reached, status.checkpoint) and status.state is State.RUNNING

    _eventually(stands)
    delivered.running.stop()
    shaky.receiver.judge(delivered.history.views[-1], FULL)

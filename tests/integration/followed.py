"""What is ingested from a database that is followed, and what must be true of it.

A world is an upstream with two tables of accounts, ``a`` and ``b``, between which money only moves.
A location outlives the processes that ingest it; everything stays readable at all times.
"""

from __future__ import annotations

import threading
from collections import Counter
from random import Random
from typing import Any, Protocol

import pytest

from headwater.base.clock import ManualClock, SystemClock
from headwater.collection.run_layout import LAYOUTS
from headwater.persist.blob.memory import MemoryBlob
from headwater.persist.client import Client, open_location
from headwater.persist.commands import OpenReader
from headwater.persist.consensus.memory import MemoryConsensus
from headwater.persist.core import Settings
from headwater.persist.errors import Stopped
from headwater.storage.ingestion import Ingestion
from headwater.storage.offsets import Offsets
from headwater.storage.outputs import Definition
from headwater.storage.runner import Runner
from headwater.storage.source import Source
from headwater.storage.stored_remap import read_remap
from headwater.testing.crash import quiet_crashes
from headwater.testing.unreliable import Crash, FailNth
from tests.unit.storage.conformance import flat


class World(Protocol):
    """An upstream; money moves with :meth:`grow`."""

    name: str
    keyed: bool
    tables: Any
    errors: tuple[type[Exception], ...]
    """What a writer gets whose server is away."""

    def source(self) -> Source: ...

    def definition(self) -> Definition: ...

    def grow(self, random: Random) -> None: ...

    def contents(self, table: str) -> Counter[tuple[Any, ...]]: ...

    def processes_die(self) -> None:
        """Whatever our processes hold upstream ends with them."""

    def check_kept(self, durable: Offsets) -> None:
        """Upstream was told to forget nothing that is not durable here."""

    def connect(self) -> None:
        """Have a connection to grow by, again."""

    def disconnect(self) -> None: ...

    def outage(self) -> None:
        """The server dies, and comes back by itself or not."""

    def mended(self) -> None:
        """The server is there again, as soon as it can."""


class Location:
    """Memory ports that outlive the processes, with everything readable for ever."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.blob, self.log = MemoryBlob(), MemoryConsensus()
        self.clock = ManualClock(1_000)

    def open(self, process: FailNth | None = None) -> Client:
        return open_location(
            blob=process.blob(self.blob) if process else self.blob,
            consensus=process.consensus(self.log) if process else self.log,
            take_over=True,
            clock=self.clock,
            settings=Settings(maintenance=False),
            layouts=LAYOUTS,
        )

    def start(self, client: Client) -> Ingestion:
        running = Ingestion(client, self.world.definition(), self.world.source())
        if not running.resumption.time:
            for name in (running.definition.remap, *self.world.tables):
                gid = client.reader(name).id
                client.core.submit(OpenReader(gid, f"oracle/{name}", "oracle")).result()
        return running

    def tick(self, running: Ingestion) -> None:
        self.clock.set(self.clock.now_ms() + 10)
        assert running.tick(self.clock.now_ms())
        self.world.check_kept(running.resumption.offsets)


def contents(client: Client, name: str, as_of: int | None = None) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for row in client.reader(name).snapshot(as_of).to_table().to_pylist():
        diff = row.pop("__diff")
        found[tuple(row.values())] += diff
    return found


def check_same(client: Client, world: World) -> None:
    for table in ("a", "b"):
        assert contents(client, f"{world.name}.{table}") == world.contents(table)


def check_never_torn(client: Client, world: World) -> None:
    """At every binding the money of both tables adds up."""
    bound = read_remap(client.reader(world.definition().remap))
    upper = client.reader(f"{world.name}.a").upper.only()
    for time in (b.time for b in bound.bindings if b.time < upper):
        money = sum(
            row[1] * count
            for table in ("a", "b")
            for row, count in contents(client, f"{world.name}.{table}", time).items()
        )
        # Of one that died with its snapshot nothing is there, until the next one's.
        assert money == 1_000 or (world.keyed and not money), f"at {time}"


def read_all(source: Source, lower: Offsets) -> None:
    flat(source.read(lower, source.probe()))


# ---- stories that are the same for every upstream ----------------------------------------------


def snapshot_then_changes(world: World, seed: int) -> None:
    location, random = Location(world), Random(seed)
    with location.open() as client:
        running = location.start(client)
        for _ in range(5):
            location.tick(running)
            check_same(client, world)
            world.grow(random)
        location.tick(running)
        check_same(client, world)
        check_never_torn(client, world)
        running.stop()


def killed_at_random_effects(world: World, seed: int) -> None:
    """Whoever restarts finds upstream what was not durable, and reads nothing else again."""
    print(f"seed {seed}")
    location, random = Location(world), Random(seed)
    for _ in range(8):
        process = FailNth(random.randrange(3, 25), random.choice(("before", "after")))
        with quiet_crashes(), pytest.raises((Crash, Stopped)):  # noqa: PT012 - at any of them
            client = location.open(process)
            running = location.start(client)
            while True:
                world.grow(random)
                location.tick(running)
        world.processes_die()
    with location.open() as client:
        running = location.start(client)
        location.tick(running)
        location.tick(running)
        check_same(client, world)
        check_never_torn(client, world)
        running.stop()


def _write_until(stop: threading.Event, world: World, random: Random) -> None:
    """Move money all the while, also where the server was killed in between."""
    while not stop.is_set():
        try:
            world.connect()
            while not stop.is_set():
                world.grow(random)
        except world.errors:
            stop.wait(0.05)
        finally:
            world.disconnect()


def server_killed_under_load(world: World, seed: int, times: int) -> None:
    """Every binding is whole, whatever the server was doing; the status tells of each outage."""
    print(f"seed {seed}")
    location, random, stop = Location(world), Random(seed), threading.Event()
    location.clock = ManualClock(SystemClock().now_ms())
    world.disconnect()
    writer = threading.Thread(target=_write_until, args=(stop, world, Random(seed)))
    writer.start()
    try:
        with location.open() as client:
            runner = Runner(lambda: location.start(client), location.clock)
            for _ in range(times):
                for _ in range(random.randrange(1, 5)):
                    location.clock.sleep(0.01)
                    runner.once()
                world.outage()
                location.clock.sleep(0.01)
                runner.once()
                world.mended()
                while runner.status.condition.value != "running":
                    stop.wait(0.1)
                    location.clock.sleep(0.01)
                    assert runner.once() is not None, runner.status
            stop.set()
            writer.join()
            world.connect()
            for _ in range(2):
                location.clock.sleep(0.01)
                assert runner.once() is not None, runner.status
            check_same(client, world)
            check_never_torn(client, world)
            assert "stalled" in [status.condition.value for status in runner.history]
    finally:
        stop.set()
        writer.join()
        world.connect()

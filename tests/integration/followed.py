"""What is ingested from a database that is followed, and what must be true of it.

A world is an upstream with two tables of accounts, ``a`` and ``b``, between which money only moves.
A location outlives the processes that ingest it; everything stays readable at all times.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any, Protocol

from headwater.base.clock import ManualClock
from headwater.collection.run_layout import LAYOUTS
from headwater.persist.blob.memory import MemoryBlob
from headwater.persist.client import Client, open_location
from headwater.persist.commands import OpenReader
from headwater.persist.consensus.memory import MemoryConsensus
from headwater.persist.core import Settings
from headwater.storage.ingestion import Ingestion
from headwater.storage.offsets import Offsets
from headwater.storage.outputs import Definition
from headwater.storage.source import Source
from headwater.storage.stored_remap import read_remap
from headwater.testing.unreliable import FailNth
from tests.unit.storage.conformance import flat


class World(Protocol):
    """An upstream; money moves with :meth:`grow`."""

    name: str
    keyed: bool
    tables: Any

    def source(self) -> Source: ...

    def definition(self) -> Definition: ...

    def grow(self, random: Random) -> None: ...

    def contents(self, table: str) -> Counter[tuple[Any, ...]]: ...

    def check_kept(self, durable: Offsets) -> None: ...


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

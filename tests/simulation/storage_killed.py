"""A process that ingests two sources until it is killed.

An auction generator that runs by the machine's clock, and a directory to which the parent appends
lines all the while. It tells how many rows are durable after every tick.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa

from headwater.base.clock import SystemClock
from headwater.collection.run_layout import LAYOUTS
from headwater.persist.client import Client, open_location
from headwater.persist.core import Settings
from headwater.storage.dead_letters import Policy
from headwater.storage.envelope import Plain, Rows, Upsert
from headwater.storage.format import Json
from headwater.storage.generators.auction import Auctions
from headwater.storage.generators.generator import Generator
from headwater.storage.ingestion import Ingestion
from headwater.storage.outputs import Definition, Output
from headwater.storage.sources.files import OUTPUT, Files

LINE = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("n", pa.int64())])
STREAM = Auctions(seed=5, lasting=20)
AUCTIONS = Definition(
    "auctions", tuple(Output(n, n, Rows(schema)) for n, schema in STREAM.outputs.items())
)
LINES = Definition("lines", (Output(OUTPUT, "lines", Plain(Json(LINE), Policy.SKIP)),))
KEYS = Definition("keys", (Output(OUTPUT, "keys", Upsert(Json(LINE), ("k",), policy=Policy.SKIP)),))
PER_SECOND = 60


def open_writer(root: Path) -> Client:
    return open_location(
        root / "location",
        reentrance_id="storage",
        layouts=LAYOUTS,
        settings=Settings(rollup_entries=12),
    )


def ingestions(client: Client, root: Path, start_ms: int) -> Iterator[Ingestion]:
    clock = SystemClock()
    generator = Generator(STREAM, clock, start_ms=start_ms, per_second=PER_SECOND)
    yield Ingestion(client, AUCTIONS, generator)
    yield Ingestion(client, LINES, Files(root / "in", "lines"))
    yield Ingestion(client, KEYS, Files(root / "in", "lines"))


def ingest_until_killed(root: Path, start_ms: int, told: Connection) -> None:
    """Tick as fast as it goes; send how far each is after each tick."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    client, clock = open_writer(root), SystemClock()
    running = list(ingestions(client, root, start_ms))
    while True:
        for ingestion in running:
            ingestion.tick(clock.now_ms())
        told.send([dict(ingestion.resumption.offsets) for ingestion in running])

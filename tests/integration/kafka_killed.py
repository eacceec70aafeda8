"""A process that ingests a topic twice, as rows and as an upsert, until it is killed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa

from headwater.base.clock import SystemClock
from headwater.base.retry import RetryPolicy
from headwater.collection.run_layout import LAYOUTS
from headwater.persist.client import Client, open_location
from headwater.persist.core import Settings
from headwater.storage.dead_letters import Policy
from headwater.storage.envelope import Plain, Upsert
from headwater.storage.format import Json
from headwater.storage.ingestion import Ingestion
from headwater.storage.outputs import Definition, Output
from headwater.storage.runner import Condition, Runner
from headwater.storage.sources.kafka import OUTPUT, Kafka

LINE = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("n", pa.int64())])
PLAIN = Definition("plain", (Output(OUTPUT, "plain", Plain(Json(LINE), Policy.SKIP)),))
KEYED = Definition(
    "keyed", (Output(OUTPUT, "keyed", Upsert(Json(LINE), ("k",), policy=Policy.SKIP)),)
)


def open_writer(root: Path) -> Client:
    return open_location(
        root / "location",
        reentrance_id="kafka",
        layouts=LAYOUTS,
        settings=Settings(rollup_entries=12),
    )


def ingestion(client: Client, what: Definition, bootstrap: str, topic: str) -> Ingestion:
    return Ingestion(client, what, Kafka({"bootstrap.servers": bootstrap}, topic, name=what.name))


def ingestions(client: Client, bootstrap: str, topic: str) -> Iterator[Ingestion]:
    for what in (PLAIN, KEYED):
        yield ingestion(client, what, bootstrap, topic)


def ingest_until_killed(root: Path, bootstrap: str, topic: str, told: Connection) -> None:
    """Tick as fast as it goes; tell after each round in which everything runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    client, clock = open_writer(root), SystemClock()
    retry = RetryPolicy(first_ms=20, limit_ms=200, attempts_max=10**9)

    def runner(what: Definition) -> Runner:
        return Runner(lambda: ingestion(client, what, bootstrap, topic), clock, retry=retry)

    running = [runner(what) for what in (PLAIN, KEYED)]
    while True:
        for each in running:
            each.once()
            assert each.status.condition in {Condition.RUNNING, Condition.STALLED}, each.status
        if all(each.status.condition is Condition.RUNNING for each in running):
            told.send(None)

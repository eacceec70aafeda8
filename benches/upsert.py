"""An upsert of a backlog in which every message has a key of its own: memory, and what it costs.

A topic of N messages on a real broker, N different keys, ingested in one range by a process of its
own: in the server's process alone, and with Spark tasks that read and decode. Printed is by how
much the anonymous memory of its process tree grew at most, which should be that of some batches
whatever N is (files that are mapped are not in it), and the CPU of the tree.

The second range changes a tenth of the keys, so that they are looked up in the output.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from measure import arguments, begin, cost, scratch, show

from headwater.base.clock import SystemClock
from headwater.collection.run_layout import LAYOUTS
from headwater.compute.session import SparkSettings, close_session, open_session
from headwater.persist.client import open_location
from headwater.storage.envelope import Upsert
from headwater.storage.format import Json
from headwater.storage.ingestion import Ingestion
from headwater.storage.offsets import Offsets
from headwater.storage.outputs import Definition, Output
from headwater.storage.sources.kafka import OUTPUT, Kafka
from headwater.storage.spark import SparkTasks
from headwater.testing.kafka import Broker, kafka_broker, missing
from headwater.testing.process_tree import tree_anonymous_mib

KEY = pa.schema([pa.field("id", pa.int64(), nullable=False)])
VALUE = pa.schema(
    [
        pa.field("customer", pa.int64()),
        pa.field("amount", pa.float64()),
        pa.field("note", pa.string()),
    ]
)
PARTITIONS = 4


def produce(broker: Broker, topic: str, count: int) -> None:
    broker.create_topic(topic, PARTITIONS)
    producer = broker.producer(linger_ms=50, queue_buffering_max_messages=1_000_000)
    # The last tenth tells of the first keys again.
    for number in (*range(count), *range(0, count, 10)):
        value = b'{"customer": %d, "amount": %d.5, "note": "order number %d"}'
        producer.produce(
            topic,
            value % (number * 7919 % 100_003, number % 9_973, number),
            key=b'{"id": %d}' % number,
            partition=number % PARTITIONS,
        )
        if number % 1_000 == 0:
            producer.poll(0.01 if len(producer) > 500_000 else 0)
    producer.flush()


class Watched:
    """The largest anonymous memory of the process tree, beyond what it was."""

    def __init__(self) -> None:
        self.before = sum(tree_anonymous_mib().values())
        self.largest = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.05):
            grown = sum(tree_anonymous_mib().values()) - self.before
            self.largest = max(self.largest, grown)

    def stop(self) -> float:
        self._over.set()
        self._thread.join()
        return self.largest


def one(address: str, topic: str, count: int, by_tasks: bool) -> dict[str, float]:
    """Ingest a topic in two ranges; return what each cost."""
    session: Any = open_session(SparkSettings(driver_memory="1g")) if by_tasks else None
    if session is not None:  # Its workers are there before anything is measured.
        session.range(10).rdd.map(lambda row: row).count()
    envelope = Upsert(Json(VALUE), ("id",), Json(KEY))
    definition = Definition("bench", (Output(OUTPUT, "newest", envelope),))
    found: dict[str, float] = {}
    source = Kafka({"bootstrap.servers": address}, topic)
    end = source.probe()
    share = count // PARTITIONS
    middle = Offsets({p: min(n, share) if p.isdigit() else n for p, n in end.items()})
    told = iter((middle, end))
    source.probe = lambda: next(told)  # type: ignore[method-assign]
    tasks = None if session is None else partial(SparkTasks, session)
    with scratch() as folder, open_location(folder, layouts=LAYOUTS) as client:
        ingestion = Ingestion(client, definition, source, tasks=tasks)
        for number, name in enumerate(("first", "second")):
            watched = Watched()
            with cost() as spent:
                assert ingestion.tick(SystemClock().now_ms() + number)
            found[f"{name}_mib"] = watched.stop()
            found[f"{name}_cpu_s"], found[f"{name}_s"] = spent.cpu_s, spent.wall_s
        found["updates"] = ingestion.statistics.updates
        rows = sum(t.num_rows for t in client.reader("newest").snapshot().updates())
        assert rows >= count, f"{rows} of {count}"
        ingestion.stop()
    if session is not None:
        close_session()
    return found


def main() -> None:
    parser = arguments()
    parser.add_argument("--sizes", default="", help="messages: 1000000,4000000")
    parser.add_argument("--one", nargs=4, help="address, topic, messages, where")
    asked = parser.parse_args()
    if asked.one:
        address, topic, count, where = asked.one
        print(json.dumps(one(address, topic, int(count), where == "tasks")))
        return
    begin("An upsert of a backlog: every message has a key of its own")
    reason = missing()
    if reason is not None:
        print(reason)
        return
    table = []
    usual = "50000,200000" if asked.quick else "1000000,4000000"
    with kafka_broker() as broker:
        for size in map(int, (asked.sizes or usual).split(",")):
            topic = f"t{size}"
            produce(broker, topic, size)
            for where in ("server", "tasks"):
                command = [sys.executable, str(Path(__file__)), "--one"]
                command += [broker.bootstrap, topic, str(size), where]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
                table.append(
                    [
                        f"{size:,} keys, {where}",
                        f"{size / found['first_cpu_s'] / 1e3:,.0f}",
                        f"{size / found['first_s'] / 1e3:,.0f}",
                        f"{found['first_mib']:,.0f}",
                        f"{size / 10 / found['second_cpu_s'] / 1e3:,.0f}",
                        f"{found['second_mib']:,.0f}",
                    ]
                )
    show(
        "Thousands per CPU-second and per second; MiB of the process tree",
        ["", "k/CPU-s", "k/s", "MiB", "changed: k/CPU-s", "MiB"],
        table,
    )


if __name__ == "__main__":
    main()

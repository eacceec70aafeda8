"""Delivering: rows per second into PostgreSQL, SQLite and Delta Lake, beside the raw client.

Targets: at least 60 % of what the endpoint's own client does with the same rows in the same run,
without checkpoint, fence or recovery log; p50 from commit to visible in PostgreSQL at most 1.5 s at
the default tick.

*Initial load* is the first snapshot of a collection, from its parts to the endpoint; then come
transactions of 50,000 changed rows each. The raw client has its rows in memory, in Arrow; ours
reads them from the collection. They take turns (raw, ours, ours, raw), each into a table of its
own, and of each the better counts. CPU-s are of the process and its children: without the server's,
where there is one.

``memory`` is what the process holds beyond what it held before the first initial load, at its most,
without mapped files: it follows the spill limit, not the collection. ``--memory`` shows that for
collections of several sizes, each in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from append import settle
from endpoints import AGAIN, BATCH_ROWS, Place, places
from measure import (
    SCHEMA,
    Cost,
    arguments,
    begin,
    cost,
    percentile,
    resident_anonymous_mib,
    scratch,
    show,
    updates,
)

from headwater.collection.capability import ReadCapability
from headwater.collection.collections import Collections
from headwater.collection.run_layout import LAYOUTS
from headwater.compute.session import SparkSettings, close_session, open_session
from headwater.materialize.combine import Bound
from headwater.materialize.combine_job import Combiner
from headwater.materialize.definition import Binding, Definition, Endpoint, delivered_schema
from headwater.materialize.drivers.registry import driver
from headwater.materialize.gather import gather
from headwater.materialize.key_range import KeyRange
from headwater.materialize.runtime import Session
from headwater.materialize.spill import SPILL_BYTES
from headwater.materialize.status import Status
from headwater.materialize.transport.in_process import InProcess
from headwater.persist.client import Client, WriteHandle, open_location
from headwater.persist.evolution import DIFF, TIME
from headwater.persist.interval import Interval
from headwater.persist.spark import run_in_background


@dataclass
class Delivered:
    """A collection and its materialization into a place, run by hand."""

    client: Client
    place: Place
    write: WriteHandle = field(init=False)
    read: ReadCapability = field(init=False)

    def __post_init__(self) -> None:
        self.write, handle = self.client.create_or_load("t", SCHEMA, key=("k",))
        self.read = Collections(self.client).acquire_read(handle.id)

    def load(self, rows: int) -> None:
        for at, start in enumerate(range(0, rows, BATCH_ROWS)):
            batch = updates(start, min(BATCH_ROWS, rows - start), at)
            self.write.compare_and_append(batch, at, at + 1).result()
        settle(self.client.core)

    def change(self, old: pa.Table, new: pa.Table) -> None:
        at = self.write.upper.only()
        gone = _at(old, at, -1)
        self.write.compare_and_append(
            pa.concat_tables([gone, _at(new, at, 1)]), at, at + 1
        ).result()

    def session(self, target: str) -> Session:
        binding = Binding("t", self.read.id, target, ("k",))
        endpoint = Endpoint(self.place.name, self.place.config)
        definition = Definition(target, "i", endpoint, (binding,), (self.read.to_text(),))
        stream = InProcess(driver(self.place.name).make())
        return Session(self.client, definition, (self.read,), KeyRange.full(), stream)


def _at(rows: pa.Table, time_: int, diff: int) -> pa.Table:
    count = rows.num_rows
    columns = {TIME: pa.repeat(time_, count), DIFF: pa.repeat(diff, count)}
    for name, values in columns.items():
        rows = rows.append_column(pa.field(name, pa.int64(), nullable=False), values)
    return rows


def deliver_all(session: Session) -> None:
    while (target := session.feed.wait(0)) is not None:
        session.deliver(target, Status())
    session.settle()


def changed(rows: pa.Table, round_: int) -> pa.Table:
    """Return the rows of a transaction as they are after it."""
    amounts = pa.array([round_] * rows.num_rows, pa.int64())
    return rows.set_column(1, "amount", amounts)


@contextmanager
def watched_memory() -> Iterator[list[float]]:
    """Look at our memory all the time; the last entry is the most, beyond the first."""
    seen, ended = [resident_anonymous_mib()], threading.Event()

    def look() -> None:
        while not ended.wait(0.01):
            seen.append(resident_anonymous_mib())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()
        seen.append(max(seen) - seen[0])


def better(first: Cost, second: Cost) -> Cost:
    return min(first, second, key=lambda spent: spent.wall_s)


def measure(place: Place, folder: Path, rows: int, rounds: int) -> Iterator[list[object]]:
    """Yield a line for the initial load, and one for the steady changes."""
    all_rows = updates(0, rows, 0).select(SCHEMA.names)

    def raw_load() -> Cost:
        place.empty_raw()
        with cost() as spent:
            place.raw_load(all_rows)
        return spent

    with open_location(folder / f"data-{place.name}") as client:
        delivered = Delivered(client, place)
        delivered.load(rows)
        first = raw_load()
        sessions = [delivered.session(target) for target in (AGAIN, "target")]
        loads: list[Cost] = []
        with watched_memory() as memory:
            for session in sessions:
                with cost() as spent:
                    deliver_all(session)
                loads.append(spent)
        sessions[0].end()
        sessions[0].close()
        ours, raw = better(*loads), better(first, raw_load())
        for target in (AGAIN, "target"):
            assert place.read(target) == place.read("raw"), "the endpoint is not the collection"
        yield _line(f"{place.name}: initial load", rows, ours, raw, f"{memory[-1]:.0f}")
        yield from _steady(place, delivered, session, all_rows, rounds)
        session.end()
        session.close()


def _steady(
    place: Place, delivered: Delivered, session: Session, all_rows: pa.Table, rounds: int
) -> Iterator[list[object]]:
    ours, raw = Cost(), Cost()
    size = min(BATCH_ROWS, all_rows.num_rows // 2)
    now: dict[int, pa.Table] = {}
    for round_ in range(rounds):
        start = (round_ * 7 * size) % (all_rows.num_rows - size + 1)
        old = now.get(start, all_rows.slice(start, size))
        new = now[start] = changed(old, round_)
        delivered.change(old, new)

        def deliver() -> None:
            with cost() as spent:
                deliver_all(session)
            ours.wall_s += spent.wall_s
            ours.cpu_s += spent.cpu_s

        def upsert(new: pa.Table = new) -> None:
            with cost() as spent:
                place.raw_upsert(new)
            raw.wall_s += spent.wall_s
            raw.cpu_s += spent.cpu_s

        for work in (deliver, upsert) if round_ % 2 else (upsert, deliver):
            work()
    assert place.read("target") == place.read("raw"), "the endpoint is not the collection"
    yield _line(f"{place.name}: {size:,} changed rows", rounds * size, ours, raw, "")


def _line(name: str, rows: int, ours: Cost, raw: Cost, memory: str) -> list[object]:
    return [
        name,
        f"{rows / ours.wall_s / 1e3:,.0f}",
        f"{rows / raw.wall_s / 1e3:,.0f}",
        f"{100 * raw.wall_s / ours.wall_s:.0f} %",
        f"{ours.cpu_s:.2f}",
        f"{raw.cpu_s:.2f}",
        f"{100 * raw.cpu_s / ours.cpu_s:.0f} %",
        memory,
    ]


# ---- from commit to visible ----------------------------------------------------------------------


def latency(folder: Path, dsn: str, samples: int) -> list[float]:
    """Insert rows through a server of ours, one at a time; return when each was in PostgreSQL."""
    command = [sys.executable, "-m", "headwater", "serve", "--data", str(folder / "server")]
    process = subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        port = int(line.rsplit(":", 1)[1])
        address = f"host=127.0.0.1 port={port} user=headwater dbname=headwater"
        with (
            psycopg.connect(address, autocommit=True) as db,
            psycopg.connect(dsn, autocommit=True) as endpoint,
        ):
            return list(_latencies(db, endpoint, dsn, samples))
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def _latencies(
    db: psycopg.Connection[Any], endpoint: psycopg.Connection[Any], dsn: str, samples: int
) -> Iterator[float]:
    db.execute("CREATE TABLE seen (id BIGINT, what TEXT)")
    db.execute("INSERT INTO seen VALUES (0, 'first')")
    db.execute(
        f"CREATE MATERIALIZATION m INTO POSTGRES (DSN '{dsn}') "
        '(seen AS "public.seen" KEY (id))'.encode()
    )
    for number in range(samples + 1):
        if number:
            db.execute("INSERT INTO seen VALUES (%s, 'x')", (number,))
        committed = time.perf_counter()
        while not _is_there(endpoint, number):
            time.sleep(0.005)
        if number:
            yield time.perf_counter() - committed
        time.sleep(0.1 + 0.9 * (number * 0.37 % 1))  # So that no sample waits for another's tick.


def _is_there(endpoint: psycopg.Connection[Any], number: int) -> bool:
    try:
        found = endpoint.execute("SELECT 1 FROM seen WHERE id = %s", (number,)).fetchone()
    except psycopg.errors.UndefinedTable:
        return False
    return found is not None


# ---- combining ---------------------------------------------------------------------------------


def combining(folder: Path, sizes: Sequence[int]) -> Iterator[list[object]]:
    """Yield how long an interval takes to combine here, and in tasks of Spark."""
    session = open_session(SparkSettings())
    run_in_background(session, [partial(_nothing)])  # The first job starts processes.
    try:
        for rows in sizes:
            with open_location(folder / f"combine-{rows}", layouts=LAYOUTS) as client:
                write, handle = client.create_or_load("t", SCHEMA, key=("k",))
                for at, start in enumerate(range(0, rows, 4 * BATCH_ROWS)):
                    batch = updates(start, min(4 * BATCH_ROWS, rows - start), at)
                    write.compare_and_append(batch, at, at + 1).result()
                upper = write.upper.only()
                binding = Binding("t", handle.id, "target", ("k",))
                bound = Bound(0, binding, "x", delivered_schema(binding, SCHEMA, hard_delete=True))
                interval = Interval(client.core, handle.id, 0, upper)
                full = KeyRange.full()
                with cost() as here:
                    gather(bound, interval, upper, full, SPILL_BYTES)
                tasks = partial(run_in_background, session)
                combiner = Combiner(client.core, tasks, (full,), rows_min=1)
                with cost() as there:
                    combiner.run(bound, interval, upper, full, SPILL_BYTES)
            yield [f"{rows:,}", f"{here.wall_s:.2f}", f"{there.wall_s:.2f}"]
    finally:
        close_session()


def _nothing(_: str) -> bytes:
    return b""


# ---- memory ------------------------------------------------------------------------------------


def peak_mib(place: Place, folder: Path, rows: int) -> float:
    """Return what an initial load takes, at its most."""
    with open_location(folder / "data") as client:
        delivered = Delivered(client, place)
        delivered.load(rows)
        session = delivered.session("target")
        with watched_memory() as memory:
            deliver_all(session)
        assert place.read("target")[0] == rows, "the endpoint is not the collection"
        session.end()
        session.close()
        return memory[-1]


def _peak_elsewhere(name: str, rows: int) -> str:
    """Ask a process of its own: what one has held before, another load finds ready."""
    command = [sys.executable, __file__, "--only", name, "--rows", str(rows), "--peak"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    parser = arguments()
    parser.add_argument("--rows", type=int, help="how many rows the initial load has")
    parser.add_argument("--only", help="one endpoint: sqlite, postgres or delta")
    parser.add_argument("--no-latency", action="store_true", help="start no server")
    parser.add_argument("--combine", action="store_true", help="only combining, here and on Spark")
    parser.add_argument("--memory", action="store_true", help="only memory, at several sizes")
    parser.add_argument("--peak", action="store_true", help="only the memory of one initial load")
    asked = parser.parse_args()
    if asked.peak:
        with places() as (folder, makes, _):
            print(f"{peak_mib(makes[asked.only](), folder, asked.rows):.0f}")
        return
    if asked.memory:
        rows_of = (1_000_000, 4_000_000) if asked.quick else (1_000_000, 4_000_000, 16_000_000)
        begin(f"Materializations: MiB of an initial load; the spill limit is {SPILL_BYTES >> 20}")
        kinds = [asked.only] if asked.only else ["sqlite", "postgres", "delta"]
        lines = [[name, *(_peak_elsewhere(name, rows) for rows in rows_of)] for name in kinds]
        show("MiB, at its most", ["", *(f"{rows:,} rows" for rows in rows_of)], lines)
        return
    if asked.combine:
        sizes = (250_000, 1_000_000, 2_000_000, 4_000_000, 8_000_000)
        begin("Materializations: combining an interval")
        with scratch() as folder:
            lines = list(combining(folder, sizes[:3] if asked.quick else sizes))
        show("seconds", ["rows", "driver process", "Spark tasks"], lines)
        return
    rows = asked.rows or (200_000 if asked.quick else 1_000_000)
    rounds = 4 if asked.quick else 10
    begin("Materializations: share of the raw client, and from commit to visible")
    with places() as (folder, makes, dsn):
        lines = [
            line
            for name, make in makes.items()
            if asked.only in (None, name)
            for line in measure(make(), folder, rows, rounds)
        ]
        show(
            f"{rows:,} rows of two longs and a short string; thousands of rows/s",
            ["", "ours k/s", "raw k/s", "share", "ours CPU-s", "raw CPU-s", "share", "memory MiB"],
            lines,
        )
        if not asked.no_latency and not asked.only:
            os.environ.setdefault("PYTHONPATH", str(Path(__file__).parents[1] / "src"))
            samples = latency(folder, dsn, 10 if asked.quick else 30)
            show(
                "from commit to visible in PostgreSQL, seconds",
                ["", "p50", "p90", "most"],
                [["a row of a table", *(f"{percentile(samples, p):.2f}" for p in (0.5, 0.9, 1))]],
            )


if __name__ == "__main__":
    main()

"""What a commit costs: alone, in a group, after many others, beside many collections.

Targets: a small durable write is acknowledged within 5 ms and reaches a listener within 10 ms
(p50, local disk); a commit after 100,000 commits costs at most 1.2 times one of the first hundred;
a commit beside 1,000 idle collections at most 1.2 times one beside a single one.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import threading
import time
from pathlib import Path

import pyarrow as pa
from measure import (
    SCHEMA,
    begin,
    cost,
    percentile,
    quick,
    raw_fsync_s,
    raw_sqlite_s,
    scratch,
    show,
    spread_ms,
)

from headwater.persist.client import Client, WriteHandle, open_location
from headwater.persist.commands import Done
from headwater.persist.core import Settings
from headwater.persist.log import rollup_key
from headwater.persist.read import Updates

NOTIFYING = Settings(notify=True)

WARM, HUNDRED = 20, 100
"""Commits of a new location that are not counted (files, imports, caches), and those that are."""

METADATA = ["batches", "entries", "log KiB", "rollup KiB"]


def one_row(number: int, at: int) -> list[tuple[dict[str, object], int, int]]:
    return [({"k": number, "amount": number * 7, "name": f"name-{number}"}, at, 1)]


def append_one(write: WriteHandle, at: int) -> float:
    """Append one row and move the upper by one; return how long the acknowledgement took."""
    start = time.perf_counter()
    outcome = write.compare_and_append(one_row(at, at), at, at + 1).result()
    spent = time.perf_counter() - start
    assert isinstance(outcome, Done), outcome
    return spent


# ---- a small write ---------------------------------------------------------------------------


def listen_elsewhere(
    location: str, count: int, pipe: multiprocessing.connection.Connection
) -> None:
    """In another process: a reader that the writer notifies; report when each row arrived."""
    with open_location(location, read_only=True, notified=True) as client:
        listen = client.reader("t").listen(49)
        SCHEMA.empty_table().append_column("n", pa.array([], pa.int64()))  # imports pandas, once
        while not client.core.notified:
            time.sleep(0.01)
        pipe.send("ready")
        arrived: dict[int, int] = {}
        while len(arrived) < count:
            event = listen.fetch(timeout=10)
            now = time.monotonic_ns()
            if event is None:
                break
            if isinstance(event, Updates):
                arrived.update((k, now) for k in event.ok.column("k").to_pylist())
        pipe.send(arrived)


def small_writes(folder: Path, count: int) -> None:
    fsync, sqlite = raw_fsync_s(folder), raw_sqlite_s(folder)
    location = folder / "small"
    with open_location(location, settings=NOTIFYING) as client:
        write, read = client.create_or_load("t", SCHEMA, key=("k",))
        for at in range(50):
            append_one(write, at)
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        reader = context.Process(target=listen_elsewhere, args=(str(location), count, theirs))
        reader.start()
        assert ours.recv() == "ready"

        arrived: dict[int, int] = {}
        listen = read.listen(49)

        def collect() -> None:
            while len(arrived) < count:
                event = listen.fetch(timeout=10)
                now = time.monotonic_ns()
                if event is None:
                    return
                if isinstance(event, Updates):
                    arrived.update((k, now) for k in event.ok.column("k").to_pylist())

        listener = threading.Thread(target=collect)
        listener.start()
        acknowledged, began = [], {}
        with cost() as spent:
            for at in range(50, 50 + count):
                began[at] = time.monotonic_ns()
                acknowledged.append(append_one(write, at))
                time.sleep(0.001)  # one at a time, as a client that waits for the answer does
            listener.join()
        elsewhere = ours.recv()
        reader.join()
    here_s = [(arrived[at] - begun) / 1e9 for at, begun in began.items()]
    there_s = [(elsewhere[at] - begun) / 1e9 for at, begun in began.items()]
    base = percentile(fsync, 0.5)
    show(
        f"One row, durable ({count} of them), ms",
        ["", "p50", "p99", "max", "x fsync", "target p50"],
        [
            [name, *spread_ms(samples), f"{percentile(samples, 0.5) / base:.1f}", target]
            for name, samples, target in (
                ("raw: write 4 KiB and fsync", fsync, ""),
                ("raw: SQLite insert, WAL, full sync", sqlite, ""),
                ("to acknowledgement", acknowledged, "5"),
                ("to a listener in this process", here_s, "10"),
                ("to a notified reader in another process", there_s, "10"),
            )
        ],
    )
    print(f"CPU per commit, with both listeners: {spent.cpu_s / count * 1e3:.2f} ms")


# ---- groups ----------------------------------------------------------------------------------


def groups(folder: Path, each: int) -> None:
    rows = []
    for writers in (1, 8, 32):
        with open_location(folder / f"group-{writers}") as client:
            rows.append(_group(client, writers, each))
    show(
        "Group commit: concurrent writers, each waiting for its answer",
        ["writers", "requests", "entries", "requests/entry", "requests/s", "p50 ms", "p99 ms"],
        rows,
    )


def _group(client: Client, writers: int, each: int) -> list[object]:
    write, _ = client.create_or_load("t", SCHEMA, key=("k",))
    head, samples = client.core.state.seqno, list[float]()

    def work(first: int) -> None:
        for number in range(first, first + each):
            start = time.perf_counter()
            write.write(one_row(number, 10)).result()
            samples.append(time.perf_counter() - start)

    threads = [threading.Thread(target=work, args=(n * each,)) for n in range(writers)]
    with cost() as spent:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    entries = client.core.state.seqno - head
    requests = writers * each
    p50, p99, _ = spread_ms(samples)
    rate = f"{requests / spent.wall_s:,.0f}"
    return [writers, requests, entries, f"{requests / entries:.1f}", rate, p50, p99]


# ---- after many ------------------------------------------------------------------------------


def after_many(folder: Path, count: int) -> None:
    """One location with an ever longer past; its commits and those of new ones are interleaved.

    The disk and the machine change within minutes, so the first hundred alone are no measure of
    what came long after them: at every step a location is made anew, and its own first hundred
    commits are interleaved with a hundred of the old one.
    """
    location = folder / "many"
    with open_location(location) as client:
        write, _ = client.create_or_load("t", SCHEMA, key=("k",))
        _append(write, 0, WARM)
        first, at = _append(write, WARM, HUNDRED), WARM + HUNDRED
        fsync = percentile(raw_fsync_s(folder), 0.5)
        metadata = _metadata(client, location)
        rows = [["the first hundred", *spread_ms(first), "", f"{fsync * 1e3:.2f}", *metadata]]
        ratios, last, step = list[list[object]](), list[float](), max(1, count // 10)
        while at < count:
            with cost() as spent:
                last = _append(write, at, step)
            at += step
            write.allow_compaction(max(0, at - 1000)).result()
            cpu = f"{spent.cpu_s / step * 1e3:.2f}"
            fsync = percentile(raw_fsync_s(folder), 0.5)
            metadata = _metadata(client, location)
            rows.append([f"to {at:,}", *spread_ms(last), cpu, f"{fsync * 1e3:.2f}", *metadata])
            old_s, young_s = _against_new(write, at, folder / f"young-{at}")
            at += len(old_s)
            ratio = percentile(old_s, 0.5) / percentile(young_s, 0.5)
            ratios.append([f"after {at:,}", *spread_ms(old_s), *spread_ms(young_s), f"{ratio:.2f}"])
        final = _append(write, at, 1000)
    show(
        "A commit of one row, as commits gather (compaction allowed 1,000 behind), ms",
        ["commits", "p50", "p99", "max", "cpu", "fsync", *METADATA],
        rows,
    )
    hundred, thousand = (
        percentile(samples, 0.5) / percentile(first, 0.5) for samples in (final[-HUNDRED:], final)
    )
    print(
        f"Against the first hundred: the last hundred {hundred:.2f} times, "
        f"the last thousand {thousand:.2f} times (target 1.2)"
    )
    show(
        "Interleaved: a hundred commits, and the first hundred of a new location (target 1.2), ms",
        ["commits", "p50", "p99", "max", "new p50", "p99", "max", "times"],
        ratios,
    )
    middle = percentile([float(str(row[-1])) for row in ratios], 0.5)
    print(f"median of the ratios: {middle:.2f}")


def _append(write: WriteHandle, first: int, count: int) -> list[float]:
    return [append_one(write, at) for at in range(first, first + count)]


def _against_new(write: WriteHandle, at: int, folder: Path) -> tuple[list[float], list[float]]:
    """Interleave the first hundred commits of a new location with as many of an old one."""
    old_s, young_s = list[float](), list[float]()
    with open_location(folder) as fresh:
        young, _ = fresh.create_or_load("t", SCHEMA, key=("k",))
        _append(young, 0, WARM)
        for done in range(0, HUNDRED, 10):
            for who in ("old", "young") if done % 20 else ("young", "old"):
                if who == "old":
                    old_s += _append(write, at + done, 10)
                else:
                    young_s += _append(young, WARM + done, 10)
    return old_s, young_s


def _metadata(client: Client, location: Path) -> list[object]:
    core = client.core
    head = core.state.seqno
    rollups = core.state.rollups
    oldest = core.consensus.scan(type(head)(0), 1)[0].seqno
    log = sum(path.stat().st_size for path in location.glob("log.db*"))
    size = len(core.blob.get(rollup_key(rollups[-1].seqno)) or b"") if rollups else 0
    batches = max((len(c.batches) for c in core.state.collections.values()), default=0)
    return [batches, head - oldest + 1, f"{log / 1024:,.0f}", f"{size / 1024:,.1f}"]


def _compare(one: str, one_s: list[float], other: str, other_s: list[float]) -> None:
    ratio = percentile(one_s, 0.5) / percentile(other_s, 0.5)
    show(
        f"Interleaved: {ratio:.2f} times (target 1.2)",
        ["", "p50 ms", "p99 ms", "max ms"],
        [[one, *spread_ms(one_s)], [other, *spread_ms(other_s)]],
    )


# ---- beside many collections -----------------------------------------------------------------


def beside_many(folder: Path, collections: int, count: int) -> None:
    with open_location(folder / "alone") as a, open_location(folder / "crowded") as b:
        alone, _ = a.create_or_load("t", SCHEMA, key=("k",))
        crowded, _ = b.create_or_load("t", SCHEMA, key=("k",))
        for number in range(collections - 1):
            idle, _ = b.create_or_load(f"idle-{number}", SCHEMA, key=("k",))
            idle.compare_and_append(one_row(number, 0), 0, 1).result()
        for at in range(50):
            append_one(alone, at)
            append_one(crowded, at)
        alone_s, crowded_s, at = list[float](), list[float](), 50
        for block in range(count // 50):
            first, second = (alone, crowded) if block % 2 else (crowded, alone)
            for write in (first, second):
                for n in range(at, at + 50):
                    (alone_s if write is alone else crowded_s).append(append_one(write, n))
            at += 50
        costs = []
        for write in (alone, crowded):
            with cost() as spent:
                for n in range(at, at + count):
                    append_one(write, n)
            costs.append(f"{spent.cpu_s / count * 1e3:.2f}")
        _compare(f"beside {collections:,} idle collections", crowded_s, "beside none", alone_s)
        print(f"CPU per commit: {costs[1]} ms against {costs[0]} ms alone")


def main() -> None:
    small = quick()
    begin("Commits")
    with scratch() as folder:
        small_writes(folder, 300 if small else 2_000)
        groups(folder, 100 if small else 500)
        beside_many(folder, 1_000, 500 if small else 2_000)
        after_many(folder, 5_000 if small else 100_000)


if __name__ == "__main__":
    main()

"""Sustained appends with compaction on: rows per second, and what merging costs beside them.

Target: at least 200,000 rows/s. Rows are two longs and a short string, in batches of 10,000; each
batch is durable before it is acknowledged, and a few are in flight at a time, as an ingestion has
them. One rate is up to the last acknowledgement; the *sustained* one includes all merging that was
still due then, so it could go on for ever. Beside it, another writer waits for one row at a time.

``rewritten`` is rows read by merges per row appended.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import Future
from pathlib import Path

from measure import (
    SCHEMA,
    Cost,
    begin,
    cost,
    directory_bytes,
    percentile,
    quick,
    scratch,
    show,
    updates,
    write_parquet,
)

from headwater.persist.client import WriteHandle, open_location
from headwater.persist.commands import Done, Outcome
from headwater.persist.core import Core, Settings
from headwater.persist.maintenance import Maintenance
from headwater.persist.trace import next_merge

BATCH_ROWS = 10_000
IN_FLIGHT = 4
MERGED_ROWS = "headwater_persist_merged_rows_total"


def raw(folder: Path, rows: int) -> list[list[object]]:
    """Write the same rows with nothing but Parquet: in one file, and in a synced file per batch."""
    found = []
    for name, size in (("one Parquet file", rows), ("a Parquet file per batch", BATCH_ROWS)):
        tables = [updates(first, size, 1) for first in range(0, rows, size)]
        with cost() as spent:
            for number, table in enumerate(tables):
                write_parquet(table, folder / f"raw-{number}.parquet")
        stored = sum(path.stat().st_size for path in folder.glob("raw-*.parquet"))
        for path in folder.glob("raw-*.parquet"):
            path.unlink()
        found.append(_row(f"raw: {name}, synced", rows, spent, spent, "", stored))
    return found


def _row(
    name: str, rows: int, spent: Cost, whole: Cost, rewritten: str, stored: int
) -> list[object]:
    return [
        name,
        f"{rows / spent.wall_s / 1e3:,.0f}",
        f"{rows / whole.wall_s / 1e3:,.0f}",
        f"{rows / whole.cpu_s / 1e3:,.0f}",
        rewritten,
        f"{stored / rows:.1f}",
    ]


def other_writer(write: WriteHandle, stop: threading.Event, samples: list[float]) -> None:
    """Write one row every 20 ms, as a client of a busy server does."""
    at = 0
    while not stop.is_set():
        start = time.perf_counter()
        row = ({"k": at, "amount": at, "name": "x"}, at, 1)
        outcome = write.compare_and_append([row], at, at + 1).result()
        samples.append(time.perf_counter() - start)
        assert isinstance(outcome, Done), outcome
        at += 1
        stop.wait(0.02)


def append(location: Path, rows: int, settings: Settings) -> tuple[list[object], list[object]]:
    batches = [updates(n * BATCH_ROWS, BATCH_ROWS, n) for n in range(rows // BATCH_ROWS)]
    with open_location(location, settings=settings) as client:
        core = client.core
        write, read = client.create_or_load("t", SCHEMA, key=("k",))
        small, _ = client.create_or_load("small", SCHEMA, key=("k",))
        stop, waited, waiting = threading.Event(), list[float](), deque[Future[Outcome]]()
        beside = threading.Thread(target=other_writer, args=(small, stop, waited))
        beside.start()
        with cost() as spent:
            for at, batch in enumerate(batches):
                if len(waiting) == IN_FLIGHT:
                    assert isinstance(waiting.popleft().result(), Done)
                waiting.append(write.compare_and_append(batch, at, at + 1))
                if at % 10 == 9:
                    write.allow_compaction(max(0, at - 10))
            for future in waiting:
                assert isinstance(future.result(), Done)
        left = len(core.state.collections[write.id].batches)
        stop.set()
        beside.join()
        with cost() as drained:
            settle(core)
        merged = core.metrics.registry.get_sample_value(MERGED_ROWS) or 0
        whole = sum(table.num_rows for table in read.snapshot().updates())
        assert whole == rows, f"{whole} rows came back"
        stored = directory_bytes(location)
    name = "appended, compaction on" if settings.maintenance else "appended, compaction off"
    merging = settings.maintenance
    rewritten = f"{merged / rows:.1f}" if merging else ""
    p50, p99 = (f"{percentile(waited, share) * 1e3:.1f}" for share in (0.5, 0.99))
    sustained = Cost(spent.wall_s + drained.wall_s, spent.cpu_s + drained.cpu_s)
    return (
        _row(name, rows, spent, sustained, rewritten, stored),
        [name, left, f"{drained.wall_s:.1f}", f"{drained.cpu_s:.1f}", p50, p99],
    )


def settle(core: Core) -> None:
    """Wait until no merge is due and no garbage is left."""
    deadline = time.monotonic() + 120
    while core.settings.maintenance and time.monotonic() < deadline:
        state = core.state
        due = any(next_merge(collection) for collection in state.collections.values())
        if not due and not state.garbage:
            return
        if not due:
            Maintenance(core).collect()  # It would wait a few seconds for more.
        time.sleep(0.02)


def main() -> None:
    rows = 500_000 if quick() else 5_000_000
    begin(f"Sustained append of {rows:,} rows in batches of {BATCH_ROWS:,}")
    with scratch() as folder:
        speeds, waits = raw(folder, rows), []
        for maintenance in (False, True):
            name = f"maintained-{maintenance}"
            speed, wait = append(folder / name, rows, Settings(maintenance=maintenance))
            speeds.append(speed)
            waits.append(wait)
        best = float(str(speeds[1][2]).replace(",", ""))
        for row in speeds:
            row.append(f"{float(str(row[2]).replace(',', '')) / best:.2f}")
        show(
            "Thousands of rows per second: acknowledged, sustained (target 200), per CPU-second",
            ["", "k/s", "sustained k/s", "k/CPU-s", "rewritten", "bytes/row", "x raw"],
            speeds,
        )
        show(
            "When the last batch was acknowledged; and one row of another writer meanwhile",
            ["", "batches", "drain s", "drain CPU-s", "other p50 ms", "other p99 ms"],
            waits,
        )


if __name__ == "__main__":
    main()

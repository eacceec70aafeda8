"""Reading a whole collection at a time: rows per second of CPU, beside raw Parquet.

Target: at least 5 million rows/s per core. Two ways to read: ``updates()`` streams part by part
(not consolidated across parts), ``to_table()`` is the multiset itself. Both verify every byte.
The collection is read as appended (many small batches) and as merged; files are in the page cache;
one thread everywhere, so rows per CPU-second are rows per second per core. Keys grow from batch to
batch, which spares to_table() some comparisons; beside it stands a collection whose keys do not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from append import BATCH_ROWS, settle
from measure import (
    SCHEMA,
    begin,
    percentile,
    quick,
    scrambled,
    scratch,
    show,
    updates,
    write_parquet,
)

from headwater.persist.client import Client, open_location
from headwater.persist.commands import Done
from headwater.persist.core import Settings
from headwater.persist.read import Snapshot

REPEATS = 5


GROWING, SCATTERED = "growing", "scattered"


def fill(client: Client, rows: int, name: str) -> None:
    write, _ = client.create_or_load(name, SCHEMA, key=("k",))
    for at in range(rows // BATCH_ROWS):
        batch = updates(at * BATCH_ROWS, BATCH_ROWS, at)
        if name == SCATTERED:
            keys = scrambled(np.arange(at * BATCH_ROWS, (at + 1) * BATCH_ROWS))
            batch = batch.set_column(0, SCHEMA.field("k"), pa.array(keys))
        assert isinstance(write.compare_and_append(batch, at, at + 1).result(), Done)
    write.allow_compaction(rows // BATCH_ROWS - 1).result()


def times_s(read: Callable[[], int], rows: int) -> tuple[float, float]:
    """Return the median CPU and wall of a read."""
    cpu, wall = list[float](), list[float]()
    for _ in range(REPEATS):
        start, used = time.perf_counter(), time.process_time()
        found = read()
        wall.append(time.perf_counter() - start)
        cpu.append(time.process_time() - used)
        assert found == rows, f"{found} rows came back, not {rows}"
    return percentile(cpu, 0.5), percentile(wall, 0.5)


def streamed(snapshot: Snapshot) -> int:
    return sum(table.num_rows for table in snapshot.updates())


def ways(client: Client, as_of: int) -> list[tuple[str, Callable[[], int]]]:
    read, scattered = client.reader(GROWING), client.reader(SCATTERED)
    return [
        ("updates(), streamed", lambda: streamed(read.snapshot(as_of))),
        ("to_table(), the multiset", lambda: read.snapshot(as_of).to_table().num_rows),
        (
            "the same, scattered keys",
            lambda: scattered.snapshot(as_of).to_table().num_rows,
        ),
        (
            "to_table() of one column",
            lambda: pc.sum(read.snapshot(as_of).select("k").to_table().column("__diff")).as_py(),
        ),
    ]


def measured(
    name: str, read: Callable[[], int], rows: int, raw_s: float | None = None
) -> tuple[list[object], float]:
    cpu_s, wall_s = times_s(read, rows)
    ratio = "" if raw_s is None else f"{raw_s / cpu_s:.2f}"
    return [name, f"{rows / cpu_s / 1e6:.1f}", f"{rows / wall_s / 1e6:.1f}", ratio], cpu_s


def main() -> None:
    rows = 500_000 if quick() else 5_000_000
    begin(f"Snapshot of {rows:,} rows")
    pa.set_cpu_count(1)
    table = []
    with scratch() as folder:
        path: Path = folder / "raw.parquet"
        write_parquet(updates(0, rows, 1), path)

        def raw(*, verified: bool) -> int:
            file = pq.ParquetFile(path, page_checksum_verification=verified)
            return int(file.read(use_threads=False).num_rows)

        row, raw_s = measured("raw: one Parquet file", lambda: raw(verified=False), rows)
        table.append(row)
        row, _ = measured("raw: the same, checksums", lambda: raw(verified=True), rows, raw_s)
        table.append(row)

        as_of = rows // BATCH_ROWS - 1
        with open_location(folder / "x", settings=Settings(maintenance=False)) as client:
            fill(client, rows, GROWING)
            fill(client, rows, SCATTERED)
            parts = len(client.reader(GROWING).snapshot(as_of).parts)
            for name, read in ways(client, as_of):
                table.append(measured(f"{name}; {parts} parts", read, rows, raw_s)[0])
        with open_location(folder / "x", settings=Settings()) as client:
            settle(client.core)
            parts = len(client.reader(GROWING).snapshot(as_of).parts)
            for name, read in ways(client, as_of):
                table.append(measured(f"{name}; {parts} parts", read, rows, raw_s)[0])
    show(
        "Million rows per second of CPU (target 5), of wall; x raw Parquet",
        ["", "M rows/CPU-s", "M rows/s", "x raw"],
        table,
    )


if __name__ == "__main__":
    main()

"""Memory of a reader, as the collection grows: it streams a snapshot and keeps one part at a time.

Target: independent of the size of the collection. A process of its own opens the location
read-only and reads ``updates()`` to the end; what is printed is its anonymous memory (mapped files
are the operating system's cache, not ours), at most and above what it had before it began.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import threading
from pathlib import Path

from append import BATCH_ROWS, settle
from measure import (
    SCHEMA,
    begin,
    directory_bytes,
    quick,
    resident_anonymous_mib,
    scratch,
    show,
    updates,
)

from headwater.persist.client import open_location
from headwater.persist.commands import Done

SAMPLE_S = 0.005


def read(location: str, pipe: multiprocessing.connection.Connection) -> None:
    """In another process: stream a snapshot; report rows, parts, memory before and at most."""
    with open_location(location, read_only=True) as client:
        snapshot = client.reader("t").snapshot()
        warm = updates(0, 1, 0).num_rows  # what is imported at the first use of Arrow
        before = resident_anonymous_mib()
        most, done = [before], threading.Event()

        def sample() -> None:
            while not done.wait(SAMPLE_S):
                most[0] = max(most[0], resident_anonymous_mib())

        sampler = threading.Thread(target=sample)
        sampler.start()
        rows = 0
        for table in snapshot.updates():
            rows += table.num_rows
            del table  # or it would still be held while the next part is read
        done.set()
        sampler.join()
        pipe.send((rows * warm, len(snapshot.parts), before, most[0]))


def measured(location: Path, rows: int) -> list[object]:
    with open_location(location) as client:
        write, _ = client.create_or_load("t", SCHEMA, key=("k",))
        for at in range(rows // BATCH_ROWS):
            batch = updates(at * BATCH_ROWS, BATCH_ROWS, at)
            assert isinstance(write.compare_and_append(batch, at, at + 1).result(), Done)
        write.allow_compaction(rows // BATCH_ROWS - 1).result()
        settle(client.core)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    reader = context.Process(target=read, args=(str(location), theirs))
    reader.start()
    found, parts, before, most = ours.recv()
    reader.join()
    assert found == rows, f"{found} rows came back"
    stored = directory_bytes(location) / 2**20
    return [f"{rows:,}", parts, f"{stored:,.0f}", f"{before:.0f}", f"{most:.0f}", most - before]


def main() -> None:
    sizes = (200_000, 2_000_000) if quick() else (1_000_000, 3_000_000, 10_000_000)
    begin("Memory of a reader")
    with scratch() as folder:
        rows = [measured(folder / str(size), size) for size in sizes]
    grown = [float(str(row[-1])) for row in rows]
    for row in rows:
        row[-1] = f"{float(str(row[-1])):.0f}"
    show(
        f"Streaming a snapshot, MiB; the largest takes {grown[-1] / grown[0]:.2f} x the smallest",
        ["rows", "parts", "on disk", "before", "at most", "for reading"],
        rows,
    )


if __name__ == "__main__":
    main()

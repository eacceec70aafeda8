"""How everything in this directory measures: CPU of the process tree, percentiles, raw limits.

Rules, because the machine may be small and shared:

- **CPU-seconds of the whole process tree** are the sturdy number; wall time stands beside them.
- What is compared is measured in one run, interleaved (A B B A …) where it is a ratio.
- Raw limits (``fsync``, SQLite, Parquet) are measured in the same run, on the same disk, with the
  same rows; ours is printed as a ratio to them.
- A bench prints; it asserts nothing about time. It does assert that the answer is right.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.testing.process_tree import anonymous_mib, descendants, threads_cpu_s

TICKS_PER_S = os.sysconf("SC_CLK_TCK")

SCHEMA = pa.schema(
    [pa.field("k", pa.int64()), pa.field("amount", pa.int64()), pa.field("name", pa.string())]
)
"""The rows of every bench: two longs and a string of 8 to 16 characters."""


def updates(first: int, count: int, at: int) -> pa.Table:
    """Return ``count`` insertions of the distinct rows ``first``, ``first + 1``, … at a time."""
    numbers = np.arange(first, first + count)
    return pa.table(
        {
            "k": numbers,
            "amount": scrambled(numbers) % 1_000_000_007,
            "name": pc.binary_join_element_wise(
                "name", pa.array(numbers % 1_000_000).cast(pa.string()), "-"
            ),
            "__time": np.full(count, at),
            "__diff": np.ones(count, np.int64),
        },
        schema=pa.schema(
            [
                *SCHEMA,
                pa.field("__time", pa.int64(), nullable=False),
                pa.field("__diff", pa.int64(), nullable=False),
            ]
        ),
    )


def scrambled(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return numbers without any order that a codec could find."""
    mixed = numbers.astype(np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (mixed >> np.uint64(2)).astype(np.int64)


# ---- cost ------------------------------------------------------------------------------------


_seen: dict[tuple[str, str], dict[str, float]] = {}
"""The CPU of every thread of a descendant when it was last seen, by number and start of each."""


def _own_cpu_s() -> float:
    """Return the time of this process, and of its children that have ended."""
    own = os.times()
    return time.process_time() + own.children_user + own.children_system


def _others_cpu_s() -> float:
    """Return the time of all descendants, dead or alive, but of our own children that have ended.

    Spark's Python daemon does not wait for its workers, so nobody inherits the time of one that
    ends: it is remembered here. Our own children's is inherited by us. Threads are summed up one by
    one: of a process Linux tells hundredths of a second, and a step takes a few.
    """
    alive, me = descendants(), str(os.getpid())
    for pid, fields in alive.items():
        _seen.setdefault((pid, fields[19]), {}).update(threads_cpu_s(pid))
        if fields[1] == me:
            _children.add((pid, fields[19]))
    for gone in [child for child in _children if child[0] not in alive]:
        _children.remove(gone)
        del _seen[gone]
    return sum(sum(threads.values()) for threads in _seen.values())


_children: set[tuple[str, str]] = set()
"""Those of :data:`_seen` whose time we inherit."""


@dataclass(slots=True)
class Cost:
    """What a piece of work took; complete when its block is left."""

    wall_s: float = 0.0
    cpu_s: float = 0.0


@contextmanager
def cost() -> Iterator[Cost]:
    """Measure a block, without what it takes to look at the others."""
    found = Cost()
    others = _others_cpu_s()
    own, wall = _own_cpu_s(), time.perf_counter()
    yield found
    found.wall_s = time.perf_counter() - wall
    found.cpu_s = _own_cpu_s() - own + _others_cpu_s() - others


def percentile(samples: Sequence[float], share: float) -> float:
    """Return the sample below which that share of all samples lies."""
    return float(np.percentile(np.asarray(samples), share * 100))


def spread_ms(samples_s: Sequence[float]) -> list[str]:
    """Return p50, p99 and the largest, in milliseconds."""
    return [
        f"{percentile(samples_s, share) * 1e3:.2f}" if share < 1 else f"{max(samples_s) * 1e3:.1f}"
        for share in (0.5, 0.99, 1)
    ]


def resident_anonymous_mib() -> float:
    """Return the anonymous memory of this process: what it holds itself, without mapped files."""
    return anonymous_mib()


def calibrator_s() -> float:
    """Return the CPU of a fixed piece of work; if that moves, so does every other figure."""
    numbers = scrambled(np.arange(2_000_000))
    before = time.process_time()
    np.sort(numbers)
    return time.process_time() - before


# ---- raw limits ------------------------------------------------------------------------------


def raw_fsync_s(folder: Path, count: int = 200) -> list[float]:
    """Append 4 KiB to a file and sync it, ``count`` times."""
    samples = []
    with (folder / "raw-fsync").open("wb", buffering=0) as file:
        for _ in range(count):
            start = time.perf_counter()
            file.write(b"x" * 4096)
            os.fsync(file.fileno())
            samples.append(time.perf_counter() - start)
    return samples


def raw_sqlite_s(folder: Path, count: int = 200, size: int = 600) -> list[float]:
    """Insert a row of ``size`` bytes in a transaction of its own, WAL with full sync."""
    connection = sqlite3.connect(folder / "raw.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE log (seqno INTEGER PRIMARY KEY, data BLOB NOT NULL)")
    samples = []
    for number in range(count):
        start = time.perf_counter()
        connection.execute("INSERT INTO log VALUES (?, ?)", (number, b"x" * size))
        samples.append(time.perf_counter() - start)
    connection.close()
    return samples


def write_parquet(table: pa.Table, path: Path, compression: str = "zstd") -> None:
    """Write a file and sync it."""
    with path.open("wb") as file:
        pq.write_table(
            table, file, compression=compression, compression_level=1, write_page_checksum=True
        )
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def scratch() -> Iterator[Path]:
    """Give a directory on the disk that ``TMPDIR`` names."""
    folder = Path(tempfile.mkdtemp(prefix="headwater-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def directory_bytes(folder: Path) -> int:
    """Return the size of all files below a directory."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


# ---- printing --------------------------------------------------------------------------------


def arguments() -> argparse.ArgumentParser:
    """Return a parser that knows ``--quick``, for a bench that takes more than that."""
    parser = argparse.ArgumentParser(description=(sys.modules["__main__"].__doc__ or "").strip())
    parser.add_argument("--quick", action="store_true", help="smaller sizes, the same questions")
    return parser


def quick() -> bool:
    """Whether the bench was asked for its quick form: smaller sizes, the same questions."""
    return bool(arguments().parse_args().quick)


def machine() -> str:
    """Describe the kind of machine, and the versions that matter."""
    model, memory = platform.machine(), 0
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), model)
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**30
    versions = f"Python {platform.python_version()}, pyarrow {pa.__version__}"
    return (
        f"{os.cpu_count()} x {model}, {memory} GiB, {platform.system()}; "
        f"{versions}, SQLite {sqlite3.sqlite_version}"
    )


def begin(title: str) -> None:
    """Print the head of a bench."""
    command = " ".join(["python", f"benches/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    print(f"# {title}")
    print(f"# {machine()}")
    print(f"# {time.strftime('%Y-%m-%d', time.gmtime())}; load {os.getloadavg()[0]:.1f}; {command}")


def show(caption: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table; the first column is text, the others are numbers."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[n]) for row in [list(columns), *cells]) for n in range(len(columns))]

    def line(row: Sequence[str]) -> str:
        aligned = [row[0].ljust(widths[0])]
        aligned += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        return "  ".join(aligned).rstrip()

    print(f"\n{caption}")
    print(line(columns))
    print("  ".join("-" * width for width in widths))
    for row in cells:
        print(line(row))
    sys.stdout.flush()

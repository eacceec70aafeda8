"""How the cost of a probe follows the keys and not the run: 1,000 keys at 0.1 M, 1 M and 10 M rows.

Rows are as in the latency spike: a key, three longs, a string, hash, time, diff; keys are unique
and probed at random, half of them absent. CPU time of this process, median of 25 probes; the files
are in the page cache, and the sizes take turns.

- *open*: one opened run, all of it verified before;
- *new*: a newly opened run, so that all that it touches is verified (checksummed) as well;
- *verified*: bytes that one probe of a newly opened run verified;
- *raw touch*: one byte read at each place that such a probe reads, in a new mapping: what the
  machine asks for faults and misses, whoever reads;
- *raw xxh3*: the blocks of 4 KiB around these places, checksummed one by one, which is what a probe
  of a run of format 1 verifies.

The slope is d log(cpu) / d log(rows): 0 is flat.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from measure import begin, percentile, quick, scratch, show

from headwater.collection.key_hash import key_hash
from headwater.collection.probe import probe
from headwater.collection.run import Run, write_run
from headwater.persist.consolidate import DIFF, TIME

KEYS = 1_000
PROBES = 25
PAGE = 4096

Longs = npt.NDArray[np.int64]


def arrangement(rows: int) -> pa.Table:
    numbers = np.arange(rows)
    return pa.table(
        {
            "k": numbers * 2,
            "a": numbers,
            "b": numbers * 7,
            "c": numbers % 100,
            "name": pc.binary_join_element_wise(
                "customer", pa.array(numbers).cast(pa.string()), "-"
            ),
            TIME: numbers % 1000,
            DIFF: np.ones(rows, np.int64),
        }
    )


def cpu_ms(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return (time.process_time() - start) * 1e3


def mapped(path: Path) -> pa.Buffer:
    with pa.memory_map(str(path)) as file:
        return file.read_buffer()


def touch(path: Path, places: Longs) -> None:
    np.frombuffer(mapped(path), np.uint8)[places].sum()


def checksums(path: Path, places: Longs) -> None:
    view = memoryview(mapped(path))
    for block in np.unique(places // PAGE).tolist():
        xxhash.xxh3_64_intdigest(view[block * PAGE : (block + 1) * PAGE])


class Sized:
    """A run of some size, and what was measured of it."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.rows = rows
        self.path = folder / f"run-{rows}"
        start = time.perf_counter()
        self.path.write_bytes(write_run(arrangement(rows), ["k"]))
        self.built_s = time.perf_counter() - start
        self.random = np.random.default_rng(7)
        self.opened = Run.open(self.path)
        self.opened.verify_all()
        self.samples: dict[str, list[float]] = {}

    def once(self) -> None:
        wanted = pa.array(self.random.integers(0, 2 * self.rows, KEYS))
        hashes = key_hash([wanted])

        def ask(run: Run) -> Run:
            found = probe([run], [wanted], at=1000, hashes=hashes)
            assert found.num_rows == pc.sum(pc.equal(pc.bit_wise_and(wanted, 1), 0)).as_py()
            return run

        fresh: list[Run] = []
        self._add("new", cpu_ms(lambda: fresh.append(ask(Run.open(self.path)))))
        self._add("open", cpu_ms(lambda: ask(self.opened)))
        self._add("verified", fresh[0].verified_bytes / 2**20)
        # As many places as such a probe reads: the hash of each key, eight buffers of each found.
        places = self.random.integers(0, self.opened.arrow_bytes, KEYS + 8 * KEYS // 2)
        self._add("touch", cpu_ms(lambda: touch(self.path, places)))
        self._add("xxh3", cpu_ms(lambda: checksums(self.path, places)))

    def _add(self, name: str, value: float) -> None:
        self.samples.setdefault(name, []).append(value)

    def median(self, name: str) -> float:
        return percentile(self.samples[name], 0.5)


COLUMNS = ["open", "new", "verified", "touch", "xxh3"]


def main() -> None:
    sizes = [100_000, 300_000, 1_000_000] if quick() else [100_000, 1_000_000, 10_000_000]
    begin(f"A probe of {KEYS:,} keys")
    with scratch() as folder:
        runs = [Sized(folder, rows) for rows in sizes]
        for sized in runs:  # what is done once: imports, caches
            sized.once()
            sized.samples.clear()
        for turn in range(PROBES):
            for sized in runs if turn % 2 else reversed(runs):
                sized.once()
    table: list[list[object]] = [
        [f"{run.rows:,}", *(f"{run.median(name):.2f}" for name in COLUMNS), f"{run.built_s:.1f}"]
        for run in runs
    ]
    logs = np.log(sizes)
    slopes = {
        name: np.polyfit(logs, np.log([run.median(name) for run in runs]), 1)[0]
        for name in COLUMNS
        if name != "verified"
    }
    table.append(["slope", *(f"{slopes[n]:.2f}" if n in slopes else "" for n in COLUMNS), ""])
    growth = {name: runs[-1].median(name) / runs[0].median(name) for name in slopes}
    table.append(["last/first", *(f"{growth[n]:.2f}" if n in growth else "" for n in COLUMNS), ""])
    show(
        "CPU ms; verified in MiB",
        ["rows", "open", "new", "verified", "raw touch", "raw xxh3", "build s"],
        table,
    )


if __name__ == "__main__":
    main()

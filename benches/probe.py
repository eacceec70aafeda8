"""How the cost of a probe follows the keys and not the run: 1,000 keys at 0.1 M, 1 M and 10 M rows.

Run: ``python benches/probe.py [rows ...]``. Rows are as in the latency spike: a key, three longs, a
string, hash, time, diff; keys are unique and probed at random, half of them absent. CPU time of
this process, median of 15 probes; the files are in the page cache.

- *fresh*: a newly opened run, so every page it touches is verified (checksummed) as well;
- *warm*: one opened run whose pages were verified by earlier probes;
- *verified*: bytes that one fresh probe verified. The slope is d log(cpu) / d log(rows): 0 is flat.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.collection.key_hash import key_hash
from headwater.collection.probe import probe
from headwater.collection.run import Run, write_run
from headwater.persist.consolidate import DIFF, TIME

KEYS = 1_000
PROBES = 15


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


def ask_cpu_ms(run: Callable[[], Run], wanted: pa.Array) -> tuple[float, Run]:
    """Probe once; the CPU it took, with the opening of the run."""
    start = time.process_time()
    opened = run()
    probe([opened], [wanted], at=1000, hashes=key_hash([wanted]))
    return (time.process_time() - start) * 1e3, opened


def measure(rows: int, path: Path) -> tuple[float, float, float, float]:
    start = time.perf_counter()
    path.write_bytes(write_run(arrangement(rows), ["k"]))
    built_s = time.perf_counter() - start
    random = np.random.default_rng(7)
    wanted = [pa.array(random.integers(0, 2 * rows, KEYS)) for _ in range(2 * PROBES)]

    fresh = [ask_cpu_ms(partial(Run.open, path), keys) for keys in wanted[:PROBES]]
    run = Run.open(path)
    run.verify_all()
    warm = [ask_cpu_ms(lambda: run, keys) for keys in wanted[PROBES:]]
    return (
        statistics.median(cpu for cpu, _ in fresh),
        statistics.median(cpu for cpu, _ in warm),
        statistics.median(opened.verified_bytes for _, opened in fresh) / 2**20,
        built_s,
    )


def slope(rows: list[int], costs: list[float]) -> float:
    return float(np.polyfit(np.log(rows), np.log(costs), 1)[0]) if len(rows) > 1 else 0.0


def main() -> None:
    sizes = [int(text) for text in sys.argv[1:]] or [100_000, 1_000_000, 10_000_000]
    print(f"{'rows':>12} {'fresh, ms':>10} {'warm, ms':>9} {'verified, MiB':>14} {'build, s':>9}")
    fresh_ms, warm_ms = [], []
    with tempfile.TemporaryDirectory() as folder:
        for rows in sizes:
            path = Path(folder) / "run"
            fresh, warm, verified, built = measure(rows, path)
            fresh_ms.append(fresh)
            warm_ms.append(warm)
            print(f"{rows:>12,} {fresh:>10.1f} {warm:>9.1f} {verified:>14.1f} {built:>9.1f}")
            path.unlink()
    print(f"slope: fresh {slope(sizes, fresh_ms):.2f}, warm {slope(sizes, warm_ms):.2f}")


if __name__ == "__main__":
    main()

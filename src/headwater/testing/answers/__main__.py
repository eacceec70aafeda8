"""Ask random queries four ways: ``python -m headwater.testing.answers --queries 3000 --seed 7``.

Prints what was compared, what was refused and why, and each difference, made small. Ends with 1 if
there is any. A finding's seed and batch ask for it alone: ``--seed 7 --batch 12``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random, SystemRandom
from typing import Final

from headwater.collection.run_layout import LAYOUTS
from headwater.compute.session import SparkSettings, close_session, open_session
from headwater.persist.client import open_location
from headwater.testing.answers.batch import Report, run, shrunk
from headwater.testing.answers.queries import Queries
from headwater.testing.answers.served import Servers, served
from headwater.testing.answers.world import World
from headwater.testing.few_rows import FEW_ROWS

BATCH: Final = 30
"""Queries over one world: their views are made and stepped together."""
SHRUNK_MAX: Final = 5
"""So many findings of a batch are made small; the others are mostly the same."""


def main(arguments: Sequence[str]) -> int:
    """Ask, print, and return the status of the process."""
    parser = argparse.ArgumentParser(prog="python -m headwater.testing.answers")
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(1_000_000))
    parser.add_argument("--batch", type=int, help="ask this batch of the seed alone")
    parser.add_argument("--compiled", action="store_true", help="with Spark's code generation")
    told = parser.parse_args(arguments)
    numbers = range(-(-told.queries // BATCH)) if told.batch is None else [told.batch]
    print(f"seed {told.seed}, {len(numbers)} batches of {BATCH}", flush=True)
    # To compile a query takes longer than to run it over a few rows.
    settings = SparkSettings(
        master="local[4]",
        driver_memory="2g",
        extra=() if told.compiled else tuple(FEW_ROWS.items()),
    )
    session, report = open_session(settings), Report()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="headwater-answers-") as directory,
            open_location(Path(directory) / "data", layouts=LAYOUTS) as client,
            served(session, client) as servers,
        ):
            for number in numbers:
                report.add(_batch(servers, told.seed, number))
    finally:
        close_session()
    print(report, flush=True)
    return 1 if report.findings else 0


def _batch(servers: Servers, seed: int, number: int) -> Report:
    """Ask one batch; say what came of it."""
    random = Random(f"{seed} {number}")
    began = time.monotonic()
    script = World(random).script()
    report = run(servers, script, [Queries(random).query() for _ in range(BATCH)])
    took = time.monotonic() - began
    print(f"batch {number}: {report.compared} of {report.asked} in {took:.1f} s", flush=True)
    once = {finding.query.sql: finding for finding in report.findings}
    for finding in list(once.values())[:SHRUNK_MAX]:
        print(f"--seed {seed} --batch {number}\n{finding}", flush=True)
        print(f"made small: {shrunk(servers, script, finding)}", flush=True)
    return report


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

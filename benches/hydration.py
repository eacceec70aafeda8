"""A view's first step: in one task, and by ranges in several, one after the other in one run.

Each view over tables of N rows (``shop.py``) is created, hydrated and dropped, in turns; at the end
of every turn it is compared with Spark's answer where N is small. *anonymous* is the most memory
that the process tree had beyond what it began with, seen every tenth of a second.

Sizes: ``--sizes 1000000,10000000``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from flatness import OPERATORS
from measure import arguments, begin, calibrator_s, scratch, show
from shop import Shop

from headwater.compute.session import SparkSettings, close_session, open_session
from headwater.testing.process_tree import tree_anonymous_mib

USUAL = "filter,join,count,min"
NEVER = 1 << 60
CHECKED_MAX = 1_000_000


@contextmanager
def watched() -> Iterator[list[float]]:
    """Collect the anonymous memory of the process tree while the block runs."""
    seen, ended = [_tree_mib()], threading.Event()

    def look() -> None:
        while not ended.wait(0.1):
            seen.append(_tree_mib())

    thread = threading.Thread(target=look)
    thread.start()
    yield seen
    ended.set()
    thread.join()


def _tree_mib() -> float:
    return sum(tree_anonymous_mib().values())


def main() -> None:
    parser = arguments()
    parser.add_argument("--sizes", default="")
    parser.add_argument("--operators", default=USUAL, help="by the beginning of their names")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--ranges-of", type=int, help="rows; as the product has it, if not given")
    parser.add_argument("--memory", default="2g", help="of the JVM")
    asked = parser.parse_args()
    usual = "100000" if asked.quick else "1000000,10000000"
    begin("A view's first step, in one task and by ranges")
    session = open_session(SparkSettings(driver_memory=asked.memory))
    calibrated, table = [calibrator_s()], []
    begins = tuple(asked.operators.split(","))
    with scratch() as folder:
        for size in map(int, (asked.sizes or usual).split(",")):
            shop = Shop(folder / str(size), session, size)
            stepper = shop.controller._stepper
            ranged = asked.ranges_of or min(stepper.range_rows, size // 4)
            shop.create({"warm": OPERATORS["join"]})
            shop.drop(["warm"])
            number = 0
            for operator, sql in OPERATORS.items():
                if not operator.startswith(begins):
                    continue
                for turn in range(2 * asked.rounds):
                    by_ranges = turn % 2 == 1
                    stepper.range_rows = ranged if by_ranges else NEVER
                    number += 1
                    name = f"v{number}"  # names are never used again
                    with watched() as seen:
                        taken = shop.create({name: sql})
                    if size <= CHECKED_MAX:
                        shop.check(name, shop.controller.select(sql, shop.time))
                    shop.drop([name])
                    table.append(
                        [
                            operator,
                            f"{size / 1e6:g}M",
                            f"by {ranged:,}" if by_ranges else "one task",
                            f"{taken.wall_s:.1f}",
                            f"{taken.cpu_s:.1f}",
                            f"{max(seen) - seen[0]:,.0f}",
                        ]
                    )
                    print("  ".join(table[-1]), flush=True)
                    time.sleep(0.5)
            shop.close()
            calibrated.append(calibrator_s())
    close_session()
    show(
        "seconds, MiB",
        ["operator", "rows", "how", "wall", "cpu", "anonymous"],
        table,
    )
    print(f"\ncalibrator: {min(calibrated):.3f} to {max(calibrated):.3f} CPU-s")


if __name__ == "__main__":
    main()

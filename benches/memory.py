"""Memory while stepping, by the size of the data: state should be page cache, not heap.

For each N a process of its own: tables of N rows, a view that joins and sums and one with the top
of each group, hydrated and then stepped with Δ = 1,000. Printed is the largest anonymous memory of
the process tree (driver, JVM, Python workers) while stepping, once hydration is over. Before that a
garbage collection is asked of the JVM and Python gives back what it does not use: what hydration
and the bench's own making of rows left behind is no state.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

from measure import arguments, begin, directory_bytes, scratch, show
from shop import Shop

from headwater.compute.dataflow.program import release_memory
from headwater.compute.session import SparkSettings, close_session, open_session
from headwater.testing.process_tree import tree_anonymous_mib

VIEWS = {
    "sums": "SELECT d.region, count(*) AS n, sum(f.x) AS x FROM facts f JOIN dims d "
    "ON f.dim = d.id GROUP BY d.region",
    "top": "SELECT id, grp, x FROM (SELECT *, row_number() OVER "
    "(PARTITION BY grp ORDER BY x DESC, id) AS place FROM facts) WHERE place <= 3",
}


def _largest(stop: threading.Event, found: dict[str, float]) -> None:
    """Sample the process tree until told to stop; keep the sample with the largest sum."""
    while not stop.wait(0.05):
        sample = tree_anonymous_mib()
        if sum(sample.values()) > sum(found.values()):
            found.clear()
            found.update(sample)


def _one(rows: int, steps: int, memory: str) -> dict[str, float]:
    session = open_session(SparkSettings(driver_memory=memory))
    with scratch() as folder:
        shop = Shop(folder / "location", session, rows)
        shop.create(VIEWS)
        for _ in range(3):
            shop.replace(1_000)
            shop.step()
        session.sparkContext._jvm.System.gc()
        release_memory()
        found: dict[str, float] = {}
        stop = threading.Event()
        sampler = threading.Thread(target=_largest, args=(stop, found))
        sampler.start()
        for _ in range(steps):
            shop.replace(1_000)
            shop.step()
        stop.set()
        sampler.join()
        found["stored"] = directory_bytes(folder / "location") / 2**20
        shop.close()
    close_session()
    return found


def main() -> None:
    parser = arguments()
    parser.add_argument("--sizes", default="", help="of facts: 100000,10000000")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--memory", default="1g", help="of the JVM")
    parser.add_argument("--one", type=int, help="measure this size in this process")
    asked = parser.parse_args()
    steps = asked.steps or (5 if asked.quick else 30)
    if asked.one:
        print(json.dumps(_one(asked.one, steps, asked.memory)))
        return
    usual = "10000,100000" if asked.quick else "100000,1000000"
    begin("Anonymous memory of the process tree while stepping, Δ = 1,000")
    table, sums = [], []
    for size in map(int, (asked.sizes or usual).split(",")):
        command = [sys.executable, str(Path(__file__)), "--one", str(size)]
        command += ["--steps", str(steps), "--memory", asked.memory]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        stored = found.pop("stored")
        java = found.get("java", 0.0)
        sums.append(sum(found.values()))
        cells = [java, sums[-1] - java, sums[-1], stored]
        table.append([f"{size:,}", *(f"{mib:,.0f}" for mib in cells)])
    show("MiB", ["N", "JVM", "Python", "all", "stored"], table)
    print(f"\nlargest N / smallest N: {sums[-1] / sums[0]:.2f}")


if __name__ == "__main__":
    main()

"""Many ticks leave nothing behind: memory, files and log stay as large as the views are.

Every tick is a time; one in five changes something, with deletes as often as inserts, so the tables
and the views keep their size. ``HEADWATER_TICKS`` says how many; what was seen is printed.
"""

from __future__ import annotations

import os
import statistics
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headwater.algebra.frontier import Frontier
from headwater.collection.run_layout import LAYOUTS
from headwater.compute.controller import ViewController
from headwater.persist.client import Client, open_location
from headwater.persist.commands import AllowCompaction
from headwater.testing.process_tree import tree_anonymous_mib

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(4 * 3600)]

TICKS = int(os.environ.get("HEADWATER_TICKS", "50000"))
SAMPLES = 50
RETAINED = 20
QUIET = 5
KEYS = 500

ORDERS = pa.schema([("id", pa.int64()), ("customer", pa.int64()), ("amount", pa.int64())])
CUSTOMERS = pa.schema([("id", pa.int64()), ("region", pa.string())])
VIEWS = {
    "sums": "SELECT c.region, sum(o.amount) AS amount, count(*) AS n FROM orders o "
    "JOIN customers c ON o.customer = c.id GROUP BY c.region",
    "best": "SELECT id, customer, amount FROM (SELECT *, row_number() OVER "
    "(PARTITION BY customer ORDER BY amount DESC, id) AS place FROM orders) WHERE place <= 2",
    "halves": "SELECT id, amount / 2 AS half FROM orders WHERE amount % 2 = 0",
}


@dataclass(frozen=True, slots=True)
class Sample:
    """What there is after so many ticks."""

    tick: int
    java_mib: float
    python_mib: float
    files: int
    stored_mib: float
    log_mib: float


def _sample(tick: int, folder: Path) -> Sample:
    memory = tree_anonymous_mib()
    java = memory.pop("java", 0.0)
    files = [path for path in folder.rglob("*") if path.is_file()]
    log = [path for path in files if ".sqlite" in path.name or path.name.startswith("log")]
    mib = 1 / 2**20
    return Sample(
        tick,
        java,
        sum(memory.values()),
        len(files),
        sum(path.stat().st_size for path in files) * mib,
        sum(path.stat().st_size for path in log) * mib,
    )


class _Tables:
    def __init__(self, client: Client, random: Random) -> None:
        self.client, self.random, self.time = client, random, 0
        self.orders, _ = client.create_or_load("orders", ORDERS)
        self.customers, _ = client.create_or_load("customers", CUSTOMERS)
        self.live = {n: self._order(n) for n in range(4 * KEYS)}
        self.next = len(self.live)
        regions = [({"id": n, "region": f"r{n % 7}"}, 0, 1) for n in range(KEYS)]
        rows = [(row, 0, 1) for row in self.live.values()]
        self.orders.compare_and_append(rows, 0, 1).result()
        self.customers.compare_and_append(regions, 0, 1).result()

    def _order(self, number: int) -> dict[str, int]:
        random = self.random
        return {
            "id": number,
            "customer": random.randrange(KEYS),
            "amount": random.randrange(10_000),
        }

    def tick(self) -> None:
        """Replace a few orders now and then; seal."""
        self.time += 1
        write = self.client.atomic()
        if self.time % QUIET == 0:
            rows = []
            for number in self.random.sample(sorted(self.live), 5):
                rows.append((self.live.pop(number), self.time, -1))
                self.live[self.next] = self._order(self.next)
                rows.append((self.live[self.next], self.time, 1))
                self.next += 1
            write.write(self.orders, rows)
        write.seal((self.orders, self.customers), self.time + 1).commit().result()

    def forget(self) -> None:
        """As retention does: let go of what is older than a few ticks."""
        state = self.client.core.state
        since = Frontier.of(self.time - RETAINED)
        names = ("orders", "customers", *VIEWS)
        ids = [c.id for c in state.collections.values() if c.name in names]
        self.client.core.submit(AllowCompaction(tuple((gid, since) for gid in ids))).result()


def test_many_ticks_leave_nothing_behind(spark: Any, tmp_path: Path) -> None:
    samples = []
    with open_location(tmp_path, layouts=LAYOUTS) as client:
        print("seed 1")
        tables = _Tables(client, Random(1))
        controller = ViewController(client, spark)
        for name, sql in VIEWS.items():
            controller.create_view(name, sql)
        controller.run_once()
        for tick in range(1, TICKS + 1):
            tables.tick()
            assert set(controller.run_once()) == set(VIEWS), controller.failures()
            if tick % RETAINED == 0 and tick > RETAINED:
                tables.forget()
            if tick % max(TICKS // SAMPLES, 1) == 0:
                samples.append(_sample(tick, tmp_path))
                print(samples[-1], flush=True)
        for name, sql in VIEWS.items():
            found = client.reader(name).snapshot(tables.time).to_table().to_pylist()
            assert all(row.pop("__diff") == 1 for row in found)
            asked = controller.select(sql, tables.time).to_pylist()
            assert sorted(map(repr, found)) == sorted(map(repr, asked)), name
    fifth = len(samples) // 5
    early, late = samples[fifth : 2 * fifth], samples[-fifth:]
    for figure in ("java_mib", "python_mib", "files", "stored_mib", "log_mib"):
        before, after = (
            statistics.median(getattr(s, figure) for s in part) for part in (early, late)
        )
        slope = (after - before) / (late[0].tick - early[0].tick) * 10_000
        print(f"{figure}: {before:.1f} to {after:.1f}, {slope:+.2f} in 10,000 ticks")
        # The JVM's heap goes as far as it may before it is collected.
        assert after <= 1.3 * before + (100 if figure == "java_mib" else 8), figure

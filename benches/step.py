"""How the cost of a step follows the change and not the data: Δ = 1,000 at N = 10 k, 100 k, 1 M.

A view that joins ``orders`` (N rows) with ``customers`` (N / 10) and sums per region (100 of them)
is hydrated, then stepped: each step replaces 500 orders, at one time, so 1,000 updates go in. The
sizes take turns in one session; CPU is that of the process tree (driver, JVM, Python workers), with
merges running beside it. *full* is Spark computing the same query from the collections, once.

The slope is d log(cpu) / d log(N): 0 is flat.
"""

from __future__ import annotations

import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from measure import Cost, begin, cost, percentile, quick, scratch, show

from headwater.collection.run_layout import LAYOUTS
from headwater.compute.controller import ViewController
from headwater.compute.session import close_session, open_session
from headwater.persist.client import open_location
from headwater.persist.evolution import updates_schema

ORDERS = pa.schema([("id", pa.int64()), ("customer", pa.int64()), ("amount", pa.int64())])
CUSTOMERS = pa.schema([("id", pa.int64()), ("region", pa.string())])
SQL = """
    SELECT c.region, sum(o.amount) AS amount, count(*) AS orders
    FROM orders o JOIN customers c ON o.customer = c.id GROUP BY c.region
"""
REPLACED = 500


def _updates(schema: pa.Schema, columns: list[Any], time: int, diff: int) -> pa.Table:
    rows = len(columns[0])
    system = [np.full(rows, time, np.int64), np.full(rows, diff, np.int64)]
    arrays = [pa.array(column) for column in (*columns, *system)]
    return pa.Table.from_arrays(arrays, schema=updates_schema(schema))


class Shop:
    """One location with its view, at one size."""

    def __init__(self, folder: Path, session: Any, rows: int) -> None:
        self.rows = rows
        self.client = open_location(folder, layouts=LAYOUTS)
        self.random = np.random.default_rng(rows)
        self.orders, _ = self.client.create_or_load("orders", ORDERS, key=("id",))
        self.customers, _ = self.client.create_or_load("customers", CUSTOMERS, key=("id",))
        self.amounts = self.random.integers(0, 10_000, rows)
        self.time = 0
        ids = np.arange(rows)
        first = _updates(ORDERS, self._orders(ids), 0, 1)
        self.orders.compare_and_append(first, 0, 1).result()
        people = np.arange(rows // 10)
        regions = pc.binary_join_element_wise(
            "region", pa.array(people % 100).cast(pa.string()), " "
        )
        whole = _updates(CUSTOMERS, [people, regions], 0, 1)
        self.customers.compare_and_append(whole, 0, 1).result()
        self.controller = ViewController(self.client, session)
        self.controller.create_view("view", SQL)
        with cost() as self.hydration:
            self._run()

    def _orders(self, ids: Any) -> list[Any]:
        return [ids, ids % (self.rows // 10), self.amounts[ids]]

    def _run(self) -> None:
        advanced = self.controller.run_once()
        assert advanced == ("view",), self.controller.failures()

    def step(self) -> Cost:
        """Change some orders, then measure the step alone."""
        self.time += 1
        ids = self.random.choice(self.rows, REPLACED, replace=False)
        gone = _updates(ORDERS, self._orders(ids), self.time, -1)
        self.amounts[ids] += 1
        come = _updates(ORDERS, self._orders(ids), self.time, 1)
        change = pa.concat_tables([gone, come])
        self.orders.compare_and_append(change, self.time, self.time + 1).result()
        self.customers.seal(self.time + 1).result()
        with cost() as taken:
            self._run()
        return taken

    def full(self) -> Cost:
        """Compute the same from scratch, and hold the view against it."""
        with cost() as taken:
            expected = self.controller.select(SQL, self.time)
        found = self.controller.select("SELECT * FROM view", self.time)
        assert Counter(map(repr, found.to_pylist())) == Counter(map(repr, expected.to_pylist()))
        return taken


def main() -> None:
    small = quick()
    sizes = [1_000, 10_000, 100_000] if small else [10_000, 100_000, 1_000_000]
    warm, rounds = (2, 4) if small else (8, 15)
    begin("A step of a join + sum view, by the size of its inputs")
    session = open_session()
    with scratch() as folder:
        shops = [Shop(folder / str(rows), session, rows) for rows in sizes]
        for _ in range(warm):
            for shop in shops:
                shop.step()
        taken: list[list[Cost]] = [[] for _ in shops]
        for turn in range(rounds):
            order = list(enumerate(shops))
            for number, shop in order if turn % 2 else reversed(order):
                taken[number].append(shop.step())
        fulls = [shop.full() for shop in shops]
        rows, cpus = [], []
        for shop, costs, full in zip(shops, taken, fulls, strict=True):
            cpu = statistics.median(c.cpu_s for c in costs)
            walls = [c.wall_s for c in costs]
            cpus.append(cpu)
            rows.append(
                [
                    f"{shop.rows:,}",
                    f"{cpu:.3f}",
                    f"{percentile(walls, 0.5):.3f}",
                    f"{max(walls):.3f}",
                    f"{shop.hydration.wall_s:.2f}",
                    f"{full.cpu_s:.2f}",
                    f"{full.wall_s:.2f}",
                ]
            )
        show(
            "Δ = 1,000 updates; seconds",
            ["N", "step cpu", "step p50", "step max", "hydration", "full cpu", "full wall"],
            rows,
        )
        slope = float(np.polyfit(np.log(sizes), np.log(cpus), 1)[0])
        print(f"\nslope of step cpu over N: {slope:.2f}")
        for shop in shops:
            shop.client.stop()
    close_session()


if __name__ == "__main__":
    main()

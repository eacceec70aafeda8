"""Several views: one against eight on the same inputs, and a tick beside a hydration.

- A view that joins and sums, stepped with Δ = 1,000 updates: wall time, p50 and p99, and CPU.
- The same with a view that also computes (a pass of the JVM and a stage more), and with eight views
  over the same two tables, half of which compute, in turns: three locations with the same rows. The
  merges that a step makes due come after it, and are told apart: they come in heaps.
- The controller runs by itself; every change waits until the view shows it. First alone, then while
  another view over the same tables is hydrated again and again.
"""

from __future__ import annotations

import itertools
import threading
import time

from measure import arguments, begin, calibrator_s, percentile, scratch, show
from shop import Shop
from world import Costs

from headwater.compute.session import SparkSettings, close_session, open_session

JOINED = "FROM facts f JOIN dims d ON f.dim = d.id"
ONE = {"v0": f"SELECT d.region, count(*) AS n, sum(f.x) AS x {JOINED} GROUP BY d.region"}
EIGHT = {
    **ONE,
    "v1": f"SELECT d.w, sum(f.x) AS x {JOINED} GROUP BY d.w",
    "v2": f"SELECT d.region, avg(f.f) AS a {JOINED} GROUP BY d.region",
    "v3": f"SELECT d.region, count(*) AS n {JOINED} WHERE f.x > 500000 GROUP BY d.region",
    "v4": f"SELECT f.dim, sum(f.x * d.w) AS x {JOINED} GROUP BY f.dim",
    "v5": f"SELECT d.w, d.region, count(f.x) AS n, sum(f.x) AS x {JOINED} GROUP BY d.w, d.region",
    "v6": f"SELECT d.region, sum(f.x) - count(*) AS x {JOINED} WHERE d.w < 4 GROUP BY d.region",
    "v7": f"SELECT f.x % 10 AS m, count(*) AS n {JOINED} GROUP BY f.x % 10",
}
COMPUTING = {"v4": EIGHT["v4"]}
HYDRATED = f"SELECT f.grp, sum(f.x) AS x, max(d.w) AS w {JOINED} GROUP BY f.grp"

NUMBERS = itertools.count()


def _fresh(shop: Shop, delta: int) -> float:
    """Change something, and return after how long the view shows it."""
    shop.replace(delta)
    start = time.perf_counter()
    while shop.controller.view_upper("v0").allows(shop.time):
        time.sleep(0.002)
    return time.perf_counter() - start


def _ticks(shop: Shop, delta: int, count: int, beside: bool) -> tuple[list[float], int]:
    """Return how fresh the view was, tick by tick, and how many ticks met a hydration."""
    stopping = threading.Event()

    def hydrate() -> None:
        while not stopping.is_set():
            name = f"hydrated{next(NUMBERS)}"  # names are never used again
            shop.controller.create_view(name, HYDRATED)
            first = shop.controller.view_upper(name)
            while shop.controller.view_upper(name) == first and not stopping.is_set():
                time.sleep(0.01)
            shop.controller.drop_view(name)

    thread = threading.Thread(target=hydrate)
    shop.controller.start()
    if beside:
        thread.start()
        time.sleep(0.5)
    samples, overlapping = [], 0
    for _ in range(count):
        overlapping += bool(shop.controller.hydrations())
        samples.append(_fresh(shop, delta))
    stopping.set()
    if beside:
        thread.join()
    shop.controller.stop()
    return samples, overlapping


def main() -> None:
    parser = arguments()
    parser.add_argument("--rows", type=int, help="of facts; 1,000,000, or 50,000 if quick")
    parser.add_argument("--delta", type=int, default=1_000)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--memory", default="2g", help="of the JVM")
    asked = parser.parse_args()
    rows = asked.rows or (50_000 if asked.quick else 1_000_000)
    # The JVM goes on compiling what eight views run for some forty steps.
    warm, rounds = (2 if asked.quick else 40), asked.rounds or (5 if asked.quick else 25)
    begin(f"Views on shared inputs; Δ = {asked.delta:,} updates at N = {rows:,}")
    session = open_session(SparkSettings(driver_memory=asked.memory))
    calibrated = [calibrator_s()]
    with scratch() as folder:
        labels = ("one", "one that computes", "eight")
        shops = [Shop(folder / label, session, rows, merging_apart=True) for label in labels]
        sets = (ONE, COMPUTING, EIGHT)
        hydrations = [shop.create(views) for shop, views in zip(shops, sets, strict=True)]
        costs, merges = [Costs() for _ in shops], [Costs() for _ in shops]
        for turn in range(-warm, rounds):
            for number in (0, 1, 2) if turn % 2 else (2, 1, 0):
                shops[number].replace(asked.delta)
                taken, merging = shops[number].step(), shops[number].merge()
                if turn >= 0:
                    costs[number].samples.append(taken)
                    merges[number].samples.append(merging)
        for name, sql in EIGHT.items():
            shop = shops[2]
            shop.check(name, shop.controller.select(sql, shop.time))
        show(
            "a step, seconds; merges: mean",
            ["views", "p50 wall", "p99 wall", "cpu", "merges' cpu", "hydration"],
            [
                [
                    label,
                    f"{c.wall_s:.3f}",
                    f"{c.wall_p99_s:.3f}",
                    f"{c.cpu_s:.3f}",
                    f"{m.mean_cpu_s:.3f}",
                    f"{hydration.wall_s:.1f}",
                ]
                for label, c, m, hydration in zip(labels, costs, merges, hydrations, strict=True)
            ],
        )
        print()
        whole = [c.cpu_s + m.mean_cpu_s for c, m in zip(costs, merges, strict=True)]
        for number in (0, 1):
            wall = costs[2].wall_s / costs[number].wall_s
            cpu, merged = costs[2].cpu_s / costs[number].cpu_s, whole[2] / whole[number]
            shares = f"wall {wall:.2f}, cpu {cpu:.2f}, with merges {merged:.2f}"
            print(f"eight / {labels[number]}: {shares}")
        for shop in shops:
            shop.close()
        shop = Shop(folder / "ticks", session, rows)
        shop.create(ONE)
        calibrated.append(calibrator_s())
        ticks = 6 if asked.quick else 40
        _ticks(shop, asked.delta, 2, beside=True)
        alone: list[float] = []
        beside: list[float] = []
        met = 0
        for turn in (False, True, True, False):
            samples, overlapping = _ticks(shop, asked.delta, ticks // 2, beside=turn)
            (beside if turn else alone).extend(samples)
            met += overlapping
        show(
            "from a durable change to the view that shows it, seconds",
            ["", "p50", "p99", "largest"],
            [
                [label, *(f"{percentile(s, share):.3f}" for share in (0.5, 0.99, 1))]
                for label, s in (("alone", alone), ("beside hydrations", beside))
            ],
        )
        print(f"\nticks that began while a view was being hydrated: {met} of {len(beside)}")
        print(f"beside / alone, p99: {percentile(beside, 0.99) / percentile(alone, 0.99):.2f}")
        shop.close()
        calibrated.append(calibrator_s())
    close_session()
    print(f"calibrator: {min(calibrated):.3f} to {max(calibrated):.3f} CPU-s")


if __name__ == "__main__":
    main()

"""Flatness (W3): the cost of a step with Δ = 1,000 by the size of the data, operator by operator.

One view per operator over tables of N rows (``shop.py``); the sizes take turns. *slope* is
d log(cpu) / d log(N): 0 is flat, 1 is a recomputation. *ratio* is the cost at the largest N by that
at the smallest. *read* is how many rows of histories and states the operators read at each N:
unlike the cost it has no noise. *merges* is what merging the step's batches takes after it, in the
mean: it is done apart, because the sizes take turns and one would else pay for the merges of
another. At the end each view of the smallest size is compared with Spark's answer.

Sizes: ``--sizes 100000,1000000,10000000``. Hydration of the largest is most of the time.
"""

from __future__ import annotations

import numpy as np
from measure import arguments, begin, calibrator_s, scratch, show
from shop import Shop
from world import Costs

from headwater.compute.session import SparkSettings, close_session, open_session

JOINED = "FROM facts f JOIN dims d ON f.dim = d.id"
OPERATORS = {
    "filter, project": "SELECT id, x * 2 AS y, upper(name) AS n FROM facts WHERE x % 3 = 0",
    "join": f"SELECT f.id, f.x, d.region {JOINED}",
    "join of three": f"SELECT f.id, f.x, d.region, e.w AS v {JOINED} JOIN dims e ON f.grp = e.id",
    "count, sum": f"SELECT d.region, count(*) AS n, sum(f.x) AS x {JOINED} GROUP BY d.region",
    "avg, variance": "SELECT grp, avg(f) AS a, variance(f) AS v FROM facts GROUP BY grp",
    "distinct": "SELECT DISTINCT grp, x % 10 AS x FROM facts",
    "semi": "SELECT id, x FROM facts WHERE dim IN (SELECT id FROM dims WHERE region < 'region 3')",
    "anti": "SELECT id, x FROM facts f WHERE NOT EXISTS "
    "(SELECT 1 FROM dims d WHERE d.id = f.dim AND region < 'region 3')",
    "left outer": "SELECT f.id, f.x, d.region FROM facts f LEFT JOIN dims d "
    "ON f.dim = d.id AND d.region < 'region 3'",
    "min, max": "SELECT grp, min(x) AS low, max(x) AS high FROM facts GROUP BY grp",
    "count distinct": "SELECT grp, count(DISTINCT x % 5) AS n FROM facts GROUP BY grp",
    "top-k": "SELECT id, x FROM facts ORDER BY x DESC, id LIMIT 10",
    "row_number <= k": "SELECT id, grp, x FROM (SELECT *, row_number() OVER "
    "(PARTITION BY grp ORDER BY x DESC, id) AS place FROM facts) WHERE place <= 3",
    "window": "SELECT id, sum(x) OVER (PARTITION BY grp ORDER BY id) AS s, "
    "lag(x) OVER (PARTITION BY grp ORDER BY id) AS p FROM facts",
    "lag over all": "SELECT id, x - lag(x) OVER (ORDER BY id) AS d FROM facts",
    "moving sum": "SELECT id, sum(x) OVER (PARTITION BY id % 50 ORDER BY id "
    "ROWS BETWEEN 6 PRECEDING AND CURRENT ROW) AS s FROM facts",
    "sum of what is near": "SELECT id, sum(x) OVER (PARTITION BY id % 50 ORDER BY id "
    "RANGE BETWEEN 500 PRECEDING AND CURRENT ROW) AS s FROM facts",
    "intersect": "SELECT dim AS k FROM facts WHERE x % 7 = 0 INTERSECT SELECT id FROM dims",
    "except": "SELECT id AS k FROM dims EXCEPT SELECT dim FROM facts WHERE x % 7 = 0",
    "grouping sets": "SELECT grp, x % 3 AS m, count(*) AS n, sum(x) AS s FROM facts "
    "GROUP BY ROLLUP (grp, x % 3)",
    "non-equi join": "SELECT f.id, b.band FROM facts f JOIN bands b "
    "ON f.x >= b.low AND f.x < b.high",
    "function in Python": "SELECT grp, sum(twice(x)) AS s FROM facts GROUP BY grp",
    "union": "SELECT id, x FROM facts WHERE x < 1000 UNION ALL SELECT id, w FROM dims",
}


def main() -> None:
    parser = arguments()
    parser.add_argument("--sizes", default="", help="of facts: 100000,1000000")
    parser.add_argument("--operators", default="", help="some of them, by the beginning: join,top")
    parser.add_argument("--delta", type=int, default=1_000, help="updates in a step")
    parser.add_argument("--warm", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--memory", default="2g", help="of the JVM")
    asked = parser.parse_args()
    usual = "10000,100000" if asked.quick else "100000,1000000"
    sizes = [int(size) for size in (asked.sizes or usual).split(",")]
    warm, rounds = (
        asked.warm or (1 if asked.quick else 4),
        asked.rounds or (2 if asked.quick else 9),
    )
    begins = tuple(asked.operators.split(","))
    begin(f"A step of Δ = {asked.delta:,} updates by the size of the data, operator by operator")
    session = open_session(SparkSettings(driver_memory=asked.memory))
    session.udf.register("twice", lambda x: 2 * x, "bigint")
    calibrated, table = [calibrator_s()], []
    with scratch() as folder:
        shops = [Shop(folder / str(size), session, size, merging_apart=True) for size in sizes]
        for place, (operator, sql) in enumerate(OPERATORS.items()):
            view = f"view{place}"  # names are never used again
            if not operator.startswith(begins):
                continue
            hydrations = [shop.create({view: sql}) for shop in shops]
            strategy = shops[0].strategy(view)
            costs, read = [Costs() for _ in shops], [0 for _ in shops]
            merges = [Costs() for _ in shops]
            for turn in range(-warm, rounds):
                order = list(enumerate(shops))
                for number, shop in order if turn % 2 else reversed(order):
                    shop.replace(asked.delta)
                    taken = shop.step()
                    read[number] = shop.rows_read()
                    merged = shop.merge()
                    if turn >= 0:
                        costs[number].samples.append(taken)
                        merges[number].samples.append(merged)
            expected = shops[0].controller.select(sql, shops[0].time)
            shops[0].check(view, expected)
            cpus = [c.cpu_s for c in costs]
            slope = np.polyfit(np.log(sizes), np.log(cpus), 1)[0] if len(sizes) > 1 else np.nan
            table.append(
                [
                    operator,
                    strategy,
                    *(f"{cpu:.3f}" for cpu in cpus),
                    *(f"{c.wall_s:.3f}" for c in costs),
                    *(f"{c.mean_cpu_s:.3f}" for c in merges),
                    f"{slope:.2f}",
                    f"{cpus[-1] / cpus[0]:.2f}",
                    *(f"{rows:,}" for rows in read),
                    f"{hydrations[-1].wall_s:.1f}",
                ]
            )
            print("  ".join(table[-1]), flush=True)
            for shop in shops:
                shop.drop([view])
            calibrated.append(calibrator_s())
        for shop in shops:
            shop.close()
    close_session()
    labels = [f"{size / 1e6:g}M" for size in sizes]
    show(
        "medians, seconds",
        [
            *("operator", "strategy", *(f"cpu {n}" for n in labels), *(f"p50 {n}" for n in labels)),
            *(f"merges {n}" for n in labels),
            *("slope", "ratio", *(f"read {n}" for n in labels), f"hydration {labels[-1]}"),
        ],
        table,
    )
    print(f"\ncalibrator: {min(calibrated):.3f} to {max(calibrated):.3f} CPU-s")


if __name__ == "__main__":
    main()

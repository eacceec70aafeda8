"""TPC-H (W2): one incremental step against a full recomputation, by Spark and by DuckDB.

All tables are in one location. One query after the other becomes a view, is hydrated, stepped until
it is warm, and then measured in turns: a step with changes to ``share`` of the lines (40 % inserted
with their orders, 40 % deleted, 20 % replaced) and to a tenth of that share of customers, parts,
suppliers and their stocks, so that every query has something to do; the same query by Spark over
Parquet files of the same rows; and by DuckDB over the same files. At the end the view is compared
with DuckDB's answer on the rows as they are then.

CPU is that of the process tree (driver, JVM, Python workers), merges included. A ratio below 1 is
in our favour.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from measure import Cost, arguments, begin, calibrator_s, cost, scratch, show
from world import Costs, World

from headwater.compute.session import SparkSettings, close_session, open_session
from headwater.testing.duck import Duck, translated
from headwater.testing.tpch import Refreshes

QUERIES = Path(__file__).parents[1] / "tests" / "queries" / "tpch"


def _by_spark(session: Any, folder: Path) -> Callable[[str], Cost]:
    """Return what runs a query over the files; its session does not see our tables' names."""
    own = session.newSession()
    for path in folder.glob("*.parquet"):
        own.read.parquet(str(path)).createOrReplaceTempView(path.stem)

    def run(sql: str) -> Cost:
        with cost() as taken:
            own.sql(sql).toArrow()
        return taken

    return run


def _by_duckdb(folder: Path) -> Callable[[str], Cost]:
    import duckdb

    connection = duckdb.connect()
    for path in folder.glob("*.parquet"):
        connection.execute(f"CREATE VIEW {path.stem} AS FROM read_parquet('{path}')")

    def run(sql: str) -> Cost:
        text = translated(sql)
        with cost() as taken:
            connection.sql(text).to_arrow_table()
        return taken

    return run


def _geometric_mean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def main() -> None:
    parser = arguments()
    parser.add_argument("--scale", type=float, help="0.1, or 0.01 if quick")
    parser.add_argument("--share", type=float, default=0.001, help="of the lines, in one step")
    parser.add_argument("--dimensions", type=float, help="of the rows of dimensions; share / 10")
    parser.add_argument("--queries", default="", help="some of them: q01,q06")
    parser.add_argument("--warm", type=int, help="steps before measuring")
    parser.add_argument("--rounds", type=int, help="measured steps")
    parser.add_argument("--memory", default="2g", help="of the JVM")
    asked = parser.parse_args()
    scale = asked.scale or (0.01 if asked.quick else 0.1)
    warm, rounds = (
        asked.warm or (1 if asked.quick else 3),
        asked.rounds or (2 if asked.quick else 5),
    )
    dimensions = asked.share / 10 if asked.dimensions is None else asked.dimensions
    names = asked.queries.split(",") if asked.queries else [p.stem for p in QUERIES.glob("*.sql")]
    begin(f"TPC-H at SF {scale:g}: a step with {asked.share:.2%} of the lines against full queries")
    session = open_session(SparkSettings(driver_memory=asked.memory))
    calibrated = [calibrator_s()]
    table, to_spark, to_duck = [], [], []
    with scratch() as folder:
        stream = Refreshes(scale, seed=1)
        files = folder / "files"
        files.mkdir()
        for name, rows in stream.tables().items():
            pq.write_table(rows, files / f"{name}.parquet", row_group_size=500_000)
        world = World(folder / "location", session, stream.tables())
        full_spark, full_duck = _by_spark(session, files), _by_duckdb(files)
        for name in sorted(names):
            sql = (QUERIES / f"{name}.sql").read_text()
            hydration = world.create({name: sql})
            strategy = world.strategy(name)
            steps, sparks, ducks = Costs(), Costs(), Costs()
            updates = 0
            for turn in range(-warm, rounds):
                updates = world.change(stream.batch(asked.share, dimensions))
                for work in (0, 1) if turn % 2 else (1, 0):
                    taken = full_spark(sql) if work else world.step()
                    if turn >= 0:
                        (sparks if work else steps).samples.append(taken)
                taken = full_duck(sql)
                if turn >= 0:
                    ducks.samples.append(taken)
            duck = Duck(stream.tables())
            world.check(name, duck.answer(sql))
            duck.close()
            to_spark.append(steps.cpu_s / sparks.cpu_s)
            to_duck.append(steps.cpu_s / max(ducks.cpu_s, 1e-3))
            table.append(
                [
                    name,
                    strategy,
                    f"{updates:,}",
                    f"{world.rows_read():,}",
                    f"{steps.cpu_s:.3f}",
                    f"{steps.wall_s:.3f}",
                    f"{sparks.cpu_s:.3f}",
                    f"{sparks.wall_s:.3f}",
                    f"{ducks.cpu_s:.3f}",
                    f"{to_spark[-1]:.2f}",
                    f"{to_duck[-1]:.2f}",
                    f"{hydration.wall_s:.1f}",
                ]
            )
            print("  ".join(table[-1]), flush=True)
            world.drop([name])
            calibrated.append(calibrator_s())
        world.close()
    close_session()
    show(
        "medians, seconds; / is a ratio of CPU",
        [
            *("query", "strategy", "updates", "rows read", "step cpu", "step wall"),
            *("Spark cpu", "Spark wall", "DuckDB cpu", "/ Spark", "/ DuckDB", "hydration"),
        ],
        table,
    )
    incremental = sum(row[1] == "incremental" for row in table)
    print(f"\n{incremental} of {len(table)} incremental")
    print(f"geometric mean of step / Spark: {_geometric_mean(to_spark):.3f}")
    print(f"geometric mean of step / DuckDB: {_geometric_mean(to_duck):.2f}")
    print(f"slower than Spark in full: {sum(ratio > 1 for ratio in to_spark)}")
    print(f"calibrator: {min(calibrated):.3f} to {max(calibrated):.3f} CPU-s")


if __name__ == "__main__":
    main()

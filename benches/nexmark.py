"""NEXMark (W1): changes taken in per CPU-second, with updates of auctions and deletes of bids.

A view per query over people, auctions and bids; each step takes in a batch of events, of which
``churn`` are changes of what was there: auctions changed, bids withdrawn, bids with another price.
Everything is durable: the CPU is that of the process tree from durable inputs to a durable output.
Two sizes of batches: what a step costs at least, and what a change costs.
"""

from __future__ import annotations

from pathlib import Path

from measure import arguments, begin, calibrator_s, scratch, show
from world import Costs, World

from headwater.compute.session import SparkSettings, close_session, open_session
from headwater.testing.nexmark import Auctions

QUERIES = Path(__file__).parents[1] / "tests" / "queries" / "nexmark"


def main() -> None:
    parser = arguments()
    parser.add_argument("--queries", default="", help="some of them: q03,q04; q00,q03,q04,q09,q18")
    parser.add_argument("--events", type=int, help="that are there at first")
    parser.add_argument("--batches", default="", help="events in a step: 1000,50000")
    parser.add_argument("--churn", type=float, default=0.2)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--memory", default="2g", help="of the JVM")
    asked = parser.parse_args()
    names = (asked.queries or ("q03,q04,q09" if asked.quick else "q00,q03,q04,q09,q18")).split(",")
    events = asked.events or (20_000 if asked.quick else 1_000_000)
    usual = "1000,10000" if asked.quick else "1000,100000"
    batches = [int(size) for size in (asked.batches or usual).split(",")]
    warm, rounds = (1 if asked.quick else 3), asked.rounds or (3 if asked.quick else 5)
    begin(f"NEXMark with {asked.churn:.0%} changes and deletes, from {events:,} events on")
    session = open_session(SparkSettings(driver_memory=asked.memory))
    calibrated, table = [calibrator_s()], []
    with scratch() as folder:
        for name in names:
            sql = (QUERIES / f"{name}.sql").read_text()
            stream = Auctions(1, churn=asked.churn)
            stream.batch(events)
            world = World(folder / name, session, stream.tables())
            hydration = world.create({name: sql})
            for batch in batches:
                costs, updates = Costs(), 0
                for turn in range(-warm, rounds):
                    updates = world.change(stream.batch(batch))
                    taken = world.step()
                    if turn >= 0:
                        costs.samples.append(taken)
                table.append(
                    [
                        name,
                        world.strategy(name),
                        f"{updates:,}",
                        f"{world.rows_read():,}",
                        f"{costs.cpu_s:.3f}",
                        f"{costs.wall_s:.3f}",
                        f"{updates / costs.cpu_s:,.0f}",
                        f"{hydration.wall_s:.1f}",
                    ]
                )
                print("  ".join(table[-1]), flush=True)
            world.check(name, world.controller.select(sql, world.time))
            world.close()
            calibrated.append(calibrator_s())
    close_session()
    show(
        "medians, seconds",
        [
            *("query", "strategy", "changes", "rows read", "cpu", "wall"),
            *("changes/cpu-s", "hydration"),
        ],
        table,
    )
    print(f"\ncalibrator: {min(calibrated):.3f} to {max(calibrated):.3f} CPU-s")


if __name__ == "__main__":
    main()

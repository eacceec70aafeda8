"""Filters on the current time as views: rows come and go at their times, without a change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headwater.compute.controller import ViewController
from headwater.compute.hydration import RANGE_ROWS
from headwater.compute.ir.refusal import Refused
from headwater.compute.maintained import MaintainedView
from headwater.persist.client import Client
from headwater.persist.state import violations
from tests.spark.job_ids import job_ids
from tests.unit.compute import model

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        ("x", pa.string()),
        ("since", pa.timestamp("us", tz="UTC")),
        ("until", pa.timestamp("us", tz="UTC")),
    ]
)
QUERIES = {
    "both": "SELECT x, since FROM t WHERE since <= now() AND now() < until",
    "later": "SELECT x, count(*) AS n FROM t WHERE now() >= since + INTERVAL '0.003' SECOND "
    "GROUP BY x",
    "windowed": "SELECT x, rank() OVER (ORDER BY x) AS r FROM t WHERE now() < until",
}


def moment(micros: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


def test_rows_come_and_go_at_their_times(spark: Any, client: Client) -> None:
    seed = 21
    print(f"seed {seed}")
    random = Random(seed)
    write, _ = client.create_or_load("t", SCHEMA)
    controller = ViewController(client, spark)
    held: list[dict[str, Any]] = []
    upper = 0
    for round_ in range(4):
        for time in range(upper, upper + 4):
            if round_ == 2:
                break  # Nothing changes but the time.
            # Just before, at and just after a millisecond; long ago; never.
            bounds = [moment(1000 * random.randrange(16) + random.choice([-1, 0, 1])), None]
            bounds += [moment(-(10**15)), moment(10**16)]
            row = {"x": random.choice("ab"), "since": random.choice(bounds)}
            row["until"] = random.choice(bounds)
            changes = [(row, time, 1)]
            held.append(row)
            if random.random() < 0.4:
                changes.append((held.pop(random.randrange(len(held))), time, -1))
            write.write(changes).result()
        upper += 4
        write.seal(upper).result()
        if not round_:
            for name, sql in QUERIES.items():
                # Others are hydrated by ranges.
                controller._stepper.range_rows = RANGE_ROWS if name == "windowed" else 1
                view = controller.create_view(name, sql)
                assert isinstance(view, MaintainedView), controller.explain(name)
                controller.run_once()
        controller.run_once()
        assert not controller.failures()
        for name, sql in QUERIES.items():
            read = client.reader(name)
            for time in range(max(read.since.only(), upper - 4), upper):
                found = model.rows_of(read.snapshot(time).to_table())
                assert found == model.rows_of(controller.select(sql, time)), f"{name} at {time}"
    assert not list(violations(client.core.state))


def test_a_view_is_idle_until_the_time_it_has_scheduled(spark: Any, client: Client) -> None:
    write, _ = client.create_or_load("t", SCHEMA)
    controller = ViewController(client, spark)
    view = controller.create_view("both", QUERIES["both"])
    row = {"x": "a", "since": moment(500_000_000), "until": moment(900_000_000)}
    write.compare_and_append([(row, 0, 1)], 0, 1_000).result()

    def step(upper: int, by: ViewController) -> int:
        """Let time pass; return how many jobs the step took."""
        write.compare_and_append([], client.reader("t").upper.only(), upper).result()
        before = job_ids(spark, view.reader_id)
        assert by.run_once() == ("both",)
        assert client.reader("both").upper.only() == upper
        return len(job_ids(spark, view.reader_id) - before)

    controller.run_once()
    assert step(400_000, controller) == 0
    assert step(600_000, controller) == 1
    read = client.reader("both")
    assert not model.rows_of(read.snapshot(499_999, timeout=1).to_table())
    assert model.rows_of(read.snapshot(500_000).to_table()) == {("a", row["since"]): 1}
    assert step(700_000, controller) == 0
    again = ViewController(client, spark)
    assert step(800_000, again) == 1, "it does not know"
    assert step(850_000, again) == 0
    assert step(1_000_000, again) == 1
    assert not model.rows_of(client.reader("both").snapshot(900_000).to_table())
    assert step(10**15, again) == 0, "nothing is scheduled any more"


def test_what_is_recomputed_has_no_clock(spark: Any, client: Client) -> None:
    client.create_or_load("t", SCHEMA)
    controller = ViewController(client, spark)
    with pytest.raises(Refused, match="current time"):
        controller.create_view("both", QUERIES["both"], rules=False)

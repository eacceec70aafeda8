"""First steps by ranges, without Spark: exact on random plans, and within their bound.

What runs is what a task of Spark's runs, on the parts of a real location. Views go on from what the
ranges wrote, and are compared with the oracle at every time.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from headwater.compute.dataflow.graph import Dataflow, Stretches
from headwater.compute.dataflow.lower import NoRule, lowered
from headwater.compute.dataflow.task import Done, StepTask
from headwater.compute.ir.expression import Expression, Field, SortKey, WindowCall
from headwater.compute.ir.node import (
    Aggregate,
    Node,
    Project,
    Scan,
    TemporalFilter,
    Window,
    relations,
)
from headwater.compute.ir.text import outlined
from headwater.persist.client import Client
from headwater.persist.maintenance import Maintenance
from headwater.testing import oracle
from headwater.testing.expressions import as_arrow
from headwater.testing.merging import merge_everything
from headwater.testing.plans import random_plan
from headwater.testing.relation import as_updates
from headwater.testing.relations import RELATIONS, Histories, random_history, schemas
from headwater.testing.stages import TasksHere
from tests.unit.dataflow.across_plans import across
from tests.unit.dataflow.lowered_plans import A, B, call, column, inner, named, plain, scan
from tests.unit.dataflow.ranged_views import RangedView, opened

RANGE_ROWS = 3
BATCH = 25
CASES = range(0, 25, BATCH)
SOAKED_BATCH = 100
SOAKED = range(20_000, 26_000, SOAKED_BATCH)
TIMED = {"x": "bigint", "since": "timestamp", "until": "timestamp"}


def check(seed: int) -> str:
    """Return what became of the case: ``checked``, or why it was not."""
    random = Random(f"ranges {seed}")
    depth = random.choice([1, 2, 3, 3, 4, 4])
    plan = random_plan(random, depth) if seed % 5 else across(random)
    histories = random_history(random, changes=8)
    if not relations(plan) or not plan.columns:
        return "of no relation, or no column"
    if isinstance(lowered(plan), NoRule):
        return "no rule"
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder) / "data") as client:
        write(client, histories, 0)
        view = RangedView(client, plan, {name: name for name in RELATIONS}, RANGE_ROWS)
        for number in range(1, len(histories.steps) + 1):
            write(client, histories, number)
            view.step()
        try:
            compare(view, plan, histories, seed)
        except oracle.TooMany:
            return "too many rows"
        return "checked" if view.ranges is not None else "few rows"


def write(client: Client, histories: Histories, number: int, only: str | None = None) -> None:
    """Write what happened before the view (0), or in one of its steps; to this relation alone."""
    steps = [(histories.start, histories.past), *histories.steps]
    upper, updates = steps[number]
    for name, columns in schemas().items():
        if only not in (None, name):
            continue
        fields = [(c.name.removesuffix("_0"), c.sql_type.arrow) for c in columns]
        writer, _ = client.create_or_load(name, pa.schema(fields))
        told = [
            ({n: as_arrow(v) for (n, _), v in zip(fields, row, strict=True)}, time, diff)
            for row, time, diff in updates[name]
        ]
        if told:
            writer.write(told).result()
        writer.seal(upper).result()


def compare(view: RangedView, plan: Node, histories: Histories, seed: int) -> None:
    upper, _ = histories.steps[-1]
    assert view.upper == upper
    for time in range(view.view.start, upper):
        if histories.owes_at(time):
            continue
        tables = {
            relation: oracle.Table(tuple(fields), histories.rows_at(relation, time))
            for relation, fields in RELATIONS.items()
        }
        expected, found = oracle.rows(plan, tables), view.rows_at(time)
        assert found == expected, (
            f"seed {seed}, time {time}:\n{outlined(plan)}"
            f"missing {expected - found}\ntoo many {found - expected}"
        )


@pytest.mark.parametrize(
    ("first", "count"),
    [
        *((first, BATCH) for first in CASES),
        *(pytest.param(first, SOAKED_BATCH, marks=pytest.mark.soak) for first in SOAKED),
    ],
)
def test_the_output_is_the_plans_at_every_time(first: int, count: int) -> None:
    print(f"seeds {first} to {first + count - 1}")
    outcomes = Counter(check(seed) for seed in range(first, first + count))
    assert outcomes["checked"] > count * 0.6, outcomes


# ---- what random plans do not have -----------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_stretches_of_partitions_that_came_by_ranges(seed: int, tmp_path: Path) -> None:
    """Written by ranges, merged, and stepped on: what is around a change is found all the same."""
    types = {"a": "int", "b": "bigint", "s": "string"}
    source = Scan("r", tuple(Field(n, column(f"{n}_1", type_)) for n, type_ in types.items()))
    lagged = (plain("b_1"), Expression("1", "int", False), Expression("NULL", "void", True))
    frame = "ROWS BETWEEN 1 FOLLOWING AND 1 FOLLOWING"
    text = "lag(b_1, 1, NULL)"
    lag = WindowCall("w_1", "lag", text, frame, "bigint", True, ("b_1",), lagged)
    partition = (plain("a_1", "int"),) if seed % 2 else ()
    plan = Window(source, partition, (SortKey(plain("s_1", "string")),), (lag,))
    flow = lowered(plan)
    assert isinstance(flow, Dataflow)
    assert any(isinstance(operator, Stretches) for operator in flow.operators)
    histories = random_history(Random(f"stretches {seed}"), changes=25)
    with opened(tmp_path / "data") as client:
        write(client, histories, 0)
        view = RangedView(client, plan, {name: name for name in RELATIONS}, RANGE_ROWS)
        for number in range(1, len(histories.steps) + 1):
            write(client, histories, number)
            view.step()
            merge_everything(client)
        assert view.ranges is not None
        compare(view, plan, histories, seed)


def hydrated(
    folder: Path, plan: Node, tables: Mapping[str, pa.Table], part_rows: int, range_rows: int
) -> RangedView:
    """Return a view over tables that came in parts of so many rows, after its first step."""
    client = opened(folder)
    for name, table in tables.items():
        write, _ = client.create_or_load(name, table.schema)
        parts = range(0, max(map(len, tables.values())), part_rows)
        for time, first in enumerate(parts):
            rows = as_updates(table.slice(first, part_rows), time, 1)
            write.compare_and_append(rows, time, time + 1).result()
    view = RangedView(client, plan, {name: name for name in tables}, range_rows)
    view.step()
    assert view.ranges is not None
    return view


def test_an_error_is_there_as_long_as_its_row() -> None:
    """Rows of several ranges fail; all of them but one go again."""
    largest = 2**63 - 1
    total = named("q_1", f"(y_1 + {largest}L)", "bigint", "y_1")
    plan = Project(scan("a", "x_1", "y_1"), (total,))
    table = pa.table({"x": list(range(12)), "y": [n % 3 - 1 for n in range(12)]})
    with tempfile.TemporaryDirectory() as folder:
        view = hydrated(Path(folder) / "data", plan, {"a": table}, 2, 2)
        with view.client as client:
            failing = [row for row in table.to_pylist() if row["y"] > 0]
            assert view.errors_at(view.upper - 1) == len(failing) == 4
            assert view.rows_at(view.upper - 1) == {(largest,): 4, (largest - 1,): 4}
            write, _ = client.create_or_load("a", table.schema)
            gone = [(row, view.upper, -1) for row in failing[1:]]
            write.compare_and_append(gone, view.upper, view.upper + 1).result()
            view.step()
            assert view.errors_at(view.upper - 1) == 1


def test_a_schedule_is_that_of_all_ranges() -> None:
    """Rows come and go at times after the first step; the same ones are announced twice."""

    def moment(milliseconds: int) -> datetime:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)

    fields = [Field(name, column(f"{name}_1", kind)) for name, kind in TIMED.items()]
    since, until = (plain(f"{name}_1", "timestamp") for name in ("since", "until"))
    plan = TemporalFilter(Scan("a", tuple(fields)), since, until)
    random = Random(7)
    bounds = [(n % 2, random.randrange(60), random.randrange(60)) for n in range(40)]
    columns = {
        "x": [x for x, _, _ in bounds],
        "since": pa.array([moment(since) for _, since, _ in bounds], pa.timestamp("us", "UTC")),
        "until": pa.array([moment(until) for _, _, until in bounds], pa.timestamp("us", "UTC")),
    }
    with tempfile.TemporaryDirectory() as folder:
        view = hydrated(Path(folder) / "data", plan, {"a": pa.table(columns)}, 4, 4)
        with view.client as client:
            assert view.ranges is not None
            assert len(view.tasks.ranges) > 5
            write, _ = client.create_or_load("a", pa.table(columns).schema)
            for upper in (25, 40, 70):
                write.compare_and_append([], view.upper, upper).result()
                view.step()
            for time in range(view.view.start, 70):
                there = Counter(
                    (x, moment(since), moment(until))
                    for x, since, until in bounds
                    if since <= time < until
                )
                assert view.rows_at(time) == there, f"time {time}"


# ---- what is left ----------------------------------------------------------------------------


def unreferenced(client: Client) -> set[str]:
    """Return the objects that no collection refers to, once garbage was collected."""
    Maintenance(client.core).once()
    stored = {info.key for info in client.core.blob.list("part/")}
    return stored - set(client.core.state.references)


NUMBERS = np.arange(40)
TABLES = {
    "a": pa.table({"x": NUMBERS, "y": NUMBERS * 31 % 40}),
    "b": pa.table({"x": NUMBERS, "z": NUMBERS // 2}),
}


def test_what_was_put_aside_is_gone_after_the_step() -> None:
    plan = Aggregate(inner(A, B, ("x_1", "x_2")), ("z_2",), (call("s_1", "sum", "y_1"),))
    with tempfile.TemporaryDirectory() as folder:
        view = hydrated(Path(folder) / "data", plan, TABLES, 4, 4)
        with view.client as client:
            assert unreferenced(client) == set()
            assert len(view.rows_at(view.upper - 1)) == 20


def test_what_was_put_aside_is_gone_after_a_step_that_failed() -> None:
    class Failing(TasksHere):
        def program(self, flow: Dataflow) -> Callable[[StepTask], Done]:
            raise RuntimeError(f"{len(list(client.core.blob.list('part/')))} objects")

    plan = inner(A, B, ("x_1", "x_2"))
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder) / "data") as client:
        for name, table in TABLES.items():
            write, _ = client.create_or_load(name, table.schema)
            write.compare_and_append(as_updates(table, 0, 1), 0, 1).result()
        view = RangedView(client, plan, {name: name for name in TABLES}, 4, Failing())
        before = len(list(client.core.blob.list("part/")))
        with pytest.raises(RuntimeError, match="objects") as failed:
            view.step()
        assert int(str(failed.value).split()[0]) > before, "something was put aside"
        assert unreferenced(client) == set()
        view.tasks = TasksHere()
        view.step()
        assert len(view.rows_at(view.upper - 1)) == 40


# ---- the bound -------------------------------------------------------------------------------

N, TIMES, RANGE = 1_500, 4, 500
JOINED = inner(A, B, ("x_1", "x_2"))
BOUNDED: dict[str, tuple[Node, int]] = {
    "linear": (Project(A, (named("s_1", "(x_1 + y_1)", "bigint", "x_1", "y_1"),)), 1),
    # Brought to its range, and read there; each finds one of the other side.
    "joined": (JOINED, 3),
    # Read, put aside by the group, and read again.
    "grouped": (Aggregate(A, ("y_1",), (call("s_1", "sum", "x_1"),)), 3),
    "summed": (Aggregate(JOINED, ("z_2",), (call("s_1", "sum", "y_1"),)), 4),
}
"""Plans over tables of N rows, and how often a row of theirs is read on the way, at most."""


def read(plan: Node, rows: int) -> tuple[int, int]:
    """Return how many rows a first step reads in all, and how many in one task, at most."""
    numbers = np.arange(rows)
    a = pa.table({"x": numbers, "y": numbers * 31 % rows})
    b = pa.table({"x": numbers, "z": numbers // 2})
    tables = {name: table for name, table in {"a": a, "b": b}.items() if name in relations(plan)}
    with tempfile.TemporaryDirectory() as folder:
        view = hydrated(Path(folder) / "data", plan, tables, RANGE, RANGE)
        with view.client:
            every = view.tasks.scattered + view.tasks.ranges
            return sum(every), max(every)


@pytest.mark.parametrize("name", BOUNDED)
def test_rows_are_read_so_often_and_tasks_read_their_share(name: str) -> None:
    plan, often = BOUNDED[name]
    of = len(relations(plan))
    most: list[int] = []
    for rows in (N, TIMES * N):
        total, in_a_task = read(plan, rows)
        print(f"{name}: of {of * rows} rows {total} are read, {in_a_task} in a task")
        assert total <= often * of * rows
        most.append(in_a_task)
    # Ranges are of hashes, and not of the same size; what is put aside is read, and then reduced.
    assert max(most) <= 2.5 * RANGE
    assert most[1] <= 1.2 * most[0], "more rows are more tasks, no larger ones"

"""First steps run by ranges, in several tasks: the same answers, and the same state to go on from.

Here ranges have some rows each. Views are compared with Spark's answer after their first step, and
after steps that follow it; random ones at every time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.collection.run_layout import LAYOUTS
from headwater.compute import hydration, renew
from headwater.compute.controller import ViewController
from headwater.compute.dataflow.graph import Dataflow
from headwater.compute.dataflow.phases import phases
from headwater.compute.dataflow.task import Done, StepTask
from headwater.compute.hydration import SparkTasks, Work
from headwater.compute.maintained import GroupStep
from headwater.persist.client import Client, open_location
from headwater.persist.core import Step
from headwater.persist.spark_parts import Place
from headwater.testing.random_cases import SIZE, case
from headwater.testing.random_views import checked

pytestmark = pytest.mark.spark

FACTS = pa.schema([("id", pa.int64()), ("dim", pa.int64()), ("grp", pa.int64()), ("x", pa.int64())])
DIMS = pa.schema([("id", pa.int64()), ("region", pa.string()), ("boss", pa.int64())])
ROWS, DIMS_COUNT = 60, 12

VIEWS = {
    "linear": "SELECT id, x * 2 AS y FROM facts WHERE x % 3 <> 0",
    "joined": "SELECT f.id, d.region FROM facts f JOIN dims d ON f.dim = d.id",
    "summed": "SELECT d.region, count(*) AS n, sum(f.x) AS s "
    "FROM facts f JOIN dims d ON f.dim = d.id GROUP BY d.region",
    # Keys differ from hop to hop; a collection is joined with itself.
    "bosses": "SELECT f.grp, count(*) AS n FROM facts f JOIN dims d ON f.dim = d.id "
    "JOIN dims b ON d.boss = b.id WHERE b.region <> 'r2' GROUP BY f.grp",
    "outer": "SELECT f.id, d.region FROM facts f LEFT JOIN dims d "
    "ON f.dim = d.id AND d.region < 'r2'",
    "extremes": "SELECT grp, min(x) AS low, max(x) AS high FROM facts GROUP BY grp",
    # Rows that are there although nothing comes in: once, not once for every range.
    "all": "SELECT count(*) AS n, sum(x) AS s, max(x) AS m FROM facts",
    "none": "SELECT count(*) AS n, max(x) AS m FROM facts WHERE x < 0",
    "constant": "SELECT 1 AS one UNION ALL SELECT x FROM facts WHERE x < 10",
    "distinct": "SELECT DISTINCT grp, x % 4 AS m FROM facts",
    "first": "SELECT id, x FROM facts ORDER BY x DESC, id LIMIT 5",
    "window": "SELECT id, sum(x) OVER (PARTITION BY grp ORDER BY id) AS s FROM facts",
    "without": "SELECT id FROM dims EXCEPT ALL SELECT dim FROM facts WHERE x % 2 = 0",
    # An aggregate of an aggregate, joined again, and in union with what comes up before.
    "again": "SELECT n, count(*) AS c FROM (SELECT grp, count(*) AS n FROM facts GROUP BY grp) "
    "GROUP BY n UNION ALL SELECT id, x FROM facts WHERE x % 5 = 0",
    "back": "SELECT f.id, g.s FROM facts f "
    "JOIN (SELECT grp, sum(x) AS s FROM facts GROUP BY grp) g ON f.grp = g.grp "
    "JOIN dims d ON g.s % 12 = d.id",
    "failing": "SELECT grp, sum(100 div (x - 7)) AS q FROM facts GROUP BY grp",
}


class Tables:
    """Two tables that change, and what is written into them."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.upper = 0
        self._facts: dict[int, tuple[int, ...]] = {}
        self._writers = {
            name: client.create_or_load(name, schema)[0]
            for name, schema in (("facts", FACTS), ("dims", DIMS))
        }
        dims = [(i, f"r{i % 4}", (i * 5) % DIMS_COUNT) for i in range(DIMS_COUNT)]
        # More than a part each, in several appends.
        for first in range(0, ROWS, 20):
            rows = [(i, i % 15, i % 7, i * 37 % 50) for i in range(first, first + 20)]
            some = dims[first // 5 : first // 5 + 4]
            self.write({"facts": [(r, 1) for r in rows], "dims": [(d, 1) for d in some]})
        self._facts = {i: (i, i % 15, i % 7, i * 37 % 50) for i in range(ROWS)}

    def write(self, changes: dict[str, list[tuple[tuple[Any, ...], int]]]) -> None:
        for name, writer in self._writers.items():
            names = (FACTS if name == "facts" else DIMS).names
            told = [
                (dict(zip(names, row, strict=True)), self.upper, diff)
                for row, diff in changes.get(name, [])
            ]
            writer.compare_and_append(told, self.upper, self.upper + 1).result()
        self.upper += 1

    def change(self, number: int) -> None:
        gone = [self._facts[i] for i in range(number, ROWS, 9)]
        came = [(i, (i + number) % 15, i % 7, i * 31 % 50) for i, *_ in gone]
        self._facts |= {row[0]: row for row in came}
        dim = (number, f"r{number % 4}", (number * 5) % DIMS_COUNT)
        self.write(
            {
                "facts": [*((row, -1) for row in gone), *((row, 1) for row in came)],
                "dims": [(dim, -1), ((number, "r9", 3), 1)],
            }
        )


def rows(table: pa.Table) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for row in table.to_pylist():
        diff = row.pop("__diff", 1)
        found[tuple(row.values())] += diff
    return found


def check(client: Client, controller: ViewController, names: Sequence[str], at: int) -> None:
    for name in names:
        snapshot = client.reader(name).snapshot(at, timeout=0)
        if name == "failing":
            assert snapshot.errors().num_rows, name
            continue
        meant = rows(controller.select(VIEWS[name], at))
        assert rows(snapshot.to_table()) == meant, f"{name} at {at}"


@pytest.fixture
def ranged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collect how many phases each first step had that was run by ranges."""
    found: list[int] = []

    def planned(*given: Any) -> Any:
        made = phases(*given)
        assert made is not None, "it can be run by ranges"
        found.append(len(made))
        return made

    monkeypatch.setattr(hydration, "phases", planned)
    return found


@pytest.mark.parametrize(
    "names",
    [
        ["summed", "bosses", "all", "constant", "failing"],
        pytest.param(list(VIEWS), marks=pytest.mark.soak),
    ],
    ids=["some", "all"],
)
def test_views_go_on_from_what_ranges_wrote(
    spark: Any, client: Client, names: list[str], ranged: list[int]
) -> None:
    tables = Tables(client)
    controller = ViewController(client, spark)
    controller._stepper.range_rows = 28
    for name in names:
        controller.create_view(name, VIEWS[name])
    tables.change(1)
    assert set(controller.run_once()) == set(names), controller.failures()
    assert len(ranged) == len(names)
    check(client, controller, names, tables.upper - 1)
    tables.change(2)
    tables.change(3)
    assert set(controller.run_once()) == set(names), controller.failures()
    assert len(ranged) == len(names), "only first steps are"
    check(client, controller, names, tables.upper - 1)


def test_progress_is_the_tasks_that_are_done(spark: Any, client: Client) -> None:
    tables = Tables(client)
    controller = ViewController(client, spark)
    controller._stepper.range_rows = 28
    controller.create_view("summed", VIEWS["summed"])
    controller.start()
    told: list[float] = []
    while controller.view_upper("summed").allows(tables.upper - 1):
        told += [one.part_done for one in controller.hydrations()]
        time.sleep(0.005)
    controller.stop()
    assert told == sorted(told)
    assert len({part for part in told if 0 < part < 1}) > 2, "of each wave, and of each range"
    check(client, controller, ["summed"], tables.upper - 1)


def test_a_hydration_ends_when_its_view_is_dropped(
    spark: Any, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def together(self: SparkTasks, work: Sequence[Work]) -> list[bytes]:
        answers = real(self, work)
        if self.view.name == "joined":
            assert controller.drop_view("joined")
        return answers

    def program(self: SparkTasks, flow: Dataflow) -> Callable[[StepTask], Done]:
        planned.append(self.view.name)
        return real_program(self, flow)

    planned: list[str] = []
    real, real_program = SparkTasks.together, SparkTasks.program
    monkeypatch.setattr(SparkTasks, "together", together)
    monkeypatch.setattr(SparkTasks, "program", program)
    tables = Tables(client)
    before = set(client.core.state.collections)
    controller = ViewController(client, spark)
    controller._stepper.range_rows = 28
    controller.create_view("joined", VIEWS["joined"])
    controller.create_view("summed", VIEWS["summed"])
    controller.start()
    client.reader("summed").snapshot(tables.upper - 1, timeout=60)
    controller.stop()
    assert set(planned) == {"summed"}, "after the first tasks nothing of the other one ran"
    assert controller.failures() == {}
    check(client, controller, ["summed"], tables.upper - 1)
    assert controller.drop_view("summed")
    assert set(client.core.state.collections) == before
    assert not any(key.startswith(("view/", "arrangement/")) for key in client.core.state.items)


def test_a_mistake_of_ours_is_told_and_stalls_one_view(
    spark: Any,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def corrected(place: Place, step: Step, group: GroupStep, done: Done) -> Done:
        if not may_go and group.views[0].view.name == "all":
            raise KeyError("a bug")
        return real(place, step, group, done)

    may_go: list[bool] = []
    real = renew.corrected
    monkeypatch.setattr(renew, "corrected", corrected)
    tables = Tables(client)
    controller = ViewController(client, spark)
    broken = controller.create_view("all", VIEWS["all"])
    controller.create_view("summed", VIEWS["summed"])
    controller.start()
    client.reader("summed").snapshot(tables.upper - 1, timeout=60)
    assert controller.failures() == {broken.id: "view 'all' could not be stepped: 'a bug'"}
    assert any("KeyError" in str(record.exc_info) for record in caplog.records)
    may_go.append(True)
    client.reader("all").snapshot(tables.upper - 1, timeout=60)
    controller.stop()
    assert controller.failures() == {}, "what is over is not told any more"
    check(client, controller, ["all", "summed"], tables.upper - 1)


@pytest.mark.parametrize(
    ("batch", "numbers"),
    [
        (0, range(3)),
        *(pytest.param(batch, range(SIZE), marks=pytest.mark.soak) for batch in range(200, 212)),
    ],
)
def test_random_views_are_exact_at_every_time(
    spark: Any, client: Client, tmp_path: Path, batch: int, numbers: range
) -> None:
    print(f"batch {batch}, cases {numbers}")
    session = spark.newSession()
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")

    def reopened() -> Client:
        return open_location(
            tmp_path / "data", layouts=LAYOUTS, take_over=True, settings=client.core.settings
        )

    cases = [case(batch, number) for number in numbers]
    wrong = checked(session, client, batch, cases, reopened, range_rows=4)
    assert not wrong, "\n".join(wrong)

"""Views planned together: joins in common are one, and a program steps any of its views."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headwater.compute.controller import ViewController
from headwater.compute.dataflow.graph import DeltaJoin
from headwater.compute.dataflow.written import LARGE_ROWS
from headwater.compute.maintained import MaintainedView
from headwater.compute.stepper import OWN_PROGRAM_AFTER
from headwater.persist.batch import Segment
from headwater.persist.client import Client
from headwater.persist.errors import Stopped
from headwater.testing.duck import difference
from headwater.testing.relation import as_updates
from tests.spark.shape_story import Story

pytestmark = pytest.mark.spark

JOINED = "FROM orders o JOIN customers c ON o.customer = c.id"
SAME = {
    "all": f"SELECT o.region, o.amount, c.credit, c.id {JOINED}",
    "few": f"SELECT c.credit {JOINED}",
    "sums": f"SELECT o.region, sum(c.credit) AS credit, count(*) AS n {JOINED} GROUP BY o.region",
    "computed": f"SELECT o.amount + c.credit AS x {JOINED} WHERE o.amount > 2",
    "twice": f"SELECT o.region, a.amount {JOINED} JOIN orders a ON a.customer = c.id",
    "again": f"SELECT a.amount, o.amount AS b {JOINED} JOIN orders a ON a.customer = c.id",
}
JOINS_APART = 2
"""Joins of two that are the same, and joins of three that are the same."""


def _join_of(view: object) -> int:
    assert isinstance(view, MaintainedView)
    (number,) = [n for n, o in enumerate(view.flow.operators) if isinstance(o, DeltaJoin)]
    return number


def test_joins_in_common_are_run_once(spark: Any, client: Client) -> None:
    story = Story(21)
    controller = ViewController(client, spark)
    story.go_on(client)
    views = {name: controller.create_view(name, sql) for name, sql in SAME.items()}
    controller.run_once()
    for _ in range(3):
        story.go_on(client)
        assert controller.run_once() == tuple(SAME), controller.failures()
        run = controller._stepper.rows_read
        joined = sum(
            name in {key.split("/")[0] for key in run if _is_join(key, views)} for name in SAME
        )
        assert joined == JOINS_APART
        for name in SAME:
            story.see(client, controller, name)
    story.judge(client, SAME)


def _is_join(key: str, views: dict[str, Any]) -> bool:
    name, number = key.split("/")
    place = list(SAME).index(name)
    before = sum(len(views[other].flow.operators) for other in list(SAME)[:place])
    return int(number) == before + _join_of(views[name])


def test_what_a_committed_step_wrote_of_a_state_is_not_looked_up_by_the_next(
    spark: Any, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = pa.schema([("k", pa.int64()), ("x", pa.int64())])
    writer, _ = client.create_or_load("t", schema)
    controller = ViewController(client, spark)
    sql = "SELECT k, sum(x) AS x FROM t GROUP BY k"

    def write(time: int) -> None:
        rows = pa.table({"k": [1, 2, 3, None], "x": [time, 1, -time, 7]}, schema=schema)
        writer.compare_and_append(as_updates(rows, time, 1), time, time + 1).result()

    def looked_up() -> int:
        """How many rows the sums read in the last step, without the four of the delta."""
        return max(controller._stepper.rows_read.values()) - 4

    def check(time: int, *, forgotten: bool) -> None:
        shown = client.reader("v").snapshot(time).to_table()
        assert difference(shown, controller.select(sql, time)) is None
        if _is_one_worker(spark):  # Else Spark gives the step to whom it likes.
            assert (looked_up() > 0) == forgotten

    write(0)
    controller.create_view("v", sql)
    controller.run_once()
    for time in (1, 2, 3):
        write(time)
        assert controller.run_once() == ("v",)
        # Of the first step nothing is remembered: it may be large.
        check(time, forgotten=time == 1)

    # A step that was computed and not committed is as if it had not been.
    write(4)
    with monkeypatch.context() as patched:
        patched.setattr("headwater.compute.renew.corrected", _stopping)
        with pytest.raises(Stopped):
            controller.run_once()
    for time in (4, 5):
        if time > 4:
            write(time)
        assert controller.run_once() == ("v",)
        check(time, forgotten=time == 4)


def _is_one_worker(spark: Any) -> bool:
    """Whether the JVM has one Python worker, and the daemon that made it."""
    return int(spark._jvm.java.lang.ProcessHandle.current().descendants().count()) == 2


def _stopping(*_: object) -> None:
    raise Stopped("here, before anything is committed")


def test_a_program_steps_any_of_its_views(spark: Any, client: Client) -> None:
    schema = pa.schema([("k", pa.int64()), ("x", pa.int64())])
    writers = {name: client.create_or_load(name, schema)[0] for name in ("a", "b", "c")}
    controller = ViewController(client, spark)
    queries = {
        "of_a": "SELECT k, 10 / x AS y FROM a",
        "of_b": "SELECT k, sum(x) AS x FROM b GROUP BY k",
        "of_c": "SELECT k, x * 2 AS x FROM c WHERE x <> 3",
        "of_ab": "SELECT a.x, b.x AS y FROM a JOIN b ON a.k = b.k",
    }
    for name, sql in queries.items():
        controller.create_view(name, sql)
    time = 0

    def written(*names: str) -> None:
        nonlocal time
        for name, writer in writers.items():
            rows = [({"k": time % 3, "x": time + 1}, time, 1)] if name in names else []
            writer.compare_and_append(rows, time, time + 1).result()
        time += 1

    def checked() -> None:
        assert set(controller.run_once()) == set(queries), controller.failures()
        for name, sql in queries.items():
            found = client.reader(name).snapshot(time - 1).to_table()
            asked = controller.select(sql, time - 1)
            assert _bag(found, repeated=True) == _bag(asked), name

    written("a", "b", "c")
    checked()
    written("a", "b", "c")
    checked()
    planned = controller._stepper._programs
    known = len(planned)
    for names in (("a",), ("b",), ("c",), ("a", "c"), ("b", "c"), ()):
        written(*names)
        checked()
    assert len(planned) == known, "all of them were steps of the program of all views"
    for _ in range(OWN_PROGRAM_AFTER):
        written("c")
        assert set(controller.run_once()) == set(queries)
    assert len(planned) == known, "it had one since it was hydrated"
    for _ in range(OWN_PROGRAM_AFTER):
        written("b", "c")
        controller.run_once()
    assert len(planned) == known + 1, "a set that comes again and again has a program of its own"
    written("a", "b")
    checked()


def test_an_error_of_one_view_is_its_own(spark: Any, client: Client) -> None:
    """Views are numbered in a program otherwise than in a step of some of them."""
    schema = pa.schema([("x", pa.int64())])
    writers = {name: client.create_or_load(name, schema)[0] for name in ("a", "b")}
    controller = ViewController(client, spark)
    controller.create_view("of_a", "SELECT 10 / x AS y FROM a")
    controller.create_view("of_b", "SELECT 20 / x AS y FROM b")
    for time, (a, b) in enumerate([(1, 1), (1, 1), (None, 0)]):
        for name, x in (("a", a), ("b", b)):
            rows = [] if x is None else [({"x": x}, time, 1)]
            writers[name].compare_and_append(rows, time, time + 1).result()
        assert set(controller.run_once()) == {"of_a", "of_b"}
    assert client.reader("of_a").snapshot(2).errors().num_rows == 0
    assert client.reader("of_b").snapshot(2).errors().num_rows == 1


def _bag(table: pa.Table, *, repeated: bool = False) -> list[tuple[object, ...]]:
    rows = []
    for row in table.to_pylist():
        times = row.pop("__diff") if repeated else 1
        rows += [tuple(row.values())] * times
    return sorted(rows, key=repr)


def test_what_is_large_is_written_as_soon_as_it_is_known(spark: Any, client: Client) -> None:
    """Arrangements of inputs and of lanes, states and outputs of a first step, each an object."""
    rows = LARGE_ROWS + 1_000
    numbers = np.arange(rows)
    facts = pa.table({"k": numbers % 5_000, "x": numbers * 7 % 1_000, "f": numbers / 3})
    schema = pa.schema([("k", pa.int64()), ("name", pa.string())])
    names = pa.table({"k": np.arange(5_000), "name": [f"n{n}" for n in range(5_000)]}, schema)
    writers = {}
    for name, table in (("facts", facts), ("names", names)):
        writers[name], _ = client.create_or_load(name, table.schema)
        writers[name].compare_and_append(as_updates(table, 0, 1), 0, 1).result()
    queries = {
        "joined": "SELECT n.name, f.x FROM facts f JOIN names n ON f.k = n.k",
        "ends": "SELECT x + k AS g, min(f) AS low, max(f) AS high FROM facts GROUP BY x + k",
        "distinct": "SELECT DISTINCT x, k FROM facts",
    }
    controller = ViewController(client, spark)
    for name, sql in queries.items():
        controller.create_view(name, sql)
    for time in (1, 2):
        assert set(controller.run_once()) == set(queries), controller.failures()
        for name, sql in queries.items():
            found = client.reader(name).snapshot(time - 1).to_table()
            asked = controller.select(sql, time - 1)
            assert difference(found, asked) is None, name
        gone, come = facts.slice(3 * time, 2), facts.slice(500, 3)
        changes = pa.concat_tables([as_updates(gone, time, -1), as_updates(come, time, 1)])
        writers["facts"].compare_and_append(changes, time, time + 1).result()
        writers["names"].compare_and_append([], time, time + 1).result()
    objects = {
        part.where.key.rpartition(".")[2]
        for collection in client.core.state.collections.values()
        for part in collection.parts()
        if isinstance(part.where, Segment)
    }
    assert len(objects) > 2, "the first step wrote several objects"

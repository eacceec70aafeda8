"""Any deterministic query as a view: at every time what Spark says of the inputs at that time."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from headwater.algebra.frontier import Frontier
from headwater.base.errors import InvalidUsage
from headwater.collection.run_layout import LAYOUTS
from headwater.compute import definition, recompute, recomputer
from headwater.compute.controller import ViewController
from headwater.compute.definition import Definition
from headwater.compute.ir.refusal import NotUnderstood, Refused
from headwater.compute.maintained import MaintainedView
from headwater.compute.recompute import Changes, Recomputation, RecomputedView
from headwater.persist import spark as edge
from headwater.persist.batch import Part
from headwater.persist.client import Client, WriteHandle, open_location
from headwater.persist.commands import AllowCompaction, Command
from headwater.persist.errors import CollectionHasErrors, NewerFormat
from headwater.persist.evolution import ERROR_SCHEMA, updates_schema
from headwater.persist.state import bound, violations
from headwater.testing.merging import merge_everything
from tests.spark.job_ids import job_ids
from tests.spark.shape_story import Story
from tests.unit.compute import model

pytestmark = pytest.mark.spark

QUERIES = {
    "left_join": "SELECT o.region, o.amount, c.credit FROM orders o LEFT JOIN customers c "
    "ON o.customer = c.id",
    "distinct": "SELECT DISTINCT customer, region FROM orders",
    "min_max": "SELECT region, min(amount) AS low, max(amount) AS high, count(*) AS n "
    "FROM orders GROUP BY region",
    "total": "SELECT count(*) AS n, max(amount) AS high FROM orders",
    "top": "SELECT amount FROM orders ORDER BY amount DESC LIMIT 3",
    "ranked": "SELECT region, amount, rank() OVER (PARTITION BY region ORDER BY amount) AS r "
    "FROM orders",
    "union": "SELECT customer AS k FROM orders UNION ALL SELECT id FROM customers ORDER BY k",
    "exists": "SELECT id, credit FROM customers c WHERE EXISTS "
    "(SELECT 1 FROM orders o WHERE o.customer = c.id AND o.amount > 0)",
    "named": "WITH orders AS (SELECT credit AS x FROM customers) SELECT max(x) AS x FROM orders",
    "recursive": "WITH RECURSIVE down(n) AS (SELECT max(customer) FROM orders UNION ALL "
    "SELECT n - 1 FROM down WHERE n > 0) SELECT n, count(*) AS times FROM down GROUP BY n",
    "constant": "SELECT 1 AS one",
}


def _table(client: Client, name: str = "t") -> WriteHandle:
    return client.create_or_load(name, pa.schema([("k", pa.int64()), ("x", pa.int64())]))[0]


def test_every_shape_is_exact_at_every_time(spark: Any, client: Client) -> None:
    story = Story(1)
    controller = ViewController(client, spark)
    story.go_on(client)
    for name, sql in QUERIES.items():
        assert isinstance(controller.create_view(name, sql, rules=False), RecomputedView)
        assert controller.explain(name).startswith("recomputed once per input time: no incre")
    for number in range(2):
        controller.run_once()
        assert controller.failures() == {}
        assert controller.run_once() == (), "nothing moved"
        if number:
            assert merge_everything(client)
        for name in QUERIES:
            story.see(client, controller, name)
        story.go_on(client, 2)
    story.judge(client, QUERIES)
    assert not list(violations(client.core.state))
    assert client.reader("constant").upper.is_closed


def _steps_by_owners(spark: Any, directory: Path, sql: str) -> None:
    """Every step by another owner, who finds definition and progress in the log alone."""
    story = Story(2)
    view: Definition | None = None
    for _ in range(3):
        with open_location(directory, layouts=LAYOUTS) as client:
            story.go_on(client)
            controller = ViewController(client, spark)
            view = view or controller.create_view("view", sql, rules=False)
            assert controller.views() == (view,)
            assert controller.run_once() == ("view",)
            story.check(client, controller, "view", sql)
            # Not even the history of its own output is needed to go on.
            gone = AllowCompaction(((view.id, Frontier.of(story.time)),))
            client.core.submit(gone).result()


def test_a_view_goes_on_where_it_was(spark: Any, tmp_path: Path) -> None:
    _steps_by_owners(spark, tmp_path, QUERIES["left_join"])


def _last_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Recomputation.times
    monkeypatch.setattr(Recomputation, "times", lambda self, core: real(self, core)[-1:])


def _what_was_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    def before(self: Recomputation, core: Any) -> tuple[pa.Table, ...]:
        return tuple(side.slice(0, 0) for side in real(self, core))

    real = Recomputation.before
    monkeypatch.setattr(Recomputation, "before", before)


def _duplicates_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def multiset(rows: pa.Table, schema: pa.Schema) -> pa.Table:
        return real(rows.group_by(rows.column_names).aggregate([]), schema)

    real = recompute._multiset
    monkeypatch.setattr(recompute, "_multiset", multiset)


@pytest.mark.parametrize("defect", [_last_time_only, _what_was_is_forgotten, _duplicates_are_one])
def test_planted_defects_are_caught(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, defect: Any
) -> None:
    defect(monkeypatch)
    with pytest.raises(AssertionError, match="view at time"):
        _steps_by_owners(spark, tmp_path, QUERIES["left_join"])


@pytest.mark.parametrize("where", ["driver", "tasks"])
def test_a_row_that_goes_before_it_comes_is_an_error_until_it_has_come(
    spark: Any, client: Client, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    if where == "tasks":
        monkeypatch.setattr(edge, "DRIVER_ROWS_MAX", 0)
    write = _table(client)
    controller = ViewController(client, spark)
    controller.create_view("view", "SELECT k, count(*) AS n FROM t GROUP BY k", rules=False)
    row = {"k": 1, "x": 1}
    write.compare_and_append([(row, 1, -1), (row, 2, 2)], 0, 4).result()
    assert controller.run_once() == ("view",), controller.failures()
    read = client.reader("view")
    assert read.snapshot(0).to_table().num_rows == 0
    with pytest.raises(CollectionHasErrors, match=r"'t' has 1 row.* negative multiplicity"):
        read.snapshot(1).to_table()
    assert read.snapshot(2).to_table().to_pylist() == [{"k": 1, "n": 1, "__diff": 1}]


def test_beside_others_a_step_ends_before_a_time_and_each_is_exact(
    spark: Any, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commands(planned: Recomputation, parts: tuple[Part, ...]) -> tuple[Command, ...]:
        covered.append(bound(planned.interval.upper))
        return real(planned, parts)

    covered: list[int] = []
    real = recompute.commands
    monkeypatch.setattr(recompute, "commands", commands)
    monkeypatch.setattr(recomputer, "STEP_MS_MAX", 0)
    story = Story(4)
    story.go_on(client, 1)
    controller = ViewController(client, spark)
    view = controller.create_view("view", QUERIES["left_join"], rules=False)
    story.go_on(client, 3)
    controller.start()
    client.reader("view").snapshot(story.time - 1, timeout=60)
    controller.stop()
    assert covered == [1, 2, 3, 4]
    story.check(client, controller, "view", QUERIES["left_join"])
    held = client.core.state.collections[view.inputs[0]].readers[view.reader_id].since
    assert held == Frontier.of(story.time - 1)
    assert not list(violations(client.core.state))


def test_nobody_waits_for_a_recomputation(
    spark: Any, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*given: Any) -> Changes:
        begun.set()
        assert may_end.wait(60)
        return real(*given)

    begun, may_end = threading.Event(), threading.Event()
    real = recompute.run
    monkeypatch.setattr(recompute, "run", run)
    story = Story(5)
    story.go_on(client)
    controller = ViewController(client, spark)
    slow, quick = QUERIES["recursive"], QUERIES["min_max"]
    controller.create_view("slow", slow)
    assert isinstance(controller.create_view("quick", quick), MaintainedView)
    controller.create_view("gone", slow)
    controller.start()
    try:
        assert begun.wait(60)
        story.go_on(client)
        client.reader("quick").snapshot(story.time - 1, timeout=60)
        assert client.reader("slow").upper == Frontier.of(story.time - 4), "it has not begun"
        assert controller.drop_view("gone"), "while it waits for its turn"
        may_end.set()
        client.reader("slow").snapshot(story.time - 1, timeout=60)
    finally:
        may_end.set()
        controller.stop()
    assert controller.failures() == {}
    story.check(client, controller, "slow", slow)
    story.check(client, controller, "quick", quick)


def test_a_mistake_of_ours_is_told_and_stalls_one_view(
    spark: Any,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def times(self: Recomputation, core: Any) -> list[int]:
        if self.view.name == "broken":
            raise KeyError("a bug")
        return real(self, core)

    real = Recomputation.times
    story = Story(6)
    story.go_on(client)
    controller = ViewController(client, spark)
    broken = controller.create_view("broken", QUERIES["recursive"])
    controller.create_view("good", QUERIES["recursive"])
    with monkeypatch.context() as patched:
        patched.setattr(Recomputation, "is_empty", lambda self: not times(self, client.core))
        controller.start()
        try:
            client.reader("good").snapshot(story.time - 1, timeout=60)
        finally:
            controller.stop()
    assert controller.failures() == {broken.id: "view 'broken' could not be stepped: 'a bug'"}
    assert any("KeyError" in str(record.exc_info) for record in caplog.records)
    controller.run_once()
    assert controller.failures() == {}
    story.check(client, controller, "broken", QUERIES["recursive"])


def test_rows_that_lead_in_a_circle_are_an_error_as_long_as_they_do(
    spark: Any, client: Client
) -> None:
    write, _ = client.create_or_load("edges", pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    controller = ViewController(client, spark)
    sql = (
        "WITH RECURSIVE reached(n) MAX RECURSION LEVEL 10 AS (SELECT 1L UNION ALL "
        "SELECT b FROM reached JOIN edges ON a = n) SELECT n FROM reached"
    )
    controller.create_view("view", sql)
    forward, back = {"a": 1, "b": 2}, {"a": 2, "b": 1}
    write.compare_and_append([(forward, 0, 1), (back, 1, 1), (back, 2, -1)], 0, 3).result()
    assert controller.run_once() == ("view",), controller.failures()
    read = client.reader("view")
    for time in (0, 2):
        assert sorted(read.snapshot(time).to_table().column("n").to_pylist()) == [1, 2]
    with pytest.raises(CollectionHasErrors, match="Recursion level limit 10 reached"):
        read.snapshot(1).to_table()


def test_times_without_change_start_no_job(spark: Any, client: Client) -> None:
    write = _table(client)
    write.seal(1).result()
    controller = ViewController(client, spark)
    view = controller.create_view("view", "SELECT max(x) AS x FROM t", rules=False)
    assert controller.run_once() == ("view",)
    found = client.reader("view").snapshot(0).to_table()
    assert found.to_pylist() == [{"x": None, "__diff": 1}], "a row over no rows"
    write.compare_and_append([({"k": 1, "x": 1}, 1, 1)], 1, 2).result()
    before = job_ids(spark, view.reader_id)
    assert controller.run_once() == ("view",)
    assert job_ids(spark, view.reader_id) - before
    before = job_ids(spark, view.reader_id)
    write.seal(9).result()
    assert controller.run_once() == ("view",)
    assert controller.view_upper("view") == Frontier.of(9)
    assert not job_ids(spark, view.reader_id) - before
    holds = client.core.state.collections[view.inputs[0]].readers
    assert holds[view.reader_id].since == Frontier.of(8)


def test_a_view_on_views_of_both_kinds(spark: Any, client: Client) -> None:
    story = Story(3)
    story.go_on(client)
    controller = ViewController(client, spark)
    assert isinstance(controller.create_view("sums", model.SQL), MaintainedView)
    assert controller.explain("sums").startswith("incremental:")
    controller.create_view("best", "SELECT max(amount) AS amount FROM sums", rules=False)
    above = "SELECT s.region FROM sums s LEFT ANTI JOIN best b ON s.amount = b.amount"
    controller.create_view("rest", above, rules=False)
    for _ in range(2):
        assert controller.run_once() == ("sums", "best", "rest"), controller.failures()
        story.check(client, controller, "rest", above)
        story.go_on(client)
    assert controller.drop_view("rest")
    assert [view.name for view in controller.views()] == ["sums", "best"]
    assert "rest" not in client.core.state.names


def test_errors_of_an_input_come_and_go(spark: Any, client: Client) -> None:
    write = _table(client)
    schema = updates_schema(ERROR_SCHEMA)
    error = {"condition": ["C"], "message": ["a bad row"], "context": [None]}

    def bad(time: int, diff: int) -> pa.Table:
        return pa.table({**error, "__time": [time], "__diff": [diff]}, schema=schema)

    rows = [({"k": n, "x": n}, n, 1) for n in range(5)]
    write.compare_and_append(rows[:1], 0, 1).result()
    controller = ViewController(client, spark)
    controller.create_view("view", "SELECT sum(x) AS x FROM t", rules=False)
    controller.run_once()
    write.compare_and_append(rows[1:4], 1, 4, errors=pa.concat_tables([bad(2, 1), bad(3, 1)]))
    write.compare_and_append(rows[4:], 4, 5, errors=bad(4, -2)).result()
    assert controller.run_once() == ("view",), controller.failures()
    read = client.reader("view")
    for time in (2, 3):
        with pytest.raises(CollectionHasErrors, match="a bad row"):
            read.snapshot(time).to_table()
        assert read.snapshot(time).errors().column("__diff").to_pylist() == [1]
    answers = {t: read.snapshot(t).to_table().column("x").to_pylist() for t in (0, 1, 4)}
    assert answers == {0: [0], 1: [1], 4: [10]}


def test_an_error_of_the_query_is_data_at_its_times(spark: Any, client: Client) -> None:
    write = _table(client)
    rows = [({"k": 1, "x": 5}, 0, 1), ({"k": 2, "x": 0}, 1, 1), ({"k": 2, "x": 0}, 3, -1)]
    write.compare_and_append(rows[:2], 0, 2).result()
    controller = ViewController(client, spark)
    controller.create_view("view", "SELECT 10 / x AS y FROM t", rules=False)
    controller.create_view("other", "SELECT max(x) AS x FROM t", rules=False)
    for upper in (2, 3, 4):
        if upper > 2:
            update = [row for row in rows if row[1] == upper - 1]
            write.compare_and_append(update, upper - 1, upper).result()
        assert controller.run_once() == ("view", "other"), controller.failures()
    read = client.reader("view")
    for time in (1, 2):
        with pytest.raises(CollectionHasErrors, match="ivision by zero"):
            read.snapshot(time).to_table()
    assert read.snapshot(3).to_table().column("y").to_pylist() == [2.0]
    assert client.reader("other").snapshot(1).to_table().column("x").to_pylist() == [5]


def test_whatever_the_rows_are_to_blame_for_is_data(spark: Any, client: Client) -> None:
    write, _ = client.create_or_load("t", pa.schema([("k", pa.int64()), ("x", pa.int64())]))
    controller = ViewController(client, spark)
    queries = {
        "raised": ("SELECT IF(x = 0, raise_error('no x'), k) AS y FROM t", "no x"),
        "asserted": ("SELECT assert_true(x <> 0) AS y FROM t", "is not true"),
        "keys": ("SELECT map(1L, k, x + 1, k)[1] AS y FROM t", "Duplicate map key 1 "),
        "rows": ("SELECT (SELECT k FROM t WHERE x < 3) AS y", "ore than one row"),
        "each": ("SELECT (SELECT x FROM t b WHERE b.k = t.k) AS y FROM t", "row"),
    }
    for name, (sql, _) in queries.items():
        controller.create_view(name, sql, rules=False)
    bad = [{"k": 2, "x": 0}, {"k": 3, "x": 1}, {"k": 3, "x": 2}]
    rows = [({"k": 1, "x": 5}, 0, 1)]
    rows += [(row, time, diff) for row in bad for time, diff in ((1, 1), (2, -1))]
    write.compare_and_append(rows, 0, 3).result()
    assert set(controller.run_once()) == set(queries), controller.failures()
    for name, (_, message) in queries.items():
        read = client.reader(name)
        assert read.snapshot(0).to_table().num_rows == 1, name
        with pytest.raises(CollectionHasErrors, match=message):
            read.snapshot(1).to_table()
        assert read.snapshot(2).to_table().num_rows == 1, name


def test_what_cannot_be_a_view_says_why_and_changes_nothing(spark: Any, client: Client) -> None:
    _table(client)
    client.create_or_load("events", pa.schema([("ts", pa.timestamp("us", "UTC"))]))
    before = client.core.state
    controller = ViewController(client, spark)
    for sql, why in (
        ("SELECT k, now() AS n FROM t", "although no row changes"),
        ("SELECT k, rand() AS r FROM t", "not deterministic"),
        ("SELECT count(*) AS n FROM events WHERE ts > now() GROUP BY map(ts, 1)", "as time passes"),
        ("SELECT k, x AS K FROM t", "two columns 'k'"),
    ):
        with pytest.raises(Refused, match=why):
            controller.create_view("view", sql)
    for sql, why in (
        ("SELECT * FROM nothing", "TABLE_OR_VIEW_NOT_FOUND"),
        ("SELECT y FROM t", "UNRESOLVED_COLUMN"),
        ("SELECT (", "PARSE_SYNTAX_ERROR"),
    ):
        with pytest.raises(NotUnderstood) as refused:
            controller.create_view("view", sql)
        assert refused.value.condition.startswith(why)
    with pytest.raises(InvalidUsage, match="no view 'view'"):
        controller.explain("view")
    assert client.core.state is before


def test_stored_definitions_of_both_kinds_are_told_apart() -> None:
    newer = msgspec.msgpack.encode({"version": recompute.STORED_VERSION + 1, "kind": "recomputed"})
    with pytest.raises(NewerFormat):
        definition.decoded(newer)
    with pytest.raises(NewerFormat):
        definition.decoded(msgspec.msgpack.encode({"version": 2}))

"""Views on real Spark: exact at every time, in one job a step, resumed after any stop."""

from __future__ import annotations

import threading
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headwater.algebra.frontier import Frontier
from headwater.base.errors import HeadwaterError, InvalidUsage
from headwater.collection.run_layout import LAYOUTS
from headwater.compute import maintained
from headwater.compute.controller import ViewController
from headwater.compute.dataflow.chain import Chain
from headwater.compute.dataflow.program import Program
from headwater.compute.dataflow.task import Done, StepTask
from headwater.compute.maintained import MaintainedView
from headwater.compute.select import QueryFailed
from headwater.persist.blob.memory import MemoryBlob
from headwater.persist.client import Client, WriteHandle, open_location
from headwater.persist.consensus.memory import MemoryConsensus
from headwater.persist.core import Settings
from headwater.persist.maintenance import Maintenance
from headwater.persist.spark import writing
from headwater.persist.spark_parts import place_of
from headwater.persist.state import violations
from headwater.testing.merging import merge_everything
from tests.spark.job_ids import job_ids
from tests.unit.compute import model

pytestmark = pytest.mark.spark


class Story:
    """Two tables with a random history, and what their view must say at each time."""

    def __init__(self, seed: int) -> None:
        print(f"seed {seed}")
        self.random = Random(seed)
        self.tables = {"orders": model.orders(), "customers": model.customers()}
        self.time = 0

    def writers(self, client: Client) -> dict[str, WriteHandle]:
        return {n: client.create_or_load(n, t.schema)[0] for n, t in self.tables.items()}

    def go_on(self, client: Client, times: int | None = None) -> None:
        """Write some times to both tables, and seal them."""
        upper = self.time + (times or self.random.randint(1, 4))
        for name, writer in self.writers(client).items():
            for time in range(self.time, upper):
                writer.write(self.tables[name].change(self.random, time)).result()
            writer.seal(upper).result()
        self.time = upper

    def check(self, client: Client, view: MaintainedView) -> None:
        read = client.reader(view.name)
        assert read.upper == Frontier.of(self.time)
        for time in range(read.since.only(), self.time):
            expected = model.query(*(table.at(time) for table in self.tables.values()))
            assert model.rows_of(read.snapshot(time).to_table()) == expected, f"at time {time}"


@pytest.mark.parametrize("seed", [1, 2])
def test_exact_at_every_time_and_the_same_as_spark_says(
    spark: Any, client: Client, seed: int
) -> None:
    story = Story(seed)
    controller = ViewController(client, spark)
    story.go_on(client)
    view = model.incremental(controller.create_view("view", model.SQL))
    for number in range(4):
        before, planned = (
            job_ids(spark, view.reader_id),
            maintained.plan_view(client.core.state, view),
        )
        assert planned is not None
        assert controller.run_once() == ("view",), controller.failures()
        new = job_ids(spark, view.reader_id) - before
        assert len(new) == (not planned.is_empty), "one job a step"
        story.check(client, view)
        assert controller.run_once() == (), "nothing moved"
        if number % 2:
            assert merge_everything(client)
        story.go_on(client)
    controller.run_once()
    story.check(client, view)
    # The same question put to Spark itself, over the inputs and over the view, at two times.
    for time in (view.start, story.time - 1):
        recomputed = controller.select(model.SQL, time)
        kept = controller.select("SELECT * FROM view", time)
        assert model.rows_of(recomputed) == model.rows_of(kept)
        assert kept.schema.types == recomputed.schema.types


def test_a_view_goes_on_where_it_was(spark: Any, tmp_path: Path) -> None:
    """Every step by another owner of the location; the last one never said goodbye."""
    story = Story(3)
    view: MaintainedView | None = None
    clients: list[Client] = []
    for _ in range(4):
        client = open_location(tmp_path, layouts=LAYOUTS, take_over=True)
        clients.append(client)  # Kept alive: an owner that is fenced, not one that stopped.
        story.go_on(client)
        controller = ViewController(client, spark)
        if view is None:
            view = model.incremental(controller.create_view("view", model.SQL))
        else:
            assert controller.views() == (view,)
        before = job_ids(spark, view.reader_id)
        controller.run_once()
        assert len(job_ids(spark, view.reader_id) - before) <= 1, "history is not computed again"
        story.check(client, view)
    zombie = ViewController(clients[0], spark)
    with pytest.raises(HeadwaterError, match="fences"):
        zombie.create_view("another", model.SQL)
    assert not list(violations(clients[-1].core.state))
    for client in clients:
        client.stop()


def _joined(client: Client) -> tuple[WriteHandle, WriteHandle, str]:
    schema = pa.schema([("k", pa.int64()), ("g", pa.int64()), ("x", pa.int64())])
    left, _ = client.create_or_load("l", schema)
    right, _ = client.create_or_load("r", schema)
    rows = [({"k": n, "g": n % 7, "x": n}, 0, 1) for n in range(2000)]
    for write in (left, right):
        write.compare_and_append(rows, 0, 1).result()
    sql = "SELECT l.g, sum(r.x) AS x, count(*) AS n FROM l JOIN r ON l.k = r.k GROUP BY l.g"
    return left, right, sql


def test_a_failed_step_shows_nothing_and_is_done_again(
    spark: Any, client: Client, tmp_path: Path
) -> None:
    left, right, sql = _joined(client)
    controller = ViewController(client, spark)
    view = model.incremental(controller.create_view("view", sql))
    assert controller.run_once() == ("view",), controller.failures()
    known = {info.key for info in client.core.blob.list()}
    gone = [({"k": n, "g": n % 7, "x": n}, 1, -1) for n in range(1, 2000)]
    left.compare_and_append(gone, 1, 2).result()
    right.compare_and_append([], 1, 2).result()
    (delta,) = {info.key for info in client.core.blob.list()} - known
    path = tmp_path / "data" / "blob" / delta
    good = path.read_bytes()
    middle = len(good) // 2
    path.write_bytes(good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :])
    before = client.core.state
    assert controller.run_once() == ()
    assert "its checksum does not match" in controller.failures()[view.id]
    assert client.core.state is before
    path.write_bytes(good)
    assert controller.run_once() == ("view",)
    assert controller.failures() == {}
    found = client.reader("view").snapshot(1).to_table().to_pylist()
    assert found == [{"g": 0, "x": 0, "n": 1, "__diff": 1}]


def test_a_step_that_nobody_committed_never_was(spark: Any, client: Client) -> None:
    """As when the driver dies between the job and its entry: only garbage is left of it."""
    _, _, sql = _joined(client)
    controller = ViewController(client, spark)
    view = model.incremental(controller.create_view("view", sql))
    core = client.core
    planned, place = maintained.plan_view(core.state, view), place_of(core)
    assert planned is not None
    assert place is not None
    before, known = core.state, {info.key for info in core.blob.list()}
    with core.step() as names:
        group = maintained.plan_group(core.state, [planned])
        program = Program(spark, Chain((view.flow,)), (view.id,))
        task = group.task(place, writing(core, names), program.views)
        program.run(task, view.reader_id, "a step")
    assert core.state is before
    (lost,) = {info.key for info in core.blob.list()} - known
    assert controller.run_once() == ("view",)
    Maintenance(core).sweep()
    assert lost not in {info.key for info in core.blob.list()}
    assert client.reader("view").snapshot(0).to_table().num_rows == 7


def test_times_without_change_start_no_job(spark: Any, client: Client) -> None:
    story = Story(4)
    story.go_on(client, 3)
    controller = ViewController(client, spark)
    views = [model.incremental(controller.create_view(name, model.SQL)) for name in ("one", "two")]
    controller.run_once()
    before = [job_ids(spark, view.reader_id) for view in views]
    for write in story.writers(client).values():
        write.seal(10).result()
    story.time = 10
    seqno = client.core.state.seqno
    assert controller.run_once() == ("one", "two")
    assert client.core.state.seqno == seqno + 1, "one entry for all of them"
    for view, known in zip(views, before, strict=True):
        assert not job_ids(spark, view.reader_id) - known
    for view in views:
        story.check(client, view)


def test_a_second_run_sees_a_second_input(spark: Any, client: Client) -> None:
    """A prepared plan that is run again may silently return the first input's rows."""
    write, _ = client.create_or_load("t", pa.schema([("g", pa.string()), ("x", pa.int64())]))
    controller = ViewController(client, spark)
    for time in range(3):
        write.compare_and_append([({"g": "a", "x": 1}, time, 1)], time, time + 1).result()
        found = controller.select("SELECT g, sum(x) AS x FROM t GROUP BY g", time)
        assert found.to_pylist() == [{"g": "a", "x": time + 1}]


def test_a_view_on_a_view(spark: Any, client: Client) -> None:
    story = Story(6)
    story.go_on(client, 3)
    controller = ViewController(client, spark)
    controller.create_view("view", model.SQL)
    controller.create_view(
        "top",
        "SELECT v.region, sum(v.amount) AS amount, count(*) AS n "
        "FROM view v JOIN orders o ON v.orders = o.customer GROUP BY v.region",
    )
    for _ in range(2):
        assert controller.run_once() == ("view", "top"), controller.failures()
        assert controller.view_upper("top") == Frontier.of(story.time)
        time = story.time - 1
        recomputed = controller.select(
            "SELECT v.region, sum(v.amount) AS amount, count(*) AS n FROM view v "
            "JOIN orders o ON v.orders = o.customer GROUP BY v.region",
            time,
        )
        assert model.rows_of(controller.select("SELECT * FROM top", time)) == model.rows_of(
            recomputed
        )
        story.go_on(client)


def test_in_the_background_until_stopped(spark: Any, tmp_path: Path) -> None:
    story = Story(8)
    with open_location(tmp_path, layouts=LAYOUTS) as client:
        controller = ViewController(client, spark)
        story.go_on(client)
        view = model.incremental(controller.create_view("view", model.SQL))
        controller.start()
        for _ in range(3):
            story.go_on(client)
            client.reader("view").snapshot(story.time - 1, timeout=60)
            story.check(client, view)
        controller.stop()
        controller.stop()
        story.go_on(client)
        assert controller.view_upper(view.id) < Frontier.of(story.time)
        # The loop ends by itself when the location is stopped under it.
        controller.start()
    controller.stop()


def test_after_a_step_that_was_slow_the_next_one_covers_more_time(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten ticks pass while a step runs: they are one step, exact at each of them."""
    story = Story(10)
    begun, may_end = threading.Event(), threading.Event()
    covered: list[tuple[int, int]] = []

    def run(self: Program, task: StepTask, *about: str) -> Done:
        (view,) = (view for view in task.views if view is not None)
        covered.append((view.lower, view.upper))
        begun.set()
        assert may_end.wait(60)
        return real(self, task, *about)

    with open_location(tmp_path, layouts=LAYOUTS) as client:
        controller = ViewController(client, spark)
        story.go_on(client, 2)
        view = model.incremental(controller.create_view("view", model.SQL))
        controller.run_once()
        real = Program.run
        monkeypatch.setattr(Program, "run", run)
        story.go_on(client, 1)
        controller.start()
        assert begun.wait(60)
        for _ in range(10):
            story.go_on(client, 1)
        may_end.set()
        client.reader("view").snapshot(story.time - 1, timeout=60)
        controller.stop()
        assert covered == [(2, 3), (3, 13)]
        story.check(client, view)


def test_queries(spark: Any, client: Client) -> None:
    story = Story(9)
    story.go_on(client, 4)
    controller = ViewController(client, spark)
    names = {"Some Orders": "orders"}
    count = controller.select("SELECT count(*) AS n FROM `Some Orders`", 3, relations=names)
    assert count.to_pylist() == [{"n": sum(story.tables["orders"].at(3).values())}]
    assert controller.select("SELECT 1 AS one", 0).to_pylist() == [{"one": 1}]
    described = controller.describe("SELECT region, sum(amount) AS a FROM orders GROUP BY region")
    assert described.types == [pa.string(), pa.int64()]
    with pytest.raises(QueryFailed) as unknown:
        controller.select("SELECT * FROM nothing", 0)
    assert (unknown.value.condition, unknown.value.sqlstate) == ("TABLE_OR_VIEW_NOT_FOUND", "42P01")
    with pytest.raises(QueryFailed) as divided:
        controller.select("SELECT amount / 0 FROM orders", 3)
    assert divided.value.sqlstate == "22012"
    with pytest.raises(QueryFailed, match="PARSE_SYNTAX_ERROR"):
        controller.select("SELECT (", 3)


def test_a_location_in_memory_cannot_have_views(spark: Any) -> None:
    with (
        open_location(blob=MemoryBlob(), consensus=MemoryConsensus()) as client,
        pytest.raises(InvalidUsage, match="not memory"),
    ):
        ViewController(client, spark).create_view("v", model.SQL)


def test_settings_of_maintenance_do_not_matter(spark: Any, tmp_path: Path) -> None:
    """With merges, rollups and garbage collection running beside the steps."""
    story = Story(10)
    settings = Settings(rollup_entries=20)
    with open_location(tmp_path, layouts=LAYOUTS, settings=settings) as client:
        controller = ViewController(client, spark)
        story.go_on(client)
        view = model.incremental(controller.create_view("view", model.SQL))
        for _ in range(8):
            controller.run_once()
            for write in story.writers(client).values():
                write.allow_compaction(story.time - 1).result()
            story.go_on(client)
        controller.run_once()
        story.check(client, view)

"""Views kept by delta rules, on Spark: at every time what Spark says of the inputs at that time."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.algebra.frontier import Frontier
from headwater.collection.collections import Collections
from headwater.collection.run_layout import LAYOUTS
from headwater.compute import controller as module
from headwater.compute import maintained
from headwater.compute.controller import ViewController
from headwater.compute.install import Installation, Installer, Wanted, removal
from headwater.compute.maintain import Output, View
from headwater.compute.maintained import MaintainedView
from headwater.compute.step import Interval
from headwater.persist.client import Client, open_location
from headwater.persist.commands import Command
from headwater.persist.errors import CollectionHasErrors
from headwater.persist.state import violations
from headwater.testing.merging import merge_everything
from headwater.testing.random_views import step_together
from tests.spark.job_ids import job_ids
from tests.spark.shape_story import Story
from tests.unit.compute import model

pytestmark = pytest.mark.spark


QUERIES = {
    "picked": "SELECT region, customer FROM orders",
    "computed": "SELECT region, amount % 5 AS part FROM orders WHERE amount > 0",
    "exploded": "SELECT customer, word FROM orders "
    "LATERAL VIEW explode(split(region, 's')) t AS word",
    "both": "SELECT customer AS k FROM orders UNION ALL SELECT id FROM customers",
    "joined": "SELECT o.region, o.amount, c.credit FROM orders o JOIN customers c "
    "ON o.customer = c.id WHERE o.amount < 100",
    "three": "SELECT a.region, b.amount, c.credit FROM orders a JOIN customers c "
    "ON a.customer = c.id JOIN orders b ON b.customer = c.id",
    "sums": model.SQL,
    "averages": "SELECT region, avg(amount) AS a, sum(amount * 2) AS s, count(*) AS n, "
    "var_pop(customer) AS v FROM orders GROUP BY region",
    "whole": "SELECT count(*) AS n, sum(credit) AS credit FROM customers",
    "having": "SELECT region, count(*) AS n FROM orders GROUP BY region HAVING count(*) > 2",
    "once": "SELECT DISTINCT customer, region FROM orders",
    "left_join": "SELECT o.region, o.amount, c.credit FROM orders o LEFT JOIN customers c "
    "ON o.customer = c.id",
    "full_join": "SELECT o.region, c.credit FROM orders o FULL JOIN customers c "
    "ON o.customer = c.id AND o.amount > 0",
    "exists": "SELECT id, credit FROM customers c WHERE EXISTS "
    "(SELECT 1 FROM orders o WHERE o.customer = c.id AND o.amount > 0)",
    "not_exists": "SELECT id, credit FROM customers c WHERE NOT EXISTS "
    "(SELECT 1 FROM orders o WHERE o.customer = c.id)",
    "not_in": "SELECT region FROM orders WHERE customer NOT IN (SELECT id FROM customers)",
    "scalar": "SELECT region, amount FROM orders "
    "WHERE amount > (SELECT avg(credit) FROM customers)",
    "min_max": "SELECT region, min(amount) AS low, max(amount) AS high, count(*) AS n "
    "FROM orders GROUP BY region",
    "distinct_count": "SELECT region, count(DISTINCT customer) AS n FROM orders GROUP BY region",
    "highest": "SELECT max(amount) AS high FROM orders",
    "top": "SELECT region, amount FROM orders ORDER BY amount DESC LIMIT 3",
    "first_two": "SELECT region, amount FROM (SELECT region, amount, row_number() OVER "
    "(PARTITION BY region ORDER BY amount) AS n FROM orders) WHERE n <= 2",
    "intersected": "SELECT customer FROM orders INTERSECT ALL SELECT id FROM customers",
    "except": "SELECT customer FROM orders EXCEPT SELECT id FROM customers",
    "cube": "SELECT region, customer, count(*) AS n FROM orders GROUP BY CUBE (region, customer)",
    "non_equi": "SELECT o.amount, c.credit FROM orders o JOIN customers c ON o.amount < c.credit",
    "twice": "WITH t AS (SELECT customer, count(*) AS n FROM orders GROUP BY customer) "
    "SELECT a.customer, b.n FROM t a JOIN t b ON a.n = b.n",
    "constant": "SELECT 1 AS one",
}


def test_every_shape_is_exact_at_every_time(spark: Any, client: Client) -> None:
    story = Story(1)
    controller = ViewController(client, spark)
    story.go_on(client)
    views = []
    for name, sql in QUERIES.items():
        view = controller.create_view(name, sql)
        assert isinstance(view, MaintainedView), controller.explain(name)
        assert controller.explain(name).startswith("incremental:")
        views.append(view)
    for number in range(3):
        assert not step_together(client, controller, views)
        for name in QUERIES:
            story.see(client, controller, name)
        if number == 1:
            merge_everything(client)
        story.go_on(client)
    story.judge(client, QUERIES)
    assert not list(violations(client.core.state))


def test_views_on_shared_inputs_are_one_job_and_share_arrangements(
    spark: Any, client: Client
) -> None:
    story = Story(2)
    story.go_on(client)
    controller = ViewController(client, spark)
    names = ("joined", "three", "sums", "left_join")
    views = [controller.create_view(name, QUERIES[name]) for name in names]
    shared = maintained.arrangements(client.core.state)
    assert len(shared) == 2, "orders by customer, customers by id"
    controller.run_once()
    story.go_on(client)
    seqno = client.core.state.seqno
    group = views[0].reader_id
    before = job_ids(spark, group)
    assert controller.run_once() == names
    assert len(job_ids(spark, group) - before) == 1, "one job for all"
    assert client.core.state.seqno == seqno + 1, "one entry for all"
    for name in names:
        story.check(client, controller, name, QUERIES[name])
    for name in names[:-1]:
        assert controller.drop_view(name)
    assert maintained.arrangements(client.core.state), "the last view still uses them"
    story.go_on(client)
    controller.run_once()
    story.check(client, controller, "left_join", QUERIES["left_join"])
    controller.drop_view("left_join")
    assert not maintained.arrangements(client.core.state)
    left = {c.name for c in client.core.state.collections.values()}
    assert left == {"orders", "customers"}
    assert not list(violations(client.core.state))


def test_a_later_view_shares_what_is_older_than_it(spark: Any, client: Client) -> None:
    story = Story(3)
    story.go_on(client)
    controller = ViewController(client, spark)
    controller.create_view("joined", QUERIES["joined"])
    for _ in range(2):
        controller.run_once()
        story.go_on(client)
    for name in ("sums", "exists", "min_max"):
        controller.create_view(name, QUERIES[name])
    for _ in range(2):
        controller.run_once()
        merge_everything(client)
        story.go_on(client)
    controller.run_once()
    for name in ("joined", "sums", "exists", "min_max"):
        story.check(client, controller, name, QUERIES[name])


@pytest.mark.parametrize("by_capability", [False, True])
def test_what_a_view_shares_that_just_came_is_not_dropped_with_another(
    spark: Any, client: Client, monkeypatch: pytest.MonkeyPatch, by_capability: bool
) -> None:
    """Two sessions: one drops the last view that uses an arrangement, one creates another."""

    def install(self: Installer, wanted: Wanted) -> Installation:
        made = real_install(self, wanted)
        installed.set()
        return made

    def removed(*given: Any) -> list[Command]:
        found = list(removal(*given))
        created.append(thread.submit(create))
        assert installed.wait(60)
        wait(created, 1.0)  # It comes before us or after us, but not in between.
        return found

    def create() -> None:
        if by_capability:
            ids = [client.core.state.names[name] for name in ("orders", "customers")]
            reads = [Collections(client).acquire_read(gid, at=story.time - 1) for gid in ids]
            view = View(("orders", "customers"), (Output("second", sql),))
            controller.maintain_view(reads, view)
        else:
            controller.create_view("second", sql)

    story, sql = (
        Story(11),
        "SELECT o.region, c.credit FROM orders o JOIN customers c ON o.customer = c.id",
    )
    story.go_on(client)
    controller = ViewController(client, spark)
    controller.create_view("first", sql)
    controller.run_once()
    created: list[Future[None]] = []
    installed = threading.Event()
    real_install = Installer.install
    with ThreadPoolExecutor(1) as thread, monkeypatch.context() as patched:
        patched.setattr(Installer, "install", install)
        patched.setattr(module, "removal", removed)
        assert controller.drop_view("first")
        created[0].result(60)
    story.go_on(client)
    assert controller.run_once() == ("second",), controller.failures()
    name = client.core.state.collections[controller.views()[0].id].name
    story.see(client, controller, name)
    story.judge(client, {name: sql})
    assert not list(violations(client.core.state))


@pytest.mark.parametrize("planted", [False, True], ids=["as it is", "at upper"])
def test_what_is_held_only_at_upper_is_caught(
    spark: Any, client: Client, monkeypatch: pytest.MonkeyPatch, planted: bool
) -> None:
    """Merged as far as holds let it be, a partner from before is no longer before the next step."""
    if planted:
        monkeypatch.setattr(Interval, "hold", property(lambda interval: interval.upper))
    schema = pa.schema([("k", pa.int64())])
    writes = [client.create_or_load(name, schema)[0] for name in ("l", "r")]
    controller = ViewController(client, spark)
    view = controller.create_view("pairs", "SELECT l.k FROM l JOIN r ON l.k = r.k")
    assert isinstance(view, MaintainedView)
    steps = [([time], [10 + time]) for time in range(4)]
    # Whichever side is looked up strictly: each gets partners of what the other has had for long.
    steps.append(([10, 11, 12, 13], [0, 1, 2, 3]))
    for time, sides in enumerate(steps):
        for write, keys in zip(writes, sides, strict=True):
            write.compare_and_append([({"k": k}, time, 1) for k in keys], time, time + 1).result()
        merged = {
            b.since for gid in view.shared for b in client.core.state.collections[gid].batches
        }
        assert controller.run_once() == ("pairs",), controller.failures()
        merge_everything(client)
    assert merged == {Frontier.of(4 if planted else 3)}, "else holds would not have mattered"
    found = client.reader("pairs").snapshot(len(steps) - 1).to_table()
    assert found.num_rows == (4 if planted else 8), "of partners that are there since before"


def test_an_error_is_data_and_goes_with_its_row(spark: Any, client: Client) -> None:
    write, _ = client.create_or_load("t", pa.schema([("g", pa.string()), ("x", pa.int64())]))
    controller = ViewController(client, spark)
    controller.create_view("ratio", "SELECT g, 10 / x AS y FROM t")
    controller.create_view("total", "SELECT sum(x) AS x FROM t")
    rows = [({"g": "a", "x": 5}, 0, 1), ({"g": "b", "x": 0}, 1, 1), ({"g": "b", "x": 0}, 2, -1)]
    write.compare_and_append(rows, 0, 4).result()
    assert controller.run_once() == ("ratio", "total"), controller.failures()
    read = client.reader("ratio")
    assert model.rows_of(read.snapshot(0).to_table()) == {("a", 2.0): 1}
    with pytest.raises(CollectionHasErrors, match="ivision by zero"):
        read.snapshot(1).to_table()
    assert model.rows_of(read.snapshot(2).to_table()) == {("a", 2.0): 1}
    assert model.rows_of(client.reader("total").snapshot(1).to_table()) == {(5,): 1}


def test_a_view_goes_on_in_another_process(spark: Any, tmp_path: Path) -> None:
    story = Story(4)
    names = ("sums", "left_join", "min_max", "top", "once")
    for number in range(3):
        with open_location(tmp_path, layouts=LAYOUTS, take_over=True) as client:
            story.go_on(client)
            controller = ViewController(client, spark)
            if not number:
                for name in names:
                    controller.create_view(name, QUERIES[name])
            controller.run_once()
            for name in names:
                assert controller.view_upper(name) == Frontier.of(story.time), controller.failures()
                story.check(client, controller, name, QUERIES[name])


def test_a_hydration_runs_beside_the_ticking_of_others(spark: Any, tmp_path: Path) -> None:
    story = Story(5)
    with open_location(tmp_path, layouts=LAYOUTS) as client:
        controller = ViewController(client, spark)
        story.go_on(client)
        controller.create_view("joined", QUERIES["joined"])
        controller.start()
        client.reader("joined").snapshot(story.time - 1, timeout=300)
        # Over an arrangement that others advance meanwhile, and over one that is new with it.
        for name in ("sums", "min_max", "exists"):
            controller.create_view(name, QUERIES[name])
            story.go_on(client)
        for name in ("joined", "sums", "min_max", "exists"):
            client.reader(name).snapshot(story.time - 1, timeout=300)
        controller.stop()
        assert controller.hydrations() == []
        assert not controller.failures()
        for name in ("joined", "sums", "min_max", "exists"):
            story.check(client, controller, name, QUERIES[name])

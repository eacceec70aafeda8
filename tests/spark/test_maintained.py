"""Views kept by delta rules, on Spark: at every time what Spark says of the inputs at that time."""

from __future__ import annotations

import threading
from collections import Counter
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
from tests.spark.shape_story import Story
from tests.unit.compute import model

pytestmark = pytest.mark.spark

MAP = pa.map_(pa.string(), pa.int32())

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
    for name, sql in QUERIES.items():
        view = controller.create_view(name, sql)
        assert isinstance(view, MaintainedView), controller.explain(name)
        assert controller.explain(name).startswith("incremental:")
    for number in range(3):
        controller.run_once()
        assert not controller.failures()
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
    tracker = spark.sparkContext.statusTracker()
    before = len(tracker.getJobIdsForGroup(group))
    assert controller.run_once() == names
    assert len(tracker.getJobIdsForGroup(group)) == before + 1, "one job for all"
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


def test_an_item_at_no_place_is_null(spark: Any, client: Client) -> None:
    """Spark takes such an item for never NULL, and fails where it is: in code that it generates."""
    schema = pa.schema([("k", pa.int32()), ("s", pa.string())])
    write, _ = client.create_or_load("t", schema)
    controller = ViewController(client, spark)
    item = "array(10, 20, 30)[k]"
    queries = {
        "items": f"SELECT {item} AS a, element_at(array(1, 2, 3), k + 1) AS b FROM t",
        "counted": f"SELECT count(a) AS n, sum(a + 1) AS s FROM (SELECT {item} AS a FROM t)",
        "collected": "SELECT s, collect_list(k)[max(k)] AS c FROM t GROUP BY s",
        "computed": "SELECT transform(split(s, ','), v -> coalesce(v, ''))[k] AS p FROM t",
        "over": "SELECT a, count(a) AS n FROM items GROUP BY a",
    }
    for name, sql in queries.items():
        controller.create_view(name, sql)
    rows = [({"k": 0, "s": "a"}, 0, 1), ({"k": None, "s": "b"}, 1, 1), ({"k": 0, "s": None}, 2, 1)]
    rows.append(({"k": None, "s": "b"}, 3, -1))
    write.compare_and_append(rows, 0, 4).result()
    assert set(controller.run_once()) == set(queries), controller.failures()
    first, none = (10, 1), (None, None)
    wanted: dict[str, list[dict[Any, int]]] = {
        "items": [{first: 1}, {first: 1, none: 1}, {first: 2, none: 1}, {first: 2}],
        "counted": [{(1, 11): 1}, {(1, 11): 1}, {(2, 22): 1}, {(2, 22): 1}],
        "collected": [
            {("a", 0): 1},
            {("a", 0): 1, ("b", None): 1},
            {("a", 0): 1, ("b", None): 1, (None, 0): 1},
            {("a", 0): 1, (None, 0): 1},
        ],
        "computed": [
            {("a",): 1},
            {("a",): 1, (None,): 1},
            {("a",): 1, (None,): 2},
            {("a",): 1, (None,): 1},
        ],
        "over": [
            {(10, 1): 1},
            {(10, 1): 1, (None, 0): 1},
            {(10, 2): 1, (None, 0): 1},
            {(10, 2): 1},
        ],
    }
    for name, sql in queries.items():
        for time, rows_then in enumerate(wanted[name]):
            found = model.rows_of(client.reader(name).snapshot(time).to_table())
            assert found == rows_then, f"{name} at {time}"
            assert model.rows_of(controller.select(sql, time)) == rows_then, f"{name} at {time}"


def test_grouping_sets_of_what_has_parts(spark: Any, client: Client) -> None:
    """The NULL of a column that a set leaves out has that column's type, one of parts as well."""
    pair = pa.struct([("p", pa.int32()), ("q", pa.string())])
    write, _ = client.create_or_load("t", pa.schema([("s", pair), ("xs", pa.list_(pa.int32()))]))
    controller = ViewController(client, spark)
    rolled = controller.create_view("rolled", "SELECT s, count(*) AS n FROM t GROUP BY ROLLUP (s)")
    assert isinstance(rolled, MaintainedView), controller.explain("rolled")
    sql = "SELECT s, xs, count(*) AS n FROM t GROUP BY GROUPING SETS ((s), (xs))"
    controller.create_view("sets", sql)
    one, none = {"s": {"p": 1, "q": None}, "xs": [1, None]}, {"s": None, "xs": None}
    write.compare_and_append([(one, 0, 2), (none, 1, 1), (one, 2, -2)], 0, 3).result()
    assert controller.run_once() == ("rolled", "sets"), controller.failures()
    shown, listed = str(one["s"]), str(one["xs"])
    wanted: dict[str, list[dict[Any, int]]] = {
        "rolled": [
            {(shown, 2): 1, ("None", 2): 1},
            {(shown, 2): 1, ("None", 3): 1, ("None", 1): 1},
            {("None", 1): 2},
        ],
        "sets": [
            {(shown, "None", 2): 1, ("None", listed, 2): 1},
            {(shown, "None", 2): 1, ("None", listed, 2): 1, ("None", "None", 1): 2},
            {("None", "None", 1): 2},
        ],
    }
    for name, at_times in wanted.items():
        for time, expected in enumerate(at_times):
            found: Counter[Any] = Counter()
            for row in client.reader(name).snapshot(time).to_table().to_pylist():
                *parts, n, diff = row.values()
                found[*map(str, parts), n] += diff
            assert found == expected, f"{name} at {time}"


def test_what_an_outer_generator_makes_of_nothing_is_null(spark: Any, client: Client) -> None:
    """Places and keys of maps, too, which are never NULL where there is something."""
    schema = pa.schema([("k", pa.int32()), ("xs", pa.list_(pa.int32())), ("m", MAP)])
    write, _ = client.create_or_load("t", schema)
    controller = ViewController(client, spark)
    queries = {
        "places": "SELECT k, posexplode_outer(xs) AS (p, x) FROM t",
        "keys": "SELECT k, name, v FROM t LATERAL VIEW OUTER explode(m) e AS name, v",
        "counted": "SELECT count(p) AS n, count(*) AS r, max(name) AS m FROM t LATERAL VIEW OUTER "
        "posexplode(xs) e AS p, x LATERAL VIEW OUTER explode(m) f AS name, v",
    }
    for name, sql in queries.items():
        controller.create_view(name, sql)
    rows = [
        ({"k": 1, "xs": [7], "m": [("a", None)]}, 0, 1),
        ({"k": 2, "xs": [], "m": []}, 1, 1),
        ({"k": 3, "xs": None, "m": None}, 1, 1),
        ({"k": 2, "xs": [], "m": []}, 2, -1),
    ]
    write.compare_and_append(rows, 0, 3).result()
    assert set(controller.run_once()) == set(queries), controller.failures()
    place, key = (1, 0, 7), (1, "a", None)
    empty: list[dict[Any, int]] = [{}, {(2, None, None): 1, (3, None, None): 1}]
    for time, nothing in enumerate([*empty, {(3, None, None): 1}]):
        wanted: dict[str, dict[Any, int]] = {
            "places": {place: 1, **nothing},
            "keys": {key: 1, **nothing},
            "counted": {(1, 1 + len(nothing), "a"): 1},
        }
        for name, expected in wanted.items():
            found = model.rows_of(client.reader(name).snapshot(time).to_table())
            assert found == expected, f"{name} at {time}"


def test_long_conditions_are_no_deeper_than_a_stage_can_read(spark: Any, client: Client) -> None:
    write, _ = client.create_or_load("t", pa.schema([("k", pa.int64())]))
    controller = ViewController(client, spark)
    queries = {
        "listed": f"SELECT k FROM t WHERE k IN ({', '.join(map(str, range(1_000)))})",
        "either": f"SELECT k FROM t WHERE {' OR '.join(f'k = {n}' for n in range(300))}",
        "summed": f"SELECT {' + '.join(['k'] * 300)} AS k FROM t",
    }
    for name, sql in queries.items():
        controller.create_view(name, sql)
    rows = [({"k": 7}, 0, 1), ({"k": -7}, 0, 1), ({"k": None}, 0, 1), ({"k": 7}, 1, -1)]
    write.compare_and_append(rows, 0, 2).result()
    assert set(controller.run_once()) == set(queries), controller.failures()
    sums = [{(2_100,): 1, (-2_100,): 1, (None,): 1}, {(-2_100,): 1, (None,): 1}]
    for name in queries:
        for time, chosen in enumerate(({(7,): 1}, {})):
            found = model.rows_of(client.reader(name).snapshot(time).to_table())
            assert found == (sums[time] if name == "summed" else chosen), f"{name} at {time}"


def test_a_left_join_lateral_is_outer_without_a_condition(spark: Any, client: Client) -> None:
    """Spark by itself forgets it where the other side generates rows."""
    schema = pa.schema([("k", pa.int32()), ("xs", pa.list_(pa.int32()))])
    write, _ = client.create_or_load("t", schema)
    controller = ViewController(client, spark)
    lateral = "LATERAL explode(xs) AS e(x)"
    queries = {
        "bare": f"SELECT k, x FROM t LEFT JOIN {lateral}",
        "always": f"SELECT k, x FROM t LEFT JOIN {lateral} ON true",
        "selected": "SELECT k, x FROM t LEFT JOIN LATERAL (SELECT explode(xs) AS x)",
    }
    inner = f"SELECT k, x FROM t INNER JOIN {lateral}"
    for name, sql in {**queries, "inner": inner}.items():
        controller.create_view(name, sql)
    rows = [({"k": 1, "xs": [7]}, 0, 1), ({"k": 2, "xs": []}, 1, 1), ({"k": 3, "xs": None}, 2, 1)]
    write.compare_and_append([*rows, (rows[1][0], 2, -1)], 0, 3).result()
    assert len(controller.run_once()) == 4, controller.failures()
    one = {(1, 7): 1}
    for time, wanted in enumerate((one, {**one, (2, None): 1}, {**one, (3, None): 1})):
        for name, sql in queries.items():
            found = model.rows_of(client.reader(name).snapshot(time).to_table())
            assert found == wanted, f"{name} at {time}"
            assert model.rows_of(controller.select(sql, time)) == wanted, f"{name} at {time}"
        assert model.rows_of(client.reader("inner").snapshot(time).to_table()) == one


def test_functions_that_spark_prints_in_a_way_of_its_own(spark: Any, client: Client) -> None:
    """What reads back alone must read back inside of a passage, too."""
    schema = pa.schema([("k", pa.int64()), ("x", pa.int64()), ("v", pa.list_(pa.float32()))])
    write, _ = client.create_or_load("t", schema)
    controller = ViewController(client, spark)
    queries = {
        "shifted": "SELECT x >> 1 AS a, x >>> 1 AS b FROM t WHERE x >> 1 > 0",
        "zipped": "SELECT to_json(arrays_zip(array(k), array(x))) AS z FROM t",
        "zip": "SELECT arrays_zip(array(k), array(x)) AS z FROM t",
        "named": "SELECT named_struct('größe', x, '1', k) AS n FROM t",
        "cast": "SELECT cast(array(x) AS array<string>) AS c FROM t",
        "two": "SELECT max_by(x, k, 2) AS m FROM t",
        "two_each": "SELECT k, min_by(x, x, 2) AS m FROM t GROUP BY k",
        "greatest": "SELECT mode() WITHIN GROUP (ORDER BY x DESC) AS m FROM t",
        "united": "SELECT collect_union(array(x, k)) AS u FROM t",
        "vector": "SELECT vector_sum(v) AS s FROM t",
        "counted": "SELECT x, counter_diff(x) OVER (ORDER BY k) AS d FROM t",
    }
    for name, sql in queries.items():
        controller.create_view(name, sql)
    one, two = {"k": 1, "x": 7, "v": [1e8, 1.0]}, {"k": 2, "x": 4, "v": [4.0, 1.0]}
    three = {"k": 3, "x": -1, "v": [-1e8]}
    rows = [(one, 0, 1), (two, 1, 2), (three, 2, 1), (three, 3, -1)]
    write.compare_and_append(rows, 0, 4).result()
    assert set(controller.run_once()) == set(queries), controller.failures()
    wanted: dict[str, list[list[Any]]] = {
        "shifted": [[(3, 3)], [(2, 2), (2, 2), (3, 3)]],
        "zipped": [
            [('[{"0":1,"1":7}]',)],
            [('[{"0":1,"1":7}]',), *[('[{"0":2,"1":4}]',)] * 2],
        ],
        "zip": [[([{"0": 1, "1": 7}],)], [([{"0": 1, "1": 7}],), *[([{"0": 2, "1": 4}],)] * 2]],
        "named": [
            [({"größe": 7, "1": 1},)],
            [*[({"größe": 4, "1": 2},)] * 2, ({"größe": 7, "1": 1},)],
        ],
        "cast": [[(["7"],)], [(["4"],), (["4"],), (["7"],)]],
        "two": [[([7],)], [([4, 4],)]],
        "two_each": [[(1, [7])], [(1, [7]), (2, [4, 4])]],
        "greatest": [[(7,)], [(4,)]],
        "united": [[([1, 7],)], [([1, 2, 4, 7],)]],
        "vector": [[([1e8, 1.0],)], [([1e8 + 8, 3.0],)]],
        "counted": [[(7, None)], [(4, 0), (4, None), (7, None)]],
    }
    for name, (first, second) in wanted.items():
        for time, expected in ((0, first), (1, second), (3, second)):
            found = [
                tuple(row.values())
                for row in client.reader(name).snapshot(time).to_table().to_pylist()
                for _ in range(row.pop("__diff"))
            ]
            assert sorted(map(str, found)) == sorted(map(str, expected)), f"{name} at {time}"
    for name, message in (("vector", "dimension"), ("counted", "negative counter")):
        with pytest.raises(CollectionHasErrors, match=message):
            client.reader(name).snapshot(2).to_table()

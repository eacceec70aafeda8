"""Windows, and aggregates that only Spark can compute, as views: at every time what Spark says."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from headwater.compute.controller import ViewController
from headwater.compute.dataflow.chain import Chain
from headwater.compute.dataflow.graph import Stretches
from headwater.compute.dataflow.program import Program, require_no_exchange
from headwater.compute.maintained import MaintainedView
from headwater.persist.client import Client
from headwater.persist.errors import CollectionHasErrors
from headwater.persist.state import violations
from headwater.testing.nexmark import Auctions
from headwater.testing.random_views import step_together
from tests.queries.tables import queries
from tests.spark.shape_story import Story
from tests.spark.suite_story import SuiteStory
from tests.spark.test_nexmark import IN_DUCKDB
from tests.unit.compute import model

pytestmark = pytest.mark.spark

BY_REGION = "OVER (PARTITION BY region ORDER BY amount)"
QUERIES = {
    "ranks": f"SELECT region, amount, rank() {BY_REGION} AS r, dense_rank() {BY_REGION} AS d, "
    f"percent_rank() {BY_REGION} AS p, cume_dist() {BY_REGION} AS c FROM orders",
    "tiles": "SELECT customer, amount, ntile(3) OVER (ORDER BY amount % 5, customer) AS n, "
    "row_number() OVER (ORDER BY amount DESC) AS place FROM orders",
    "neighbours": "SELECT region, lag(customer + 1, 1, 0) IGNORE NULLS OVER w AS before, "
    "lead(amount) OVER w AS after FROM orders WINDOW w AS (PARTITION BY region ORDER BY amount)",
    "ends": "SELECT customer, first_value(amount) OVER w AS f, last_value(amount) IGNORE NULLS "
    "OVER w AS l, nth_value(amount, 2) OVER w AS n FROM orders "
    "WINDOW w AS (PARTITION BY customer ORDER BY region)",
    "running": "SELECT region, sum(amount) OVER (PARTITION BY region ORDER BY customer ROWS 1 "
    "PRECEDING) AS s, avg(amount) OVER (PARTITION BY region ORDER BY customer) AS a FROM orders",
    "lags": "SELECT region, amount, lag(amount, 2, -1) OVER w AS a, lead(customer) OVER w AS b "
    "FROM orders WINDOW w AS (PARTITION BY region ORDER BY amount DESC NULLS FIRST, customer)",
    "all_lags": "SELECT region, lag(amount) OVER (ORDER BY region NULLS LAST, amount) AS a FROM "
    "orders",
    "moving": "SELECT customer, sum(amount) OVER w AS s, "
    "concat_ws('+', collect_list(region) OVER w) AS r, nth_value(amount, 2) IGNORE NULLS "
    "OVER w AS n FROM orders WINDOW w AS (PARTITION BY customer ORDER BY amount ROWS "
    "BETWEEN 2 PRECEDING AND 1 FOLLOWING)",
    "ahead": "SELECT id, tier, avg(tier) OVER (ORDER BY tier DESC ROWS BETWEEN 1 FOLLOWING AND 3 "
    "FOLLOWING) AS a FROM customers",
    "last_minute": "SELECT region, count(*) OVER (PARTITION BY region ORDER BY at RANGE BETWEEN "
    "INTERVAL '10' SECOND PRECEDING AND CURRENT ROW) AS n, max(customer) OVER (PARTITION BY region "
    "ORDER BY at RANGE BETWEEN INTERVAL '3' SECOND PRECEDING AND INTERVAL '2' SECOND FOLLOWING) AS "
    "m FROM (SELECT region, customer, timestamp_seconds(amount % 60) AS at FROM orders)",
    "floats": "SELECT id, sum(tier) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND "
    "CURRENT ROW) AS s, stddev(tier) OVER (PARTITION BY id) AS d, max(tier) OVER () AS m "
    "FROM customers",
    "ranges": "SELECT customer, count(*) OVER (ORDER BY customer RANGE BETWEEN 1 PRECEDING AND 1 "
    "FOLLOWING) AS n, sum(amount) OVER (PARTITION BY region ORDER BY customer RANGE BETWEEN 1 "
    "PRECEDING AND CURRENT ROW) AS s FROM orders",
    "whole": "SELECT region, amount, sum(amount) OVER () AS total, "
    "sum(amount) FILTER (WHERE customer > 1) OVER (PARTITION BY region) AS some FROM orders",
    "by_tier": "SELECT tier, id, count(*) OVER (PARTITION BY tier) AS n FROM customers",
    "filtered": "SELECT region, amount FROM (SELECT region, amount, rank() OVER (PARTITION BY "
    "region ORDER BY amount DESC) AS r FROM orders) WHERE r BETWEEN 2 AND 3",
    "joined": "SELECT o.region, c.credit, sum(c.credit) OVER (PARTITION BY o.region ORDER BY "
    "o.amount) AS s FROM orders o JOIN customers c ON o.customer = c.id",
    "continuous": "SELECT region, percentile_cont(0.5) WITHIN GROUP (ORDER BY amount % 10) AS p, "
    "count(*) AS n FROM orders GROUP BY region",
    "percentiles": "SELECT tier, percentile(id + 1, 0.25) AS p FROM customers GROUP BY tier",
    "listed": "SELECT customer, listagg(region, '+') AS r, "
    "listagg(region, ';') WITHIN GROUP (ORDER BY amount DESC) AS s FROM orders GROUP BY customer",
    "bits": "SELECT region, bit_and(amount) AS a, bit_xor(customer) AS x FROM orders "
    "GROUP BY region",
    "alone": "SELECT bit_or(amount) AS b, count(*) AS n, mode(region) AS m FROM orders "
    "WHERE amount > 0",
    "sessions": "SELECT region, count(*) AS n, session_window.start AS s FROM (SELECT region, "
    "timestamp_seconds(amount % 60) AS at FROM orders) GROUP BY region, "
    "session_window(at, '5 seconds')",
}


def test_windows_are_exact_at_every_time(spark: Any, client: Client) -> None:
    story = Story(11)
    controller = ViewController(client, spark)
    story.go_on(client)
    views = [controller.create_view(name, sql) for name, sql in QUERIES.items()]
    kept = [view for view in views if isinstance(view, MaintainedView)]
    assert kept == views
    for _ in range(3):
        assert not step_together(client, controller, kept)
        for name in QUERIES:
            story.see(client, controller, name)
        story.go_on(client, 2)
    story.judge(client, QUERIES)
    assert not list(violations(client.core.state))


def test_what_looks_at_neighbours_reads_stretches(spark: Any, client: Client) -> None:
    Story(11).go_on(client)
    controller = ViewController(client, spark)
    for name in ("lags", "all_lags", "moving", "ahead", "ranges", "last_minute"):
        view = controller.create_view(name, QUERIES[name])
        assert isinstance(view, MaintainedView)
        assert any(isinstance(operator, Stretches) for operator in view.flow.operators), name
        assert "around its changes" in controller.explain(name)


def test_a_window_exchanges_nothing(spark: Any, client: Client) -> None:
    story = Story(12)
    story.go_on(client)
    controller = ViewController(client, spark)
    names = ("ranks", "ends", "whole", "floats")
    views = [controller.create_view(name, QUERIES[name]) for name in names]
    kept = [view for view in views if isinstance(view, MaintainedView)]
    program = Program(spark, Chain(tuple(v.flow for v in kept)), tuple(v.id for v in kept))
    planned = program._frame._jdf.queryExecution().executedPlan().toString()
    assert planned.count("Window") >= len(views)
    assert "Exchange" not in planned


def test_a_plan_with_an_exchange_is_refused(spark: Any) -> None:
    frame = spark.range(0, 10, 1, 2).selectExpr("id % 3 AS k").groupBy("k").count()
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        with pytest.raises(AssertionError, match="planned with ShuffleExchangeExec"):
            require_no_exchange(frame.select("*"))
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")


def test_an_argument_that_fails_is_data(spark: Any, client: Client) -> None:
    write, _ = client.create_or_load("t", pa.schema([("g", pa.string()), ("x", pa.int64())]))
    controller = ViewController(client, spark)
    controller.create_view("v", "SELECT g, sum(10 div x) OVER (PARTITION BY g) AS s FROM t")
    controller.create_view("w", "SELECT g, bit_and(10 div x) AS b FROM t GROUP BY g")
    rows = [({"g": "a", "x": 5}, 0, 1), ({"g": "b", "x": 0}, 1, 1), ({"g": "b", "x": 0}, 2, -1)]
    write.compare_and_append(rows, 0, 4).result()
    assert controller.run_once() == ("v", "w"), controller.failures()
    for name in ("v", "w"):
        read = client.reader(name)
        assert model.rows_of(read.snapshot(0).to_table()) == {("a", 2): 1}
        with pytest.raises(CollectionHasErrors, match="ivision by zero"):
            read.snapshot(1).to_table()
        assert model.rows_of(read.snapshot(2).to_table()) == {("a", 2): 1}


def test_nexmark_with_windows(spark: Any, client: Client) -> None:
    wanted = {name: sql for name, sql in queries("nexmark").items() if name in ("q06", "q11")}
    stream = Auctions(5, gap_ms=100, auctions_open=10, churn=0.3)
    stream.batch(200)
    story = SuiteStory(client, spark, stream, wanted, IN_DUCKDB)
    assert set(story.create_views().values()) == {"incremental"}
    story.step()
    for _ in range(2):
        story.go_on([partial(stream.batch, 20)] * 2)
        story.step()
    story.see()
    story.judge()

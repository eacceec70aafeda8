"""Where SQL leaves an order open, a plan's answer is fixed: the same for any order of the rows."""

from __future__ import annotations

import datetime as dt
import math
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headwater.compute.catalyst.compiler import Workspace
from headwater.compute.catalyst.render import execute, rendered
from headwater.compute.ir.plan import Plan
from headwater.compute.ir.refusal import InvalidPlan, OtherMeaning

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        ("g", pa.string()),
        ("x", pa.int32()),
        ("y", pa.int32()),
        ("f", pa.float64()),
        ("n", pa.int64()),
    ]
)
ROWS = [
    ("a", 2, 1, 1e16, 2**62),
    ("a", 1, 1, 1.0, 2**62),
    ("a", None, 1, -1e16, -(2**62)),
    ("a", 3, 2, 1.0, -(2**62)),
    ("a", 3, 2, 1.0, 7),
    ("b", 5, None, 0.1, 1),
    ("b", 4, 3, 0.2, 1),
    ("b", 4, 3, 0.3, 1),
    (None, 9, 0, math.inf, 1),
    (None, None, None, None, None),
]

EXPECTED: dict[str, set[tuple[Any, ...]]] = {
    # The canonical order of a group's rows: NULL first, then by x, y, f, n.
    "SELECT g, first(x), last(x), first(x, true), any_value(x) FROM r GROUP BY g": {
        ("a", None, 3, 1, None),
        ("b", 4, 5, 4, 4),
        (None, None, 9, 9, None),
    },
    "SELECT g, collect_list(x), array_agg(y), collect_set(x) FROM r GROUP BY g": {
        ("a", (1, 2, 3, 3), (1, 1, 1, 2, 2), (1, 2, 3)),
        ("b", (4, 4, 5), (3, 3), (4, 5)),
        (None, (9,), (0,), (9,)),
    },
    "SELECT g, max_by(x, y), min_by(x, y), mode(x) FROM r GROUP BY g": {
        ("a", 3, None, 3),
        ("b", 4, 4, 4),
        (None, 9, 9, 9),
    },
    "SELECT g, listagg(x, '-'), listagg(DISTINCT x, '-') FROM r GROUP BY g": {
        ("a", "1-2-3-3", "1-2-3"),
        ("b", "4-4-5", "4-5"),
        (None, "9", "9"),
    },
    "SELECT g, sum(f), sum(n) FROM r GROUP BY g": {
        ("a", 3.0, 7),
        ("b", 0.6, 3),
        (None, math.inf, 1),
    },
    "SELECT g, avg(f) FROM r WHERE g = 'a' GROUP BY g": {("a", 0.6)},
    # An aggregate is one row, also of no rows, and also if nobody looks at what it computes.
    "SELECT count(*) FROM (SELECT sum(x) FROM r) s": {(1,)},
    "SELECT count(*) FROM (SELECT sum(x) FROM r WHERE x > 99) s": {(1,)},
    "SELECT count(*) FROM r, (SELECT max(y), count(*) FROM r) s": {(len(ROWS),)},
    "SELECT count(*) FROM (SELECT DISTINCT 1 FROM r) s": {(1,)},
    # How values are ordered is no part of the value that a FILTER guards.
    "SELECT g, listagg(g, '-') WITHIN GROUP (ORDER BY g) FILTER (WHERE x > 1) FROM r GROUP BY g": {
        ("a", "a-a-a"),
        ("b", "b-b-b"),
        (None, None),
    },
    # Beside values that differ, which Spark takes apart together with the order of the others.
    "SELECT g, listagg(g, '-') WITHIN GROUP (ORDER BY x DESC), listagg(DISTINCT g, '-'), "
    "count(DISTINCT x), count(DISTINCT y) FILTER (WHERE y > 0) FROM r GROUP BY g": {
        ("a", "a-a-a-a-a", "a", 3, 2),
        ("b", "b-b-b", "b", 2, 1),
        (None, None, None, 1, 0),
    },
    "SELECT listagg(CAST(x AS STRING), '-') WITHIN GROUP (ORDER BY x DESC), "
    "listagg(DISTINCT CAST(y AS STRING), '-') WITHIN GROUP (ORDER BY CAST(y AS STRING) DESC), "
    "count(DISTINCT g), count(DISTINCT y) FILTER (WHERE y > 0) FROM r": {
        ("9-5-4-4-3-3-2-1", "3-2-1-0", 2, 3)
    },
    "SELECT x, y FROM r LIMIT 2": {(None, None), (None, 1)},
    "SELECT x FROM r ORDER BY y DESC LIMIT 1": {(4,)},
    "SELECT x, y FROM r ORDER BY y DESC LIMIT 2 OFFSET 2": {(3, 2)},
    "SELECT x, row_number() OVER (ORDER BY y) FROM r WHERE g = 'a'": {
        (None, 1),
        (1, 2),
        (2, 3),
        (3, 4),
        (3, 5),
    },
    "SELECT x, rank() OVER (ORDER BY y), sum(x) OVER (ORDER BY y) FROM r WHERE g = 'a'": {
        (None, 1, 3),
        (1, 1, 3),
        (2, 1, 3),
        (3, 4, 9),
    },
    "SELECT x, sum(x) OVER (ORDER BY y ROWS UNBOUNDED PRECEDING) FROM r WHERE g = 'a'": {
        (None, None),
        (1, 1),
        (2, 3),
        (3, 6),
        (3, 9),
    },
    "SELECT x, lag(x) OVER (ORDER BY y), first(x, true) OVER (ORDER BY y) FROM r WHERE g = 'a'": {
        (None, None, 1),
        (1, None, 1),
        (2, 1, 1),
        (3, 2, 1),
        (3, 3, 1),
    },
    "SELECT x, collect_list(x) OVER w, nth_value(x, 2) OVER w FROM r WHERE g = 'a' "
    "WINDOW w AS (ORDER BY y)": {
        (None, (1, 2), 1),
        (1, (1, 2), 1),
        (2, (1, 2), 1),
        (3, (1, 2, 3, 3), 1),
    },
}


@pytest.fixture(scope="module")
def workspace(spark: Any) -> Workspace:
    return Workspace(spark, {"r": SCHEMA})


def _tuple(value: Any) -> Any:
    return tuple(map(_tuple, value)) if isinstance(value, list | tuple) else value


def _shuffled(spark: Any, random: Random) -> Any:
    rows = random.sample(ROWS, len(ROWS))
    columns = list(zip(*rows, strict=True))
    table = pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA)
    return spark.createDataFrame(table).repartition(random.choice((1, 3)))


@pytest.mark.parametrize("text", EXPECTED)
def test_the_answer_depends_on_the_rows_alone(workspace: Workspace, text: str) -> None:
    seed = 20261115
    print(f"seed {seed}")
    random = Random(seed)
    plan = workspace.compile_sql(text)
    for _ in range(2):
        found = execute(workspace.session, plan, {"r": _shuffled(workspace.session, random)})
        assert {_tuple(row) for row in found.collect()} == EXPECTED[text]


def test_a_sum_that_does_not_fit_is_an_error_and_one_that_passes_is_not(
    workspace: Workspace,
) -> None:
    frame = _shuffled(workspace.session, Random(1))
    plan = workspace.compile_sql("SELECT sum(n) AS s, try_sum(n) AS t FROM r WHERE n > 1000")
    with pytest.raises(Exception, match="OVERFLOW"):
        execute(workspace.session, plan, {"r": frame}).collect()
    plan = workspace.compile_sql("SELECT try_sum(n) AS t FROM r WHERE n > 1000")
    assert execute(workspace.session, plan, {"r": frame}).collect() == [(None,)]


NOON = dt.datetime(2026, 11, 15, 12, 0, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("condition", "seconds"),
    [
        ("ts > now() - INTERVAL 10 SECONDS", {-9, 0, 9}),
        ("ts >= now() - INTERVAL 10 SECONDS", {-10, -9, 0, 9}),
        ("ts < now()", {-11, -10, -9}),
        ("now() >= ts", {-11, -10, -9, 0}),
        ("now() BETWEEN ts AND ts + INTERVAL 10 SECONDS", {-10, -9, 0}),
        ("ts + INTERVAL 10 SECONDS > now() AND ts <= now() AND ts <> now_like", {-9}),
    ],
)
def test_a_temporal_filter_holds_at_the_time_of_reading(
    spark: Any, condition: str, seconds: set[int]
) -> None:
    utc = pa.timestamp("us", "UTC")
    schema = pa.schema([("s", pa.int32()), ("ts", utc), ("now_like", utc)])
    workspace = Workspace(spark, {"e": schema})
    plan = workspace.compile_sql(f"SELECT s FROM e WHERE {condition}")
    offsets = [-11, -10, -9, 0, 9]
    moments = [NOON + dt.timedelta(seconds=s) for s in offsets]
    table = pa.table(
        [pa.array(offsets, pa.int32()), pa.array(moments, utc), pa.array([NOON] * 5, utc)], schema
    )
    frame = workspace.session.createDataFrame(table)
    now_ms = int(NOON.timestamp() * 1000)
    found = execute(workspace.session, plan, {"e": frame}, now_ms=now_ms)
    assert {row.s for row in found.collect()} == seconds
    with pytest.raises(InvalidPlan, match="without the time"):
        rendered(plan, {"e": "e"})


def test_a_plan_of_another_spark_or_meaning_is_not_run(workspace: Workspace) -> None:
    plan: Plan = workspace.compile_sql("SELECT g FROM r")
    plan.require(workspace.session.version, plan.settings)
    with pytest.raises(OtherMeaning, match=r"Spark 4\.\d"):
        plan.require("3.5.0", plan.settings)
    with pytest.raises(OtherMeaning, match="timeZone"):
        plan.require(plan.spark_version, {**plan.settings, "spark.sql.session.timeZone": "CET"})

"""A query that fails: because of its rows, which is an answer, or of the machine, which is none."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from headwater.compute import select as selecting
from headwater.compute.catalyst import blame
from headwater.compute.controller import ViewController
from headwater.compute.select import QueryFailed
from headwater.compute.step import job_group
from headwater.persist import spark as edge
from headwater.persist.client import Client
from headwater.persist.errors import CollectionHasErrors

pytestmark = pytest.mark.spark

T = pa.schema([("k", pa.int64()), ("s", pa.string())])
GOOD, BAD = {"k": 1, "s": '{"a":1}'}, {"k": 2, "s": "no%t ( json"}

JSON, FORMAT = "Malformed records are detected .*no%t", "UnknownFormatConversionException: .*'t'"
QUERIES = {
    # A condition of Spark's that PySpark does not show for one, …
    "shape": ("SELECT schema_of_variant_agg(parse_json(s)) AS y FROM t", JSON, "22023"),
    "json": ("SELECT k, to_json(parse_json(s)) AS y FROM t", JSON, "22023"),
    "json_max": ("SELECT max(to_json(parse_json(s))) AS y FROM t", JSON, "22023"),
    # … and exceptions of Java's own.
    "formatted": ("SELECT k, format_string(s, k) AS y FROM t", FORMAT, "22000"),
    "formatted_max": ("SELECT max(format_string(s, k)) AS y FROM t", FORMAT, "22000"),
    "formatted_on": (
        "SELECT a.k, b.s AS y FROM t a JOIN t b ON format_string(a.s, b.k) > ''",
        FORMAT,
        "22000",
    ),
    "formatted_over": (
        "SELECT k, max(format_string(s, k)) OVER (ORDER BY k) AS y FROM t",
        FORMAT,
        "22000",
    ),
    "formatted_having": (
        "SELECT k, max(s) AS y FROM t GROUP BY k HAVING format_string(max(s), k) > ''",
        FORMAT,
        "22000",
    ),
    "formatted_in": (
        "SELECT k, s AS y FROM t WHERE k <= (SELECT max(length(format_string(s, k))) FROM t)",
        FORMAT,
        "22000",
    ),
}


@pytest.mark.parametrize("rules", [True, False], ids=["maintained", "recomputed"])
def test_an_exception_of_java_is_an_error_of_the_view_while_its_row_is_there(
    spark: Any, client: Client, rules: bool
) -> None:
    write, _ = client.create_or_load("t", T)
    controller = ViewController(client, spark)
    write.compare_and_append([(GOOD, 0, 1), (BAD, 1, 1)], 0, 2).result()
    for name, (sql, _, _) in QUERIES.items():
        controller.create_view(name, sql, rules=rules)
    controller.create_view("count", "SELECT count(*) AS y FROM t", rules=rules)
    # By the first step, which takes in what is there, and by the next ones.
    for update in ((BAD, 2, -1), (BAD, 3, 1), (BAD, 4, -1)):
        assert set(controller.run_once()) == {*QUERIES, "count"}, controller.failures()
        write.compare_and_append([update], update[1], update[1] + 1).result()
    assert set(controller.run_once()) == {*QUERIES, "count"}, controller.failures()
    for name, (_, message, _) in QUERIES.items():
        read = client.reader(name)
        shown = [read.snapshot(time).to_table().to_pylist() for time in (2, 4)]
        assert shown[0], name
        assert shown == [shown[0]] * 2, name
        for time in (1, 3):
            with pytest.raises(CollectionHasErrors, match=message):
                read.snapshot(time).to_table()


def test_an_exception_of_java_is_an_error_of_a_query(spark: Any, client: Client) -> None:
    write, _ = client.create_or_load("t", T)
    write.compare_and_append([(GOOD, 0, 1), (BAD, 1, 1)], 0, 2).result()

    def asked(sql: str, as_of: int) -> int:
        return int(selecting.select(client, spark, sql, as_of, {"t": "t"}).num_rows)

    for name, (sql, message, sqlstate) in QUERIES.items():
        assert asked(sql, 0) == 1, name
        with pytest.raises(QueryFailed, match=message) as failed:
            asked(sql, 1)
        assert failed.value.sqlstate == sqlstate, name


def _truncated(spark: Any, directory: Path) -> None:
    rows = spark.range(10).coalesce(1)
    rows.write.parquet(str(directory / "rows"))
    (file,) = (directory / "rows").glob("*.parquet")
    known = spark.read.parquet(str(directory / "rows"))
    file.write_bytes(file.read_bytes()[:40])
    known.selectExpr("sum(10 / (id + 1))").collect()


def _worker_gone(spark: Any, _: Path) -> None:
    spark.udf.register("gone", os._exit, "int")
    spark.range(1).selectExpr("1 / gone(id)").collect()


def _cancelled(spark: Any, _: Path) -> None:
    def cancel() -> None:
        while not spark.sparkContext.statusTracker().getActiveJobsIds():
            pass
        spark.sparkContext.cancelJobGroup("blame")

    beside = threading.Thread(target=cancel)
    beside.start()
    try:
        with job_group(spark, "blame", "to be cancelled"):
            spark.range(10**11).selectExpr("sum(id % 7)").collect()
    finally:
        beside.join()


@pytest.mark.parametrize("happened", [_truncated, _worker_gone, _cancelled])
def test_what_happens_around_rows_is_not_blamed_on_them(
    spark: Any, tmp_path: Path, happened: Callable[[Any, Path], None]
) -> None:
    with pytest.raises((PySparkException, Py4JJavaError)) as failed:
        happened(spark, tmp_path)
    assert blame.of_values(spark, failed.value) is None


ZERO = "10 / x"
BESIDE_NOTHING = {
    "subquery": "SELECT * FROM u WHERE u.y > (SELECT 10 / sum(x) FROM t)",
    "joined": f"SELECT u.k FROM (SELECT k, {ZERO} AS z FROM t) a JOIN u USING (k) WHERE a.z > 1",
    "outer": f"SELECT u.k FROM u LEFT JOIN t ON u.k = t.k AND {ZERO} > 1",
    "crossed": f"SELECT count(*) AS n FROM u, (SELECT {ZERO} AS z FROM t) a WHERE u.y > a.z",
    "within": f"SELECT k FROM u WHERE k IN (SELECT {ZERO} FROM t)",
    "exists": f"SELECT k FROM u WHERE EXISTS (SELECT 1 FROM t WHERE {ZERO} > 1)",
    "both": f"SELECT k FROM t WHERE {ZERO} > 1 INTERSECT SELECT k FROM u",
}


@pytest.mark.parametrize("large", [False, True], ids=["planned", "adapted"])
def test_an_error_beside_no_rows_is_one_however_it_is_asked(
    spark: Any, client: Client, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    """Spark would plan the side that fails away: at once, or when the other is seen to be empty."""
    if large:
        monkeypatch.setattr(edge, "DRIVER_ROWS_MAX", 0)
    write, _ = client.create_or_load("t", pa.schema([("k", pa.int64()), ("x", pa.int64())]))
    other, _ = client.create_or_load("u", pa.schema([("k", pa.int64()), ("y", pa.float64())]))
    controller = ViewController(client, spark)
    for name, sql in BESIDE_NOTHING.items():
        controller.create_view(name, sql)
        controller.create_view(f"{name}_whole", sql, rules=False)
    row, gone = {"k": 1, "x": 0}, {"k": 1, "y": 1.0}
    write.compare_and_append([(row, 1, 1), (row, 2, -1)], 0, 3).result()
    other.compare_and_append([(gone, 0, 1), (gone, 1, -1)], 0, 3).result()
    assert len(controller.run_once()) == 2 * len(BESIDE_NOTHING), controller.failures()
    for name, sql in BESIDE_NOTHING.items():
        for view in (name, f"{name}_whole"):
            with pytest.raises(CollectionHasErrors, match="ivision by zero"):
                client.reader(view).snapshot(1).to_table()
            client.reader(view).snapshot(2).to_table()
        with pytest.raises(QueryFailed, match="ivision by zero"):
            selecting.select(client, spark, sql, 1, {"t": "t", "u": "u"})
        selecting.select(client, spark, sql, 2, {"t": "t", "u": "u"})


DIV = "10 div t.x"
LEFT_OUT = {
    # What is not shown, has no partner, has a key that is NULL, or comes after the first match.
    "shown": f"SELECT u.k, a.z FROM (SELECT k, {DIV} AS z FROM t) a JOIN u USING (k)",
    "key": f"SELECT t.k FROM t JOIN u ON {DIV} = u.y",
    "second": f"SELECT t.k FROM t JOIN u ON t.k = u.k AND {DIV} = u.y",
    "within": f"SELECT k FROM t WHERE {DIV} NOT IN (SELECT y FROM u)",
    "inferred": f"SELECT z FROM (SELECT k, {DIV} AS z FROM t) a JOIN u ON a.k = u.k WHERE u.k < 0",
    "grouped": "SELECT u.k, z FROM (SELECT k, 10 / sum(x) AS z FROM t GROUP BY k) JOIN u USING (k)",
    "crossed": f"SELECT u.k, a.z FROM u, (SELECT k, {DIV} AS z FROM t) a",
    "first": "SELECT k FROM v WHERE EXISTS (SELECT 1 FROM t WHERE 10 / (t.x * t.x + v.k) > 0.1)",
    "once": "SELECT DISTINCT v.k FROM v LEFT JOIN t ON 10 / (t.x + v.k) > 0",
}
PUT_IN = {
    # What is evaluated for other rows than those that the query asks it of.
    "other": "SELECT t.k FROM t JOIN v ON t.k = v.k WHERE 10 / t.k > 1",
    "either": "SELECT v.k FROM v LEFT JOIN t ON t.k = v.k "
    "AND ((10 / v.k > 1 AND t.x = 1) OR (10 / v.k > 2 AND t.x = 2))",
    "not_outer": "SELECT t.k FROM v RIGHT JOIN t ON t.k = v.k WHERE 10 / v.k > 1",
    "no_rows": f"SELECT {ZERO} AS z FROM t ORDER BY z LIMIT 0",
    "of_no_rows": f"SELECT k FROM v WHERE k > (SELECT {ZERO} FROM t LIMIT 0)",
}


@pytest.mark.parametrize("large", [False, True], ids=["planned", "adapted"])
def test_the_rows_that_get_to_an_expression_in_the_plan_are_those_it_fails_on(
    spark: Any, client: Client, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    """Spark leaves out what it does not need, and asks of others what may spare it some."""
    if large:
        monkeypatch.setattr(edge, "DRIVER_ROWS_MAX", 0)
    t, _ = client.create_or_load("t", pa.schema([("k", pa.int64()), ("x", pa.int64())]))
    u, _ = client.create_or_load("u", pa.schema([("k", pa.int64()), ("y", pa.int64())]))
    v, _ = client.create_or_load("v", pa.schema([("k", pa.int64())]))
    controller = ViewController(client, spark)
    queries = {**LEFT_OUT, **PUT_IN}
    for name, sql in queries.items():
        controller.create_view(name, sql)
        controller.create_view(f"{name}_whole", sql, rules=False)
    bad, good = {"k": None, "x": 0}, {"k": 7, "x": 5}
    t.compare_and_append([(good, 0, 1), (bad, 1, 1), (bad, 2, -1)], 0, 3).result()
    u.compare_and_append([], 0, 3).result()
    v.compare_and_append([({"k": 0}, 0, 1)], 0, 3).result()
    assert len(controller.run_once()) == 2 * len(queries), controller.failures()
    wrong = []
    for name, sql in queries.items():
        for time in range(3):
            asked: dict[str, Callable[[], object]] = {
                view: client.reader(view).snapshot(time).to_table
                for view in (name, f"{name}_whole")
            }
            if time < 2:
                asked["query"] = partial(controller.select, sql, time)
            for how, answer in asked.items():
                try:
                    answer()
                    failed = False
                except (CollectionHasErrors, QueryFailed) as error:
                    failed = "ivision by zero" in str(error)
                if failed != (name in LEFT_OUT and time == 1):
                    wrong.append(f"{name} at {time} by {how}")
    assert not wrong

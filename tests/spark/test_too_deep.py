"""A row on which Java's stack overflows fails what reads it, and nothing else; the JVM stays."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headwater.compute import select as selecting
from headwater.compute import too_deep
from headwater.compute.controller import ViewController
from headwater.compute.select import QueryFailed
from headwater.persist import spark as edge
from headwater.persist.client import Client
from tests.spark.job_ids import job_ids

pytestmark = pytest.mark.spark

T = pa.schema([("k", pa.int64()), ("s", pa.string())])
SHORT, LONG = {"k": 1, "s": "abc"}, {"k": 2, "s": "ab" * 1_000_000}
DEEP, FLAT, KEPT = "rlike(s, '^(a|b)*c')", "rlike(s, '^[ab]*c')", "rlike(s, '^(a|b)*+c')"


def test_a_view_that_is_too_deep_stalls_alone(spark: Any, client: Client) -> None:
    write, _ = client.create_or_load("t", T)
    controller = ViewController(client, spark)
    write.compare_and_append([(SHORT, 0, 1)], 0, 1).result()
    deep = controller.create_view("deep", f"SELECT k, {DEEP} AS y FROM t")
    again = controller.create_view("again", f"SELECT k, {DEEP} AS y FROM t", rules=False)
    controller.create_view("flat", f"SELECT k, {FLAT} AS y, {KEPT} AS z FROM t")
    controller.create_view("other", "SELECT count(*) AS n FROM t", rules=False)
    assert set(controller.run_once()) == {"deep", "again", "flat", "other"}
    context = spark.sparkContext
    # It is found once, by a job of it and others and one of it alone; then it is tried by itself.
    for update, jobs in (((LONG, 1, 1), 2), ((LONG, 2, -1), 1)):
        write.compare_and_append([update], update[1], update[1] + 1).result()
        before = job_ids(spark, deep.reader_id)
        # What was right of the row's time is for ever: it does not help that the row goes.
        assert set(controller.run_once()) == {"flat", "other"}
        assert len(job_ids(spark, deep.reader_id) - before) == jobs
        failures = controller.failures()
        assert set(failures) == {deep.id, again.id}
        assert all(
            too_deep.TOLD in told and "replace the view" in told for told in failures.values()
        )
    assert client.reader("other").snapshot(1).to_table().column("n").to_pylist() == [2]
    flat = client.reader("flat").snapshot(1).to_table().sort_by("k").to_pylist()
    assert [(row["y"], row["z"]) for row in flat] == [(True, True), (False, False)]
    assert context is spark.sparkContext
    assert spark.range(3).count() == 3


@pytest.mark.parametrize("in_driver", [True, False], ids=["by the planner", "by a task"])
def test_a_query_that_is_too_deep_fails(
    spark: Any, client: Client, monkeypatch: pytest.MonkeyPatch, in_driver: bool
) -> None:
    if not in_driver:
        monkeypatch.setattr(edge, "DRIVER_ROWS_MAX", 0)
    write, _ = client.create_or_load("t", T)
    write.compare_and_append([(SHORT, 0, 1), (LONG, 1, 1)], 0, 2).result()

    def asked(sql: str) -> pa.Table:
        return selecting.select(client, spark, sql, 1, {"t": "t"})

    for sql in (f"SELECT k, {DEEP} AS y FROM t", f"SELECT count(*), rand() FROM t WHERE {DEEP}"):
        with pytest.raises(QueryFailed) as failed:
            asked(sql)
        assert (failed.value.condition, failed.value.sqlstate) == ("STACK_OVERFLOW", "54001")
        assert str(failed.value) == too_deep.TOLD
    assert asked(f"SELECT k FROM t WHERE {FLAT}").column("k").to_pylist() == [1]

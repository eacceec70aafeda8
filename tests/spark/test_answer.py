"""Large answers wait on disk: the same rows in the same order, and never too many."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headwater.compute import select
from headwater.compute.answer import ResultTooLarge, rows_of
from headwater.compute.session import RESULT_BYTES_MAX, new_session
from headwater.persist.client import Client, ReadHandle
from headwater.persist.evolution import updates_schema
from headwater.persist.spark import rows_frame
from headwater.persist.spark_size import BROADCAST_BYTES_MAX

pytestmark = pytest.mark.spark

ROWS = 500_000
SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("noise", pa.int64())])


@pytest.fixture
def numbers(client: Client) -> ReadHandle:
    """A collection that is too large to be sent to everybody, and to be collected."""
    noise = np.random.default_rng(7).integers(0, 2**60, ROWS)
    columns = [np.arange(ROWS), noise, np.zeros(ROWS, np.int64), np.ones(ROWS, np.int64)]
    updates = pa.table([pa.array(column) for column in columns], schema=updates_schema(SCHEMA))
    write, read = client.create_or_load("numbers", SCHEMA)
    write.compare_and_append(updates, 0, 1).result()
    return read


@pytest.fixture
def waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where answers wait; nothing is left there."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_same_rows_in_the_same_order(spark: Any, waiting: Path) -> None:
    frame = spark.sql(
        "SELECT id AS x, CAST(id AS string) AS x, TIMESTAMP '2026-01-01' AS at,"
        " IF(id % 3 = 0, NULL, array(id)) AS many, CAST(id AS decimal(20, 3)) AS d"
        " FROM range(0, 5000, 1, 7) ORDER BY id % 11, id"
    )
    collected = rows_of(spark, frame, small=True)
    waited = rows_of(spark, frame, small=False)
    assert waited.schema == collected.schema
    assert waited.equals(collected)
    nothing = rows_of(spark, frame.where("d < 0"), small=False)
    assert (nothing.num_rows, nothing.schema) == (0, collected.schema)
    assert not list(waiting.glob("headwater-held-result-*"))


def test_one_that_is_too_large_fails_alone(spark: Any, waiting: Path) -> None:
    own = new_session(spark)
    own.conf.set(RESULT_BYTES_MAX, str(1 << 20))
    everything = own.sql("SELECT a.id, b.id FROM range(100000) a CROSS JOIN range(100000) b")
    with pytest.raises(ResultTooLarge, match="larger than 1 MiB; select less") as told:
        rows_of(own, everything, small=False)
    assert told.value.sqlstate == "54000"
    assert not list(waiting.glob("headwater-held-result-*"))
    assert rows_of(own, own.range(3), small=False).column("id").to_pylist() == [0, 1, 2]


def test_a_query_is_answered_by_either_way(
    spark: Any, client: Client, numbers: ReadHandle, waiting: Path
) -> None:
    known = {"numbers": "numbers"}
    counted = select.select(client, spark, "SELECT count(*) AS n FROM numbers", 0, known)
    assert counted.to_pylist() == [{"n": ROWS}]
    every = select.select(client, spark, "SELECT k FROM numbers ORDER BY k DESC", 0, known)
    assert every.column("k").to_pylist() == list(reversed(range(ROWS)))
    assert not list(waiting.glob("headwater-held-result-*"))


def test_what_is_not_small_is_not_sent_to_everybody(spark: Any, numbers: ReadHandle) -> None:
    snapshot = numbers.snapshot(0)
    assert sum(part.size_bytes for part in snapshot.parts) > BROADCAST_BYTES_MAX
    left, right = (rows_frame(spark, snapshot).alias(name) for name in "lr")
    joined = left.join(right, "k")
    plan = joined._jdf.queryExecution().sparkPlan().toString()
    assert "SortMergeJoin" in plan, plan
    assert "Broadcast" not in plan
    few = spark.range(10).withColumnRenamed("id", "k")
    plan = left.join(few, "k")._jdf.queryExecution().sparkPlan().toString()
    assert "BroadcastHashJoin" in plan, plan

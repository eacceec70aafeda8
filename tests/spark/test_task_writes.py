"""Parts written by tasks: visible by the driver's commit alone, once, whatever tasks do."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from headwater.algebra.frontier import Frontier
from headwater.base.ids import BatchId
from headwater.persist import spark as edge
from headwater.persist.batch import Part, Segment
from headwater.persist.client import Client, ReadHandle, WriteHandle, new_token
from headwater.persist.commands import AlreadyDone, CompareAndAppend, Done, UpperMismatch
from headwater.persist.core import Step
from headwater.persist.decision import collection_of
from headwater.persist.errors import SchemaMismatch
from headwater.persist.maintenance import Maintenance
from headwater.persist.spark_parts import Target

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("s", pa.string())])
ROWS = 20_000
PARTITIONS = 3


def _frame(spark: Any, time: int = 0) -> Any:
    return spark.range(0, ROWS, 1, PARTITIONS).selectExpr(
        "id AS n", "concat('s', id) AS s", f"{time}L AS __time", "1L AS __diff"
    )


@pytest.fixture
def handles(client: Client) -> tuple[WriteHandle, ReadHandle]:
    return client.create_or_load("c", SCHEMA, key=("n",), layout="run")


def _objects(client: Client) -> set[str]:
    return {info.key for info in client.core.blob.list("part/")}


def _keys(parts: tuple[Part, ...]) -> set[str]:
    return {part.where.key for part in parts if isinstance(part.where, Segment)}


def _descriptors(frame: Any, client: Client, step: Step, write: WriteHandle) -> Any:
    target = Target.of(collection_of(client.core.state, write.id))
    return edge.written_parts(frame, edge.writing(client.core, step), target)


def _append(write: WriteHandle, parts: tuple[Part, ...], token: str) -> CompareAndAppend:
    return CompareAndAppend(write.id, BatchId(token), Frontier.of(0), Frontier.of(1), parts)


def _swept(client: Client) -> set[str]:
    """Let the next entry say that the step is closed, sweep, and return what is left."""
    client.create_or_load(f"other{new_token()}", SCHEMA)
    Maintenance(client.core).sweep()
    return _objects(client)


def test_nothing_is_visible_before_the_commit(
    spark: Any, client: Client, handles: tuple[WriteHandle, ReadHandle]
) -> None:
    write, read = handles
    core = client.core
    before = core.state
    with core.step() as step:
        parts = edge.write_from_tasks(_frame(spark), step, write)
        assert len(parts) == len(_keys(parts)) == PARTITIONS
        assert _keys(parts) == _objects(client)
        assert core.state is before
        assert read.upper == Frontier.of(0)
        # Work in progress is safe from the sweep.
        assert _swept(client) == _keys(parts)
        assert isinstance(core.submit(_append(write, parts, "t")).result(), Done)
    assert read.snapshot(0).to_table().num_rows == ROWS
    assert _swept(client) == _keys(parts)


def test_a_task_that_fails_after_it_has_written(
    spark: Any, client: Client, handles: tuple[WriteHandle, ReadHandle]
) -> None:
    write, read = handles
    core = client.core

    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        for batch in batches:
            if context.attemptNumber() == 0 and context.partitionId() != 1:
                raise RuntimeError("lost after the object was written")
            yield batch

    with core.step() as step:
        written = _descriptors(_frame(spark), client, step, write)
        parts = edge.collect_parts(written.mapInArrow(fail_once, edge.DESCRIPTORS))
        assert len(_objects(client)) == PARTITIONS + 2
        core.submit(_append(write, parts, "t")).result()
    assert read.snapshot(0).to_table().num_rows == ROWS
    assert _swept(client) == _keys(parts)
    assert len(_keys(parts)) == PARTITIONS


def test_a_twin_and_a_zombie_change_nothing(
    spark: Any, client: Client, handles: tuple[WriteHandle, ReadHandle]
) -> None:
    """Two runs of the same tasks at the same time under one step, then a third that is late."""
    write, read = handles
    core = client.core
    with core.step() as step:
        written = _descriptors(_frame(spark), client, step, write)
        with ThreadPoolExecutor(2) as threads:
            one, two = threads.map(edge.collect_parts, (written, written))
        assert not _keys(one) & _keys(two)
        assert isinstance(core.submit(_append(write, one, "t")).result(), Done)
        # The driver's own retry of the same write is recognised by its token.
        assert isinstance(core.submit(_append(write, two, "t")).result(), AlreadyDone)
        late = edge.collect_parts(written)
        assert isinstance(core.submit(_append(write, late, "other")).result(), UpperMismatch)
    assert read.snapshot(0).to_table().num_rows == ROWS
    assert _swept(client) == _keys(one)


def test_a_failed_job_leaves_nothing(
    spark: Any, client: Client, handles: tuple[WriteHandle, ReadHandle]
) -> None:
    write, read = handles
    nulls = _frame(spark).selectExpr("if(n = 7, null, n) AS n", "s", "__time", "__diff")
    with pytest.raises(Exception, match="NOT NULL and has NULLs"):
        edge.append_from_tasks(nulls, write, 0, 1)
    assert read.upper == Frontier.of(0)
    assert _swept(client) == set()
    assert isinstance(edge.append_from_tasks(_frame(spark), write, 0, 1), Done)
    assert isinstance(edge.append_from_tasks(_frame(spark), write, 0, 1), UpperMismatch)


def test_columns_are_checked(
    spark: Any, client: Client, handles: tuple[WriteHandle, ReadHandle]
) -> None:
    write, _ = handles
    with pytest.raises(SchemaMismatch, match="__diff"):
        edge.append_from_tasks(_frame(spark).drop("__diff"), write, 0, 1)
    assert _objects(client) == set()

"""A chain of passages is planned once and run again: it sees its second input."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext

from headwater.compute.dataflow.edge import Lane, lane_scan
from headwater.compute.dataflow.lanes import (
    FAILED,
    NOTE,
    Stream,
    contents,
    payloads,
    read_failure,
    split_failures,
)
from headwater.compute.dataflow.passage import NumberedEdge, passage_sql, passage_stream
from headwater.compute.ir.expression import Named
from headwater.compute.ir.node import Project
from tests.spark import passage_rows
from tests.spark.passage_rows import columns, expression, with_times

pytestmark = pytest.mark.spark

session = passage_rows.session

PROPERTY = "headwater.test.input"


NUMBERS = Lane(columns({"n_1": "bigint"}))


def chain(session: Any, stages: int) -> tuple[Any, Stream]:
    """Return leaf → (passage → Python), so often; each passage adds one to each number.

    The leaf reads which numbers there are from a local property of the job.
    """
    plus = expression("(n_1 + 1)", "bigint", "n_1")
    node = Project(lane_scan(NUMBERS.columns), (Named("n_1", plus),))
    edges = [NumberedEdge(0, 0, node, 1)]
    lanes = {0: NUMBERS, 1: NUMBERS}
    stream = Stream({**lanes, **passage_stream(edges, lanes).lanes})

    def leaf(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        told = context.getLocalProperty(PROPERTY)
        assert told is not None
        if told == "fail":
            raise ValueError("told to fail")
        numbers = pa.array(map(int, told.split()), pa.int64())
        yield from stream.batches({0: with_times(pa.table({"n_1": numbers}))})

    def again(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        kept, failures = split_failures(stream.unpack(batches))
        going = {
            NOTE: payloads([b"seen"]),
            FAILED: payloads([*contents(kept.get(FAILED)), *failures]),
        }
        if 1 in kept:
            going[0] = kept[1]
        yield from stream.batches(going)

    schema = stream.spark_schema()
    frame = session.range(0, 1, 1, 1).mapInArrow(leaf, schema)
    for _ in range(stages):
        frame = frame.selectExpr(*passage_sql(edges, stream, stream)).mapInArrow(again, schema)
    return frame, stream


def given(session: Any, frame: Any, stream: Stream, told: str) -> dict[int, pa.Table]:
    session.sparkContext.setLocalProperty(PROPERTY, told)
    try:
        return stream.unpack(frame.toArrow().to_batches())
    finally:
        session.sparkContext.setLocalProperty(PROPERTY, None)


def test_a_planned_chain_sees_its_second_input_and_outlives_a_failure(session: Any) -> None:
    frame, stream = chain(session, 2)
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "Exchange" not in plan
    assert plan.count("MapInArrow") == 3
    assert given(session, frame, stream, "1 2 3")[0].column("n_1").to_pylist() == [3, 4, 5]

    context = session.sparkContext
    context.setJobGroup("second", "the second run")
    found = given(session, frame, stream, "10 20")
    context.setLocalProperty("session.jobGroup.id", None)
    assert found[0].column("n_1").to_pylist() == [12, 22]
    assert contents(found[NOTE]) == [b"seen"]
    (job,) = context.statusTracker().getJobIdsForGroup("second")
    (stage,) = context.statusTracker().getJobInfo(job).stageIds
    assert context.statusTracker().getStageInfo(stage).numTasks == 1

    with pytest.raises(Exception, match="told to fail"):
        given(session, frame, stream, "fail")
    found = given(session, frame, stream, f"5 {2**63 - 2} {2**63 - 1}")
    assert found[0].column("n_1").to_pylist() == [7]
    failures = [read_failure(payload) for payload in contents(found[FAILED])]
    # One fails in the first passage, one in the second; the first passes the second as a payload.
    assert sorted(f.table().column("n_1").to_pylist() for f in failures) == [[2**63 - 1]] * 2
    assert given(session, frame, stream, "6")[0].column("n_1").to_pylist() == [8]

"""Rows and expressions of passages made by hand, and what a passage makes of them."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from headwater.compute.catalyst import try_eval
from headwater.compute.dataflow.edge import Lane
from headwater.compute.dataflow.lanes import Stream
from headwater.compute.dataflow.passage import NumberedEdge, passage_sql, passage_stream
from headwater.compute.ir.expression import Column, Expression
from headwater.persist.consolidate import DIFF, TIME


@pytest.fixture(scope="module")
def session(spark: Any) -> Any:
    return try_eval.passage_session(spark)


def columns(types: Mapping[str, str]) -> tuple[Column, ...]:
    return tuple(Column(name, type_, True) for name, type_ in types.items())


def expression(text: str, type_: str, *mentioned: str) -> Expression:
    return Expression(text, type_, True, mentioned)


def with_times(data: pa.Table) -> pa.Table:
    n = data.num_rows
    data = data.append_column(TIME, pa.array(range(100, 100 + n), pa.int64()))
    return data.append_column(DIFF, pa.array([(-1) ** i * (i + 1) for i in range(n)], pa.int64()))


def bits(value: Any) -> Any:
    if isinstance(value, float):
        return struct.pack("d", value)
    if isinstance(value, dict):
        return tuple((k, bits(v)) for k, v in value.items())
    if isinstance(value, list | tuple):
        return tuple(bits(v) for v in value)
    return value


def rows_of(table: pa.Table) -> list[Any]:
    """Return rows as tuples of bits; names are dropped."""
    values = [column.to_pylist() for column in table.columns]
    return [tuple(map(bits, row)) for row in zip(*values, strict=True)]


def ran(
    session: Any, edges: Sequence[NumberedEdge], lane: Lane, rows: pa.Table
) -> dict[int, pa.Table]:
    """Return what a passage of these edges makes of rows of lane 0."""
    before = Stream({0: lane})
    lanes = {0: lane, **{e.target: Lane(e.node.columns) for e in edges}}
    after = passage_stream(edges, lanes)
    frame = session.createDataFrame(before.pack(0, rows), before.spark_schema())
    # Not over a LocalRelation, which Spark would evaluate while it optimises.
    frame = frame.mapInArrow(lambda batches: batches, before.spark_schema())
    frame = frame.selectExpr(*passage_sql(edges, before, after))
    return after.unpack(frame.toArrow().to_batches())


A, B, XS = (
    Column("a_1", "int", True),
    Column("b_1", "int", True),
    Column("xs_1", "array<int>", True),
)
"""Columns of chains made by hand."""

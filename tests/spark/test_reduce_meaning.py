"""What the dataflow keeps is what Spark computes from scratch: every function, bit by bit."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headwater.compute.catalyst.compiler import Workspace
from headwater.compute.catalyst.render import execute
from headwater.compute.dataflow.graph import (
    Arrangement,
    Laned,
    Reduce,
    ReduceCall,
    Sort,
    State,
    TopK,
)
from headwater.compute.dataflow.ops import reduce, top_k
from headwater.compute.dataflow.ops.reduce import is_reducible
from headwater.compute.ir import node as ir
from headwater.compute.ir.expression import Column
from headwater.persist.consolidate import DIFF, TIME
from headwater.testing.rig import Rig, Row, multiset, rows_at

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        ("g", pa.float64()),
        ("i", pa.int32()),
        ("f", pa.float64()),
        ("h", pa.float32()),
        ("d", pa.decimal128(10, 2)),
        ("s", pa.string()),
        ("t", pa.timestamp("us", "UTC")),
        ("b", pa.bool_()),
        ("n", pa.int64()),
        ("a", pa.list_(pa.field("element", pa.int32()))),
        ("m", pa.decimal128(38, 20)),
    ]
)
POOL: dict[str, Sequence[Any]] = {
    "g": [None, 0.0, -0.0, math.nan, 2.5],
    "i": [None, -3, 0, 4, 11, 12],
    "f": [None, 0.0, -0.0, math.nan, 1e16, 1.0, -1e16, 0.1, -math.inf],
    "h": [None, 0.0, -0.0, 0.1, math.nan],
    "d": [None, Decimal("0.10"), Decimal("-3.33"), Decimal("99999999.99"), Decimal("0.01")],
    "s": [None, "", "ä", "z", "\U0001f600", "\uffff"],
    "t": [None, dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.datetime(1960, 1, 1, tzinfo=dt.UTC)],
    "b": [None, True, False],
    "n": [None, 2**57, -(2**57), 5],
    "a": [None, [], [1, None], [1, 2]],
    "m": [None, Decimal("0.00000000000000000001"), Decimal("7.3")],
}
SCALARS = [name for name in POOL if name != "a"]

CALLS = [
    "count(*)",
    "count(i, f)",
    "count(DISTINCT f)",
    "count(DISTINCT s, g)",
    "count_if(b)",
    *(f"{f}({x})" for f in ("min", "max") for x in SCALARS),
    *(f"{f}({x})" for f in ("mode", "collect_set") for x in ("i", "f", "h", "s", "t", "m")),
    *(f"{f}(a)" for f in ("min", "max")),
    *(f"first({x})" for x in POOL),
    *(f"collect_list({x})" for x in ("f", "s", "a")),
    "last(f)",
    "last(s, true)",
    "any_value(i, true)",
    "first(DISTINCT f)",
    "last(DISTINCT h)",
    "collect_list(DISTINCT f)",
    "bool_and(b)",
    "bool_or(b)",
    "every(b)",
    *(f"{f}(i, {by})" for f in ("min_by", "max_by") for by in ("f", "s", "d", "a")),
    *(f"{f}({x})" for f in ("sum", "avg") for x in ("i", "f", "h", "d", "n", "m")),
    "try_sum(n)",
    *(f"{f}(DISTINCT {x})" for f in ("sum", "avg") for x in ("i", "f", "d")),
    "median(i)",
    "median(d)",
    *(
        f"{call} FILTER (WHERE b)"
        for call in ("max(f)", "count(i)", "sum(d)", "first(s)", "collect_list(f)", "max_by(s, t)")
    ),
]


def _rows(random: Random, count: int) -> list[Row]:
    return [tuple(random.choice(POOL[name]) for name in POOL) for _ in range(count)]


def _table(rows: Sequence[Row]) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA)


def _reduce(node: ir.Aggregate, constant: Column) -> Reduce:
    for call in node.calls:
        types = [argument.type for argument in call.arguments]
        assert is_reducible(call.function, types, call.distinct), call.text
    calls = tuple(
        ReduceCall(
            call.name,
            call.function,
            call.type,
            tuple(argument.text for argument in call.arguments if argument.columns),
            None if call.filter is None else call.filter.text,
            call.distinct,
            call.ignore_nulls,
        )
        for call in node.calls
    )
    ties = tuple(column.name for column in node.input.columns)
    given = Laned(0, (*node.input.columns, constant))
    return Reduce(given, node.groups, calls, "rows", 1, ties)


def _find(node: ir.Node, kind: type[Any]) -> Any:
    if isinstance(node, kind):
        return node
    found = [_find(below, kind) for below in node.inputs]
    return next((one for one in found if one is not None), None)


def _kept(rig: Rig, node: ir.Node, rows: Sequence[Row], random: Random) -> pa.Table:
    """Return the output after all rows came, and others came and went."""
    fields = {f.column.name: f.field for f in _find(node, ir.Scan).fields}
    places = [SCHEMA.names.index(fields[column.name]) for column in node.columns]
    (origin,) = rig.inputs
    passing = _rows(random, 40)
    half = len(rows) // 2
    written = [
        [(row, 0, 1) for row in (*rows[:half], *passing)],
        [(row, 1, 1) for row in rows[half:]] + [(row, 2, -1) for row in passing],
    ]
    for upper, updates in zip((1, 3), written, strict=True):
        picked = [((*(row[n] for n in places), 1), time, diff) for row, time, diff in updates]
        rig.step({origin: picked}, upper)
    return rig.output


def test_reductions_are_what_spark_computes(spark: Any) -> None:
    seed = 20261116
    print(f"seed {seed}")
    random = Random(seed)
    # One group has nothing but NULLs.
    rows = [*_rows(random, 120), (9.0, *(None for _ in SCHEMA.names[1:]))]
    calls = ", ".join(f"{call} AS c{n}" for n, call in enumerate(CALLS))
    plan = Workspace(spark, {"r": SCHEMA}).compile_sql(f"SELECT g, {calls} FROM r GROUP BY g")
    node = _find(plan.root, ir.Aggregate)
    # The projection on top gives names, and a call that stands twice is computed once.
    assert isinstance(plan.root, ir.Project)
    picked = [output.expression.text for output in plan.root.outputs]
    one = Column("one_0", "int", False)
    op = _reduce(node, one)
    rig = Rig(
        op,
        reduce.step,
        output=node.columns,
        arrangements=[Arrangement("rows", op.input, op.groups)],
    )
    kept = rows_at(_kept(rig, node.input, rows, random).select([*picked, TIME, DIFF]), 2)
    frame = spark.createDataFrame(_table(random.sample(rows, len(rows))))
    found = execute(spark, plan, {"r": frame}).toArrow()
    computed = multiset(list(zip(*(column.to_pylist() for column in found.columns), strict=True)))
    ours, theirs = ({row[0]: row[1:] for row in answers} for answers in (kept, computed))
    assert ours.keys() == theirs.keys()
    # A row has more columns than anyone reads: say which calls differ.
    wrong = [
        (CALLS[n], group, mine, other)
        for group in ours
        for n, (mine, other) in enumerate(zip(ours[group], theirs[group], strict=True))
        if mine != other
    ]
    assert not wrong
    assert kept == computed


def test_first_rows_are_what_spark_computes(spark: Any) -> None:
    seed = 20261117
    print(f"seed {seed}")
    random = Random(seed)
    rows = _rows(random, 60) * 2
    plan = Workspace(spark, {"r": SCHEMA}).compile_sql(
        "SELECT * FROM r ORDER BY f DESC NULLS LAST, s NULLS FIRST LIMIT 20 OFFSET 5"
    )
    node = _find(plan.root, ir.TopK)
    one = Column("one_0", "int", False)
    names = tuple(column.name for column in node.input.columns)
    op = TopK(
        Laned(0, (*node.input.columns, one)),
        (),
        tuple(Sort(k.expression.text, k.descending, k.nulls_first) for k in node.order),
        names,
        node.limit,
        node.offset,
        "rows",
        1,
        state="first",
    )
    state = top_k.top_k_state(op.input.columns, op)
    assert state is not None
    rig = Rig(
        op,
        top_k.step,
        output=node.columns,
        arrangements=[Arrangement("rows", op.input, ("one_0",))],
        states=[State("first", state, ("one_0",))],
    )
    kept = rows_at(_kept(rig, node.input, rows, random), 2)
    frame = spark.createDataFrame(_table(random.sample(rows, len(rows))))
    found = execute(spark, plan, {"r": frame}).toArrow()
    assert kept == multiset(list(zip(*(c.to_pylist() for c in found.columns), strict=True)))

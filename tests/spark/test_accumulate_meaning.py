"""Accumulated answers are Spark's, bit for bit: every function, over what makes them differ.

The same rows go through an accumulator, in random pieces with rows that come and go, and through
the text that recomputes the aggregate (``catalyst/ordered.py``); one job with groups, one without.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import os
import struct
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headwater.compute.catalyst import ordered, rounding
from headwater.compute.dataflow.graph import Accumulate, AccumulateCall, Laned, State
from headwater.compute.dataflow.ops.accumulate import (
    canonical,
    is_accumulable,
    state_columns,
    state_key,
    step,
)
from headwater.compute.ir.expression import AggregateCall, Column, Expression, Field
from headwater.compute.ir.node import Aggregate, Scan
from headwater.testing.rig import Rig, Row, rows_at

pytestmark = pytest.mark.spark

COLUMNS = tuple(
    Column(name, type_, True)
    for name, type_ in (
        ("g_1", "double"),
        ("t_2", "tinyint"),
        ("i_3", "int"),
        ("l_4", "bigint"),
        ("d_5", "decimal(10,2)"),
        ("e_6", "decimal(38,35)"),
        ("h_7", "decimal(25,6)"),
        ("f_8", "float"),
        ("x_9", "double"),
        ("y_10", "double"),
        ("w_11", "double"),
        ("b_12", "boolean"),
        ("v_13", "interval day to second"),
        ("k_14", "boolean"),
        ("s_15", "string"),
    )
)
TYPES = {column.name: column.type for column in COLUMNS}
NUMBERS = ("t_2", "i_3", "l_4", "d_5", "e_6", "h_7", "f_8", "x_9", "w_11")
GROUPS = [None, 0.0, -0.0, math.nan, 1.5, -2.0]


def _double(random: Random) -> float:
    bits: float = struct.unpack("<d", random.randbytes(8))[0]
    usual = [random.uniform(-9, 9), random.randint(-9, 9) / 4, 0.1, 1e16, -0.0, 1e-310]
    return random.choice([*usual, 1.0 if math.isnan(bits) else bits])


def _decimal(random: Random, precision: int, scale: int) -> decimal.Decimal:
    most = 10 ** random.choice([3, precision]) // 40
    return decimal.Decimal(random.randint(-most, most)).scaleb(-scale, decimal.Context(prec=50))


def _row(random: Random) -> Row:
    wild = random.choice([math.nan, math.inf, -math.inf, _double(random), _double(random)])
    values = (
        random.randint(-128, 127),
        random.randint(-(2**31), 2**31 - 1),
        random.choice([random.randint(-(2**58), 2**58), 3]),
        _decimal(random, 10, 2),
        _decimal(random, 35, 35),  # an average of decimal(38,35) has no digit before the point
        _decimal(random, 25, 6),
        struct.unpack("<f", struct.pack("<f", random.choice([0.1, -0.0, 1.5e38, 7e-45])))[0],
        _double(random),
        random.uniform(-5, 5),
        wild,
        random.random() < 0.7,
        dt.timedelta(microseconds=random.randint(-(10**14), 10**14)),
        random.random() < 0.7,
        random.choice(["", "a"]),
    )
    group = random.choice(GROUPS)
    return (group, *(None if random.random() < 0.15 else value for value in values))


def _asked() -> list[tuple[str, tuple[str, ...], bool]]:
    """Every function, its arguments, and whether with a filter."""
    asked: list[tuple[str, tuple[str, ...], bool]] = [("count", (), False), ("count", (), True)]
    asked += [("count", ("x_9", "s_15"), False)]
    for name in NUMBERS:
        if name not in ("t_2", "d_5", "h_7"):  # to Spark all of these are doubles
            asked += [(function, (name,), False) for function in sorted(rounding.ONE)]
        asked += [(function, (name,), False) for function in ("sum", "try_sum", "avg", "try_avg")]
    asked += [("sum", ("v_13",), False), ("avg", ("v_13",), True), ("try_sum", ("v_13",), False)]
    asked += [("sum", ("x_9",), True), ("avg", ("d_5",), True), ("stddev", ("w_11",), True)]
    asked += [
        (function, ("b_12",), False) for function in ("count_if", "bool_and", "some", "every")
    ]
    asked += [("bit_xor", (name,), False) for name in ("t_2", "i_3", "l_4")]
    pairs = [("y_10", "x_9", False), ("i_3", "d_5", True), ("w_11", "x_9", False)]
    for y, x, filtered in pairs:
        asked += [(function, (y, x), filtered) for function in sorted(rounding.TWO)]
    return asked


def _calls(spark: Any) -> list[AggregateCall]:
    texts = []
    for function, arguments, filtered in _asked():
        assert is_accumulable(function, [TYPES[name] for name in arguments]), function
        where = " FILTER (WHERE k_14)" if filtered else ""
        texts.append(f"{function}({', '.join(arguments) or '1'}){where}")
    # Spark says what type each answer has; where ours is rounded, it is a double as well.
    analysed = spark.sql(f"SELECT {', '.join(texts)} FROM rows_of_accumulate").schema
    return [
        AggregateCall(
            name=f"a{n}_{n}",
            function=function,
            text=text,
            type=field.dataType.simpleString(),
            nullable=True,
            columns=arguments,
            arguments=tuple(Expression(a, TYPES[a], True, (a,)) for a in arguments),
            filter=Expression("k_14", "boolean", True, ("k_14",)) if filtered else None,
        )
        for n, ((function, arguments, filtered), text, field) in enumerate(
            zip(_asked(), texts, analysed, strict=True), 20
        )
    ]


def _accumulated(
    rows: Sequence[Row], groups: tuple[str, ...], calls: Sequence[AggregateCall], random: Random
) -> Counter[Row]:
    kept = tuple(
        AccumulateCall(
            call.name,
            canonical(call.function),
            call.type,
            tuple(argument.text for argument in call.arguments),
            None if call.filter is None else call.filter.text,
        )
        for call in calls
    )
    op = Accumulate(Laned(0, COLUMNS), groups, kept, "state", 1)
    output = [column for column in COLUMNS if column.name in groups]
    output += [Column(call.name, call.type, True) for call in calls]
    state = State("state", state_columns(COLUMNS, groups, kept), state_key(groups))
    rig = Rig(op, step, output=output, states=[state], seed=random.randrange(2**32))
    passing = [_row(random) for _ in range(30)]
    half = len(rows) // 2
    rig.step({op.input: [(row, 0, 1) for row in (*rows[:half], *passing)]}, 1)
    rig.step({op.input: [*((row, 1, 1) for row in rows[half:]), *((r, 2, -1) for r in passing)]}, 3)
    assert not rig.errors
    return rows_at(rig.output, 2)


def _recomputed(
    spark: Any, groups: tuple[str, ...], calls: Sequence[AggregateCall]
) -> Counter[Row]:
    scan = Scan("r", tuple(Field(column.name, column) for column in COLUMNS))
    text = ordered.aggregate(Aggregate(scan, groups, tuple(calls)), "rows_of_accumulate")
    ordered.register(spark, text)
    found = spark.sql(text).toArrow()
    updates = found.append_column("__time", pa.array([0] * found.num_rows, pa.int64()))
    return rows_at(updates.append_column("__diff", pa.array([1] * found.num_rows, pa.int64())), 0)


def test_every_answer_is_sparks(spark: Any) -> None:
    seed = int(os.environ.get("SEED", Random().randrange(2**32)))
    print(f"SEED={seed}")
    random = Random(seed)
    rows = [_row(random) for _ in range(90)]
    rows += random.choices(rows, k=40)
    arrays = [
        pa.array([row[n] for row in rows], column.sql_type.arrow)
        for n, column in enumerate(COLUMNS)
    ]
    table = pa.table(arrays, names=[column.name for column in COLUMNS])
    spark.createDataFrame(table).repartition(3).createOrReplaceTempView("rows_of_accumulate")
    calls = _calls(spark)
    for groups in (("g_1",), ()):
        kept = _accumulated(rows, groups, calls, random)
        found = _recomputed(spark, groups, calls)
        width = len(groups)
        by_group = {row[:width]: row for row in found}
        assert len(by_group) == sum(found.values()) == len(kept)
        for row in kept:
            other = by_group[row[:width]]
            differ = [
                (call.text, ours, sparks)
                for call, ours, sparks in zip(calls, row[width:], other[width:], strict=True)
                if ours != sparks
            ]
            assert not differ, f"group {row[:width]}: {differ}"

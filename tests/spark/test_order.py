"""Spark sorts as the canonical order says: random rows of every flat type, and nested ones."""

from __future__ import annotations

import decimal
import math
import os
import struct
from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headwater.collection.order import order_by_sql, sort_indices
from headwater.collection.types import by_spark

pytestmark = pytest.mark.spark


def _text(random: Random) -> str:
    return "".join(random.choices("ab\0\u00e9\uffff\U0001f600", k=random.randrange(4)))


def _double(random: Random) -> float:
    bits: float = struct.unpack("<d", random.randbytes(8))[0]
    any_bits = bits if not math.isnan(bits) else math.nan
    return random.choice([0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -1.5, any_bits])


def _single(random: Random) -> float:
    return random.choice([0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -1.5, 1e-45])


def _integer(bits: int) -> Callable[[Random], int]:
    edge = 2 ** (bits - 1)
    return lambda random: random.choice([-edge, -1, 0, 1, edge - 1])


def _array(random: Random) -> list[float | None]:
    return [None if random.random() < 0.2 else _double(random) for _ in range(random.randrange(3))]


VALUES: dict[str, Callable[[Random], Any]] = {
    "boolean": lambda random: random.random() < 0.5,
    "tinyint": _integer(8),
    "smallint": _integer(16),
    "int": _integer(32),
    "bigint": _integer(64),
    "float": _single,
    "double": _double,
    "decimal(5,2)": lambda random: decimal.Decimal(random.randint(-99999, 99999)) / 100,
    "decimal(38,0)": lambda random: decimal.Decimal(random.choice([-(10**37), -1, 0, 10**37])),
    "string": _text,
    "binary": lambda random: random.randbytes(random.randrange(3)),
    "date": lambda random: random.randint(-700_000, 2_000_000),
    "timestamp": lambda random: random.choice([-1, 0, 1, 2**50, -(2**50)]),
    "timestamp_ntz": lambda random: random.choice([-1, 0, 1, 2**50, -(2**50)]),
    "time(6)": lambda random: random.randint(0, 86_399_999_999) * 1000,
    "interval day to second": _integer(60),
    "array<double>": _array,
    "struct<a:double,b:string>": lambda random: {"a": _double(random), "b": _text(random)},
    "map<string,int>": lambda random: [(key, random.randrange(2)) for key in _keys(random)],
}


def _keys(random: Random) -> list[str]:
    return random.sample(["a", "b", "c"], random.randrange(3))


def _table(kinds: list[str], random: Random, rows: int) -> pa.Table:
    columns = [
        pa.array(
            [None if random.random() < 0.2 else VALUES[kind](random) for _ in range(rows)],
            by_spark(kind).arrow,
        )
        for kind in kinds
    ]
    return pa.table(columns, names=[f"c{n}" for n in range(len(kinds))])


def _spark_sorted(spark: Any, table: pa.Table) -> pa.Table:
    text = order_by_sql(list(zip(table.column_names, table.schema.types, strict=True)))
    numbered = table.append_column("row", pa.array(range(table.num_rows), pa.int64()))
    frame = spark.createDataFrame(numbered).repartition(3)
    # The row number stands for the stability Spark does not promise.
    frame.createOrReplaceTempView("t")
    found = spark.sql(f"select row from t order by {text}, row").toArrow()
    return found.column("row").to_pylist()


def _check(spark: Any, kinds: list[str], random: Random) -> None:
    table = _table(kinds, random, 150)
    assert _spark_sorted(spark, table) == sort_indices(table).tolist(), kinds


@pytest.mark.parametrize("kind", VALUES)
def test_one_column(spark: Any, kind: str) -> None:
    seed = int(os.environ.get("SEED", Random().randrange(2**32)))
    print(f"SEED={seed}")
    _check(spark, [kind], Random(seed))


def test_several_columns(spark: Any) -> None:
    """Above all: a tie of zeros is decided by the next column first."""
    seed = int(os.environ.get("SEED", Random().randrange(2**32)))
    print(f"SEED={seed}")
    random = Random(seed)
    _check(spark, ["double", "boolean"], random)
    _check(spark, ["float", "array<double>", "boolean"], random)
    for _ in range(4):
        _check(spark, random.choices(list(VALUES), k=random.randint(2, 4)), random)

"""Spark and Python give every key the same hash: the vectors, and random keys of every type."""

from __future__ import annotations

import decimal
import json
import os
import struct
from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headwater.collection.key_hash import key_hash, key_hash_sql
from tests.formats import key_hash_vectors

pytestmark = pytest.mark.spark


def test_spark_gives_the_vectors(spark: Any) -> None:
    vectors = key_hash_vectors.load()
    text = ", ".join(key_hash_sql(vector.sql()) for vector in vectors)
    computed = list(spark.sql(f"select {text}").collect()[0])
    if os.environ.get("REWRITE") == "1":
        entries = [
            {"key": [list(part) for part in vector.key], "hash": value}
            for vector, value in zip(vectors, computed, strict=True)
        ]
        lines = ",\n".join("    " + json.dumps(entry, ensure_ascii=False) for entry in entries)
        key_hash_vectors.PATH.write_text(
            f'{{\n  "format": "key hash",\n  "version": 1,\n  "vectors": [\n{lines}\n  ]\n}}\n'
        )
    assert computed == [vector.hash for vector in key_hash_vectors.load()]


def _decimals(precision: int, scale: int) -> Callable[[Random], Any]:
    def value(random: Random) -> decimal.Decimal:
        digits = random.randint(1, precision)
        unscaled = random.choice([0, 1, 10 ** (digits - 1), random.randint(0, 10**digits - 1)])
        sign = random.choice([1, -1])
        with decimal.localcontext(decimal.Context(prec=60)):
            return (decimal.Decimal(sign * unscaled)).scaleb(-scale)

    return value


def _integers(bits: int) -> Callable[[Random], Any]:
    edge = 2 ** (bits - 1)
    return lambda random: random.choice(
        [0, 1, -1, edge - 1, -edge, random.randint(-edge, edge - 1)]
    )


def _floats(random: Random) -> float:
    any_bits: float = struct.unpack("<d", random.randbytes(8))[0]
    return random.choice([0.0, -0.0, float("nan"), -float("nan"), float("inf"), 1.5, any_bits])


def _single(random: Random) -> float:
    value: float = struct.unpack("<f", random.randbytes(4))[0]
    return random.choice([0.0, -0.0, float("nan"), value])


def _text(random: Random) -> str:
    letters = "ab \u00e9\u4e2d\U0001f600'\\%\x00"
    return "".join(random.choices(letters, k=random.choice([0, 1, 3, 7, 8, 31, 32, 33, 100])))


_KINDS: dict[str, tuple[pa.DataType, Callable[[Random], Any]]] = {
    "boolean": (pa.bool_(), lambda random: random.random() < 0.5),
    "tinyint": (pa.int8(), _integers(8)),
    "smallint": (pa.int16(), _integers(16)),
    "int": (pa.int32(), _integers(32)),
    "bigint": (pa.int64(), _integers(64)),
    "float": (pa.float32(), _single),
    "double": (pa.float64(), _floats),
    "decimal(10,2)": (pa.decimal128(10, 2), _decimals(10, 2)),
    "decimal(38,18)": (pa.decimal128(38, 18), _decimals(38, 18)),
    "decimal(38,38)": (pa.decimal128(38, 38), _decimals(38, 38)),
    "decimal(38,0)": (pa.decimal128(38, 0), _decimals(38, 0)),
    "date": (pa.date32(), lambda random: random.randint(-700_000, 2_000_000)),
    "timestamp": (pa.timestamp("us", "UTC"), lambda random: random.randint(-(2**55), 2**57)),
    "timestamp_ntz": (pa.timestamp("us"), lambda random: random.randint(-(2**55), 2**57)),
    "time": (pa.time64("ns"), lambda random: random.randint(0, 86_399_999_999) * 1000),
    "duration": (pa.duration("us"), _integers(63)),
    "string": (pa.string(), _text),
    "binary": (pa.binary(), lambda random: random.randbytes(random.choice([0, 1, 8, 33]))),
}


def _column(name: str, random: Random, rows: int) -> Any:
    type_, value = _KINDS[name]
    return pa.array([None if random.random() < 0.2 else value(random) for _ in range(rows)], type_)


def _spark_hashes(spark: Any, columns: list[Any]) -> list[int]:
    names = [f"c{n}" for n in range(len(columns))]
    table = pa.table([*columns, pa.array(range(len(columns[0])))], names=[*names, "row"])
    text = key_hash_sql([(name, column.type) for name, column in zip(names, columns, strict=True)])
    rows = spark.createDataFrame(table).selectExpr("row", f"{text} as hash").collect()
    return [row["hash"] for row in sorted(rows, key=lambda row: row["row"])]


@pytest.mark.parametrize("kind", _KINDS)
def test_random_keys_of_one_column(spark: Any, kind: str) -> None:
    seed = int(os.environ.get("SEED", Random().randrange(2**32)))
    print(f"SEED={seed}")
    column = _column(kind, Random(seed), 300)
    assert key_hash([column]).tolist() == _spark_hashes(spark, [column])


def test_random_keys_of_several_columns(spark: Any) -> None:
    seed = int(os.environ.get("SEED", Random().randrange(2**32)))
    print(f"SEED={seed}")
    random = Random(seed)
    for _ in range(6):
        kinds = random.choices(list(_KINDS), k=random.randint(2, 5))
        columns = [_column(kind, random, 200) for kind in kinds]
        assert key_hash(columns).tolist() == _spark_hashes(spark, columns), kinds


def test_a_column_of_nothing_but_null(spark: Any) -> None:
    columns = [pa.nulls(3), pa.array([1, None, 2])]
    names = [("cast(null as void)", pa.null()), ("id", pa.int64())]
    text = f"select {key_hash_sql(names)} as h from values (1L), (null), (2L) as t(id)"
    assert key_hash(columns).tolist() == [row["h"] for row in spark.sql(text).collect()]


def test_equal_values_of_different_types_agree_in_spark_too(spark: Any) -> None:
    texts = [
        key_hash_sql([("cast(1.10 as decimal(10,2))", pa.decimal128(10, 2))]),
        key_hash_sql([("cast(1.10 as decimal(38,18))", pa.decimal128(38, 18))]),
        key_hash_sql([("1", pa.int32())]),
        key_hash_sql([("1L", pa.int64())]),
    ]
    narrow, wide, integer, bigint = spark.sql("select " + ", ".join(texts)).collect()[0]
    assert narrow == wide
    assert integer == bigint

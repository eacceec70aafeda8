"""Numbers of rows: they rise with the first key of an order, within a partition's own range."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headwater.compute.dataflow.graph import Sort
from headwater.compute.dataflow.operator import update_schema
from headwater.compute.dataflow.ops.groups import order_codes
from headwater.compute.dataflow.ops.near import has_rank, numbers, reached, span
from headwater.compute.ir.expression import Column
from tests.seeds import seeds


def _at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC).replace(tzinfo=None)  # type: ignore[arg-type, misc]


LONGS = [0, 1, -1, 2**38, 2**38 + 1, -(2**38) - 1, 2**53 + 1, 2**62, 2**63 - 1, -(2**63)]
DOUBLES = [0.0, -0.0, 1.5, -1.5, 5e-324, -5e-324, 1e308, math.inf, -math.inf, math.nan]
TEXTS = ["", "a", "a\0", "abcde", "abcdef", "abcdeg", "é", "€uro", "\U0010ffff", "ab"]
VALUES: dict[str, list[Any]] = {
    "boolean": [True, False],
    "tinyint": [0, -128, 127],
    "int": [0, -(2**31), 2**31 - 1, 7],
    "bigint": LONGS,
    "float": [0.0, -0.0, 0.5, -0.5, 3.4e38, math.inf, math.nan],
    "double": DOUBLES,
    "decimal(12,2)": [Decimal("0.00"), Decimal("-0.01"), Decimal("9999999999.99"), Decimal("1.10")],
    "decimal(18,0)": [Decimal(10**18 - 1), Decimal(-(10**18) + 1), Decimal(3)],
    "date": [date(1970, 1, 1), date(1, 1, 1), date(9999, 12, 31), date(2026, 11, 18)],
    "timestamp_ntz": [_at(1970, 1, 1), _at(1, 1, 1), _at(2026, 11, 18, 9, 5, 0, 7)],
    "timestamp": [datetime(2026, 11, 18, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)],
    "string": TEXTS,
    "binary": [text.encode() for text in TEXTS] + [b"\xff" * 9, b"\0", b"\x80"],
}


def table(type_: str, values: list[Any], partitions: list[int] | None = None) -> pa.Table:
    columns = (Column("v_1", type_, True), Column("p_2", "int", True))
    schema = update_schema(columns)
    rows = len(values)
    arrays = [pa.array(values, schema.field("v_1").type)]
    arrays.append(pa.array(partitions or [0] * rows, pa.int32()))
    return pa.Table.from_arrays(
        [*arrays, pa.array([0] * rows), pa.array([1] * rows)], schema=schema
    )


@pytest.mark.parametrize("type_", VALUES)
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("nulls_first", [False, True])
def test_a_number_never_falls_where_the_order_rises(
    type_: str, descending: bool, nulls_first: bool
) -> None:
    assert has_rank(type_)
    rows = table(type_, [*VALUES[type_], None])
    found = numbers(rows, (), Sort("v_1", descending, nulls_first)).tolist()
    codes = order_codes(rows.column("v_1")).tolist()
    *known, null = found
    for a, x in zip(codes, known, strict=False):
        for b, y in zip(codes, known, strict=False):
            assert a >= b or x <= y, "of two values the lesser one has no greater number"
            assert a != b or x == y
    at_the_low_end = nulls_first != descending
    assert null <= min(known) if at_the_low_end else null >= max(known)


@pytest.mark.parametrize("seed", seeds(20, 500))
def test_random_numbers_keep_their_order(seed: int) -> None:
    random = Random(seed)
    longs = [random.getrandbits(random.randint(1, 63)) * random.choice([1, -1]) for _ in range(200)]
    found = numbers(table("bigint", sorted(longs)), (), Sort("v_1")).tolist()
    assert found == sorted(found)
    doubles = sorted(random.choice([1, -1]) * 10.0 ** random.uniform(-300, 300) for _ in range(200))
    found = numbers(table("double", doubles), (), Sort("v_1")).tolist()
    assert found == sorted(found)
    texts = sorted(random.randbytes(random.randint(0, 8)) for _ in range(200))
    found = numbers(table("binary", texts), (), Sort("v_1")).tolist()
    assert found == sorted(found)


def test_a_partition_has_a_range_of_its_own() -> None:
    rows = table("bigint", LONGS * 3, [p for p in (1, 2, 3) for _ in LONGS])
    found = numbers(rows, ("p_2",), Sort("v_1"))
    start, end = span(found)
    assert ((start < found) & (found < end)).all()
    assert len(set(start.tolist())) == 3
    ranges = sorted(set(zip(start.tolist(), end.tolist(), strict=True)))
    assert all(a[1] <= b[0] for a, b in pairwise(ranges))


@pytest.mark.parametrize("type_", ["int", "bigint", "date", "timestamp", "timestamp_ntz"])
@pytest.mark.parametrize("distance", [0, 1, 10**6, 2**62 - 1])
def test_what_is_near_has_a_number_that_is_reached(type_: str, distance: int) -> None:
    rows = table(type_, [*VALUES[type_], None])
    sort = Sort("v_1", descending=False, nulls_first=False)
    found, (low, high) = numbers(rows, ("p_2",), sort), reached(rows, ("p_2",), sort, distance)
    assert ((low <= found) & (found <= high)).all()
    assert low[-1] == high[-1] == found[-1], "NULL is near to NULL alone"
    start, end = span(found)
    assert ((start < low) & (high < end)).all(), "in its own partition"
    unit = {"date": pa.int32()}.get(type_, pa.int64())
    wholes = rows.column("v_1").combine_chunks().drop_null().cast(unit).to_pylist()
    for at, x in enumerate(wholes):
        for other, y in enumerate(wholes):
            near = abs(x - y) <= distance
            assert not near or low[at] <= found[other] <= high[at]


def test_a_slice_of_strings_has_its_own_bytes() -> None:
    rows = table("string", TEXTS).slice(3, 4)
    assert (
        numbers(rows, (), Sort("v_1")).tolist()
        == numbers(table("string", TEXTS), (), Sort("v_1"))[3:7].tolist()
    )


GOLDEN: dict[str, dict[Any, int]] = {
    "bigint": {
        0: 549755813888,
        7: 549755813895,
        -7: 549755813881,
        2**38: 824633720832,
        2**40: 841813590016,
        -(2**63): 60129542144,
    },
    "double": {
        0.0: 549755813888,
        1.5: 824499503104,
        -1.5: 275012124671,
        math.nan: 1099377410048,
    },
    "string": {"": 1, "a": 416611827712, "abcdef": 418262508645},
    "timestamp_ntz": {_at(2026, 11, 18, 9, 5): 768871133712},
    "decimal(12,2)": {Decimal("-1.10"): 549755813778},
    "date": {date(2026, 11, 18): 549755834663},
}
"""They are in durable states."""


def test_stored_numbers_never_change() -> None:
    for type_, wanted in GOLDEN.items():
        found = numbers(table(type_, [*wanted, None]), (), Sort("v_1"))
        assert found.tolist() == [*wanted.values(), 1]
    in_partition = numbers(table("int", [7, None], [3, 3]), ("p_2",), Sort("v_1", False, False))
    assert in_partition.tolist() == [7452347426309931015, 7452347976065744894]


def test_what_has_no_rank() -> None:
    for type_ in ("decimal(19,0)", "array<int>", "struct<a:int>", "void", "variant"):
        assert not has_rank(type_)

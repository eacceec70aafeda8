"""Keys: forms, common types, and SQL equality, without Spark."""

from __future__ import annotations

import decimal
from typing import Any

import pyarrow as pa
import pytest

from headwater.base.errors import InvalidUsage
from headwater.collection.key import (
    NoCommonKeyType,
    NotAKey,
    common_key_type,
    key_form,
    keys_equal,
    require_same_form,
)

D = decimal.Decimal


@pytest.mark.parametrize(
    ("left", "right", "common"),
    [
        (pa.int8(), pa.int32(), pa.int64()),
        (pa.int64(), pa.int64(), pa.int64()),
        (pa.bool_(), pa.bool_(), pa.bool_()),
        (pa.int32(), pa.decimal128(9, 2), pa.decimal128(12, 2)),
        (pa.int64(), pa.decimal128(38, 18), pa.decimal128(38, 18)),
        (pa.decimal128(10, 2), pa.decimal128(12, 6), pa.decimal128(14, 6)),
        (pa.int64(), pa.float32(), pa.float64()),
        (pa.float32(), pa.float32(), pa.float64()),
        (pa.decimal128(10, 2), pa.float64(), pa.float64()),
        (pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC")),
        (pa.date32(), pa.timestamp("us"), pa.timestamp("us")),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC")),
        (pa.string(), pa.large_string(), pa.string()),
        (pa.dictionary(pa.int8(), pa.string()), pa.string(), pa.string()),
        (pa.binary(), pa.binary(4), pa.binary()),
        (pa.null(), pa.int32(), pa.int64()),
        (pa.null(), pa.decimal128(10, 2), pa.decimal128(10, 2)),
        (pa.null(), pa.null(), pa.null()),
        (pa.time32("s"), pa.time64("us"), pa.time64("ns")),
        (pa.duration("s"), pa.duration("us"), pa.duration("us")),
    ],
)
def test_common_type(left: pa.DataType, right: pa.DataType, common: pa.DataType) -> None:
    assert common_key_type(left, right) == common
    assert common_key_type(right, left) == common


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.string(), pa.int64()),
        (pa.string(), pa.binary()),
        (pa.string(), pa.date32()),
        (pa.bool_(), pa.int64()),
        (pa.date32(), pa.int64()),
        (pa.timestamp("us"), pa.time64("us")),
        (pa.decimal128(38, 18), pa.decimal128(38, 0)),  # Spark would round to compare
    ],
)
def test_no_common_type(left: pa.DataType, right: pa.DataType) -> None:
    for a, b in ((left, right), (right, left)):
        with pytest.raises(NoCommonKeyType, match="cast one of them"):
            common_key_type(a, b)


@pytest.mark.parametrize(
    "type_",
    [
        pa.list_(pa.int64()),
        pa.struct([("a", pa.int64())]),
        pa.map_(pa.string(), pa.int64()),
        pa.month_day_nano_interval(),
        pa.uint64(),
        pa.decimal256(50, 2),
        pa.decimal128(10, -2),
    ],
)
def test_not_a_key(type_: pa.DataType) -> None:
    with pytest.raises(NotAKey, match="cannot be a key") as caught:
        key_form(type_)
    assert isinstance(caught.value, InvalidUsage)


def test_a_probe_with_another_form_is_refused() -> None:
    require_same_form(pa.int32(), pa.int64())
    require_same_form(pa.decimal128(10, 2), pa.decimal128(38, 18))
    require_same_form(pa.string(), pa.null())
    with pytest.raises(NoCommonKeyType, match="hashed differently"):
        require_same_form(pa.int64(), pa.decimal128(10, 2))


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        (pa.array([1, 2, None], pa.int32()), pa.array([1, 3, None], pa.int64()), [1, 0, 0]),
        (pa.array([0.0, float("nan")]), pa.array([-0.0, float("nan")]), [1, 1]),
        (
            pa.array([D("1.10"), D("1.11")], pa.decimal128(10, 2)),
            pa.array([D("1.1"), D("1.1")], pa.decimal128(30, 10)),
            [1, 0],
        ),
        (pa.array(["a", "", None]), pa.array(["a", None, "x"]), [1, 0, 0]),
        (pa.nulls(2), pa.nulls(2), [0, 0]),
    ],
)
def test_sql_equality(left: Any, right: Any, equal: list[int]) -> None:
    assert keys_equal([left], [right]).tolist() == [bool(flag) for flag in equal]


def test_null_safe_equality_is_per_column() -> None:
    left = [pa.array([None, None, 1]), pa.array([None, "x", "x"])]
    assert keys_equal(left, left).tolist() == [False, False, True]
    assert keys_equal(left, left, null_safe=True).tolist() == [True, True, True]
    assert keys_equal(left, left, null_safe=[True, False]).tolist() == [False, True, True]

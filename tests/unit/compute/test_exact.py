"""Exact columns: numbers in, the same numbers out, whatever their size, or an error."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.compute.exact import Overflow, column, exact


def _objects(numbers: list[int]) -> Any:
    array = np.empty(len(numbers), object)
    array[:] = numbers
    return array


@given(st.lists(st.integers(-(10**38) + 1, 10**38 - 1)))
def test_decimals_come_back(numbers: list[int]) -> None:
    stored = column(_objects(numbers), pa.decimal128(38, 2))
    assert exact(stored).tolist() == numbers
    assert [int(value.scaleb(2)) for value in stored.to_pylist()] == numbers or any(
        abs(number) >= 10**27
        for number in numbers  # beyond Python's default decimal context
    )


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))), st.integers(0, 3))
def test_integers_come_back_also_from_a_slice(numbers: list[int | None], start: int) -> None:
    array = pa.array(numbers, pa.int64()).slice(start)
    assert exact(array).tolist() == [number or 0 for number in numbers[start:]]


def test_decimals_of_a_slice_with_nulls() -> None:
    values = [Decimal("1.25"), None, Decimal("-0.01"), Decimal("99.99")]
    array = pa.array(values, pa.decimal128(10, 2))
    assert exact(array.slice(1)).tolist() == [0, -1, 9999]
    assert exact(pa.chunked_array([array, array.slice(2)])).tolist() == [125, 0, -1, 9999, -1, 9999]


def test_what_is_not_valid_is_null_and_need_not_fit() -> None:
    numbers = _objects([1, 2**70])
    assert column(numbers, pa.int64(), np.array([True, False])).to_pylist() == [1, None]
    shown = column(numbers, pa.decimal128(5, 1), np.array([True, False]))
    assert shown.to_pylist() == [Decimal("0.1"), None]


@pytest.mark.parametrize(
    ("number", "type_"),
    [(2**63, pa.int64()), (-(2**63) - 1, pa.int64()), (10**5, pa.decimal128(5, 2))],
)
def test_overflow(number: int, type_: pa.DataType) -> None:
    with pytest.raises(Overflow):
        column(_objects([number]), type_)
    column(_objects([number - 1 if number > 0 else number + 1]), type_)

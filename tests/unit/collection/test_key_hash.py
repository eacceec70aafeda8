"""The key hash in Python: the vectors made by Spark, and the laws that probes rest on."""

from __future__ import annotations

import decimal

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.errors import InvalidUsage
from headwater.collection.key import NotAKey
from headwater.collection.key_hash import key_hash, key_hash_sql
from tests.formats import key_hash_vectors
from tests.formats.key_hash_vectors import Vector

D = decimal.Decimal


@pytest.mark.parametrize("vector", key_hash_vectors.load(), ids=lambda vector: str(vector.key))
def test_vector(vector: Vector) -> None:
    assert key_hash(vector.columns()).tolist() == [vector.hash]


def test_vectors_cover_every_form_and_null() -> None:
    vectors = key_hash_vectors.load()
    assert len(vectors) > 70
    types = {type_ for vector in vectors for type_, _ in vector.key}
    assert len(types) > 15


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), min_size=1))
def test_longs_are_xxh64_of_their_bytes(values: list[int | None]) -> None:
    expected = []
    for value in values:
        tag = int(value is not None).to_bytes(8, "little")
        seed = xxhash.xxh64_intdigest(tag, 42)
        if value is not None:
            seed = xxhash.xxh64_intdigest(value.to_bytes(8, "little", signed=True), seed)
        expected.append(seed)
    hashes = key_hash([pa.array(values, pa.int64())])
    assert hashes.dtype == np.int64
    assert hashes.view(np.uint64).tolist() == expected


@given(st.lists(st.one_of(st.none(), st.integers(-128, 127))))
def test_equal_integers_of_any_width_agree(values: list[int | None]) -> None:
    wide = key_hash([pa.array(values, pa.int64())]).tolist()
    for type_ in (pa.int8(), pa.int16(), pa.int32()):
        assert key_hash([pa.array(values, type_)]).tolist() == wide


@given(st.lists(st.decimals(min_value=-(10**8), max_value=10**8, places=2)))
def test_equal_decimals_of_any_precision_agree(values: list[D]) -> None:
    narrow = key_hash([pa.array(values, pa.decimal128(12, 2))]).tolist()
    for type_ in (pa.decimal128(38, 18), pa.decimal128(20, 2), pa.decimal64(12, 2)):
        assert key_hash([pa.array(values, type_)]).tolist() == narrow


def test_equal_doubles_agree() -> None:
    other_nan = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    zeros = key_hash([pa.array([0.0, -0.0])])
    nans = key_hash([pa.array([float("nan"), *other_nan])])
    assert len(set(zeros.tolist())) == 1
    assert len(set(nans.tolist())) == 1
    assert key_hash([pa.array([1.5], pa.float32())]) == key_hash([pa.array([1.5])])


@given(st.lists(st.one_of(st.none(), st.text(max_size=40))), st.integers(0, 5))
def test_any_layout_of_the_same_strings_agrees(values: list[str | None], cut: int) -> None:
    plain = key_hash([pa.array(values, pa.string())]).tolist()
    chunked = pa.chunked_array(
        [pa.array(values[:cut], pa.string()), pa.array(values[cut:], pa.string())]
    )
    sliced = pa.array(["skipped", *values], pa.string()).slice(1)
    assert key_hash([chunked]).tolist() == plain
    assert key_hash([sliced]).tolist() == plain
    assert key_hash([sliced.dictionary_encode()]).tolist() == plain
    assert key_hash([pa.array(values, pa.string_view())]).tolist() == plain
    # With a column before it every row has its own seed: the slow way, the same answer.
    ones = pa.array([1] * len(values), pa.int64())
    many = key_hash([ones, pa.array(values, pa.string())]).tolist()
    single = [
        key_hash([pa.array([1]), pa.array([value], pa.string())]).tolist()[0] for value in values
    ]
    assert many == single


def test_sliced_decimals_are_read_from_their_offset() -> None:
    values = pa.array([D("1.10"), D("2.20"), None, D("3.30")], pa.decimal128(10, 2))
    hashes = key_hash([values]).tolist()
    assert key_hash([values.slice(1)]).tolist() == hashes[1:]
    assert key_hash([values.slice(1, 1)]).tolist() == hashes[1:2], "without NULLs nothing is copied"


def test_null_is_not_empty_and_columns_do_not_run_together() -> None:
    keys = [("", None), (None, ""), ("", ""), (None, None), ("ab", ""), ("a", "b")]
    left, right = (pa.array(side, pa.string()) for side in zip(*keys, strict=True))
    assert len(set(key_hash([left, right]).tolist())) == len(keys)


def test_no_rows() -> None:
    assert key_hash([pa.array([], pa.string())]).tolist() == []
    assert key_hash([pa.array([], pa.int64()), pa.array([], pa.decimal128(9, 2))]).tolist() == []


def test_no_columns_and_nested_keys_are_refused() -> None:
    with pytest.raises(InvalidUsage, match="at least one column"):
        key_hash([])
    with pytest.raises(InvalidUsage, match="at least one column"):
        key_hash_sql([])
    with pytest.raises(NotAKey, match="arrays, structs and maps"):
        key_hash([pa.array([[1]])])
    with pytest.raises(NotAKey, match="arrays, structs and maps"):
        key_hash_sql([("a", pa.list_(pa.int64()))])


def test_finer_than_a_microsecond_is_refused() -> None:
    with pytest.raises(pa.ArrowInvalid, match="lose data"):
        key_hash([pa.array([1], pa.timestamp("ns"))])

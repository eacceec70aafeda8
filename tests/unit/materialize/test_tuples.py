"""Packed tuples: golden bytes, order, and two encoders that agree."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.materialize.tuples import (
    Element,
    MalformedTuple,
    NotPackable,
    pack,
    pack_columns,
    unpack,
)
from tests.formats.packed_tuple_vectors import vectors

TEXTS = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(["\0", "a\0", "\0ÿ"])
BLOBS = st.binary(max_size=6) | st.sampled_from([b"\0", b"\0\xff", b"\xff\0"])
INTEGERS = st.integers(-(2**63), 2**64 - 1) | st.integers(-300, 300)
DOUBLES = st.floats(allow_nan=False)
ELEMENTS: st.SearchStrategy[Element] = st.one_of(
    st.none(), st.booleans(), INTEGERS, st.integers(-(10**30), 10**30), DOUBLES, TEXTS, BLOBS
)
TUPLES = st.lists(ELEMENTS, max_size=4).map(tuple)


def _rank(element: Element) -> tuple[Any, ...]:
    """The order that packed bytes must have, said without bytes."""
    match element:
        case None:
            return (0,)
        case bytes():
            return (1, element)
        case str():
            return (2, element.encode())  # Code points and UTF-8 have one order.
        case bool():
            return (6, element)
        case int():
            return (3, element)
        case float():
            return (4, element, math.copysign(1, element))
    raise AssertionError(element)


@pytest.mark.parametrize("vector", vectors(), ids=lambda v: v.packed.hex()[:24])
def test_golden(vector: Any) -> None:
    assert pack(vector.elements) == vector.packed
    unpacked = unpack(vector.packed)
    assert list(map(repr, unpacked)) == list(map(repr, vector.elements))


@given(TUPLES)
def test_unpacking_undoes_packing(elements: tuple[Element, ...]) -> None:
    assert list(map(repr, unpack(pack(elements)))) == list(map(repr, elements))


@given(TUPLES, TUPLES)
def test_the_order_of_bytes_is_the_order_of_elements(
    left: tuple[Element, ...], right: tuple[Element, ...]
) -> None:
    ranks = [tuple(map(_rank, elements)) for elements in (left, right)]
    assert (pack(left) < pack(right)) == (ranks[0] < ranks[1])
    assert (pack(left) == pack(right)) == (ranks[0] == ranks[1])


COLUMNS = [
    (pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(-300, 300)),
    (pa.int8(), st.integers(-128, 127)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float64(), st.floats()),
    (pa.float32(), st.floats(width=32)),
    (pa.bool_(), st.booleans()),
    (pa.string(), TEXTS),
    (pa.large_string(), TEXTS),
    (pa.binary(), BLOBS),
    (pa.null(), st.none()),
]


@given(st.data())
def test_columns_are_packed_as_their_rows(data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=3))
    rows = data.draw(st.lists(st.tuples(*(st.none() | v for _, v in chosen)), max_size=8))
    columns = [pa.array([row[at] for row in rows], kind) for at, (kind, _) in enumerate(chosen)]
    start = data.draw(st.integers(0, len(rows)))
    # A slice of a larger array has an offset that is easily forgotten.
    packed = pack_columns([column.slice(start) for column in columns])
    expected = [pack(row) for row in rows[start:]]
    assert packed.type == pa.large_binary()
    assert packed.to_pylist() == expected


def test_what_cannot_be_packed_is_refused() -> None:
    with pytest.raises(NotPackable, match="decimal"):
        pack_columns([pa.array([None], pa.decimal128(10, 2))])
    with pytest.raises(NotPackable, match="list"):
        pack([[1]])  # type: ignore[list-item]
    with pytest.raises(NotPackable, match="256 bytes"):
        pack([2 ** (255 * 8)])


@pytest.mark.parametrize(
    ("packed", "reason"),
    [
        ("0261", "without its end"),
        ("02616200ff", "without its end"),
        ("1601", "cut short"),
        ("1d", "cut short"),
        ("21ff", "cut short"),
        ("02ff00", "not UTF-8"),
        ("050000", "code 05"),
        ("30" + "00" * 16, "code 30"),
        ("ff", "code ff"),
    ],
)
def test_bytes_that_are_no_tuple_are_refused(packed: str, reason: str) -> None:
    with pytest.raises(MalformedTuple, match=reason):
        unpack(bytes.fromhex(packed))


@given(st.binary(max_size=12))
def test_any_bytes_are_a_tuple_or_refused(packed: bytes) -> None:
    with contextlib.suppress(MalformedTuple):
        unpack(packed)

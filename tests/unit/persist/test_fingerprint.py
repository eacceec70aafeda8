"""Identical rows have equal fingerprints, wherever and however they are stored."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.persist import fingerprint

TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[object]]] = {
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "int8": (pa.int8(), st.integers(-128, 127)),
    "bool": (pa.bool_(), st.booleans()),
    "float64": (pa.float64(), st.floats()),
    "float32": (pa.float32(), st.floats(width=32)),
    "string": (pa.string(), st.text(max_size=20)),
    "binary": (pa.large_binary(), st.binary(max_size=20)),
    "decimal": (pa.decimal128(20, 2), st.decimals(-1000, 1000, places=2)),
    "date": (pa.date32(), st.dates()),
    "list": (pa.list_(pa.int64()), st.lists(st.integers(0, 3), max_size=3)),
    "null": (pa.null(), st.none()),
}


def _rows(table: pa.Table) -> Iterator[dict[str, pa.Array]]:
    for row in range(table.num_rows):
        yield {
            name: pa.array([table.column(name)[row].as_py()], table.schema.field(name).type)
            for name in table.column_names
        }


@pytest.mark.parametrize("name", TYPES)
@given(data=st.data())
def test_a_copy_elsewhere_has_the_same_fingerprint(name: str, data: st.DataObject) -> None:
    type_, values = TYPES[name]
    column = data.draw(st.lists(st.none() | values, min_size=1, max_size=12))
    padding = data.draw(st.lists(st.none() | values, max_size=9))
    whole = pa.table({"a": pa.array(column, type_), "b": pa.array(range(len(column)))})
    # The same rows behind others, cut out of a longer array, in two chunks.
    longer = pa.array([*padding, *column, *padding], type_)
    none = [0] * len(padding)
    number = pa.array([*none, *range(len(column)), *none])
    cut = pa.table({"a": longer, "b": number}).slice(len(padding), len(column))
    # Every row on its own, so that nothing else is in its block; and all of them in one.
    alone = [pa.table(row, schema=cut.schema) for row in _rows(cut)]
    chunked = pa.concat_tables(alone)
    expected = fingerprint.fingerprints(whole, ["a", "b"])
    assert fingerprint.fingerprints(cut, ["a", "b"]).tolist() == expected.tolist()
    assert fingerprint.fingerprints(chunked, ["a", "b"]).tolist() == expected.tolist()


def test_what_lies_under_a_null_does_not_matter() -> None:
    null = pa.py_buffer(bytes([0b0]))
    for type_, width in ((pa.int64(), 8), (pa.decimal128(10, 2), 16)):
        a, b = (
            pa.Array.from_buffers(type_, 1, [null, pa.py_buffer(bytes([byte]) * width)])
            for byte in (1, 2)
        )
        prints = fingerprint.fingerprints(pa.table({"a": pa.chunked_array([a, b])}), ["a"])
        assert prints[0] == prints[1]
    offsets = pa.py_buffer(np.array([0, 9], np.int32).tobytes())
    a, b = (
        pa.Array.from_buffers(pa.string(), 1, [null, offsets, pa.py_buffer(byte * 9)])
        for byte in (b"x", b"y")
    )
    prints = fingerprint.fingerprints(pa.table({"a": pa.chunked_array([a, b])}), ["a"])
    assert prints[0] == prints[1]


@given(st.lists(st.integers(0, 30), max_size=40))
def test_shared_finds_every_twin(numbers: list[int]) -> None:
    table = pa.table({"a": pa.array(numbers, pa.int64())})
    found = fingerprint.shared(table, ["a"])
    twins = [numbers.count(n) > 1 for n in numbers]
    if found is None:
        assert not any(twins)
    else:
        assert all(found[row] for row, twin in enumerate(twins) if twin)


def test_few_rows_are_suspected_of_a_twin() -> None:
    rows = 200_000
    numbers = np.arange(rows)
    table = pa.table(
        {
            "a": numbers % 1000,
            "b": numbers // 1000 * 0.5,
            "c": [f"a rather long name, number {n}" for n in numbers],
        }
    )
    found = fingerprint.shared(table, ["a", "b", "c"])
    assert found is None or found.sum() < rows // 1000


@given(
    st.lists(st.lists(st.integers(0, 40), max_size=6), min_size=1, max_size=12),
    st.booleans(),
)
def test_no_twin_is_lost_between_chunks(chunks: list[list[int]], rising: bool) -> None:
    if rising:
        # Sorted over all chunks: most ends of chunks are cuts, and some have a twin on either side.
        numbers = iter(sorted(n for chunk in chunks for n in chunk))
        chunks = [[next(numbers) for _ in chunk] for chunk in chunks]
    column = pa.chunked_array([pa.array(chunk, pa.int64()) for chunk in chunks])
    table = pa.table({"a": column, "b": pa.array([0] * len(column), pa.int64())})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fingerprint, "STRETCH_ROWS", 1)
        found = fingerprint.shared(table, ["a", "b"])
    values = column.to_pylist()
    twins = [values.count(n) > 1 for n in values]
    assert (np.zeros(len(values), np.bool_) if found is None else found).tolist() == twins


def test_keys_that_grow_are_compared_in_stretches() -> None:
    parts = [[3, 1, 2], [5, 4], [7, 6], [8, 9]]
    growing = pa.table({"a": pa.chunked_array(parts, pa.int64())})
    holes = pa.table({"a": pa.chunked_array([[1, None], [2, 3], [4, 5]], pa.int64())})
    touching = pa.table({"a": pa.chunked_array([[1, 2], [2, 3], [4, 5]], pa.int64())})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fingerprint, "STRETCH_ROWS", 1)
        assert [_ends(growing), _ends(holes), _ends(touching)] == [[3, 5, 7, 9], [6], [4, 6]]
        patch.setattr(fingerprint, "STRETCH_ROWS", 4)
        assert _ends(growing) == [5, 9]


def _ends(table: pa.Table) -> list[int]:
    return [stretch.stop for stretch in fingerprint._stretches(table, ["a"])]

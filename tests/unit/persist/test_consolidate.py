"""Consolidation against a model that counts rows by their bits."""

from __future__ import annotations

import struct
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.persist.consolidate import DIFF, TIME, consolidate

FLOATS = [0.0, -0.0, float("nan"), 1.5, float("inf")]
TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "long": (pa.int64(), st.integers(0, 2)),
    "double": (pa.float64(), st.sampled_from(FLOATS)),
    "single": (pa.float32(), st.sampled_from(FLOATS)),
    "text": (pa.string(), st.sampled_from(["", "a", "ab"])),
    "word": (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(["", "a"])),
    "list": (pa.list_(pa.float64()), st.lists(st.sampled_from(FLOATS), max_size=2)),
    "texts": (
        pa.list_(pa.string()),
        st.lists(st.one_of(st.none(), st.sampled_from(["", "a", "ab"])), max_size=2),
    ),
    "struct": (
        pa.struct([("a", pa.int64()), ("b", pa.list_(pa.int32()))]),
        st.fixed_dictionaries(
            {
                "a": st.one_of(st.none(), st.integers(0, 1)),
                "b": st.one_of(st.none(), st.lists(st.integers(0, 1), max_size=1)),
            }
        ),
    ),
    "moments": (
        pa.list_(pa.timestamp("ns", "UTC")),
        st.lists(st.sampled_from([0, 1, 1000]), max_size=2),
    ),
    "map": (
        pa.map_(pa.string(), pa.int64()),
        st.dictionaries(st.sampled_from("ab"), st.integers(0, 1)).map(lambda d: list(d.items())),
    ),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    names = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=3, unique=True))
    rows = draw(st.integers(0, 12))
    columns: dict[str, Any] = {}
    for name in names:
        type_, values = TYPES[name]
        drawn = draw(st.lists(st.one_of(st.none(), values), min_size=rows, max_size=rows))
        columns[name] = pa.array(drawn, type_)
    longs = st.lists(st.integers(0, 1), min_size=rows, max_size=rows)
    columns[TIME] = pa.array(draw(longs), pa.int64())
    diffs = st.lists(st.integers(-2, 2), min_size=rows, max_size=rows)
    columns[DIFF] = pa.array(draw(diffs), pa.int64())
    return pa.table(columns)


def bits(value: Any) -> Any:
    """Return a value that is equal to another iff both are the same bits."""
    match value:
        case float():
            return struct.pack("<d", value)
        case pd.Timestamp():
            return value.value
        case list() if value and isinstance(value[0], tuple):
            return tuple(sorted((bits(key), bits(item)) for key, item in value))
        case list():
            return ("list", *(bits(item) for item in value))
        case dict():
            return tuple(bits(item) for item in value.values())
        case _:
            return value


def model(table: pa.Table) -> Counter[Any]:
    counts: Counter[Any] = Counter()
    for row in table.to_pylist():
        diff = row.pop(DIFF)
        counts[tuple(bits(value) for value in row.values())] += diff
    return Counter({row: diff for row, diff in counts.items() if diff})


@given(tables())
def test_it_is_the_model(table: pa.Table) -> None:
    result = consolidate(table)
    assert result.schema == table.schema
    expected = model(table)
    assert model(result) == expected
    assert len(result) == len(expected), "no row twice, none with diff 0"
    assert consolidate(result) is result


@given(tables())
def test_the_order_is_that_of_first_appearance(table: pa.Table) -> None:
    def seen(rows: pa.Table) -> list[Any]:
        return [tuple(bits(v) for n, v in row.items() if n != DIFF) for row in rows.to_pylist()]

    order = {row: number for number, row in reversed(list(enumerate(seen(table))))}
    positions = [order[row] for row in seen(consolidate(table))]
    assert positions == sorted(positions)


def test_nothing_to_do_is_the_same_table() -> None:
    table = pa.table({"a": [1, 2], TIME: [1, 1], DIFF: [1, -1]})
    assert consolidate(table) is table
    assert consolidate(table.slice(0, 1)).num_rows == 1
    assert consolidate(pa.table({"a": [1], TIME: [1], DIFF: [0]})).num_rows == 0


def test_chunks_and_columns_without_data() -> None:
    part = pa.table({TIME: [1, 2], DIFF: [1, 1]})
    table = pa.concat_tables([part, part])
    assert consolidate(table).to_pylist() == [{TIME: 1, DIFF: 2}, {TIME: 2, DIFF: 2}]


def test_a_map_is_the_set_of_its_entries() -> None:
    maps = pa.array([[("a", 1), ("b", 2)], [("b", 2), ("a", 1)]], pa.map_(pa.string(), pa.int64()))
    table = pa.table({"m": maps, TIME: [1, 1], DIFF: [1, -1]})
    assert consolidate(table).num_rows == 0


def test_nan_of_other_bits_is_another_row() -> None:
    nans = np.array([0x7FF8000000000000, 0x7FF8000000000001, 0x7FF8000000000000], np.uint64)
    table = pa.table({"a": nans.view(np.float64), TIME: [1] * 3, DIFF: [1] * 3})
    assert consolidate(table)[DIFF].to_pylist() == [2, 1]


@pytest.mark.parametrize("column", [TIME, DIFF])
def test_a_null_or_another_type_is_a_defect(column: str) -> None:
    columns = {TIME: pa.array([1, 2]), DIFF: pa.array([1, 1]), column: pa.array([1, None])}
    if column == DIFF:
        with pytest.raises(AssertionError, match="NULLs"):
            consolidate(pa.table(columns))
    columns[DIFF] = pa.array([1, 1], pa.int32())
    with pytest.raises(AssertionError, match="not int64"):
        consolidate(pa.table(columns))

"""The canonical order: the bytes that define it, and the vectorised sort that must agree."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
import os
import struct
from functools import cmp_to_key
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.collection.order import NoOrder, order_by_sql, order_key, row_key, sort_indices
from headwater.collection.types import by_spark
from headwater.persist.consolidate import consolidate

VECTORS = Path(__file__).parents[2] / "formats" / "order_v1.json"


def _from_bits(bits: int) -> float:
    value: float = struct.unpack(">d", bits.to_bytes(8, "big"))[0]
    return value


NANS = [_from_bits(bits) for bits in (0x7FF8000000000000, 0x7FF8000000000001, 0xFFF8000000000000)]
# Few values each: what is equal, or nearly, is where an order goes wrong.
VALUES: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [False, True],
    pa.int8(): [-128, -1, 0, 1, 127],
    pa.int32(): [-(2**31), -1, 0, 1, 2**31 - 1],
    pa.int64(): [-(2**63), -1, 0, 1, 2**63 - 1],
    pa.uint16(): [0, 1, 65535],
    pa.float32(): [-math.inf, -1.5, -0.0, 0.0, 1e-45, 1.5, math.inf, *NANS],
    pa.float64(): [-math.inf, -1.5, -5e-324, -0.0, 0.0, 5e-324, 1.5, math.inf, *NANS],
    pa.decimal128(5, 2): [decimal.Decimal(n) / 100 for n in (-99999, -1, 0, 1, 99999)],
    pa.decimal128(38, 0): [decimal.Decimal(n) for n in (-(10**37), -1, 0, 10**37)],
    pa.string(): ["", "\0", "\0\0", "\1", "a", "a\0", "ab", "\u00e9", "\uffff", "\U0001f600"],
    pa.large_string(): ["", "b"],
    pa.string_view(): ["", "a", "ab"],
    pa.binary(): [b"", b"\0", b"\0\xff", b"\x7f", b"\x80", b"\xff"],
    pa.binary(2): [b"\0\0", b"\0\xff", b"\xff\0"],
    pa.date32(): [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2026, 11, 15)],
    pa.timestamp("us"): [-62_135_596_800_000_000, -1, 0, 1_767_225_600_000_000],
    pa.timestamp("us", "UTC"): [dt.datetime(1970, 1, 1, tzinfo=dt.UTC)],
    pa.time64("ns"): [dt.time(0), dt.time(23, 59, 59, 999999)],
    pa.duration("us"): [dt.timedelta(days=-1), dt.timedelta(0), dt.timedelta(microseconds=1)],
    pa.null(): [],
    pa.dictionary(pa.int8(), pa.string()): ["b", "a"],
}


def _values(type_: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_list(type_):
        return st.none() | st.lists(_values(type_.value_type), max_size=3)
    if pa.types.is_struct(type_):
        parts = {field.name: _values(field.type) for field in type_}
        return st.none() | st.fixed_dictionaries(parts)
    if pa.types.is_map(type_):
        keys = st.sampled_from(VALUES[type_.key_type])
        entries = st.lists(st.tuples(keys, _values(type_.item_type)), max_size=3)
        return st.none() | entries
    return st.sampled_from([None, *VALUES[type_]])


FLAT = list(VALUES)
NESTED = [
    pa.list_(pa.int32()),
    pa.list_(pa.float64()),
    pa.list_(pa.list_(pa.string())),
    pa.struct([("a", pa.float32()), ("b", pa.string())]),
    pa.map_(pa.string(), pa.float64()),
    pa.struct([("m", pa.map_(pa.int32(), pa.string())), ("l", pa.list_(pa.binary()))]),
]
kinds = st.lists(st.sampled_from([*FLAT, *NESTED]), min_size=1, max_size=3)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    types = draw(kinds)
    count = draw(st.integers(0, 12))
    columns = [
        pa.array(draw(st.lists(_values(type_), min_size=count, max_size=count)), type_)
        for type_ in types
    ]
    table = pa.table(columns, names=[f"c{n}" for n in range(len(types))])
    cut = draw(st.integers(0, count))
    return pa.concat_tables([table.slice(0, cut), table.slice(cut)])


def _keys(table: pa.Table) -> list[bytes]:
    types = table.schema.types
    columns = table.columns
    return [row_key([column[n] for column in columns], types) for n in range(table.num_rows)]


@given(tables())
def test_the_sort_follows_the_bytes(table: pa.Table) -> None:
    keys = _keys(table)
    expected = sorted(range(table.num_rows), key=lambda row: (keys[row], row))
    assert sort_indices(table).tolist() == expected


@given(tables())
def test_rows_are_equal_in_order_iff_they_are_identical(table: pa.Table) -> None:
    """Identity is consolidation's: what it would add up has one key, and nothing else has."""
    ones = pa.array([1] * table.num_rows, pa.int64())
    # Views are no type of ours (they are cast when they come in), and Arrow cannot take from them.
    types = [pa.string() if pa.types.is_string_view(t) else t for t in table.schema.types]
    table = table.cast(pa.schema(list(zip(table.column_names, types, strict=True))))
    updates = table.append_column("__time", ones).append_column("__diff", ones)
    assert consolidate(updates).num_rows == len(set(_keys(table)))


def _compare(left: Any, right: Any, type_: pa.DataType) -> int:
    """Compare as the docstring says, by hand and without bytes (no ties)."""
    if left is None or right is None:
        return (left is not None) - (right is not None)
    if pa.types.is_list(type_):
        for a, b in zip(left, right, strict=False):
            if order := _compare(a, b, type_.value_type):
                return order
        return len(left) - len(right)
    if pa.types.is_struct(type_):
        compared = (_compare(left[f.name], right[f.name], f.type) for f in type_)
        return next((order for order in compared if order), 0)
    if pa.types.is_floating(type_) and (math.isnan(left) or math.isnan(right)):
        return math.isnan(left) - math.isnan(right)
    if pa.types.is_string(type_):
        left, right = left.encode(), right.encode()
    return bool(left > right) - bool(left < right)


plain = [type_ for type_ in [*FLAT, *NESTED] if not pa.types.is_map(type_) and type_ != NESTED[-1]]


@pytest.mark.parametrize("type_", plain, ids=str)
def test_the_bytes_follow_the_definition(type_: pa.DataType) -> None:
    seed = int(os.environ.get("SEED", Random().randrange(2**32)))
    print(f"SEED={seed}")
    random = Random(seed)
    values = [_random_value(type_, random) for _ in range(60)]
    keyed = sorted(values, key=lambda value: order_key(value, type_))
    by_hand = sorted(values, key=cmp_to_key(lambda a, b: _compare(a, b, type_)))
    for a, b in zip(keyed, by_hand, strict=True):
        assert _compare(a, b, type_) == 0, (a, b)


def _random_value(type_: pa.DataType, random: Random) -> Any:
    if random.random() < 0.15:
        return None
    if pa.types.is_list(type_):
        return [_random_value(type_.value_type, random) for _ in range(random.randrange(4))]
    if pa.types.is_struct(type_):
        return {field.name: _random_value(field.type, random) for field in type_}
    return random.choice(VALUES[type_]) if VALUES[type_] else None


def test_zeros_are_equal_until_everything_else_is() -> None:
    """The tie of a column never comes before the next column."""
    table = pa.table({"f": [0.0, -0.0, -0.0, 0.0], "s": ["a", "b", "a", "b"]})
    assert sort_indices(table).tolist() == [2, 0, 1, 3]


def test_some_columns_only() -> None:
    table = pa.table({"a": [2, 1, 2, 1], "b": [1, 2, 0, 1]})
    assert sort_indices(table, ["a"]).tolist() == [1, 3, 0, 2]
    assert sort_indices(table, ["a", "b"]).tolist() == [3, 1, 2, 0]
    assert sort_indices(table, []).tolist() == [0, 1, 2, 3]
    assert sort_indices(table.slice(0, 0)).tolist() == []


def test_a_map_is_ordered_by_its_entries_not_by_how_they_came() -> None:
    type_ = pa.map_(pa.string(), pa.int32())
    assert order_key([("b", 1), ("a", 2)], type_) == order_key([("a", 2), ("b", 1)], type_)
    assert order_key([("a", 1), ("c", 0)], type_) < order_key([("b", 0)], type_)


@pytest.mark.parametrize("type_", [pa.uint64(), pa.float16(), pa.month_day_nano_interval()])
def test_other_types_have_no_order(type_: pa.DataType) -> None:
    value = (0, 0, 1) if pa.types.is_interval(type_) else 1
    with pytest.raises(NoOrder):
        order_key(value, type_)
    with pytest.raises(NoOrder):
        sort_indices(pa.table({"a": pa.array([value, None], type_)}))


def test_what_spark_cannot_order() -> None:
    with pytest.raises(NoOrder, match="inside another value"):
        order_by_sql([("m", pa.list_(pa.map_(pa.int32(), pa.int32())))])


def _parsed(text: Any, type_: pa.DataType) -> Any:
    """Read a value of the vectors: text for all but NULL, and lists of them."""
    t = pa.types
    if text is None or t.is_string(type_):
        return text
    if t.is_list(type_):
        return [_parsed(item, type_.value_type) for item in text]
    if t.is_map(type_):
        return [(_parsed(k, type_.key_type), _parsed(v, type_.item_type)) for k, v in text]
    if t.is_struct(type_):
        return {f.name: _parsed(item, f.type) for f, item in zip(type_, text, strict=True)}
    if t.is_boolean(type_):
        return text == "true"
    if t.is_floating(type_):
        return float(text)
    if t.is_binary(type_):
        return bytes.fromhex(text)
    if t.is_decimal(type_):
        return decimal.Decimal(text)
    return pa.scalar(int(text), pa.int64()).cast(_stored(type_)).cast(type_).as_py()


def _stored(type_: pa.DataType) -> pa.DataType:
    return pa.int32() if pa.types.is_date32(type_) else pa.int64()


def test_the_vectors() -> None:
    """Ascending, with their bytes; an existing line never changes."""
    stored = json.loads(VECTORS.read_text())
    for group in stored["vectors"]:
        type_ = by_spark(group["type"]).arrow
        keys = [order_key(_parsed(text, type_), type_).hex() for text, _ in group["ascending"]]
        assert all(a < b for a, b in pairwise(keys)), group["type"]
        if os.environ.get("REWRITE") == "1":
            group["ascending"] = [
                [text, key] for (text, _), key in zip(group["ascending"], keys, strict=True)
            ]
        assert keys == [key for _, key in group["ascending"]], group["type"]
    if os.environ.get("REWRITE") == "1":
        VECTORS.write_text(json.dumps(stored, indent=1, ensure_ascii=True) + "\n")

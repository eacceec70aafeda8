"""Merges against a model: the same collection at every time from ``since`` on."""

from __future__ import annotations

import struct
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.errors import InvalidUsage
from headwater.collection import run_merge
from headwater.collection.key_hash import HASH, key_hash
from headwater.collection.run import Run, write_run
from headwater.collection.run_merge import merge_runs
from headwater.persist.consolidate import DIFF, TIME

stored = st.tuples(
    st.one_of(st.none(), st.integers(0, 3)),
    st.sampled_from([0.0, -0.0, float("nan"), 1.5]),
    st.integers(0, 6),
    st.integers(-2, 2),
)


def run_of(rows: list[Any], modulus: int | None = None) -> Run:
    keys = pa.array([row[0] for row in rows], pa.int64())
    hashes = key_hash([keys])
    table = pa.table(
        {
            "k": keys,
            "v": pa.array([row[1] for row in rows], pa.float64()),
            TIME: pa.array([row[2] for row in rows], pa.int64()),
            DIFF: pa.array([row[3] for row in rows], pa.int64()),
            HASH: pa.array(hashes if modulus is None else hashes % modulus),
        }
    )
    return Run.open(write_run(table, ["k"]))


def collection_at(rows: list[Any], time: int) -> Counter[Any]:
    counts: Counter[Any] = Counter()
    for key, value, at, diff in rows:
        if at <= time:
            counts[key, struct.pack("<d", value)] += diff
    return Counter({row: count for row, count in counts.items() if count})


@given(
    st.lists(st.lists(stored, max_size=15), min_size=1, max_size=4),
    st.one_of(st.none(), st.integers(0, 7)),
    st.sampled_from([None, 1, 2]),
)
def test_the_collection_is_the_same_from_since_on(
    runs: list[list[Any]], since: int | None, modulus: int | None
) -> None:
    merged = merge_runs([run_of(rows, modulus) for rows in runs], since)
    rows = [tuple(row[n] for n in ("k", "v", TIME, DIFF)) for row in merged.to_pylist()]
    everything = [row for one in runs for row in one]
    for time in range(since or 0, 9):
        assert collection_at(rows, time) == collection_at(everything, time)
    assert all(row[2] >= (since or 0) for row in rows)
    assert len({(row[0], struct.pack("<d", row[1]), row[2]) for row in rows}) == len(rows)
    assert all(row[3] for row in rows)
    order = list(zip(merged[HASH].to_pylist(), merged[TIME].to_pylist(), strict=True))
    assert order == sorted(order)
    again = Run.open(write_run(merged, ["k"]))
    assert again.rows == len(rows)
    assert repr(merge_runs([again], since).to_pylist()) == repr(merged.to_pylist())


def test_nested_values_and_a_column_added_later() -> None:
    old = pa.table({"k": [1], "l": [[1, 2]], TIME: [1], DIFF: [1]})
    new = pa.table(
        {"k": [1, 1], "l": [[1, 2], [3]], "more": [None, "x"], TIME: [2, 2], DIFF: [-1, 1]}
    )
    new = new.cast(new.schema.set(2, pa.field("more", pa.string())))
    merged = merge_runs([Run.open(write_run(t, ["k"])) for t in (old, new)], since=3)
    assert merged.drop_columns([HASH]).to_pylist() == [
        {"k": 1, "l": [3], TIME: 3, DIFF: 1, "more": "x"}
    ]


def test_a_lost_diff_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def loses(updates: pa.Table) -> pa.Table:
        return updates.slice(1)

    monkeypatch.setattr(run_merge, "_consolidate_sorted", loses)
    with pytest.raises(AssertionError, match="sum of diffs"):
        merge_runs([run_of([(1, 1.5, 1, 1), (2, 1.5, 1, 1)])])


def test_mistakes() -> None:
    with pytest.raises(InvalidUsage, match="nothing to merge"):
        merge_runs([])
    other = pa.table({"k": [1], "v": [1.5], TIME: [1], DIFF: [1]})
    with pytest.raises(InvalidUsage, match="different keys"):
        merge_runs([run_of([(1, 1.5, 1, 1)]), Run.open(write_run(other, ["v"]))])


def test_many_rows_of_one_key_and_no_rows() -> None:
    numbers = np.arange(5000)
    table = pa.table(
        {"k": numbers * 0, "v": numbers % 10, TIME: numbers % 3, DIFF: numbers * 0 + 1}
    )
    run = Run.open(write_run(table, ["k"]))
    merged = merge_runs([run, run], since=2)
    assert merged.num_rows == 10
    assert merged[DIFF].to_pylist() == [1000] * 10
    empty = Run.open(write_run(table.slice(0, 0), ["k"]))
    assert merge_runs([empty, empty], since=9).num_rows == 0

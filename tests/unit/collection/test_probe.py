"""Probes against an oracle that looks at every row; hashes are made to collide on purpose."""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.base.errors import InvalidUsage
from headwater.collection import run_file
from headwater.collection.key import NoCommonKeyType
from headwater.collection.key_hash import HASH, key_hash
from headwater.collection.probe import PROBE_INDEX, Kept, probe
from headwater.collection.run import Run, write_run
from headwater.collection.run_file import CorruptRun
from headwater.persist.consolidate import DIFF, TIME

D = decimal.Decimal
NAN = float("nan")

KEY_VALUES: dict[str, tuple[pa.DataType, pa.DataType, list[Any]]] = {
    "integer": (pa.int32(), pa.int64(), [0, 1, 2]),
    "text": (pa.string(), pa.large_string(), ["", "a", "b"]),
    "double": (pa.float64(), pa.float32(), [0.0, -0.0, NAN, 1.5]),
    "decimal": (pa.decimal128(10, 2), pa.decimal128(30, 10), [D("1.10"), D("0.00"), D("2.00")]),
}
"""By name: the stored type, the type probed with, and few values, so that keys meet."""


def sql_equal(a: Any, b: Any, null_safe: bool) -> bool:
    if a is None or b is None:
        return null_safe and a is None and b is None
    return bool(a == b or (a != a and b != b))


def keys_of(kinds: Sequence[str], stored: bool, rows: list[tuple[Any, ...]]) -> list[Any]:
    types = [KEY_VALUES[kind][0 if stored else 1] for kind in kinds]
    return [pa.array([row[n] for row in rows], type_) for n, type_ in enumerate(types)]


def colliding(keys: list[Any], modulus: int | None) -> np.ndarray[Any, Any]:
    hashes = key_hash(keys)
    return hashes if modulus is None else hashes % modulus


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    kinds = draw(st.lists(st.sampled_from(sorted(KEY_VALUES)), min_size=1, max_size=2))
    key = st.tuples(*(st.one_of(st.none(), st.sampled_from(KEY_VALUES[k][2])) for k in kinds))
    stored = st.tuples(key, st.integers(0, 6), st.integers(-2, 2), st.integers(0, 3))
    return {
        "kinds": kinds,
        "runs": draw(st.lists(st.lists(stored, max_size=25), min_size=1, max_size=3)),
        "probes": draw(st.lists(st.tuples(key, st.integers(-1, 7)), max_size=8)),
        "strict": draw(st.booleans()),
        "ignore_from": draw(st.one_of(st.none(), st.integers(0, 7))),
        "null_safe": draw(st.one_of(st.booleans(), st.tuples(*(st.booleans() for _ in kinds)))),
        "modulus": draw(st.sampled_from([None, 1, 3])),
        "stride": draw(st.sampled_from([None, 1, 2, 3, 1024])),
    }


def written(case: dict[str, Any], rows: list[Any]) -> Run:
    keys = keys_of(case["kinds"], True, [row[0] for row in rows])
    columns = {f"k{n}": column for n, column in enumerate(keys)}
    columns["v"] = pa.array([row[3] for row in rows], pa.int64())
    columns[TIME] = pa.array([row[1] for row in rows], pa.int64())
    columns[DIFF] = pa.array([row[2] for row in rows], pa.int64())
    columns[HASH] = pa.array(colliding(keys, case["modulus"]))
    key = [f"k{n}" for n in range(len(keys))]
    if case["stride"] is None:
        return Run.of(pa.table(columns), key)
    return Run.open(write_run(pa.table(columns), key, index_stride=case["stride"]))


def oracle(case: dict[str, Any]) -> list[Any]:
    flags = case["null_safe"]
    flags = [flags] * len(case["kinds"]) if isinstance(flags, bool) else flags
    found = []
    for rows in case["runs"]:
        for index, (wanted, at) in enumerate(case["probes"]):
            for key, time, diff, value in rows:
                early = time < at if case["strict"] else time <= at
                ignored = case["ignore_from"] is not None and time >= case["ignore_from"]
                same = all(map(sql_equal, key, wanted, flags))
                if early and not ignored and same:
                    found.append((index, repr(key), value, time, diff))
    return sorted(found)


@settings(max_examples=max(150, settings.default.max_examples))  # type: ignore[union-attr]
@given(cases())
def test_it_finds_what_the_oracle_finds(case: dict[str, Any]) -> None:
    runs = [written(case, rows) for rows in case["runs"]]
    keys = keys_of(case["kinds"], False, [key for key, _ in case["probes"]])
    result = probe(
        runs,
        keys,
        at=np.array([at for _, at in case["probes"]], np.int64),
        strict=case["strict"],
        ignore_from=case["ignore_from"],
        null_safe=case["null_safe"],
        hashes=colliding(keys, case["modulus"]),
    )
    names = [f"k{n}" for n in range(len(keys))]
    assert result.column_names == [PROBE_INDEX, *names, "v", TIME, DIFF]
    found = [
        (row[PROBE_INDEX], repr(tuple(row[n] for n in names)), row["v"], row[TIME], row[DIFF])
        for row in result.to_pylist()
    ]
    assert sorted(found) == oracle(case)


@settings(max_examples=max(100, settings.default.max_examples))  # type: ignore[union-attr]
@given(cases(), st.sets(st.integers(0, 3)))
def test_where_pairs_are_many_only_rows_of_use_are_paired(
    case: dict[str, Any], used: set[int]
) -> None:
    runs = [written(case, rows) for rows in case["runs"]]
    keys = keys_of(case["kinds"], False, [key for key, _ in case["probes"]])
    asked = 0

    def passes(rows: pa.Table) -> Any:
        nonlocal asked
        asked += rows.num_rows
        return np.isin(rows.column("v").to_numpy(), list(used))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headwater.collection.probe.PAIRS_MANY", 1)
        result = probe(
            runs,
            keys,
            at=np.array([at for _, at in case["probes"]], np.int64),
            strict=case["strict"],
            ignore_from=case["ignore_from"],
            null_safe=case["null_safe"],
            hashes=colliding(keys, case["modulus"]),
            kept=Kept(("v",), passes),
        )
    names = [f"k{n}" for n in range(len(keys))]
    found = [
        (row[PROBE_INDEX], repr(tuple(row[n] for n in names)), row["v"], row[TIME], row[DIFF])
        for row in result.to_pylist()
    ]
    assert sorted(found) == [each for each in oracle(case) if each[2] in used]
    assert asked <= sum(map(len, case["runs"])), "each row is asked about once"


def arrangement(rows: int, keys: int) -> pa.Table:
    numbers = np.arange(rows)
    return pa.table(
        {
            "k": numbers % keys,
            "name": pa.array([f"row {n}" for n in range(rows)]),
            TIME: numbers % 10,
            DIFF: np.ones(rows, np.int64),
        }
    )


def test_a_probe_reads_little_of_a_large_run(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_bytes(write_run(arrangement(200_000, 200_000), ["k"]))
    run = Run.open(path)
    result = probe([run], [pa.array([5, 77_777, 10**9])], at=9).sort_by(PROBE_INDEX)
    assert result.select([PROBE_INDEX, "k", "name"]).to_pylist() == [
        {PROBE_INDEX: 0, "k": 5, "name": "row 5"},
        {PROBE_INDEX: 1, "k": 77_777, "name": "row 77777"},
    ]
    assert run.verified_bytes < 40 * run_file.BLOCK_LENGTH < run.arrow_bytes / 20


def test_a_probe_looks_only_into_runs_with_its_hashes(tmp_path: Path) -> None:
    """An arrangement of many rows is one run per range of hashes."""
    keys = np.arange(60_000)
    hashes = key_hash([pa.array(keys)])
    order = np.argsort(hashes)
    runs = []
    for number, half in enumerate(np.array_split(order, 2)):
        rows = pa.table({"k": keys[half], TIME: np.zeros_like(half), DIFF: np.ones_like(half)})
        path = tmp_path / f"run {number}"
        path.write_bytes(write_run(rows, ["k"]))
        runs.append(Run.open(path))
    before = runs[1].verified_bytes
    ends = keys[order[[0, 29_999, 30_000, 59_999]]]
    assert sorted(probe(runs[:1], [pa.array(ends)])["k"].to_pylist()) == sorted(ends[:2].tolist())
    assert probe(runs, [pa.array(ends[:2])]).num_rows == 2
    assert runs[1].verified_bytes == before
    assert sorted(probe(runs, [pa.array(ends)])[PROBE_INDEX].to_pylist()) == [0, 1, 2, 3]
    assert runs[1].verified_bytes > before


@pytest.mark.parametrize("block_length", [8, 64])
def test_a_probe_meets_the_damage_or_answers_right(
    block_length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks, or pieces, of one word, bytes of each flipped: no answer rests on a damaged one."""
    if block_length == 64:
        monkeypatch.setattr(run_file.RunFile, "_is_sparse", lambda *_: True)
    sound = write_run(arrangement(40, 20), ["k"], block_length=block_length, index_stride=4)
    keys = [pa.array([3, 25])]
    expected = probe([Run.open(sound)], keys, at=5)
    assert expected.num_rows == 2
    head = Run.open(sound)._file.head
    caught = 0
    # Every third byte: at least two of each word, at changing places in it.
    positions = range(head.body_offset, head.body_offset + head.body_length, 3)
    for position in positions:
        damaged = bytearray(sound)
        damaged[position] ^= 0xFF
        try:
            assert probe([Run.open(bytes(damaged))], keys, at=5) == expected, position
        except CorruptRun:
            caught += 1
    assert 0 < caught < len(positions) / 2


def test_all_keys_null() -> None:
    table = pa.table({"k": pa.nulls(5, pa.int64()), TIME: [1] * 5, DIFF: [1] * 5})
    run = Run.open(write_run(table, ["k"]))
    keys = [pa.array([None, 1], pa.int64())]
    assert probe([run], keys).num_rows == 0
    assert probe([run], keys, null_safe=True)[PROBE_INDEX].to_pylist() == [0] * 5
    assert probe([run], [pa.nulls(1)], null_safe=True).num_rows == 5


def test_times_at_the_edge() -> None:
    table = pa.table({"k": [1, 1, 1], TIME: [4, 5, 6], DIFF: [1, 1, 1]})
    run = Run.open(write_run(table, ["k"]))

    def times(**options: Any) -> list[int]:
        found: list[int] = probe([run], [pa.array([1])], **options)[TIME].to_pylist()
        return found

    assert times() == [4, 5, 6]
    assert times(at=5) == [4, 5]
    assert times(at=5, strict=True) == [4]
    assert times(at=2**63 - 1) == [4, 5, 6]
    assert times(at=9, ignore_from=6) == [4, 5]
    assert times(ignore_from=4) == []


def test_several_runs_with_a_column_added_later() -> None:
    old = pa.table({"k": [1, 2], TIME: [1, 1], DIFF: [1, 1]})
    new = pa.table({"k": [1], "more": ["x"], TIME: [2], DIFF: [-1]})
    runs = [Run.open(write_run(old, ["k"])), Run.open(write_run(new, ["k"]))]
    result = probe(runs, [pa.array([1])], columns=["k", "more", DIFF])
    assert result.to_pylist() == [
        {PROBE_INDEX: 0, "k": 1, "more": None, DIFF: 1},
        {PROBE_INDEX: 0, "k": 1, "more": "x", DIFF: -1},
    ]
    schema = runs[1].schema
    assert probe([runs[0]], [pa.array([1])], schema=schema)["more"].to_pylist() == [None]
    assert probe([], [pa.array([1])], schema=schema).num_rows == 0


def test_keys_may_be_a_table_chunked_and_encoded() -> None:
    table = pa.table({"k": ["a", "b"], TIME: [1, 1], DIFF: [1, 1]})
    run = Run.open(write_run(table, ["k"]))
    chunked = pa.chunked_array([["b"], ["c", "a"]])
    for keys in (
        pa.table({"other": chunked}),
        [chunked.dictionary_encode()],
        [chunked.cast(pa.string_view())],
    ):
        result = probe([run], keys).sort_by(PROBE_INDEX)
        assert result.select([PROBE_INDEX, "k"]).to_pylist() == [
            {PROBE_INDEX: 0, "k": "b"},
            {PROBE_INDEX: 2, "k": "a"},
        ]
    assert probe([run], [pa.array([], pa.string())]).num_rows == 0


def test_mistakes() -> None:
    run = Run.open(write_run(arrangement(10, 5), ["k"]))
    with pytest.raises(NoCommonKeyType, match="hashed differently"):
        probe([run], [pa.array([D(1)])])
    with pytest.raises(NoCommonKeyType, match="no common type"):
        probe([run], [pa.array(["1"])])
    with pytest.raises(InvalidUsage, match="probed with 2"):
        probe([run], [pa.array([1]), pa.array([2])])
    with pytest.raises(InvalidUsage, match="at least one key column"):
        probe([run], [])
    with pytest.raises(InvalidUsage, match="needs the schema"):
        probe([], [pa.array([1])])

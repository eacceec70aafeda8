"""Keyed runs: what is written is read; what is damaged is named."""

from __future__ import annotations

import datetime as dt
import decimal
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.errors import HeadwaterError, InvalidUsage
from headwater.collection import run_file
from headwater.collection.key import NotAKey
from headwater.collection.key_hash import HASH, key_hash
from headwater.collection.probe import PROBE_INDEX, probe
from headwater.collection.run import InvalidRun, Run, write_run
from headwater.collection.run_file import CorruptRun, NewerRunFormat
from headwater.persist.consolidate import DIFF, TIME

FORMATS = Path(__file__).parents[2] / "formats"
GOLDEN = {version: FORMATS / f"run_v{version}.bin" for version in (1, 2)}
D = decimal.Decimal


def golden_updates() -> pa.Table:
    """Return the updates of ``tests/formats/run_v*.bin``, which are never written again."""
    return pa.table(
        {
            "k": pa.array([1, 2, None, 2, 3], pa.int32()),
            "name": pa.array(["one", "two", "", "two", None]),
            "price": pa.array(
                [D("1.10"), D("-0.01"), None, D("0"), D("9.99")], pa.decimal128(9, 2)
            ),
            "tags": pa.array([["a", "b"], [], None, [None], ["c"]], pa.list_(pa.string())),
            "place": pa.array(
                [{"x": 1.5, "y": None}, None, {"x": -0.0, "y": True}, None, {"x": 2.0, "y": False}],
                pa.struct([("x", pa.float64()), ("y", pa.bool_())]),
            ),
            "seen": pa.array(
                [dt.datetime(2026, 11, 15, tzinfo=dt.UTC)] * 5, pa.timestamp("us", "UTC")
            ),
            "props": pa.array(
                [[("a", 1)], [], None, [("b", None)], []], pa.map_(pa.string(), pa.int64())
            ),
            TIME: pa.array([5, 6, 5, 5, 9], pa.int64()),
            DIFF: pa.array([1, -1, 2, 1, 1], pa.int64()),
        }
    )


def by_key(table: pa.Table) -> list[Any]:
    return sorted(table.to_pylist(), key=repr)


def many(rows: int) -> pa.Table:
    numbers = np.arange(rows)
    return pa.table(
        {
            "k": numbers % 997,
            "s": pa.array([None if n % 7 == 0 else "x" * (n % 50) for n in range(rows)]),
            "l": pa.array([[n] * (n % 4) for n in range(rows)], pa.list_(pa.int64())),
            TIME: numbers // 100,
            DIFF: np.ones(rows, np.int64),
        }
    )


@pytest.mark.parametrize("version", GOLDEN)
def test_golden_file_is_readable(version: int) -> None:
    golden = GOLDEN[version]
    if os.environ.get("REWRITE") == "1" and not golden.exists():
        golden.write_bytes(write_run(golden_updates(), ["k", "name"]))
    assert golden.read_bytes()[-16] == version
    run = Run.open(golden)
    run.verify_all()
    assert run.key == ("k", "name")
    assert (run.rows, run.min_time, run.max_time) == (5, 5, 9)
    table = run.table()
    assert by_key(table.drop_columns([HASH])) == by_key(golden_updates())
    assert table[HASH].to_pylist() == key_hash([table["k"], table["name"]]).tolist()
    assert table[HASH].to_pylist() == sorted(table[HASH].to_pylist())


def test_what_is_written_now_is_the_newest_golden_file() -> None:
    assert write_run(golden_updates(), ["k", "name"]) == GOLDEN[run_file.VERSION].read_bytes()


@pytest.mark.parametrize("version", GOLDEN)
def test_every_flipped_byte_of_a_golden_file_is_caught(version: int) -> None:
    written = GOLDEN[version].read_bytes()
    for position in range(0, len(written), 7):
        damaged = bytearray(written)
        damaged[position] ^= 0x10
        with pytest.raises(CorruptRun):
            Run.open(bytes(damaged)).table()


def test_runs_of_all_versions_are_probed_together() -> None:
    runs = [Run.open(path) for path in GOLDEN.values()]
    keys = [pa.array([2, 3], pa.int32()), pa.array(["two", "three"])]
    found = probe(runs, keys, columns=["price", TIME]).to_pylist()
    once = [
        {PROBE_INDEX: 0, "price": D("0.00"), TIME: 5},
        {PROBE_INDEX: 0, "price": D("-0.01"), TIME: 6},
    ]
    assert found == once * len(runs)


@pytest.mark.parametrize("version", GOLDEN)
def test_a_tool_that_knows_only_arrow_can_read_it(version: int) -> None:
    reader = pa.ipc.open_stream(pa.memory_map(str(GOLDEN[version])))
    assert by_key(reader.read_all().drop_columns([HASH])) == by_key(golden_updates())


scalars: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "i": (pa.int16(), st.integers(-5, 5)),
    "b": (pa.bool_(), st.booleans()),
    "s": (pa.string(), st.text(max_size=5)),
    "ls": (pa.large_string(), st.text(max_size=5)),
    "f": (pa.float64(), st.floats(allow_nan=False)),
    "n": (pa.null(), st.none()),
    "fb": (pa.binary(3), st.binary(min_size=3, max_size=3)),
    "d": (pa.decimal128(20, 4), st.decimals(-1000, 1000, places=4)),
    "li": (pa.list_(pa.bool_()), st.lists(st.booleans(), max_size=9)),
    "ll": (pa.large_list(pa.string()), st.lists(st.text(max_size=3), max_size=3)),
    "fl": (pa.list_(pa.int8(), 2), st.lists(st.integers(0, 9), min_size=2, max_size=2)),
    "st": (pa.struct([("a", pa.string())]), st.fixed_dictionaries({"a": st.text(max_size=2)})),
    "m": (
        pa.map_(pa.string(), pa.list_(pa.int64())),
        st.dictionaries(st.text(max_size=2), st.lists(st.integers(0, 3), max_size=2)).map(
            lambda entries: list(entries.items())
        ),
    ),
}


@st.composite
def updates(draw: st.DrawFn) -> pa.Table:
    rows = draw(st.integers(0, 30))
    columns: dict[str, Any] = {"k": pa.array(np.arange(rows) % 5)}
    for name in draw(st.lists(st.sampled_from(sorted(scalars)), unique=True, max_size=4)):
        type_, values = scalars[name]
        drawn = draw(st.lists(st.one_of(st.none(), values), min_size=rows, max_size=rows))
        columns[name] = pa.array(drawn, type_)
    times = st.lists(st.integers(0, 9), min_size=rows, max_size=rows)
    columns[TIME] = pa.array(draw(times), pa.int64())
    columns[DIFF] = pa.array(np.ones(rows, np.int64))
    return pa.table(columns)


@given(updates(), st.data())
def test_what_is_written_is_read(table: pa.Table, data: st.DataObject) -> None:
    run = Run.open(write_run(table, ["k"]))
    stored = run.table()
    assert by_key(stored.drop_columns([HASH])) == by_key(table)
    order = [(row[HASH], row[TIME]) for row in stored.select([HASH, TIME]).to_pylist()]
    assert order == sorted(order)
    if table.num_rows:
        assert run.hash_range == (order[0][0], order[-1][0])
        times = table[TIME].to_pylist()
        assert (run.min_time, run.max_time) == (min(times), max(times))
    start = data.draw(st.integers(0, table.num_rows))
    stop = data.draw(st.integers(start, table.num_rows))
    assert run.slice(start, stop).to_pylist() == stored.to_pylist()[start:stop]
    rows = np.array(data.draw(st.lists(st.integers(0, max(0, table.num_rows - 1)))), np.int64)
    rows = rows[: table.num_rows]
    taken = run.take(rows, stored.column_names)
    again = pa.table(taken, names=stored.column_names).to_pylist()
    assert again == [stored.to_pylist()[row] for row in rows.tolist()]


def test_empty_and_one_row() -> None:
    empty = Run.open(write_run(many(0), ["k"]))
    assert (empty.rows, empty.hash_range, empty.min_time, empty.max_time) == (0, None, None, None)
    assert empty.table().schema.names == ["k", "s", "l", TIME, DIFF, HASH]
    one = Run.open(write_run(many(1), ["k"]))
    assert one.rows == 1
    assert one.table()["k"].to_pylist() == [0]


def test_a_run_in_memory_is_the_one_that_would_be_written() -> None:
    updates = golden_updates()
    kept, stored = Run.of(updates, ["k"]), Run.open(write_run(updates, ["k"]))
    assert kept.table().equals(stored.table())
    assert (kept.key, kept.rows, kept.hash_range) == (stored.key, stored.rows, stored.hash_range)
    assert (kept.min_time, kept.max_time) == (stored.min_time, stored.max_time)
    assert kept.slice(1, 3).equals(stored.slice(1, 3))
    assert Run.of(updates.slice(0, 0), ["k"]).rows == 0


def test_dictionary_and_view_columns_are_stored_plain() -> None:
    table = pa.table(
        {
            "k": pa.array(["a", "b", "a"]).dictionary_encode(),
            "v": pa.array(["x", None, "z"], pa.string_view()),
            TIME: [1, 1, 1],
            DIFF: [1, 1, 1],
        }
    )
    run = Run.open(write_run(table, ["k"]))
    assert run.schema.field("k").type == run.schema.field("v").type == pa.string()
    assert by_key(run.table().drop_columns([HASH])) == by_key(table)


def test_segments_of_a_larger_object(tmp_path: Path) -> None:
    first, second = write_run(many(3000), ["k"]), write_run(golden_updates(), ["k"])
    assert len(first) % 64 == len(second) % 64 == 0
    path = tmp_path / "object"
    path.write_bytes(first + second + first)
    for source in (path, str(path), path.read_bytes(), pa.py_buffer(path.read_bytes())):
        middle = Run.open(source, len(first), len(second))
        assert by_key(middle.table().drop_columns([HASH])) == by_key(golden_updates())
        assert Run.open(source, len(first) + len(second)).rows == 3000
    with pytest.raises(CorruptRun):
        Run.open(path, len(first), len(second) + 64)
    with pytest.raises(CorruptRun, match="cut"):
        Run.open(path, len(first), len(first) + 2 * len(second) + 64)


def test_opening_reads_the_footer_and_not_the_rows(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_bytes(write_run(many(50_000), ["k"]))
    run = Run.open(path)
    assert run.verified_bytes <= 3 * run_file.BLOCK_LENGTH
    run.slice(100, 110)
    assert run.verified_bytes < run.arrow_bytes / 20
    run.table()
    assert run.verified_bytes >= run.arrow_bytes


def test_every_flipped_byte_is_caught() -> None:
    written = write_run(golden_updates(), ["k", "name"])
    for position in range(len(written)):
        damaged = bytearray(written)
        damaged[position] ^= 0x40
        with pytest.raises(CorruptRun) as caught:
            Run.open(bytes(damaged)).table()
        assert caught.value.region, position


def test_a_short_run_is_verified_when_it_is_opened() -> None:
    written = write_run(many(1_000), ["k"])
    run = Run.open(written)
    assert run.arrow_bytes <= run_file.SHORT_BLOCKS * run_file.BLOCK_LENGTH
    assert run.verified_bytes >= run.arrow_bytes
    for position in range(0, len(written), 211):
        damaged = bytearray(written)
        damaged[position] ^= 0x40
        with pytest.raises(CorruptRun):
            Run.open(bytes(damaged))


def test_the_damaged_block_is_named() -> None:
    written = write_run(many(20_000), ["k"])
    arrow = Run.open(written).arrow_bytes
    for block in range(1, arrow // run_file.BLOCK_LENGTH - 1):
        damaged = bytearray(written)
        damaged[block * run_file.BLOCK_LENGTH + 17] ^= 1
        with pytest.raises(CorruptRun, match=f"block {block}, is corrupted"):
            Run.open(bytes(damaged)).verify_all()


def test_a_truncated_run_is_caught_at_every_length(tmp_path: Path) -> None:
    written = write_run(golden_updates(), ["k"])
    for length in range(len(written)):
        with pytest.raises(CorruptRun):
            Run.open(written[:length])
    path = tmp_path / "cut"
    for length in (0, 10, len(written) - 1):
        path.write_bytes(written[:length])
        with pytest.raises(CorruptRun):
            Run.open(path)


@pytest.mark.parametrize("block_length", [8, 64])
def test_no_row_is_returned_from_a_damaged_byte(
    block_length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks, or pieces, of one word, and bytes of each flipped: to read is to verify."""
    if block_length == 64:
        monkeypatch.setattr(run_file.RunFile, "_is_sparse", lambda *_: True)
    written = write_run(golden_updates(), ["k", "name"], block_length=block_length)
    sound = Run.open(written).table()
    head = Run.open(written)._file.head
    touched = 0
    for position in range(head.body_offset, head.body_offset + head.body_length, 3):
        damaged = bytearray(written)
        damaged[position] ^= 0xFF
        for row in (1, 4):
            rows = np.array([row])
            try:
                taken = Run.open(bytes(damaged)).take(rows, sound.column_names)
            except CorruptRun:
                touched += 1
            else:
                assert pa.table(taken, schema=sound.schema) == sound.take(pa.array(rows)), position
    assert 0 < touched < head.body_length


def with_version(written: bytes, version: int) -> bytes:
    """Return the run as a later Headwater would seal it: another version, checksums right."""
    trailer = bytearray(written[-32:])
    trailer[16] = version
    footer_length = struct.unpack("<Q", trailer[:8])[0]
    footer = written[-32 - footer_length : -32]
    trailer[8:16] = struct.pack("<Q", run_file._footer_checksum(footer, bytes(trailer)))
    return written[:-32] + bytes(trailer)


def test_a_newer_format_is_named_and_a_flipped_version_is_not_one() -> None:
    written = write_run(golden_updates(), ["k"])
    assert with_version(written, 2) == written
    with pytest.raises(NewerRunFormat, match="version 3, and this Headwater reads up to 2"):
        Run.open(with_version(written, 3))
    flipped = bytearray(written)
    flipped[-16] = 3
    with pytest.raises(CorruptRun):
        Run.open(bytes(flipped))
    assert issubclass(CorruptRun, HeadwaterError)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({TIME: None}, TIME),
        ({DIFF: None}, DIFF),
        ({TIME: pa.array([1, None])}, TIME),
        ({DIFF: pa.array([1, 1], pa.int32())}, DIFF),
        ({HASH: pa.array([1, None])}, HASH),
        ({"v": pa.array([{"a": pa.MonthDayNano([1, 2, 3])}] * 2)}, None),
        ({"v": pa.array([1, 2]).dictionary_encode()}, None),
        ({"k": None}, "must name data columns"),
        (
            {"u": pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])])},
            "stored",
        ),
    ],
)
def test_what_cannot_be_a_run(change: dict[str, Any], message: str | None) -> None:
    columns: dict[str, Any] = {
        "k": pa.array([1, 2]),
        TIME: pa.array([1, 1]),
        DIFF: pa.array([1, 1]),
    }
    columns = {name: column for name, column in {**columns, **change}.items() if column is not None}
    if message is None:
        assert Run.open(write_run(pa.table(columns), ["k"])).table().num_rows == 2
        return
    with pytest.raises(InvalidRun, match=message):
        write_run(pa.table(columns), ["k"])


def test_a_key_must_be_hashable_and_not_empty() -> None:
    with pytest.raises(NotAKey):
        write_run(many(3), ["l"])
    with pytest.raises(InvalidUsage):
        write_run(many(3), [])
    with pytest.raises(InvalidUsage):
        write_run(many(3), [TIME])


@given(st.integers(0, 2**32 - 1))
def test_a_hash_is_found_where_it_is_whatever_shares_it(seed: int) -> None:
    """Some hashes have one row, some more than a window has; some are between, before and after."""
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 4_000))
    lengths = random.choice([1, 2, 9, 63, 64, 65, 300], count, p=[0.5, 0.2, 0.2, *[0.025] * 4])
    known = np.unique(random.integers(-1_000, 10**6, count))
    hashes = np.repeat(known, lengths[: len(known)])
    ones = np.ones(len(hashes), np.int64)
    updates = pa.table({"k": hashes, HASH: hashes, TIME: ones, DIFF: ones})
    # By short blocks, so that none is verified as a whole when it is opened.
    run = Run.open(write_run(updates, ["k"], block_length=64))
    asked = random.integers(-2_000, 10**6 + 1_000, 20)
    asked = np.concatenate([asked, random.choice(known, 20), known[:1], known[-1:]])
    for some in (asked, asked[:3], asked[:0]):
        left, right = run.equal_range(some)
        assert left.tolist() == np.searchsorted(hashes, some, "left").tolist()
        assert right.tolist() == np.searchsorted(hashes, some, "right").tolist()


def test_nothing_is_found_of_nothing_asked() -> None:
    """Also in a run that is shorter than a window, and not verified when it is opened."""
    run = Run.open(write_run(many(100), ["k"], block_length=64))
    assert run.verified_bytes < run.arrow_bytes
    left, right = run.equal_range(np.empty(0, np.int64))
    assert (len(left), len(right)) == (0, 0)

"""Keyed runs as Spark's own columns: the rows that persist itself reads, or no such frame."""

from __future__ import annotations

import datetime as dt
import tempfile
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headwater.collection.run import Run
from headwater.compute.columns import frame as columns
from headwater.compute.columns import settled as settling
from headwater.compute.columns.settled import SettledRuns
from headwater.compute.select import QueryFailed, select
from headwater.persist.batch import Segment
from headwater.persist.client import Client
from headwater.persist.errors import Corrupt
from headwater.persist.read import Snapshot

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("i1", pa.int8()),
        pa.field("i2", pa.int16()),
        pa.field("i4", pa.int32()),
        pa.field("f4", pa.float32()),
        pa.field("f8", pa.float64()),
        pa.field("s", pa.string()),
        pa.field("d", pa.decimal128(12, 3)),
        pa.field("wide", pa.decimal128(38, 2)),
        pa.field("at", pa.timestamp("us")),
        pa.field("zoned", pa.timestamp("us", "UTC")),
        pa.field("day", pa.date32()),
        pa.field("b", pa.bool_()),
        pa.field("raw", pa.binary()),
    ]
)
NOON = dt.datetime(2026, 3, 29, 2, 30)  # noqa: DTZ001 - an hour that some zones skip
MANY = 40_000
"""More than the JVM looks at together, twice over."""


def _row(n: int) -> dict[str, Any]:
    row = {
        "id": n,
        "i1": n % 256 - 128,
        "i2": n - 7,
        "i4": -n,
        "f4": n / 4,
        "f8": [0.0, -0.0, float("nan"), 1.5][n % 4],
        "s": "é" * (n % 5),
        "d": Decimal(7 - n) / 8,
        "wide": Decimal(n - 7) * 10**30 / 4,
        "at": NOON + dt.timedelta(microseconds=n),
        "zoned": (NOON + dt.timedelta(hours=n)).replace(tzinfo=dt.UTC),
        "day": NOON.date() - dt.timedelta(days=n),
        "b": n % 3 == 0,
        "raw": bytes([n % 256]) * (n % 3),
    }
    # Each column but the key has NULLs, no two in the same rows.
    nulls = [name for at, name in enumerate(row) if at and (n + at) % 11 == 0]
    return row | dict.fromkeys(nulls)


def _multiset(rows: list[dict[str, Any]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for row in rows:
        found[repr({k: v for k, v in row.items() if k != "__diff"})] += row.get("__diff", 1)
    return found


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what a test writes be large, and its changes small."""
    monkeypatch.setattr(columns, "DRIVER_ROWS_MAX", 150)
    monkeypatch.setattr(settling, "DRIVER_ROWS_MAX", 150)
    monkeypatch.setattr(columns, "SLICE_ROWS_MIN", 100)


@pytest.fixture
def many(client: Client) -> Client:
    """A collection of two columns with many rows; some are changed since, at the edges too."""
    schema = pa.schema([pa.field("k", pa.int64()), pa.field("s", pa.string())])
    write, _ = client.create_or_load("many", schema, key=("k",), layout="run")
    write.compare_and_append(
        [({"k": n, "s": f"s{n % 7}"}, 0, 1) for n in range(MANY)], 0, 1
    ).result()
    changed = [n for n in range(MANY) if n % 1000 == 0][:40]
    write.compare_and_append([({"k": n, "s": f"s{n % 7}"}, 1, -1) for n in changed], 1, 2).result()
    write.compare_and_append([({"k": n, "s": "new"}, 2, 1) for n in changed[:3]], 2, 3).result()
    return client


def _rows(
    spark: Any, snapshot: Snapshot, settled: SettledRuns | None = None
) -> list[dict[str, Any]]:
    found = columns.columns_frame(spark, snapshot, settled)
    assert found is not None
    rows: list[dict[str, Any]] = found.toArrow().to_pylist()
    return rows


def test_every_type_at_every_time(spark: Any, client: Client) -> None:
    seed = Random().randrange(2**32)
    print(f"seed {seed}")
    random = Random(seed)
    write, read = client.create_or_load("c", SCHEMA, key=("id",), layout="run")
    again = random.sample(range(300), 200)
    # Of some rows that are there twice one goes, of others both.
    gone = random.sample([*range(300), *again], 60)
    changes: list[tuple[Iterable[int], Iterable[int]]]
    left = [n for n in range(300) if n not in gone]
    changes = [(range(300), ()), (again, ()), ((), gone), (range(300, 330), left[:20])]
    for time, (added, retracted) in enumerate(changes):
        updates = [(_row(n), time, 1) for n in added] + [(_row(n), time, -1) for n in retracted]
        write.compare_and_append(updates, time, time + 1).result()
    for as_of in (0, 1, 3):
        snapshot = read.snapshot(as_of)
        expected = _multiset(snapshot.to_table().to_pylist())
        assert _multiset(_rows(spark, snapshot)) == expected, f"seed {seed}, at {as_of}"


def test_hidden_rows_in_many_batches(spark: Any, many: Client) -> None:
    query = "SELECT count(*) AS n, count(DISTINCT k) AS d, sum(k) AS s, max(s) AS m FROM many"
    for as_of, count in ((0, MANY), (1, MANY - 40), (2, MANY - 37)):
        snapshot = many.reader("many").snapshot(as_of)
        assert columns.columns_frame(spark, snapshot) is not None
        expected = [row["k"] for row in snapshot.to_table().to_pylist()]
        (found,) = select(many, spark, query, as_of, {"many": "many"}).to_pylist()
        assert found == {"n": count, "d": count, "s": sum(expected), "m": "s6"}


def test_no_such_frame(spark: Any, client: Client, many: Client) -> None:
    """Where a retraction finds nothing, or a row is there twice in one update."""
    snapshot = many.reader("many").snapshot(2)
    assert columns.columns_frame(spark, snapshot.select("k")) is None
    schema = pa.schema([pa.field("k", pa.int64()), pa.field("s", pa.string())])
    for name, diff in (("twice", 2), ("listed", 1)):
        of = schema.append(pa.field("l", pa.list_(pa.int64()))) if name == "listed" else schema
        write, read = client.create_or_load(name, of, key=("k",), layout="run")
        more = {"l": [1]} if name == "listed" else {}
        rows = [({"k": n, "s": "s" * 20, **more}, 0, diff) for n in range(500)]
        write.compare_and_append(rows, 0, 1).result()
        assert columns.columns_frame(spark, read.snapshot(0)) is None
    write, read = client.create_or_load("early", schema, key=("k",), layout="run")
    write.compare_and_append([({"k": n, "s": "s" * 20}, 0, 1) for n in range(500)], 0, 1).result()
    write.compare_and_append([({"k": 7, "s": "t"}, 1, -1)], 1, 2).result()
    assert columns.columns_frame(spark, read.snapshot(1)) is None


def test_a_flipped_bit_is_noticed(spark: Any, many: Client, tmp_path: Path) -> None:
    found = [part.where for part in many.reader("many").snapshot(0).parts]
    (where,) = [each for each in found if isinstance(each, Segment)]
    (path,) = [p for p in tmp_path.rglob("*") if p.is_file() and str(p).endswith(where.key)]
    data = bytearray(path.read_bytes())
    run = Run.open(path, where.offset, where.length)
    for column, buffer in (("k", 1), ("s", 1), ("s", 2)):
        start = run.areas().columns[column][buffer]
        assert start is not None
        at = where.offset + start + 70_000
        path.chmod(0o600)
        path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        with pytest.raises(QueryFailed, match="its checksum does not match"):
            select(many, spark, f"SELECT max({column}) AS m FROM many", 0, {"many": "many"})
        # What nobody asks for is not read.
        other = "s" if column == "k" else "k"
        select(many, spark, f"SELECT max({other}) AS m FROM many", 0, {"many": "many"})
    path.write_bytes(data)


def test_whole_files_beside_runs(
    spark: Any, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts that are Parquet files; a NaN is greater than what statistics know."""
    monkeypatch.setattr(columns, "FILE_ROWS_MIN", 100)
    write, read = client.create_or_load("files", SCHEMA)
    old = {**_row(900), "day": dt.date(1, 1, 1), "at": dt.datetime(1, 1, 1), "f8": float("nan")}  # noqa: DTZ001
    for time, rows in enumerate(
        ([_row(n) for n in range(200)], [_row(n) for n in range(150)], [old])
    ):
        write.compare_and_append([(row, time, 1) for row in rows], time, time + 1).result()
    write.compare_and_append(
        [(old, 3, 1)] * 2 + [(_row(n), 3, 1) for n in range(120)], 3, 4
    ).result()
    for as_of in (0, 1, 3):
        snapshot = read.snapshot(as_of)
        expected = _multiset(snapshot.to_table().to_pylist())
        assert _multiset(_rows(spark, snapshot)) == expected
    query = "SELECT count(*) AS n FROM files WHERE f8 > 2"
    everything = read.snapshot(3).to_table().to_pylist()
    nans = sum(row["__diff"] for row in everything if row["f8"] != row["f8"])
    assert select(client, spark, query, 3, {"files": "files"}).to_pylist() == [{"n": nans}]
    assert nans
    # A file cannot hide a row.
    write.compare_and_append([(_row(1), 4, -1)], 4, 5).result()
    assert columns.columns_frame(spark, read.snapshot(4)) is None
    where = read.snapshot(0).parts[0].where
    assert isinstance(where, Segment)
    (path,) = [p for p in tmp_path.rglob("*") if p.is_file() and str(p).endswith(where.key)]
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)
    with pytest.raises(Corrupt, match="its checksum does not match"):
        columns.columns_frame(spark, read.snapshot(0))


def test_large_parts_that_take_away_are_settled(
    spark: Any, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no part can hide as it is stored: duplicates, changes of many rows, files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seed = Random().randrange(2**32)
    print(f"seed {seed}")
    random = Random(seed)
    write, read = client.create_or_load("c", SCHEMA)
    present = [n % 300 for n in range(400)]
    history = [[(_row(n), 0, 1) for n in present]]
    for time, changed in enumerate((200, 20, 100), start=1):
        random.shuffle(present)
        present, gone = present[changed:], present[:changed]
        come = [random.randrange(400) for _ in range(changed)]
        present += come
        updates = [(_row(n), time, -1) for n in gone] + [(_row(n), time, 1) for n in come]
        history.append(updates)
    settled = SettledRuns()
    files = []
    for time, updates in enumerate(history):
        write.compare_and_append(updates, time, time + 1).result()
        snapshot = read.snapshot(time)
        expected = _multiset(snapshot.to_table().to_pylist())
        # The 20 changes of time 2 are hidden in what was settled at 1: nothing new is made.
        if time != 2:
            assert columns.columns_frame(spark, snapshot, settled) is None, f"seed {seed}"
        found = _multiset(_rows(spark, snapshot, settled))
        assert found == expected, f"seed {seed}, at {time}"
        files.append(len(list(tmp_path.glob("headwater-held-settled-*/*"))))
    assert files == [1, 2, 2, 3]
    # The past is what it was, and what a window shows of it is a base of its own.
    old = read.snapshot(1)
    assert _multiset(_rows(spark, old, settled)) == _multiset(old.to_table().to_pylist())


def test_settled_runs_are_bounded(
    spark: Any, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The least lately used goes, unless it is being read; what is too large, or has less than
    no row, is not made twice."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    schema = pa.schema([pa.field("k", pa.int64()), pa.field("s", pa.string())])
    readers = {}
    for name, diff in (("a", 1), ("b", 1), ("c", 1), ("less", -1)):
        write, readers[name] = client.create_or_load(name, schema)
        rows = [({"k": n, "s": "s" * 20}, 0, 2) for n in range(500)]
        write.compare_and_append([*rows, ({"k": -1, "s": name}, 0, diff)], 0, 1).result()

    def asked(settled: SettledRuns, name: str) -> Snapshot | None:
        """Ask twice; return the snapshot if there is a frame of it."""
        snapshot = readers[name].snapshot(0)
        columns.columns_frame(spark, snapshot, settled)
        found = columns.columns_frame(spark, snapshot, settled)
        return None if found is None else snapshot

    def files() -> int:
        return len(list(tmp_path.glob("headwater-held-settled-*/*")))

    settled = SettledRuns()
    assert asked(settled, "less") is None
    assert asked(settled, "a") is not None
    (file,) = tmp_path.glob("headwater-held-settled-*/*")
    settled = SettledRuns(bytes_max=2 * file.stat().st_size)
    first = asked(settled, "a")
    assert asked(settled, "b") is not None
    assert first is not None
    assert asked(settled, "c") is not None
    assert files() == 2
    # The one that was being read is still there; the other has gone.
    assert settled.serving(first) is not None
    assert settled.serving(readers["b"].snapshot(0)) is None
    small = SettledRuns(bytes_max=10)
    assert asked(small, "a") is None
    monkeypatch.setattr(small, "_make", None)
    assert asked(small, "a") is None

"""Collections as DataFrames: the rows that persist itself reads, by every way they travel."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headwater.base.errors import HeadwaterError, InvalidUsage
from headwater.collection.run_layout import LAYOUTS
from headwater.persist import spark as edge
from headwater.persist.blob.memory import MemoryBlob
from headwater.persist.client import Client, ReadHandle, WriteHandle, open_location
from headwater.persist.consensus.memory import MemoryConsensus
from headwater.persist.errors import AsOfBeforeSince
from headwater.persist.evolution import updates_schema
from headwater.persist.maintenance import Maintenance

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        pa.field("i", pa.int32()),
        pa.field("f", pa.float64()),
        pa.field("s", pa.string()),
        pa.field("d", pa.decimal128(20, 3)),
        pa.field("at", pa.timestamp("us")),
        pa.field("zoned", pa.timestamp("us", "UTC")),
        pa.field("day", pa.date32()),
        pa.field("b", pa.bool_(), nullable=False),
        pa.field("raw", pa.binary()),
        pa.field("list", pa.list_(pa.int64())),
        pa.field("tags", pa.map_(pa.string(), pa.int64())),
    ]
)
ROWS = 60
NOON = dt.datetime(2026, 3, 29, 2, 30)  # noqa: DTZ001 - an hour that some zones skip


def _row(n: int) -> dict[str, Any]:
    return {
        "i": None if n % 7 == 0 else n,
        "f": [0.0, -0.0, float("nan"), None, 1.5][n % 5],
        "s": None if n % 5 == 0 else f"s{n % 3}",
        "d": Decimal(n) / 8,
        "at": NOON + dt.timedelta(microseconds=n),
        "zoned": (NOON + dt.timedelta(hours=n)).replace(tzinfo=dt.UTC),
        "day": NOON.date() + dt.timedelta(days=n),
        "b": n % 2 == 0,
        "raw": None if n % 3 else bytes([n]),
        "list": [None, [], [n, None]][n % 3],
        "tags": {"x": n, "y": None} if n % 2 else {},
    }


def _fill(client: Client, *, layout: str = "parquet") -> tuple[WriteHandle, ReadHandle]:
    """Five times, each with insertions and retractions of what was there before."""
    random = Random(2)
    write, read = client.create_or_load("c", SCHEMA, key=("i",), layout=layout)
    held: list[int] = []
    for time in range(5):
        rows = [(_row(n), time, 2) for n in random.sample(range(ROWS), 30)]
        gone = [(_row(n), time, -1) for n in random.sample(held, len(held) // 2)]
        held = [int((row["d"] * 8).to_integral()) for row, _, _ in rows]
        write.compare_and_append(rows + gone, time, time + 1).result()
    return write, read


def _bits(value: Any) -> str:
    return repr(value)  # tells 0.0 from -0.0, and takes a NaN for itself


def _multiset(rows: list[dict[str, Any]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for row in rows:
        diff = row.pop("__diff", 1)
        tags = row.get("tags")
        if tags is not None:
            row["tags"] = sorted(dict(tags).items(), key=repr)
        found[_bits(row)] += diff
    return found


WAYS = ["driver", "one task", "exchange"]


def _force(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    if way != "driver":
        monkeypatch.setattr(edge, "DRIVER_ROWS_MAX", 0)
    if way == "exchange":
        monkeypatch.setattr(edge, "PARTITION_ROWS_MAX", 0)


@pytest.mark.parametrize("way", WAYS)
def test_a_snapshot_is_what_persist_reads(
    spark: Any, client: Client, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    _force(monkeypatch, way)
    _, read = _fill(client)
    for time in (0, 3, 4):
        snapshot = read.snapshot(time)
        expected = _multiset(snapshot.to_table().to_pylist())
        frame = edge.snapshot_frame(spark, snapshot)
        rows = frame.toArrow().to_pylist()
        assert len(rows) == len(expected), "each distinct row once"
        assert _multiset(rows) == expected
        if time == 3:
            assert _multiset(edge.rows_frame(spark, snapshot).toArrow().to_pylist()) == expected
            # Definite: the same frame again, after more was written and merged.
            assert _multiset(frame.toArrow().to_pylist()) == expected


def test_a_merged_batch_is_read_without_an_exchange(
    spark: Any, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    _force(monkeypatch, "exchange")
    write, read = _fill(client, layout="run")
    write.allow_compaction(4).result()
    maintenance = Maintenance(client.core)
    while maintenance.merge_one(read.id):
        pass
    snapshot = read.snapshot(4)
    assert len(snapshot.collection.batches) == 1
    frame = edge.rows_frame(spark, snapshot)
    assert "Exchange" not in frame._jdf.queryExecution().toString()
    assert _multiset(frame.toArrow().to_pylist()) == _multiset(snapshot.to_table().to_pylist())


@pytest.mark.parametrize("way", ["driver", "one task"])
def test_updates_of_an_interval(
    spark: Any, client: Client, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    _force(monkeypatch, way)
    write, read = _fill(client)
    listen = read.listen(0)
    event = listen.fetch()
    updates = edge.updates_frame(spark, read, 1, 5).toArrow()
    assert set(updates.column("__time").to_pylist()) == {1, 2, 3, 4}
    assert _multiset(updates.to_pylist()) == _multiset(event.ok.to_pylist())  # type: ignore[union-attr]
    assert edge.updates_frame(spark, read, 2, 3).toArrow().column(
        "__time"
    ).unique().to_pylist() == [2]
    with pytest.raises(InvalidUsage, match="not sealed"):
        edge.updates_frame(spark, read, 3, 6)
    listen.close()
    write.allow_compaction(4).result()
    maintenance = Maintenance(client.core)
    while maintenance.merge_one(read.id):
        pass
    with pytest.raises(AsOfBeforeSince):
        edge.updates_frame(spark, read, 2, 5)


def test_a_location_in_memory_goes_through_the_driver(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _force(monkeypatch, "exchange")
    with open_location(blob=MemoryBlob(), consensus=MemoryConsensus(), layouts=LAYOUTS) as client:
        write, read = _fill(client)
        snapshot = read.snapshot(4)
        rows = edge.rows_frame(spark, snapshot).toArrow().to_pylist()
        assert _multiset(rows) == _multiset(snapshot.to_table().to_pylist())
        frame = edge.updates_frame(spark, read, 4, 5)
        edge.append_from_tasks(frame.withColumn("__time", frame["__time"] + 1), write, 5, 6)
        assert read.snapshot(5).to_table().num_rows


def test_a_negative_multiplicity_has_no_rows(spark: Any, client: Client) -> None:
    write, read = client.create_or_load("c", pa.schema([("n", pa.int64())]))
    write.compare_and_append([({"n": 1}, 0, -1)], 0, 1).result()
    with pytest.raises(HeadwaterError, match="negative multiplicity"):
        edge.rows_frame(spark, read.snapshot(0))
    assert edge.snapshot_frame(spark, read.snapshot(0)).collect()[0]["__diff"] == -1


def test_a_flipped_byte_fails_the_frame(
    spark: Any, client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _force(monkeypatch, "one task")
    write, read = client.create_or_load("c", pa.schema([("n", pa.int64())]))
    table = pa.table(
        {"n": range(5000), "__time": [0] * 5000, "__diff": [1] * 5000},
        schema=updates_schema(pa.schema([("n", pa.int64())])),
    )
    write.compare_and_append(table, 0, 1).result()
    snapshot = read.snapshot(0)
    (path,) = (tmp_path / "data" / "blob" / "part").rglob("1-*")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(Exception, match="checksum does not match"):
        edge.rows_frame(spark, snapshot).count()


@pytest.mark.parametrize("pieces", [[[1], [], [2]], [[], [], [1, 2]], [[], [1], [], [], [2], []]])
def test_rows_behind_an_empty_piece_are_in_the_frame(spark: Any, pieces: list[list[int]]) -> None:
    table = pa.table({"n": pa.chunked_array(pieces, pa.int64()), "m": pa.array([3, 4])})
    assert edge.arrow_frame(spark, table).toArrow().to_pydict() == {"n": [1, 2], "m": [3, 4]}


def test_an_empty_table_keeps_its_columns(spark: Any) -> None:
    for kind in (pa.int64(), pa.list_(pa.int32()), pa.struct([("x", pa.int32())])):
        table = pa.table({"n": pa.chunked_array([[], []], kind)})
        assert edge.arrow_frame(spark, table).toArrow().to_pydict() == {"n": []}

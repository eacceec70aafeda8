"""A collection as a stream: the snapshot, then every update once, also over restarts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.algebra.frontier import Frontier
from headwater.collection.run_layout import LAYOUTS
from headwater.persist.client import Client, open_location
from headwater.persist.core import Settings
from headwater.persist.read import Progress, Updates
from headwater.persist.source import persisted_source
from headwater.persist.spark_stream import register_data_source

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])


def _append(client: Client, lower: int, upper: int) -> None:
    write, _ = client.create_or_load("c", SCHEMA, key=("n",), layout="run")
    updates = [({"n": n, "s": f"s{n % 3}"}, n % (upper - lower) + lower, 1) for n in range(400)]
    updates += [({"n": n, "s": f"s{n % 3}"}, upper - 1, -1) for n in range(0, 400, 9)]
    write.compare_and_append(updates, lower, upper).result()


def _expected(client: Client, as_of: int) -> Counter[tuple[Any, ...]]:
    """What must have come: the snapshot, and all that was sealed after it."""
    found: Counter[tuple[Any, ...]] = Counter()
    source = persisted_source(client.reader("c"), as_of)
    while (event := source.fetch(0)) is not None:
        if isinstance(event, Updates):
            for row in event.ok.to_pylist():
                diff = row.pop("__diff")
                found[tuple(row.values())] += diff
    source.close()
    return Counter({row: diff for row, diff in found.items() if diff})


def test_every_update_arrives_once(spark: Any, tmp_path: Path) -> None:
    register_data_source(spark, LAYOUTS)
    data, checkpoint, out = (str(tmp_path / name) for name in ("data", "checkpoint", "out"))

    def run_available() -> None:
        updates = (
            spark.readStream.format("headwater")
            .option("location", data)
            .option("collection", "c")
            .option("asOf", "3")
            .load()
        )
        query = (
            updates.writeStream.format("parquet")
            .option("path", out)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert query.exception() is None

    settings = Settings(maintenance=False)
    with open_location(tmp_path / "data", layouts=LAYOUTS, settings=settings) as client:
        _append(client, 0, 5)
        run_available()
        _append(client, 5, 9)
        run_available()
        rows = spark.read.parquet(out).collect()
        arrived: Counter[tuple[Any, ...]] = Counter()
        for row in rows:
            arrived[row["n"], row["s"], row["__time"]] += row["__diff"]
        arrived = Counter({row: diff for row, diff in arrived.items() if diff})
        assert arrived == _expected(client, 3)
        assert {time for _, _, time in arrived} == {3, 4, 5, 6, 7, 8}


def test_options_are_asked_for(spark: Any, client: Client, tmp_path: Path) -> None:
    register_data_source(spark, LAYOUTS)
    _append(client, 0, 2)
    source = spark.readStream.format("headwater").option("location", str(tmp_path / "data"))
    with pytest.raises(Exception, match="needs the option 'collection'"):
        source.load()


def test_the_same_feed_in_python(client: Client) -> None:
    _append(client, 0, 5)
    source = persisted_source(client.reader("c"), 3)
    events = [source.fetch(0) for _ in range(5)]
    kinds = [type(event) for event in events]
    assert kinds == [Updates, Progress, Updates, Progress, type(None)]
    assert events[1] == Progress(Frontier.of(4))
    first = events[0]
    assert isinstance(first, Updates)
    assert set(first.ok.column("__time").to_pylist()) == {3}
    _append(client, 5, 6)
    assert isinstance(source.fetch(10), Updates)
    source.close()

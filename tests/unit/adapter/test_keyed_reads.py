"""Rows by key against a model: small and large parts, merged or not, at every time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headwater.adapter.keyed_reads import DIFF, PROBE_INDEX, KeyedReads
from headwater.collection.run_layout import LAYOUTS
from headwater.persist.client import Client, open_location
from headwater.persist.core import Settings
from headwater.persist.maintenance import Maintenance
from tests.seeds import seeds

Row = tuple[Any, ...]

SCHEMA = pa.schema(
    [pa.field("k", pa.int64(), False), pa.field("f", pa.float64()), ("v", pa.string())]
)


def model_at(updates: list[tuple[Row, int, int]], time: int, key: tuple[Any, ...]) -> Counter[Row]:
    rows: Counter[Row] = Counter()
    for row, when, diff in updates:
        if when <= time and row[:2] == key:
            rows[row] += diff
    return Counter({row: count for row, count in rows.items() if count})


@pytest.mark.parametrize("seed", seeds(2, 20))
@pytest.mark.parametrize("layout", ["run", "parquet"])
def test_lookup_is_the_model_at_every_time(tmp_path: Path, seed: int, layout: str) -> None:
    print(f"seed {seed}")
    random = Random(seed)
    settings = Settings(maintenance=False)
    with open_location(tmp_path, layouts=LAYOUTS, settings=settings) as client:
        write, read = client.create_or_load("t", SCHEMA, key=("k", "f"), layout=layout)
        keyed = KeyedReads(client.core)
        updates: list[tuple[Row, int, int]] = []
        for time in range(12):
            # Now and then so many rows that the part is an object of its own.
            count = random.choice([1, 3, 400])
            step = []
            for _ in range(count):
                row = (random.randrange(40), random.choice([0.5, 1.5]), f"v{random.randrange(9)}")
                step.append((row, time, 1))
            if updates:
                row, _, diff = random.choice(updates)
                step.append((row, time, -diff))
            updates += step
            rows = [dict(zip(SCHEMA.names, row, strict=True)) for row, _, _ in step]
            write.compare_and_append(
                [(r, t, d) for r, (_, t, d) in zip(rows, step, strict=True)], time, time + 1
            ).result()
            if random.random() < 0.3:
                merge(client)
        for _ in range(30):
            time = random.randrange(12)
            count = random.choice([1, 5, 60])
            keys = [(random.randrange(45), random.choice([0.5, 1.5])) for _ in range(count)]
            arrays = [pa.array([k for k, _ in keys]), pa.array([f for _, f in keys])]
            found = keyed.lookup(read.snapshot(time), arrays)
            for index, key in enumerate(keys):
                assert rows_of(found, index) == model_at(updates, time, key), (time, key)


def rows_of(found: pa.Table, index: int) -> Counter[Row]:
    rows: Counter[Row] = Counter()
    for each in found.to_pylist():
        if each[PROBE_INDEX] == index:
            rows[each["k"], each["f"], each["v"]] += each[DIFF]
    return rows


def merge(client: Client) -> None:
    Maintenance(client.core).once()

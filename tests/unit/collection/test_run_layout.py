"""Keyed runs as a layout: persist reads, merges and checks them like any other part."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from headwater.collection.run import InvalidRun, Run
from headwater.collection.run_layout import LAYOUTS, RunLayout
from headwater.persist.batch import Segment
from headwater.persist.client import open_location
from headwater.persist.core import Settings
from headwater.persist.errors import Corrupt, LayoutMismatch
from headwater.persist.evolution import updates_schema
from headwater.persist.maintenance import Maintenance

SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.string(), nullable=False)])


def _updates(random: Random, rows: int) -> pa.Table:
    return pa.table(
        {
            "k": pa.array([random.choice([None, *range(9)]) for _ in range(rows)], pa.int64()),
            "v": [random.choice("xyz") for _ in range(rows)],
            "__time": pa.array([random.randint(0, 5) for _ in range(rows)], pa.int64()),
            "__diff": pa.array([random.choice([-1, 1]) for _ in range(rows)], pa.int64()),
        },
        schema=updates_schema(SCHEMA),
    )


def _sorted(updates: pa.Table) -> list[tuple[object, ...]]:
    return sorted((tuple(row.values()) for row in updates.to_pylist()), key=repr)


@pytest.mark.parametrize("rows", [1, 7, 3000])
def test_what_is_encoded_is_decoded_and_can_be_probed(rows: int) -> None:
    updates = _updates(Random(rows), rows)
    data = RunLayout().encode(updates, ("k",))
    back = RunLayout().decode(pa.py_buffer(data), updates.schema, "it")
    assert back.schema == updates.schema
    assert _sorted(back) == _sorted(updates)
    assert Run.open(data).rows == rows


def test_a_flipped_byte_is_found_wherever_it_is() -> None:
    updates = _updates(Random(1), 50)
    data = RunLayout().encode(updates, ("k",))
    for at in range(0, len(data), 13):
        bad = bytearray(data)
        bad[at] ^= 0x40
        with pytest.raises(Corrupt):
            RunLayout().decode(bytes(bad), updates.schema, "it")


def test_other_columns_are_no_part_of_ours() -> None:
    updates = _updates(Random(1), 5)
    data = RunLayout().encode(updates, ("k",))
    with pytest.raises(Corrupt, match="columns"):
        RunLayout().decode(data, updates_schema(SCHEMA.append(pa.field("w", pa.int64()))), "it")


def test_a_run_needs_a_key() -> None:
    with pytest.raises(InvalidRun):
        RunLayout().encode(_updates(Random(1), 5), ())


def test_a_location_keeps_a_keyed_collection(tmp_path: Path) -> None:
    random = Random(11)
    settings = Settings(maintenance=False)
    expected: list[pa.Table] = []
    with open_location(tmp_path, layouts=LAYOUTS, settings=settings) as client:
        write, read = client.create_or_load("c", SCHEMA, key=("k",), layout="run")
        for step in range(6):
            table = _updates(random, 600)
            table = table.set_column(2, table.schema.field(2), pa.array([step] * 600, pa.int64()))
            expected.append(table)
            write.compare_and_append(table, step, step + 1).result()
        parts = [p for b in client.core.state.collections[read.id].batches for p in b.parts]
        assert {part.layout for part in parts} == {"run"}
        assert all(isinstance(part.where, Segment) for part in parts)
        before = [read.snapshot(time).to_table() for time in range(6)]
        write.allow_compaction(3).result()
        assert Maintenance(client.core).merge_one(read.id)
        for time in range(3, 6):
            assert _sorted(read.snapshot(time).to_table()) == _sorted(before[time])
        large = _updates(random, 600)
        large = large.set_column(2, large.schema.field(2), pa.array([6] * 600, pa.int64()))
        write.compare_and_append(large, 6, 7).result()
    with (
        open_location(tmp_path, read_only=True) as client,
        pytest.raises(LayoutMismatch, match="'run' is not known"),
    ):
        client.reader("c").snapshot(6).to_table()

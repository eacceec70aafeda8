"""Parts become runs: whichever form each part has, a probe finds the same rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headwater.algebra.frontier import Frontier
from headwater.base.ids import BatchId
from headwater.collection.probe import probe
from headwater.collection.run import Run
from headwater.collection.run_layout import LAYOUTS, RunLayout
from headwater.compute.arrangement import open_runs
from headwater.persist.batch import Inline, Part, Segment
from headwater.persist.client import Client, open_location
from headwater.persist.commands import CompareAndAppend
from headwater.persist.core import Settings
from headwater.persist.errors import Corrupt
from headwater.persist.layout import INLINE
from headwater.persist.maintenance import Maintenance
from headwater.persist.part import BRIEF_BYTES_MAX
from headwater.persist.spark import writing
from headwater.persist.spark_parts import Reading, Target, place_of
from headwater.persist.state import CollectionState
from headwater.testing.relation import as_updates

SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("s", pa.string())])
FEW, SOME, MANY = 100, 1_500, 6_000
"""Rows that fit the log, that are one record batch in an object, and that are more than that."""


class World:
    """A collection that is keyed by ``k``, and parts of it as a step writes them."""

    def __init__(self, folder: Path) -> None:
        self.client: Client = open_location(
            folder, layouts=LAYOUTS, settings=Settings(maintenance=False)
        )
        self.writer, _ = self.client.create_or_load("c", SCHEMA, layout=RunLayout.name, key=("k",))
        self._attempts = 0

    @property
    def collection(self) -> CollectionState:
        return self.client.core.state.collections[self.writer.id]

    @property
    def reading(self) -> Reading:
        place = place_of(self.client.core)
        assert place is not None
        return Reading.of(place, self.collection)

    def written(self, rows: int, first: int, at: int, *, brief: bool = True) -> Part:
        numbers = np.arange(first, first + rows)
        names = pa.array([f"name {number % 7}" for number in numbers.tolist()])
        updates = as_updates(pa.table([numbers, names], schema=SCHEMA), at, 1)
        with self.client.core.step() as step:
            self._attempts += 1
            pending = Target.of(self.collection).pending(updates, consolidated=True, brief=brief)
            (part,) = writing(self.client.core, step).write([pending], str(self._attempts))
            interval = (Frontier.of(at), Frontier.of(at + 1))
            command = CompareAndAppend(self.writer.id, BatchId(f"t{at}"), *interval, (part,))
            self.client.core.submit(command).result()
        return part


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "place")


def test_what_is_few_is_one_record_batch(world: World) -> None:
    few, some, many = (world.written(n, 0, at) for at, n in enumerate((FEW, SOME, MANY)))
    assert (type(few.where), few.layout) == (Inline, INLINE.name)
    assert (type(some.where), some.layout) == (Segment, INLINE.name)
    assert (type(many.where), many.layout) == (Segment, RunLayout.name)
    assert some.size_bytes <= BRIEF_BYTES_MAX < many.size_bytes
    # Who does not say that merges will soon rewrite it gets the collection's layout.
    assert world.written(SOME, 0, 3, brief=False).layout == RunLayout.name


def test_a_probe_finds_the_same_whatever_form_the_parts_have(world: World) -> None:
    parts = [
        world.written(rows, 50 * at, at, brief=brief)
        for at, (rows, brief) in enumerate(
            [(FEW, True), (SOME, True), (MANY, True), (SOME, False), (FEW, True), (SOME, True)]
        )
    ]
    whole = pa.concat_tables([world.reading.updates(part) for part in parts])
    keys = [pa.array([-1, 0, 55, 260, 1_400, 5_999, 9_999])]
    for upper in (1, 3, 6):
        found = probe(open_runs(world.reading, parts), keys, at=upper)
        expected = probe([Run.of(whole, ("k",))], keys, at=upper)
        assert _sorted(found) == _sorted(expected)


def _sorted(found: pa.Table) -> list[dict[str, object]]:
    return sorted(found.to_pylist(), key=lambda row: (row["__probe_index"], row["__time"]))


def test_a_worker_arranges_a_part_once(world: World) -> None:
    part = world.written(SOME, 0, 0)
    (first,), (second,) = (open_runs(world.reading, [part]) for _ in range(2))
    assert first is second


def test_a_flipped_byte_is_seen(world: World, tmp_path: Path) -> None:
    part = world.written(SOME, 0, 0)
    assert isinstance(part.where, Segment)
    (path,) = (p for p in (tmp_path / "place").rglob("*") if p.name == Path(part.where.key).name)
    data = bytearray(path.read_bytes())
    data[part.where.offset + part.where.length // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(Corrupt, match="checksum"):
        open_runs(world.reading, [part])


def test_merges_read_them_and_write_what_is_large_as_runs(world: World) -> None:
    for at in range(4):
        world.written(SOME, SOME * at, at)
    before = world.client.reader("c").snapshot(3).to_table()
    Maintenance(world.client.core).merge_all()
    (part,) = (part for batch in world.collection.batches for part in batch.parts)
    assert (part.layout, part.rows) == (RunLayout.name, 4 * SOME)
    after = world.client.reader("c").snapshot(3).to_table()
    assert after.sort_by("k").equals(before.sort_by("k"))

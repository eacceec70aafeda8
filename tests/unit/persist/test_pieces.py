"""Rows in pieces are the rows of the snapshot, whatever was written, taken away and merged."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headwater.collection.run_layout import LAYOUTS
from headwater.persist import part as parts
from headwater.persist import pieces
from headwater.persist.blob.memory import MemoryBlob
from headwater.persist.client import Client, open_location
from headwater.persist.consensus.memory import MemoryConsensus
from headwater.persist.core import Settings
from headwater.persist.evolution import TIME
from headwater.persist.maintenance import Maintenance
from headwater.persist.narrow import read_rows
from headwater.persist.pieces import Pieces, each_row_once, in_pieces, only_inserts
from headwater.persist.read import Snapshot
from tests.seeds import seeds

SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("s", pa.string())])


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few dozen rows are a part with statistics, and are cut into slices."""
    monkeypatch.setattr(parts, "INLINE_BYTES_MAX", 600)
    monkeypatch.setattr(pieces, "SLICE_ROWS_MIN", 5)


def opened() -> Client:
    settings = Settings(maintenance=False)
    return open_location(
        blob=MemoryBlob(), consensus=MemoryConsensus(), layouts=LAYOUTS, settings=settings
    )


def multiset(*tables: pa.Table) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for table in tables:
        for row in table.to_pylist():
            found[row["k"], row["s"]] += row["__diff"]
    return Counter({row: count for row, count in found.items() if count})


def cut(snapshot: Snapshot, tasks: int, rest_rows_max: int) -> tuple[Pieces | None, Any]:
    def read(part: Any) -> pa.Table:
        return read_rows(snapshot._core, snapshot.collection, part, None).drop_columns([TIME])

    empty = snapshot.to_table().slice(0, 0)
    found = in_pieces(
        snapshot.collection,
        snapshot.parts,
        read,
        empty,
        rest_rows_max=rest_rows_max,
        tasks=tasks,
    )
    return found, read


@pytest.mark.parametrize("seed", seeds(12, 1_000))
def test_pieces_are_the_snapshot(seed: int) -> None:
    print("seed", seed)
    random = Random(seed)
    with opened() as client:
        layout = random.choice(["parquet", "run"])
        write, read = client.create_or_load("c", SCHEMA, key=("k",), layout=layout)
        maintenance = Maintenance(client.core)
        held: Counter[int] = Counter()
        since = in_more_than_one = subtracted = 0
        for time in range(random.randint(2, 9)):
            new = [random.randrange(300) for _ in range(random.choice([1, 4, 60, 200]))]
            old = random.sample(sorted(held), min(len(held), random.choice([0, 0, 1, 3, 40])))
            rows = [({"k": k, "s": f"s{k % 9}"}, time, 1) for k in new]
            rows += [({"k": k, "s": f"s{k % 9}"}, time, -1) for k in old]
            held.update(new)
            held.subtract(old)
            held = +held
            write.compare_and_append(rows, time, time + 1).result()
            if random.random() < 0.3:
                since = random.randint(since, time)
                write.allow_compaction(since).result()
                while random.random() < 0.8 and maintenance.merge_one(read.id):
                    pass
            snapshot = read.snapshot(time)
            assert sum(multiset(snapshot.to_table()).values()) == held.total()
            found, reader = cut(snapshot, random.randint(1, 4), random.choice([0, 100, 1_000]))
            if found is None:
                continue
            shown = [found.rows(piece, reader) for piece in found.pieces]
            assert not any(d < 0 for t in (*shown, found.more) for d in t["__diff"].to_pylist())
            assert multiset(*shown, found.more) == multiset(snapshot.to_table())
            in_more_than_one += len(found.pieces) > 1
            subtracted += found.gone.num_rows > 0
    print(in_more_than_one, "cut,", subtracted, "with something taken away")


def test_what_only_inserts_is_known_by_its_statistics() -> None:
    with opened() as client:
        write, read = client.create_or_load("c", SCHEMA)
        many = [({"k": k, "s": "x"}, 0, 1) for k in range(100)]
        write.compare_and_append(many, 0, 1).result()
        write.compare_and_append([({"k": 0, "s": "x"}, 1, -1)], 1, 2).result()
        later = [(row, 2, 1) for row, _, _ in many]
        write.compare_and_append([*later, ({"k": 1, "s": "x"}, 2, -1)], 2, 3).result()
        first, second, third = read.snapshot(2).parts
        assert only_inserts(first)
        assert not only_inserts(second), "small ones have no statistics"
        assert not only_inserts(third)
        found, reader = cut(read.snapshot(1), 3, 10)
        assert found is not None
        assert len(found.pieces) == 1, "a row may be there twice, and in two slices"
        assert multiset(found.rows(found.pieces[0], reader)).total() == 99
        assert cut(read.snapshot(1), 3, 0)[0] is None, "too much to read here"
        assert cut(read.snapshot(0), 3, 0)[0] == Pieces(
            tuple(pieces.Piece(first, n, 3) for n in range(3)), found.more, found.gone.slice(0, 0)
        )


def test_rows_of_different_times_are_not_apart_because_since_has_passed_them() -> None:
    """A merge before ``since`` was there leaves a row and its retraction side by side."""
    with opened() as client:
        write, read = client.create_or_load("c", SCHEMA)
        rows = [{"k": k, "s": "x"} for k in range(100)]
        write.compare_and_append([(row, 0, 1) for row in rows], 0, 1).result()
        write.compare_and_append([(row, 1, -1) for row in rows[:50]], 1, 2).result()
        maintenance = Maintenance(client.core)
        collection = read.snapshot(1).collection
        assert maintenance.merge_batches(collection, collection.batches)
        write.allow_compaction(1).result()
        snapshot = read.snapshot(1)
        (part,) = snapshot.parts
        assert part.consolidated
        assert part.time_max <= 1
        assert not each_row_once(snapshot.collection, snapshot.parts)
        collection = snapshot.collection
        assert maintenance.merge_batches(collection, collection.batches)
        snapshot = read.snapshot(1)
        assert each_row_once(snapshot.collection, snapshot.parts)

"""Reading under compaction: the same answer, a named error, or a wait; never something else."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa
import pytest

from headwater.algebra.frontier import Frontier
from headwater.persist import part, trace
from headwater.persist.batch import MINIMUM, TIME_LIMIT, Inline, Part
from headwater.persist.blob import MemoryBlob
from headwater.persist.client import Client, ReadHandle, WriteHandle, open_location
from headwater.persist.consensus import MemoryConsensus
from headwater.persist.core import Settings
from headwater.persist.errors import (
    AsOfBeforeSince,
    ClosedCollection,
    CollectionHasErrors,
    PartCollected,
)
from headwater.persist.evolution import ERROR_SCHEMA, updates_schema
from headwater.persist.maintenance import Maintenance
from headwater.persist.read import Progress, Updates
from headwater.persist.state import violations

SCHEMA = pa.schema([pa.field("k", pa.int64())])
SETTINGS = Settings(maintenance=False, cache_bytes=0)


class Location:
    """A writer, an independent reader, and merges at a word."""

    def __init__(self) -> None:
        self.blob, self.consensus = MemoryBlob(), MemoryConsensus()
        self.client = self._open(read_only=False)
        self.reader = self._open(read_only=True)
        self.write: WriteHandle
        self.read: ReadHandle
        self.write, self.read = self.client.create_or_load("t", SCHEMA)

    def _open(self, *, read_only: bool) -> Client:
        return open_location(
            blob=self.blob, consensus=self.consensus, read_only=read_only, settings=SETTINGS
        )

    def append(self, upper: int, *rows: tuple[int, int, int]) -> None:
        lower = self.read.upper.only()
        updates = [({"k": k}, time, diff) for k, time, diff in rows]
        self.write.compare_and_append(updates, lower, upper).result()

    def merge(self) -> None:
        maintenance = Maintenance(self.client.core)
        maintenance.merge_all()
        maintenance.collect()
        assert list(violations(self.client.core.state)) == []

    def close(self) -> None:
        self.reader.stop()
        self.client.stop()


@pytest.fixture
def location(monkeypatch: pytest.MonkeyPatch) -> Iterator[Location]:
    monkeypatch.setattr(trace, "MERGE_AT_LEAST", 2)
    monkeypatch.setattr(trace, "FLOOR_ROWS", 1)
    location = Location()
    yield location
    location.close()


def test_merges_of_one_round_keep_what_is_their_own(location: Location) -> None:
    """They share an object; one has errors as well, which are a part of their own."""
    write, read = location.client.create_or_load("u", SCHEMA)
    errors = pa.table(
        {"condition": ["C"], "message": ["m"], "context": [None], "__time": [0], "__diff": [1]},
        schema=updates_schema(ERROR_SCHEMA),
    )
    write.compare_and_append([({"k": 7}, 0, 1)], 0, 1, errors=errors).result()
    for time in range(1, 3):
        write.compare_and_append([({"k": 7 + time}, time, 1)], time, time + 1).result()
    for time in range(3):
        location.append(time + 1, (time, time, 1))
    location.merge()
    assert sorted(location.read.snapshot(2).to_table().column("k").to_pylist()) == [0, 1, 2]
    assert read.snapshot(2).errors().num_rows == 1
    assert sum(part.rows for part in read.snapshot(2).parts) == 4


def rows(table: pa.Table) -> list[tuple[int, int]]:
    return [(row["k"], row["__diff"]) for row in table.to_pylist()]


def test_one_merged_part_is_consolidated_when_since_has_moved_on(location: Location) -> None:
    """It was consolidated at its times; at a later since they fall together."""
    location.append(2, (1, 1, 1))
    location.append(6, (1, 5, -1), (2, 5, 1))
    location.merge()
    (batch,) = location.client.core.state.collections[location.read.id].batches
    assert len(batch.parts) == 1
    assert batch.parts[0].consolidated
    location.write.allow_compaction(5).result()
    assert rows(location.read.snapshot(5).to_table()) == [(2, 1)]


def test_a_listener_without_a_hold_is_told_that_its_history_is_gone(location: Location) -> None:
    """Also where nothing is left of it: silence would be a wrong answer."""
    location.append(1)
    listen = location.reader.reader("t").listen(0)
    held = location.read.listen(0)
    location.append(3, (1, 2, 1))
    location.append(5, (1, 4, -1))
    location.write.allow_compaction(5).result()
    location.merge()
    event = held.fetch(0)
    assert isinstance(event, Updates), "a hold of this process keeps its history"
    assert sorted(rows(event.ok)) == [(1, -1), (1, 1)]
    held.close()
    location.append(7, (2, 6, 1))
    location.merge()
    location.reader.core.refresh()
    with pytest.raises(AsOfBeforeSince, match="read at 5 or later"):
        listen.fetch(0)


def test_a_listener_on_a_collection_that_nobody_may_read_any_more(location: Location) -> None:
    location.append(1)
    listen = location.reader.reader("t").listen(0)
    location.append(3, (1, 2, 1))
    location.append(5, (1, 4, 1))
    location.write.allow_compaction(None).result()
    location.merge()
    location.reader.core.refresh()
    with pytest.raises(AsOfBeforeSince, match="no longer readable"):
        listen.fetch(0)
    with pytest.raises(AsOfBeforeSince, match="no longer readable"):
        location.read.snapshot()


def test_a_listener_that_kept_up_does_not_mind_compaction(location: Location) -> None:
    location.append(1)
    listen = location.reader.reader("t").listen(0)
    seen = []
    for time in range(1, 9):
        location.append(time + 1, (time, time, 1))
        location.reader.core.refresh()
        while (event := listen.fetch(0)) is not None:
            if isinstance(event, Updates):
                seen += event.ok.to_pylist()
        location.write.allow_compaction(time).result()
        location.merge()
    assert seen == [{"k": time, "__time": time, "__diff": 1} for time in range(1, 9)]


def test_without_a_time_the_newest_is_read_or_waited_for(location: Location) -> None:
    location.append(5, (1, 4, 1))
    assert location.read.snapshot().as_of == 4
    location.write.allow_compaction(9).result()
    with pytest.raises(TimeoutError, match="time 9 was not sealed"):
        location.read.snapshot(timeout=0)
    location.append(11)
    assert location.read.snapshot().as_of == 10
    later, read = location.client.create_or_load("later", SCHEMA, start=100)
    with pytest.raises(TimeoutError, match="time 100 was not sealed"):
        read.snapshot(timeout=0)
    later.seal(None).result()
    assert read.snapshot().as_of == 100
    later.allow_compaction(None).result()
    with pytest.raises(ClosedCollection):
        read.snapshot()


def test_a_read_fails_exactly_where_the_error_side_is_not_empty(location: Location) -> None:
    def errors(*changes: tuple[int, int]) -> pa.Table:
        count = len(changes)
        columns = [
            ["DIVIDE_BY_ZERO"] * count,
            ["x / 0"] * count,
            [None] * count,
            [time for time, _ in changes],
            [diff for _, diff in changes],
        ]
        return pa.table(columns, schema=updates_schema(ERROR_SCHEMA))

    location.append(1)
    listen = location.read.listen(0)
    rows_of = [({"k": 1}, 1, 1)]
    location.write.compare_and_append(rows_of, 1, 4, errors=errors((2, 1))).result()
    location.write.compare_and_append([], 4, 6, errors=errors((4, -1))).result()
    for _ in range(2):
        assert rows(location.read.snapshot(1).to_table()) == [(1, 1)]
        with pytest.raises(CollectionHasErrors, match="at time 2: x / 0"):
            location.read.snapshot(2).to_table()
        with pytest.raises(CollectionHasErrors):
            list(location.read.snapshot(3).updates())
        assert rows(location.read.snapshot(4).to_table()) == [(1, 1)]
        location.merge()
    event = listen.fetch(0)
    assert isinstance(event, Updates)
    found = event.errors.select(["__time", "__diff"]).to_pylist()
    assert found == [{"__time": 2, "__diff": 1}, {"__time": 4, "__diff": -1}]
    assert event.ok.num_rows == 1
    assert isinstance(listen.fetch(0), Progress)


def test_an_object_collected_under_an_independent_reader(
    location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part, "INLINE_BYTES_MAX", 0)
    location.append(3, (1, 2, 1))
    location.append(5, (2, 4, 1))
    location.reader.core.refresh()
    snapshot = location.reader.reader("t").snapshot(4)
    location.merge()
    with pytest.raises(PartCollected, match="read again at a later time, or hold"):
        list(snapshot.updates())
    assert sorted(rows(snapshot.to_table())) == [(1, 1), (2, 1)], "it refetches"
    location.write.allow_compaction(6).result()
    location.append(8, (3, 7, 1))
    location.merge()
    with pytest.raises(AsOfBeforeSince):
        snapshot.to_table()


@pytest.mark.parametrize("cuts", [(4,), (3, 6), (2, 3, 5, 9), (0, 20)])
def test_pieces_of_a_part_are_the_part(cuts: tuple[int, ...]) -> None:
    """Seals cut a part into windows; every time is in exactly one of them."""
    whole = Part(Inline(b""), "inline", 0, False, 3, 3, 3, 8)
    bounds = [MINIMUM, *cuts, TIME_LIMIT]
    pieces = [whole.through(low, high) for low, high in pairwise(bounds)]
    for time in range(3, 9):
        holders = [
            piece
            for piece in pieces
            if piece is not None
            and (piece.window is None or piece.window[0] <= time < piece.window[1])
        ]
        assert len(holders) == 1
    for piece in pieces:
        if piece is not None:
            assert piece.through(MINIMUM, TIME_LIMIT) in (piece, whole)
            assert piece.through(*(piece.window or (3, 9))) is not None


def test_a_closed_upper_is_read_like_any_other(location: Location) -> None:
    location.append(1)
    listen = location.read.listen(0)
    location.write.write([({"k": 1}, 3, 1)]).result()
    location.write.seal(None).result()
    assert location.read.upper == Frontier.closed()
    assert rows(location.read.snapshot(2).to_table()) == []
    assert rows(location.read.snapshot(2**62).to_table()) == [(1, 1)]
    assert location.read.snapshot().as_of == 3
    assert [type(event) for event in listen] == [Updates, Progress]
    assert listen.frontier == Frontier.closed()

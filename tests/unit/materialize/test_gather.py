"""An interval fits into memory, however much was written at once, and is one transaction."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headwater.collection.collections import Collections
from headwater.materialize import gather, loaded
from headwater.materialize.combine import Bound
from headwater.materialize.definition import Binding, Definition, Endpoint
from headwater.materialize.drivers import sql
from headwater.materialize.drivers.sqlite import SqliteDriver
from headwater.materialize.key_range import KeyRange
from headwater.materialize.loaded import LoadedRows
from headwater.materialize.pace import Tuning
from headwater.materialize.protocol import messages as m
from headwater.materialize.runtime import Session
from headwater.materialize.spill import Spill
from headwater.materialize.status import Status
from headwater.materialize.transport.in_process import InProcess
from headwater.persist import interval
from headwater.persist.client import Client, open_location
from headwater.persist.evolution import updates_schema
from tests.seeds import seeds

SCHEMA = pa.schema(
    [pa.field("k", pa.int64()), pa.field("who", pa.string()), pa.field("n", pa.int64())]
)
Row = tuple[int, str, int]
LIMIT = 6_000
ROWS_MAX = LIMIT // 25 + 100
"""What a row has at least is 25 bytes; and a slice may come on top."""


class Story:
    """A collection delivered by three bindings into SQLite; everything held is watched."""

    def __init__(self, client: Client, path: Path, spill_bytes: int) -> None:
        self.path, self.client = path, client
        self.write, read = client.create_or_load(path.stem, SCHEMA)
        bindings = (
            Binding("c", read.id, "by_k", ("k",)),
            Binding("c", read.id, "sums", ("who",), reduce=(("n", "sum"),)),
            Binding("c", read.id, "log", ("k",), delta_updates=True),
        )
        self.reads = [Collections(client).acquire_read(read.id) for _ in bindings]
        endpoint = Endpoint("sqlite", {"path": str(path)})
        texts = tuple(read.to_text() for read in self.reads)
        tuning = Tuning(spill_bytes=spill_bytes)
        self.definition = Definition(path.stem, "i", endpoint, bindings, texts, tuning=tuning)
        self.messages: list[m.Message] = []
        self.time = 0
        self.status = Status()
        stream = InProcess(SqliteDriver(), self.messages.append)
        self.session = Session(client, self.definition, self.reads, KeyRange.full(), stream)
        # The first snapshot has nothing: what comes after it is what this is about.
        self.change([])
        self.deliver()

    def change(self, changes: list[tuple[Row, int]]) -> None:
        """Change all of it at one time, in one write."""
        self.time += 1
        columns: dict[str, list[Any]] = {
            name: [row[at] for row, _ in changes] for at, name in enumerate(SCHEMA.names)
        }
        columns |= {"__time": [self.time] * len(changes), "__diff": [diff for _, diff in changes]}
        table = pa.table(columns, schema=updates_schema(SCHEMA))
        self.write.compare_and_append(table, self.write.upper, self.time + 1).result()

    def deliver(self) -> list[m.Message]:
        """Deliver what there is; return what was said."""
        self.messages.clear()
        while (target := self.session.feed.wait(0)) is not None:
            self.status = self.session.deliver(target, self.status)
        return list(self.messages)

    def rows(self) -> dict[str, list[Any]]:
        with closing(sqlite3.connect(self.path)) as db:
            return {
                table: db.execute(f"SELECT {columns} FROM {table} ORDER BY rowid").fetchall()
                for table, columns in (
                    ("by_k", "k, who, n"),
                    ("sums", "who, n, _headwater_rows"),
                    ("log", 'k, who, n, "_meta/op"'),
                )
            }

    def close(self) -> None:
        self.session.end()
        self.session.close()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with open_location(tmp_path / "data") as opened:
        yield opened


@dataclass
class Held:
    """How many rows each step had in hand, each time."""

    parts: list[int] = field(default_factory=list)
    combined: list[int] = field(default_factory=list)
    stored: list[int] = field(default_factory=list)
    spills: list[Spill] = field(default_factory=list)
    loaded: list[LoadedRows] = field(default_factory=list)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    seen = Held()
    ordered, piece, updates = Bound.ordered, Bound.piece, interval.Interval.updates

    def read(self: interval.Interval) -> Iterator[pa.Table]:
        for found in updates(self):
            seen.parts.append(found.num_rows)
            yield found

    def combined(self: Bound, updates: pa.Table, *more: Any) -> pa.Table:
        seen.combined.append(updates.num_rows)
        return ordered(self, updates, *more)

    def stored(self: Bound, rows: pa.Table) -> Any:
        seen.stored.append(rows.num_rows)
        return piece(self, rows)

    class WatchedSpill(Spill):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            seen.spills.append(self)

    class WatchedRows(LoadedRows):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            seen.loaded.append(self)

    monkeypatch.setattr(interval.Interval, "updates", read)
    monkeypatch.setattr(Bound, "ordered", combined)
    monkeypatch.setattr(Bound, "piece", stored)
    monkeypatch.setattr(gather, "Spill", WatchedSpill)
    monkeypatch.setattr(gather, "LoadedRows", WatchedRows)
    monkeypatch.setattr(interval, "PIECE_BYTES", LIMIT)
    monkeypatch.setattr(loaded, "_ROWS_AT_ONCE", 50)
    monkeypatch.setattr(sql, "LOAD_ROWS", 50)
    return seen


def test_rows_held_at_once_do_not_depend_on_the_interval(
    client: Client, tmp_path: Path, held: Held
) -> None:
    story = Story(client, tmp_path / "e.db", LIMIT)
    rows = 1_600
    # Every key of the sums is another one, so that half of them are loaded the second time.
    story.change([((k * 7919 % rows, f"p{k}", k), 1) for k in range(rows)])
    story.deliver()
    story.change([((k * 7919 % rows, f"p{k}", k), -1) for k in range(0, rows, 2)])
    said = story.deliver()
    assert sum(isinstance(message, m.StartCommit) for message in said) == 1
    stored = [x.rows.num_rows for x in said if isinstance(x, m.StoreMany)]
    found = [x.rows.num_rows for x in said if isinstance(x, m.LoadedMany)]
    asked = [len(x.keys_packed) for x in said if isinstance(x, m.LoadMany)]
    assert (sum(stored), sum(found), sum(asked)) == (3 * rows // 2, rows // 2, rows // 2)
    spilled = [spill.most_rows for spill in held.spills]
    for step in (held.parts, held.combined, held.stored, spilled, stored, found, asked):
        assert 0 < max(step) <= ROWS_MAX
    assert 0 < max(kept.most_rows for kept in held.loaded) <= ROWS_MAX
    for often in (held.parts, held.combined, held.stored):
        assert len(often) > 2 * rows // ROWS_MAX
    left = list(range(1, rows, 2))
    there = story.rows()
    assert sorted(n for _, _, n in there["by_k"]) == left
    assert sorted(n for _, n, _ in there["sums"]) == left
    assert Counter(op for *_, op in there["log"]) == {"c": rows, "d": rows // 2}
    story.close()


@pytest.mark.parametrize("seed", seeds(3, 100))
@pytest.mark.usefixtures("held")
def test_what_is_spilled_is_what_is_not(client: Client, tmp_path: Path, seed: int) -> None:
    """The same changes with a small limit and with a large one: the same messages."""
    print(f"seed {seed}")
    random = Random(seed)
    small = Story(client, tmp_path / "small.db", random.choice([700, 3_000, 6_000]))
    large = Story(client, tmp_path / "large.db", 1 << 30)
    there: dict[int, Row] = {}
    for _ in range(4):
        changes: list[tuple[Row, int]] = []
        for k in random.sample(range(400), random.randrange(1, 300)):
            before = there.pop(k, None)
            if before is not None:
                changes.append((before, -1))
            if before is None or random.random() < 0.7:
                there[k] = (k, f"p{random.randrange(40)}", random.randrange(-9, 9))
                changes.append((there[k], 1))
        random.shuffle(changes)
        stored = []
        for story in (small, large):
            story.change(changes)
            said = story.deliver()
            stored.append(_contents(said))
        assert stored[0] == stored[1]
        assert small.rows() == large.rows()
    assert sorted(small.rows()["by_k"]) == sorted(there.values())
    small.close()
    large.close()


def _contents(said: list[m.Message]) -> dict[str, Any]:
    """Return what was loaded and stored, however it was cut into messages."""
    loads = [
        (x.binding, key)
        for x in said
        if isinstance(x, m.LoadMany)
        for key in x.keys_packed.to_pylist()
    ]
    stores = [
        (x.binding, *row)
        for x in said
        if isinstance(x, m.StoreMany)
        for row in zip(
            x.keys_packed.to_pylist(),
            x.exists.to_pylist(),
            x.delete.to_pylist(),
            map(str, x.rows.to_pylist()),
            strict=True,
        )
    ]
    return {"loads": loads, "stores": stores}


@pytest.mark.usefixtures("held")
def test_a_key_that_is_not_unique_is_found_before_anything_is_stored(
    client: Client, tmp_path: Path
) -> None:
    story = Story(client, tmp_path / "e.db", LIMIT)
    changes: list[tuple[Row, int]] = [((k, "p", k), 1) for k in range(2_000)]
    story.change([*changes, ((1_999, "q", 0), 1)])
    with pytest.raises(Exception, match="two rows have the key"):
        story.deliver()
    assert not any(isinstance(x, m.Flush | m.StoreMany) for x in story.messages)
    story.session.close()

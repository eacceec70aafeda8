"""The first snapshot fits into memory, whatever the size of the view, and survives every crash."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headwater.collection.collections import Collections
from headwater.materialize import runtime
from headwater.materialize.checkpoint import Position
from headwater.materialize.combine import ANY_KEY, Bound
from headwater.materialize.definition import Binding, Definition, Endpoint
from headwater.materialize.drivers.sqlite import SqliteDriver
from headwater.materialize.key_range import KeyRange
from headwater.materialize.protocol import messages as m
from headwater.materialize.runtime import Session
from headwater.materialize.spill import Spill
from headwater.materialize.status import Status
from headwater.materialize.transport.in_process import InProcess
from headwater.persist.client import Client, open_location
from headwater.persist.evolution import updates_schema
from tests.seeds import seeds

pytestmark = pytest.mark.usefixtures("sqlite_without_fsync")

SCHEMA = pa.schema(
    [pa.field("k", pa.int64()), pa.field("who", pa.string()), pa.field("n", pa.int64())]
)
PERSONS = 7

Row = tuple[int, str, int]


def _updates(time: int, *changes: tuple[Row, int]) -> pa.Table:
    columns: dict[str, list[Any]] = {
        name: [row[at] for row, _ in changes] for at, name in enumerate(SCHEMA.names)
    }
    columns |= {"__time": [time] * len(changes), "__diff": [diff for _, diff in changes]}
    return pa.table(columns, schema=updates_schema(SCHEMA))


# ---- spilling ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(5, 300))
def test_pieces_are_what_was_added(seed: int) -> None:
    print(f"seed {seed}")
    random = Random(seed)
    spread = random.choice([3, 50, 2_000])
    tables = [
        _updates(
            1,
            *(
                (
                    (random.randrange(spread) - 9, f"p{random.randrange(3)}", 0),
                    random.choice([1, 1, -1]),
                )
                for _ in range(random.randrange(200))
            ),
        )
        for _ in range(random.randrange(1, 12))
    ]
    limit = random.choice([1_500, 4_000, 10_000_000])
    spill = Spill(("k",), limit)
    expected: Counter[Row] = Counter()
    for table in tables:
        spill.add(table)
        for row in table.to_pylist():
            expected[row["k"], row["who"], row["n"]] += row["__diff"]
    pieces = list(spill.pieces())
    found: Counter[Row] = Counter()
    greatest = -10
    for piece in pieces:
        keys = piece.updates["k"].to_pylist()
        # Each key is in one piece, and they ascend.
        assert not keys or min(keys) > greatest
        greatest = max([greatest, *keys])
        for row in piece.updates.to_pylist():
            found[row["k"], row["who"], row["n"]] += row["__diff"]
    assert +found == +expected
    assert -found == -expected
    assert [piece.last is None for piece in pieces[:-1]] == [False] * (len(pieces) - 1)
    if limit == 10_000_000:
        assert len(pieces) <= 1
    else:
        most_of_a_key = max(
            Counter(k for t in tables for k in t["k"].to_pylist()).values(), default=0
        )
        rows = limit // 25  # What a row has at least, in bytes.
        assert spill.most_rows <= max(rows, most_of_a_key) + most_of_a_key


def test_pieces_after_a_key() -> None:
    for after in range(0, 70, 30):
        spill = Spill(("k",), 1_000)
        for start in range(0, 100, 20):
            spill.add(_updates(1, *(((k, "p", 0), 1) for k in range(start, start + 20))))
        whole = list(spill.pieces())
        cut = next(
            piece.last
            for piece in whole
            if piece.last and max(piece.updates["k"].to_pylist()) >= after
        )
        again = [k for piece in spill.pieces(cut) for k in piece.updates["k"].to_pylist()]
        before = [k for p in whole for k in p.updates["k"].to_pylist() if k not in again]
        assert sorted(again) == list(range(len(before), 100))


# ---- delivering ----------------------------------------------------------------------------------


class Crash(Exception):
    """The process is gone."""


class Story:
    """A collection of many parts, delivered by three bindings into SQLite."""

    def __init__(self, client: Client, directory: Path, rows: int, at_once: int) -> None:
        self.client, self.path = client, directory / "e.db"
        self.write, read = client.create_or_load("c", SCHEMA)
        self.model = {k: (k, f"p{k % PERSONS}", k) for k in range(rows)}
        time = 0
        keys = sorted(self.model, key=lambda k: (k * 7919) % rows)
        for start in range(0, rows, at_once):
            time += 1
            changes = [(self.model[k], 1) for k in keys[start : start + at_once]]
            self._append(time, changes)
        self.time = time
        bindings = (
            Binding("c", read.id, "by_k", ("k",)),
            Binding("c", read.id, "sums", ("who",), reduce=(("n", "sum"),)),
            Binding("c", read.id, "log", ("k",), delta_updates=True),
        )
        self.reads = [Collections(client).acquire_read(read.id) for _ in bindings]
        endpoint = Endpoint("sqlite", {"path": str(self.path)})
        texts = tuple(read.to_text() for read in self.reads)
        self.definition = Definition("m", "i", endpoint, bindings, texts)
        self.transactions: list[int] = []
        """How many rows each transaction stored."""
        self.left = -1
        """How many messages are left before the process dies."""
        self.status = Status()

    def _append(self, time: int, changes: list[tuple[Row, int]]) -> None:
        self.write.compare_and_append(_updates(time, *changes), self.write.upper, time + 1).result()

    def change(self) -> None:
        """Replace some rows, and remove one."""
        self.time += 1
        changes: list[tuple[Row, int]] = []
        for k in (0, 1, len(self.model) - 1):
            changes.append((self.model[k], -1))
            self.model[k] = (k, self.model[k][1], self.model[k][2] + 1)
            changes.append((self.model[k], 1))
        if 2 in self.model:
            changes.append((self.model.pop(2), -1))
        self._append(self.time, changes)

    def _watch(self, message: m.Message) -> None:
        self.left -= 1
        if self.left == 0:
            raise Crash
        if isinstance(message, m.StoreMany):
            self.transactions[-1] += message.rows.num_rows
        elif isinstance(message, m.Flush):
            self.transactions.append(0)

    def session(self, steps: int = 1_000) -> bool:
        """Run a session for some transactions; return whether it got to the end."""
        driver = SqliteDriver()
        try:
            stream = InProcess(driver, self._watch)
            session = Session(self.client, self.definition, self.reads, KeyRange.full(), stream)
            try:
                for _ in range(steps):
                    target = session.feed.wait(0)
                    if target is None:
                        break
                    self.status = session.deliver(target, self.status)
                session.end()
            finally:
                session.close()
        except Crash:
            driver.close()
            return False
        return session.feed.first is None

    def judge(self) -> None:
        rows = sorted(self.model.values())
        with closing(sqlite3.connect(self.path)) as db:
            assert sorted(db.execute("SELECT k, who, n FROM by_k").fetchall()) == rows
            sums: Counter[str] = Counter()
            for _, who, n in rows:
                sums[who] += n
            assert dict(db.execute("SELECT who, n FROM sums").fetchall()) == dict(sums)
            log: Counter[Row] = Counter()
            for k, who, n, op in db.execute('SELECT k, who, n, "_meta/op" FROM log').fetchall():
                log[k, who, n] += 1 if op == "c" else -1
            assert sorted(log.elements()) == rows


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with open_location(tmp_path / "data") as opened:
        yield opened


def test_rows_held_at_once_do_not_depend_on_the_view(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once, limit = 100, 6_000
    spills: list[Spill] = []
    combined: list[int] = []

    class Watched(Spill):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            spills.append(self)

    combine = Bound.ordered

    def counted(self: Bound, updates: pa.Table, *more: Any) -> Any:
        combined.append(updates.num_rows)
        return combine(self, updates, *more)

    monkeypatch.setattr("headwater.materialize.first.Spill", Watched)
    monkeypatch.setattr(Bound, "ordered", counted)
    monkeypatch.setattr(runtime, "SPILL_BYTES", limit)
    story = Story(client, tmp_path, 3_000, at_once)
    assert story.session()
    story.judge()
    bound = limit // 25 + at_once
    # One person has 3,000 / 7 rows, which the sums need together: that is what a key has.
    of_a_key = 3_000 // PERSONS + 1
    by_k, sums, log = spills
    assert max(by_k.most_rows, log.most_rows) <= bound
    assert sums.most_rows <= of_a_key + bound
    assert max(combined) <= of_a_key + bound
    assert max(story.transactions) <= 2 * bound
    assert len(story.transactions) > 2 * 3_000 // bound


def test_a_small_snapshot_is_one_transaction(client: Client, tmp_path: Path) -> None:
    story = Story(client, tmp_path, 50, 10)
    assert story.session()
    story.judge()
    assert story.transactions == [50 + PERSONS + 50]


@pytest.mark.parametrize("seed", seeds(2, 60))
def test_a_crash_costs_no_more_than_the_transaction_in_hand(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Sessions die or stop wherever they are, while the collection goes on."""
    print(f"seed {seed}")
    random = Random(seed)
    monkeypatch.setattr(runtime, "SPILL_BYTES", 3_000)
    story = Story(client, tmp_path, 400, 60)
    done, positions = False, set()
    while not done:
        story.left = random.choice([-1, random.randint(1, 40)])
        done = story.session(random.randint(1, 6))
        with closing(sqlite3.connect(story.path)) as db, suppress(sqlite3.OperationalError):
            positions.update(db.execute("SELECT checkpoint FROM flow_checkpoints_v1").fetchall())
        if random.random() < 0.5:
            story.change()
    story.left = -1
    assert story.session()
    story.judge()
    assert len(positions) > 3, "there was something to resume from"
    # Each row of the snapshot is stored once; only what was in hand is stored again.
    assert sum(story.transactions) < 3 * (2 * 400 + PERSONS)


def test_a_snapshot_goes_on_at_its_own_time(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "SPILL_BYTES", 3_000)
    story = Story(client, tmp_path, 300, 50)
    assert not story.session(steps=2)
    begun = story.time
    story.change()
    stream = InProcess(SqliteDriver())
    session = Session(client, story.definition, story.reads, KeyRange.full(), stream)
    assert isinstance(session.position, Position)
    assert session.position.time == begun + 1
    ((named, reached),) = session.position.snapshot
    assert named == "by_k.v0"
    assert b"" < reached < ANY_KEY
    assert session.feed.wait(0) == begun + 1
    session.end()
    session.close()
    assert story.session()
    story.judge()

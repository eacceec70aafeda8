"""A collection that takes the place of another: the endpoint gets the difference, once."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from random import Random
from time import monotonic, sleep
from typing import Any

import pyarrow as pa
import pytest

from headwater.algebra.frontier import Frontier
from headwater.collection.capability import ReadCapability, new_token
from headwater.materialize.checkpoint import Position
from headwater.materialize.controller import Materializations
from headwater.materialize.definition import Binding, Endpoint, Was
from headwater.materialize.feed import Feed
from headwater.materialize.replaced import CannotBeMoved
from headwater.persist.client import Client, ReadHandle, WriteHandle, open_location
from headwater.persist.commands import Atomic, Command, OpenReader
from headwater.persist.errors import CollectionHasErrors
from headwater.persist.evolution import ERROR_SCHEMA, updates_schema
from tests.seeds import seeds

pytestmark = pytest.mark.usefixtures("sqlite_without_fsync")

SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.string())])
WIDER = SCHEMA.append(pa.field("w", pa.int64()))
WAIT_SECONDS = 60.0


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with open_location(tmp_path / "data") as opened:
        yield opened


class Made:
    """A collection with what it has now, written to time by time."""

    def __init__(self, client: Client, name: str, schema: pa.Schema = SCHEMA) -> None:
        self.schema = schema
        self.write: WriteHandle
        self.read: ReadHandle
        self.write, self.read = client.create_or_load(name, schema, key=("k",))
        self.rows: dict[int, str] = {}
        self.upper = 0

    def turn(self, rows: Mapping[int, str], upper: int) -> None:
        """Have other rows, from the last time before ``upper`` on."""
        gone = [(k, v, -1) for k, v in self.rows.items() if rows.get(k) != v]
        came = [(k, v, 1) for k, v in rows.items() if self.rows.get(k) != v]
        columns = [
            [k for k, _, _ in gone + came],
            [v for _, v, _ in gone + came],
            *([[7] * len(gone + came)] if "w" in self.schema.names else []),
            [upper - 1] * len(gone + came),
            [diff for _, _, diff in gone + came],
        ]
        fields = updates_schema(self.schema)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, fields, strict=True)]
        updates = pa.Table.from_arrays(arrays, schema=fields)
        self.write.compare_and_append(updates, self.upper, upper).result()
        self.rows, self.upper = dict(rows), upper


def _found(path: Path, columns: str = "k, v") -> list[tuple[object, ...]] | None:
    with closing(sqlite3.connect(path)) as db:
        try:
            return sorted(db.execute(f"SELECT {columns} FROM target").fetchall())
        except sqlite3.OperationalError:
            return None  # The table is not there yet.


def _eventually(condition: Callable[[], object]) -> None:
    deadline = monotonic() + WAIT_SECONDS
    while not condition():
        assert monotonic() < deadline, "it never came"
        sleep(0.01)


def _install(running: Materializations, made: Made, path: Path, **more: Any) -> None:
    binding = Binding("c", made.read.id, "target", ("k",), **more)
    running.install("m", Endpoint("sqlite", {"path": str(path)}), (binding,))


def _replace(client: Client, running: Materializations, old: Made, new: Made) -> None:
    def commit(also: tuple[Command, ...]) -> None:
        client.core.submit(Atomic(also)).result()

    running.check_replaceable([old.read.id])
    running.replace({old.read.id: new.read.id}, commit)


def test_the_difference_is_delivered_and_then_what_changes(client: Client, tmp_path: Path) -> None:
    endpoint = tmp_path / "e.db"
    old, new = Made(client, "old"), Made(client, "new")
    old.turn({1: "a", 2: "b", 4: "d"}, 5)
    new.turn({1: "a", 2: "B", 3: "c"}, 7)
    running = Materializations(client, retry_seconds=0.02)
    _install(running, old, endpoint)
    _eventually(lambda: _found(endpoint) == sorted(old.rows.items()))
    _replace(client, running, old, new)
    _eventually(lambda: _found(endpoint) == sorted(new.rows.items()))
    delivered = running.get("m")
    assert delivered is not None
    _eventually(lambda: delivered.status.transactions == 1)
    assert (delivered.status.rows_stored, delivered.status.rows_deleted) == (2, 1)
    # A driver may be one transaction behind us, so the old one is kept until the next.
    assert running.needs(old.read.id)
    # Another one before that is so: both are kept.
    newest = Made(client, "newest")
    newest.turn({1: "a", 3: "C"}, 8)
    _replace(client, running, new, newest)
    _eventually(lambda: _found(endpoint) == [(1, "a"), (3, "C")])
    assert running.needs(old.read.id)
    assert running.needs(new.read.id)
    newest.turn({1: "a"}, 12)
    _eventually(lambda: _found(endpoint) == [(1, "a")])
    _eventually(lambda: not running.needs(old.read.id))
    for made in (old, new):
        assert list(client.core.state.collections[made.read.id].readers) == ["owner"]
    running.stop()


@pytest.mark.parametrize("seed", seeds(1, 60))
def test_whoever_stops_where_it_goes_on_exactly(client: Client, tmp_path: Path, seed: int) -> None:
    chance = Random(seed)
    endpoint = tmp_path / "e.db"

    def rows() -> dict[int, str]:
        return {k: chance.choice("xyz") for k in range(6) if chance.random() < 0.7}

    old, new = Made(client, "old"), Made(client, "new", chance.choice([SCHEMA, WIDER]))
    old.turn(rows(), 3)
    new.turn(rows(), chance.choice([2, 3, 6]))
    running = Materializations(client, retry_seconds=0.02)
    _install(running, old, endpoint)
    if chance.random() < 0.7:
        _eventually(lambda: _found(endpoint) == sorted(old.rows.items()))
    old.turn(rows(), 5)
    stopped = chance.random() < 0.5
    if stopped:
        running.stop()
    _replace(client, running, old, new)
    if stopped or chance.random() < 0.5:
        running.stop()
        running = Materializations(client, retry_seconds=0.02)
        running.start()
    new.turn(rows(), 8)
    if chance.random() < 0.5:
        running.stop()
        running.start()
    if chance.random() < 0.5:
        last, new = new, Made(client, "newest", new.schema)
        new.turn(rows(), chance.choice([7, 8, 9]))
        _replace(client, running, last, new)
    new.turn(rows(), 12)
    _eventually(lambda: _found(endpoint) == sorted(new.rows.items()))
    running.stop()
    if new.schema is WIDER:
        found = _found(endpoint, "k, w")
        assert found is not None
        assert {w for _, w in found} <= {7}, f"seed {seed}"


def test_what_cannot_go_on_is_refused(client: Client, tmp_path: Path) -> None:
    old, wide = Made(client, "old", WIDER), Made(client, "wide", WIDER)
    new = Made(client, "new")
    for made in (old, wide, new):
        made.turn({1: "a"}, 5)
    running = Materializations(client, retry_seconds=0.02)
    _install(running, old, tmp_path / "e.db")
    with pytest.raises(CannotBeMoved, match="delivers the column 'w', which would go"):
        _replace(client, running, old, new)
    other = Made(client, "other", SCHEMA.append(pa.field("w", pa.decimal128(9, 2))))
    with pytest.raises(CannotBeMoved, match=r"would be numeric\(9,2\), no longer bigint"):
        _replace(client, running, old, other)
    running.drop("m")
    more = {"append_only": True, "reduce": (("w", "maximize"),)}
    _install(running, old, tmp_path / "f.db", **more)
    with pytest.raises(CannotBeMoved, match="promises APPEND_ONLY"):
        _replace(client, running, old, wide)
    running.drop("m")


def test_shards_that_stand_apart_meet_at_the_old_one_first(client: Client) -> None:
    """One goes where the other is; from there, both go over to the new one."""
    old, new = Made(client, "old"), Made(client, "new")
    old.turn({1: "a"}, 3)
    old.turn({1: "b"}, 5)
    new.turn({1: "c"}, 9)
    was = Was(old.read.id, "", 5)
    feed = Feed(client, [("c", _held(client, new, 5))], Position(3), [(was,)])
    assert feed.wait(1.0, no_later=5) == 5
    (taken,) = feed.take(5)
    assert sorted(_values(taken)) == [("a", -1), ("b", 1)]
    assert feed.wait(1.0) == 9
    (taken,) = feed.take(9)
    assert sorted(_values(taken)) == [("b", -1), ("c", 1)]
    feed.close()


def test_errors_of_the_new_one_are_waited_for(client: Client) -> None:
    old, new = Made(client, "old"), Made(client, "new")
    old.turn({1: "a"}, 5)
    new.turn({1: "c"}, 4)
    new.write.compare_and_append(_none(), 4, 9, errors=_error(4, 1)).result()
    feed = Feed(client, [("c", _held(client, new, 5))], Position(5), [(Was(old.read.id, "", 5),)])
    with pytest.raises(CollectionHasErrors):
        feed.wait(1.0)
    new.write.compare_and_append(_none(), 9, 12, errors=_error(9, -1)).result()
    assert feed.wait(1.0) == 12
    (taken,) = feed.take(12)
    assert sorted(_values(taken)) == [("a", -1), ("c", 1)]
    feed.close()


def _held(client: Client, made: Made, time: int) -> ReadCapability:
    read = ReadCapability(made.read.id, new_token(), Frontier.of(time))
    opened = OpenReader(read.id, read.holder, "a test", Frontier.of(time))
    client.core.submit(opened).result()
    return read


def _values(taken: Any) -> list[tuple[str, int]]:
    found: dict[str, int] = {}
    for piece in taken.updates():
        for row in piece.to_pylist():
            found[row["v"]] = found.get(row["v"], 0) + row["__diff"]
    return [(value, diff) for value, diff in found.items() if diff]


def _none() -> pa.Table:
    return updates_schema(SCHEMA).empty_table()


def _error(time: int, diff: int) -> pa.Table:
    fields = updates_schema(ERROR_SCHEMA)
    values = {"__time": time, "__diff": diff}
    row = {field.name: values.get(field.name, "bad") for field in fields}
    return pa.Table.from_pylist([row], schema=fields)

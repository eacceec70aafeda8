"""Materializations as the server runs them: created, resumed, stalled, fenced, dropped."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import msgspec
import pyarrow as pa
import pytest

from headwater.materialize.checkpoint import Position
from headwater.materialize.controller import (
    PREFIX,
    Materializations,
    ResourceNotEmpty,
)
from headwater.materialize.definition import (
    Binding,
    Endpoint,
    UnknownColumn,
    state_key,
)
from headwater.materialize.drivers.sqlite import SqliteDriver
from headwater.materialize.feed import ErrorSpan, Feed, error_spans, last_good
from headwater.materialize.key_range import KeyRange
from headwater.materialize.recovery import PREFIX as SHARDS
from headwater.materialize.recovery import RecoveryEntry, ShardLog, item_key
from headwater.materialize.selection import FieldRefused
from headwater.materialize.status import State
from headwater.materialize.transport.in_process import InProcess
from headwater.persist.client import Client, WriteHandle, open_location
from headwater.persist.commands import SetItem
from headwater.persist.decision import collection_of
from headwater.persist.errors import Fenced
from headwater.persist.evolution import ERROR_SCHEMA, updates_schema
from tests.seeds import seeds
from tests.unit.materialize.into_sqlite import (
    RETRY_SECONDS,
    SCHEMA,
    Crash,
    FailingStream,
    defined,
    eventually,
    into_target,
    one_session,
    reads_of,
    rows_in,
    running_one,
    sqlite_at,
    updates_of,
)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with open_location(tmp_path / "data") as opened:
        yield opened


def test_it_runs_stops_resumes_and_is_dropped(tmp_path: Path) -> None:
    endpoint = tmp_path / "e.db"
    with open_location(tmp_path / "data") as client:
        write, read = client.create_or_load("c", SCHEMA, key=("k",))
        write.compare_and_append(updates_of(((1, "a"), 1, 1)), 0, 2).result()
        running = Materializations(client, retry_seconds=RETRY_SECONDS)
        running.install("m", sqlite_at(endpoint), (into_target(read),))
        eventually(lambda: rows_in(endpoint) == [(1, "a")])
        running.stop()
        write.compare_and_append(updates_of(((1, "a"), 2, -1), ((1, "b"), 2, 1)), 2, 3).result()
    with open_location(tmp_path / "data") as client:
        running = Materializations(client, retry_seconds=RETRY_SECONDS)
        running.start()
        eventually(lambda: rows_in(endpoint) == [(1, "b")])
        eventually(lambda: running_one(running).status.checkpoint == 3)
        running.drop("m")
        left = [k for k in client.core.state.items if k.startswith((PREFIX, SHARDS))]
        assert not left
        (collection,) = client.core.state.collections.values()
        assert list(collection.readers) == ["owner"]


def test_one_entry_holds_all_that_is_remembered(client: Client, tmp_path: Path) -> None:
    write, read = client.create_or_load("c", SCHEMA, key=("k",))
    write.compare_and_append(updates_of(((1, "a"), 1, 1)), 0, 2).result()
    running = Materializations(client, retry_seconds=RETRY_SECONDS)
    running.install("m", sqlite_at(tmp_path / "e.db"), (into_target(read),))
    eventually(lambda: running_one(running).status.checkpoint == 2)
    write.compare_and_append(updates_of(((2, "b"), 2, 1)), 2, 5).result()
    eventually(lambda: running_one(running).status.checkpoint == 5)
    running.stop()
    key = item_key("m", KeyRange.full())
    entry = msgspec.json.decode(client.core.state.items[key], type=RecoveryEntry)
    assert entry.position == Position(5)
    assert entry.applied
    assert entry.version
    # Held at what the driver confirmed before the last transaction, and no later.
    (hold,) = reads_of(defined(client, "m"))
    held = collection_of(client.core.state, read.id).readers[hold.holder]
    assert held.since.only() == 1


def test_times_at_which_nothing_changes_cost_no_entry(client: Client, tmp_path: Path) -> None:
    write, read = client.create_or_load("c", SCHEMA, key=("k",))
    write.compare_and_append(updates_of(((1, "a"), 1, 1)), 0, 2).result()
    running = Materializations(client, retry_seconds=RETRY_SECONDS)
    running.install("m", sqlite_at(tmp_path / "e.db"), (into_target(read),))
    eventually(lambda: running_one(running).status.reached == 2)
    for upper in (3, 4):
        write.compare_and_append(updates_of(), upper - 1, upper).result()
    before = client.core.state.seqno
    eventually(lambda: running_one(running).status.reached == 4)
    assert client.core.state.seqno == before
    assert running_one(running).status.checkpoint == 2
    running.stop()


@pytest.mark.parametrize("seed", seeds(2, 40))
def test_delivery_is_exactly_once_over_crashes(client: Client, tmp_path: Path, seed: int) -> None:
    """Random updates; each session dies after some messages, wherever that is."""
    print(f"seed {seed}")
    random = Random(seed)
    endpoint = tmp_path / "e.db"
    write, read = client.create_or_load("c", SCHEMA, key=("k",))
    write.compare_and_append(updates_of(), 0, 1).result()
    running = Materializations(client, retry_seconds=RETRY_SECONDS)
    running.install("m", sqlite_at(endpoint), (into_target(read),))
    running.stop()
    definition = defined(client, "m")
    model: dict[int, str] = {}
    for time in range(1, 15):
        updates = []
        for k in random.sample(range(6), random.randint(0, 3)):
            if k in model:
                updates.append(((k, model.pop(k)), time, -1))
            if random.random() < 0.7:
                model[k] = f"{time}.{k}"
                updates.append(((k, model[k]), time, 1))
        write.compare_and_append(updates_of(*updates), write.upper, time + 1).result()
        driver = SqliteDriver()
        stream = FailingStream(driver, random.randint(1, 30))
        try:
            one_session(client, definition, stream)
        except Crash:
            driver.close()
    one_session(client, definition, InProcess(SqliteDriver()))
    assert rows_in(endpoint) == sorted(model.items(), key=repr)


def _failed(time: int, diff: int) -> pa.Table:
    rows = {"condition": ["X"], "message": ["division by zero"], "context": [None]}
    return pa.table({**rows, "__time": [time], "__diff": [diff]}, updates_schema(ERROR_SCHEMA))


def _append(write: WriteHandle, ok: pa.Table, lower: int, upper: int, errors: pa.Table) -> None:
    write.compare_and_append(ok, lower, upper, errors=errors).result()


def test_it_stops_at_the_last_time_without_errors(client: Client, tmp_path: Path) -> None:
    endpoint = tmp_path / "e.db"
    write, read = client.create_or_load("c", SCHEMA, key=("k",))
    other_write, other = client.create_or_load("d", SCHEMA, key=("k",))
    running = Materializations(client, retry_seconds=RETRY_SECONDS)
    second = Binding("d", other.id, "other", ("k",))
    running.install("m", sqlite_at(endpoint), (into_target(read), second))
    # All at once: good at 1 and 2, wrong from 3 on.
    other_write.compare_and_append(updates_of(((9, "x"), 1, 1)), 0, 20).result()
    several = updates_of(((1, "a"), 1, 1), ((2, "b"), 2, 1), ((3, "c"), 3, 1), ((4, "d"), 4, 1))
    _append(write, several, 0, 5, _failed(3, 1))
    eventually(lambda: "division by zero" in running_one(running).status.error)
    assert running_one(running).status.state is State.STALLED
    assert rows_in(endpoint) == [(1, "a"), (2, "b")]
    assert rows_in(endpoint, "other") == [(9, "x")]
    assert running_one(running).status.checkpoint == 3
    _append(write, updates_of(((5, "e"), 7, 1)), 5, 8, _failed(6, -1))
    eventually(lambda: rows_in(endpoint) == [(k, v) for k, v in enumerate("abcde", 1)])
    eventually(lambda: running_one(running).status.error == "")
    running.stop()


def test_spans_of_errors() -> None:
    errors = pa.concat_tables([_failed(3, 1), _failed(5, -1), _failed(7, 1), _failed(7, -1)])
    spans = list(error_spans(errors))
    assert [(span.begin, span.end) for span in spans] == [(3, 5)]
    assert [last_good(upper, spans) for upper in (2, 3, 4, 5, 6)] == [2, 3, 3, 3, 6]
    adjacent = [ErrorSpan(3, 5, ()), ErrorSpan(5, 8, ()), ErrorSpan(2, 4, ())]
    assert [last_good(upper, adjacent) for upper in (9, 8, 3)] == [9, 2, 2]


def test_a_session_that_was_replaced_cannot_commit(client: Client) -> None:
    old = ShardLog(client.core, "m", KeyRange.full(), ())
    new = ShardLog(client.core, "m", KeyRange.full(), ())
    with pytest.raises(Fenced):
        old.commit(RecoveryEntry(Position(7)), None)
    new.commit(RecoveryEntry(Position(8)), None)
    assert ShardLog(client.core, "m", KeyRange.full(), ()).entry.position == Position(8)


def test_what_cannot_be_is_refused_before_anything_is_durable(
    client: Client, tmp_path: Path
) -> None:
    _, read = client.create_or_load("c", SCHEMA, key=("k",))
    running, endpoint = Materializations(client, retry_seconds=RETRY_SECONDS), tmp_path / "e.db"
    with closing(sqlite3.connect(endpoint)) as db:
        db.execute("CREATE TABLE full (k INTEGER PRIMARY KEY, v TEXT)")
        db.execute("INSERT INTO full VALUES (1, 'mine')")
        db.execute("CREATE TABLE other (k TEXT, v TEXT, PRIMARY KEY (v))")
        db.execute("CREATE TABLE more (k INTEGER PRIMARY KEY, v TEXT, w TEXT NOT NULL)")
        db.commit()
    for target, refusal, text in (
        ("full", ResourceNotEmpty, "has rows already"),
        ("other", FieldRefused, "the table's column is TEXT, not integer"),
        ("other", FieldRefused, "it is in the table's primary key"),
        ("more", FieldRefused, "column 'w' is required"),
    ):
        with pytest.raises(refusal, match=text):
            running.install("m", sqlite_at(endpoint), (into_target(read, target),))
    with pytest.raises(UnknownColumn, match="'z'"):
        running.install("m", sqlite_at(endpoint), (Binding("c", read.id, "t", ("z",)),))
    assert not [key for key in client.core.state.items if key.startswith(PREFIX)]
    (collection,) = client.core.state.collections.values()
    assert list(collection.readers) == ["owner"]


def test_a_wrong_row_stalls_one_and_others_go_on(client: Client, tmp_path: Path) -> None:
    wrong, good = tmp_path / "wrong.db", tmp_path / "good.db"
    write, read = client.create_or_load("c", SCHEMA, key=("k",))
    other_write, other = client.create_or_load("d", SCHEMA, key=("k",))
    running = Materializations(client, retry_seconds=RETRY_SECONDS)
    running.install("m", sqlite_at(wrong), (into_target(read),))
    running.install("n", sqlite_at(good), (into_target(other),))
    running_one(running)
    write.compare_and_append(updates_of(((1, "a"), 1, 1)), 0, 2).result()
    eventually(lambda: rows_in(wrong) == [(1, "a")])
    # A second row of the key: the first one is in the endpoint, and not in this interval.
    write.compare_and_append(updates_of(((1, "b"), 2, 1)), 2, 3).result()
    eventually(lambda: "the key {'k': 1}" in running_one(running).status.error)
    write.compare_and_append(updates_of(((None, "null"), 3, 1), ((1, "b"), 3, -1)), 3, 4).result()
    eventually(lambda: "NULL in its key column 'k'" in running_one(running).status.error)
    other_write.compare_and_append(updates_of(((7, "x"), 1, 1)), 0, 2).result()
    eventually(lambda: rows_in(good) == [(7, "x")])
    assert rows_in(wrong) == [(1, "a")]
    mended = updates_of(((None, "null"), 4, -1), ((2, "c"), 4, 1))
    write.compare_and_append(mended, 4, 5).result()
    eventually(lambda: rows_in(wrong) == [(1, "a"), (2, "c")])
    running.stop()


def test_the_endpoints_checkpoint_wins(client: Client, tmp_path: Path) -> None:
    """An endpoint that is emptied is filled again; one that is too old is not guessed at."""
    endpoint = tmp_path / "e.db"
    write, read = client.create_or_load("c", SCHEMA, key=("k",))
    write.compare_and_append(updates_of(((1, "a"), 1, 1)), 0, 2).result()
    running = Materializations(client, retry_seconds=RETRY_SECONDS)
    running.install("m", sqlite_at(endpoint), (into_target(read),))
    eventually(lambda: running_one(running).status.checkpoint == 2)
    running.stop()
    saved = endpoint.read_bytes()
    with closing(sqlite3.connect(endpoint)) as db:
        assert db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() is not None
        saved = endpoint.read_bytes()
        db.execute("DELETE FROM flow_checkpoints_v1")
        db.execute("DELETE FROM target")
        db.commit()
    running.start()
    eventually(lambda: rows_in(endpoint) == [(1, "a")])
    for time in (2, 3, 4):
        write.compare_and_append(updates_of(((time, "n"), time, 1)), time, time + 1).result()
        eventually(lambda time=time: running_one(running).status.checkpoint == time + 1)  # type: ignore[misc]
    running.stop()
    write.allow_compaction(3).result()
    with closing(sqlite3.connect(endpoint)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    endpoint.write_bytes(saved)
    running.start()
    eventually(lambda: "restored from a backup" in running_one(running).status.error)
    assert rows_in(endpoint) == [(1, "a")]
    running.stop()


def test_a_dropped_one_leaves_a_checkpoint_that_is_not_taken_for_ours(
    client: Client, tmp_path: Path
) -> None:
    endpoint = tmp_path / "e.db"
    write, read = client.create_or_load("c", SCHEMA, key=("k",))
    running = Materializations(client, retry_seconds=RETRY_SECONDS)
    running.install("m", sqlite_at(endpoint), (into_target(read),))
    write.compare_and_append(updates_of(((1, "a"), 1, 1)), 0, 2).result()
    eventually(lambda: running_one(running).status.checkpoint == 2)
    running.drop("m")
    running.install("m", sqlite_at(endpoint), (into_target(read, "again"),))
    eventually(lambda: "is not of materialization" in running_one(running).status.error)
    running.stop()


def test_a_new_column_is_there_before_its_first_value(client: Client, tmp_path: Path) -> None:
    endpoint = tmp_path / "e.db"
    write, read = client.create_or_load("c", SCHEMA, key=("k",))
    running = Materializations(client, retry_seconds=RETRY_SECONDS)
    running.install("m", sqlite_at(endpoint), (into_target(read),))
    write.compare_and_append(updates_of(((1, "a"), 1, 1)), 0, 2).result()
    eventually(lambda: running_one(running).status.checkpoint == 2)
    wider = pa.schema([*SCHEMA, pa.field("w", pa.int64())])
    write, _ = client.create_or_load("c", wider, key=("k",))
    columns = {"k": [2], "v": ["b"], "w": [7], "__time": [2], "__diff": [1]}
    updates = pa.table(columns, schema=updates_schema(wider))
    write.compare_and_append(updates, 2, 3).result()
    eventually(lambda: running_one(running).status.checkpoint == 3)
    running.stop()
    with closing(sqlite3.connect(endpoint)) as db:
        rows = db.execute("SELECT k, v, w FROM target ORDER BY k").fetchall()
    assert rows == [(1, "a", None), (2, "b", 7)]


def test_a_long_history_is_delivered_from_its_newest_snapshot(
    client: Client, tmp_path: Path
) -> None:
    endpoint = tmp_path / "e.db"
    write, read = client.create_or_load("c", SCHEMA, key=("k",))
    for time in range(1, 5):
        old = [((1, f"{time - 1}"), time, -1)] if time > 1 else []
        updates = updates_of(*old, ((1, f"{time}"), time, 1))
        write.compare_and_append(updates, write.upper, time + 1).result()
    running = Materializations(client, retry_seconds=RETRY_SECONDS)
    running.install("m", sqlite_at(endpoint), (into_target(read),))
    running.stop()
    definition = defined(client, "m")
    feed = Feed(client, [("c", reads_of(definition)[0])], None)
    assert feed.wait(0) == 5
    (snapshot,) = feed.snapshots
    assert snapshot.to_table().to_pylist() == [{"k": 1, "v": "4", "__diff": 1}]
    feed.close()


def test_a_driver_that_is_no_more_stalls_only_its_own(client: Client, tmp_path: Path) -> None:
    write, read = client.create_or_load("c", SCHEMA, key=("k",))
    write.compare_and_append(updates_of(((1, "a"), 1, 1)), 0, 2).result()
    running = Materializations(client, retry_seconds=RETRY_SECONDS)
    for name in ("m", "n"):
        running.install(name, sqlite_at(tmp_path / f"{name}.db"), (into_target(read),))
    running.stop()
    lost = msgspec.structs.replace(defined(client, "m"), endpoint=Endpoint("gone", {}))
    client.core.submit(SetItem(PREFIX + "m", msgspec.json.encode(lost))).result()
    running.start()
    eventually(lambda: "there is no driver 'gone'" in running_one(running).status.error)
    eventually(lambda: running_one(running, "n").status.state is State.RUNNING)
    running.stop()


def test_state_keys() -> None:
    assert state_key(("public", "a b~é")) == "public%2Fa%20b%7E%C3%A9.v0"

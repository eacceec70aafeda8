"""Materializations as the server runs them: created, resumed, stalled, fenced, dropped."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from time import monotonic, sleep

import msgspec
import pyarrow as pa
import pytest

from headwater.collection.capability import ReadCapability, from_text
from headwater.materialize.checkpoint import Position
from headwater.materialize.controller import (
    PREFIX,
    Materializations,
    ResourceNotEmpty,
    UnknownMaterialization,
)
from headwater.materialize.definition import (
    Binding,
    Definition,
    Endpoint,
    UnknownColumn,
    state_key,
)
from headwater.materialize.delivery import Stream
from headwater.materialize.drivers import sql
from headwater.materialize.drivers.registry import Guarantee, guarantee
from headwater.materialize.drivers.responder import Responder
from headwater.materialize.drivers.sqlite import SqliteDriver
from headwater.materialize.feed import ErrorSpan, Feed, error_spans, last_good
from headwater.materialize.key_range import KeyRange
from headwater.materialize.protocol import messages as m
from headwater.materialize.recovery import PREFIX as SHARDS
from headwater.materialize.recovery import RecoveryEntry, ShardLog, item_key
from headwater.materialize.runtime import Session
from headwater.materialize.selection import FieldRefused
from headwater.materialize.shards import Materialization
from headwater.materialize.status import State, Status
from headwater.materialize.transport.in_process import InProcess
from headwater.persist.client import Client, ReadHandle, WriteHandle, open_location
from headwater.persist.commands import SetItem
from headwater.persist.decision import collection_of
from headwater.persist.errors import Fenced
from headwater.persist.evolution import ERROR_SCHEMA, updates_schema
from tests.seeds import seeds

SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.string())])
WAIT_SECONDS = 120.0
RETRY_SECONDS = 0.02

Row = tuple[int | None, str]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with open_location(tmp_path / "data") as opened:
        yield opened


def _updates(*triples: tuple[Row, int, int]) -> pa.Table:
    columns = {
        "k": [row[0] for row, _, _ in triples],
        "v": [row[1] for row, _, _ in triples],
        "__time": [time for _, time, _ in triples],
        "__diff": [diff for _, _, diff in triples],
    }
    return pa.table(columns, schema=updates_schema(SCHEMA))


def _rows(path: Path, table: str = "target") -> list[tuple[object, ...]] | None:
    with closing(sqlite3.connect(path)) as db:
        try:
            return sorted(db.execute(f"SELECT k, v FROM {table}").fetchall(), key=repr)
        except sqlite3.OperationalError:
            return None  # The table is not there yet.


def _eventually(condition: Callable[[], bool]) -> None:
    deadline = monotonic() + WAIT_SECONDS
    while not condition():
        assert monotonic() < deadline, "it never came"
        sleep(0.02)


def _endpoint(path: Path) -> Endpoint:
    return Endpoint("sqlite", {"path": str(path)})


def _binding(read: ReadHandle, target: str = "target") -> Binding:
    return Binding("c", read.id, target, ("k",))


def _definition(client: Client, name: str) -> Definition:
    return msgspec.json.decode(client.core.state.items[PREFIX + name], type=Definition)


def _reads(definition: Definition) -> list[ReadCapability]:
    found = [from_text(read) for read in definition.reads]
    return [read for read in found if isinstance(read, ReadCapability)]


def _running(running: Materializations, name: str = "m") -> Materialization:
    found = running.get(name)
    assert found is not None
    return found


def test_it_runs_stops_resumes_and_is_dropped(tmp_path: Path) -> None:
    endpoint = tmp_path / "e.db"
    with open_location(tmp_path / "data") as client:
        write, read = client.create_or_load("c", SCHEMA, key=("k",))
        write.compare_and_append(_updates(((1, "a"), 1, 1)), 0, 2).result()
        running = Materializations(client, retry_seconds=RETRY_SECONDS)
        running.install("m", _endpoint(endpoint), (_binding(read),))
        _eventually(lambda: _rows(endpoint) == [(1, "a")])
        running.stop()
        write.compare_and_append(_updates(((1, "a"), 2, -1), ((1, "b"), 2, 1)), 2, 3).result()
    with open_location(tmp_path / "data") as client:
        running = Materializations(client, retry_seconds=RETRY_SECONDS)
        running.start()
        _eventually(lambda: _rows(endpoint) == [(1, "b")])
        _eventually(lambda: _running(running).status.checkpoint == 3)
        running.drop("m")
        left = [k for k in client.core.state.items if k.startswith((PREFIX, SHARDS))]
        assert not left
        (collection,) = client.core.state.collections.values()
        assert list(collection.readers) == ["owner"]


def test_one_entry_holds_all_that_is_remembered(client: Client, tmp_path: Path) -> None:
    write, read = client.create_or_load("c", SCHEMA, key=("k",))
    write.compare_and_append(_updates(((1, "a"), 1, 1)), 0, 2).result()
    running = Materializations(client, retry_seconds=RETRY_SECONDS)
    running.install("m", _endpoint(tmp_path / "e.db"), (_binding(read),))
    _eventually(lambda: _running(running).status.checkpoint == 2)
    write.compare_and_append(_updates(((2, "b"), 2, 1)), 2, 5).result()
    _eventually(lambda: _running(running).status.checkpoint == 5)
    running.stop()
    key = item_key("m", KeyRange.full())
    entry = msgspec.json.decode(client.core.state.items[key], type=RecoveryEntry)
    assert entry.position == Position(5)
    assert entry.applied
    assert entry.version
    # Held at what the driver confirmed before the last transaction, and no later.
    (hold,) = _reads(_definition(client, "m"))
    held = collection_of(client.core.state, read.id).readers[hold.holder]
    assert held.since.only() == 1


def test_times_at_which_nothing_changes_cost_no_entry(client: Client, tmp_path: Path) -> None:
    write, read = client.create_or_load("c", SCHEMA, key=("k",))
    write.compare_and_append(_updates(((1, "a"), 1, 1)), 0, 2).result()
    running = Materializations(client, retry_seconds=RETRY_SECONDS)
    running.install("m", _endpoint(tmp_path / "e.db"), (_binding(read),))
    _eventually(lambda: _running(running).status.reached == 2)
    for upper in (3, 4):
        write.compare_and_append(_updates(), upper - 1, upper).result()
    before = client.core.state.seqno
    _eventually(lambda: _running(running).status.reached == 4)
    assert client.core.state.seqno == before
    assert _running(running).status.checkpoint == 2
    running.stop()


class _Crash(Exception):
    """The process is gone."""


class _FailingStream(InProcess):
    """Breaks at the n-th message."""

    def __init__(self, driver: Responder, dies_at: int) -> None:
        self._left = dies_at
        super().__init__(driver, self._count)

    def _count(self, _: m.Message) -> None:
        self._left -= 1
        if self._left == 0:
            raise _Crash


@pytest.mark.parametrize("seed", seeds(2, 40))
def test_delivery_is_exactly_once_over_crashes(client: Client, tmp_path: Path, seed: int) -> None:
    """Random updates; each session dies after some messages, wherever that is."""
    print(f"seed {seed}")
    random = Random(seed)
    endpoint = tmp_path / "e.db"
    write, read = client.create_or_load("c", SCHEMA, key=("k",))
    write.compare_and_append(_updates(), 0, 1).result()
    running = Materializations(client, retry_seconds=RETRY_SECONDS)
    running.install("m", _endpoint(endpoint), (_binding(read),))
    running.stop()
    definition = _definition(client, "m")
    model: dict[int, str] = {}
    for time in range(1, 15):
        updates = []
        for k in random.sample(range(6), random.randint(0, 3)):
            if k in model:
                updates.append(((k, model.pop(k)), time, -1))
            if random.random() < 0.7:
                model[k] = f"{time}.{k}"
                updates.append(((k, model[k]), time, 1))
        write.compare_and_append(_updates(*updates), write.upper, time + 1).result()
        driver = SqliteDriver()
        stream = _FailingStream(driver, random.randint(1, 30))
        try:
            _one_session(client, definition, stream)
        except _Crash:
            driver.close()
    _one_session(client, definition, InProcess(SqliteDriver()))
    assert _rows(endpoint) == sorted(model.items(), key=repr)


def _one_session(client: Client, definition: Definition, stream: Stream) -> None:
    session = Session(client, definition, _reads(definition), KeyRange.full(), stream)
    try:
        target = session.feed.wait(0)
        if target is not None:
            session.deliver(target, Status())
        session.end()
    finally:
        session.close()


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
    running.install("m", _endpoint(endpoint), (_binding(read), second))
    # All at once: good at 1 and 2, wrong from 3 on.
    other_write.compare_and_append(_updates(((9, "x"), 1, 1)), 0, 20).result()
    several = _updates(((1, "a"), 1, 1), ((2, "b"), 2, 1), ((3, "c"), 3, 1), ((4, "d"), 4, 1))
    _append(write, several, 0, 5, _failed(3, 1))
    _eventually(lambda: "division by zero" in _running(running).status.error)
    assert _running(running).status.state is State.STALLED
    assert _rows(endpoint) == [(1, "a"), (2, "b")]
    assert _rows(endpoint, "other") == [(9, "x")]
    assert _running(running).status.checkpoint == 3
    _append(write, _updates(((5, "e"), 7, 1)), 5, 8, _failed(6, -1))
    _eventually(lambda: _rows(endpoint) == [(k, v) for k, v in enumerate("abcde", 1)])
    _eventually(lambda: _running(running).status.error == "")
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
            running.install("m", _endpoint(endpoint), (_binding(read, target),))
    with pytest.raises(UnknownColumn, match="'z'"):
        running.install("m", _endpoint(endpoint), (Binding("c", read.id, "t", ("z",)),))
    assert not [key for key in client.core.state.items if key.startswith(PREFIX)]
    (collection,) = client.core.state.collections.values()
    assert list(collection.readers) == ["owner"]


def test_a_wrong_row_stalls_one_and_others_go_on(client: Client, tmp_path: Path) -> None:
    wrong, good = tmp_path / "wrong.db", tmp_path / "good.db"
    write, read = client.create_or_load("c", SCHEMA, key=("k",))
    other_write, other = client.create_or_load("d", SCHEMA, key=("k",))
    running = Materializations(client, retry_seconds=RETRY_SECONDS)
    running.install("m", _endpoint(wrong), (_binding(read),))
    running.install("n", _endpoint(good), (_binding(other),))
    _running(running)
    write.compare_and_append(_updates(((1, "a"), 1, 1)), 0, 2).result()
    _eventually(lambda: _rows(wrong) == [(1, "a")])
    # A second row of the key: the first one is in the endpoint, and not in this interval.
    write.compare_and_append(_updates(((1, "b"), 2, 1)), 2, 3).result()
    _eventually(lambda: "the key {'k': 1}" in _running(running).status.error)
    write.compare_and_append(_updates(((None, "null"), 3, 1), ((1, "b"), 3, -1)), 3, 4).result()
    _eventually(lambda: "NULL in its key column 'k'" in _running(running).status.error)
    other_write.compare_and_append(_updates(((7, "x"), 1, 1)), 0, 2).result()
    _eventually(lambda: _rows(good) == [(7, "x")])
    assert _rows(wrong) == [(1, "a")]
    mended = _updates(((None, "null"), 4, -1), ((2, "c"), 4, 1))
    write.compare_and_append(mended, 4, 5).result()
    _eventually(lambda: _rows(wrong) == [(1, "a"), (2, "c")])
    running.stop()


def test_the_endpoints_checkpoint_wins(client: Client, tmp_path: Path) -> None:
    """An endpoint that is emptied is filled again; one that is too old is not guessed at."""
    endpoint = tmp_path / "e.db"
    write, read = client.create_or_load("c", SCHEMA, key=("k",))
    write.compare_and_append(_updates(((1, "a"), 1, 1)), 0, 2).result()
    running = Materializations(client, retry_seconds=RETRY_SECONDS)
    running.install("m", _endpoint(endpoint), (_binding(read),))
    _eventually(lambda: _running(running).status.checkpoint == 2)
    running.stop()
    saved = endpoint.read_bytes()
    with closing(sqlite3.connect(endpoint)) as db:
        assert db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() is not None
        saved = endpoint.read_bytes()
        db.execute("DELETE FROM flow_checkpoints_v1")
        db.execute("DELETE FROM target")
        db.commit()
    running.start()
    _eventually(lambda: _rows(endpoint) == [(1, "a")])
    for time in (2, 3, 4):
        write.compare_and_append(_updates(((time, "n"), time, 1)), time, time + 1).result()
        _eventually(lambda time=time: _running(running).status.checkpoint == time + 1)  # type: ignore[misc]
    running.stop()
    write.allow_compaction(3).result()
    with closing(sqlite3.connect(endpoint)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    endpoint.write_bytes(saved)
    running.start()
    _eventually(lambda: "restored from a backup" in _running(running).status.error)
    assert _rows(endpoint) == [(1, "a")]
    running.stop()


def test_a_dropped_one_leaves_a_checkpoint_that_is_not_taken_for_ours(
    client: Client, tmp_path: Path
) -> None:
    endpoint = tmp_path / "e.db"
    write, read = client.create_or_load("c", SCHEMA, key=("k",))
    running = Materializations(client, retry_seconds=RETRY_SECONDS)
    running.install("m", _endpoint(endpoint), (_binding(read),))
    write.compare_and_append(_updates(((1, "a"), 1, 1)), 0, 2).result()
    _eventually(lambda: _running(running).status.checkpoint == 2)
    running.drop("m")
    running.install("m", _endpoint(endpoint), (_binding(read, "again"),))
    _eventually(lambda: "is not of materialization" in _running(running).status.error)
    running.stop()


def test_a_new_column_is_there_before_its_first_value(client: Client, tmp_path: Path) -> None:
    endpoint = tmp_path / "e.db"
    write, read = client.create_or_load("c", SCHEMA, key=("k",))
    running = Materializations(client, retry_seconds=RETRY_SECONDS)
    running.install("m", _endpoint(endpoint), (_binding(read),))
    write.compare_and_append(_updates(((1, "a"), 1, 1)), 0, 2).result()
    _eventually(lambda: _running(running).status.checkpoint == 2)
    wider = pa.schema([*SCHEMA, pa.field("w", pa.int64())])
    write, _ = client.create_or_load("c", wider, key=("k",))
    columns = {"k": [2], "v": ["b"], "w": [7], "__time": [2], "__diff": [1]}
    updates = pa.table(columns, schema=updates_schema(wider))
    write.compare_and_append(updates, 2, 3).result()
    _eventually(lambda: _running(running).status.checkpoint == 3)
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
        updates = _updates(*old, ((1, f"{time}"), time, 1))
        write.compare_and_append(updates, write.upper, time + 1).result()
    running = Materializations(client, retry_seconds=RETRY_SECONDS)
    running.install("m", _endpoint(endpoint), (_binding(read),))
    running.stop()
    definition = _definition(client, "m")
    feed = Feed(client, [("c", _reads(definition)[0])], None)
    assert feed.wait(0) == 5
    (snapshot,) = feed.snapshots
    assert snapshot.to_table().to_pylist() == [{"k": 1, "v": "4", "__diff": 1}]
    feed.close()


def test_a_dry_run_says_what_would_be_and_changes_nothing(client: Client, tmp_path: Path) -> None:
    endpoint = tmp_path / "e.db"
    _, read = client.create_or_load("c", SCHEMA, key=("k",))
    before = client.core.state.seqno
    sums = Binding("sums", read.id, "sums", ("v",), reduce=(("k", "sum"),))
    would = Materializations(client).dry_run("m", _endpoint(endpoint), (_binding(read), sums))
    assert 'CREATE TABLE "sums"' in would.actions
    assert ("c", "k") in [(binding, field) for binding, field, _ in would.constraints]
    assert would.guarantees == (("c", Guarantee.EXACTLY_ONCE), ("sums", Guarantee.EXACTLY_ONCE))
    assert not would.warnings
    # A collection with two targets is told apart by them.
    twice = (_binding(read), msgspec.structs.replace(sums, name="c"))
    would = Materializations(client).dry_run("m", _endpoint(endpoint), twice)
    assert [named for named, _ in would.guarantees] == [f"c AS {b.target}" for b in twice]
    assert client.core.state.seqno == before
    with closing(sqlite3.connect(endpoint)) as db:
        assert db.execute("SELECT name FROM sqlite_master").fetchall() == []
    assert guarantee("connector", last_write_wins=True) is Guarantee.EFFECTIVELY_ONCE
    assert guarantee("connector", last_write_wins=False) is Guarantee.AT_LEAST_ONCE
    assert [binding.last_write_wins for binding in (_binding(read), sums)] == [True, False]


def test_pause_and_resume(tmp_path: Path) -> None:
    endpoint = tmp_path / "e.db"
    with open_location(tmp_path / "data") as client:
        write, read = client.create_or_load("c", SCHEMA, key=("k",))
        running = Materializations(client, retry_seconds=RETRY_SECONDS)
        running.install("m", _endpoint(endpoint), (_binding(read),))
        write.compare_and_append(_updates(((1, "a"), 1, 1)), 0, 2).result()
        _eventually(lambda: _rows(endpoint) == [(1, "a")])
        running.pause("m")
        write.compare_and_append(_updates(((2, "b"), 2, 1)), 2, 3).result()
        running.stop()
    with open_location(tmp_path / "data") as client:
        running = Materializations(client, retry_seconds=RETRY_SECONDS)
        running.start()
        assert running.get("m") is None
        with pytest.raises(UnknownMaterialization, match="'n'"):
            running.resume("n")
        assert _rows(endpoint) == [(1, "a")]
        running.resume("m")
        _eventually(lambda: _rows(endpoint) == [(1, "a"), (2, "b")])
        running.stop()


def test_a_backfill_delivers_everything_anew(client: Client, tmp_path: Path) -> None:
    endpoint = tmp_path / "e.db"
    write, read = client.create_or_load("c", SCHEMA, key=("k",))
    running = Materializations(client, retry_seconds=RETRY_SECONDS)
    sums = Binding("c", read.id, "sums", ("v",), reduce=(("k", "sum"),))
    log = Binding("c", read.id, "log", ("k",), delta_updates=True)
    running.install("m", _endpoint(endpoint), (_binding(read), sums, log))
    write.compare_and_append(_updates(((1, "a"), 1, 1), ((2, "a"), 1, 1)), 0, 2).result()
    _eventually(lambda: _running(running).status.checkpoint == 2)
    with closing(sqlite3.connect(endpoint)) as db:  # Somebody spoiled it.
        db.execute("UPDATE target SET v = 'spoiled'")
        db.execute("UPDATE sums SET k = 0")
        db.commit()
    running.stop()
    zombie = Session(
        client, _definition(client, "m"), _reads(_definition(client, "m")), KeyRange.full(),
        InProcess(SqliteDriver()),
    )  # fmt: skip
    running.start()
    running.backfill("m")
    _eventually(lambda: _running(running).status.checkpoint == 2)
    assert _rows(endpoint) == [(1, "a"), (2, "a")]
    assert _rows(endpoint, "sums") == [(3, "a")]
    assert _rows(endpoint, "log") == [(1, "a"), (2, "a")]
    write.compare_and_append(_updates(((3, "b"), 2, 1)), 2, 3).result()
    _eventually(lambda: _running(running).status.checkpoint == 3)
    target = zombie.feed.wait(0)
    assert target == 3
    with pytest.raises((Fenced, sql.Fenced)):
        zombie.deliver(target, Status())
    running.stop()
    running.start()  # A restart is no backfill.
    write.compare_and_append(_updates(((4, "b"), 3, 1)), 3, 4).result()
    _eventually(lambda: _rows(endpoint, "log") == [(1, "a"), (2, "a"), (3, "b"), (4, "b")])
    running.stop()
    zombie.close()


def test_a_crash_anywhere_in_a_backfill(client: Client, tmp_path: Path) -> None:
    endpoint = tmp_path / "e.db"
    write, read = client.create_or_load("c", SCHEMA, key=("k",))
    running = Materializations(client, retry_seconds=RETRY_SECONDS)
    log = Binding("c", read.id, "log", ("k",), delta_updates=True)
    running.install("m", _endpoint(endpoint), (_binding(read), log))
    write.compare_and_append(_updates(((1, "a"), 1, 1), ((2, "a"), 1, 1)), 0, 2).result()
    _eventually(lambda: _running(running).status.checkpoint == 2)
    running.stop()
    definition, event, crashed = _definition(client, "m"), 1, True
    while crashed:
        definition = msgspec.structs.replace(definition, backfill=event)
        driver = SqliteDriver()
        try:
            _one_session(client, definition, _FailingStream(driver, event))
            crashed = False
        except _Crash:
            driver.close()
            _one_session(client, definition, InProcess(SqliteDriver()))
        for table in ("target", "log"):
            assert _rows(endpoint, table) == [(1, "a"), (2, "a")]
        event += 1
    assert event > 15


def test_a_driver_that_is_no_more_stalls_only_its_own(client: Client, tmp_path: Path) -> None:
    write, read = client.create_or_load("c", SCHEMA, key=("k",))
    write.compare_and_append(_updates(((1, "a"), 1, 1)), 0, 2).result()
    running = Materializations(client, retry_seconds=RETRY_SECONDS)
    for name in ("m", "n"):
        running.install(name, _endpoint(tmp_path / f"{name}.db"), (_binding(read),))
    running.stop()
    lost = msgspec.structs.replace(_definition(client, "m"), endpoint=Endpoint("gone", {}))
    client.core.submit(SetItem(PREFIX + "m", msgspec.json.encode(lost))).result()
    running.start()
    _eventually(lambda: "there is no driver 'gone'" in _running(running).status.error)
    _eventually(lambda: _running(running, "n").status.state is State.RUNNING)
    running.stop()


def test_state_keys() -> None:
    assert state_key(("public", "a b~é")) == "public%2Fa%20b%7E%C3%A9.v0"

"""Materializations as somebody operates them: tried dry, paused, resumed, delivered anew."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from headwater.materialize.controller import (
    Materializations,
    UnknownMaterialization,
)
from headwater.materialize.definition import (
    Binding,
)
from headwater.materialize.drivers import sql
from headwater.materialize.drivers.registry import Guarantee, guarantee
from headwater.materialize.drivers.sqlite import SqliteDriver
from headwater.materialize.key_range import KeyRange
from headwater.materialize.runtime import Session
from headwater.materialize.status import Status
from headwater.materialize.transport.in_process import InProcess
from headwater.persist.client import Client, open_location
from headwater.persist.errors import Fenced
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


def test_a_dry_run_says_what_would_be_and_changes_nothing(client: Client, tmp_path: Path) -> None:
    endpoint = tmp_path / "e.db"
    _, read = client.create_or_load("c", SCHEMA, key=("k",))
    before = client.core.state.seqno
    sums = Binding("sums", read.id, "sums", ("v",), reduce=(("k", "sum"),))
    would = Materializations(client).dry_run("m", sqlite_at(endpoint), (into_target(read), sums))
    assert 'CREATE TABLE "sums"' in would.actions
    assert ("c", "k") in [(binding, field) for binding, field, _ in would.constraints]
    assert would.guarantees == (("c", Guarantee.EXACTLY_ONCE), ("sums", Guarantee.EXACTLY_ONCE))
    assert not would.warnings
    # A collection with two targets is told apart by them.
    twice = (into_target(read), msgspec.structs.replace(sums, name="c"))
    would = Materializations(client).dry_run("m", sqlite_at(endpoint), twice)
    assert [named for named, _ in would.guarantees] == [f"c AS {b.target}" for b in twice]
    assert client.core.state.seqno == before
    with closing(sqlite3.connect(endpoint)) as db:
        assert db.execute("SELECT name FROM sqlite_master").fetchall() == []
    assert guarantee("connector", {}, last_write_wins=True) is Guarantee.EFFECTIVELY_ONCE
    assert guarantee("connector", {}, last_write_wins=False) is Guarantee.AT_LEAST_ONCE
    assert [binding.last_write_wins for binding in (into_target(read), sums)] == [True, False]


def test_pause_and_resume(tmp_path: Path) -> None:
    endpoint = tmp_path / "e.db"
    with open_location(tmp_path / "data") as client:
        write, read = client.create_or_load("c", SCHEMA, key=("k",))
        running = Materializations(client, retry_seconds=RETRY_SECONDS)
        running.install("m", sqlite_at(endpoint), (into_target(read),))
        write.compare_and_append(updates_of(((1, "a"), 1, 1)), 0, 2).result()
        eventually(lambda: rows_in(endpoint) == [(1, "a")])
        running.pause("m")
        write.compare_and_append(updates_of(((2, "b"), 2, 1)), 2, 3).result()
        running.stop()
    with open_location(tmp_path / "data") as client:
        running = Materializations(client, retry_seconds=RETRY_SECONDS)
        running.start()
        assert running.get("m") is None
        with pytest.raises(UnknownMaterialization, match="'n'"):
            running.resume("n")
        assert rows_in(endpoint) == [(1, "a")]
        running.resume("m")
        eventually(lambda: rows_in(endpoint) == [(1, "a"), (2, "b")])
        running.stop()


def test_a_backfill_delivers_everything_anew(client: Client, tmp_path: Path) -> None:
    endpoint = tmp_path / "e.db"
    write, read = client.create_or_load("c", SCHEMA, key=("k",))
    running = Materializations(client, retry_seconds=RETRY_SECONDS)
    sums = Binding("c", read.id, "sums", ("v",), reduce=(("k", "sum"),))
    log = Binding("c", read.id, "log", ("k",), delta_updates=True)
    running.install("m", sqlite_at(endpoint), (into_target(read), sums, log))
    write.compare_and_append(updates_of(((1, "a"), 1, 1), ((2, "a"), 1, 1)), 0, 2).result()
    eventually(lambda: running_one(running).status.checkpoint == 2)
    with closing(sqlite3.connect(endpoint)) as db:  # Somebody spoiled it.
        db.execute("UPDATE target SET v = 'spoiled'")
        db.execute("UPDATE sums SET k = 0")
        db.commit()
    running.stop()
    zombie = Session(
        client, defined(client, "m"), reads_of(defined(client, "m")), KeyRange.full(),
        InProcess(SqliteDriver()),
    )  # fmt: skip
    running.start()
    running.backfill("m")
    eventually(lambda: running_one(running).status.checkpoint == 2)
    assert rows_in(endpoint) == [(1, "a"), (2, "a")]
    assert rows_in(endpoint, "sums") == [(3, "a")]
    assert rows_in(endpoint, "log") == [(1, "a"), (2, "a")]
    write.compare_and_append(updates_of(((3, "b"), 2, 1)), 2, 3).result()
    eventually(lambda: running_one(running).status.checkpoint == 3)
    target = zombie.feed.wait(0)
    assert target == 3
    with pytest.raises((Fenced, sql.Fenced)):
        zombie.deliver(target, Status())
    running.stop()
    running.start()  # A restart is no backfill.
    write.compare_and_append(updates_of(((4, "b"), 3, 1)), 3, 4).result()
    eventually(lambda: rows_in(endpoint, "log") == [(1, "a"), (2, "a"), (3, "b"), (4, "b")])
    running.stop()
    zombie.close()


def test_a_crash_anywhere_in_a_backfill(client: Client, tmp_path: Path) -> None:
    endpoint = tmp_path / "e.db"
    write, read = client.create_or_load("c", SCHEMA, key=("k",))
    running = Materializations(client, retry_seconds=RETRY_SECONDS)
    log = Binding("c", read.id, "log", ("k",), delta_updates=True)
    running.install("m", sqlite_at(endpoint), (into_target(read), log))
    write.compare_and_append(updates_of(((1, "a"), 1, 1), ((2, "a"), 1, 1)), 0, 2).result()
    eventually(lambda: running_one(running).status.checkpoint == 2)
    running.stop()
    definition, event, crashed = defined(client, "m"), 1, True
    while crashed:
        definition = msgspec.structs.replace(definition, backfill=event)
        driver = SqliteDriver()
        try:
            one_session(client, definition, FailingStream(driver, event))
            crashed = False
        except Crash:
            driver.close()
            one_session(client, definition, InProcess(SqliteDriver()))
        for table in ("target", "log"):
            assert rows_in(endpoint, table) == [(1, "a"), (2, "a")]
        event += 1
    assert event > 15

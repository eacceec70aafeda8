"""Materializations of one collection into a file of SQLite, run whole or session by session."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from time import monotonic, sleep

import msgspec
import pyarrow as pa

from headwater.collection.capability import ReadCapability, from_text
from headwater.materialize.controller import (
    PREFIX,
    Materializations,
)
from headwater.materialize.definition import (
    Binding,
    Definition,
    Endpoint,
)
from headwater.materialize.delivery import Stream
from headwater.materialize.drivers.responder import Responder
from headwater.materialize.key_range import KeyRange
from headwater.materialize.protocol import messages as m
from headwater.materialize.runtime import Session
from headwater.materialize.shards import Materialization
from headwater.materialize.status import Status
from headwater.materialize.transport.in_process import InProcess
from headwater.persist.client import Client, ReadHandle
from headwater.persist.evolution import updates_schema

SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.string())])
WAIT_SECONDS = 120.0
RETRY_SECONDS = 0.02

Row = tuple[int | None, str]


def updates_of(*triples: tuple[Row, int, int]) -> pa.Table:
    columns = {
        "k": [row[0] for row, _, _ in triples],
        "v": [row[1] for row, _, _ in triples],
        "__time": [time for _, time, _ in triples],
        "__diff": [diff for _, _, diff in triples],
    }
    return pa.table(columns, schema=updates_schema(SCHEMA))


def rows_in(path: Path, table: str = "target") -> list[tuple[object, ...]] | None:
    with closing(sqlite3.connect(path)) as db:
        try:
            return sorted(db.execute(f"SELECT k, v FROM {table}").fetchall(), key=repr)
        except sqlite3.OperationalError:
            return None  # The table is not there yet.


def eventually(condition: Callable[[], bool]) -> None:
    deadline = monotonic() + WAIT_SECONDS
    while not condition():
        assert monotonic() < deadline, "it never came"
        sleep(0.02)


def sqlite_at(path: Path) -> Endpoint:
    return Endpoint("sqlite", {"path": str(path)})


def into_target(read: ReadHandle, target: str = "target") -> Binding:
    return Binding("c", read.id, target, ("k",))


def defined(client: Client, name: str) -> Definition:
    return msgspec.json.decode(client.core.state.items[PREFIX + name], type=Definition)


def reads_of(definition: Definition) -> list[ReadCapability]:
    found = [from_text(read) for read in definition.reads]
    return [read for read in found if isinstance(read, ReadCapability)]


def running_one(running: Materializations, name: str = "m") -> Materialization:
    found = running.get(name)
    assert found is not None
    return found


class Crash(Exception):
    """The process is gone."""


class FailingStream(InProcess):
    """Breaks at the n-th message."""

    def __init__(self, driver: Responder, dies_at: int) -> None:
        self._left = dies_at
        super().__init__(driver, self._count)

    def _count(self, _: m.Message) -> None:
        self._left -= 1
        if self._left == 0:
            raise Crash


def one_session(client: Client, definition: Definition, stream: Stream) -> None:
    session = Session(client, definition, reads_of(definition), KeyRange.full(), stream)
    try:
        target = session.feed.wait(0)
        if target is not None:
            session.deliver(target, Status())
        session.end()
    finally:
        session.close()

"""A backend of a few lines, with tables as Arrow in memory, and a server in front of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from headwater.adapter.errors import (
    DuplicateRelation,
    TimestampNotReadable,
    UnknownRelation,
    Unsupported,
)
from headwater.adapter.pgwire import Column, Result, WireServer
from headwater.adapter.setting_errors import UnknownSetting
from headwater.adapter.sql import statements
from headwater.adapter.sql.values import as_batch

WAIT_SECONDS = 60


class Tables:
    """The backend: all sessions see the same tables; a transaction remembers where it began."""

    def __init__(self) -> None:
        self.tables: dict[str, pa.Table] = {}
        self.lock = threading.Lock()
        self.sessions_open = 0
        self.texts: list[str] = []
        self.release = threading.Event()

    def open_session(self) -> TablesSession:
        with self.lock:
            self.sessions_open += 1
        return TablesSession(self)


class TablesSession:
    def __init__(self, backend: Tables) -> None:
        self.backend = backend
        self.before: dict[str, pa.Table] | None = None

    def execute(self, statement: statements.Statement, sql: str) -> Result:
        self.backend.texts.append(sql)
        tables = self.backend.tables
        match statement:
            case statements.CreateTable():
                if statement.name in tables:
                    raise DuplicateRelation(statement.name)
                tables[statement.name] = statement.schema.empty_table()
                return Result("CREATE TABLE")
            case statements.Insert():
                table = self.table(statement.table)
                batch = as_batch(statement, table.schema)
                rows = pa.Table.from_batches([batch])
                tables[statement.table] = pa.concat_tables([table, rows])
                return Result(f"INSERT 0 {batch.num_rows}")
            case statements.Select(as_of=as_of) if as_of is not None:
                raise TimestampNotReadable(statement.tables[0], getattr(as_of, "time", 1000), 4000)
            case statements.Select(query_sql, None, (name,)):
                table = self.table(name)
                return Result.of_table(table.slice(0, 0) if "LIMIT 0" in query_sql else table)
            case statements.Select(query_sql="select 1 / 0", as_of=None):
                raise ZeroDivisionError("planted")
            case statements.Select(query_sql="select wait", as_of=None):
                self.backend.release.wait(WAIT_SECONDS)
                return Result("SELECT", (Column("waited", pa.bool_()),))
            case statements.Select(query_sql="select breaks", as_of=None):
                return Result("SELECT", (Column("n", pa.int64()),), self.breaking())
            case statements.Select():
                return Result.of_table(pa.table({"one": pa.array([1], pa.int32())}))
            case statements.Begin():
                self.before = dict(tables)
                return Result("BEGIN")
            case statements.Commit():
                self.before = None
                return Result("COMMIT")
            case statements.Rollback():
                assert self.before is not None, "transactions arrive well formed"
                tables.clear()
                tables.update(self.before)
                return Result("ROLLBACK")
            case statements.Show(name) | statements.SetVariable(name):
                raise UnknownSetting(name)
            case _:
                raise Unsupported(type(statement).__name__)

    def breaking(self) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": pa.array([1, 2], pa.int64())})
        raise Unsupported("the third row")

    def table(self, name: str) -> pa.Table:
        try:
            return self.backend.tables[name]
        except KeyError:
            raise UnknownRelation(name, hint="Create it.") from None

    def close(self) -> None:
        with self.backend.lock:
            self.backend.sessions_open -= 1


@pytest.fixture
def backend() -> Tables:
    return Tables()


@pytest.fixture
def server(backend: Tables) -> Iterator[WireServer]:
    with WireServer("127.0.0.1", 0, backend) as running:
        yield running
        backend.release.set()
    assert backend.sessions_open == 0


def connect(server: WireServer, **options: Any) -> psycopg.Connection[Any]:
    return psycopg.connect(
        host=server.host,
        port=server.port,
        user="headwater",
        dbname="headwater",
        connect_timeout=WAIT_SECONDS,
        **options,
    )


@pytest.fixture
def connection(server: WireServer) -> Iterator[psycopg.Connection[Any]]:
    with connect(server, autocommit=True) as connected:
        yield connected


EVERY_TYPE = (
    "create table every (a int2, b int4, c int8, d bool, e text, f float4, g float8,"
    " h numeric(10,2), i numeric, j date, k timestamp, l timestamptz, m bytea)"
)
EVERY_ROW = (
    "insert into every values (-1, 2, 9007199254740993, true, 'é ''q'' \\', 0.1, 1e300, 1.5,"
    " '-0.000000001', '2026-01-02', '2026-01-02 03:04:05.6', '2026-01-02 03:04:05+02', '\\x00ff'),"
    " (null, null, null, null, null, null, null, null, null, null, null, null, null)"
)

"""A whole backend of a few lines, for tests of the wire: tables in memory, every optional method.

It understands the statements of the wire's tests and no more; what it does it does for real: rows
are streamed from a generator, a COPY is invisible before it is finished, a transaction that is
rolled back leaves nothing, a statement that waits can be cancelled.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from headwater.adapter.errors import (
    DuplicateRelation,
    NotNullViolation,
    UnknownColumn,
    UnknownRelation,
    Unsupported,
)
from headwater.adapter.pgwire import Cancelled, Column, Description, Result
from headwater.adapter.pgwire.backend import CancelReason
from headwater.adapter.setting_errors import UnknownSetting
from headwater.adapter.sql import statements
from headwater.adapter.sql.values import as_batch
from headwater.collection.schema import type_of

WAIT_SECONDS = 60
BATCH_ROWS = 500


class Memory:
    """The backend."""

    def __init__(self) -> None:
        self.tables: dict[str, pa.Table] = {}
        self.lock = threading.Lock()
        self.sessions_open = 0
        self.rows_given = 0
        self.streams_open = 0
        self.copies_open = 0
        self.texts: list[str] = []
        self.waiting = threading.Semaphore(0)
        self.release = threading.Event()
        self.cancelled: list[str] = []

    def open_session(self) -> MemorySession:
        with self.lock:
            self.sessions_open += 1
        return MemorySession(self)


class MemorySession:
    """A session with everything a session may have."""

    groups_statements = True

    def __init__(self, backend: Memory) -> None:
        self.backend = backend
        self.before: dict[str, pa.Table] | None = None
        self.cancel_asked = threading.Event()
        self.reason: CancelReason = "request"
        self.closed = False

    # --- statements -------------------------------------------------------------------------------

    def execute(self, statement: statements.Statement, sql: str) -> Result:
        assert not self.closed
        self.cancel_asked.clear()
        self.backend.texts.append(sql)
        match statement:
            case statements.CreateTable():
                if statement.name in self.backend.tables:
                    raise DuplicateRelation(statement.name)
                self.backend.tables[statement.name] = statement.schema.empty_table()
                return Result("CREATE TABLE")
            case statements.Insert():
                batch = as_batch(statement, self.table(statement.table).schema)
                self.append(statement.table, [batch])
                return Result(f"INSERT 0 {batch.num_rows}")
            case statements.Select():
                return self.select(statement)
            case statements.Begin():
                assert self.before is None, "transactions arrive well formed"
                self.before = dict(self.backend.tables)
                return Result("BEGIN")
            case statements.Commit():
                assert self.before is not None, "transactions arrive well formed"
                self.before = None
                return Result("COMMIT")
            case statements.Rollback():
                assert self.before is not None, "transactions arrive well formed"
                self.backend.tables.clear()
                self.backend.tables.update(self.before)
                self.before = None
                return Result("ROLLBACK")
            case statements.Show(name) | statements.SetVariable(name):
                if name == "dialect":
                    return Result("SET")
                raise UnknownSetting(name)
            case _:
                raise Unsupported(type(statement).__name__)

    def select(self, statement: statements.Select) -> Result:
        words = statement.query_sql.split()
        if statement.tables:
            (name,) = statement.tables
            table = self.table(name)
            columns = tuple(Column.of_field(field) for field in table.schema)
            if "LIMIT" in words:
                table = table.slice(0, 0)
            return Result("SELECT", columns, self.stream(table))
        if words[1:] == ["waiting"]:
            self.wait()
            return Result("SELECT", (Column("waited", pa.bool_()),))
        if words[1:] == ["endless"]:
            return Result("SELECT", (Column("n", pa.int64()),), self.endless())
        if words[1:] == ["stuck"]:
            return Result("SELECT", (Column("n", pa.int64()),), self.stuck())
        return Result.of_table(pa.table({"one": pa.array([1], pa.int32())}))

    def stream(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        """The rows in batches, counted as they are asked for."""
        self.backend.streams_open += 1
        try:
            for batch in table.to_batches(max_chunksize=BATCH_ROWS):
                self.backend.rows_given += batch.num_rows
                yield batch
        finally:
            self.backend.streams_open -= 1

    def endless(self) -> Iterator[pa.RecordBatch]:
        """Rows, for ever."""
        number = 0
        self.backend.streams_open += 1
        try:
            while True:
                yield pa.record_batch({"n": pa.array([number], pa.int64())})
                self.backend.rows_given += 1
                number += 1
        finally:
            self.backend.streams_open -= 1

    def stuck(self) -> Iterator[pa.RecordBatch]:
        """A row, and then nothing, said again and again as a source that waits should."""
        yield pa.record_batch({"n": pa.array([1], pa.int64())})
        while True:
            yield pa.record_batch({"n": pa.array([], pa.int64())})
            self.cancel_asked.wait(0.01)

    def wait(self) -> None:
        self.backend.waiting.release()
        while not self.backend.release.is_set():
            if self.cancel_asked.wait(0.005):
                raise Cancelled(self.reason)

    def table(self, name: str) -> pa.Table:
        try:
            return self.backend.tables[name]
        except KeyError:
            raise UnknownRelation(name) from None

    def append(self, name: str, batches: list[pa.RecordBatch]) -> None:
        with self.backend.lock:
            table = self.backend.tables[name]
            added = [pa.Table.from_batches([batch], table.schema) for batch in batches]
            self.backend.tables[name] = pa.concat_tables([table, *added])

    def close(self) -> None:
        self.closed = True
        if self.before is not None:
            self.backend.tables.clear()
            self.backend.tables.update(self.before)
        with self.backend.lock:
            self.backend.sessions_open -= 1

    # --- what a session may have besides ----------------------------------------------------------

    def describe(self, sql: str, parameter_oids: tuple[int, ...]) -> Description | None:
        """INSERT by the columns of its table, SELECT by its own: enough for a strict client."""
        words = sql.replace("(", " ").split()
        if words[0].lower() == "insert":
            fields = list(self.table(words[2]).schema)
            oids = tuple(
                oid or type_of(fields[index]).oid for index, oid in enumerate(parameter_oids)
            )
            return Description(oids, None)
        if words[0].lower() == "select" and "from" in words:
            schema = self.table(words[words.index("from") + 1]).schema
            columns = tuple(Column.of_field(field) for field in schema)
            return Description(tuple(oid or 20 for oid in parameter_oids), columns)
        return None

    def copy_in(self, table: str, columns: tuple[str, ...] | None) -> MemoryCopy:
        schema = self.table(table).schema
        for name in columns or ():
            if name not in schema.names:
                raise UnknownColumn(name, table)
        chosen = [schema.field(name) for name in columns or schema.names]
        return MemoryCopy(self, table, tuple(Column.of_field(field) for field in chosen))

    def cancel(self, reason: CancelReason) -> None:
        self.reason = reason
        self.backend.cancelled.append(reason)
        self.cancel_asked.set()


class MemoryCopy:
    """A COPY into a table, invisible until it is finished."""

    def __init__(self, session: MemorySession, table: str, columns: tuple[Column, ...]) -> None:
        self.columns = columns
        self._session = session
        self._table = table
        self._batches: list[pa.RecordBatch] = []
        self._ended = False
        session.backend.copies_open += 1

    def write(self, batch: pa.RecordBatch) -> None:
        assert not self._ended
        self._batches.append(batch)

    def finish(self) -> None:
        assert not self._ended
        schema = self._session.table(self._table).schema
        for batch in self._batches:
            for field in schema:
                present = field.name in batch.schema.names
                if not field.nullable and (not present or batch[field.name].null_count):
                    raise NotNullViolation(field.name, self._table)
        self._session.append(self._table, [self._widened(batch, schema) for batch in self._batches])
        self._end()

    def abort(self) -> None:
        self._end()
        self._batches = []

    def _end(self) -> None:
        assert not self._ended
        self._ended = True
        self._session.backend.copies_open -= 1

    def _widened(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        arrays: list[Any] = [
            batch[field.name]
            if field.name in batch.schema.names
            else pa.nulls(batch.num_rows, field.type)
            for field in schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

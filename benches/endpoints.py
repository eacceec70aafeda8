"""Places to deliver into, each with its own client beside ours: SQLite, PostgreSQL, Delta Lake."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from measure import SCHEMA, scratch

from headwater.testing.servers import postgres_server

BATCH_ROWS = 50_000
COLUMNS = "k, amount, name"
AGAIN = "again"
"""The target of the other one of two loads."""


class Place(ABC):
    """An endpoint with a table for us and one for its raw client."""

    name: str
    client: str
    config: dict[str, Any]

    @abstractmethod
    def raw_load(self, rows: pa.Table) -> None:
        """Write rows that are all new."""

    @abstractmethod
    def raw_upsert(self, rows: pa.Table) -> None:
        """Put rows in the place of others."""

    @abstractmethod
    def read(self, table: str) -> tuple[int, int]:
        """Return how many rows a table has, and the sum of their amounts."""

    @abstractmethod
    def empty_raw(self) -> None:
        """Make the raw client's table anew."""


class Sqlite(Place):
    name, client = "sqlite", "sqlite3 executemany"

    def __init__(self, folder: Path) -> None:
        self.path = folder / "e.db"
        self.config = {"path": str(self.path)}
        self._raw = sqlite3.connect(folder / "raw.db", isolation_level=None)
        self._raw.execute("PRAGMA journal_mode = WAL")
        self._raw.execute("PRAGMA synchronous = FULL")

    def empty_raw(self) -> None:
        self._raw.execute("DROP TABLE IF EXISTS raw")
        self._raw.execute("CREATE TABLE raw (k INTEGER PRIMARY KEY, amount INTEGER, name TEXT)")

    def _write(self, statement: str, rows: pa.Table) -> None:
        self._raw.execute("BEGIN IMMEDIATE")
        for batch in rows.to_batches(BATCH_ROWS):
            values = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            self._raw.executemany(statement, values)
        self._raw.execute("COMMIT")

    def raw_load(self, rows: pa.Table) -> None:
        self._write(f"INSERT INTO raw ({COLUMNS}) VALUES (?, ?, ?)", rows)

    def raw_upsert(self, rows: pa.Table) -> None:
        self._write(
            f"INSERT INTO raw ({COLUMNS}) VALUES (?, ?, ?) ON CONFLICT (k) "
            "DO UPDATE SET amount = excluded.amount, name = excluded.name",
            rows,
        )

    def read(self, table: str) -> tuple[int, int]:
        path = self.path.with_name("raw.db") if table == "raw" else self.path
        with closing(sqlite3.connect(path)) as db:
            found = db.execute(f"SELECT count(*), sum(amount) FROM {table}").fetchone()
        return found[0], found[1]


class Postgres(Place):
    name, client = "postgres", "psycopg, binary COPY of pgpq"

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.config = {"dsn": dsn}
        self._raw = psycopg.connect(dsn, autocommit=True)

    def empty_raw(self) -> None:
        self._raw.execute("DROP TABLE IF EXISTS raw")
        self._raw.execute("CREATE TABLE raw (k int8 PRIMARY KEY, amount int8, name text)")

    def _copy(self, into: str, rows: pa.Table) -> None:
        from pgpq import ArrowToPostgresBinaryEncoder

        encoder = ArrowToPostgresBinaryEncoder(rows.schema)
        statement = f"COPY {into} ({COLUMNS}) FROM STDIN (FORMAT BINARY)"
        with self._raw.cursor() as cursor, cursor.copy(statement.encode()) as copy:
            copy.write(encoder.write_header())
            for batch in rows.to_batches(BATCH_ROWS):
                copy.write(encoder.write_batch(batch))
            copy.write(encoder.finish())

    def raw_load(self, rows: pa.Table) -> None:
        with self._raw.transaction():
            self._copy("raw", rows)

    def raw_upsert(self, rows: pa.Table) -> None:
        with self._raw.transaction():
            self._raw.execute("CREATE TEMP TABLE stage (LIKE raw) ON COMMIT DROP")
            self._copy("stage", rows)
            self._raw.execute(
                f"INSERT INTO raw ({COLUMNS}) SELECT {COLUMNS} FROM stage ON CONFLICT (k) "
                "DO UPDATE SET amount = excluded.amount, name = excluded.name"
            )

    def read(self, table: str) -> tuple[int, int]:
        found = self._raw.execute(f"SELECT count(*), sum(amount) FROM {table}".encode()).fetchone()
        assert found is not None
        return found[0], int(found[1])


class Delta(Place):
    name, client = "delta", "delta-rs append and merge"

    def __init__(self, folder: Path) -> None:
        self.root = folder / "lake"
        self.config = {"path": str(self.root)}
        self._made = 0

    @property
    def _raw(self) -> Path:
        return self.root.with_name(f"raw-{self._made}")

    def empty_raw(self) -> None:
        self._made += 1
        DeltaTable.create(self._raw, SCHEMA)

    def raw_load(self, rows: pa.Table) -> None:
        write_deltalake(DeltaTable(self._raw), rows, mode="append")

    def raw_upsert(self, rows: pa.Table) -> None:
        merge = DeltaTable(self._raw).merge(rows, "t.k = s.k", "s", "t", streamed_exec=False)
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def read(self, table: str) -> tuple[int, int]:
        path = self._raw if table == "raw" else self.root / table
        amounts = pa.table(DeltaTable(path).scan(columns=["amount"]))["amount"]
        return len(amounts), sum(amounts.to_pylist())


@contextmanager
def places() -> Iterator[tuple[Path, dict[str, Callable[[], Place]], str]]:
    """Have a directory, how places in it are made, and the address of a PostgreSQL."""
    with scratch() as folder, postgres_server() as dsn:
        makes: dict[str, Callable[[], Place]] = {
            "sqlite": lambda: Sqlite(folder),
            "postgres": lambda: Postgres(dsn),
            "delta": lambda: Delta(folder),
        }
        yield folder, makes, dsn

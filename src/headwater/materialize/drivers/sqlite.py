"""SQLite as an endpoint: rows and checkpoint in one transaction of one file.

Table ``headwater_checkpoints(materialization, fence, checkpoint)`` lives beside the delivered
tables. Every commit is one ``BEGIN IMMEDIATE`` that first asserts the fence; a stale instance finds
another number there and gives up before it has changed anything.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.base.errors import Determinate
from headwater.materialize.drivers.driver import BindingSpec, Delta, FencedOut


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _affinity(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return "INTEGER"
    if pa.types.is_floating(kind):
        return "REAL"
    return "BLOB" if pa.types.is_binary(kind) else "TEXT"


def _value(value: Any) -> Any:
    # Decimals, dates and timestamps as text: SQLite has no exact type for them.
    return value if value is None or isinstance(value, int | float | str | bytes) else str(value)


class SqliteDriver:
    """One SQLite file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._name = ""
        self._fence = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as error:
            raise Determinate(f"cannot open SQLite endpoint {path}: {error}") from error
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA busy_timeout = 10000")

    def open(self, name: str, bindings: tuple[BindingSpec, ...]) -> int | None:
        """Make the tables, take the fence, return the checkpoint."""
        self._name = name
        with _transaction(self._db):
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS headwater_checkpoints ("
                "materialization TEXT PRIMARY KEY, fence INTEGER NOT NULL, checkpoint INTEGER)"
            )
            self._db.execute(
                "INSERT INTO headwater_checkpoints VALUES (?, 1, NULL) "
                "ON CONFLICT (materialization) DO UPDATE SET fence = fence + 1",
                (name,),
            )
            for binding in bindings:
                self._db.execute(_create_table(binding))
            (self._fence, checkpoint) = self._db.execute(
                "SELECT fence, checkpoint FROM headwater_checkpoints WHERE materialization = ?",
                (name,),
            ).fetchone()
        found: int | None = checkpoint
        return found

    def commit(self, deltas: tuple[Delta, ...], checkpoint: int) -> None:
        """Apply the deltas and move the checkpoint, in one transaction."""
        with _transaction(self._db):
            moved = self._db.execute(
                "UPDATE headwater_checkpoints SET checkpoint = ? "
                "WHERE materialization = ? AND fence = ?",
                (checkpoint, self._name, self._fence),
            )
            if moved.rowcount != 1:
                found = self._db.execute(
                    "SELECT fence FROM headwater_checkpoints WHERE materialization = ?",
                    (self._name,),
                ).fetchone()
                raise FencedOut(self._name, self._fence, found[0] if found else 0)
            for delta in deltas:
                self._apply(delta)

    def _apply(self, delta: Delta) -> None:
        binding = delta.binding
        table = _quoted(binding.target)
        if delta.removed.num_rows:
            # IS, not =: a key may be NULL, and NULL IS NULL.
            where = " AND ".join(f"{_quoted(column)} IS ?" for column in binding.key)
            self._db.executemany(
                f"DELETE FROM {table} WHERE {where}",  # noqa: S608 - names are quoted
                _rows(delta.removed),
            )
        if delta.put.num_rows:
            marks = ", ".join("?" for _ in binding.schema.names)
            self._db.executemany(
                f"INSERT OR REPLACE INTO {table} VALUES ({marks})",  # noqa: S608
                _rows(delta.put),
            )

    def close(self) -> None:
        """Close the file."""
        self._db.close()


def _create_table(binding: BindingSpec) -> str:
    columns = ", ".join(f"{_quoted(f.name)} {_affinity(f.type)}" for f in binding.schema)
    key = ", ".join(_quoted(column) for column in binding.key)
    return f"CREATE TABLE IF NOT EXISTS {_quoted(binding.target)} ({columns}, PRIMARY KEY ({key}))"


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return [
        tuple(_value(value) for value in row)
        for row in zip(*(column.to_pylist() for column in table.columns), strict=True)
    ]


class _transaction:  # noqa: N801 - reads as the statement it is
    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._db.execute("ROLLBACK" if kind is not None else "COMMIT")

"""SQLite as a driver of the protocol: rows, fence and checkpoint in one file.

What all SQL drivers share is in ``sql``. A transaction is one ``BEGIN IMMEDIATE``; the file is in
WAL mode, so readers are never in the way. SQLite has five types: decimals with a fraction, dates
and times are texts (as packed keys have them), arrays and objects are JSON text. Decimals without a
fraction are integers; one that does not fit into 64 bits is refused, for SQLite would round it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from headwater.base.errors import Determinate
from headwater.materialize.checkpoint import to_text
from headwater.materialize.drivers.columns import Column, Existing, Kind
from headwater.materialize.drivers.fences import Installed
from headwater.materialize.drivers.sql import (
    CHECKPOINTS,
    HARD_DELETE_SCHEMA,
    SELECT_STATUS,
    STATUS,
    KeyTaken,
    SqlDriver,
    decide_fence,
    table_config,
)
from headwater.materialize.joined import joined
from headwater.materialize.key_range import KeyRange
from headwater.materialize.projections import OP, packable
from headwater.materialize.protocol.messages import StoreMany
from headwater.materialize.protocol.specs import BindingSpec, Checkpoint
from headwater.materialize.tuples import Element

_BUSY_MS: Final = 10_000
_ROWS_AT_ONCE: Final = 32
"""So many rows are written by one run of a statement: two to three times as fast as one by one,
and more are no faster."""
_PARAMETERS_MAX: Final = 999
"""What every SQLite takes in one statement."""

_NATIVE: Final[Mapping[Kind, str]] = {
    Kind.BOOLEAN: "INTEGER",
    Kind.INTEGER: "INTEGER",
    Kind.DOUBLE: "REAL",
    Kind.DECIMAL: "TEXT",
    Kind.WHOLE: "INTEGER",
    Kind.TEXT: "TEXT",
    Kind.BYTES: "BLOB",
    Kind.DATE: "TEXT",
    Kind.TIME: "TEXT",
    Kind.TIMESTAMP: "TEXT",
    Kind.LOCAL_TIMESTAMP: "TEXT",
    Kind.JSON: "TEXT",
    Kind.UUID: "TEXT",
}

_ARROW: Final[Mapping[str, pa.DataType]] = {
    "INTEGER": pa.int64(),
    "REAL": pa.float64(),
    "TEXT": pa.string(),
    "BLOB": pa.binary(),
}


class SqliteDriver(SqlDriver):
    """A driver for one SQLite file."""

    documentation_url: ClassVar[str] = "https://www.sqlite.org"
    config_schema: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "required": ["path"],
        "properties": {
            "path": {"type": "string", "title": "Path of the database file"},
            "hardDelete": HARD_DELETE_SCHEMA,
        },
    }
    resource_schema: ClassVar[Mapping[str, Any]] = table_config()

    def __init__(self) -> None:
        super().__init__()
        self._db: sqlite3.Connection | None = None
        self._path = Path()
        self._in_transaction = False

    def close(self) -> None:
        """Close the file; an open transaction is rolled back by it."""
        if self._db is not None:
            self._db.close()
            self._db = None

    @property
    def _open_db(self) -> sqlite3.Connection:
        assert self._db is not None
        return self._db

    def _connect(self, config: Mapping[str, Any]) -> None:
        if self._db is not None:
            return
        self._path = Path(config["path"])
        with self._failing("cannot open"):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # Autocommit: every transaction is one that we begin.
            self._db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            self._db.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")

    @contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        """Tell what SQLite refused; a transaction in hand is rolled back when we are closed."""
        try:
            yield
        except (OSError, sqlite3.Error, OverflowError) as error:
            raise Determinate(f"{what} SQLite endpoint {self._path}: {error}") from error

    @contextmanager
    def _transaction(self, what: str) -> Iterator[sqlite3.Connection]:
        db = self._open_db
        with self._failing(what):
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
                raise

    def _resource_path(self, resource: Mapping[str, Any]) -> tuple[str, ...]:
        return (resource["table"],)

    def _existing(self, path: Sequence[str]) -> Mapping[str, Existing]:
        with self._failing("cannot read the tables of"):
            found = self._open_db.execute(f"PRAGMA table_info({_quoted(path[-1])})").fetchall()
        return {
            name: Existing(native.upper(), bool(pk), bool(notnull) and default is None and not pk)
            for _, name, native, notnull, default, pk in found
        }

    def _holds_data(self, path: Sequence[str]) -> bool:
        with self._failing("cannot read"):
            query = f"SELECT 1 FROM {_quoted(path[-1])} LIMIT 1"  # noqa: S608 - quoted
            return self._open_db.execute(query).fetchone() is not None

    def _holds(self, native: str, kind: Kind) -> bool:
        # A column without a type, or of type ANY, takes everything as it is.
        return native in (_NATIVE[kind], "", "ANY")

    def _checkpoints_missing(self) -> Iterator[str]:
        if not self._existing((CHECKPOINTS,)):
            yield _CREATE_CHECKPOINTS
        if not self._existing((STATUS,)):
            yield f"CREATE VIEW {STATUS} AS {SELECT_STATUS.format(checkpoints=CHECKPOINTS)}"

    def _create_table(self, binding: BindingSpec, columns: Sequence[Column]) -> str:
        parts = [
            f"{_quoted(c.name)} {_NATIVE[c.kind]}{' NOT NULL' if c.key else ''}" for c in columns
        ]
        if not binding.delta_updates:
            keys = ", ".join(_quoted(c.name) for c in columns if c.key)
            parts.append(f"PRIMARY KEY ({keys})")
        return f"CREATE TABLE {_quoted(binding.resource_path[-1])} ({', '.join(parts)})"

    def _add_column(self, path: Sequence[str], column: Column) -> str:
        added = f"{_quoted(column.name)} {_NATIVE[column.kind]}"
        return f"ALTER TABLE {_quoted(path[-1])} ADD COLUMN {added}"

    def _empty_table(self, path: Sequence[str]) -> str:
        return f"DELETE FROM {_quoted(path[-1])}"  # noqa: S608 - the name is quoted

    def _raise_fences(self, name: str) -> str:
        literal = "'" + name.replace("'", "''") + "'"
        return f"UPDATE {CHECKPOINTS} SET fence = fence + 1 WHERE materialization = {literal}"  # noqa: S608

    def _execute_all(self, statements: Sequence[str]) -> None:
        with self._transaction("cannot prepare") as db:
            for statement in statements:
                db.execute(statement)

    def _install(self, name: str, opened: KeyRange) -> Installed:
        with self._transaction("cannot open the key range in") as db:
            decided = decide_fence(db.execute(_SELECT_FENCES, (name,)).fetchall(), opened)
            for gone in decided.removed:
                db.execute(_DELETE_FENCE, (name, gone.begin, gone.end))
            for row in (*decided.raised, decided.row):
                where = (name, row.key_range.begin, row.key_range.end)
                db.execute(_PUT_FENCE, (*where, row.fence, row.checkpoint))
        return decided

    def _select(
        self, binding: BindingSpec, columns: Sequence[Column], keys: Sequence[tuple[Element, ...]]
    ) -> pa.Table:
        query = f"SELECT {_names(columns)} FROM {_table(binding)} WHERE {_is_key(columns)}"  # noqa: S608
        with self._failing("cannot load from"):
            rows = [row for key in keys if (row := self._open_db.execute(query, key).fetchone())]
        found = list(zip(*rows, strict=True)) or [()] * len(columns)
        return pa.table(
            {
                column.name: _loaded(column.kind, values)
                for column, values in zip(columns, found, strict=True)
            }
        )

    def _begin(self) -> sqlite3.Connection:
        """Begin the transaction, unless it is begun; a zombie learns here that it is one."""
        if not self._in_transaction:
            self._open_db.execute("BEGIN IMMEDIATE")
            self._in_transaction = True
            if self._open_db.execute(_IS_OURS, self._ours()).fetchone() is None:
                self._rollback()
                raise self._fenced()
        return self._open_db

    def _store(self, request: StoreMany) -> None:
        binding = self._materialization.bindings[request.binding]
        columns = self._columns[request.binding]
        rows = request.rows
        with self._failing("cannot write to"):
            self._begin()
            if binding.delta_updates:
                self._put(_insert(binding, columns), columns, rows)
                return
            new = pc.invert(request.exists)
            gone = pc.and_(request.delete, self._hard_delete)
            if pc.all(new).as_py() and not pc.any(gone).as_py():
                self._insert(binding, columns, rows)
                return
            self._delete(binding, columns, rows.filter(pc.and_(gone, request.exists)))
            put = pc.and_(pc.invert(gone), request.exists)
            self._put(_upsert(binding, columns), columns, rows.filter(put))
            self._insert(binding, columns, rows.filter(pc.and_(pc.invert(gone), new)))

    def _delete(self, binding: BindingSpec, columns: Sequence[Column], rows: pa.Table) -> None:
        keys = [column for column in columns if column.key]
        delete = f"DELETE FROM {_table(binding)} WHERE {_is_key(columns)}"  # noqa: S608
        self._open_db.executemany(delete, _values(keys, rows))

    def _put(self, statement: _Statement, columns: Sequence[Column], rows: pa.Table) -> int:
        """Write rows, many by each run of a statement; return how many were."""
        values = [_column(column.kind, rows.column(column.name)) for column in columns]
        at_once = max(1, min(_ROWS_AT_ONCE, _PARAMETERS_MAX // len(columns)))
        stored = 0
        whole = rows.num_rows - rows.num_rows % at_once
        for begin, end, size in ((0, whole, at_once), (whole, rows.num_rows, 1)):
            if begin < end:
                each = chain.from_iterable(zip(*(v[begin:end] for v in values), strict=True))
                # The same iterator so many times: each tuple takes the next values of it.
                taken = zip(*[each] * (size * len(columns)), strict=True)
                stored += self._open_db.executemany(statement(size), taken).rowcount
        return stored

    def _insert(self, binding: BindingSpec, columns: Sequence[Column], rows: pa.Table) -> None:
        statement = _insert(binding, columns)
        if not self._hard_delete:
            # The row of a key that was deleted softly is still there, and may be written over.
            deleted = f" WHERE {_table(binding)}.{_quoted(OP)} = 'd'"
            statement = _followed(_upsert(binding, columns), deleted)
        try:
            stored = self._put(statement, columns, rows)
        except sqlite3.IntegrityError as error:
            taken = self._taken(binding, columns, rows)
            if taken is None:
                raise
            raise taken from error
        if stored != rows.num_rows:
            taken = self._taken(binding, columns, rows)
            assert taken is not None
            raise taken

    def _taken(
        self, binding: BindingSpec, columns: Sequence[Column], rows: pa.Table
    ) -> KeyTaken | None:
        """Return which row has a key that was there before this transaction."""
        self._rollback()
        keys = [column for column in columns if column.key]
        names = [column.name for column in keys]
        query = f"SELECT * FROM {_table(binding)} WHERE {_is_key(columns)}"  # noqa: S608
        cursor = self._open_db.cursor()
        for key in _values(keys, rows):
            found = cursor.execute(query, key).fetchone()
            if found is not None:
                there = dict(zip((d[0] for d in cursor.description), found, strict=True))
                if self._hard_delete or there.get(OP) != "d":
                    return KeyTaken(binding.resource_path, dict(zip(names, key, strict=True)))
        return None

    def _rollback(self) -> None:
        self._open_db.execute("ROLLBACK")
        self._in_transaction = False

    def _commit(self, checkpoint: Checkpoint) -> None:
        with self._failing("cannot commit to"):
            moved = self._begin().execute(_MOVE_CHECKPOINT, (to_text(checkpoint), *self._ours()))
            if moved.rowcount != 1:
                self._rollback()
                raise self._fenced()
            self._open_db.execute("COMMIT")
            self._in_transaction = False


_CREATE_CHECKPOINTS: Final = (
    f"CREATE TABLE {CHECKPOINTS} (materialization TEXT NOT NULL, key_begin INTEGER NOT NULL, "
    "key_end INTEGER NOT NULL, fence INTEGER NOT NULL, checkpoint TEXT NOT NULL, "
    "PRIMARY KEY (materialization, key_begin, key_end))"
)
_SELECT_FENCES: Final = (
    f"SELECT key_begin, key_end, fence, checkpoint FROM {CHECKPOINTS} "  # noqa: S608
    "WHERE materialization = ?"
)
_PUT_FENCE: Final = f"INSERT OR REPLACE INTO {CHECKPOINTS} VALUES (?, ?, ?, ?, ?)"  # noqa: S608
_DELETE_FENCE: Final = (
    f"DELETE FROM {CHECKPOINTS} "  # noqa: S608
    "WHERE materialization = ? AND key_begin = ? AND key_end = ?"
)
_IS_OURS: Final = (
    f"SELECT 1 FROM {CHECKPOINTS} "  # noqa: S608
    "WHERE materialization = ? AND key_begin = ? AND key_end = ? AND fence = ?"
)
_MOVE_CHECKPOINT: Final = (
    f"UPDATE {CHECKPOINTS} SET checkpoint = ? "  # noqa: S608
    "WHERE materialization = ? AND key_begin = ? AND key_end = ? AND fence = ?"
)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _table(binding: BindingSpec) -> str:
    return _quoted(binding.resource_path[-1])


def _names(columns: Sequence[Column]) -> str:
    return ", ".join(_quoted(column.name) for column in columns)


def _is_key(columns: Sequence[Column]) -> str:
    return " AND ".join(f"{_quoted(column.name)} = ?" for column in columns if column.key)


_Statement = Callable[[int], str]
"""A statement that writes so many rows."""


def _insert(binding: BindingSpec, columns: Sequence[Column]) -> _Statement:
    row = f"({', '.join('?' for _ in columns)})"
    head = f"INSERT INTO {_table(binding)} ({_names(columns)}) VALUES"
    return lambda rows: f"{head} {', '.join([row] * rows)}"


def _followed(statement: _Statement, clause: str) -> _Statement:
    return lambda rows: statement(rows) + clause


def _upsert(binding: BindingSpec, columns: Sequence[Column]) -> _Statement:
    keys = _names([column for column in columns if column.key])
    values = [_quoted(column.name) for column in columns if not column.key]
    # A table of nothing but a key still has to say what is done with a row that is there.
    put = ", ".join(f"{name} = excluded.{name}" for name in values or [_names(columns[:1])])
    return _followed(_insert(binding, columns), f" ON CONFLICT ({keys}) DO UPDATE SET {put}")


def _loaded(kind: Kind, values: Sequence[Any]) -> pa.Array:
    found = pa.array(values, _ARROW[_NATIVE[kind]])
    return found.cast(pa.bool_()) if kind is Kind.BOOLEAN else found


def _values(columns: Sequence[Column], rows: pa.Table) -> list[tuple[Any, ...]]:
    values = [_column(column.kind, rows.column(column.name)) for column in columns]
    return list(zip(*values, strict=True))


def _column(kind: Kind, column: pa.ChunkedArray) -> list[Any]:
    array = joined(column)
    values: list[Any] = packable(array).to_pylist()
    if kind is Kind.WHOLE:
        return [None if value is None else int(value) for value in values]
    if pa.types.is_nested(array.type):
        return [None if value is None else value.decode() for value in values]
    return values

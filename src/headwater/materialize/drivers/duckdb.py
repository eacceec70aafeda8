"""DuckDB as a driver of the protocol: rows, fence and checkpoint in one file.

What all SQL drivers share is in ``sql``. The file is open for the time of a transaction, of a load
or of a question, and closed in between (``duckdb_file``), so that others can read it: DuckDB lets
nobody else in while somebody writes. Rows come and go as whole Arrow columns, each in the type of
the table's column (``typed_rows``).

A row that exists is put by deleting it and inserting it anew: DuckDB rewrites all of a column's
group of rows for an update in place, and the cost would follow the table. Only where the table has
columns that are not ours are rows updated in place, because these are somebody's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from headwater.base.errors import Determinate, Indeterminate
from headwater.materialize.checkpoint import to_text
from headwater.materialize.drivers.columns import Column, Existing, Kind
from headwater.materialize.drivers.duckdb_file import DuckFile, executed
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
from headwater.materialize.drivers.typed_rows import typed_keys, typed_rows
from headwater.materialize.key_range import KeyRange
from headwater.materialize.projections import OP
from headwater.materialize.protocol.messages import StoreMany
from headwater.materialize.protocol.specs import BindingSpec, Checkpoint
from headwater.materialize.tuples import Element

_DIGITS_MAX: Final = 38
_ROWS: Final = "headwater_rows"
"""What we call the rows in hand; DuckDB looks for it among temporary things first."""

_NATIVE: Final[Mapping[Kind, str]] = {
    Kind.BOOLEAN: "BOOLEAN",
    Kind.INTEGER: "BIGINT",
    Kind.DOUBLE: "DOUBLE",
    Kind.DECIMAL: "VARCHAR",
    Kind.WHOLE: "DECIMAL(38,0)",
    Kind.TEXT: "VARCHAR",
    Kind.BYTES: "BLOB",
    Kind.DATE: "DATE",
    Kind.TIME: "TIME",
    Kind.TIMESTAMP: "TIMESTAMP WITH TIME ZONE",
    Kind.LOCAL_TIMESTAMP: "TIMESTAMP",
    Kind.JSON: "JSON",
    Kind.UUID: "UUID",
}
"""Decimals have their own digits, if these are known."""

_ALSO_HOLDS: Final[Mapping[Kind, frozenset[str]]] = {
    Kind.JSON: frozenset({"VARCHAR"}),
    Kind.UUID: frozenset({"VARCHAR"}),
}

_ARROW: Final[Mapping[str, pa.DataType]] = {
    "BOOLEAN": pa.bool_(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "VARCHAR": pa.string(),
    "BLOB": pa.binary(),
    "DATE": pa.date32(),
    "TIME": pa.time64("us"),
    "TIMESTAMP WITH TIME ZONE": pa.timestamp("us", "UTC"),
    "TIMESTAMP": pa.timestamp("us"),
    "JSON": pa.string(),
    "UUID": pa.string(),
}
"""By DuckDB's name of a type, what it is written of; DuckDB itself reads JSON and UUIDs."""

_DECIMAL: Final = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")


class DuckDbDriver(SqlDriver):
    """A driver for one DuckDB file."""

    documentation_url: ClassVar[str] = "https://duckdb.org/docs"
    config_schema: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "required": ["path"],
        "properties": {
            "path": {"type": "string", "title": "Path of the database file"},
            "schema": {"type": "string", "title": "Schema of the checkpoints", "default": "main"},
            "hardDelete": HARD_DELETE_SCHEMA,
        },
    }
    resource_schema: ClassVar[Mapping[str, Any]] = table_config("schema")

    def __init__(self) -> None:
        super().__init__()
        self._opened_file: DuckFile | None = None
        self._schema = "main"
        self._natives: dict[int, Mapping[str, str]] = {}
        """By binding, all columns of its table with their types, once they are known."""

    def close(self) -> None:
        """Close the file; an open transaction is rolled back by it."""
        if self._opened_file is not None:
            self._opened_file.close()

    @property
    def _file(self) -> DuckFile:
        assert self._opened_file is not None
        return self._opened_file

    def _connect(self, config: Mapping[str, Any]) -> None:
        if self._opened_file is not None:
            return
        self._schema = config.get("schema") or "main"
        self._opened_file = DuckFile(config["path"])
        with self._failing("cannot open"):
            self._file.check()

    @contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        """Tell what DuckDB refused; a transaction in hand is rolled back when we are closed."""
        try:
            yield
        except (OSError, duckdb.Error, OverflowError, pa.ArrowException) as error:
            raise Determinate(f"{what} DuckDB file {self._file.path}: {_said(error)}") from error

    @contextmanager
    def _using(self, what: str) -> Iterator[duckdb.DuckDBPyConnection]:
        """Have the file open for a question; if it is open, that is asked in the transaction."""
        with self._failing(what):
            if self._file.connection is not None:
                yield self._file.connection
                return
            try:
                yield self._file.open()
            finally:
                self._file.close()

    @contextmanager
    def _transaction(self, what: str) -> Iterator[duckdb.DuckDBPyConnection]:
        """Have it open for a transaction; what is not committed is rolled back as it is closed."""
        with self._using(what) as db:
            executed(db, "BEGIN")
            yield db
            executed(db, "COMMIT")

    def _resource_path(self, resource: Mapping[str, Any]) -> tuple[str, ...]:
        return resource.get("schema") or self._schema, resource["table"]

    def _existing(self, path: Sequence[str]) -> Mapping[str, Existing]:
        if self._file.connection is None and not self._file.path.exists():
            return {}  # To ask it would make the file.
        with self._using("cannot read the tables of") as db:
            found = executed(db, _COLUMNS, path)
            keys = {name for (name,) in executed(db, _PRIMARY_KEY, path)}
        return {
            name: Existing(native, name in keys, bool(needed) and name not in keys)
            for name, native, needed in found
        }

    def _holds_data(self, path: Sequence[str]) -> bool:
        with self._using("cannot read") as db:
            query = f"SELECT 1 FROM {_quoted(*path)} LIMIT 1"  # noqa: S608 - quoted
            return bool(executed(db, query))

    def _holds(self, native: str, kind: Kind) -> bool:
        if kind in (Kind.DECIMAL, Kind.WHOLE) and _DECIMAL.fullmatch(native):
            return True  # A value that does not fit its digits is refused when it comes.
        return native == _NATIVE[kind] or native in _ALSO_HOLDS.get(kind, ())

    @property
    def _checkpoints(self) -> str:
        return _quoted(self._schema, CHECKPOINTS)

    def _checkpoints_missing(self) -> Iterator[str]:
        if not self._existing((self._schema, CHECKPOINTS)):
            yield f"CREATE SCHEMA IF NOT EXISTS {_quoted(self._schema)}"
            yield _CREATE_CHECKPOINTS.format(table=self._checkpoints)
        if not self._existing((self._schema, STATUS)):
            selected = SELECT_STATUS.format(checkpoints=self._checkpoints)
            yield f"CREATE VIEW {_quoted(self._schema, STATUS)} AS {selected}"

    def _create_table(self, binding: BindingSpec, columns: Sequence[Column]) -> str:
        parts = [f"{_quoted(c.name)} {_native(c)}{' NOT NULL' if c.key else ''}" for c in columns]
        if not binding.delta_updates:
            parts.append(f"PRIMARY KEY ({_names(_keys(columns))})")
        schema = _quoted(binding.resource_path[0])
        made = f"CREATE TABLE {_table(binding)} ({', '.join(parts)})"
        return f"CREATE SCHEMA IF NOT EXISTS {schema};\n{made}"

    def _add_column(self, path: Sequence[str], column: Column) -> str:
        return f"ALTER TABLE {_quoted(*path)} ADD COLUMN {_quoted(column.name)} {_native(column)}"

    def _empty_table(self, path: Sequence[str]) -> str:
        return f"DELETE FROM {_quoted(*path)}"  # noqa: S608 - the name is quoted

    def _raise_fences(self, name: str) -> str:
        literal = "'" + name.replace("'", "''") + "'"
        return f"UPDATE {self._checkpoints} SET fence = fence + 1 WHERE materialization = {literal}"  # noqa: S608

    def _execute_all(self, statements: Sequence[str]) -> None:
        with self._transaction("cannot prepare") as db:
            for statement in statements:
                executed(db, statement)

    def _install(self, name: str, opened: KeyRange) -> Installed:
        table = self._checkpoints
        with self._transaction("cannot open the key range in") as db:
            rows = executed(db, _SELECT_FENCES.format(table=table), (name,))
            decided = decide_fence(rows, opened)
            for gone in decided.removed:
                executed(db, _DELETE_FENCE.format(table=table), (name, gone.begin, gone.end))
            for row in (*decided.raised, decided.row):
                where = (name, row.key_range.begin, row.key_range.end)
                executed(db, _PUT_FENCE.format(table=table), (*where, row.fence, row.checkpoint))
        return decided

    def _types(self, index: int) -> Mapping[str, str]:
        """Return all columns of a binding's table with their types."""
        if index not in self._natives:
            existing = self._existing(self._materialization.bindings[index].resource_path)
            self._natives[index] = {name: found.native for name, found in existing.items()}
        return self._natives[index]

    def _arrow(self, index: int, columns: Sequence[Column]) -> list[pa.DataType]:
        natives = self._types(index)
        return [_arrow(natives[column.name]) for column in columns]

    def _select(
        self, binding: BindingSpec, columns: Sequence[Column], keys: Sequence[tuple[Element, ...]]
    ) -> pa.Table:
        index = self._materialization.bindings.index(binding)
        asked = _keys(columns)
        selected = ", ".join(f"t.{_quoted(c.name)}" for c in columns)
        query = f"SELECT {selected} FROM {_table(binding)} AS t JOIN {_ROWS} AS s ON {_same(asked)}"  # noqa: S608
        with self._using("cannot load from") as db:
            names, kinds = [c.name for c in asked], self._arrow(index, asked)
            db.register(_ROWS, typed_keys(keys, names, kinds))
            return db.sql(query).to_arrow_table()

    def _begin(self) -> duckdb.DuckDBPyConnection:
        """Begin the transaction, unless it is begun; a zombie learns here that it is one."""
        if self._file.connection is not None:
            return self._file.connection
        db = self._file.open()
        executed(db, "BEGIN")
        if not executed(db, _IS_OURS.format(table=self._checkpoints), self._ours()):
            self._file.close()
            raise self._fenced()
        return db

    def _store(self, request: StoreMany) -> None:
        binding = self._materialization.bindings[request.binding]
        columns = self._columns[request.binding]
        with self._failing("cannot write to"):
            self._begin()
            kinds = self._arrow(request.binding, columns)
            rows = typed_rows(request.rows, [column.name for column in columns], kinds)
            if binding.delta_updates:
                self._insert(binding, columns, rows)
                return
            gone = pc.and_(request.delete, self._hard_delete)
            live = pc.invert(gone)
            self._delete(binding, columns, rows.filter(pc.and_(gone, request.exists)))
            self._put(request.binding, rows.filter(pc.and_(live, request.exists)))
            new = rows.filter(pc.and_(live, pc.invert(request.exists)))
            if not self._hard_delete:
                # The row of a key that was deleted softly is still there, and is written over.
                taken = self._taken(binding, columns, new)
                if taken is not None:
                    raise taken
                self._put(request.binding, new)
                return
            try:
                self._insert(binding, columns, new)
            except duckdb.ConstraintException as error:
                self._file.close()
                taken = self._taken(binding, columns, new)
                if taken is None:
                    raise
                raise taken from error

    def _insert(self, binding: BindingSpec, columns: Sequence[Column], rows: pa.Table) -> None:
        names = _names(columns)
        self._write(f"INSERT INTO {_table(binding)} ({names}) SELECT {names} FROM {_ROWS}", rows)  # noqa: S608

    def _delete(self, binding: BindingSpec, columns: Sequence[Column], rows: pa.Table) -> None:
        same = _same(_keys(columns))
        self._write(f"DELETE FROM {_table(binding)} AS t USING {_ROWS} AS s WHERE {same}", rows)  # noqa: S608

    def _put(self, index: int, rows: pa.Table) -> None:
        binding, columns = self._materialization.bindings[index], self._columns[index]
        if len(self._types(index)) == len(columns):
            self._delete(binding, columns, rows)
            self._insert(binding, columns, rows)
            return
        names = _names(columns)
        values = [_quoted(column.name) for column in columns if not column.key]
        put = ", ".join(f"{name} = excluded.{name}" for name in values)
        then = f"DO UPDATE SET {put}" if put else "DO NOTHING"
        self._write(
            f"INSERT INTO {_table(binding)} ({names}) SELECT {names} FROM {_ROWS} "  # noqa: S608
            f"ON CONFLICT ({_names(_keys(columns))}) {then}",
            rows,
        )

    def _write(self, statement: str, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        db = self._begin()
        db.register(_ROWS, rows)
        executed(db, statement)
        db.unregister(_ROWS)

    def _taken(
        self, binding: BindingSpec, columns: Sequence[Column], rows: pa.Table
    ) -> KeyTaken | None:
        """Return which of new rows has a key that is there."""
        keys = _keys(columns)
        alive = "" if self._hard_delete else f" AND t.{_quoted(OP)} IS DISTINCT FROM 'd'"
        selected = ", ".join(f"s.{_quoted(key.name)}" for key in keys)
        query = (
            f"SELECT {selected} FROM {_ROWS} AS s JOIN {_table(binding)} AS t "  # noqa: S608
            f"ON {_same(keys)}{alive} LIMIT 1"
        )
        with self._using("cannot read") as db:
            db.register(_ROWS, rows)
            found = executed(db, query)
            db.unregister(_ROWS)
        if not found:
            return None
        key = dict(zip((key.name for key in keys), found[0], strict=True))
        return KeyTaken(binding.resource_path, key)

    def _commit(self, checkpoint: Checkpoint) -> None:
        move = _MOVE_CHECKPOINT.format(table=self._checkpoints)
        with self._failing("cannot commit to"):
            db = self._begin()
            if len(executed(db, move, (to_text(checkpoint), *self._ours()))) != 1:
                self._file.close()
                raise self._fenced()
        try:
            executed(db, "COMMIT")
        except duckdb.Error as error:
            # Whether it happened, the next session reads from the checkpoint.
            raise Indeterminate(
                f"commit to DuckDB file {self._file.path}: {_said(error)}"
            ) from error
        self._file.close()


_COLUMNS: Final = (
    "SELECT column_name, data_type, NOT is_nullable AND column_default IS NULL "
    "FROM duckdb_columns() WHERE database_name = current_database() AND schema_name = ? "
    "AND table_name = ? ORDER BY column_index"
)
_PRIMARY_KEY: Final = (
    "SELECT unnest(constraint_column_names) FROM duckdb_constraints() "
    "WHERE constraint_type = 'PRIMARY KEY' AND database_name = current_database() "
    "AND schema_name = ? AND table_name = ?"
)
_CREATE_CHECKPOINTS: Final = (
    "CREATE TABLE {table} (materialization VARCHAR NOT NULL, key_begin BIGINT NOT NULL, "
    "key_end BIGINT NOT NULL, fence BIGINT NOT NULL, checkpoint VARCHAR NOT NULL, "
    "PRIMARY KEY (materialization, key_begin, key_end))"
)
_SELECT_FENCES: Final = (
    "SELECT key_begin, key_end, fence, checkpoint FROM {table} WHERE materialization = ?"
)
_PUT_FENCE: Final = "INSERT OR REPLACE INTO {table} VALUES (?, ?, ?, ?, ?)"
_DELETE_FENCE: Final = (
    "DELETE FROM {table} WHERE materialization = ? AND key_begin = ? AND key_end = ?"
)
_IS_OURS: Final = (
    "SELECT 1 FROM {table} "
    "WHERE materialization = ? AND key_begin = ? AND key_end = ? AND fence = ?"
)
_MOVE_CHECKPOINT: Final = (
    "UPDATE {table} SET checkpoint = ? "
    "WHERE materialization = ? AND key_begin = ? AND key_end = ? AND fence = ? RETURNING fence"
)


def _said(error: Exception) -> str:
    """Return what DuckDB says, without the statement that it says it of."""
    return str(error).strip().partition("\n\nLINE ")[0]


def _native(column: Column) -> str:
    if column.kind in (Kind.DECIMAL, Kind.WHOLE) and column.digits is not None:
        precision, scale = column.digits
        if precision <= _DIGITS_MAX:
            return f"DECIMAL({precision},{scale})"
    return _NATIVE[column.kind]


def _arrow(native: str) -> pa.DataType:
    decimal = _DECIMAL.fullmatch(native)
    if decimal is None:
        return _ARROW[native]
    return pa.decimal128(int(decimal[1]), int(decimal[2]))


def _quoted(*names: str) -> str:
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


def _table(binding: BindingSpec) -> str:
    return _quoted(*binding.resource_path)


def _keys(columns: Sequence[Column]) -> list[Column]:
    return [column for column in columns if column.key]


def _names(columns: Sequence[Column]) -> str:
    return ", ".join(_quoted(column.name) for column in columns)


def _same(keys: Sequence[Column]) -> str:
    return " AND ".join(f"t.{_quoted(key.name)} = s.{_quoted(key.name)}" for key in keys)

"""PostgreSQL as a driver of the protocol: rows, fence and checkpoint in one transaction.

What all SQL drivers share is in ``sql``. Rows go by binary COPY (``postgres_copy``), straight into
the table where all of them are new, and else into a temporary one from which one statement each
deletes, puts and inserts. Identifiers are composed by psycopg and values are parameters; nothing is
spliced in.

A transaction begins by locking our row of the fences, so whoever opens the range waits for the
commit and sees its checkpoint. A session that is frozen in the middle would make it wait for ever:
the server ends a transaction that is idle for :data:`IDLE_MS`, and with it what it holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, ClassVar, Final
from uuid import UUID

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.types.json import Json

from headwater.base.errors import Determinate, Indeterminate
from headwater.materialize.checkpoint import to_text
from headwater.materialize.drivers.columns import Column, Existing, Kind
from headwater.materialize.drivers.fences import Installed
from headwater.materialize.drivers.postgres_copy import encoded, fitting
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
from headwater.materialize.drivers.typed_rows import typed
from headwater.materialize.joined import joined
from headwater.materialize.key_range import KeyRange
from headwater.materialize.projections import OP, packable
from headwater.materialize.protocol.messages import StoreMany
from headwater.materialize.protocol.specs import BindingSpec, Checkpoint
from headwater.materialize.tuples import Element

IDLE_MS: Final = 60_000
_LOCK_MS: Final = 90_000
_CONNECT_S: Final = 10
_EXISTS: Final = "_headwater_exists"
_DELETE: Final = "_headwater_delete"

_NATIVE: Final[Mapping[Kind, str]] = {
    Kind.BOOLEAN: "bool",
    Kind.INTEGER: "int8",
    Kind.DOUBLE: "float8",
    Kind.DECIMAL: "numeric",
    Kind.WHOLE: "numeric",
    Kind.TEXT: "text",
    Kind.BYTES: "bytea",
    Kind.DATE: "date",
    Kind.TIME: "time",
    Kind.TIMESTAMP: "timestamptz",
    Kind.LOCAL_TIMESTAMP: "timestamp",
    Kind.JSON: "jsonb",
    Kind.UUID: "uuid",
}
_ALSO_HOLDS: Final[Mapping[Kind, frozenset[str]]] = {
    Kind.INTEGER: frozenset({"numeric"}),
    Kind.TEXT: frozenset({"varchar"}),
    Kind.JSON: frozenset({"json", "text", "varchar"}),
    Kind.UUID: frozenset({"text", "varchar"}),
}
_ROUNDED: Final = frozenset({"time", "timestamp", "timestamptz"})
"""Of these, one that says its digits has fewer than our microseconds, and would round them."""

_AS_TEXT: Final = frozenset({Kind.JSON, Kind.UUID})
"""What is loaded as its text."""

_PARSED: Final[Mapping[Kind, pa.DataType]] = {
    Kind.DATE: pa.date32(),
    Kind.TIME: pa.time64("us"),
    Kind.TIMESTAMP: pa.timestamp("us", "UTC"),
    Kind.LOCAL_TIMESTAMP: pa.timestamp("us"),
}


class PostgresDriver(SqlDriver):
    """A driver for one PostgreSQL database."""

    documentation_url: ClassVar[str] = "https://www.postgresql.org/docs"
    config_schema: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "required": ["dsn"],
        "properties": {
            "dsn": {"type": "string", "title": "Connection string or URI", "secret": True},
            "schema": {"type": "string", "title": "Schema of the checkpoints", "default": "public"},
            "hardDelete": HARD_DELETE_SCHEMA,
        },
    }
    resource_schema: ClassVar[Mapping[str, Any]] = table_config("schema")

    def __init__(self) -> None:
        super().__init__()
        self._connection: psycopg.Connection[Any] | None = None
        self._schema = "public"
        self._natives: dict[int, tuple[str, ...]] = {}
        """The types of a binding's columns as they are in the table, once they are known."""

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back by it."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def _db(self) -> psycopg.Connection[Any]:
        assert self._connection is not None
        return self._connection

    def _connect(self, config: Mapping[str, Any]) -> None:
        if self._connection is not None:
            return
        self._schema = config.get("schema") or "public"
        settings = {
            "TimeZone": "UTC",
            "idle_in_transaction_session_timeout": IDLE_MS,
            "lock_timeout": _LOCK_MS,
        }
        with self._failing("cannot connect to"):
            conninfo = make_conninfo(
                config["dsn"],
                connect_timeout=_CONNECT_S,
                application_name="headwater",
                options=" ".join(f"-c {name}={value}" for name, value in settings.items()),
            )
            # Autocommit: every transaction is one that we begin.
            self._connection = psycopg.connect(conninfo, autocommit=True)

    @contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        """Tell what PostgreSQL refused; a transaction in hand is rolled back when we are closed."""
        try:
            yield
        except (psycopg.Error, OverflowError, pa.ArrowException) as error:
            raise Determinate(f"{what} PostgreSQL: {str(error).strip()}") from error

    def _resource_path(self, resource: Mapping[str, Any]) -> tuple[str, ...]:
        return resource.get("schema") or self._schema, resource["table"]

    def _existing(self, path: Sequence[str]) -> Mapping[str, Existing]:
        with self._failing("cannot read the tables of"):
            found = self._db.execute(_COLUMNS, tuple(path)).fetchall()
        return {name: Existing(native, key, needed) for name, native, key, needed in found}

    def _holds_data(self, path: Sequence[str]) -> bool:
        with self._failing("cannot read from"):
            query = sql.SQL("SELECT 1 FROM {} LIMIT 1").format(sql.Identifier(*path))
            return self._db.execute(query).fetchone() is not None

    def _holds(self, native: str, kind: Kind) -> bool:
        name, limited, _ = native.partition("(")
        if limited and name in _ROUNDED:
            return False
        return name == _NATIVE[kind] or name in _ALSO_HOLDS.get(kind, ())

    @property
    def _checkpoints(self) -> sql.Identifier:
        return sql.Identifier(self._schema, CHECKPOINTS)

    def _checkpoints_missing(self) -> Iterator[str]:
        if not self._existing((self._schema, CHECKPOINTS)):
            yield self._text(_CREATE_CHECKPOINTS.format(table=self._checkpoints))
        if not self._existing((self._schema, STATUS)):
            view = sql.Identifier(self._schema, STATUS)
            selected = sql.SQL(SELECT_STATUS).format(checkpoints=self._checkpoints)
            yield self._text(sql.SQL("CREATE VIEW {} AS {}").format(view, selected))

    def _create_table(self, binding: BindingSpec, columns: Sequence[Column]) -> str:
        parts = [
            sql.SQL("{} {}{}").format(
                sql.Identifier(column.name),
                sql.SQL(_NATIVE[column.kind]),
                sql.SQL(" NOT NULL" if column.key else ""),
            )
            for column in columns
        ]
        if not binding.delta_updates:
            parts.append(sql.SQL("PRIMARY KEY ({})").format(_names(_keys(columns))))
        return self._text(
            sql.SQL("CREATE TABLE {} ({})").format(_table(binding), sql.SQL(", ").join(parts))
        )

    def _add_column(self, path: Sequence[str], column: Column) -> str:
        return self._text(
            sql.SQL("ALTER TABLE {} ADD COLUMN {} {}").format(
                sql.Identifier(*path),
                sql.Identifier(column.name),
                sql.SQL(_NATIVE[column.kind]),
            )
        )

    def _empty_table(self, path: Sequence[str]) -> str:
        return self._text(sql.SQL("DELETE FROM {}").format(sql.Identifier(*path)))

    def _raise_fences(self, name: str) -> str:
        raised = sql.SQL("UPDATE {} SET fence = fence + 1 WHERE materialization = {}")
        return self._text(raised.format(self._checkpoints, sql.Literal(name)))

    def _text(self, statement: sql.Composed) -> str:
        return statement.as_string(self._db)

    def _execute_all(self, statements: Sequence[str]) -> None:
        with self._failing("cannot prepare"), self._db.transaction():
            for statement in statements:
                self._db.execute(statement.encode())

    def _install(self, name: str, opened: KeyRange) -> Installed:
        with self._failing("cannot open the key range in"), self._db.transaction():
            # Others who open come after us, also if there is no row yet that could be locked.
            self._db.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (name,))
            rows = self._db.execute(_SELECT_FENCES.format(table=self._checkpoints), (name,))
            decided = decide_fence(rows.fetchall(), opened)
            for gone in decided.removed:
                key = (name, gone.begin, gone.end)
                self._db.execute(_DELETE_FENCE.format(table=self._checkpoints), key)
            for row in (*decided.raised, decided.row):
                key = (name, row.key_range.begin, row.key_range.end)
                put = _PUT_FENCE.format(table=self._checkpoints)
                self._db.execute(put, (*key, row.fence, row.checkpoint))
        return decided

    def _select(
        self, binding: BindingSpec, columns: Sequence[Column], keys: Sequence[tuple[Element, ...]]
    ) -> pa.Table:
        names = _keys(columns)
        load = sql.Identifier("headwater_load")
        made = sql.SQL("CREATE TEMP TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA")
        found = sql.SQL("SELECT {} FROM {} AS t JOIN {} AS s ON {}")
        selected = sql.SQL(", ").join(map(_selected, columns))
        with self._failing("cannot load from"), self._db.transaction(), self._db.cursor() as cursor:
            cursor.execute(made.format(load, _names(names), _table(binding)))
            # As text: a packed key has decimals, dates and times as texts, which it can read.
            with cursor.copy(sql.SQL("COPY {} FROM STDIN").format(load)) as copy:
                for key in keys:
                    copy.write_row(key)
            cursor.execute(found.format(selected, _table(binding), load, _same(names)))
            rows = cursor.fetchall()
        values = list(zip(*rows, strict=True)) or [()] * len(columns)
        return pa.table(
            {column.name: pa.array(list(v)) for column, v in zip(columns, values, strict=True)}
        )

    def _begin(self) -> None:
        """Begin the transaction, unless it is begun; a zombie learns here that it is one."""
        if self._db.info.transaction_status is psycopg.pq.TransactionStatus.IDLE:
            self._db.execute("BEGIN")
            ours = self._db.execute(_IS_OURS.format(table=self._checkpoints), self._ours())
            if ours.fetchone() is None:
                self._db.execute("ROLLBACK")
                raise self._fenced()

    def _store(self, request: StoreMany) -> None:
        binding = self._materialization.bindings[request.binding]
        columns = self._columns[request.binding]
        rows = request.rows.select([column.name for column in columns])
        gone = pc.and_(request.delete, self._hard_delete)
        with self._failing("cannot write to"):
            self._begin()
            new = not pc.any(request.exists).as_py() and not pc.any(gone).as_py()
            try:
                if binding.delta_updates or (new and self._hard_delete):
                    self._copy(request.binding, _table(binding), rows, ())
                else:
                    self._merge(request, binding, rows, gone)
            except psycopg.errors.UniqueViolation as error:
                detail = error.diag.message_detail or str(error)
                raise KeyTaken(binding.resource_path, detail) from error

    def _merge(
        self, request: StoreMany, binding: BindingSpec, rows: pa.Table, gone: pa.BooleanArray
    ) -> None:
        """Stage rows, and write them with a statement for each thing that can become of one."""
        columns = self._columns[request.binding]
        stage = sql.Identifier(f"headwater_stage_{request.binding}")
        marks = sql.Identifier(_EXISTS), sql.Identifier(_DELETE)
        self._db.execute(_STAGE.format(stage, _names(columns), *marks, _table(binding)))
        self._copy(
            request.binding,
            stage,
            rows,
            ((_EXISTS, joined(request.exists)), (_DELETE, joined(gone))),
        )
        names = {
            "t": _table(binding),
            "s": stage,
            "names": _names(columns),
            "keys": _names(_keys(columns)),
            "same": _same(_keys(columns)),
            "put": _put(columns),
            "exists": marks[0],
            "gone": marks[1],
            "op": sql.Identifier(OP),
        }
        live = pc.invert(gone)
        if pc.any(gone).as_py():
            self._db.execute(_DELETE_ROWS.format(**names))
        if pc.any(pc.and_(live, request.exists)).as_py():
            self._db.execute(_PUT_ROWS.format(**names))
        if pc.any(pc.and_(live, pc.invert(request.exists))).as_py():
            if self._hard_delete:
                self._db.execute(_INSERT_ROWS.format(**names))
            else:
                taken = self._db.execute(_TAKEN.format(**names)).fetchone()
                if taken is not None:
                    raise KeyTaken(binding.resource_path, taken)
                self._db.execute(_REVIVE_ROWS.format(**names))
        self._db.execute(sql.SQL("TRUNCATE {}").format(stage))

    def _copy(
        self,
        index: int,
        into: sql.Identifier,
        rows: pa.Table,
        flags: Sequence[tuple[str, pa.BooleanArray]],
    ) -> None:
        columns = self._columns[index]
        path = self._materialization.bindings[index].resource_path
        if index not in self._natives:
            existing = self._existing(path)
            self._natives[index] = tuple(existing[column.name].native for column in columns)
        written = [sql.Identifier(c.name) for c in columns]
        written += [sql.Identifier(name) for name, _ in flags]
        statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(
            into, sql.SQL(", ").join(written)
        )
        natives = self._natives[index]
        content = encoded(list(zip(columns, natives, strict=True)), rows, flags)
        with self._db.cursor() as cursor, cursor.copy(statement) as copy:
            if content is not None:
                for piece in content:
                    copy.write(piece)
                return
            names = [native.partition("(")[0] for native in natives]
            copy.set_types([*names, *("bool" for _ in flags)])
            values = [
                _values(c, native, rows.column(c.name))
                for c, native in zip(columns, natives, strict=True)
            ]
            values += [flag.to_pylist() for _, flag in flags]
            for row in zip(*values, strict=True):
                copy.write_row(row)

    def _commit(self, checkpoint: Checkpoint) -> None:
        with self._failing("cannot commit to"):
            self._begin()
            move = _MOVE_CHECKPOINT.format(table=self._checkpoints)
            moved = self._db.execute(move, (to_text(checkpoint), *self._ours()))
            if moved.rowcount != 1:
                self._db.execute("ROLLBACK")
                raise self._fenced()
        try:
            self._db.execute("COMMIT")
        except psycopg.OperationalError as error:
            # Whether it happened, the next session reads from the checkpoint.
            raise Indeterminate(f"commit to PostgreSQL: {str(error).strip()}") from error


_COLUMNS: Final = r"""
SELECT a.attname,
       t.typname || coalesce(
           nullif(substring(format_type(a.atttypid, a.atttypmod) FROM '\([-0-9,]+\)'), '(6)'), ''),
       coalesce(a.attnum = ANY (p.indkey), false),
       a.attnotnull AND NOT a.atthasdef AND a.attidentity = ''
FROM pg_attribute a
JOIN pg_type t ON t.oid = a.atttypid
JOIN pg_class c ON c.oid = a.attrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_index p ON p.indrelid = c.oid AND p.indisprimary
WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""
_CREATE_CHECKPOINTS: Final = sql.SQL(
    "CREATE TABLE {table} (materialization text NOT NULL, key_begin int8 NOT NULL, "
    "key_end int8 NOT NULL, fence int8 NOT NULL, checkpoint text NOT NULL, "
    "PRIMARY KEY (materialization, key_begin, key_end))"
)
_SELECT_FENCES: Final = sql.SQL(
    "SELECT key_begin, key_end, fence, checkpoint FROM {table} WHERE materialization = %s "
    "FOR UPDATE"
)
_PUT_FENCE: Final = sql.SQL(
    "INSERT INTO {table} (materialization, key_begin, key_end, fence, checkpoint) "
    "VALUES (%s, %s, %s, %s, %s) ON CONFLICT (materialization, key_begin, key_end) "
    "DO UPDATE SET fence = excluded.fence, checkpoint = excluded.checkpoint"
)
_DELETE_FENCE: Final = sql.SQL(
    "DELETE FROM {table} WHERE materialization = %s AND key_begin = %s AND key_end = %s"
)
_IS_OURS: Final = sql.SQL(
    "SELECT 1 FROM {table} WHERE materialization = %s AND key_begin = %s AND key_end = %s "
    "AND fence = %s FOR UPDATE"
)
_MOVE_CHECKPOINT: Final = sql.SQL(
    "UPDATE {table} SET checkpoint = %s "
    "WHERE materialization = %s AND key_begin = %s AND key_end = %s AND fence = %s"
)
_STAGE: Final = sql.SQL(
    "CREATE TEMP TABLE IF NOT EXISTS {} ON COMMIT DROP AS "
    "SELECT {}, false AS {}, false AS {} FROM {} WITH NO DATA"
)
_DELETE_ROWS: Final = sql.SQL("DELETE FROM {t} AS t USING {s} AS s WHERE {same} AND s.{gone}")
_INSERT_ROWS: Final = sql.SQL(
    "INSERT INTO {t} AS t ({names}) SELECT {names} FROM {s} WHERE NOT {exists} AND NOT {gone}"
)
_PUT_ROWS: Final = sql.SQL(
    "INSERT INTO {t} AS t ({names}) SELECT {names} FROM {s} WHERE {exists} AND NOT {gone} "
    "ON CONFLICT ({keys}) DO UPDATE SET {put}"
)
_REVIVE_ROWS: Final = sql.SQL(
    "INSERT INTO {t} AS t ({names}) SELECT {names} FROM {s} WHERE NOT {exists} AND NOT {gone} "
    "ON CONFLICT ({keys}) DO UPDATE SET {put}"
)
_TAKEN: Final = sql.SQL(
    "SELECT {keys} FROM {s} AS s WHERE NOT {exists} AND NOT {gone} AND EXISTS "
    "(SELECT 1 FROM {t} AS t WHERE {same} AND t.{op} <> 'd') LIMIT 1"
)


def _keys(columns: Sequence[Column]) -> list[Column]:
    return [column for column in columns if column.key]


def _names(columns: Sequence[Column]) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(column.name) for column in columns)


def _selected(column: Column) -> sql.Composed:
    # As text: psycopg would make objects of it, and of long numbers in JSON short ones.
    cast = sql.SQL("::text" if column.kind in _AS_TEXT else "")
    return sql.SQL("{}{}").format(sql.Identifier("t", column.name), cast)


def _same(keys: Sequence[Column]) -> sql.Composed:
    return sql.SQL(" AND ").join(
        sql.SQL("{} = {}").format(sql.Identifier("t", key.name), sql.Identifier("s", key.name))
        for key in keys
    )


def _put(columns: Sequence[Column]) -> sql.Composed:
    # A table of nothing but a key still has to say what is done with a row that is there.
    put = [column for column in columns if not column.key] or columns[:1]
    return sql.SQL(", ").join(
        sql.SQL("{} = excluded.{}").format(sql.Identifier(c.name), sql.Identifier(c.name))
        for c in put
    )


def _table(binding: BindingSpec) -> sql.Identifier:
    return sql.Identifier(*binding.resource_path)


def _values(column: Column, native: str, values: pa.ChunkedArray) -> list[Any]:
    """Return values as psycopg writes them; what came over a wire is texts."""
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        if column.kind in _PARSED:
            values = typed(values, _PARSED[column.kind])
        elif column.kind in (Kind.DECIMAL, Kind.WHOLE):
            numbers = values.to_pylist()
            return [None if v is None else fitting(column, native, Decimal(v)) for v in numbers]
    if column.kind is Kind.JSON:
        texts: list[Any] = packable(joined(values)).cast(pa.string()).to_pylist()
        if native not in ("json", "jsonb"):
            return texts
        return [None if text is None else Json(text, dumps=str) for text in texts]
    listed: list[Any] = values.to_pylist()
    if native == "uuid":
        return [None if value is None else UUID(value) for value in listed]
    return listed

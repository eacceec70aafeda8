"""MySQL and MariaDB as a driver of the protocol: rows, fence and checkpoint in one transaction.

What all SQL drivers share is in ``sql``; types and values are in ``mysql_types``. Rows go in
statements of many: straight into the table where all of them are new, and else into a temporary
one from which one statement each deletes, updates and inserts. An existing row is updated by its
primary key alone (``ON DUPLICATE KEY`` would take any unique index of the table for it), and what
somebody keeps in other columns stays.

A transaction begins by locking our row of the fences, so whoever opens the range waits for the
commit and sees its checkpoint. A session that is frozen in the middle would make it wait for ever:
the server ends it after a minute (``mysql_session``), and with it what it holds.

The checkpoints are in the database that the configuration names, or else beside the first binding's
table. Tables must be InnoDB's: others have no transactions. Definitions are not transactional here;
each is made only if it is missing, so that what was interrupted is made the next time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pymysql
from pymysql.constants import ER

from headwater.base.errors import Determinate, Indeterminate, InvalidUsage
from headwater.materialize.checkpoint import to_text
from headwater.materialize.drivers.columns import Column, Existing, Kind
from headwater.materialize.drivers.fences import Installed
from headwater.materialize.drivers.mysql_session import LOCK_S, MySqlSession
from headwater.materialize.drivers.mysql_types import (
    arrow_type,
    check_numbers,
    from_answers,
    holds,
    literal,
    native,
    quoted,
    row_texts,
)
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
from headwater.materialize.joined import joined
from headwater.materialize.key_range import KeyRange
from headwater.materialize.projections import OP
from headwater.materialize.protocol.messages import Applied, Apply, Open, StoreMany
from headwater.materialize.protocol.specs import BindingSpec, Checkpoint, MaterializationSpec
from headwater.materialize.tuples import Element

_EXISTS: Final = "_headwater_exists"
_DELETE: Final = "_headwater_delete"


class MySqlDriver(SqlDriver):
    """A driver for one server."""

    documentation_url: ClassVar[str] = "https://dev.mysql.com/doc"
    config_schema: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "required": ["host", "user"],
        "properties": {
            "host": {"type": "string", "title": "Host"},
            "port": {"type": ["string", "integer"], "title": "Port", "default": "3306"},
            "user": {"type": "string", "title": "User"},
            "password": {"type": "string", "title": "Password", "secret": True},
            "database": {"type": "string", "title": "Database of the checkpoints, and of a table"},
            "ssl mode": {"type": "string", "title": "SSL mode", "default": "preferred"},
            "hardDelete": HARD_DELETE_SCHEMA,
        },
    }
    resource_schema: ClassVar[Mapping[str, Any]] = table_config("database")

    def __init__(self) -> None:
        super().__init__()
        self._session: MySqlSession | None = None
        self._database = ""
        """That of the configuration; where it has none, that of the first binding from Apply on."""
        self._in_transaction = False
        self._natives: dict[int, tuple[str, ...]] = {}
        """The types of a binding's columns as they are in the table, once they are known."""

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back by it."""
        if self._session is not None:
            self._session.close()

    @property
    def _db(self) -> MySqlSession:
        assert self._session is not None
        return self._session

    def _connect(self, config: Mapping[str, Any]) -> None:
        if self._session is not None:
            return
        self._database = config.get("database") or ""
        with self._failing("cannot connect to"):
            self._session = MySqlSession(config)

    @contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        """Tell what the server refused; a transaction in hand is rolled back when we are closed."""
        try:
            yield
        except (pymysql.Error, OSError, OverflowError, pa.ArrowException) as error:
            raise Determinate(f"{what} MySQL: {_said(error)}") from error

    @contextmanager
    def _transaction(self, what: str) -> Iterator[None]:
        with self._failing(what):
            self._db.awake()
            self._db.run("START TRANSACTION")
            try:
                yield
            except BaseException:
                self.close()
                raise
            self._db.run("COMMIT")

    # ---- tables ------------------------------------------------------------------------------

    def _resource_path(self, resource: Mapping[str, Any]) -> tuple[str, ...]:
        database = resource.get("database") or self._database
        if not database:
            raise InvalidUsage(
                f"the target {resource['table']!r} names no database: write "
                f'"database.{resource["table"]}"'
            )
        return database, resource["table"]

    def _existing(self, path: Sequence[str]) -> Mapping[str, Existing]:
        where = f"table_schema = {literal(path[0])} AND table_name = {literal(path[1])}"
        with self._failing("cannot read the tables of"):
            if not self._in_transaction:
                self._db.awake()
            engine = self._db.run(_ENGINE + where)
            found = self._db.run(_COLUMNS + where + " ORDER BY ordinal_position")
        if engine and engine[0][0] not in (None, "InnoDB"):
            raise InvalidUsage(
                f"the table {'.'.join(path)!r} is of the engine {engine[0][0]}, which has no "
                "transactions; ALTER TABLE … ENGINE = InnoDB, or choose another table"
            )
        return {
            name: Existing(_found(kind, collation if key else None), bool(key), bool(needed))
            for name, kind, collation, key, needed in found
        }

    def _holds_data(self, path: Sequence[str]) -> bool:
        with self._failing("cannot read from"):
            return bool(self._db.run(f"SELECT 1 FROM {quoted(*path)} LIMIT 1"))  # noqa: S608

    def _holds(self, native: str, kind: Kind) -> bool:
        return holds(native, kind)

    def _applied(self, request: Apply) -> Applied:
        self._connect(msgspec.json.decode(_spec(request).config_json))
        self._settle(_spec(request))
        return super()._applied(request)

    def _opened(self, request: Open) -> Checkpoint:
        self._connect(msgspec.json.decode(_spec(request).config_json))
        self._settle(_spec(request))
        return super()._opened(request)

    def _settle(self, spec: MaterializationSpec) -> None:
        """Decide where the checkpoints are."""
        self._database = self._database or spec.bindings[0].resource_path[0]
        with self._failing("cannot use a database of"):
            self._db.use(self._database)

    @property
    def _checkpoints(self) -> str:
        return quoted(self._database, CHECKPOINTS)

    def _checkpoints_missing(self) -> Iterator[str]:
        if not self._existing((self._database, CHECKPOINTS)):
            yield _CREATE_CHECKPOINTS.format(table=self._checkpoints, collation=self._db.collation)
        if not self._existing((self._database, STATUS)):
            selected = SELECT_STATUS.format(checkpoints=self._checkpoints)
            yield f"CREATE VIEW {quoted(self._database, STATUS)} AS {selected}"

    def _create_table(self, binding: BindingSpec, columns: Sequence[Column]) -> str:
        parts = [
            f"{quoted(column.name)} {native(column, columns, self._db.collation, self._db.uuid)}"
            f"{' NOT NULL' if column.key else ' NULL'}"
            for column in columns
        ]
        if not binding.delta_updates:
            parts.append(f"PRIMARY KEY ({_names(_keys(columns))})")
        return f"CREATE TABLE {_table(binding)} ({', '.join(parts)}) ENGINE = InnoDB"

    def _add_column(self, path: Sequence[str], column: Column) -> str:
        kind = native(column, (column,), self._db.collation, self._db.uuid)
        return f"ALTER TABLE {quoted(*path)} ADD COLUMN {quoted(column.name)} {kind} NULL"

    def _empty_table(self, path: Sequence[str]) -> str:
        return f"DELETE FROM {quoted(*path)}"  # noqa: S608 - the name is quoted

    def _raise_fences(self, name: str) -> str:
        where = f"materialization = {literal(name)}"
        return f"UPDATE {self._checkpoints} SET fence = fence + 1 WHERE {where}"  # noqa: S608

    def _execute_all(self, statements: Sequence[str]) -> None:
        with self._transaction("cannot prepare"):
            for statement in statements:
                self._db.run(statement)

    # ---- fences ------------------------------------------------------------------------------

    def _install(self, name: str, opened: KeyRange) -> Installed:
        # Others who open come after us, also if there is no row yet that could be locked. Names of
        # such locks are short.
        alone = literal(f"headwater {hashlib.sha256(name.encode()).hexdigest()[:32]}")
        with self._transaction("cannot open the key range in"):
            ((locked,),) = self._db.run(f"SELECT GET_LOCK({alone}, {LOCK_S})")
            if not locked:
                raise Determinate(f"cannot open the key range in MySQL: {name!r} is being opened")
            rows = self._db.run(
                f"SELECT key_begin, key_end, fence, checkpoint FROM {self._checkpoints} "  # noqa: S608
                f"WHERE materialization = {literal(name)} FOR UPDATE"
            )
            decided = decide_fence([tuple(row) for row in rows], opened)
            for gone in decided.removed:
                self._db.run(
                    f"DELETE FROM {self._checkpoints} WHERE materialization = {literal(name)} "  # noqa: S608
                    f"AND key_begin = {gone.begin} AND key_end = {gone.end}"
                )
            for row in (*decided.raised, decided.row):
                begin, end, text = row.key_range.begin, row.key_range.end, literal(row.checkpoint)
                self._db.run(
                    f"INSERT INTO {self._checkpoints} "  # noqa: S608
                    f"VALUES ({literal(name)}, {begin}, {end}, {row.fence}, {text}) "
                    f"ON DUPLICATE KEY UPDATE fence = {row.fence}, checkpoint = {text}"
                )
        with self._failing("cannot open the key range in"):
            self._db.run(f"SELECT RELEASE_LOCK({alone})")
        return decided

    def _is_ours(self) -> str:
        name, begin, end, fence = self._ours()
        return (
            f"materialization = {literal(name)} AND key_begin = {begin} AND key_end = {end} "
            f"AND fence = {fence}"
        )

    def _begin(self) -> None:
        """Begin the transaction, unless it is begun; a zombie learns here that it is one."""
        if self._in_transaction:
            return
        self._db.awake()
        self._db.run("START TRANSACTION")
        ours = f"SELECT 1 FROM {self._checkpoints} WHERE {self._is_ours()} FOR UPDATE"  # noqa: S608
        if not self._db.run(ours):
            self._db.run("ROLLBACK")
            raise self._fenced()
        self._in_transaction = True

    def _commit(self, checkpoint: Checkpoint) -> None:
        moved = f"SET checkpoint = {literal(to_text(checkpoint))} WHERE {self._is_ours()}"
        with self._failing("cannot commit to"):
            self._begin()
            if self._db.changed(f"UPDATE {self._checkpoints} {moved}") != 1:
                self._db.run("ROLLBACK")
                raise self._fenced()
        try:
            self._db.run("COMMIT")
        except (pymysql.Error, OSError) as error:
            # Whether it happened, the next session reads from the checkpoint.
            raise Indeterminate(f"commit to MySQL: {_said(error)}") from error
        self._in_transaction = False

    # ---- rows --------------------------------------------------------------------------------

    def _types(self, index: int) -> tuple[pa.DataType, ...]:
        columns = self._columns[index]
        if index not in self._natives:
            existing = self._existing(self._materialization.bindings[index].resource_path)
            self._natives[index] = tuple(existing[column.name].native for column in columns)
        return tuple(map(arrow_type, columns, self._natives[index]))

    def _texts(self, request: StoreMany, *flags: pa.BooleanArray) -> pa.ChunkedArray:
        columns, kinds = self._columns[request.binding], self._types(request.binding)
        rows = typed_rows(request.rows, [column.name for column in columns], kinds)
        for name, found in zip(rows.column_names, self._natives[request.binding], strict=True):
            if found == "json":
                check_numbers(name, rows.column(name))
        return row_texts(rows, flags)

    def _temporary(self, name: str, columns: Sequence[Column], of: str, more: str = "") -> str:
        """Make a temporary table, empty, with columns like those of a table."""
        made = quoted(self._database, name)
        self._db.run(f"DROP TEMPORARY TABLE IF EXISTS {made}")
        like = f"SELECT {_names(columns)}{more} FROM {of} LIMIT 0"  # noqa: S608
        self._db.run(f"CREATE TEMPORARY TABLE {made} AS {like}")
        return made

    def _select(
        self, binding: BindingSpec, columns: Sequence[Column], keys: Sequence[tuple[Element, ...]]
    ) -> pa.Table:
        index = self._materialization.bindings.index(binding)
        asked = _keys(columns)
        selected = ", ".join(f"t.{quoted(column.name)}" for column in columns)
        with self._failing("cannot load from"):
            self._db.awake()
            kinds = self._types(index)
            by_key = [kind for kind, column in zip(kinds, columns, strict=True) if column.key]
            rows = typed_keys(keys, [column.name for column in asked], by_key)
            wanted = self._temporary("headwater_load", asked, _table(binding))
            self._db.insert(wanted, _names(asked), row_texts(rows))
            answers = self._db.run(
                f"SELECT {selected} FROM {wanted} AS s STRAIGHT_JOIN {_table(binding)} AS t "  # noqa: S608
                f"ON {_same(asked)}"
            )
            return from_answers(columns, kinds, answers)

    def _store(self, request: StoreMany) -> None:
        binding = self._materialization.bindings[request.binding]
        columns = self._columns[request.binding]
        gone = pc.and_(request.delete, self._hard_delete)
        with self._failing("cannot write to"):
            self._begin()
            new = not pc.any(request.exists).as_py() and not pc.any(gone).as_py()
            try:
                if binding.delta_updates or (new and self._hard_delete):
                    self._db.insert(_table(binding), _names(columns), self._texts(request))
                else:
                    self._merge(request, binding, gone)
            except pymysql.IntegrityError as error:
                if error.args[0] == ER.DUP_ENTRY and "PRIMARY'" in str(error.args[1]):
                    raise KeyTaken(binding.resource_path, str(error.args[1])) from error
                raise

    def _merge(self, request: StoreMany, binding: BindingSpec, gone: pa.BooleanArray) -> None:
        """Stage rows, and write them with a statement for each thing that can become of one."""
        columns = self._columns[request.binding]
        keys, names = _keys(columns), _names(columns)
        marks = f"{quoted(_EXISTS)}, {quoted(_DELETE)}"
        more = f", 0 AS {quoted(_EXISTS)}, 0 AS {quoted(_DELETE)}"
        stage = self._temporary("headwater_stage", columns, _table(binding), more)
        texts = self._texts(request, joined(request.exists), joined(gone))
        self._db.insert(stage, f"{names}, {marks}", texts)
        both = f"{stage} AS s STRAIGHT_JOIN {_table(binding)} AS t ON {_same(keys)}"
        live = pc.invert(gone)
        if pc.any(gone).as_py():
            self._db.run(f"DELETE t FROM {both} WHERE s.{quoted(_DELETE)}")
        there = f"s.{quoted(_EXISTS)} AND NOT s.{quoted(_DELETE)}"
        known = pc.sum(pc.and_(live, request.exists)).as_py() or 0
        if known:
            self._put(binding, columns, stage, there, known)
        fresh = f"NOT s.{quoted(_EXISTS)} AND NOT s.{quoted(_DELETE)}"
        count = pc.sum(pc.and_(live, pc.invert(request.exists))).as_py() or 0
        if count and self._hard_delete:
            chosen = f"SELECT {names} FROM {stage} AS s WHERE {fresh}"  # noqa: S608
            self._db.run(f"INSERT INTO {_table(binding)} ({names}) {chosen}")
        elif count:
            shown = ", ".join(f"s.{quoted(key.name)}" for key in keys)
            alive = f"{fresh} AND NOT (t.{quoted(OP)} <=> 'd')"
            taken = self._db.run(f"SELECT {shown} FROM {both} WHERE {alive} LIMIT 1")  # noqa: S608
            if taken:
                raise KeyTaken(binding.resource_path, taken[0])
            # The row of a key that was deleted softly is still there, and is written over.
            self._put(binding, columns, stage, fresh, count)

    def _put(
        self, binding: BindingSpec, columns: Sequence[Column], stage: str, which: str, count: int
    ) -> None:
        """Put staged rows in the place of those that are there, and the others anew."""
        table, keys = _table(binding), _keys(columns)
        put = ", ".join(
            f"t.{quoted(column.name)} = s.{quoted(column.name)}"
            for column in columns
            if not column.key
        )
        both = f"{stage} AS s STRAIGHT_JOIN {table} AS t ON {_same(keys)}"
        if put and self._db.changed(f"UPDATE {both} SET {put} WHERE {which}") == count:  # noqa: S608
            return
        selected = ", ".join(f"s.{quoted(column.name)}" for column in columns)
        self._db.run(
            f"INSERT INTO {table} ({_names(columns)}) SELECT {selected} FROM {stage} AS s "  # noqa: S608
            f"LEFT JOIN {table} AS t ON {_same(keys)} "
            f"WHERE {which} AND t.{quoted(keys[0].name)} IS NULL"
        )


_ENGINE: Final = "SELECT engine FROM information_schema.tables WHERE "
_COLUMNS: Final = (
    "SELECT column_name, column_type, collation_name, column_key = 'PRI', "
    "is_nullable = 'NO' AND column_default IS NULL AND column_key <> 'PRI' AND extra = '' "
    "FROM information_schema.columns WHERE "
)
_CREATE_CHECKPOINTS: Final = (
    "CREATE TABLE {table} ("
    "materialization varchar(255) CHARACTER SET utf8mb4 COLLATE {collation} NOT NULL, "
    "key_begin bigint NOT NULL, key_end bigint NOT NULL, fence bigint NOT NULL, "
    "checkpoint longtext CHARACTER SET utf8mb4 COLLATE {collation} NOT NULL, "
    "PRIMARY KEY (materialization, key_begin, key_end)) ENGINE = InnoDB"
)


def _said(error: Exception) -> str:
    return str(error.args[-1] if error.args else error).strip()


def _spec(request: Apply | Open) -> MaterializationSpec:
    assert request.materialization is not None
    return request.materialization


def _found(kind: str, collation: str | None) -> str:
    """Return the type of a column; that of a key with what its texts are compared by."""
    return kind.lower() if collation is None else f"{kind.lower()} collate {collation}"


def _table(binding: BindingSpec) -> str:
    return quoted(*binding.resource_path)


def _keys(columns: Sequence[Column]) -> list[Column]:
    return [column for column in columns if column.key]


def _names(columns: Sequence[Column]) -> str:
    return ", ".join(quoted(column.name) for column in columns)


def _same(keys: Sequence[Column]) -> str:
    return " AND ".join(f"t.{quoted(key.name)} = s.{quoted(key.name)}" for key in keys)

"""SQLite as a driver of the protocol: the endpoint is authoritative, with a fence per key range.

Table ``flow_checkpoints_v1`` (Flow's name and columns) lies beside the delivered tables. A
transaction is one ``BEGIN IMMEDIATE`` from the first Store, or from StartCommit, to the commit:
nothing is open while keys are loaded. Its last statement asserts the fence and moves the
checkpoint; if another session has opened the range meanwhile, that changes no row, and everything
is rolled back.

Acknowledged is said as soon as the commit is complete, which here is before StartedCommit is
answered. Delivery is exactly once: rows and checkpoint are in one transaction of one file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headwater.base.errors import Determinate, HeadwaterError, InvalidUsage
from headwater.materialize.checkpoint import from_text, to_text
from headwater.materialize.drivers.fences import FenceRow, install
from headwater.materialize.key_range import KeyHash, KeyRange
from headwater.materialize.protocol.messages import (
    PROTOCOL,
    Acknowledge,
    Acknowledged,
    Applied,
    Apply,
    Flush,
    Flushed,
    Load,
    LoadMany,
    Open,
    Opened,
    Request,
    Response,
    Spec,
    Specified,
    StartCommit,
    StartedCommit,
    Store,
    StoreMany,
    Validate,
    Validated,
    ValidatedBinding,
)
from headwater.materialize.protocol.specs import (
    EXPLICIT_ZERO,
    BindingSpec,
    Checkpoint,
    Constraint,
    ConstraintType,
    Inference,
    MaterializationSpec,
    Projection,
)

_CHECKPOINTS: Final = "flow_checkpoints_v1"
_CONFIG_SCHEMA: Final = {
    "type": "object",
    "required": ["path"],
    "properties": {"path": {"type": "string", "title": "Path of the database file"}},
}
_RESOURCE_SCHEMA: Final = {
    "type": "object",
    "required": ["table"],
    "properties": {"table": {"type": "string", "title": "Table", "x-collection-name": True}},
}


class Fenced(HeadwaterError):
    """Another session has opened our key range, or a part of it; nothing was written."""

    def __init__(self, materialization: str, row: FenceRow) -> None:
        super().__init__(
            f"materialization {materialization!r}: the key range {row.key_range} was opened by "
            f"another session; our fence {row.fence} is no longer valid, and nothing was written"
        )


class NotServed(InvalidUsage):
    """A request that this driver does not serve."""

    def __init__(self, request: Request) -> None:
        kind = type(request).__name__
        super().__init__(f"the SQLite driver delivers columns; it serves no {kind}")


class SqliteConnector:
    """A driver for one SQLite file."""

    def __init__(self) -> None:
        self._db: sqlite3.Connection | None = None
        self._materialization = MaterializationSpec()
        self._row: FenceRow | None = None
        self._in_transaction = False

    def respond(self, request: Request) -> Iterator[Response]:
        """Act upon a request; yield the responses to it."""
        match request:
            case Spec():
                yield Specified(
                    PROTOCOL,
                    msgspec.json.encode(_CONFIG_SCHEMA),
                    msgspec.json.encode(_RESOURCE_SCHEMA),
                    "https://www.sqlite.org",
                )
            case Validate():
                yield self._validated(request)
            case Apply():
                yield self._applied(request)
            case Open():
                yield Opened(self._opened(request))
                # Whatever was committed is in the file, and there is nothing else to apply.
                yield Acknowledged()
            case Acknowledge():
                return
            case Flush():
                yield Flushed()
            case StoreMany():
                self._store(request)
            case StartCommit():
                self._commit(request.runtime_checkpoint or Checkpoint())
                yield StartedCommit()
                yield Acknowledged()
            case Load() | LoadMany() | Store():
                raise NotServed(request)

    def close(self) -> None:
        """Close the file; an open transaction is rolled back by it."""
        if self._db is not None:
            self._db.close()
            self._db = None

    def _connect(self, config_json: bytes) -> sqlite3.Connection:
        if self._db is None:
            path = Path(msgspec.json.decode(config_json)["path"])
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                # Autocommit: every transaction is one that we begin.
                self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
                self._db.execute("PRAGMA busy_timeout = 10000")
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = FULL")
            except (OSError, sqlite3.Error) as error:
                raise Determinate(f"cannot open SQLite endpoint {path}: {error}") from error
        return self._db

    def _validated(self, request: Validate) -> Validated:
        db = self._connect(request.config_json)
        bindings = []
        for binding in request.bindings:
            table = msgspec.json.decode(binding.resource_config_json)["table"]
            projections = binding.collection.projections if binding.collection else ()
            bindings.append(
                ValidatedBinding(
                    constraints=tuple((p.field, _constraint(p)) for p in projections),
                    resource_path=(table,),
                    case_insensitive_fields=True,
                    holds_data=_holds_data(db, table),
                )
            )
        return Validated(tuple(bindings))

    def _applied(self, request: Apply) -> Applied:
        assert request.materialization is not None
        db = self._connect(request.materialization.config_json)
        present = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
        statements = [
            text
            for name, text in (
                (_CHECKPOINTS, _CREATE_CHECKPOINTS),
                *(
                    (b.resource_path[-1], _create_table(b))
                    for b in request.materialization.bindings
                ),
            )
            if name not in present
        ]
        if not request.dry_run:
            db.execute("BEGIN IMMEDIATE")
            for statement in statements:
                db.execute(statement)
            db.execute("COMMIT")
        return Applied(";\n".join(statements))

    def _opened(self, request: Open) -> Checkpoint:
        assert request.materialization is not None
        assert request.range is not None
        self._materialization = request.materialization
        db = self._connect(request.materialization.config_json)
        opened = KeyRange(KeyHash(request.range.key_begin), KeyHash(request.range.key_end))
        name = request.materialization.name
        db.execute("BEGIN IMMEDIATE")
        try:
            rows = [
                FenceRow(KeyRange(KeyHash(begin), KeyHash(end)), fence, checkpoint)
                for begin, end, fence, checkpoint in db.execute(_SELECT_FENCES, (name,))
            ]
            decided = install(rows, opened, to_text(EXPLICIT_ZERO))
            for gone in decided.removed:
                db.execute(_DELETE_FENCE, (name, gone.begin, gone.end))
            for row in (*decided.raised, decided.row):
                where = (name, row.key_range.begin, row.key_range.end)
                db.execute(_PUT_FENCE, (*where, row.fence, row.checkpoint))
            db.execute("COMMIT")
        except BaseException:
            db.execute("ROLLBACK")
            raise
        self._row = decided.row
        return from_text(decided.row.checkpoint)

    def _begin(self) -> sqlite3.Connection:
        assert self._db is not None
        if not self._in_transaction:
            self._db.execute("BEGIN IMMEDIATE")
            self._in_transaction = True
        return self._db

    def _store(self, request: StoreMany) -> None:
        db = self._begin()
        binding = self._materialization.bindings[request.binding]
        gone = request.rows.filter(request.delete)
        there = request.rows.filter(pc.invert(request.delete))
        assert binding.field_selection is not None
        keys = binding.field_selection.keys
        table = _quoted(binding.resource_path[-1])
        if gone.num_rows:
            where = " AND ".join(f"{_quoted(column)} = ?" for column in keys)
            db.executemany(
                f"DELETE FROM {table} WHERE {where}",  # noqa: S608 - names are quoted
                _rows(gone.select(list(keys))),
            )
        if there.num_rows:
            names = ", ".join(map(_quoted, there.column_names))
            marks = ", ".join("?" for _ in there.column_names)
            db.executemany(
                f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({marks})",  # noqa: S608
                _rows(there),
            )

    def _commit(self, checkpoint: Checkpoint) -> None:
        assert self._row is not None
        db = self._begin()
        name, row = self._materialization.name, self._row
        mine = (name, row.key_range.begin, row.key_range.end, row.fence)
        moved = db.execute(_MOVE_CHECKPOINT, (to_text(checkpoint), *mine))
        if moved.rowcount != 1:
            db.execute("ROLLBACK")
            self._in_transaction = False
            raise Fenced(name, row)
        db.execute("COMMIT")
        self._in_transaction = False


_CREATE_CHECKPOINTS: Final = (
    f"CREATE TABLE {_CHECKPOINTS} (materialization TEXT NOT NULL, key_begin INTEGER NOT NULL, "
    "key_end INTEGER NOT NULL, fence INTEGER NOT NULL, checkpoint TEXT NOT NULL, "
    "PRIMARY KEY (materialization, key_begin, key_end))"
)
_SELECT_FENCES: Final = (
    f"SELECT key_begin, key_end, fence, checkpoint FROM {_CHECKPOINTS} "  # noqa: S608
    "WHERE materialization = ?"
)
_PUT_FENCE: Final = f"INSERT OR REPLACE INTO {_CHECKPOINTS} VALUES (?, ?, ?, ?, ?)"  # noqa: S608
_DELETE_FENCE: Final = (
    f"DELETE FROM {_CHECKPOINTS} "  # noqa: S608
    "WHERE materialization = ? AND key_begin = ? AND key_end = ?"
)
_MOVE_CHECKPOINT: Final = (
    f"UPDATE {_CHECKPOINTS} SET checkpoint = ? "  # noqa: S608
    "WHERE materialization = ? AND key_begin = ? AND key_end = ? AND fence = ?"
)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _constraint(projection: Projection) -> Constraint:
    types = {*(projection.inference.types if projection.inference else ())} - {"null"}
    if types <= {"array", "object"}:
        return Constraint(
            ConstraintType.FIELD_FORBIDDEN, "SQLite has no type for arrays, objects or only NULL"
        )
    if projection.is_primary_key:
        return Constraint(ConstraintType.LOCATION_REQUIRED, "is part of the key")
    return Constraint(ConstraintType.FIELD_OPTIONAL, "can be stored")


def _holds_data(db: sqlite3.Connection, table: str) -> bool:
    there = db.execute(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)
    ).fetchone()
    if there is None:
        return False
    held = f"SELECT 1 FROM {_quoted(table)} LIMIT 1"  # noqa: S608 - the name is quoted
    return db.execute(held).fetchone() is not None


def _create_table(binding: BindingSpec) -> str:
    assert binding.collection is not None
    assert binding.field_selection is not None
    by_name = {p.field: p for p in binding.collection.projections}
    selected = (*binding.field_selection.keys, *binding.field_selection.values)
    columns = ", ".join(f"{_quoted(n)} {_affinity(by_name[n].inference)}" for n in selected)
    key = ", ".join(map(_quoted, binding.field_selection.keys))
    return f"CREATE TABLE {_quoted(binding.resource_path[-1])} ({columns}, PRIMARY KEY ({key}))"


def _affinity(inference: Inference | None) -> str:
    types = {*(inference.types if inference else ())} - {"null"}
    if types <= {"integer", "boolean"}:
        return "INTEGER"
    if types <= {"integer", "number", "boolean"}:
        return "REAL"
    encoded = inference is not None and inference.string and inference.string.content_encoding
    return "BLOB" if encoded else "TEXT"


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = [[_value(value) for value in column.to_pylist()] for column in table.columns]
    return list(zip(*columns, strict=True))


def _value(value: Any) -> Any:
    # Decimals, dates and times as text: SQLite has no exact type for them.
    return value if value is None or isinstance(value, int | float | str | bytes) else str(value)

"""The coordinator: every statement, in the order of the timeline.

A :class:`Coordinator` is the wire's backend. It turns statements into commands of the layers below:

- ``CREATE TABLE`` binds a name to a new collection on the default timeline;
- ``INSERT`` and ``DELETE`` are one log entry each: the updates at ``t``, the seal of the table and
  the advance of the timeline to ``t + 1``; acknowledged when durable;
- ``CREATE MATERIALIZED VIEW`` installs a maintained view; ``CREATE MATERIALIZATION`` a delivery;
- ``SELECT`` reads at the timeline's time, or at the time of its ``AS OF``; it waits until every
  collection it reads is complete there, so tables and views are seen at one time.

Errors of the layers below that are the user's doing become errors with an SQLSTATE here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headwater.adapter import catalog
from headwater.adapter.errors import (
    CannotBeMaintained,
    InvalidDefinition,
    QueryRejected,
    TimestampNotReadable,
    UniqueViolation,
    UnknownRelation,
    UnknownSetting,
    Unsupported,
)
from headwater.adapter.pgwire.backend import Column, Result
from headwater.adapter.sql.spark import to_spark
from headwater.adapter.sql.statements import (
    Begin,
    Commit,
    CreateMaterialization,
    CreateMaterializedView,
    CreateTable,
    Delete,
    Drop,
    Insert,
    Rollback,
    Select,
    SelectSession,
    SetVariable,
    Show,
    ShowTables,
    Statement,
)
from headwater.adapter.sql.values import as_batch
from headwater.adapter.timeline import DEFAULT, Timeline
from headwater.algebra.frontier import Frontier
from headwater.base.ids import GlobalId
from headwater.collection.collections import Collections
from headwater.compute.controller import ViewController
from headwater.compute.ir.refusal import NotUnderstood, Refused
from headwater.compute.select import QueryFailed
from headwater.materialize.controller import Materializations
from headwater.persist import evolution
from headwater.persist.client import Client, ReadHandle, WriteHandle
from headwater.persist.commands import Advance, Atomic, CreateOrLoad, Destroy, Outcome, Seal
from headwater.persist.decision import collection_of
from headwater.persist.errors import AsOfBeforeSince
from headwater.persist.evolution import DIFF, TIME

READ_TIMEOUT_SECONDS: Final = 300.0


class Coordinator:
    """Sequences statements for one location."""

    def __init__(
        self,
        client: Client,
        timeline: Timeline,
        views: ViewController,
        materializations: Materializations,
    ) -> None:
        self._client = client
        self._core = client.core
        self._collections = Collections(client)
        self._timeline = timeline
        self._views = views
        self._materializations = materializations

    def open_session(self) -> ClientSession:
        """Return a session for a new connection."""
        return ClientSession(self)

    def execute(self, statement: Statement, sql: str) -> Result:
        """Execute one statement; what it acknowledges is durable."""
        try:
            return self._execute(statement, sql)
        except (NotUnderstood, QueryFailed) as error:
            raise QueryRejected(str(error), error.condition, error.sqlstate) from error
        except Refused as error:
            raise CannotBeMaintained(
                f"{error.construct} cannot be kept in a view",
                detail=f"{error.reason}.",
                hint=error.hint or None,
            ) from error

    def _execute(self, statement: Statement, sql: str) -> Result:
        match statement:
            case CreateTable():
                return self._create_table(statement, sql)
            case Insert():
                return self._insert(statement)
            case Delete():
                return self._delete(statement)
            case CreateMaterializedView():
                return self._create_view(statement, sql)
            case CreateMaterialization():
                return self._create_materialization(statement, sql)
            case Select():
                return self._select(statement)
            case Drop():
                return self._drop(statement)
            case ShowTables():
                return self._show_tables()
            case Show() | SetVariable():
                raise UnknownSetting(statement.name)
            case Begin() | Commit() | Rollback() | SelectSession():
                raise AssertionError("answered by the session or the wire")

    # ---- definitions -------------------------------------------------------------------------

    def _create_table(self, statement: CreateTable, sql: str) -> Result:
        state = self._core.state
        if statement.if_not_exists and catalog.find(state, statement.name) is not None:
            return Result("CREATE TABLE")
        catalog.refuse_duplicate(state, statement.name)
        gid = self._collections.new_id()
        name = f"u{gid}"
        schema = evolution.to_bytes(statement.schema)
        named = catalog.Object(statement.name, "table", sql, name)

        def commit(time: int) -> Outcome:
            # The table begins at its creation, and the timeline moves past that: it is readable
            # (and empty) as soon as it is acknowledged.
            create = CreateOrLoad(name, schema, statement.key, timeline=DEFAULT, start=time, id=gid)
            advance = Advance(DEFAULT, time + 1)
            return self._core.submit(Atomic((create, catalog.put(named), advance))).result()

        self._timeline.write(commit)
        return Result("CREATE TABLE")

    def _create_view(self, statement: CreateMaterializedView, sql: str) -> Result:
        state = self._core.state
        if statement.if_not_exists and catalog.find(state, statement.name) is not None:
            return Result("CREATE MATERIALIZED VIEW")
        catalog.refuse_duplicate(state, statement.name)
        relations = self._relations(statement.tables)
        name = f"u{self._collections.new_id()}"
        named = catalog.Object(statement.name, "materialized view", sql, name, statement.tables)
        self._views.create_view(
            name, to_spark(statement.query_sql), relations=relations, also=(catalog.put(named),)
        )
        return Result("CREATE MATERIALIZED VIEW")

    def _create_materialization(self, statement: CreateMaterialization, sql: str) -> Result:
        state = self._core.state
        if statement.if_not_exists and catalog.find(state, statement.name) is not None:
            return Result("CREATE MATERIALIZATION")
        catalog.refuse_duplicate(state, statement.name)
        path = statement.options.get("PATH")
        if path is None:
            raise InvalidDefinition(
                "a SQLite endpoint needs a path", hint="Write INTO SQLITE (PATH '…')."
            )
        bindings = tuple(
            (b.view, catalog.relation(state, b.view)[1], b.target_table, b.key)
            for b in statement.bindings
        )
        uses = tuple(binding.view for binding in statement.bindings)
        named = catalog.Object(statement.name, "materialization", sql, uses=uses)
        self._materializations.create(
            statement.name, Path(path), bindings, also=(catalog.put(named),)
        )
        return Result("CREATE MATERIALIZATION")

    def _drop(self, statement: Drop) -> Result:
        state = self._core.state
        found = catalog.find(state, statement.name)
        tag = f"DROP {statement.kind.upper()}"
        if found is None and statement.if_exists:
            return Result(tag)
        if found is None or found.kind != statement.kind:
            raise UnknownRelation(
                statement.name, hint=f"There is no {statement.kind} of that name."
            )
        users = [o.name for o in catalog.objects(state) if statement.name in o.uses]
        if users:
            raise InvalidDefinition(
                f"cannot drop {statement.kind} {statement.name} because others depend on it",
                detail=f"Used by {', '.join(users)}.",
                hint="Drop those first.",
            )
        gone = catalog.remove(statement.name)
        match found.kind:
            case "table":
                self._core.submit(Atomic((Destroy(found.collection), gone))).result()
            case "materialized view":
                self._views.drop_view(found.collection, also=(gone,))
            case "materialization":
                self._materializations.drop(statement.name, also=(gone,))
        return Result(tag)

    def _show_tables(self) -> Result:
        state = self._core.state
        rows = [(o.name, o.kind) for o in catalog.objects(state)]
        table = pa.table(
            {
                "name": pa.array([name for name, _ in rows], pa.string()),
                "kind": pa.array([kind for _, kind in rows], pa.string()),
            }
        )
        return Result.of_table(table)

    # ---- writing -----------------------------------------------------------------------------

    def _table(self, name: str) -> tuple[GlobalId, pa.Schema, tuple[str, ...]]:
        found, gid = catalog.relation(self._core.state, name)
        if found.kind != "table":
            raise Unsupported(f'writing to {found.kind} "{name}"')
        collection = collection_of(self._core.state, gid)
        return gid, evolution.from_bytes(collection.schemas[-1]), collection.key

    def _insert(self, statement: Insert) -> Result:
        gid, schema, key = self._table(statement.table)
        rows = pa.Table.from_batches([as_batch(statement, schema)])

        def commit(time: int) -> Outcome:
            if key:
                self._check_unique(gid, statement.table, key, rows)
            return self._commit(gid, rows, [1] * rows.num_rows, time)

        self._timeline.write(commit)
        return Result(f"INSERT 0 {rows.num_rows}")

    def _delete(self, statement: Delete) -> Result:
        gid, _, _ = self._table(statement.table)
        deleted = 0

        def commit(time: int) -> Outcome:
            nonlocal deleted
            where = f" WHERE {statement.where_sql}" if statement.where_sql else ""
            query = f'SELECT * FROM "{statement.table}"{where}'  # noqa: S608 - parsed again below
            relations = self._relations((statement.table,))
            before = self._timeline.upper - 1
            rows = self._views.select(to_spark(query), before, relations=relations)
            deleted = rows.num_rows
            return self._commit(gid, rows, [-1] * deleted, time)

        self._timeline.write(commit)
        return Result(f"DELETE {deleted}")

    def _commit(self, gid: GlobalId, rows: pa.Table, diffs: list[int], time: int) -> Outcome:
        updates = rows.append_column(
            pa.field(TIME, pa.int64(), nullable=False), pa.array([time] * len(diffs), pa.int64())
        ).append_column(pa.field(DIFF, pa.int64(), nullable=False), pa.array(diffs, pa.int64()))
        return (
            self._client.atomic()
            .write(WriteHandle(self._core, gid), updates)
            .add(Seal((gid,), Frontier.of(time + 1)))
            .add(Advance(DEFAULT, time + 1))
            .commit()
            .result()
        )

    def _check_unique(
        self, gid: GlobalId, table: str, key: tuple[str, ...], rows: pa.Table
    ) -> None:
        """Refuse a key that is there already. Reads the table's keys: issue 4 gives it an index."""
        given = _keys(rows.select(list(key)))
        if len(set(given)) != len(given):
            raise UniqueViolation(table, key)
        before = self._timeline.upper - 1
        handle = ReadHandle(self._core, gid)
        if before < handle.since.only():
            return  # Created at this very time: nothing can be there.
        there = handle.snapshot(before).select(*key).to_table()
        there = there.filter(pc.greater(there.column(DIFF), 0)).drop_columns([DIFF])
        if not set(given).isdisjoint(_keys(there)):
            raise UniqueViolation(table, key)

    # ---- reading -----------------------------------------------------------------------------

    def _relations(self, tables: tuple[str, ...]) -> dict[str, str]:
        """Return the collections behind the names of a query."""
        state = self._core.state
        return {name: catalog.relation(state, name)[0].collection for name in tables}

    def _select(self, statement: Select) -> Result:
        relations = self._relations(statement.tables)
        as_of = self._timeline.read_time() if statement.as_of is None else statement.as_of
        for name in statement.tables:
            _, gid = catalog.relation(self._core.state, name)
            self._wait(name, gid, as_of)
        table = self._views.select(to_spark(statement.query_sql), as_of, relations=relations)
        columns = tuple(Column(field.name, field.type) for field in table.schema)
        return Result("SELECT", columns, table.to_batches())

    def _wait(self, name: str, gid: GlobalId, as_of: int) -> None:
        """Wait until a collection is complete at ``as_of``; refuse a time it no longer has."""
        try:
            ReadHandle(self._core, gid).snapshot(as_of, READ_TIMEOUT_SECONDS)
        except AsOfBeforeSince as error:
            since = 0 if error.since.is_closed else error.since.only()
            raise TimestampNotReadable(name, as_of, since) from error


def _keys(table: pa.Table) -> list[tuple[object, ...]]:
    if not table.num_rows:
        return []
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


class ClientSession:
    """One connection: transactions of one statement each, for now."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._in_transaction = False

    def execute(self, statement: Statement, sql: str) -> Result:
        """Execute a statement of this session."""
        match statement:
            case Begin():
                self._in_transaction = True
                return Result("BEGIN")
            case Commit():
                self._in_transaction = False
                return Result("COMMIT")
            case Rollback():
                self._in_transaction = False
                return Result("ROLLBACK")
            case _:
                if self._in_transaction and not isinstance(statement, Select | Show | ShowTables):
                    raise Unsupported(
                        "writing inside a transaction block",
                        hint="Run it on its own: every statement is a transaction.",
                    )
                return self._coordinator.execute(statement, sql)

    def close(self) -> None:
        """Nothing of a session outlives it."""

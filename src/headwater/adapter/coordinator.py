"""The coordinator: every statement, in the order of the timeline.

A :class:`Coordinator` is the wire's backend; it opens sessions (``adapter/session.py``), which keep
transactions. It owns what they share: who answers reads (``adapter/reads.py``), who commits writes
(``adapter/group_commit.py``), and definitions:

- ``CREATE TABLE`` binds a name to a new collection on the default timeline; with a primary key it
  is laid out in keyed runs, so that the key is enforced and looked up by probing;
- ``CREATE MATERIALIZED VIEW`` installs a maintained view; ``CREATE MATERIALIZATION`` a delivery;
- every definition and its catalog entry are one log entry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from headwater.adapter import catalog, writes
from headwater.adapter.catalog import Sources
from headwater.adapter.errors import (
    DependentObjects,
    InvalidDefinition,
    UnknownRelation,
    Unsupported,
    WrongKind,
)
from headwater.adapter.group_commit import GroupCommit
from headwater.adapter.holds import Holds, retained
from headwater.adapter.keyed_reads import KeyedReads
from headwater.adapter.pgwire.backend import Result
from headwater.adapter.ports import Evaluator
from headwater.adapter.reads import Reads
from headwater.adapter.session import ClientSession
from headwater.adapter.sql import dml
from headwater.adapter.sql.parse import parse
from headwater.adapter.sql.point import point_key
from headwater.adapter.sql.spark import to_spark
from headwater.adapter.sql.statements import (
    Computed,
    CreateMaterialization,
    CreateMaterializedView,
    CreateTable,
    Delete,
    Drop,
    Insert,
    ShowTables,
    Update,
    Value,
)
from headwater.adapter.timeline import DEFAULT, Timeline
from headwater.adapter.writes import Planned, Target
from headwater.collection.collections import Collections
from headwater.collection.run_layout import RunLayout
from headwater.materialize.controller import Materializations
from headwater.persist import evolution
from headwater.persist.client import Client
from headwater.persist.commands import Command, CreateOrLoad, Destroy
from headwater.persist.decision import collection_of
from headwater.persist.layout import PARQUET

Definition = CreateTable | CreateMaterializedView | CreateMaterialization | Drop | ShowTables


class Coordinator:
    """What the sessions of one location share."""

    def __init__(
        self,
        client: Client,
        timeline: Timeline,
        views: Evaluator,
        materializations: Materializations,
        translate: Callable[[str], str] = to_spark,
    ) -> None:
        self._core = client.core
        self._collections = Collections(client)
        self._views = views
        self._materializations = materializations
        self._translate = translate
        self.timeline = timeline
        self.holds = Holds()
        keyed = KeyedReads(client.core)
        self.reads = Reads(client, timeline, views, keyed, self.holds, translate)
        self.commits = GroupCommit(client, timeline, keyed)
        timeline.also = lambda state, upper: retained(state, upper, self.holds.least())

    def open_session(self) -> ClientSession:
        """Return a session for a new connection."""
        return ClientSession(self)

    def wake(self) -> None:
        """Let whoever waits look whether it was cancelled."""
        self._core.wake()
        self.commits.wake()

    # ---- writing -----------------------------------------------------------------------------

    def target(self, name: str) -> Target:
        """Return the table that a statement writes."""
        state = self._core.state
        found = catalog.named(state, name)
        if found.kind != "table":
            raise Unsupported(f'writing to {found.kind} "{name}"')
        gid = state.names[found.collection]
        collection = collection_of(state, gid)
        schema = evolution.from_bytes(collection.schemas[-1])
        return Target(gid, name, schema, collection.key, _defaults(found.sql))

    def read_by(self, statement: Insert | Update | Delete, target: Target) -> Sources | None:
        """Return what a statement reads before it writes; None: it writes blindly."""
        if isinstance(statement, Insert):
            conflict = statement.on_conflict
            own = (target.name,) if conflict is not None and conflict.assignments else ()
            query = () if statement.query is None else statement.query.tables
            blind = statement.query is None and not own
            return None if blind else self.reads.sources((*query, *own))
        return self.reads.sources((target.name, *statement.tables))

    def plan(
        self,
        statement: Insert | Update | Delete,
        target: Target,
        sources: Sources | None,
        time: int | None,
    ) -> Planned:
        """Return what a statement writes, given what it read at ``time``."""
        writes.check_returning(statement.returning, target)
        if isinstance(statement, Insert):
            return self._plan_insert(statement, target, sources, time)
        assert sources is not None
        assert time is not None
        computed = isinstance(statement, Update) and any(
            isinstance(each.value, Computed) for each in statement.assignments
        )
        key = point_key(statement.where_sql, target.name, target.schema, target.key)
        if key is not None and not computed:
            matched = self.reads.by_key(target.id, time, [key])
        else:
            assignments = statement.assignments if isinstance(statement, Update) else ()
            query = dml.matching(target.name, statement.where_sql, assignments)
            matched = self.reads.rows(query, sources, time)
        if isinstance(statement, Update):
            return writes.update(statement, target, matched)
        return writes.delete(statement, target, matched)

    def _plan_insert(
        self, statement: Insert, target: Target, sources: Sources | None, time: int | None
    ) -> Planned:
        selected = None
        if statement.query is not None:
            assert sources is not None
            assert time is not None
            selected = self.reads.rows(statement.query.query_sql, sources, time)
        rows = writes.given_rows(statement, target, selected)
        conflict = statement.on_conflict
        if conflict is None or not conflict.assignments:
            return writes.insert(statement, target, rows)
        writes.check_conflict_key(conflict, target)
        assert time is not None
        keys = list(zip(*(rows.column(name).to_pylist() for name in target.key), strict=True))
        existing = self.reads.by_key(target.id, time, keys)
        return writes.upsert(statement, target, rows, existing)

    # ---- definitions -------------------------------------------------------------------------

    def define(self, statement: Definition, sql: str) -> Result:
        """Execute a statement about definitions; what it acknowledges is durable."""
        match statement:
            case CreateTable():
                return self._create_table(statement, sql)
            case CreateMaterializedView():
                return self._create_view(statement, sql)
            case CreateMaterialization():
                return self._create_materialization(statement, sql)
            case Drop():
                return self._drop(statement)
            case ShowTables():
                return self._show_tables()

    def _create_table(self, statement: CreateTable, sql: str) -> Result:
        state = self._core.state
        if statement.if_not_exists and catalog.find(state, statement.name) is not None:
            return Result("CREATE TABLE")
        catalog.refuse_duplicate(state, statement.name)
        gid = self._collections.new_id()
        name = f"u{gid}"
        schema = evolution.to_bytes(statement.schema)
        layout = RunLayout.name if statement.key else PARQUET.name
        named = catalog.Object(statement.name, "table", sql, name, id=name)

        def commands(time: int) -> Sequence[Command]:
            catalog.refuse_duplicate(self._core.state, statement.name)
            # The table begins at its creation, and the timeline moves past that: it is readable
            # (and empty) as soon as it is acknowledged.
            create = CreateOrLoad(
                name, schema, statement.key, layout, timeline=DEFAULT, start=time, id=gid
            )
            return create, catalog.put(named)

        self.commits.alone(commands)
        return Result("CREATE TABLE")

    def _create_view(self, statement: CreateMaterializedView, sql: str) -> Result:
        state = self._core.state
        if statement.if_not_exists and catalog.find(state, statement.name) is not None:
            return Result("CREATE MATERIALIZED VIEW")
        catalog.refuse_duplicate(state, statement.name)
        sources = catalog.sources(state, statement.tables)
        uses = tuple(catalog.named(state, name).id for name in statement.tables)
        name = f"u{self._collections.new_id()}"
        named = catalog.Object(statement.name, "materialized view", sql, name, uses, name)
        self._views.create_view(
            name,
            sources.text(self._translate(statement.query_sql)),
            relations=sources.relations,
            also=(catalog.put(named),),
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
        uses = tuple(catalog.named(state, binding.view).id for binding in statement.bindings)
        oid = f"u{self._collections.new_id()}"
        named = catalog.Object(statement.name, "materialization", sql, uses=uses, id=oid)
        self._materializations.create(oid, Path(path), bindings, also=(catalog.put(named),))
        return Result("CREATE MATERIALIZATION")

    def _drop(self, statement: Drop) -> Result:
        state = self._core.state
        found = catalog.find(state, statement.name)
        tag = f"DROP {statement.kind.upper()}"
        if found is None:
            if statement.if_exists:
                return Result(tag)
            catalog.named(state, statement.name)
            raise UnknownRelation(statement.name)
        if found.kind != statement.kind:
            raise WrongKind(statement.name, statement.kind, found.kind)
        users = catalog.users(state, found.id)
        if users:
            raise DependentObjects(
                statement.kind, statement.name, ", ".join(each.name for each in users)
            )
        self._drop_one(found)
        return Result(tag)

    def _drop_one(self, found: catalog.Object) -> None:
        gone = catalog.remove(found.name)
        match found.kind:
            case "table":
                self.commits.alone(lambda _: (Destroy(found.collection), gone))
            case "materialized view":
                self._views.drop_view(found.collection, also=(gone,))
            case "materialization":
                self._materializations.drop(found.id, also=(gone,))
            case "view":
                self.commits.alone(lambda _: (gone,))

    def _show_tables(self) -> Result:
        rows = [(each.name, each.kind) for each in catalog.objects(self._core.state)]
        table = pa.table(
            {
                "name": pa.array([name for name, _ in rows], pa.string()),
                "kind": pa.array([kind for _, kind in rows], pa.string()),
            }
        )
        return Result.of_table(table)


@lru_cache(maxsize=1024)
def _defaults(create_sql: str) -> dict[str, Value]:
    """Return the defaults of a table, as its definition says them."""
    (statement,) = parse(create_sql)
    assert isinstance(statement, CreateTable)
    return {column.name: column.default for column in statement.columns}


__all__ = ["ClientSession", "Coordinator"]

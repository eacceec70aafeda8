"""Definitions: what a statement about objects changes, as steps on a state.

A definition is planned on a state (:meth:`Definitions.plan`) and becomes a
:class:`~.change.Change`: steps for one log entry, and perhaps an effect of somebody who commits it
with them. Several definitions of a transaction block are planned one after another, each on the
state that the ones before it would make, and commit as one entry: tables, views, materialized
views, indexes, and the rows written beside them. Names mean what the log has, and what the block
makes.

One definition at a time: between planning and commit no other changes the catalog (the lock is
ours; a block is refused with 40001 if the names it rests on changed).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext

import pyarrow as pa

from headwater.adapter import (
    alterations,
    catalog,
    indexes,
    materializations,
    namespaces,
    replacement,
    schema_definitions,
    subscriptions,
)
from headwater.adapter.change import (
    Block,
    Change,
    Effect,
    Made,
    Step,
    after,
    refuse_dangling,
    seen,
)
from headwater.adapter.dialect.transpile import Transpiled
from headwater.adapter.dropping import Dropping
from headwater.adapter.errors import InvalidDefinition, SerializationFailure
from headwater.adapter.group_commit import Defines, GroupCommit, ReadSet, TableWrite, Write
from headwater.adapter.limit import NO_LIMIT, Limit
from headwater.adapter.outside import Outside, OutsideDefinition
from headwater.adapter.ports import Evaluator, Translate
from headwater.adapter.sql.connection_statements import AlterSecret, CreateConnection, CreateSecret
from headwater.adapter.sql.materialization_statements import (
    CreateMaterialization,
    SetMaterialization,
    TurnMaterialization,
)
from headwater.adapter.sql.names import quoted_name
from headwater.adapter.sql.source_statements import CreateSource, TurnSource
from headwater.adapter.sql.statements import (
    Acknowledge,
    AlterRetention,
    CommentOn,
    CreateIndex,
    CreateMaterializedView,
    CreateSchema,
    CreateSubscription,
    CreateTable,
    CreateView,
    Drop,
    DropSchema,
    Rename,
    RenameSchema,
    SetSchema,
)
from headwater.adapter.timeline import DEFAULT
from headwater.collection.collections import Collections
from headwater.collection.run_layout import RunLayout
from headwater.collection.schema import telling
from headwater.compute.attempts import attempted
from headwater.materialize.controller import Materializations
from headwater.persist import evolution
from headwater.persist.client import Client
from headwater.persist.commands import Command, CreateOrLoad
from headwater.persist.errors import DestroyedCollection, UnknownCollection
from headwater.persist.layout import PARQUET
from headwater.persist.state import State

Definition = (
    CreateTable
    | CreateView
    | CreateMaterializedView
    | CreateIndex
    | CreateMaterialization
    | CreateSchema
    | DropSchema
    | RenameSchema
    | SetSchema
    | CreateSubscription
    | OutsideDefinition
    | Acknowledge
    | Drop
    | Rename
    | AlterRetention
    | SetMaterialization
    | TurnMaterialization
    | CommentOn
)


class Definitions:
    """Plans and commits definitions for one location."""

    def __init__(
        self,
        client: Client,
        views: Evaluator,
        delivered: Materializations,
        commits: GroupCommit,
        translate: Translate,
        outside: Outside,
    ) -> None:
        self._core = client.core
        self._collections = Collections(client)
        self._views = views
        self._materializations = delivered
        self._commits = commits
        self._outside = outside
        self._translate = translate
        self._dropping = Dropping(
            self._removed,
            lambda each, also: delivered.drop(each.id, also),
            outside.drop_source,
        )
        self._defining = threading.Lock()
        self._places = threading.Lock()
        """Held where places of subscriptions are looked at and written again."""

    def execute(self, statement: Definition, sql: str) -> str:
        """Execute a definition on its own; return its tag."""
        if isinstance(statement, Acknowledge):
            # Not in turn with definitions: a consumer does not wait while a view is built.
            moved, core = subscriptions.acknowledged, self._core
            with self._places:
                self._commits.alone(lambda _: moved(core.state, statement))
            return "ACKNOWLEDGE"
        with self._defining:
            if isinstance(statement, CreateMaterializedView | CreateIndex):
                # Compiled without keeping consumers from saying how far they are.
                change = self.plan(self._core.state, statement, sql)
                self._commit(change.steps, change.effects)
            else:
                with self._places:
                    change = self.plan(self._core.state, statement, sql)
                    if not change.effects:
                        self._commit(change.steps)
                if change.effects:
                    self._commit(change.steps, change.effects)
            return change.tag

    def begin(self) -> Block:
        """Begin a block."""
        return Block(self._core.state.items)

    def seen(self, block: Block | None) -> State:
        """Return the catalog as a transaction with these definitions sees it."""
        state = self._core.state
        return state if block is None else seen(state, block, self._core.clock.now_ms())

    def define(
        self, block: Block, statement: Definition, sql: str, *, rows: bool = False
    ) -> tuple[Block, str]:
        """Plan one more definition of a block; ``rows``: beside which rows are written."""
        block.check(self._core.state)
        change = self.plan(self.seen(block), statement, sql)
        # What was planned has ids by now that were not there before.
        now_ms = self._core.clock.now_ms()
        _, planned = after(self.seen(block), change.steps, now_ms, holds=False)
        return block.having(change, planned, rows=rows), change.tag

    def commit(
        self,
        block: Block,
        writes: tuple[TableWrite, ...] = (),
        reads: ReadSet | None = None,
        limit: Limit = NO_LIMIT,
    ) -> None:
        """Commit a block, in one entry with the rows that were written beside it.

        Also without rows nobody's change may have come between what it read and what it defines;
        but for an effect, whose entry is not decided here.
        """
        with self._defining:
            # Into what it has dropped since, nothing is written.
            stored = self.seen(block).collections if writes else {}
            writes = tuple(each for each in writes if each.id in stored)
            if block.effect is None and (writes or (reads is not None and reads.rests)):
                turn = self._views.preparing.changing if _makes(block.steps) else nullcontext
                defines = Defines(lambda state: self._made(block, state), turn)
                attempted(lambda: self._commits.write(Write(writes, reads, defines=defines), limit))
            elif block.effect is not None:
                self._made(block, self._core.state)
                self._commit(block.steps, (block.effect,))
            elif block.steps:
                with self._places:
                    self._made(block, self._core.state)
                    self._commit(block.steps)

    def _made(self, block: Block, state: State) -> tuple[State, tuple[Command, ...]]:
        """Return the state that a block makes, and by which commands, or refuse it."""
        block.check(state)
        try:
            made, commands = after(state, block.steps, self._core.clock.now_ms())
        except (DestroyedCollection, UnknownCollection) as gone:
            raise SerializationFailure(block.lost(state)) from gone
        refuse_dangling(made)
        return made, commands

    def _commit(self, steps: tuple[Step, ...], effects: tuple[Effect, ...] = ()) -> None:
        """Commit steps in one entry, if it may be in that of the last effect."""
        before = [each for each in effects if not each.beneath]
        last = [each for each in effects if each.beneath]
        if not last and before:
            last = [before.pop()]
        for effect in before:
            effect.act(effect.own)
        if last:
            self._entry(steps, last[0].act)
        else:
            self._entry(steps, None)
        for effect in last[1:]:
            effect.act(effect.own)

    def _entry(
        self, steps: tuple[Step, ...], act: Callable[[tuple[Command, ...]], object] | None
    ) -> None:
        """Commit steps, made for the state that there is then."""
        core = self._core

        def commands() -> tuple[Command, ...]:
            return after(core.state, steps, core.clock.now_ms())[1]

        if not steps and act is None:
            return
        if not _makes(steps):
            if act is not None:
                act(commands())
            else:
                self._commits.alone(lambda _: commands())
            return
        preparing = self._views.preparing  # Asked for here: it may have to be started.
        removes = any(isinstance(step, Made) and step.removes for step in steps)
        with preparing.still() if removes else nullcontext():
            if act is not None:
                with preparing.changing():
                    act(commands())
            else:
                attempted(lambda: self._commits.alone(lambda _: commands(), preparing.changing))

    def keep_plan(
        self, name: str, plan: object, tables: tuple[str, ...], *, or_replace: bool = False
    ) -> None:
        """Create (or replace) a materialized view of a plan that was not made of a text."""
        with self._defining:
            state = self._core.state
            name = namespaces.placed(state, name)
            found = catalog.called(state, name) if or_replace else None
            uses = tuple(catalog.named(state, table).id for table in tables)
            if found is None:
                catalog.refuse_duplicate(state, name)
            else:
                replacement.check(state, found, uses)
            relations = catalog.sources(state, tables).relations
            oid = f"u{self._collections.new_id()}"
            made = f"CREATE MATERIALIZED VIEW {quoted_name(name)}"
            sql = f"{made} AS /* a DataFrame over */ {', '.join(tables)}"
            named = catalog.Object(name, "materialized view", sql, oid, uses, oid)

            def create(also: tuple[Command, ...]) -> None:
                self._views.create_view(oid, plan, relations=relations, also=also)

            if found is None:
                create((catalog.put(named),))
            else:
                self._replacing(found).run(named, create)

    def _removed(self, state: State, collection: str) -> tuple[Command, ...]:
        return self._views.preparing.removed(state, collection)

    def _replacing(self, found: catalog.Object) -> replacement.Replacement:
        core, views, delivered = self._core, self._views, self._materializations
        new_id, alone = self._collections.new_id, self._commits.alone
        return replacement.Replacement(core, views, delivered, found, new_id, alone)

    # ---- planning ----------------------------------------------------------------------------

    def plan(self, state: State, statement: Definition, sql: str) -> Change:
        """Return what a definition changes about a state, or refuse it."""
        sql = schema_definitions.with_schema(state, statement, sql)
        match statement:
            case CreateTable():
                return self._create_table(state, statement, sql)
            case CreateView():
                return self._create_view(state, statement, sql)
            case CreateMaterializedView():
                return self._create_materialized_view(state, statement, sql)
            case CreateIndex():
                return self._create_index(state, statement)
            case CreateMaterialization():
                new_id, stored = self._collections.new_id, self._core.state
                return materializations.create(
                    state, stored, statement, sql, new_id, self._materializations
                )
            case CreateSchema():
                return schema_definitions.create(state, statement, self._collections.new_id)
            case DropSchema():
                return self._dropping.schemas(state, statement)
            case RenameSchema():
                return schema_definitions.rename(state, statement)
            case SetSchema():
                return schema_definitions.move(state, statement)
            case CreateSubscription():
                return subscriptions.create(statement, sql, self._collections.new_id)
            case (
                CreateSource() | TurnSource() | CreateSecret() | AlterSecret() | CreateConnection()
            ):
                return self._outside.plan(state, statement, sql, self._collections.new_id)
            case Acknowledge():
                return Change("ACKNOWLEDGE", subscriptions.acknowledged(state, statement))
            case Drop():
                return self._dropping.objects(state, statement)
            case Rename():
                return alterations.rename(state, statement)
            case AlterRetention():
                return alterations.retain(state, statement)
            case SetMaterialization() | TurnMaterialization():
                return materializations.change(state, statement, self._core, self._materializations)
            case CommentOn():
                return alterations.comment(state, statement)

    def _create_table(self, state: State, statement: CreateTable, sql: str) -> Change:
        tag, called = "CREATE TABLE", namespaces.placed(state, statement.name)
        if statement.if_not_exists and catalog.called(state, called) is not None:
            return Change(tag)
        catalog.refuse_duplicate(state, called)
        gid = self._collections.new_id()
        name = f"u{gid}"
        # It begins where the timeline is, which moves on in the same entry: it is readable (and
        # empty) as soon as it is acknowledged.
        create = CreateOrLoad(
            name,
            evolution.to_bytes(statement.schema),
            statement.key,
            RunLayout.name if statement.key else PARQUET.name,
            timeline=DEFAULT,
            id=gid,
        )
        retain_ms = alterations.retained(statement.retain_ms)
        named = catalog.Object(called, "table", sql, name, id=name, retain_ms=retain_ms)
        return Change(tag, (create, catalog.put(named)))

    def _in_spark(self, state: State, view: CreateView | CreateMaterializedView) -> Transpiled:
        """Return the query of a view in Spark's dialect, in which views are kept."""
        if view.dialect == "spark":
            return Transpiled(view.query_sql, ())
        return self._translate(view.query_sql, catalog.schemas(state, view.tables))

    def _create_view(self, state: State, statement: CreateView, sql: str) -> Change:
        called = namespaces.placed(state, statement.name)
        if statement.or_replace:
            found = catalog.called(state, called)
            if found is not None:
                replacement.check_view(state, found, statement.tables)
        else:
            catalog.refuse_duplicate(state, called)
        sources = catalog.sources(state, statement.tables)
        translated = self._in_spark(state, statement)
        query = translated.text
        text, relations = sources.text(query), sources.relations
        described = self._views.describe(text, relations=relations, state=state)
        schema = telling(described, translated.types)
        if statement.columns is not None:
            if len(statement.columns) > len(schema.names):
                raise InvalidDefinition("CREATE VIEW specifies more column names than columns")
            names = (*statement.columns, *schema.names[len(statement.columns) :])
            listed = ", ".join(map(catalog.quoted, names))
            query = f"SELECT * FROM ({query}) AS `named`({listed})"  # noqa: S608 - translated
            schema = pa.schema([f.with_name(n) for f, n in zip(schema, names, strict=True)])
        bindings = {name: catalog.named(state, name).id for name in statement.tables}
        view = catalog.Object(
            called,
            "view",
            sql,
            uses=tuple(dict.fromkeys(bindings.values())),
            id=f"u{self._collections.new_id()}",
            query=query,
            bindings=bindings,
            schema=evolution.to_bytes(schema),
            dialect=statement.dialect,
        )
        return Change("CREATE VIEW", (catalog.put(view),))

    def _create_materialized_view(
        self, state: State, statement: CreateMaterializedView, sql: str
    ) -> Change:
        tag, called = "CREATE MATERIALIZED VIEW", namespaces.placed(state, statement.name)
        if statement.if_not_exists and catalog.called(state, called) is not None:
            return Change(tag)
        found = catalog.called(state, called) if statement.or_replace else None
        bound = {name: catalog.named(state, name).id for name in statement.tables}
        uses = tuple(bound.values())
        if found is None:
            catalog.refuse_duplicate(state, called)
        else:
            replacement.check(state, found, uses)
        sources = catalog.sources(state, statement.tables)
        query = self._in_spark(state, statement)
        name = f"u{self._collections.new_id()}"
        retain_ms = alterations.retained(statement.retain_ms)
        if found is not None and statement.retain_ms is None:
            retain_ms = found.retain_ms
        named = catalog.Object(
            called,
            "materialized view",
            sql,
            name,
            uses,
            name,
            bindings=bound,
            retain_ms=retain_ms,
            dialect=statement.dialect,
        )

        text, relations = sources.text(query.text), sources.relations
        if found is None:
            prepared = self._views.preparing.prepare(
                state, name, text, relations=relations, types=query.types
            )
            return Change(tag, (Made(prepared.commands, of_views=True), catalog.put(named)))

        def create(also: tuple[Command, ...]) -> None:
            self._views.create_view(name, text, relations=relations, types=query.types, also=also)

        replacing = self._replacing(found)
        what = f'replacing materialized view "{found.name}"'
        swap = Effect(what, lambda _: replacing.run(named, create), alone=True)
        return Change(tag, (), (swap,))

    def _create_index(self, state: State, statement: CreateIndex) -> Change:
        tag = "CREATE INDEX"
        name = indexes.named(state, statement)
        if statement.if_not_exists and catalog.called(state, name) is not None:
            return Change(tag)
        on = indexes.checked(state, statement, name)
        sources = catalog.sources(state, (statement.on,))
        query = sources.text(f"SELECT * FROM {catalog.quoted(statement.on)}")  # noqa: S608 - quoted
        oid = f"u{self._collections.new_id()}"
        bound, retain_ms = {on.name: on.id}, alterations.retained(statement.retain_ms)
        sql = indexes.create_sql(name, on, statement)
        index = catalog.Object(
            name, "index", sql, oid, (on.id,), oid, bindings=bound, retain_ms=retain_ms
        )

        prepared = self._views.preparing.prepare(
            state, oid, query, relations=sources.relations, key=statement.columns
        )
        return Change(tag, (Made(prepared.commands, of_views=True), catalog.put(index)))


def _makes(steps: tuple[Step, ...]) -> bool:
    """Whether steps make or remove views."""
    return any(isinstance(step, Made) and step.of_views for step in steps)

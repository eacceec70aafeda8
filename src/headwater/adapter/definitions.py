"""Definitions: what a statement about objects changes, as commands on a state.

A definition is planned on a state (:meth:`Definitions.plan`) and becomes a :class:`Change`:
commands for one log entry, or an *effect* (a maintained view, a delivery: who keeps it commits it,
with other commands in the same entry). So several definitions of a transaction block are planned
one after another, each on the state that the ones before it would make (:func:`after`), and commit
as one entry; at most one of them may be an effect.

One definition at a time: between planning and commit no other changes the catalog (the lock is the
caller's, ``adapter/session.py``; a block is refused with 40001 if the names it rests on changed).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

import pyarrow as pa

from headwater.adapter import (
    alterations,
    catalog,
    connections,
    indexes,
    materializations,
    namespaces,
    replacement,
    schema_definitions,
    sources,
    subscriptions,
)
from headwater.adapter.change import Block, Change, Effect, after, refuse_dangling
from headwater.adapter.dialect.transpile import Transpiled
from headwater.adapter.errors import (
    DependentObjects,
    InvalidDefinition,
    WrongKind,
)
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
from headwater.materialize.controller import Materializations
from headwater.persist import evolution
from headwater.persist.client import Client
from headwater.persist.commands import Command, CreateOrLoad, Destroy
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
            with self._places:
                change = self.plan(self._core.state, statement, sql)
                if change.commands and not change.effects:
                    self._commits.alone(lambda _: change.commands)
            # Several only of DROP … CASCADE: dependents first, so that nothing ever dangles.
            for effect in change.effects[:-1]:
                effect(())
            if change.effects:
                change.effects[-1](change.commands)
            return change.tag

    def begin(self) -> Block:
        """Begin a block."""
        return Block(self._core.state.items)

    def seen(self, block: Block | None) -> State:
        """Return the catalog as a transaction with these definitions sees it."""
        state = self._core.state
        if block is None or not block.commands:
            return state
        return after(state, block.commands, self._core.clock.now_ms())

    def define(
        self, block: Block, statement: Definition, sql: str, *, rows: bool = False
    ) -> tuple[Block, str]:
        """Plan one more definition of a block; ``rows``: beside which rows are written."""
        state = self._core.state
        block.check(state)
        made = after(state, block.commands, self._core.clock.now_ms())
        change = self.plan(made, statement, sql)
        return block.having(change, rows=rows), change.tag

    def commit(
        self,
        block: Block,
        writes: tuple[TableWrite, ...] = (),
        reads: ReadSet | None = None,
        limit: Limit = NO_LIMIT,
    ) -> None:
        """Commit a block, in one entry with the rows that were written beside it."""
        with self._defining:
            made = self._made(block, self._core.state)
            kept = tuple(each for each in writes if each.id in made.collections)
            if kept:
                assert not block.effects, "they are refused beside rows"
                defines = Defines(block.commands, lambda state: self._made(block, state))
                self._commits.write(Write(kept, reads, defines=defines), limit)
            elif block.effects:
                block.effects[0](block.commands)
            elif block.commands:
                with self._places:
                    self._made(block, self._core.state)
                    self._commits.alone(lambda _: block.commands)

    def _made(self, block: Block, state: State) -> State:
        """Return the state that a block makes, or refuse it."""
        block.check(state)
        made = after(state, block.commands, self._core.clock.now_ms())
        refuse_dangling(made)
        return made

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
                return materializations.create(
                    state, statement, sql, self._collections.new_id, self._materializations
                )
            case CreateSchema():
                return schema_definitions.create(state, statement, self._collections.new_id)
            case DropSchema():
                return self._drop_schemas(state, statement)
            case RenameSchema():
                return schema_definitions.rename(state, statement)
            case SetSchema():
                return schema_definitions.move(state, statement)
            case CreateSubscription():
                oid = f"u{self._collections.new_id()}"
                commands = subscriptions.created(state, statement, sql, oid)
                return Change("CREATE SUBSCRIPTION", commands)
            case (
                CreateSource() | TurnSource() | CreateSecret() | AlterSecret() | CreateConnection()
            ):
                return self._outside.plan(state, statement, sql, self._collections.new_id)
            case Acknowledge():
                return Change("ACKNOWLEDGE", subscriptions.acknowledged(state, statement))
            case Drop():
                return self._drop(state, statement)
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
        described = self._views.describe(sources.text(query), relations=sources.relations)
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

        def create(also: tuple[Command, ...]) -> None:
            text, relations = sources.text(query.text), sources.relations
            self._views.create_view(name, text, relations=relations, types=query.types, also=also)

        if found is not None:
            replacing = self._replacing(found)

            def swap(_: tuple[Command, ...]) -> None:
                replacing.run(named, create)

            return Change(tag, (), (swap,))
        return Change(tag, (catalog.put(named),), (create,))

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

        def create(also: tuple[Command, ...]) -> None:
            self._views.create_view(
                oid, query, relations=sources.relations, key=statement.columns, also=also
            )

        return Change(tag, (catalog.put(index),), (create,))

    def _drop(self, state: State, statement: Drop) -> Change:
        tag = f"DROP {statement.kind.upper()}"
        gone: dict[str, catalog.Object] = {}
        named: set[str] = set()
        for name in (statement.name, *statement.others):
            found = catalog.find(state, name)
            if found is None and statement.if_exists:
                continue
            if found is None:
                found = catalog.named(state, name)
            if found.kind != statement.kind:
                raise WrongKind(name, statement.kind, found.kind)
            sources.refuse_part(state, found)
            named.add(found.id)
            _add_with_users(state, found, gone)
        if not statement.cascade:
            # What a source keeps goes with it, and indexes with what they are of, as in PostgreSQL;
            # what is made of either does not.
            others = [
                each.name
                for each in gone.values()
                if each.id not in named and each.of not in gone and each.kind != "index"
            ]
            if others:
                raise DependentObjects(statement.kind, statement.name, ", ".join(others))
        return self._gone(state, tag, gone)

    def _drop_schemas(self, state: State, statement: DropSchema) -> Change:
        dropped = schema_definitions.dropped(state, statement)
        gone: dict[str, catalog.Object] = {}
        for each in schema_definitions.contents(state, dropped):
            _add_with_users(state, each, gone)
        if gone and not statement.cascade:
            users = ", ".join(each.name for each in gone.values())
            raise DependentObjects("schema", ", ".join(dropped), users)
        return self._gone(state, "DROP SCHEMA", gone, tuple(map(namespaces.remove, dropped)))

    def _gone(
        self,
        state: State,
        tag: str,
        gone: Mapping[str, catalog.Object],
        last: tuple[Command, ...] = (),
    ) -> Change:
        """Return what drops these, each after all that it is made of, and then ``last``."""
        held: list[catalog.Object] = []
        commands: list[Command] = []
        effects: list[Effect] = []
        # Whoever is made of others goes before them.
        for each in reversed(list(gone.values())):
            removed = catalog.remove(each.name)
            match each.kind:
                case "materialized view" | "index" | "materialization":
                    effects.append(self._dropped(each, removed))
                case "table":
                    commands += (removed, Destroy(each.collection))
                case "view":
                    commands.append(removed)
                case "subscription":
                    held.append(each)
                case "source" if each.of:
                    commands.append(removed)
                case "source":
                    # What is made of it is gone before it, or with it.
                    effects.append(self._outside.dropped_source(each, (*commands, removed)))
                    commands = []
                case "secret" | "connection":
                    commands += connections.dropped(each)
        commands += last
        if not effects:
            return Change(tag, (*subscriptions.dropped(state, held), *commands))
        # Subscriptions let go what they hold before that goes, and what all of it is made of goes
        # last, each in an entry of its own.
        after_ = tuple(commands)
        if held:
            # As they are then: what they hold moves with every acknowledgement.
            dropped, core = subscriptions.dropped, self._core
            effects.insert(0, lambda _: self._commits.alone(lambda _: dropped(core.state, held)))
        if after_:
            effects.append(lambda _: self._commits.alone(lambda _: after_))
        return Change(tag, (), tuple(effects))

    def _dropped(self, each: catalog.Object, removed: Command) -> Effect:
        def drop(also: tuple[Command, ...]) -> None:
            if each.kind == "materialization":
                self._materializations.drop(each.id, also=(removed, *also))
            else:
                self._views.drop_view(each.collection, also=(removed, *also))

        return drop


def _add_with_users(state: State, each: catalog.Object, gone: dict[str, catalog.Object]) -> None:
    """Add an object, and after it everything that is made of it."""
    gone.pop(each.id, None)  # To the end: after all that it is made of.
    gone[each.id] = each
    for user in catalog.users(state, each.id):
        _add_with_users(state, user, gone)

"""``CREATE``, ``DROP`` and ``ALTER SCHEMA``, and ``SET SCHEMA`` of an object. Pure.

An object's name has its schema in it, so that a schema which gets another name gives one to
everything in it, in the same entry; who is made of those objects knows them by their ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from headwater.adapter import alterations, catalog, namespaces, sources
from headwater.adapter.change import Change
from headwater.adapter.errors import DuplicateSchema, ReservedName, Unsupported
from headwater.adapter.sql import names
from headwater.adapter.sql.connection_statements import CreateConnection
from headwater.adapter.sql.materialization_statements import CreateMaterialization
from headwater.adapter.sql.renaming import renamed
from headwater.adapter.sql.source_statements import CreateSource
from headwater.adapter.sql.statements import (
    CreateMaterializedView,
    CreateSchema,
    CreateSubscription,
    CreateTable,
    CreateView,
    DropSchema,
    RenameSchema,
    SetSchema,
)
from headwater.base.ids import GlobalId
from headwater.persist.commands import Command
from headwater.persist.state import State

_RESERVED: Final = ("pg_", names.SYSTEM_PREFIX)
_VIEWS: Final = (CreateView, CreateMaterializedView)
_PRESENT: Final = ("information_schema",)
"""In the shadow, and of no use here."""


def create(state: State, statement: CreateSchema, new_id: Callable[[], GlobalId]) -> Change:
    """Plan a schema."""
    tag = "CREATE SCHEMA"
    if statement.if_not_exists and namespaces.exists(state, statement.name):
        return Change(tag)
    _refuse_taken(state, statement.name)
    made = namespaces.Schema(statement.name, f"u{new_id()}")
    return Change(tag, (namespaces.put(made),))


def _refuse_taken(state: State, name: str) -> None:
    for prefix in _RESERVED:
        if name.startswith(prefix):
            raise ReservedName(name, prefix)
    if name in _PRESENT or namespaces.exists(state, name):
        raise DuplicateSchema(name)


def dropped(state: State, statement: DropSchema) -> tuple[str, ...]:
    """Return the schemas that a statement drops."""
    found: dict[str, None] = {}
    for name in statement.names:
        if statement.if_exists and not namespaces.exists(state, name):
            continue
        namespaces.schema(state, name)
        _refuse_public(name, "DROP SCHEMA")
        found[name] = None
    return tuple(found)


def contents(state: State, dropped: Sequence[str]) -> Iterator[catalog.Object]:
    """Return what is in some schemas."""
    for each in catalog.objects(state):
        if names.schema_of(each.name) in dropped:
            yield each


def rename(state: State, statement: RenameSchema) -> Change:
    """Give a schema another name, and with it everything in it."""
    found = namespaces.schema(state, statement.name)
    _refuse_public(statement.name, "ALTER SCHEMA")
    _refuse_taken(state, statement.new_name)
    made = namespaces.Schema(statement.new_name, found.id, found.comment)
    commands: list[Command] = [namespaces.remove(found.name), namespaces.put(made)]
    for each in contents(state, (found.name,)):
        name = names.full(statement.new_name, names.bare(each.name))
        commands += alterations.called(state, each, name)
    return Change("ALTER SCHEMA", tuple(commands))


def move(state: State, statement: SetSchema) -> Change:
    """Put an object into another schema, and with it what comes and goes with it."""
    tag = f"ALTER {statement.kind.upper()}"
    found = alterations.of_kind(state, statement.name, statement.kind)
    sources.refuse_part(state, found)
    namespaces.schema(state, statement.schema)
    if names.schema_of(found.name) == statement.schema:
        return Change(tag)
    commands: list[Command] = []
    for each in (found, *_with(state, found)):
        name = names.full(statement.schema, names.bare(each.name))
        commands += alterations.called(state, each, name)
    return Change(tag, tuple(commands))


def _with(state: State, found: catalog.Object) -> list[catalog.Object]:
    """What is in the schema of an object because that is: its indexes, what a source keeps."""
    return [
        each
        for each in catalog.users(state, found.id)
        if each.of == found.id or each.kind == "index"
    ]


def _refuse_public(name: str, command: str) -> None:
    if name == names.SCHEMA:
        raise Unsupported(f'{command} of "{name}"', detail="It is always there.")


def with_schema(state: State, statement: object, sql: str) -> str:
    """Return the text that makes an object, with its schema if the path says that."""
    match statement:
        case (
            CreateTable(name)
            | CreateView(name)
            | CreateMaterializedView(name)
            | CreateMaterialization(name)
            | CreateSubscription(name)
            | CreateSource(name)
            | CreateConnection(name)
        ):
            placed = namespaces.placed(state, name)
            given, _ = names.parts(name)
            dialect = statement.dialect if isinstance(statement, _VIEWS) else "postgres"
            kept = given is not None or placed == name
            return sql if kept else renamed(sql, placed, dialect)
        case _:
            return sql

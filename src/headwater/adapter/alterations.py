"""Definitions that change words about objects: names, comments, how long history is kept. Pure."""

from __future__ import annotations

from typing import Final

from headwater.adapter import catalog
from headwater.adapter.change import Change
from headwater.adapter.errors import DuplicateSchema, UnknownColumn, Unsupported, WrongKind
from headwater.adapter.sql.objects import renamed
from headwater.adapter.sql.statements import AlterRetention, CommentOn, CreateSchema, Kind, Rename
from headwater.adapter.sql.tokens import SCHEMA
from headwater.persist.state import State


def retained(retain_ms: int | None) -> int:
    """Return how long history is kept, in milliseconds."""
    return catalog.RETAIN_MS_DEFAULT if retain_ms is None else retain_ms


def create_schema(statement: CreateSchema) -> Change:
    """There is one schema; it is there."""
    if statement.name != SCHEMA:
        raise Unsupported(f'schema "{statement.name}"', detail=f'There is one schema, "{SCHEMA}".')
    if not statement.if_not_exists:
        raise DuplicateSchema(statement.name)
    return Change("CREATE SCHEMA")


NO_RELATIONS: Final = ("index", "materialization", "subscription", "secret", "connection")


def _of_kind(state: State, name: str, kind: Kind) -> catalog.Object:
    """Return the object; as in PostgreSQL, ALTER TABLE is right for any relation."""
    found = catalog.named(state, name)
    no_relation = found.kind in NO_RELATIONS
    if found.kind != kind and (kind != "table" or no_relation):
        raise WrongKind(name, kind, found.kind)
    return found


def rename(state: State, statement: Rename) -> Change:
    """Give an object another name; whoever is made of it knows it by its id."""
    found = _of_kind(state, statement.name, statement.kind)
    catalog.refuse_duplicate(state, statement.new_name)
    new = catalog.changed(
        found, name=statement.new_name, sql=renamed(found.sql, statement.new_name)
    )
    tag = f"ALTER {statement.kind.upper()}"
    return Change(tag, (catalog.remove(found.name), catalog.put(new)))


def retain(state: State, statement: AlterRetention) -> Change:
    """Change how long history is kept: less takes effect at the next tick."""
    found = _of_kind(state, statement.name, statement.kind)
    if not found.collection:
        raise WrongKind(statement.name, "table or materialized view", found.kind)
    new = catalog.changed(found, retain_ms=retained(statement.retain_ms))
    return Change(f"ALTER {statement.kind.upper()}", (catalog.put(new),))


def comment(state: State, statement: CommentOn) -> Change:
    """Say something about an object, or a column of it."""
    if statement.kind is None:
        found = catalog.named(state, statement.name)
        columns = catalog.schemas(state, (statement.name,))[statement.name].names
        assert statement.column is not None
        if statement.column not in columns:
            raise UnknownColumn(statement.column, statement.name, columns)
        comments = {**found.column_comments}
        comments.pop(statement.column, None)
        if statement.text is not None:
            comments[statement.column] = statement.text
        new = catalog.changed(found, column_comments=comments)
    else:
        found = _of_kind(state, statement.name, statement.kind)
        new = catalog.changed(found, comment=statement.text)
    return Change("COMMENT", (catalog.put(new),))

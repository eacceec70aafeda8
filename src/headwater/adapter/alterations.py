"""Definitions that change words about objects: names, comments, how long history is kept. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from headwater.adapter import catalog, namespaces
from headwater.adapter.change import Change
from headwater.adapter.errors import UnknownColumn, WrongKind
from headwater.adapter.sql import names
from headwater.adapter.sql.renaming import renamed
from headwater.adapter.sql.statements import AlterRetention, CommentOn, Kind, Rename
from headwater.persist.commands import Command
from headwater.persist.state import State


def retained(retain_ms: int | None) -> int:
    """Return how long history is kept, in milliseconds."""
    return catalog.RETAIN_MS_DEFAULT if retain_ms is None else retain_ms


NO_RELATIONS: Final = ("index", "materialization", "subscription", "secret", "connection")


def of_kind(state: State, name: str, kind: Kind) -> catalog.Object:
    """Return the object; as in PostgreSQL, ALTER TABLE is right for any relation."""
    found = catalog.named(state, name)
    no_relation = found.kind in NO_RELATIONS
    if found.kind != kind and (kind != "table" or no_relation):
        raise WrongKind(name, kind, found.kind)
    return found


def rename(state: State, statement: Rename) -> Change:
    """Give an object another name; whoever is made of it knows it by its id."""
    found = of_kind(state, statement.name, statement.kind)
    name = names.full(names.schema_of(found.name), statement.new_name)
    return Change(f"ALTER {statement.kind.upper()}", called(state, found, name))


def called(state: State, found: catalog.Object, name: str) -> tuple[Command, ...]:
    """Return what gives an object another name, which says the schema it is in."""
    catalog.refuse_duplicate(state, name)
    new = catalog.changed(found, name=name, sql=renamed(found.sql, name, found.dialect))
    return catalog.remove(found.name), catalog.put(new)


def retain(state: State, statement: AlterRetention) -> Change:
    """Change how long history is kept: less takes effect at the next tick."""
    found = of_kind(state, statement.name, statement.kind)
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
    elif statement.kind == "schema":
        schema = namespaces.schema(state, statement.name)
        said = msgspec.structs.replace(schema, comment=statement.text)
        return Change("COMMENT", (namespaces.put(said),))
    else:
        found = of_kind(state, statement.name, statement.kind)
        new = catalog.changed(found, comment=statement.text)
    return Change("COMMENT", (catalog.put(new),))

"""``SHOW`` of objects: the catalog as rows."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headwater.adapter import catalog, creating, namespaces, sources
from headwater.adapter.errors import WrongKind
from headwater.adapter.sql.forms import name_of
from headwater.adapter.sql.names import schema_of
from headwater.adapter.sql.statements import (
    ShowColumns,
    ShowCreate,
    ShowObjects,
    ShowSchemas,
    ShowTables,
)
from headwater.persist.state import State

ShowsObjects = ShowTables | ShowObjects | ShowSchemas | ShowColumns | ShowCreate


def shown(state: State, statement: ShowsObjects) -> pa.Table:
    """Return what a SHOW shows."""
    match statement:
        case ShowTables():
            rows = [(each.name, each.kind) for each in _of(state, statement.schema)]
            return _texts(("name", "kind"), rows)
        case ShowObjects("source", schema):
            found_sources = [each for each in _of(state, schema) if each.kind == "source"]
            rows3 = [(each.name, sources.kind(state, each), each.comment) for each in found_sources]
            return _texts(("name", "type", "comment"), rows3)
        case ShowObjects(kind, schema):
            found = [each for each in _of(state, schema) if kind in (None, each.kind)]
            rows3 = [(each.name, each.kind, each.comment) for each in found]
            return _texts(("name", "kind", "comment"), rows3)
        case ShowSchemas():
            schemas = namespaces.schemas(state)
            return _texts(("name", "comment"), [(each.name, each.comment) for each in schemas])
        case ShowColumns(name):
            return _columns(state, name)
        case ShowCreate(kind, name):
            found_one = catalog.named(state, name)
            if found_one.kind != kind:
                raise WrongKind(name, kind, found_one.kind)
            return _texts(("name", "create_sql"), [(name, creating.statement(state, found_one))])


def _of(state: State, schema: str | None) -> list[catalog.Object]:
    """The objects of a schema, or all of them."""
    if schema is not None:
        namespaces.schema(state, schema)
    return [each for each in catalog.objects(state) if schema in (None, schema_of(each.name))]


def _columns(state: State, name: str) -> pa.Table:
    comments = catalog.named(state, name).column_comments
    schema = catalog.schemas(state, (name,))[name]
    rows = [
        (
            field.name,
            name_of(field),
            "yes" if field.nullable else "no",
            comments.get(field.name),
        )
        for field in schema
    ]
    return _texts(("name", "type", "nullable", "comment"), rows)


def _texts(names: Sequence[str], rows: Sequence[Sequence[str | None]]) -> pa.Table:
    columns = [pa.array([row[n] for row in rows], pa.string()) for n in range(len(names))]
    return pa.table(columns, names=list(names))

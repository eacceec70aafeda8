"""What the shadow is to show: the relations of a catalog, as PostgreSQL would list them. Pure.

``mirrored(state)`` has every table, view and materialized view of the catalog whose columns are
known, in an order in which they can be made: after all that they are made of. What is no relation
(a materialization, a subscription) is not there, and nothing secret ever is. The system views are
there, in a schema of their own.

A view is shown with its client's own text, in which relations stand under the names they have
*now*: in the catalog they are known by id, so that a rename breaks nothing, and PostgreSQL has to
find the same ones. A text that PostgreSQL does not read is shown with its columns alone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

from psycopg import sql as literals

from headwater.adapter import catalog, namespaces
from headwater.adapter.errors import AdapterError
from headwater.adapter.shadow.objects import Column, Index, Mirrored, Relation, RelationKind, Schema
from headwater.adapter.sql import names
from headwater.adapter.sql.names import SYSTEM_SCHEMA
from headwater.adapter.sql.parse import parse
from headwater.adapter.sql.renaming import query_with_names
from headwater.adapter.sql.statements import (
    Calculated,
    CreateMaterializedView,
    CreateTable,
    CreateView,
    Statement,
    Value,
)
from headwater.adapter.system import SYSTEM_VIEWS, SystemView, shadowed
from headwater.persist import evolution
from headwater.persist.state import State

_log = logging.getLogger(__name__)

NAME_BYTES_MAX: Final = 63
"""A longer name PostgreSQL would cut, and then take for another."""

_KINDS: Final[Mapping[str, RelationKind]] = {
    "table": "table",
    "source": "table",
    "view": "view",
    "materialized view": "materialized view",
}


def catalog_key(state: State) -> frozenset[tuple[str, bytes]]:
    """Equal for two states whose catalogs are equal, and for no others."""
    return frozenset(
        (key, value)
        for key, value in state.items.items()
        if key.startswith((catalog.PREFIX, namespaces.PREFIX))
    )


def mirrored(state: State) -> tuple[Mirrored, ...]:
    """The relations of the catalog, and the system's own."""
    found: list[Mirrored] = [Schema(SYSTEM_SCHEMA, "What there is and how it does.")]
    found += map(_system_relation, SYSTEM_VIEWS.values())
    found += (Schema(each.name, each.comment) for each in namespaces.schemas(state))
    indexes = _indexes(state)
    for each in _in_order(state):
        relation = _relation(state, each, indexes.get(each.id, ()))
        if relation is not None:
            found.append(relation)
    return tuple(found)


def _system_relation(view: SystemView) -> Relation:
    columns = [
        Column.stored(field, column.about)
        for field, column in zip(view.schema, view.columns, strict=True)
    ]
    return Relation(
        SYSTEM_SCHEMA,
        view.name,
        "view",
        tuple(columns),
        shadowed.definition(view),
        comment=view.about,
    )


def _in_order(state: State) -> Iterator[catalog.Object]:
    """Every object, after those that it is made of."""
    by_id = {each.id or each.name: each for each in catalog.objects(state)}
    done: set[str] = set()

    def visit(oid: str) -> Iterator[catalog.Object]:
        each = by_id.get(oid)
        if each is None or oid in done:
            return
        done.add(oid)
        for used in each.uses:
            yield from visit(used)
        yield each

    for oid in by_id:
        yield from visit(oid)


def _indexes(state: State) -> dict[str, tuple[Index, ...]]:
    """The indexes of each object, by its id."""
    found: dict[str, tuple[Index, ...]] = {}
    for each in catalog.objects(state):
        gid = state.names.get(each.collection) if each.kind == "index" else None
        if gid is not None:
            (on,) = each.uses
            made = Index(names.bare(each.name), tuple(state.collections[gid].key))
            found[on] = (*found.get(on, ()), made)
    return found


def _relation(state: State, each: catalog.Object, indexes: tuple[Index, ...]) -> Relation | None:
    kind = _KINDS.get(each.kind)
    if kind is None or not (each.collection or each.schema):
        return None  # A source of several outputs is none itself: they are.
    if each.collection:
        gid = state.names.get(each.collection)
        if gid is None:
            return None  # It is being made in this transaction.
        collection = state.collections[gid]
        schema, key = evolution.from_bytes(collection.schemas[-1]), tuple(collection.key)
    else:
        schema, key = evolution.from_bytes(each.schema), ()
    alone = names.bare(each.name)
    if any(len(name.encode()) > NAME_BYTES_MAX for name in (alone, *schema.names)):
        _log.warning('"%s" is not shown: a name is longer than PostgreSQL has them', each.name)
        return None
    created = _created(each.sql)
    defaults, lengths = _defaults(created), _lengths(created)
    columns = tuple(
        Column.stored(
            field,
            each.column_comments.get(field.name),
            defaults.get(field.name),
            lengths.get(field.name),
        )
        for field in schema
    )
    definition = _definition(state, each, created)
    return Relation(
        names.schema_of(each.name),
        alone,
        kind,
        columns,
        definition,
        primary_key=key if kind == "table" else (),
        indexes=indexes,
        comment=each.comment,
    )


@lru_cache(maxsize=1024)
def _created(create_sql: str) -> Statement | None:
    """The statement that made an object; None where it is not ours to read."""
    try:
        (statement,) = parse(create_sql)
    except (AdapterError, ValueError):
        return None
    return statement


def _defaults(created: Statement | None) -> dict[str, str]:
    if not isinstance(created, CreateTable):
        return {}
    return {
        column.name: _default(column.default)
        for column in created.columns
        if column.default is not None
    }


def _lengths(created: Statement | None) -> dict[str, int]:
    columns = created.columns if isinstance(created, CreateTable) else ()
    return {column.name: column.length_max for column in columns if column.length_max}


def _default(value: Value | Calculated) -> str:
    return value.sql if isinstance(value, Calculated) else literals.Literal(value).as_string(None)


# --- the query of a view --------------------------------------------------------------------------


def _definition(state: State, each: catalog.Object, created: Statement | None) -> str | None:
    match created:
        case CreateView(_, query, tables, columns) if each.bindings or not each.uses:
            bound = each.bindings
        case CreateMaterializedView(_, query, tables):
            columns = None
            bound = each.bindings or dict(zip(tables, each.uses, strict=False))
        case _:
            return None
    renamed = {}
    for name, oid in bound.items():
        # PostgreSQL takes a name without a schema for one of public, where it analyses the query.
        now = catalog.by_id(state, oid).exact
        if now != names.exact(name):
            renamed[name] = now
    text = query_with_names(query, renamed) if renamed else query
    if text is None or columns is None:
        return text
    listed = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
    return f"SELECT * FROM ({text}) AS named({listed})"  # noqa: S608 - analysed, never run

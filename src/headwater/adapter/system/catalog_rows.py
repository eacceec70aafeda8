"""What there is: objects, their columns, and what is made of what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from headwater.adapter import catalog, namespaces
from headwater.adapter.errors import AdapterError
from headwater.adapter.sql import names
from headwater.adapter.sql.forms import name_of
from headwater.adapter.system.seen import Seen
from headwater.adapter.system.system_view import OBJECT, Column, Row, SystemView


def _objects(seen: Seen) -> Iterator[Row]:
    for each in seen.objects():
        retained = each.retain_ms if each.collection else None
        schema = names.schema_of(each.name)
        yield (each.id, each.name, each.kind, retained, each.comment, each.sql, schema)


def _schemas(seen: Seen) -> Iterator[Row]:
    held = Counter(names.schema_of(each.name) for each in seen.objects())
    for each in namespaces.schemas(seen.state):
        yield (each.id or None, each.name, held[each.name], each.comment)


def _columns(seen: Seen) -> Iterator[Row]:
    for each in seen.objects():
        if each.kind == "index" or (not each.collection and not each.schema):
            continue
        key: tuple[str, ...] = ()
        if each.collection:
            key = seen.state.collections[seen.state.names[each.collection]].key
        schema = catalog.schemas(seen.state, (each.exact,))[each.exact]
        for position, field in enumerate(schema, 1):
            yield (
                each.id,
                each.name,
                each.kind,
                field.name,
                position,
                _type_name(field),
                field.nullable,
                key.index(field.name) + 1 if field.name in key else None,
                each.column_comments.get(field.name),
            )


def _type_name(field: pa.Field) -> str:
    try:
        return name_of(field)
    except AdapterError:
        return str(field.type)


def _dependencies(seen: Seen) -> Iterator[Row]:
    known = {each.id: each for each in seen.objects()}
    for each in known.values():
        for oid in each.uses:
            of = known[oid]
            yield (each.id, each.name, each.kind, of.id, of.name, of.kind)


def _indexes(seen: Seen) -> Iterator[Row]:
    known = {each.id: each for each in seen.objects()}
    for each, collection in seen.collections():
        if each.kind == "index":
            on = known[each.uses[0]]
            yield (
                each.id,
                each.name,
                each.kind,
                on.id,
                on.name,
                on.kind,
                ", ".join(collection.key),
            )


VIEWS: Final = (
    SystemView(
        "hw_objects",
        "Everything that has a name.",
        (
            *OBJECT,
            Column("retain_history_ms", "bigint", "how long history is kept for `AS OF`"),
            Column("comment", "text", "what `COMMENT ON` said"),
            Column("create_sql", "text", "the statement that made it"),
            Column("schema_name", "text", "the schema that it is in"),
        ),
        _objects,
    ),
    SystemView(
        "hw_schemas",
        "The schemas, `public` among them.",
        (
            Column("schema_id", "text", "id of the schema; `public` has none"),
            Column("name", "text", "its name now"),
            Column("objects", "bigint", "how many objects are in it"),
            Column("comment", "text", "what `COMMENT ON SCHEMA` said"),
        ),
        _schemas,
    ),
    SystemView(
        "hw_columns",
        "The columns of tables, sources and views.",
        (
            *OBJECT,
            Column("column_name", "text", "name of the column"),
            Column("position", "integer", "its place, from 1"),
            Column("type", "text", "its type, as PostgreSQL calls it"),
            Column("nullable", "boolean", "whether it may be NULL"),
            Column("key_position", "integer", "its place in the primary key, from 1"),
            Column("comment", "text", "what `COMMENT ON COLUMN` said"),
        ),
        _columns,
    ),
    SystemView(
        "hw_dependencies",
        "What is made of what: one row for each object and each that it uses directly.",
        (
            *OBJECT,
            Column("depends_on_id", "text", "id of what it is made of"),
            Column("depends_on", "text", "the name of that"),
            Column("depends_on_kind", "text", "the kind of that"),
        ),
        _dependencies,
    ),
    SystemView(
        "hw_indexes",
        "Indexes, and what they are of. How far one is: `hw_status`, `hw_lag`, `hw_statistics`.",
        (
            *OBJECT,
            Column("on_id", "text", "id of the relation that it is of"),
            Column("on_name", "text", "the name of that"),
            Column("on_kind", "text", "the kind of that"),
            Column("key", "text", "the columns by which rows are found"),
        ),
        _indexes,
    ),
)

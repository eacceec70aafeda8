"""The columns of a collection: names, types of ours, NULL or not; and their Arrow schema.

    columns(arrow_schema(c)) == c

An Arrow type alone cannot tell ``jsonb`` and ``uuid`` from text, also inside an array or a struct,
so a field whose type Arrow does not tell carries it in its metadata under :data:`TYPE`, as text.
Field metadata is stored with the collection's schema and does not take part in comparing types, so
the layers below need not know of it.

Kept by: this module. Relied on by: the adapter, for what a column is called on the wire.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import pyarrow as pa

from headwater.base.decoding import from_json
from headwater.collection.types import SqlType, UnsupportedType, as_text_form, by_arrow, scalar

VOID: Final = scalar("void")

TYPE: Final = b"headwater.type"
"""Key of the field metadata that names the type where Arrow's does not."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column."""

    name: str
    type: SqlType
    nullable: bool = True

    def __post_init__(self) -> None:
        if self.type == VOID and not self.nullable:
            raise UnsupportedType("void NOT NULL", f"give column {self.name!r} a type")


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """Return the Arrow schema in which these columns are stored."""
    return pa.schema([_field(column) for column in columns])


def columns(schema: pa.Schema) -> tuple[Column, ...]:
    """Return the columns stored in this Arrow schema; of ours or anybody's."""
    return tuple(Column(field.name, type_of(field), field.nullable) for field in schema)


def type_of(field: pa.Field) -> SqlType:
    """Return the type of a field: what its metadata says, or what its Arrow type tells."""
    told = by_arrow(field.type)
    kept = (field.metadata or {}).get(TYPE)
    if kept is None:
        return told
    named = from_json(kept, SqlType)
    # Metadata that does not fit the data (a column was cast by somebody) is not believed.
    return named if as_text_form(named) == told else told


def telling(schema: pa.Schema, types: Sequence[SqlType]) -> pa.Schema:
    """Return a schema whose columns tell these types, where Arrow's own are not all of them.

    A type that does not fit its column is not believed; none at all change nothing.
    """
    if not any(as_text_form(type_) != type_ for type_ in types):
        return schema
    fields = [
        _field(Column(field.name, type_, field.nullable))
        if as_text_form(type_) not in (type_, VOID) and as_text_form(type_) == by_arrow(field.type)
        else field
        for field, type_ in zip(schema, types, strict=True)
    ]
    return pa.schema(fields, schema.metadata)


def _field(column: Column) -> pa.Field:
    hidden = as_text_form(column.type) != column.type
    metadata = {TYPE: msgspec.json.encode(column.type)} if hidden else None
    return pa.field(column.name, column.type.arrow, column.nullable, metadata)

"""Schemas of collections as stored bytes, and which changes of a schema are allowed.

A collection's schema is an Arrow schema of its data columns (never the system columns), stored as
IPC bytes. A newer schema may add nullable columns at the end and may make a column nullable;
anything else is refused. Every part names the version it was written in and is read through the
newest: columns it lacks are NULL.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import pyarrow as pa

from headwater.persist.errors import IncompatibleSchema, SchemaMismatch

TIME: Final = "__time"
DIFF: Final = "__diff"
HASH: Final = "__hash"
SYSTEM_COLUMNS: Final = (TIME, DIFF, HASH)

ERROR_SCHEMA: Final = pa.schema(
    [
        pa.field("condition", pa.string(), nullable=False),
        pa.field("message", pa.string(), nullable=False),
        pa.field("context", pa.string()),
    ]
)
"""The rows of the error side of every collection."""


def to_bytes(schema: pa.Schema) -> bytes:
    """Return the stored form of a schema; metadata is not part of it."""
    return bytes(schema.remove_metadata().serialize())


@lru_cache(maxsize=4096)
def from_bytes(data: bytes) -> pa.Schema:
    """Return the schema stored as ``data``."""
    return pa.ipc.read_schema(pa.py_buffer(data))


@lru_cache(maxsize=4096)
def with_system_columns(data: bytes) -> pa.Schema:
    """Return the schema of updates: the data columns, then time and diff."""
    return updates_schema(from_bytes(data))


def updates_schema(schema: pa.Schema) -> pa.Schema:
    """Return ``schema`` with the system columns time and diff behind it."""
    system = [
        pa.field(TIME, pa.int64(), nullable=False),
        pa.field(DIFF, pa.int64(), nullable=False),
    ]
    return pa.schema([*schema, *system])


def same(a: bytes, b: bytes) -> bool:
    """Whether two stored schemas are the same, whatever their bytes."""
    return a == b or bool(from_bytes(a).equals(from_bytes(b)))


def check_new(name: str, schema: bytes, key: tuple[str, ...]) -> None:
    """Refuse a schema that no collection can have."""
    arrow = from_bytes(schema)
    names = arrow.names
    if len(set(names)) != len(names):
        raise SchemaMismatch(name, "two columns have the same name; rename one")
    for column in names:
        if column in SYSTEM_COLUMNS:
            raise SchemaMismatch(name, f"column name {column!r} is reserved; choose another")
    for column in key:
        if column not in names:
            raise SchemaMismatch(name, f"key column {column!r} is not one of {names}")


def check(name: str, old: bytes, new: bytes) -> None:
    """Refuse an incompatible change."""
    before, after = from_bytes(old), from_bytes(new)
    check_new(name, new, ())
    if len(after) < len(before):
        raise IncompatibleSchema(name, "a column was dropped")
    for index, field in enumerate(before):
        other = after.field(index)
        if other.name != field.name or other.type != field.type:
            was, now = (f"{column.name} {column.type}" for column in (field, other))
            raise IncompatibleSchema(name, f"column {index} was {was}, and would be {now}")
        if field.nullable and not other.nullable:
            raise IncompatibleSchema(name, f"column {field.name!r} would become NOT NULL")
    for field in list(after)[len(before) :]:
        if not field.nullable:
            raise IncompatibleSchema(name, f"new column {field.name!r} is NOT NULL")

"""Columns as the protocol describes them: a schema of ours as a collection's projections.

Each column is a field at the pointer of its name. Integers, doubles, booleans and texts are
themselves; what JSON has no type for is a string with a format (decimals, dates, times, UUIDs) or
an encoding (bytes). A column of type ``jsonb`` is any JSON, which our rows have as its text
(:func:`json_columns`). A column that may be NULL has the type ``null`` too.

A field of ours that is no column is :data:`OP`: what became of a row, where that is delivered.

Keys are packed by the same rule (:func:`packable`), so that an endpoint can compare them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headwater.collection.schema import TYPE, type_of
from headwater.materialize.protocol.specs import (
    CollectionSpec,
    Exists,
    Inference,
    Projection,
    StringInference,
)
from headwater.materialize.reduction.value import below
from headwater.materialize.uuids import uuid_texts

OP: Final = "_meta/op"
"""The field that says whether a row was created, updated or deleted: ``c``, ``u`` or ``d``."""


DOCUMENT: Final = {b"headwater": b"document"}
"""The metadata of the column that has whole rows, as the text of a JSON object."""


_ANY: Final = ("array", "boolean", "integer", "null", "number", "object", "string")


def collection_spec(name: str, schema: pa.Schema, key: Sequence[str]) -> CollectionSpec:
    """Return a collection of ours as the protocol describes it."""
    projections = [
        Projection(
            ptr="/_meta/op" if field.name == OP else below("", field.name),
            field=field.name,
            explicit=True,
            is_primary_key=field.name in key,
            inference=inference(field),
        )
        for field in schema
    ]
    return CollectionSpec(
        name=name,
        key=tuple(below("", column) for column in key),
        projections=tuple(sorted(projections, key=lambda projection: projection.field)),
    )


def json_columns(schema: pa.Schema) -> frozenset[str]:
    """Return the columns whose texts are JSON: a document has what they say, and not the text."""
    return frozenset(f.name for f in schema if _form(f) == "jsonb" or f.metadata == DOCUMENT)


def as_text(field: pa.Field) -> pa.Field:
    """Return a column that is plain text, where it was the text of some JSON."""
    return field.remove_metadata() if _form(field) == "jsonb" else field


def _form(field: pa.Field) -> str:
    """Return which type it is that the column's Arrow type does not tell; nothing: it does."""
    return type_of(field).name if TYPE in (field.metadata or {}) else ""


def inference(field: pa.Field) -> Inference:
    """Return what the protocol says of a column."""
    if _form(field) == "jsonb":
        return Inference(types=_ANY, exists=Exists.MUST)
    kind, string = _kind(field.type)
    if _form(field) == "uuid":
        string = StringInference(format="uuid")
    if field.metadata == DOCUMENT:
        kind, string = "object", None
    return Inference(
        types=("null", kind) if field.nullable else (kind,), string=string, exists=Exists.MUST
    )


def _kind(kind: pa.DataType) -> tuple[str, StringInference | None]:
    if pa.types.is_boolean(kind):
        return "boolean", None
    if pa.types.is_integer(kind):
        return "integer", None
    if pa.types.is_floating(kind):
        return "number", None
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return "array", None
    if pa.types.is_struct(kind) or pa.types.is_map(kind):
        return "object", None
    return "string", _string(kind)


def _string(kind: pa.DataType) -> StringInference:
    if pa.types.is_decimal(kind):
        greatest = _greatest(kind)
        return StringInference(
            format="number" if kind.scale else "integer",
            str_minimum=f"-{greatest}",
            str_maximum=greatest,
        )
    if pa.types.is_date(kind):
        return StringInference(format="date")
    if pa.types.is_time(kind):
        return StringInference(format="time")
    if pa.types.is_timestamp(kind):
        # JSON schema has no word for a time of no zone; who does not know ours sees a string.
        return StringInference(format="date-time" if kind.tz else "local-date-time")
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return StringInference(content_encoding="base64")
    return StringInference()


def _greatest(kind: pa.DataType) -> str:
    """Return the greatest value of a decimal type; endpoints can tell its digits from it."""
    whole = "9" * (kind.precision - kind.scale) or "0"
    return f"{whole}.{'9' * kind.scale}" if kind.scale else whole


def packable(column: pa.Array) -> pa.Array:
    """Return a column in a form that packed tuples hold: what has a format becomes its text."""
    kind = column.type
    if pa.types.is_decimal(kind) or pa.types.is_date(kind) or pa.types.is_time(kind):
        return column.cast(pa.string())
    if pa.types.is_timestamp(kind):
        return pc.strftime(column, "%Y-%m-%dT%H:%M:%SZ" if kind.tz else "%Y-%m-%dT%H:%M:%S")
    if kind == pa.uuid():
        return uuid_texts(column)
    if pa.types.is_nested(kind):
        texts = [None if v is None else msgspec.json.encode(v) for v in column.to_pylist()]
        return pa.array(texts, pa.large_binary())
    return column


def times_of_day(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return times of day from their texts: Arrow itself reads only times of some day."""
    dated = pc.binary_join_element_wise("1970-01-01T", texts.cast(pa.string()), "")
    # A text may have more digits than the type, as long as they say nothing.
    return dated.cast(pa.timestamp("ns")).cast(pa.time64("ns")).cast(kind)

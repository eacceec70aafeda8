"""Rows as JSON documents, and back.

A row is an object of its columns. Booleans, integers, doubles, texts, arrays and structs are
themselves; decimals, dates and times are their texts, bytes are base64: what ``projections`` says
of them. NULL is null. Going there and back gives the same row.

Columns of type ``jsonb`` are texts, unless it is said of them that a document has what the text
says: then the text itself stands in the document, and no number of it is read and rounded. That is
what others are told. A JSON null is NULL to them.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal

import msgspec
import pyarrow as pa

from headwater.base.errors import InvalidUsage
from headwater.materialize.joined import joined
from headwater.materialize.projections import packable, times_of_day
from headwater.materialize.reduction.value import Json


class NotARow(InvalidUsage):
    """A document whose values do not fit the columns."""

    def __init__(self, column: str, kind: object, error: object) -> None:
        super().__init__(f"column {column!r} holds a value that is no {kind}: {error}")


def to_documents(rows: pa.Table, json: Collection[str] = ()) -> list[dict[str, Json]]:
    """Return each row as a document; ``json``: which columns, where they are texts, are JSON."""
    names = rows.column_names
    columns = [
        _embedded(name, joined(column))
        if name in json and is_text(column.type)
        else _values(joined(column))
        for name, column in zip(names, rows.columns, strict=True)
    ]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _values(array: pa.Array) -> list[Json]:
    binary = pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type)
    plain = array if binary or pa.types.is_nested(array.type) else packable(array)
    values: list[Json] = plain.to_pylist()
    if binary:
        return [None if value is None else base64.b64encode(value).decode() for value in values]
    return values


def is_text(kind: pa.DataType) -> bool:
    """Return whether values are texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _embedded(name: str, texts: pa.Array) -> list[Json]:
    """Return texts that stand in a document as they are, after a look whether they are JSON."""
    values: list[Json] = [None if t is None else msgspec.Raw(t.encode()) for t in texts.to_pylist()]
    try:
        for value in values:
            if value is not None:
                msgspec.json.decode(value)
    except msgspec.DecodeError as error:
        raise NotARow(name, "JSON", error) from error
    return values


def to_rows(documents: Sequence[Mapping[str, Json]], schema: pa.Schema) -> pa.Table:
    """Return documents as rows; what a document lacks is NULL."""
    columns = [_column([d.get(field.name) for d in documents], field) for field in schema]
    return pa.table(dict(zip(schema.names, columns, strict=True))) if columns else pa.table({})


def _column(values: list[Json], field: pa.Field) -> pa.Array:
    kind = field.type
    try:
        if pa.types.is_decimal(kind):
            return pa.array([None if v is None else Decimal(str(v)) for v in values], kind)
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            decoded = [None if v is None else base64.b64decode(v) for v in values]
            return pa.array(decoded, kind)
        if pa.types.is_timestamp(kind):
            zoned = pa.timestamp(kind.unit, "UTC") if kind.tz else kind
            return pa.array(values, pa.string()).cast(zoned).cast(kind)
        if pa.types.is_time(kind):
            return times_of_day(pa.array(values, pa.string()), kind)
        if pa.types.is_date(kind):
            return pa.array(values, pa.string()).cast(kind)
        return pa.array(values, kind)
    except (ArithmeticError, ValueError, TypeError, pa.ArrowException) as error:
        raise NotARow(field.name, kind, error) from error

"""Rows as PostgreSQL's binary COPY has them: from Arrow's columns, without an object per value.

pgpq encodes whole record batches; each column is first brought into the Arrow type that is written
as the table's own type of it (``typed_rows``). Only a decimal of which nobody says how many digits
it has cannot be given a type: then :func:`encoded` returns nothing, and the rows are written one by
one.

A table made by somebody else may have columns of fewer digits than our values: PostgreSQL would
round, and we refuse the value (:func:`fitting` where rows are written one by one).

Kept by: :func:`encoded`; tests let values of every type go through a real server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from pgpq import ArrowToPostgresBinaryEncoder
from pgpq.encoders import StringEncoderBuilder
from pgpq.schema import Jsonb

from headwater.materialize.drivers.columns import Column
from headwater.materialize.drivers.typed_rows import stored, typed
from headwater.materialize.joined import joined

_ARROW: Final[Mapping[str, pa.DataType]] = {
    "bool": pa.bool_(),
    "int8": pa.int64(),
    "float8": pa.float64(),
    "text": pa.string(),
    "varchar": pa.string(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "timestamp": pa.timestamp("us"),
    "json": pa.string(),
    "jsonb": pa.string(),
    "uuid": pa.uuid(),
}
"""By PostgreSQL's name of a type, what is written as it."""

_WHOLE: Final = pa.decimal128(38, 0)
_NUMERIC: Final = re.compile(r"numeric(?:\(\d+,(-?\d+)\))?")


def encoded(
    columns: Sequence[tuple[Column, str]],
    rows: pa.Table,
    flags: Sequence[tuple[str, pa.BooleanArray]],
) -> Iterator[bytes] | None:
    """Return rows, and flags behind them, in pieces of COPY's stream; ``None`` if they cannot be.

    Raises ``OverflowError`` for a value that does not fit.
    """
    arrays: list[pa.Array] = []
    for column, native in columns:
        array = joined(rows.column(column.name))
        kind = _type(column, native, array)
        if kind is None:
            return None
        try:
            # Of what type bytes are, the stream does not say: those of a UUID are one.
            arrays.append(stored(typed(array, kind)))
        except pa.ArrowInvalid as error:
            reason = f"a value of column {column.name} does not fit {native}: {error}"
            raise OverflowError(reason) from error
    fields = [pa.field(c.name, a.type) for (c, _), a in zip(columns, arrays, strict=True)]
    fields += [pa.field(name, pa.bool_()) for name, _ in flags]
    schema = pa.schema(fields)
    batch = pa.record_batch([*arrays, *(flag for _, flag in flags)], schema=schema)
    natives = [*(native for _, native in columns), *("bool" for _ in flags)]
    return _stream(_encoder(schema, natives), batch)


def _stream(encoder: ArrowToPostgresBinaryEncoder, batch: pa.RecordBatch) -> Iterator[bytes]:
    yield encoder.write_header()
    yield encoder.write_batch(batch)
    yield encoder.finish()


def _encoder(schema: pa.Schema, natives: Sequence[str]) -> ArrowToPostgresBinaryEncoder:
    builders: dict[str, Any] = {}
    for field, native in zip(schema, natives, strict=True):
        builders[field.name] = (
            StringEncoderBuilder.new_with_output(field, Jsonb())
            if native == "jsonb"
            else ArrowToPostgresBinaryEncoder.infer_encoder(field)
        )
    return ArrowToPostgresBinaryEncoder.new_with_encoders(schema, builders)


def fitting(column: Column, native: str, value: Decimal) -> Decimal:
    """Return a number that a column of this type holds as it is, or raise ``OverflowError``."""
    scale = _scale(native)
    exponent = value.normalize().as_tuple().exponent
    if scale is not None and isinstance(exponent, int) and -exponent > scale:
        reason = f"a value of column {column.name} does not fit {native}: {value} would be rounded"
        raise OverflowError(reason)
    return value


def _type(column: Column, native: str, array: pa.Array) -> pa.DataType | None:
    if not _NUMERIC.fullmatch(native):
        return _ARROW.get(native.partition("(")[0])
    if pa.types.is_decimal128(array.type):
        ours: pa.DataType = array.type
    elif pa.types.is_integer(array.type):
        ours = _WHOLE
    elif column.digits is not None:
        ours = pa.decimal128(*column.digits)
    else:
        return None
    scale = _scale(native)
    # Too many digits before the point are refused by the server, behind it by the cast to this.
    return ours if scale is None or ours.scale <= scale else pa.decimal128(38, scale)


def _scale(native: str) -> int | None:
    """Return how many digits a type has behind the point, if that is limited."""
    numeric = _NUMERIC.fullmatch(native)
    return None if numeric is None or numeric[1] is None else int(numeric[1])

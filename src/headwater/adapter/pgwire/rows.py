"""Rows of a result as DataRow messages, some at a time.

:class:`RowStream` pulls batches from a :class:`~.backend.Result` as the client takes rows, so
that memory is bounded by a batch and not by the result. It is used by one thread at a time (the
connection's worker); a stream that ended, or was closed, holds no batch.

Text by our own output functions (:mod:`headwater.adapter.sql.text`), column by column; binary by
pg-mimic's codecs, which take Python values.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pg_mimic.types import encode_value_binary

from headwater.adapter.pgwire.backend import Column, Result
from headwater.adapter.sql import text
from headwater.adapter.sql.types import (
    BOOL,
    BYTEA,
    DATE,
    FLOAT4,
    FLOAT8,
    INT2,
    INT4,
    INT8,
    NUMERIC,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    WireType,
    wire_type,
)

TEXT_FORMAT, BINARY_FORMAT = 0, 1

_INT16 = struct.Struct("!h")
_INT32 = struct.Struct("!i")
_NULL_FIELD = _INT32.pack(-1)

_BY_ARROW = frozenset({INT2.oid, INT4.oid, INT8.oid, DATE.oid, TEXT.oid})
_BY_VALUE: dict[int, Callable[[Any], str]] = {
    BOOL.oid: text.boolean_to_text,
    BYTEA.oid: text.bytea_to_text,
    FLOAT4.oid: lambda value: text.float_to_text(value, size=4),
    FLOAT8.oid: text.float_to_text,
    NUMERIC.oid: text.numeric_to_text,
    TIMESTAMP.oid: text.timestamp_to_text,
    TIMESTAMPTZ.oid: text.timestamp_to_text,
}


class RowStream:
    """The rows of one result that have not been sent yet."""

    def __init__(self, result: Result) -> None:
        assert result.columns is not None, "a result without columns has no rows"
        self._columns: tuple[Column, ...] = result.columns
        self._wire = tuple(wire_type(column.type) for column in result.columns)
        self._batches: Iterator[pa.RecordBatch] = iter(result.batches)
        self._current: pa.RecordBatch | None = None

    def take(self, rows_max: int, formats: Sequence[int]) -> tuple[bytes, int]:
        """At most ``rows_max`` rows as messages, and their number; 0 means that it is over."""
        assert rows_max > 0
        while self._current is None or self._current.num_rows == 0:
            self._current = next(self._batches, None)
            if self._current is None:
                return b"", 0
        taken = self._current.slice(0, rows_max)
        self._current = self._current.slice(taken.num_rows)
        return self._encode(taken, formats), taken.num_rows

    def close(self) -> None:
        """Let go of what has not been taken; a generator behind it ends here."""
        self._current = None
        batches, self._batches = self._batches, iter(())
        close = getattr(batches, "close", None)
        if close is not None:
            close()

    def _encode(self, batch: pa.RecordBatch, formats: Sequence[int]) -> bytes:
        assert batch.num_columns == len(self._columns), "a batch has the columns of its result"
        fields = [
            _fields(array, wire, format_of(formats, index))
            for index, (array, wire) in enumerate(zip(batch.columns, self._wire, strict=True))
        ]
        width = _INT16.pack(len(fields))
        messages: list[bytes] = []
        for row in zip(*fields, strict=True) if fields else ((),) * batch.num_rows:
            payload = width + b"".join(row)
            messages += (b"D", _INT32.pack(len(payload) + 4), payload)
        return b"".join(messages)


def format_of(formats: Sequence[int], index: int) -> int:
    """The format of a column: none given means text, one means all."""
    if not formats:
        return TEXT_FORMAT
    return formats[0] if len(formats) == 1 else formats[index]


def _fields(array: pa.Array, wire: WireType, form: int) -> list[bytes]:
    """Every value with its length before it, as it stands in a DataRow."""
    if pa.types.is_timestamp(array.type) and array.type.unit == "ns":
        array = array.cast(pa.timestamp("us", array.type.tz), safe=False)
    if form == BINARY_FORMAT:
        values = [
            None if value is None else encode_value_binary(wire.oid, value)
            for value in array.to_pylist()
        ]
    elif wire.oid in _BY_ARROW:
        values = pc.cast(pc.cast(array, pa.string()), pa.binary()).to_pylist()
    else:
        write = _BY_VALUE[wire.oid]
        values = [None if value is None else write(value).encode() for value in array.to_pylist()]
    return [_NULL_FIELD if value is None else _INT32.pack(len(value)) + value for value in values]

"""Rows → the CopyData messages of a COPY to the client, some rows at a time.

One message per row, as PostgreSQL sends them: clients (psycopg's ``rows()``) rely on it although
the protocol does not promise it. The batches come through the same
:class:`~.rows.RowStream` as the rows of a query, so one loop sends both, under one backpressure.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from headwater.adapter.pgwire import messages
from headwater.adapter.pgwire.backend import Column
from headwater.adapter.pgwire.binary_form import to_binary
from headwater.adapter.pgwire.copy_format import CopyFormat
from headwater.adapter.pgwire.text_form import to_text
from headwater.collection.types import SqlType

BINARY_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\0"
_BINARY_HEADER: Final = BINARY_SIGNATURE + struct.pack("!ii", 0, 0)
_BINARY_TRAILER: Final = struct.pack("!h", -1)

_INT16 = struct.Struct("!h")
_INT32 = struct.Struct("!i")
_NULL_FIELD = _INT32.pack(-1)
_ESCAPES: Final = {
    b"\b": b"\\b", b"\f": b"\\f", b"\n": b"\\n", b"\r": b"\\r", b"\t": b"\\t", b"\v": b"\\v",
    b"\\": b"\\\\",
}  # fmt: skip


class CopyEncoder:
    """Batches as CopyData messages; a header first and a trailer last if the format has them."""

    def __init__(self, columns: Sequence[Column], chosen: CopyFormat) -> None:
        self._names = [column.name for column in columns]
        self._types: list[SqlType] = [column.sent_as for column in columns]
        self._format = chosen
        self._null = chosen.null.encode()
        self._delimiter = chosen.delimiter.encode()
        self._special = re.compile(b"[\b\f\n\r\t\v\\\\" + re.escape(self._delimiter) + b"]")
        self._quoted = re.compile(
            b"[\n\r" + re.escape(self._delimiter + chosen.quote.encode()) + b"]"
        )
        # PostgreSQL sends the header of a binary COPY in one message with its first row.
        self._pending = _BINARY_HEADER if chosen.is_binary else b""

    def begin(self) -> bytes:
        """What precedes the first row, as messages."""
        if self._format.header == "no":
            return b""
        if self._format.kind == "csv":
            names = [self._csv(name.encode(), forced=False) for name in self._names]
        else:
            names = [self._escaped(name.encode()) for name in self._names]
        return messages.copy_data(self._delimiter.join(names) + b"\n")

    def encode(self, batch: pa.RecordBatch) -> bytes:
        """Some rows, as messages."""
        fields = [
            self._fields(array, type_, name)
            for array, type_, name in zip(batch.columns, self._types, self._names, strict=True)
        ]
        rows = zip(*fields, strict=True) if fields else iter(((),) * batch.num_rows)
        if self._format.is_binary:
            width = _INT16.pack(len(fields))
            lines = [width + b"".join(row) for row in rows]
            if lines:
                lines[0], self._pending = self._pending + lines[0], b""
        else:
            delimiter = self._delimiter
            lines = [delimiter.join(row) + b"\n" for row in rows]
        pieces: list[bytes] = []
        for line in lines:
            pieces += (messages.COPY_DATA, _INT32.pack(len(line) + 4), line)
        return b"".join(pieces)

    def end(self) -> bytes:
        """What follows the last row, as messages."""
        if not self._format.is_binary:
            return b""
        return messages.copy_data(self._pending + _BINARY_TRAILER)

    def _fields(self, array: pa.Array, type_: SqlType, name: str) -> list[bytes]:
        if self._format.is_binary:
            return [
                _NULL_FIELD if value is None else _INT32.pack(len(value)) + value
                for value in to_binary(array, type_)
            ]
        values = to_text(array, type_)
        if self._format.kind == "csv":
            force = self._format.force_quote
            forced = force == "*" or name in force
            return [
                self._null if value is None else self._csv(value, forced=forced) for value in values
            ]
        return [self._null if value is None else self._escaped(value) for value in values]

    def _escaped(self, value: bytes) -> bytes:
        if self._special.search(value) is None:
            return value
        return self._special.sub(lambda found: _ESCAPES.get(found[0], b"\\" + found[0]), value)

    def _csv(self, value: bytes, *, forced: bool) -> bytes:
        alone = len(self._names) == 1 and value == b"\\."  # It would look like the end of the data.
        if not (forced or alone or value == self._null or self._quoted.search(value)):
            return value
        quote, escape = self._format.quote.encode(), self._format.escape.encode()
        if escape != quote:
            value = value.replace(escape, escape + escape)
        return quote + value.replace(quote, escape + quote) + quote

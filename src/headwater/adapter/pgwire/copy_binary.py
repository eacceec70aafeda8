"""COPY's binary format, read: a header, counted fields, a trailer."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from headwater.adapter.pgwire.backend import Column
from headwater.adapter.pgwire.binary_form import from_binary
from headwater.adapter.pgwire.copy_lines import ROW_BYTES_MAX, record_batch
from headwater.adapter.pgwire.copy_out import BINARY_SIGNATURE
from headwater.adapter.pgwire.refusals import BadCopyData

_TRAILER: Final = b"\xff\xff"
_INT16 = struct.Struct("!h")
_INT32 = struct.Struct("!i")


class BinaryDecoder:
    """Rows of COPY's binary format."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = tuple(columns)
        self._left = b""
        self._retry_bytes = 0
        self._header_due = True
        self._ended = False

    def feed(self, piece: bytes) -> pa.RecordBatch | None:
        """The rows that this piece completes."""
        if self._ended:
            if piece:
                raise BadCopyData("received copy data after EOF marker")
            return None
        self._left += piece
        if len(self._left) < self._retry_bytes:
            return None
        at = self._header() if self._header_due else 0
        rows: list[list[bytes | None]] = []
        while (found := self._row(at)) is not None:
            row, at = found
            rows.append(row)
        if not self._header_due and self._left[at : at + 2] == _TRAILER:
            self._ended = True
            at += len(_TRAILER)
        self._left = self._left[at:]
        if self._ended and self._left:
            raise BadCopyData("received copy data after EOF marker")
        if len(self._left) > ROW_BYTES_MAX:
            raise BadCopyData(f"a row has more than {ROW_BYTES_MAX} bytes")
        self._retry_bytes = 2 * len(self._left)
        return self._batch(rows)

    def finish(self) -> pa.RecordBatch | None:
        """The rows that the end of the data completes."""
        self._retry_bytes = 0
        batch = self.feed(b"")
        if self._header_due:
            raise BadCopyData("COPY file signature not recognized")
        if self._left:
            raise BadCopyData("unexpected EOF in COPY data")
        return batch

    def _header(self) -> int:
        fixed = len(BINARY_SIGNATURE) + 8
        if not BINARY_SIGNATURE.startswith(self._left[: len(BINARY_SIGNATURE)]):
            raise BadCopyData("COPY file signature not recognized")
        if len(self._left) < fixed:
            return 0
        flags, extension = struct.unpack_from("!Ii", self._left, len(BINARY_SIGNATURE))
        if flags >> 16:
            raise BadCopyData("unrecognized critical flags in COPY file header")
        if extension < 0:
            raise BadCopyData("invalid COPY file header (missing length)")
        if len(self._left) < fixed + extension:
            return 0
        self._header_due = False
        return int(fixed + extension)

    def _row(self, at: int) -> tuple[list[bytes | None], int] | None:
        """A row and where it ends; None if it is not all here, or the trailer is."""
        data = self._left
        if self._header_due or at + 2 > len(data):
            return None
        (count,) = _INT16.unpack_from(data, at)
        at += 2
        if count == -1:
            return None
        if count != len(self._columns):
            raise BadCopyData(f"row field count is {count}, expected {len(self._columns)}")
        row: list[bytes | None] = []
        for _ in range(count):
            if at + 4 > len(data):
                return None
            (length,) = _INT32.unpack_from(data, at)
            at += 4
            if length == -1:
                row.append(None)
                continue
            if length < 0:
                raise BadCopyData("invalid field size")
            if at + length > len(data):
                return None
            row.append(data[at : at + length])
            at += length
        return row, at

    def _batch(self, rows: list[list[bytes | None]]) -> pa.RecordBatch | None:
        if not rows:
            return None
        arrays = [
            from_binary(values, column.sent_as)
            for column, values in zip(self._columns, zip(*rows, strict=True), strict=True)
        ]
        return record_batch(self._columns, arrays, len(rows))

"""What the text and CSV formats of COPY share: lines counted, the header, rows into columns.

:class:`Lines` keeps what is not a whole row yet; a format says what the rows of a text are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from headwater.adapter.errors import AdapterError
from headwater.adapter.pgwire.backend import Column
from headwater.adapter.pgwire.copy_format import CopyFormat
from headwater.adapter.pgwire.refusals import BadCopyData, InvalidEncoding
from headwater.adapter.pgwire.text_form import from_text, one_from_text
from headwater.collection.types import SqlType

ROW_BYTES_MAX: Final = 64 << 20
END_MARK: Final = "\\."


class Lines(ABC):
    """What text and CSV share: decoding, lines counted, the header, rows into columns."""

    def __init__(self, columns: Sequence[Column], chosen: CopyFormat) -> None:
        self._columns = tuple(columns)
        self._format = chosen
        self._left = b""
        self._retry_bytes = 0
        self._line = 0
        self._header_due = chosen.header != "no"
        self._ended = False

    def feed(self, piece: bytes) -> pa.RecordBatch | None:
        """The rows that this piece completes."""
        if self._ended:
            return None  # After `\.` nothing counts.
        self._left += piece
        if len(self._left) < self._retry_bytes:
            return None
        cut = self._left.rfind(b"\n") + 1
        rows: list[Sequence[str | None]] = []
        if cut:
            text = decoded(self._left[:cut])
            rows, used = self._rows(text, last=False)
            consumed = cut if used == len(text) else len(text[:used].encode())
            self._left = self._left[consumed:]
        if len(self._left) > ROW_BYTES_MAX:
            raise BadCopyData(f"a row has more than {ROW_BYTES_MAX} bytes")
        # An unfinished quoted field is read again from its start: not before it has doubled.
        self._retry_bytes = 2 * len(self._left)
        return self._batch(rows)

    def finish(self) -> pa.RecordBatch | None:
        """The rows that the end of the data completes."""
        left, self._left = self._left, b""
        if self._ended or not left:
            return None
        rows, _ = self._rows(decoded(left), last=True)
        return self._batch(rows)

    @abstractmethod
    def _rows(self, text: str, *, last: bool) -> tuple[list[Sequence[str | None]], int]:
        """The rows of the text, and how much of it they are."""

    def _batch(self, rows: list[Sequence[str | None]]) -> pa.RecordBatch | None:
        if self._header_due and rows:
            self._check_header(rows.pop(0))
            self._header_due = False
            self._line += 1
        if not rows:
            return None
        width = len(self._columns)
        if set(map(len, rows)) != {width}:
            self._complain_of_width(rows, width)
        values = list(zip(*rows, strict=True)) if width else []
        arrays = []
        for column, texts in zip(self._columns, values, strict=True):
            try:
                arrays.append(from_text(texts, column.sent_as))
            except AdapterError as error:
                raise self._located(error, column, texts) from None
        self._line += len(rows)
        return record_batch(self._columns, arrays, len(rows))

    def _complain_of_width(self, rows: list[Sequence[str | None]], width: int) -> None:
        for index, row in enumerate(rows):
            where = f"Line {self._line + index + 1}."
            if len(row) < width:
                missing = self._columns[len(row)].name
                raise BadCopyData(f'missing data for column "{missing}"', detail=where)
            if len(row) > width:
                raise BadCopyData("extra data after last expected column", detail=where)

    def _check_header(self, names: Sequence[str | None]) -> None:
        if self._format.header != "match":
            return
        wanted = [column.name for column in self._columns]
        if list(names) != wanted:
            raise BadCopyData(
                "column name mismatch in header line",
                detail=f"It has {', '.join(map(str, names))} where {', '.join(wanted)} is wanted.",
            )

    def _located(
        self, error: AdapterError, column: Column, texts: Sequence[str | None]
    ) -> AdapterError:
        """The error with the line of the value that it is about."""
        type_: SqlType = column.sent_as
        for index, text in enumerate(texts):
            try:
                if text is not None:
                    one_from_text(text, type_)
            except AdapterError as found:
                found.detail = found.detail or (
                    f"Line {self._line + index + 1}, column {column.name}."
                )
                return found
        return error


def decoded(data: bytes) -> str:
    """The text of the bytes."""
    if b"\0" in data:
        raise InvalidEncoding
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidEncoding from None


def record_batch(columns: Sequence[Column], arrays: list[pa.Array], rows: int) -> pa.RecordBatch:
    """The arrays as a batch of exactly these columns."""
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
    cast = [array.cast(column.type) for array, column in zip(arrays, columns, strict=True)]
    return pa.RecordBatch.from_arrays(cast, names=[column.name for column in columns])

"""Rows of a result, pulled batch by batch as the client takes them, and their DataRow messages.

A :class:`RowStream` holds one batch: memory is bounded by a batch and not by the result. It is used
by one thread at a time (the connection's worker); a stream that ended, or was closed, holds none.

A batch without rows says *nothing yet*: the stream hands it on as a piece without rows, so that
whoever sends looks whether it has been cancelled. A source that waits should give one now and then.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from headwater.adapter.errors import ProtocolError
from headwater.adapter.pgwire import messages
from headwater.adapter.pgwire.backend import Column, Passed
from headwater.adapter.pgwire.binary_form import to_binary
from headwater.adapter.pgwire.passed_form import passed_to_binary
from headwater.adapter.pgwire.text_form import to_text
from headwater.adapter.pgwire.wire_types import modifier_of, size_of
from headwater.collection.types import SqlType

TEXT_FORMAT, BINARY_FORMAT = 0, 1

PIECE_ROWS_MAX: Final = 1_000
PIECE_BYTES: Final = 1 << 20
"""About what one write to the socket has; a single row may have more."""

SMALL_ROWS: Final = 16
SMALL_BYTES: Final = 4_096
"""What takes the event loop no longer than to ask somebody else would."""

_INT16 = struct.Struct("!h")
_INT32 = struct.Struct("!i")
_NULL_FIELD = _INT32.pack(-1)

Encode = Callable[[pa.RecordBatch], bytes]


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows as messages, their number, and whether they were the last."""

    data: bytes
    rows: int
    ended: bool


class RowStream:
    """The rows of one result that have not been sent yet."""

    def __init__(self, columns: tuple[Column, ...], batches: Iterable[pa.RecordBatch]) -> None:
        self.columns = columns
        # Of a list the end is known without asking, which saves the client a round of threads.
        known = batches if isinstance(batches, list | tuple) else None
        self._known_left = None if known is None else len(known)
        self.is_small = known is not None and _are_small(known)
        """Whether all of it is here, and so little that it is sent without a round of threads."""
        self._batches: Iterator[pa.RecordBatch] = iter(batches)
        self._current: pa.RecordBatch | None = None

    def take(self, rows_max: int, encode: Encode) -> Piece:
        """The next rows, at most ``rows_max`` and about :data:`PIECE_BYTES`."""
        assert rows_max > 0
        if self._current is None or self._current.num_rows == 0:
            self._current = next(self._batches, None)
            if self._current is None:
                return Piece(b"", 0, ended=True)
            if self._known_left is not None:
                self._known_left -= 1
        batch = self._current
        if batch.num_rows == 0:
            return Piece(b"", 0, ended=self._known_left == 0)
        assert batch.num_columns == len(self.columns), "a batch has the columns of its result"
        row_bytes = max(1, batch.nbytes // batch.num_rows)
        taken = batch.slice(0, max(1, min(rows_max, PIECE_ROWS_MAX, PIECE_BYTES // row_bytes)))
        self._current = batch.slice(taken.num_rows)
        ended = self._current.num_rows == 0 and self._known_left == 0
        return Piece(encode(taken), taken.num_rows, ended)

    def pass_over(self, rows_max: int | None) -> int:
        """Take the next rows, all of them if None, and nothing of them; how many there were."""
        passed = 0
        while rows_max is None or passed < rows_max:
            room = PIECE_ROWS_MAX if rows_max is None else rows_max - passed
            piece = self.take(room, lambda _: b"")
            passed += piece.rows
            if piece.ended:
                break
        return passed

    @property
    def is_over(self) -> bool:
        """Whether everything has been taken, so that nothing is left to let go of."""
        return self._known_left == 0 and (self._current is None or self._current.num_rows == 0)

    def all_rows(self) -> Iterator[tuple[str | None, ...]]:
        """What has not been taken, of columns that are texts."""
        for batch in self._batches:
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    def first_text(self) -> str | None:
        """The first value of the first row, if there is one."""
        return next((row[0] for row in self.all_rows()), None)

    def close(self) -> None:
        """Let go of what has not been taken; a generator behind it ends here."""
        self._current = None
        self._known_left = 0
        batches, self._batches = self._batches, iter(())
        close = getattr(batches, "close", None)
        if close is not None:
            close()


def _are_small(batches: Sequence[pa.RecordBatch]) -> bool:
    if sum(batch.num_rows for batch in batches) > SMALL_ROWS:
        return False
    return bool(sum(batch.nbytes for batch in batches) <= SMALL_BYTES)


def row_encoder(columns: Sequence[Column], formats: Sequence[int]) -> Encode:
    """Batches of these columns as DataRow messages, in these formats."""
    passed = [column.passed for column in columns]
    types = [column.sent_as for column in columns]
    chosen = [format_of(formats, index) for index in range(len(types))]

    def encode(batch: pa.RecordBatch) -> bytes:
        fields = [
            _fields(array, type_, form, told)
            for array, type_, form, told in zip(batch.columns, types, chosen, passed, strict=True)
        ]
        width = _INT16.pack(len(fields))
        pieces: list[bytes] = []
        for row in zip(*fields, strict=True) if fields else ((),) * batch.num_rows:
            payload = width + b"".join(row)
            pieces += (messages.DATA_ROW, _INT32.pack(len(payload) + 4), payload)
        return b"".join(pieces)

    return encode


def row_description(columns: Sequence[Column], formats: Sequence[int]) -> bytes:
    """The RowDescription of these columns, in these formats."""
    if len(formats) > 1 and len(formats) != len(columns):
        raise ProtocolError(
            f"bind message has {len(formats)} result formats but query has {len(columns)} columns"
        )
    fields = []
    for index, column in enumerate(columns):
        type_ = column.sent_as
        told = column.passed or Passed(type_.oid, size_of(type_), modifier_of(type_))
        form = format_of(formats, index)
        fields.append(messages.Field(column.name, told.oid, told.size, told.modifier, form))
    return messages.row_description(fields)


def format_of(formats: Sequence[int], index: int) -> int:
    """The format of a column: none given means text, one means all."""
    if not formats:
        return TEXT_FORMAT
    if len(formats) == 1:
        return formats[0]
    if index >= len(formats):
        raise ProtocolError(f"bind message has {len(formats)} formats, too few")
    return formats[index]


def _fields(array: pa.Array, type_: SqlType, form: int, passed: Passed | None) -> list[bytes]:
    """Every value with its length before it, as it stands in a DataRow."""
    if form != BINARY_FORMAT:
        values = to_text(array, type_)
    elif passed is None:
        values = to_binary(array, type_)
    else:
        values = passed_to_binary(array.to_pylist(), passed.oid)
    return [_NULL_FIELD if value is None else _INT32.pack(len(value)) + value for value in values]

"""The bytes of a COPY from the client → Arrow batches, as they arrive.

A :class:`CopyDecoder` is fed pieces whose borders mean nothing and gives batches of whole rows.
What it holds between two calls is one incomplete row, at most :data:`ROW_BYTES_MAX`; so the memory
of a COPY is bounded by the piece and the row, never by the whole.

The three formats are PostgreSQL's: escapes, ``\\N``, ``\\.`` and line ends in text; quotes anywhere
in a field, and an unquoted empty field being NULL, in CSV; header, counts and trailer in binary.
What is wrong is refused with its line, as PostgreSQL does in its context.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import Final, Protocol

import pyarrow as pa

from headwater.adapter.errors import AdapterError
from headwater.adapter.pgwire.backend import Column
from headwater.adapter.pgwire.binary_form import from_binary
from headwater.adapter.pgwire.copy_format import CopyFormat
from headwater.adapter.pgwire.copy_out import BINARY_SIGNATURE
from headwater.adapter.pgwire.refusals import BadCopyData
from headwater.adapter.pgwire.text_form import from_text, one_from_text
from headwater.collection.types import SqlType

ROW_BYTES_MAX: Final = 64 << 20

_END_MARK: Final = "\\."
_UNESCAPED: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_TRAILER: Final = b"\xff\xff"
_INT16 = struct.Struct("!h")
_INT32 = struct.Struct("!i")


class InvalidEncoding(AdapterError):
    """Bytes that are no text."""

    condition = "CHARACTER_NOT_IN_REPERTOIRE"
    sqlstate = "22021"

    def __init__(self) -> None:
        super().__init__('invalid byte sequence for encoding "UTF8"')


class CopyDecoder(Protocol):
    """Pieces in, batches of whole rows out."""

    def feed(self, piece: bytes) -> pa.RecordBatch | None:
        """The rows that this piece completes."""
        ...

    def finish(self) -> pa.RecordBatch | None:
        """The rows that the end of the data completes."""
        ...


def decoder(columns: Sequence[Column], chosen: CopyFormat) -> CopyDecoder:
    """A decoder of rows with these columns."""
    if chosen.is_binary:
        return _Binary(columns)
    return _Csv(columns, chosen) if chosen.kind == "csv" else _Text(columns, chosen)


class _Lines:
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
        if self._ended:
            return None  # After `\.` nothing counts.
        self._left += piece
        if len(self._left) < self._retry_bytes:
            return None
        cut = self._left.rfind(b"\n") + 1
        rows: list[Sequence[str | None]] = []
        if cut:
            text = _decoded(self._left[:cut])
            rows, used = self._rows(text, last=False)
            consumed = cut if used == len(text) else len(text[:used].encode())
            self._left = self._left[consumed:]
        if len(self._left) > ROW_BYTES_MAX:
            raise BadCopyData(f"a row has more than {ROW_BYTES_MAX} bytes")
        # An unfinished quoted field is read again from its start: not before it has doubled.
        self._retry_bytes = 2 * len(self._left)
        return self._batch(rows)

    def finish(self) -> pa.RecordBatch | None:
        left, self._left = self._left, b""
        if self._ended or not left:
            return None
        rows, _ = self._rows(_decoded(left), last=True)
        return self._batch(rows)

    def _rows(self, text: str, *, last: bool) -> tuple[list[Sequence[str | None]], int]:
        """The rows of the text, and how much of it they are."""
        raise NotImplementedError

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
        return _record_batch(self._columns, arrays, len(rows))

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


class _Text(_Lines):
    def _rows(self, text: str, *, last: bool) -> tuple[list[Sequence[str | None]], int]:
        while not last and _is_open(text[:-1]):
            text = text[: text.rfind("\n", 0, len(text) - 1) + 1]  # The rest of it is to come.
        used = len(text)
        if not used:
            return [], 0
        if "\r" in text:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.split("\n")
        if not lines[-1]:
            lines.pop()
        elif not last:
            raise AssertionError("a piece is cut after a line")
        has_escapes = "\\" in text
        if has_escapes:
            lines = _joined(lines)
            if _END_MARK in lines:
                self._ended = True
                lines = lines[: lines.index(_END_MARK)]
        delimiter, null = self._format.delimiter, self._format.null
        rows: list[Sequence[str | None]] = []
        for line in lines:
            fields: list[str | None] = list(_cut(line, delimiter, has_escapes))
            if null in fields:
                fields = [None if field == null else field for field in fields]
            if has_escapes and "\\" in line:
                fields = [
                    field if field is None or "\\" not in field else _unescaped(field)
                    for field in fields
                ]
            # A table of one column has lines without delimiter; of none, empty lines.
            rows.append(() if not self._columns and fields == [""] else fields)
        return rows, used


def _is_open(text: str) -> bool:
    """Whether what follows is data: an odd number of backslashes stands before it."""
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1


def _joined(lines: list[str]) -> list[str]:
    """A backslash before the end of a line means the line goes on."""
    joined: list[str] = []
    open_line: list[str] = []
    for line in lines:
        open_line.append(line)
        if not _is_open(line):
            joined.append("\n".join(open_line))
            open_line = []
    if open_line:
        joined.append("\n".join(open_line))
    return joined


def _cut(line: str, delimiter: str, has_escapes: bool) -> list[str]:
    """The fields of a line; a delimiter after an odd number of backslashes is data."""
    fields = line.split(delimiter)
    if not has_escapes or "\\" + delimiter not in line:
        return fields
    whole: list[str] = []
    open_field: list[str] = []
    for field in fields:
        open_field.append(field)
        if not _is_open(field):
            whole.append(delimiter.join(open_field))
            open_field = []
    if open_field:
        whole.append(delimiter.join(open_field))
    return whole


def _unescaped(field: str) -> str:
    return _ESCAPE.sub(_escape_meaning, field)


def _escape_meaning(found: re.Match[str]) -> str:
    octal, hexadecimal, other = found.groups()
    if octal is not None or hexadecimal is not None:
        byte = int(octal, 8) & 0xFF if octal is not None else int(hexadecimal, 16)
        if byte == 0 or byte > 0x7F:
            # Bytes of a longer character would have to be joined across escapes: nobody writes so.
            raise InvalidEncoding
        return chr(byte)
    return _UNESCAPED.get(other, str(other))


class _Csv(_Lines):
    def __init__(self, columns: Sequence[Column], chosen: CopyFormat) -> None:
        super().__init__(columns, chosen)
        quote, escape = re.escape(chosen.quote), re.escape(chosen.escape)
        delimiter = re.escape(chosen.delimiter)
        if chosen.escape == chosen.quote:
            inside = f"(?:[^{quote}]|{quote}{quote})*+"
            self._doubled = re.compile(f"{quote}({quote})")
        else:
            inside = (
                f"(?:[^{quote}{escape}]|{escape}[{quote}{escape}]|{escape}(?![{quote}{escape}]))*+"
            )
            self._doubled = re.compile(f"{escape}([{quote}{escape}])")
        # Possessive: a field is read one way only, so a long one costs its length.
        self._field = re.compile(
            f"((?:[^{quote}{delimiter}\r\n]++|{quote}{inside}{quote})*+)({delimiter}|\r\n|\n|\r|$)"
        )
        self._part = re.compile(f"{quote}({inside}){quote}", re.DOTALL)
        self._keep_null = _chosen(columns, chosen.force_null)
        self._never_null = _chosen(columns, chosen.force_not_null)

    def _rows(self, text: str, *, last: bool) -> tuple[list[Sequence[str | None]], int]:
        delimiter, null = self._format.delimiter, self._format.null
        if self._format.quote not in text and not self._never_null and "\r" not in text:
            return self._plain(text, delimiter, null)
        rows: list[Sequence[str | None]] = []
        at = used = 0
        row: list[str | None] = []
        while at < len(text):
            found = self._field.match(text, at)
            ends_text = found is not None and found[2] == "" and found.end() == len(text)
            if found is None or (ends_text and not last):
                if last:
                    raise BadCopyData(
                        "unterminated CSV quoted field",
                        detail=f"Line {self._line + len(rows) + 1}.",
                    )
                return rows, used
            row.append(self._value(found[1], len(row)))
            at = found.end()
            if found[2] != delimiter:
                if not self._take(row, rows):
                    return rows, len(text)
                row, used = [], at
        if row:  # The text ended after a delimiter: the last field is empty.
            row.append(self._value("", len(row)))
            self._take(row, rows)
        return rows, len(text)

    def _plain(
        self, text: str, delimiter: str, null: str
    ) -> tuple[list[Sequence[str | None]], int]:
        """No quotes: lines and delimiters are just that."""
        lines = text.split("\n")
        if not lines[-1]:
            lines.pop()
        if _END_MARK in lines:
            self._ended = True
            lines = lines[: lines.index(_END_MARK)]
        rows: list[Sequence[str | None]] = []
        for line in lines:
            fields: list[str | None] = list(line.split(delimiter))
            if null in fields:
                fields = [None if field == null else field for field in fields]
            rows.append(fields)
        return rows, len(text)

    def _take(self, row: list[str | None], rows: list[Sequence[str | None]]) -> bool:
        """Add a row; False at the end mark."""
        if row == [_END_MARK]:
            self._ended = True
            return False
        rows.append(row)
        return True

    def _value(self, raw: str, index: int) -> str | None:
        null = self._format.null
        if self._format.quote not in raw:
            return None if raw == null and index not in self._never_null else raw
        value = self._part.sub(lambda part: self._doubled.sub(r"\1", part[1]), raw)
        return None if index in self._keep_null and value == null else value


def _chosen(columns: Sequence[Column], names: tuple[str, ...] | str) -> frozenset[int]:
    return frozenset(
        index for index, column in enumerate(columns) if names == "*" or column.name in names
    )


class _Binary:
    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = tuple(columns)
        self._left = b""
        self._retry_bytes = 0
        self._header_due = True
        self._ended = False

    def feed(self, piece: bytes) -> pa.RecordBatch | None:
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
        return _record_batch(self._columns, arrays, len(rows))


def _decoded(data: bytes) -> str:
    if b"\0" in data:
        raise InvalidEncoding
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidEncoding from None


def _record_batch(columns: Sequence[Column], arrays: list[pa.Array], rows: int) -> pa.RecordBatch:
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
    cast = [array.cast(column.type) for array, column in zip(arrays, columns, strict=True)]
    return pa.RecordBatch.from_arrays(cast, names=[column.name for column in columns])

"""COPY's CSV format, read: a quote may begin anywhere, and only what is unquoted can be NULL."""

from __future__ import annotations

import re
from collections.abc import Sequence

from headwater.adapter.pgwire.backend import Column
from headwater.adapter.pgwire.copy_format import CopyFormat
from headwater.adapter.pgwire.copy_lines import END_MARK, Lines
from headwater.adapter.pgwire.refusals import BadCopyData


class CsvDecoder(Lines):
    """Rows of COPY's CSV format."""

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
        if END_MARK in lines:
            self._ended = True
            lines = lines[: lines.index(END_MARK)]
        rows: list[Sequence[str | None]] = []
        for line in lines:
            fields: list[str | None] = list(line.split(delimiter))
            if null in fields:
                fields = [None if field == null else field for field in fields]
            rows.append(fields)
        return rows, len(text)

    def _take(self, row: list[str | None], rows: list[Sequence[str | None]]) -> bool:
        """Add a row; False at the end mark."""
        if row == [END_MARK]:
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

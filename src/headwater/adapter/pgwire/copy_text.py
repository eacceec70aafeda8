"""COPY's text format, read: backslashes, ``\\N``, ``\\.``, and every kind of line end."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from headwater.adapter.pgwire.copy_lines import END_MARK, Lines
from headwater.adapter.pgwire.refusals import InvalidEncoding

_UNESCAPED: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.))", re.DOTALL)


class TextDecoder(Lines):
    """Rows of COPY's text format."""

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
            if END_MARK in lines:
                self._ended = True
                lines = lines[: lines.index(END_MARK)]
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

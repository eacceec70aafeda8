"""The binary log of MySQL and MariaDB, event by event: from bytes to what an event says. Pure.

An event has a header of 19 bytes (time, type, server, size, the position behind it, flags), a body,
and a checksum if its file has them. :func:`decoded` knows the events that matter to whoever follows
tables and those that certainly do not (:class:`Other`); of any other it refuses to guess
(:class:`Malformed`): an event that was not understood may have been a change.

A transaction is a *group*: it begins with a GTID event of either make (which all servers write,
also those that do not use GTIDs), and its place is where that begins. It ends with a commit; what
ends otherwise never happened: a rollback, or the end of a file that was torn by a crash.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Final

POSITION_BITS: Final = 36
"""A place is the number of its file, and its position in that: files of up to 64 GiB."""
FIRST_POSITION: Final = 4
"""Where the first event of a file is; what is before says that it is such a file."""

HEADER: Final = struct.Struct("<IBIIIH")
CHECKSUM_BYTES: Final = 4
_ARTIFICIAL: Final = 0x20

_QUERY, _STOP, _ROTATE, _FORMAT, _XID, _EXECUTE_LOAD, _TABLE_MAP = 2, 3, 4, 15, 16, 18, 19
_INCIDENT, _XA_PREPARE, _PAYLOAD, _COMPRESSED_QUERY = 26, 38, 40, 165
_WRITES: Final = {23, 30, 166, 169}
_UPDATES: Final = {24, 31, 167, 170}
_DELETES: Final = {25, 32, 168, 171}
_EXTENDED: Final = {30, 31, 32, 169, 170, 171}
"""Events of rows that say more in their header."""
_COMPRESSED: Final = {_COMPRESSED_QUERY, 166, 167, 168, 169, 170, 171}
_GTIDS: Final = {33, 34, 42, 162}
_IGNORED: Final = {_STOP, 5, 13, 14, 17, 27, 28, 29, 35, 36, 37, 41, 160, 161, 163, 164}
"""Variables of statements, heartbeats, annotations, lists of GTIDs, checkpoints."""


class Malformed(Exception):
    """Bytes that are no event that we know."""


@dataclass(frozen=True, slots=True)
class File:
    """From here on, events are of this file, from this position on."""

    name: str
    position: int


@dataclass(frozen=True, slots=True)
class Format:
    """A file begins (again); whether its events have checksums."""

    checksums: bool


@dataclass(frozen=True, slots=True)
class Group:
    """A group begins."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement as text, and the schema that it was said in."""

    schema: str
    text: str


@dataclass(frozen=True, slots=True)
class Committed:
    """The group took place."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The group is a part of a distributed transaction; another one says what became of it."""


@dataclass(frozen=True, slots=True)
class TableMap:
    """What a number stands for in the events of rows that follow."""

    number: int
    schema: str
    table: str
    types: bytes
    rest: bytes
    """What else it says of its columns (``sources/my_columns.py``)."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that come (``after``), go (``before``), or both in turn."""

    number: int
    before: bool
    after: bool
    columns: int
    complete: bool
    """Whether every column is there."""
    data: bytes


@dataclass(frozen=True, slots=True)
class Payload:
    """The events of a group, packed together; ``data`` is compressed with Zstandard, or not."""

    size: int
    compressed: bool
    data: bytes


@dataclass(frozen=True, slots=True)
class Other:
    """Nothing that changes a table."""


Event = File | Format | Group | Statement | Committed | Prepared | TableMap | Rows | Payload | Other


def place(number: int, position: int) -> int:
    """Return the offset of a position in the file with a number."""
    return number << POSITION_BITS | position


def place_text(offset: int) -> str:
    """Return an offset as people would look for it."""
    number, position = offset >> POSITION_BITS, offset & ((1 << POSITION_BITS) - 1)
    return f"file {number:06d}, position {position}"


def file_number(name: str) -> int:
    """Return the number of a file: the last part of its name."""
    _, _, number = name.rpartition(".")
    if not number.isdigit():
        raise Malformed(f"a file of the log is called {name!r}, without a number")
    return int(number)


@dataclass(frozen=True, slots=True)
class Header:
    """What is said before an event."""

    kind: int
    size: int
    behind: int
    """The position behind it, in its file; its lower 32 bits. 0: it is in no file."""

    @property
    def stored(self) -> bool:
        """Whether it is in the file; others are made for whoever reads."""
        return bool(self.behind)


def header_of(event: bytes) -> Header:
    """Return the header of an event."""
    if len(event) < HEADER.size:
        raise Malformed("an event is shorter than its header")
    _, kind, _, size, behind, flags = HEADER.unpack_from(event)
    return Header(kind, size, 0 if flags & _ARTIFICIAL else behind)


def decoded(event: bytes, *, checksums: bool) -> Event:
    """Return what an event says, in a file with checksums or without them."""
    kind = event[4]
    if kind == _FORMAT:
        return _format(event)
    end = len(event) - CHECKSUM_BYTES
    right = zlib.crc32(memoryview(event)[:end]) == _u32(event, end)
    if kind == _ROTATE:
        checksums = right  # One that is made for the reader comes before its file says.
    if checksums and not right:
        raise Malformed("the checksum of an event is wrong")
    end = end if checksums else len(event)
    try:
        return _body(kind, event[HEADER.size : end])
    except (IndexError, struct.error, UnicodeDecodeError, zlib.error) as error:
        raise Malformed(f"an event of type {kind} is broken: {error}") from error


def _body(kind: int, body: bytes) -> Event:
    if kind in _WRITES or kind in _UPDATES or kind in _DELETES:
        return _rows(kind, body)
    if kind == _TABLE_MAP:
        return _table_map(body)
    if kind == _XID:
        return Committed()
    if kind in _GTIDS:
        return Group()
    if kind in (_QUERY, _COMPRESSED_QUERY, _EXECUTE_LOAD):
        return _statement(kind, body)
    if kind == _ROTATE:
        return File(body[8:].decode(), int.from_bytes(body[:8], "little"))
    if kind == _XA_PREPARE:
        return Committed() if body[0] else Prepared()
    if kind == _PAYLOAD:
        return _payload(body)
    if kind == _INCIDENT:
        raise Malformed("the server lost changes: it wrote an incident to its log")
    if kind in _IGNORED:
        return Other()
    raise Malformed(f"an event of type {kind}, which is not known here")


def _format(event: bytes) -> Format:
    """The version of the server decides whether a checksum's kind is said: those we follow do."""
    kind = event[-CHECKSUM_BYTES - 1]
    return Format(checksums=kind == 1)


def _statement(kind: int, body: bytes) -> Event:
    schema_length, variables = body[8], int.from_bytes(body[11:13], "little")
    at = 13 + (13 if kind == _EXECUTE_LOAD else 0) + variables
    schema, text = body[at : at + schema_length], body[at + schema_length + 1 :]
    if kind in _COMPRESSED:
        text = _uncompressed(text)
    said = text.decode(errors="replace").strip()
    if said.upper() == "COMMIT":
        return Committed()
    return Statement(schema.decode(errors="replace"), said)


def _table_map(body: bytes) -> TableMap:
    number = int.from_bytes(body[:6], "little")
    schema_end = 9 + body[8]
    table_end = schema_end + 2 + body[schema_end + 1]
    count, at = read_length(body, table_end + 1)
    return TableMap(
        number,
        body[9:schema_end].decode(),
        body[schema_end + 2 : table_end].decode(),
        body[at : at + count],
        body[at + count :],
    )


def _rows(kind: int, body: bytes) -> Rows:
    number, at = int.from_bytes(body[:6], "little"), 8
    if kind in _EXTENDED:
        at += int.from_bytes(body[8:10], "little")
    columns, at = read_length(body, at)
    width = (columns + 7) // 8
    updates = kind in _UPDATES
    present = [body[at : at + width], body[at + width : at + 2 * width]][: 1 + updates]
    at += width * (1 + updates)
    complete = all(int.from_bytes(b, "little").bit_count() >= columns for b in present)
    data = body[at:]
    if kind in _COMPRESSED:
        data = _uncompressed(data)
    deletes = kind in _DELETES
    return Rows(number, updates or deletes, not deletes, columns, complete, data)


def _uncompressed(data: bytes) -> bytes:
    """MariaDB's form: a byte of flags, the size in so many bytes, what zlib made."""
    size_bytes = data[0] & 7
    return zlib.decompress(data[1 + size_bytes :])


def _payload(body: bytes) -> Payload:
    """Fields of (type, length, value), ended by one of type 0; then the events."""
    found: dict[int, int] = {}
    at = 0
    while True:
        kind, at = read_length(body, at)
        if kind == 0:
            break
        length, at = read_length(body, at)
        found[kind], _ = read_length(body, at)
        at += length
    data = body[at : at + found.get(1, len(body))]
    return Payload(found.get(3, len(data)), found.get(2, 255) == 0, data)


def events_of(payload: bytes) -> list[bytes]:
    """Return the events in a payload; none of them has a checksum."""
    found, at = [], 0
    while at < len(payload):
        size = _u32(payload, at + 9)
        if size < HEADER.size or at + size > len(payload):
            raise Malformed("the events of a transaction are broken")
        found.append(payload[at : at + size])
        at += size
    return found


def read_length(data: bytes, at: int) -> tuple[int, int]:
    """Return a packed number, and where the next thing is."""
    first = data[at]
    if first < 251:
        return first, at + 1
    width = {252: 2, 253: 3, 254: 8}.get(first)
    if width is None:
        raise Malformed("a packed number is none")
    return int.from_bytes(data[at + 1 : at + 1 + width], "little"), at + 1 + width


def _u32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")

"""The messages of PostgreSQL's output plugin ``pgoutput``, version 1 of its protocol, decoded.

Pure: bytes in, values out. All integers are big-endian, texts end with a zero byte. A message
begins with its letter; a tuple is a 16-bit count of columns and for each a letter:

    n  NULL        u  unchanged, stored out of line and not sent        t  text, 32-bit length

What a change means is said by what it carries: an ``Update`` has its old row only where the table's
replica identity is FULL (``O``), or where the key changed (``K``, the key alone).

A transaction is ``Begin`` to ``Commit``; its place is where its commit record begins
(``Begin.final_lsn``), which is also how the server compares it with the position of a slot.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

Value = bytes | None
"""The text of a value, undecoded: whoever builds a column decodes all of it at once."""


@dataclass(frozen=True, slots=True)
class Unchanged:
    """A large value that did not change, and was not sent."""


UNCHANGED: Final = Unchanged()
Tuple = tuple[Value | Unchanged, ...]


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction begins; all of its changes have the place ``final_lsn``."""

    final_lsn: int
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    """It is complete; the next place is at ``end_lsn`` at the earliest."""

    commit_lsn: int
    end_lsn: int


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column of a relation as it is now."""

    name: str
    type_oid: int
    type_modifier: int
    in_key: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """What a relation is, before its first change and after its definition changed."""

    oid: int
    name: str
    replica_identity: str
    columns: tuple[RelationColumn, ...]


class Insert(NamedTuple):
    """A row comes."""

    oid: int
    new: Tuple


class Update(NamedTuple):
    """A row is replaced; ``old`` is the whole row only if ``whole``."""

    oid: int
    old: Tuple | None
    whole: bool
    new: Tuple


class Delete(NamedTuple):
    """A row goes; ``old`` is the whole row only if ``whole``."""

    oid: int
    old: Tuple
    whole: bool


@dataclass(frozen=True, slots=True)
class Truncate:
    """Every row of these relations goes."""

    oids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Other:
    """A message that says nothing about rows: an origin, a type, a message of somebody's."""

    letter: str


Message = Begin | Commit | Relation | Insert | Update | Delete | Truncate | Other


class Malformed(ValueError):
    """Bytes that are no message of this protocol."""


_COUNT: Final = struct.Struct(">H")
_OID: Final = struct.Struct(">I")
_BEGIN: Final = struct.Struct(">QqI")
_COMMIT: Final = struct.Struct(">BQQq")
_COLUMN: Final = struct.Struct(">Ii")
_N, _U, _T, _K, _O, _NEW = b"nutKON"


def decode(data: bytes) -> Message:
    """Return what a message says; raise :class:`Malformed`."""
    try:
        message, end = _message(data)
    except (struct.error, IndexError, ValueError) as error:
        raise Malformed(str(error)) from error
    if end != len(data):
        raise Malformed(f"{len(data) - end} bytes behind a {type(message).__name__}")
    return message


def _message(data: bytes) -> tuple[Message, int]:
    """Return a message and where it ends."""
    match data[:1]:
        case b"I":
            _expect(data, 5, b"N")
            new, end = _tuple(data, 6)
            return Insert(_oid(data), new), end
        case b"U":
            return _update(data)
        case b"D":
            kind = _expect(data, 5, b"KO")
            old, end = _tuple(data, 6)
            return Delete(_oid(data), old, kind == _O), end
        case b"B":
            final_lsn, _, xid = _BEGIN.unpack_from(data, 1)
            return Begin(final_lsn, xid), 1 + _BEGIN.size
        case b"C":
            _, commit_lsn, end_lsn, _ = _COMMIT.unpack_from(data, 1)
            return Commit(commit_lsn, end_lsn), 1 + _COMMIT.size
        case b"R":
            return _relation(data)
        case b"T":
            count, _ = struct.unpack_from(">IB", data, 1)
            oids = struct.unpack_from(f">{count}I", data, 6)
            return Truncate(oids), 6 + 4 * count
        case b"O" | b"Y" | b"M":
            return Other(chr(data[0])), len(data)
        case letter:
            raise Malformed(f"a message {letter!r}")


def _oid(data: bytes) -> int:
    return int(_OID.unpack_from(data, 1)[0])


def _tuple(data: bytes, at: int) -> tuple[Tuple, int]:
    """Return the values of a row and where it ends."""
    (count,) = _COUNT.unpack_from(data, at)
    at += 2
    values: list[Value | Unchanged] = []
    for _ in range(count):
        kind = data[at]
        if kind == _T:
            start = at + 5
            at = start + _OID.unpack_from(data, at + 1)[0]
            values.append(data[start:at])
        elif kind == _N:
            values.append(None)
            at += 1
        elif kind == _U:
            values.append(UNCHANGED)
            at += 1
        else:
            raise Malformed(f"a value of kind {chr(kind)!r}")
    if at > len(data):
        raise Malformed("a value is cut off")
    return tuple(values), at


def _update(data: bytes) -> tuple[Update, int]:
    kind, old, at = _expect(data, 5, b"KON"), None, 6
    if kind != _NEW:
        old, at = _tuple(data, 6)
        _expect(data, at, b"N")
        at += 1
    new, end = _tuple(data, at)
    return Update(_oid(data), old, kind == _O, new), end


def _relation(data: bytes) -> tuple[Relation, int]:
    space, at = _text(data, 5)
    name, at = _text(data, at)
    identity = chr(data[at])
    (count,) = _COUNT.unpack_from(data, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        flags = data[at]
        column, at = _text(data, at + 1)
        type_oid, modifier = _COLUMN.unpack_from(data, at)
        at += _COLUMN.size
        columns.append(RelationColumn(column, type_oid, modifier, bool(flags & 1)))
    qualified = f"{space or 'pg_catalog'}.{name}"
    return Relation(_oid(data), qualified, identity, tuple(columns)), at


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(0, at)
    return data[at:end].decode(), end + 1


def _expect(data: bytes, at: int, letters: bytes) -> int:
    found = data[at]
    if found not in letters:
        raise Malformed(f"a tuple {chr(found)!r} where {letters!r} was expected")
    return found

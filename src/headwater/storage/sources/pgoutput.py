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
from typing import Final

Value = str | None


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


@dataclass(frozen=True, slots=True)
class Insert:
    """A row comes."""

    oid: int
    new: Tuple


@dataclass(frozen=True, slots=True)
class Update:
    """A row is replaced; ``old`` is the whole row only if ``whole``."""

    oid: int
    old: Tuple | None
    whole: bool
    new: Tuple


@dataclass(frozen=True, slots=True)
class Delete:
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


class _Reader:
    """Takes values from the front of a message."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def integers(self, form: str) -> tuple[int, ...]:
        found: tuple[int, ...] = struct.unpack_from(f">{form}", self._data, self._at)
        self._at += struct.calcsize(f">{form}")
        return found

    def letter(self) -> str:
        self._at += 1
        return chr(self._data[self._at - 1])

    def text(self) -> str:
        end = self._data.index(0, self._at)
        found = self._data[self._at : end].decode()
        self._at = end + 1
        return found

    def tuple(self) -> Tuple:
        (count,) = self.integers("H")
        return tuple(self._value() for _ in range(count))

    def _value(self) -> Value | Unchanged:
        match self.letter():
            case "n":
                return None
            case "u":
                return UNCHANGED
            case "t":
                (length,) = self.integers("I")
                start, self._at = self._at, self._at + length
                if self._at > len(self._data):
                    raise Malformed("a value is cut off")
                return self._data[start : self._at].decode()
            case other:
                raise Malformed(f"a value of kind {other!r}")

    @property
    def left(self) -> int:
        return len(self._data) - self._at


def decode(data: bytes) -> Message:
    """Return what a message says; raise :class:`Malformed`."""
    reader = _Reader(data)
    try:
        message = _message(reader)
    except (struct.error, IndexError, ValueError) as error:
        raise Malformed(str(error)) from error
    if reader.left and not isinstance(message, Other):
        raise Malformed(f"{reader.left} bytes behind a {type(message).__name__}")
    return message


def _message(reader: _Reader) -> Message:
    match reader.letter():
        case "B":
            final_lsn, _, xid = reader.integers("QqI")
            return Begin(final_lsn, xid)
        case "C":
            _, commit_lsn, end_lsn, _ = reader.integers("BQQq")
            return Commit(commit_lsn, end_lsn)
        case "R":
            return _relation(reader)
        case "I":
            (oid,) = reader.integers("I")
            _expect(reader, "N")
            return Insert(oid, reader.tuple())
        case "U":
            return _update(reader)
        case "D":
            (oid,) = reader.integers("I")
            kind = _expect(reader, "KO")
            return Delete(oid, reader.tuple(), kind == "O")
        case "T":
            count, _ = reader.integers("IB")
            return Truncate(reader.integers(f"{count}I"))
        case letter if letter in "OYM":
            return Other(letter)
        case letter:
            raise Malformed(f"a message {letter!r}")


def _relation(reader: _Reader) -> Relation:
    (oid,) = reader.integers("I")
    space, name, identity = reader.text(), reader.text(), reader.letter()
    (count,) = reader.integers("H")
    columns = []
    for _ in range(count):
        (flags,) = reader.integers("B")
        column = reader.text()
        type_oid, modifier = reader.integers("Ii")
        columns.append(RelationColumn(column, type_oid, modifier, bool(flags & 1)))
    return Relation(oid, f"{space or 'pg_catalog'}.{name}", identity, tuple(columns))


def _update(reader: _Reader) -> Update:
    (oid,) = reader.integers("I")
    kind, old = reader.letter(), None
    if kind in "KO":
        old = reader.tuple()
        _expect(reader, "N")
    elif kind != "N":
        raise Malformed(f"an update with a tuple {kind!r}")
    return Update(oid, old, kind == "O", reader.tuple())


def _expect(reader: _Reader, letters: str) -> str:
    found = reader.letter()
    if found not in letters:
        raise Malformed(f"a tuple {found!r} where {letters!r} was expected")
    return found

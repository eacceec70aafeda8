"""Envelopes: from stamped records to updates of an output.

An envelope says what a message means. Each is a pure function of the records of a range and, for an
upsert, of the output as it was durable before the range:

- :class:`Rows`: upstream has rows with diffs already (PostgreSQL, generators). Nothing to decode.
- :class:`Plain` (``ENVELOPE NONE``): every message is a row that comes, for ever.
- :class:`Debezium`: a message has the row before and after its change; ``before`` goes, ``after``
  comes. A tombstone (no value) says nothing new.
- :class:`Upsert`: a message is the newest value of its key, and no value deletes it.

A record that cannot be decoded becomes a dead letter, and with ``Policy.FAIL`` an error of the
output (``storage/dead_letters.py``).

**The state of an upsert is its output**, kept as keyed runs, at the time just before the range:
never what this process has seen of the input. So two ingesters agree, and a restart needs nothing
but the collection. With several times in a range the values follow each other in the order
``(time, offset, partition)``; within one time only the last counts.
A value that cannot be decoded is the value of its key all the same: the old row goes, an error with
the key in its context comes, and the next value of the key retracts it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa

from headwater.base.errors import InvalidUsage
from headwater.persist.evolution import TIME, updates_schema
from headwater.storage.dead_letters import (
    DeadLetter,
    ErrorUpdate,
    Policy,
    errors_table,
    letters_table,
)
from headwater.storage.format import Format, Json, Row, Undecodable
from headwater.storage.source import OFFSET, PARTITION

NO_KEY: Final = "a message without a key cannot be upserted"


@dataclass(frozen=True, slots=True)
class Changes:
    """What a range does to one output: both its sides, and the dead letters."""

    updates: pa.Table
    errors: pa.Table
    letters: pa.Table


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows with diffs, as upstream has them."""

    schema: pa.Schema
    key: tuple[str, ...] = ()
    layout: str = "parquet"

    def changes(self, output: str, stamped: pa.Table) -> Changes:
        """Return the rows at their times."""
        columns = updates_schema(self.schema)
        updates = stamped.select(columns.names).cast(columns)
        return Changes(updates, errors_table(()), letters_table(output, ()))


@dataclass(slots=True)
class _Sides:
    """What gathers while messages are decoded."""

    rows: list[Row] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    diffs: list[int] = field(default_factory=list)
    errors: list[ErrorUpdate] = field(default_factory=list)
    letters: list[DeadLetter] = field(default_factory=list)

    def add(self, row: Row, time: int, diff: int) -> None:
        self.rows.append(row)
        self.times.append(time)
        self.diffs.append(diff)

    def changes(self, output: str, schema: pa.Schema) -> Changes:
        columns = list(zip(*self.rows, strict=True)) if self.rows else [()] * len(schema)
        arrays = [
            pa.array(values, column.type) for values, column in zip(columns, schema, strict=True)
        ]
        arrays += [pa.array(self.times, pa.int64()), pa.array(self.diffs, pa.int64())]
        updates = pa.Table.from_arrays(arrays, schema=updates_schema(schema))
        return Changes(updates, errors_table(self.errors), letters_table(output, self.letters))


class Message(NamedTuple):
    """A raw record, stamped."""

    partition: str
    offset: int
    time: int
    key: bytes | None
    value: bytes | None

    def dead(self, reason: str) -> DeadLetter:
        """Return it as a dead letter."""
        return DeadLetter(self.partition, self.offset, self.time, self.key, self.value, reason)


def messages(stamped: pa.Table) -> Iterator[Message]:
    """Return the raw records of a stamped batch."""
    names = (PARTITION, OFFSET, TIME, "key", "value")
    columns = (stamped.column(name).to_pylist() for name in names)
    return map(Message._make, zip(*columns, strict=True))


@dataclass(frozen=True, slots=True)
class Plain:
    """Every message is a row that comes."""

    format: Format
    policy: Policy = Policy.FAIL
    key: tuple[str, ...] = ()
    layout: str = "parquet"

    @property
    def schema(self) -> pa.Schema:
        """The columns of the output."""
        return self.format.schema

    def changes(self, output: str, stamped: pa.Table) -> Changes:
        """Decode every message."""
        sides = _Sides()
        for message in messages(stamped):
            try:
                if message.value is None:
                    raise Undecodable("the message has no value")
                sides.add(self.format.decode(message.value), message.time, 1)
            except Undecodable as why:
                _refuse(sides, message, str(why), self.policy)
        return sides.changes(output, self.schema)


def _refuse(sides: _Sides, message: Message, reason: str, policy: Policy) -> None:
    letter = message.dead(reason)
    sides.letters.append(letter)
    if policy is Policy.FAIL:
        sides.errors.append(ErrorUpdate(letter.message, None, message.time, 1))


_NULL: Final = msgspec.Raw(b"null")


class _Change(msgspec.Struct, frozen=True):
    before: msgspec.Raw = _NULL
    after: msgspec.Raw = _NULL
    op: str = ""


class _Wrapped(msgspec.Struct, frozen=True):
    payload: _Change


_CHANGE: Final = msgspec.json.Decoder(_Change)
_WRAPPED: Final = msgspec.json.Decoder(_Wrapped)


@dataclass(frozen=True, slots=True)
class Debezium:
    """A message has its row before and after; with or without the schema around it."""

    row: Json
    policy: Policy = Policy.FAIL
    key: tuple[str, ...] = ()
    layout: str = "parquet"

    @property
    def schema(self) -> pa.Schema:
        """The columns of the output."""
        return self.row.schema

    def changes(self, output: str, stamped: pa.Table) -> Changes:
        """Decode every message into what goes and what comes."""
        sides = _Sides()
        for message in messages(stamped):
            if message.value is None:
                continue  # The tombstone behind a delete, for the sake of log compaction.
            try:
                went, came = self._decode(message.value)
            except Undecodable as why:
                _refuse(sides, message, str(why), self.policy)
                continue
            if went is not None:
                sides.add(went, message.time, -1)
            if came is not None:
                sides.add(came, message.time, 1)
        return sides.changes(output, self.schema)

    def _decode(self, value: bytes) -> tuple[Row | None, Row | None]:
        try:
            change = _CHANGE.decode(value)
            if not change.op:
                change = _WRAPPED.decode(value).payload
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Undecodable(str(error)) from error
        went, came = _row(self.row, change.before), _row(self.row, change.after)
        match change.op:
            case "c" | "r":
                complete = came is not None
                went = None
            case "u":
                complete = went is not None and came is not None
            case "d":
                complete = went is not None
                came = None
            case _:
                raise Undecodable(f"op {change.op!r} is none of c, r, u, d")
        if not complete:
            raise Undecodable(
                f"a change with op {change.op!r} lacks its row before or after; "
                "set REPLICA IDENTITY FULL upstream"
            )
        return went, came


def _row(format_: Json, raw: msgspec.Raw) -> Row | None:
    return None if raw == _NULL else format_.decode(bytes(raw))


class Known(NamedTuple):
    """What an output has for a key just before a range: a row, or an error, or neither."""

    row: Row | None = None
    error: str | None = None


NONE: Final = Known()

Lookup = Callable[[Sequence[Row]], Mapping[Row, Known]]
"""The output at the time before the range, asked by keys; those it has not may be missing."""


@dataclass(frozen=True, slots=True)
class Upsert:
    """A message is the newest value of its key.

    The key is decoded from the message's key by ``key_format``, whose columns come first in the
    output; without it the key is the columns ``key`` of the value (and nothing can be deleted).
    """

    format: Format
    key: tuple[str, ...]
    key_format: Format | None = None
    policy: Policy = Policy.FAIL
    layout: str = "run"
    _key_places: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _value_places: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        wanted = self.key_format.schema.names if self.key_format else self.format.schema.names
        if not self.key or any(name not in wanted for name in self.key):
            raise InvalidUsage(f"the key of an upsert is among {wanted}, not {list(self.key)}")
        names = self.format.schema.names
        values = tuple(n for n, name in enumerate(names) if name not in self.key)
        object.__setattr__(self, "_key_places", tuple(wanted.index(name) for name in self.key))
        object.__setattr__(self, "_value_places", values)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the output: the key's, then the value's that are not in the key."""
        if self.key_format is None:
            return self.format.schema
        keys = list(self.key_format.schema)
        return pa.schema(keys + [f for f in self.format.schema if f.name not in self.key])

    def fold(self, output: str, stamped: Iterable[pa.Table], lookup: Lookup) -> Changes:
        """Return what all messages of a range do to the output as it was before."""
        sides = _Sides()
        following = [message for table in stamped for message in messages(table)]
        following.sort(key=lambda m: (m.time, m.offset, m.partition))
        told: dict[Row, dict[int, Known]] = {}
        for message in following:
            try:
                key, known = self._decode(message, sides)
            except Undecodable as why:
                _refuse(sides, message, str(why), self.policy)
                continue
            told.setdefault(key, {})[message.time] = known
        before = lookup(list(told))
        for key, values in told.items():
            now = before.get(key, NONE)
            for time, value in values.items():  # In the order of time: the messages were.
                self._replace(sides, key, now, value, time)
                now = value
        return sides.changes(output, self.schema)

    def _decode(self, message: Message, sides: _Sides) -> tuple[Row, Known]:
        """Return the key of a message, and what its key has then."""
        if self.key_format is None:
            if message.value is None:
                raise Undecodable("a message without a value has no key in it")
            row = self.format.decode(message.value)
            return tuple([row[place] for place in self._key_places]), Known(row)
        if message.key is None:
            raise Undecodable(NO_KEY)
        key_row = self.key_format.decode(message.key)
        key = tuple([key_row[place] for place in self._key_places])
        if message.value is None:
            return key, NONE
        try:
            row = self.format.decode(message.value)
        except Undecodable as why:
            letter = message.dead(str(why))
            sides.letters.append(letter)
            # Whatever the policy: the old value is not the value any more.
            return key, Known(error=letter.message)
        return key, Known((*key_row, *[row[place] for place in self._value_places]))

    def _replace(self, sides: _Sides, key: Row, old: Known, new: Known, time: int) -> None:
        if old == new:
            return
        for known, diff in ((old, -1), (new, 1)):
            if known.row is not None:
                sides.add(known.row, time, diff)
            if known.error is not None and self.policy is Policy.FAIL:
                sides.errors.append(ErrorUpdate(known.error, key_text(key), time, diff))


def key_text(key: Row) -> str:
    """Return a key as the text under which the error side remembers it."""
    return msgspec.json.encode(key).decode()


Envelope = Rows | Plain | Debezium | Upsert

__all__ = [
    "NONE",
    "Changes",
    "Debezium",
    "Envelope",
    "Known",
    "Lookup",
    "Message",
    "Plain",
    "Rows",
    "Upsert",
    "key_text",
    "messages",
]

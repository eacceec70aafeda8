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
the key in its context comes, and the next value of the key retracts it. How messages are read, and
folded: ``storage/told.py``, ``storage/upsert_range.py``.
"""

from __future__ import annotations

import decimal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
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
from headwater.storage.decode import (
    Columns,
    Included,
    arrays_of,
    decode_all,
    unfit_keys,
)
from headwater.storage.format import Changing, Format, Json, Row, Undecodable
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
class Refusals:
    """What comes of messages that are no rows."""

    errors: list[ErrorUpdate] = field(default_factory=list)
    letters: list[DeadLetter] = field(default_factory=list)

    def changes(self, output: str, schema: pa.Schema) -> Changes:
        """Return them as changes that have no updates."""
        nothing = updates_schema(schema).empty_table()
        return Changes(nothing, errors_table(self.errors), letters_table(output, self.letters))


class Message(NamedTuple):
    """A raw record, stamped."""

    partition: str
    offset: int
    time: int
    key: bytes | None
    value: bytes | None
    included: Row = ()

    def dead(self, reason: str) -> DeadLetter:
        """Return it as a dead letter."""
        return DeadLetter(self.partition, self.offset, self.time, self.key, self.value, reason)


def messages(stamped: pa.Table, included: Sequence[Included] = ()) -> Iterator[Message]:
    """Return the raw records of a stamped batch."""
    names = (PARTITION, OFFSET, TIME, "key", "value")
    columns = [stamped.column(name).to_pylist() for name in names]
    more = [each.column(stamped).to_pylist() for each in included]
    columns.append(list(zip(*more, strict=True)) if more else [()] * stamped.num_rows)
    return map(Message._make, zip(*columns, strict=True))


def _refused(
    output: str, stamped: pa.Table, refused: Sequence[tuple[int, str]], policy: Policy
) -> tuple[pa.Table, pa.Table]:
    """Return the errors and the dead letters of the messages that are no rows."""
    found = Refusals()
    if refused:
        places = [place for place, _ in refused]
        for message, (_, reason) in zip(messages(stamped.take(places)), refused, strict=True):
            refuse(found, message, reason, policy)
    return errors_table(found.errors), letters_table(output, found.letters)


def refuse(found: Refusals, message: Message, reason: str, policy: Policy) -> None:
    """Note that a message is no row: a dead letter, and an error where the policy says so."""
    letter = message.dead(reason)
    found.letters.append(letter)
    if policy is Policy.FAIL:
        found.errors.append(ErrorUpdate(letter.message, None, message.time, 1))


@dataclass(frozen=True, slots=True)
class Plain:
    """Every message is a row that comes."""

    format: Format
    policy: Policy = Policy.FAIL
    key: tuple[str, ...] = ()
    layout: str = "parquet"
    included: tuple[Included, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """The columns of the output."""
        return pa.schema([*self.format.schema, *(each.field for each in self.included)])

    def changes(self, output: str, stamped: pa.Table) -> Changes:
        """Decode every message."""
        unfit = unfit_keys(stamped, self.included)
        decoded = decode_all(self.format, stamped.column("value").to_pylist(), unfit)
        fit = stamped if decoded.kept is None else stamped.take(decoded.kept)
        columns = arrays_of(decoded.columns, self.format.schema)
        columns += [each.column(fit) for each in self.included]
        columns += [fit.column(TIME), pa.repeat(pa.scalar(1, pa.int64()), fit.num_rows)]
        updates = pa.Table.from_arrays(columns, schema=updates_schema(self.schema))
        return Changes(updates, *_refused(output, stamped, decoded.refused, self.policy))


@dataclass(frozen=True, slots=True)
class Debezium:
    """A message has its row before and after; with or without the schema around it."""

    row: Json | Changing
    policy: Policy = Policy.FAIL
    key: tuple[str, ...] = ()
    layout: str = "parquet"
    _decoder: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_decoder", None)
        if not isinstance(self.row, Json):
            return
        rows: list[Any] = [(name, self.row.record | None, None) for name in ("before", "after")]
        parts = [*rows, ("op", str, "")]
        change = msgspec.defstruct("Change", parts, frozen=True, gc=False)
        payload = ("payload", change | None, None)
        either = msgspec.defstruct("Message", [*parts, payload], frozen=True, gc=False)
        object.__setattr__(self, "_decoder", msgspec.json.Decoder(either))

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel without the decoder."""
        return Debezium, (self.row, self.policy, self.key, self.layout)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the output."""
        return self.row.schema

    def changes(self, output: str, stamped: pa.Table) -> Changes:
        """Decode every message into what goes and what comes."""
        values = stamped.column("value").to_pylist()
        try:
            found = self._swept(values)
        except Undecodable:
            found = self._one_by_one(values)
        times = stamped.column(TIME).to_numpy()[np.array(found.went_at + found.came_at, np.int64)]
        diffs = np.repeat(np.array([-1, 1], np.int64), [len(found.went_at), len(found.came_at)])
        columns = [*arrays_of(found.columns, self.schema), pa.array(times), pa.array(diffs)]
        updates = pa.Table.from_arrays(columns, schema=updates_schema(self.schema))
        return Changes(updates, *_refused(output, stamped, found.refused, self.policy))

    def _swept(self, values: Sequence[bytes | None]) -> _Replaced:
        """Decode all messages at once; raise if one of them is refused."""
        went: list[Any] = []
        came: list[Any] = []
        went_at: list[int] = []
        came_at: list[int] = []
        for place, value in enumerate(values):
            if value is None:
                continue  # The tombstone behind a delete, for the sake of log compaction.
            before, after = self._decode(value)
            if before is not None:
                went.append(before)
                went_at.append(place)
            if after is not None:
                came.append(after)
                came_at.append(place)
        return _Replaced(self.row.columns(went + came), went_at, came_at, [])

    def _one_by_one(self, values: Sequence[bytes | None]) -> _Replaced:
        """Find which are refused; decode the others."""
        fit: list[bytes | None] = list(values)
        refused: list[tuple[int, str]] = []
        for place, value in enumerate(values):
            try:
                self._swept((value,))
            except Undecodable as why:
                refused.append((place, str(why)))
                fit[place] = None
        found = self._swept(fit)
        return _Replaced(found.columns, found.went_at, found.came_at, refused)

    def _decode(self, value: bytes) -> tuple[Any, Any]:
        """Return the records that go and come."""
        before: Any
        after: Any
        if self._decoder is None:
            assert not isinstance(self.row, Json)
            before, after, op = self.row.change(value)
        else:
            try:
                change = self._decoder.decode(value)
            except (msgspec.DecodeError, UnicodeDecodeError, decimal.InvalidOperation) as error:
                raise Undecodable(str(error)) from error
            change = change.payload or change
            before, after, op = change.before, change.after, change.op
        if op == "u":
            complete = before is not None and after is not None
        elif op in {"c", "r"}:
            complete, before = after is not None, None
        elif op == "d":
            complete, after = before is not None, None
        else:
            raise Undecodable(f"op {op!r} is none of c, r, u, d")
        if not complete:
            raise Undecodable(
                f"a change with op {op!r} lacks its row before or after; "
                "set REPLICA IDENTITY FULL upstream"
            )
        return before, after


class _Replaced(NamedTuple):
    """What a batch of changes says: rows that went, then rows that came, and of which messages."""

    columns: Columns
    went_at: list[int]
    came_at: list[int]
    refused: list[tuple[int, str]]


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
    included: tuple[Included, ...] = ()

    def __post_init__(self) -> None:
        if any(each.what == "key" for each in self.included):
            raise InvalidUsage("the key of an upsert is decoded by its format, not included")
        wanted = self.key_format.schema.names if self.key_format else self.format.schema.names
        if not self.key or any(name not in wanted for name in self.key):
            raise InvalidUsage(f"the key of an upsert is among {wanted}, not {list(self.key)}")

    @property
    def schema(self) -> pa.Schema:
        """The columns of the output: the key's, then the value's that are not in the key."""
        included = [each.field for each in self.included]
        if self.key_format is None:
            return pa.schema([*self.format.schema, *included])
        values = [f for f in self.format.schema if f.name not in self.key]
        return pa.schema([*self.key_format.schema, *values, *included])


def key_text(key: Row) -> str:
    """Return a key as the text under which the error side remembers it."""
    return msgspec.json.encode(key).decode()


Envelope = Rows | Plain | Debezium | Upsert

__all__ = [
    "Changes",
    "Debezium",
    "Envelope",
    "Message",
    "Plain",
    "Refusals",
    "Rows",
    "Upsert",
    "key_text",
    "messages",
    "refuse",
]

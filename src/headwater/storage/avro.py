"""Avro: records by the schema of their writer, as rows of the schema that a source was made with.

    decode(bytes) = columns( resolve( read(bytes, writer's schema), reader's schema ) )

The *reader's* schema is durable in the definition of the source and never changes, so its columns
never do. The *writer's* is the one of the message: with a :class:`~.registry.Registry` the one
whose id stands in front of it, asked for once in each process; without one it is the reader's, and
the bytes are the record alone.

A writer's schema that cannot be resolved to the reader's (``storage/avro_resolution.py``) makes
dead letters of all its messages, and the reason names subject, id and column: it is data, as with
every record that cannot be read, and the source's policy says what becomes of reads.

fastavro is an extra (``headwater[avro]``): only who has such a source imports this module.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast

import pyarrow as pa
from fastavro import schemaless_reader
from fastavro.read import SchemaResolutionError

from headwater.base.clock import Clock, SystemClock
from headwater.base.errors import InvalidUsage
from headwater.storage.avro_columns import Column, Parsed, branches, kind, parsed, record_columns
from headwater.storage.avro_resolution import mismatch
from headwater.storage.format import Row, Undecodable
from headwater.storage.registry import HEADER_BYTES, Registry, id_of

UNKNOWN_MS: Final = 5_000
"""How long an id that the registry does not know is not asked for again."""

_UNREADABLE: Final = (
    EOFError,
    ValueError,
    ArithmeticError,
    LookupError,
    TypeError,
    RecursionError,
    struct.error,
    SchemaResolutionError,
)
"""What fastavro raises on bytes that are not what their schema says."""


class Subject(NamedTuple):
    """Where the schemas of messages are registered, and under which name."""

    registry: Registry
    name: str


class _Writer(NamedTuple):
    """What reads the records of one writer: his schema, and the reader's, if it is another."""

    schema: Any
    reader: Any


class _Records:
    """From bytes to records of the reader's schema, which are dictionaries."""

    def __init__(
        self, own: Parsed, subject: Subject | None, clock: Clock, wanted: Parsed | None = None
    ) -> None:
        """Read as ``own``, or what is ``wanted`` of it."""
        self._reader = reader = wanted or own
        self._subject = subject
        self._clock = clock
        self._writers: dict[int, _Writer | str] = {}
        self._unknown: dict[int, int] = {}
        self._newest = -1
        self._own = self._newest_writer = _Writer(own.schema, reader.schema if wanted else None)

    def read(self, data: bytes) -> Any:
        """Return the record of a message."""
        stream = io.BytesIO(data)
        writer = self._own
        if self._subject is not None:
            number = id_of(data)
            if number != self._newest:  # Most messages are of the writer of the one before.
                self._newest_writer = self._known(self._subject, number)
                self._newest = number
            writer = self._newest_writer
            stream.seek(HEADER_BYTES)
        try:
            record = schemaless_reader(stream, writer.schema, writer.reader)
        except _UNREADABLE as error:
            raise Undecodable(f"no record of its schema: {_said(error)}") from error
        if stream.tell() != len(data):
            raise Undecodable(f"{len(data) - stream.tell()} bytes are left behind the record")
        return record

    def _known(self, subject: Subject, number: int) -> _Writer:
        found = self._writers.get(number)
        found = self._asked(subject, number) if found is None else found
        if isinstance(found, str):
            raise Undecodable(found)
        return found

    def _asked(self, subject: Subject, number: int) -> _Writer | str:
        """Return what reads the records of an id; a text: why nothing does."""
        why = f"the schema registry has no schema with id {number} (subject {subject.name!r})"
        if self._clock.now_ms() - self._unknown.get(number, -UNKNOWN_MS) < UNKNOWN_MS:
            raise Undecodable(why)
        registered = subject.registry.by_id(number)
        if registered is None:
            self._unknown[number] = self._clock.now_ms()
            raise Undecodable(why)
        texts = [text for _, text in subject.registry.referred(registered)]
        found = self._resolved(subject, number, [*texts, registered.schema])
        self._writers[number] = found
        return found

    def _resolved(self, subject: Subject, number: int, texts: Sequence[str]) -> _Writer | str:
        try:
            written = parsed(texts)
            wrong = mismatch(written, self._reader)
        except InvalidUsage as error:
            return f"subject {subject.name!r}, schema id {number}: {error}"
        if wrong is None:
            same = written.schema == self._reader.schema
            return _Writer(written.schema, None if same else self._reader.schema)
        where = f"column {wrong.column!r}: " if wrong.column else ""
        return f"subject {subject.name!r}, schema id {number}: {where}{wrong.why}"


def _said(error: BaseException) -> str:
    if isinstance(error, EOFError):
        return "it ends too soon"
    return str(error) or type(error).__name__


class _Made(NamedTuple):
    """What a format makes of its arguments, in each process anew."""

    records: _Records
    columns: tuple[Column, ...]
    whole: bool
    """Whether the columns are the members of a record; otherwise there is one, the value."""


def _values(made: _Made, record: Any) -> Row:
    if not made.whole:
        record = {made.columns[0].name: record}
    row = []
    for name, _, convert in made.columns:
        value = record[name]
        row.append(value if convert is None or value is None else convert(value))
    return tuple(row)


@dataclass(frozen=True, slots=True)
class Avro:
    """A record, by the names of its fields; what is no record is one column ``alone``."""

    texts: tuple[str, ...]
    """The reader's schema, behind those that it refers to."""
    subject: Subject | None = None
    """Where writers' schemas are; without it every message is of the reader's."""
    alone: str = "data"
    clock: Clock = field(default_factory=SystemClock, repr=False, compare=False)
    _made: _Made = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        reader = parsed(self.texts)
        columns = tuple(record_columns(reader, reader.schema, self.alone))
        whole = kind(reader.schema) in {"record", "error"}
        records = _Records(reader, self.subject, self.clock)
        object.__setattr__(self, "_made", _Made(records, columns, whole))

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as what it is made of: schemas are asked for where they are needed."""
        return Avro, (self.texts, self.subject, self.alone)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the reader's schema."""
        return pa.schema([column.field for column in self._made.columns])

    def decode(self, data: bytes) -> Row:
        """Return the values of a record."""
        return _values(self._made, self._made.records.read(data))

    def swept(self, values: Sequence[bytes | None]) -> list[list[Any]]:
        """Return the values of many records column by column: a tuple a row would cost as much."""
        if None in values:
            raise Undecodable("one has no value")  # Which, is found one by one.
        made = self._made
        records = [made.records.read(value) for value in cast("Sequence[bytes]", values)]
        if not made.whole:
            records = [{made.columns[0].name: record} for record in records]
        return [_column(records, column) for column in made.columns]


def _column(records: Sequence[Any], column: Column) -> list[Any]:
    name, _, convert = column
    if convert is None:
        return [record[name] for record in records]
    found = (record[name] for record in records)
    return [None if value is None else convert(value) for value in found]


_ROWS: Final = ("before", "after")


@dataclass(frozen=True, slots=True)
class AvroChanges:
    """Debezium's envelope: a record with the rows ``before`` and ``after``, and its ``op``."""

    texts: tuple[str, ...]
    subject: Subject | None = None
    clock: Clock = field(default_factory=SystemClock, repr=False, compare=False)
    _made: _Made = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        reader = parsed(self.texts)
        row = _row_of(reader)
        columns = tuple(record_columns(reader, row, ""))
        records = _Records(reader, self.subject, self.clock, _narrowed(reader))
        object.__setattr__(self, "_made", _Made(records, columns, True))

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as what it is made of."""
        return AvroChanges, (self.texts, self.subject)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the row."""
        return pa.schema([column.field for column in self._made.columns])

    def change(self, data: bytes) -> tuple[Row | None, Row | None, str]:
        """Return the row before, the row after, and what happened."""
        record = self._made.records.read(data)
        before, after = (
            None if record[name] is None else _values(self._made, record[name]) for name in _ROWS
        )
        return before, after, str(record["op"])

    def columns(self, records: Sequence[Row]) -> list[Sequence[Any]]:
        """Return the values of rows column by column."""
        return list(zip(*records, strict=True)) if records else [()] * len(self._made.columns)


def _row_of(reader: Parsed) -> Any:
    """Return the type of a row; refuse what is no envelope of Debezium."""
    fields = {}
    if kind(reader.schema) == "record":
        fields = {each["name"]: each["type"] for each in reader.schema["fields"]}
    missing = [name for name in (*_ROWS, "op") if name not in fields]
    if missing:
        raise InvalidUsage(
            f"ENVELOPE DEBEZIUM needs a record with before, after and op; the schema has no "
            f"{', '.join(missing)}"
        )
    for each in (each for name in _ROWS for each in branches(fields[name])):
        found = reader.of(each)
        if kind(found) == "record":
            return found
    raise InvalidUsage("ENVELOPE DEBEZIUM needs before and after to be records, or null")


def _narrowed(reader: Parsed) -> Parsed:
    """Return the envelope without what nobody asks for, which is then passed over unread."""
    kept = [each for each in reader.schema["fields"] if each["name"] in (*_ROWS, "op")]
    return Parsed({**reader.schema, "fields": kept}, reader.named)

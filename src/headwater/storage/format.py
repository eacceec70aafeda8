"""Formats: from the bytes of a message to a row, or to the reason why not.

    decode(bytes) -> a tuple of values, one for each column of the schema,  or raises Undecodable

Pure, one record at a time: what becomes of a record never depends on its neighbours, on how a range
was cut into batches, or on which path read it. Values are checked against the column's type
here, bounds and all, so that building the Arrow column of decoded values cannot fail.

- **JSON**: an object; a column takes the member of its name. A missing member and ``null`` are
  NULL; members without a column are ignored (a column added upstream changes nothing until it is
  added here). Without columns of its own the whole value is one column ``data``, JSON text as
  it came.
- **CSV**: one line, RFC 4180 quoting, as many fields as columns. An empty field is NULL, except in
  a text column, where it is the empty text.
- **TEXT**: one column ``text``, UTF-8. **BYTES**: one column ``data``.
- **AVRO** and **PROTOBUF** have their columns from a schema: ``storage/avro.py``,
  ``storage/protobuf.py``.
"""

from __future__ import annotations

import csv
import datetime as dt
import decimal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Annotated, Any, Final, Protocol, runtime_checkable

import msgspec
import pyarrow as pa

from headwater.base.errors import InvalidUsage

Row = tuple[Any, ...]

_JSON_TEXT: Final = pa.schema([pa.field("data", pa.string(), nullable=False)])
_TEXT: Final = pa.schema([pa.field("text", pa.string(), nullable=False)])
_BYTES: Final = pa.schema([pa.field("data", pa.binary(), nullable=False)])


class Undecodable(Exception):
    """Why a record is no row; the reason is the message."""


class Format(Protocol):
    """How bytes become a row."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of a row."""
        ...

    def decode(self, data: bytes) -> Row:
        """Return the row of a message; raise :class:`Undecodable`."""
        ...


@runtime_checkable
class Swept(Protocol):
    """A format that decodes many messages for less than one after the other."""

    def swept(self, values: Sequence[bytes | None]) -> Sequence[Sequence[Any]]:
        """Return the values column by column; raise :class:`Undecodable` if one is no row."""
        ...


class Changing(Protocol):
    """How bytes become the change of a row, where a format has a way of its own to say it."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of a row."""
        ...

    def change(self, data: bytes) -> tuple[Row | None, Row | None, str]:
        """Return the row before, the row after, and what happened; raise :class:`Undecodable`."""
        ...

    def columns(self, records: Sequence[Row]) -> Sequence[Sequence[Any]]:
        """Return the values of rows column by column."""
        ...


def _int(bits: int, *, signed: bool = True) -> Any:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return Annotated[int, msgspec.Meta(ge=low, le=high)]


_PYTHON: Final[Mapping[pa.DataType, Any]] = {
    pa.bool_(): bool,
    pa.int8(): _int(8),
    pa.int16(): _int(16),
    pa.int32(): _int(32),
    pa.int64(): _int(64),
    pa.float32(): float,
    pa.float64(): float,
    pa.string(): str,
    pa.binary(): bytes,
    pa.date32(): dt.date,
}
"""What msgspec checks a value against. Bytes in text are base64, dates and times ISO 8601."""


def _python_type(column: pa.Field) -> Any:
    type_ = column.type
    if pa.types.is_timestamp(type_):
        wanted = msgspec.Meta(tz=type_.tz is not None)
        return Annotated[dt.datetime, wanted]
    if pa.types.is_decimal(type_):
        return decimal.Decimal
    if pa.types.is_list(type_):
        return list[_python_type(type_.value_field) | None]  # type: ignore[misc]
    found = _PYTHON.get(type_)
    if found is None:
        raise InvalidUsage(f"column {column.name!r}: type {type_} cannot be decoded; use a string")
    return found


def _fitting(column: pa.Field) -> Callable[[Any], Any] | None:
    """Return a check that msgspec cannot make; ``None`` where there is none to make."""
    type_ = column.type
    if pa.types.is_decimal(type_):

        def exactly(value: decimal.Decimal) -> decimal.Decimal:
            try:
                pa.scalar(value, type_)
            except (pa.ArrowInvalid, decimal.InvalidOperation) as error:
                raise Undecodable(f"column {column.name!r}: {value} is no {type_}") from error
            return value

        return exactly
    return None


def _checked(row: Row, checks: tuple[tuple[int, Callable[[Any], Any]], ...]) -> Row:
    for place, check in checks:
        if row[place] is not None:
            check(row[place])
    return row


def _optional(schema: pa.Schema) -> list[Any]:
    return [_python_type(f) | None if f.nullable else _python_type(f) for f in schema]


@dataclass(frozen=True, slots=True)
class Json:
    """An object, by the names of its members."""

    schema: pa.Schema
    record: Any = field(init=False, repr=False, compare=False)
    """The type that msgspec decodes into, for whoever decodes a row inside of something else."""
    members: Any = field(init=False, repr=False, compare=False)
    """Its values as a tuple."""
    _decoder: Any = field(init=False, repr=False, compare=False)
    _getters: Any = field(init=False, repr=False, compare=False)
    _checks: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        fields: list[Any] = []
        for number, (column, type_) in enumerate(
            zip(self.schema, _optional(self.schema), strict=True)
        ):
            # Members are named by position, so that any column name will do.
            named: Any = {"name": column.name, **({"default": None} if column.nullable else {})}
            fields.append((f"f{number}", type_, msgspec.field(**named)))
        struct = msgspec.defstruct("Record", fields, kw_only=True, frozen=True, gc=False)
        object.__setattr__(self, "record", struct)
        object.__setattr__(self, "_decoder", msgspec.json.Decoder(struct))
        # A struct without members to take, or with one, is no tuple of them.
        names = [name for name, *_ in fields]
        members = attrgetter(*names) if len(names) > 1 else msgspec.structs.astuple
        object.__setattr__(self, "members", members)
        object.__setattr__(self, "_getters", tuple(map(attrgetter, names)))
        object.__setattr__(self, "_checks", _checks(self.schema))

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as the columns: decoders are made anew where they are used."""
        return Json, (self.schema,)

    def decode(self, data: bytes) -> Row:
        """Return the members that are columns."""
        try:
            found = self._decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, decimal.InvalidOperation) as error:
            raise Undecodable(str(error)) from error
        return self.checked(self.members(found))

    def records(self, values: Iterable[bytes | None]) -> list[Any]:
        """Return the records of many messages; raise for the first that is none."""
        try:
            return list(map(self._decoder.decode, values))
        except (msgspec.DecodeError, UnicodeDecodeError, decimal.InvalidOperation) as error:
            raise Undecodable(str(error)) from error

    def columns(self, records: Sequence[Any]) -> list[list[Any]]:
        """Return the values of records column by column: a tuple a row would cost three times it.

        Raises for the first that does not fit its column.
        """
        found = [list(map(getter, records)) for getter in self._getters]
        for place, check in self._checks:
            for value in found[place]:
                if value is not None:
                    check(value)
        return found

    def checked(self, row: Row) -> Row:
        """Return a row whose values all fit their columns; raise if they do not."""
        return _checked(row, self._checks) if self._checks else row


def _checks(schema: pa.Schema) -> tuple[tuple[int, Callable[[Any], Any]], ...]:
    found = ((place, _fitting(column)) for place, column in enumerate(schema))
    return tuple((place, check) for place, check in found if check is not None)


@dataclass(frozen=True, slots=True)
class JsonText:
    """Any JSON value, kept as its text in one column."""

    schema: pa.Schema = _JSON_TEXT

    def decode(self, data: bytes) -> Row:
        """Return the text, if it is JSON."""
        try:
            msgspec.json.decode(data, type=msgspec.Raw)
            return (data.decode(),)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Undecodable(str(error)) from error


@dataclass(frozen=True, slots=True)
class Csv:
    """One line of fields in the order of the columns."""

    schema: pa.Schema
    delimiter: str = ","
    _types: Any = field(init=False, repr=False, compare=False)
    _checks: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_types", tuple(_python_type(f) for f in self.schema))
        object.__setattr__(self, "_checks", _checks(self.schema))

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as the columns."""
        return Csv, (self.schema, self.delimiter)

    def decode(self, data: bytes) -> Row:
        """Return the fields, each as its column's type."""
        try:
            lines = list(csv.reader([data.decode()], delimiter=self.delimiter, strict=True))
        except (csv.Error, UnicodeDecodeError) as error:
            raise Undecodable(str(error)) from error
        fields = lines[0] if lines else []
        if len(fields) != len(self.schema):
            raise Undecodable(f"{len(fields)} fields, and {len(self.schema)} columns")
        values: list[Any] = []
        for text, column, type_ in zip(fields, self.schema, self._types, strict=True):
            if not text and not pa.types.is_string(column.type):
                if not column.nullable:
                    raise Undecodable(f"column {column.name!r} is empty, and NOT NULL")
                values.append(None)
                continue
            try:
                values.append(msgspec.convert(text, type_, strict=False))
            except msgspec.ValidationError as error:
                raise Undecodable(f"column {column.name!r}: {error}") from error
        return _checked(tuple(values), self._checks)


@dataclass(frozen=True, slots=True)
class Text:
    """UTF-8 text in one column."""

    schema: pa.Schema = _TEXT

    def decode(self, data: bytes) -> Row:
        """Return the text."""
        try:
            return (data.decode(),)
        except UnicodeDecodeError as error:
            raise Undecodable(str(error)) from error


@dataclass(frozen=True, slots=True)
class Bytes:
    """The bytes themselves in one column."""

    schema: pa.Schema = _BYTES

    def decode(self, data: bytes) -> Row:
        """Return the bytes."""
        return (data,)

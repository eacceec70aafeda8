"""Decoding many messages at once: the same answers as one by one, at the price of a column.

    decode_all(format, values)  ->  the rows, where each came from, and what was refused

A batch is decoded in one sweep; should one of its messages be refused, every message is decoded by
itself, and the refused ones are told with their reasons. So what becomes of a message never depends
on its neighbours, only the price does.

:class:`Included` columns are those of the message itself (its place, key, timestamp, headers), put
behind the columns that were decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec
import numpy as np
import pyarrow as pa

from headwater.base.errors import InvalidUsage
from headwater.storage.format import Format, Json, Row, Swept, Undecodable
from headwater.storage.reclock import Longs
from headwater.storage.source import HEADERS, OFFSET, PARTITION, TIMESTAMP

NO_VALUE: Final = "the message has no value"

Refused = list[tuple[int, str]]
"""The places of messages in their batch, and why each is no row."""


Columns = Sequence[Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Decoded:
    """The values of a batch, column by column; ``kept`` are the places of the messages they are of,
    ``None`` for all."""

    columns: Columns
    kept: Longs | None
    refused: Refused


def decode_all(
    format_: Format, values: Sequence[bytes | None], unfit: Sequence[tuple[int, str]] = ()
) -> Decoded:
    """Decode every message; those of ``unfit`` are refused whatever is in them."""
    if not unfit:
        try:
            return Decoded(_swept(format_, values), None, [])
        except (Undecodable, TypeError):
            pass  # Which, and why, is found one by one.
    rows: list[Row] = []
    kept: list[int] = []
    refused: Refused = []
    why_not = dict(unfit)
    for place, value in enumerate(values):
        try:
            if place in why_not:
                raise Undecodable(why_not[place])
            rows.append(format_.decode(_some(value)))
            kept.append(place)
        except Undecodable as why:
            refused.append((place, str(why)))
    return Decoded(_transposed(rows, format_.schema), np.array(kept, np.int64), refused)


def _swept(format_: Format, values: Sequence[bytes | None]) -> Columns:
    if isinstance(format_, Json):
        return format_.columns(format_.records(values))
    if isinstance(format_, Swept):
        return format_.swept(values)
    return _transposed([format_.decode(_some(value)) for value in values], format_.schema)


def _some(value: bytes | None) -> bytes:
    if value is None:
        raise Undecodable(NO_VALUE)
    return value


def _transposed(rows: Sequence[Row], schema: pa.Schema) -> Columns:
    return list(zip(*rows, strict=True)) if rows else [()] * len(schema)


def arrays_of(columns: Columns, schema: pa.Schema) -> list[pa.Array]:
    """Return decoded columns as Arrow; the format has checked that the values fit."""
    return [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]


def columns_of(rows: Sequence[Row], schema: pa.Schema) -> list[pa.Array]:
    """Return decoded rows as columns."""
    return arrays_of(_transposed(rows, schema), schema)


# ---- columns of the message itself -----------------------------------------------------------

What = Literal["key", "partition", "offset", "timestamp", "headers"]

_COLUMN: Final = {
    "key": "key",
    "partition": PARTITION,
    "offset": OFFSET,
    "timestamp": TIMESTAMP,
    "headers": HEADERS,
}
HEADERS_TYPE: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_TYPES: Final[dict[str, tuple[pa.DataType, ...]]] = {
    "key": (pa.binary(), pa.string()),
    "partition": (pa.string(), pa.int32()),
    "offset": (pa.int64(),),
    "timestamp": (pa.timestamp("us", "UTC"),),
    "headers": (HEADERS_TYPE, pa.string()),
}


@dataclass(frozen=True, slots=True)
class Included:
    """A column of the message itself: which, under what name, and as what.

    The first type, unless it is said: a key is bytes or text, a partition text or a number, headers
    are a list or its JSON (``[{"key": …, "value": …}, …]``; bytes that are no text as ``\\x…``).
    """

    what: What
    name: str
    type: pa.DataType | None = None

    def __post_init__(self) -> None:
        possible = _TYPES[self.what]
        if self.type is not None and self.type not in possible:
            raise InvalidUsage(f"{self.what} of a message is one of {possible}, not {self.type}")

    @property
    def field(self) -> pa.Field:
        """The column."""
        required = self.what in {"partition", "offset"}
        return pa.field(self.name, self.type or _TYPES[self.what][0], nullable=not required)

    def column(self, stamped: pa.Table) -> Any:
        """Return the column of a batch."""
        if _COLUMN[self.what] not in stamped.column_names:
            raise InvalidUsage(f"this source was not asked for the {self.what} of its messages")
        found = stamped.column(_COLUMN[self.what])
        if self.what == "headers" and self.type == pa.string():
            return pa.array([_json(headers) for headers in found.to_pylist()], pa.string())
        return found.cast(self.field.type)


def _json(headers: Sequence[dict[str, Any]]) -> str:
    read = [{"key": each["key"], "value": _readable(each["value"])} for each in headers]
    return msgspec.json.encode(read).decode()


def _readable(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        assert value is not None
        return f"\\x{value.hex()}"


def unfit_keys(stamped: pa.Table, included: Sequence[Included]) -> Refused:
    """Return the messages whose key was to be text, and is none."""
    if not any(each.what == "key" and each.type == pa.string() for each in included):
        return []
    refused: Refused = []
    for place, key in enumerate(stamped.column("key").to_pylist()):
        try:
            (key or b"").decode()
        except UnicodeDecodeError as error:
            refused.append((place, f"key: {error}"))
    return refused

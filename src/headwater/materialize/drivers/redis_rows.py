"""What a row is in Redis: a hash by key, or an entry of a stream; and the key of a hash.

    target:KEY      a hash with a field per column; a NULL has no field
    target          in delta mode: a stream, with an entry for every row that came or went

Every value is text as JSON has it (``true``, ``-7``, ``0.1``, ``12.340``,
``2026-11-15T07:08:09.12Z``), bytes are bytes, and what has parts is JSON text. The key columns are
fields, too, so that no hash is without a field.

``KEY`` is the text of the key column. Of several columns it is their texts joined by ``:``, with
``%`` and ``:`` within them written as ``%25`` and ``%3A``: two keys are never one. A zero is
``0`` whatever its sign, as it is one key everywhere here.

What is done with a row is an :class:`Op`, which ``redis_scripts`` and a pipeline both understand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headwater.materialize.drivers.columns import Column, Kind
from headwater.materialize.joined import joined
from headwater.materialize.projections import packable
from headwater.materialize.protocol.messages import StoreMany
from headwater.materialize.tuples import Element

Text = bytes | str


class Op(NamedTuple):
    """One thing to do: a tuple, because that is what a script reads of it."""

    kind: Literal["n", "p", "d", "x"]
    """A new row, one that may be there, one that goes; an entry of a stream."""
    key: Text
    fields: Sequence[Text] = ()
    """Names and values, one after the other."""
    nulls: Sequence[Text] = ()
    """Columns without a value."""


_READ_AS: Final[Mapping[Kind, pa.DataType]] = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.INTEGER: pa.int64(),
    Kind.DOUBLE: pa.float64(),
}
"""What was loaded becomes; the rest stay texts, which every reader of documents knows."""


def ops(
    target: str, columns: Sequence[Column], store: StoreMany, *, delta: bool, hard_delete: bool
) -> Iterator[Op]:
    """Yield what a Store does, in its order."""
    names = [column.name for column in columns]
    # A value that does not fit its column is refused here: Redis would take any text.
    arrays = [_fitting(column.kind, store.rows.column(column.name)) for column in columns]
    values = [texts(array) for array in arrays]
    if delta:
        for entry in zip(*values, strict=True):
            fields, _ = _fields(names, entry)
            yield Op("x", target, fields)
        return
    keys = hash_keys(target, [a for a, c in zip(arrays, columns, strict=True) if c.key])
    gone = store.delete.to_pylist() if hard_delete else [False] * len(keys)
    rows = zip(keys, gone, store.exists.to_pylist(), *values, strict=True)
    for key, goes, exists, *row in rows:
        if goes:
            yield Op("d", key)
        else:
            yield Op("p" if exists else "n", key, *_fields(names, row))


def _fields(names: Sequence[str], row: Sequence[Any]) -> tuple[list[Text], list[Text]]:
    fields: list[Text] = []
    nulls: list[Text] = []
    for name, value in zip(names, row, strict=True):
        if value is None:
            nulls.append(name)
        else:
            fields += (name, value)
    return fields, nulls


def _fitting(kind: Kind, column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.int64()) if kind is Kind.INTEGER else column


def texts(column: pa.ChunkedArray | pa.Array) -> list[Text | None]:
    """Return a column's values as Redis keeps them."""
    array = joined(column)
    plain = packable(array)
    if not pa.types.is_binary(array.type) and not pa.types.is_large_binary(array.type):
        plain = plain.cast(pa.large_string())
    values: list[Text | None] = plain.to_pylist()
    return values


def hash_keys(target: str, columns: Sequence[pa.ChunkedArray | pa.Array]) -> list[Text]:
    """Return the keys of the hashes of rows, given their key columns."""
    parts = [texts(_unsigned_zero(column)) for column in columns]
    if len(parts) == 1:
        return [_joined(target, (part,)) for part in parts[0]]
    return [_joined(target, [_escaped(part) for part in row]) for row in zip(*parts, strict=True)]


def keys_of_loads(target: str, keys: Sequence[tuple[Element, ...]]) -> list[Text]:
    """Return the keys of the hashes that are asked for, by unpacked keys."""
    return hash_keys(target, [pa.array(list(part)) for part in zip(*keys, strict=True)])


def _unsigned_zero(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    return pc.add(column, 0.0) if pa.types.is_floating(column.type) else column


def _escaped(part: Text | None) -> Text | None:
    if isinstance(part, bytes):
        return part.replace(b"%", b"%25").replace(b":", b"%3A")
    return None if part is None else part.replace("%", "%25").replace(":", "%3A")


def _joined(target: str, parts: Sequence[Text | None]) -> Text:
    """Return a key; the runtime has refused a NULL in one."""
    if not any(isinstance(part, bytes) for part in parts):
        return ":".join((target, *map(str, parts)))
    return b":".join(
        part if isinstance(part, bytes) else str(part).encode() for part in (target, *parts)
    )


def loaded(columns: Sequence[Column], found: Sequence[Sequence[bytes | None]]) -> pa.Table:
    """Return hashes, each as the values of the columns, as rows; those that are not there are not.

    A hash without its key is not one of ours.
    """
    keys = [at for at, column in enumerate(columns) if column.key]
    rows = [row for row in found if all(row[at] is not None for at in keys)]
    each = list(zip(*rows, strict=True)) or [()] * len(columns)
    return pa.table(
        {column.name: _read(column.kind, v) for column, v in zip(columns, each, strict=True)}
    )


def _read(kind: Kind, values: Sequence[bytes | None]) -> pa.Array:
    found = pa.array(values, pa.binary())
    return (
        found
        if kind is Kind.BYTES
        else found.cast(pa.string()).cast(_READ_AS.get(kind, pa.string()))
    )

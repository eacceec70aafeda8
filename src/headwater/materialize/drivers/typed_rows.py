"""Rows and keys in the types that an endpoint's columns have: by Arrow, and never with a loss.

A driver that hands over whole columns says in which Arrow type its table has each. What came over a
wire is texts, and so are the parts of a packed key that JSON has no type for: they are parsed.
What has parts becomes JSON text. A value that does not fit its type is refused here; a database
might round it, or cut it off.

Kept by:        :func:`typed`, whose casts are safe ones.
Relied on by:   drivers of databases and lakes, for "a value is stored as it is, or not at all".
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headwater.materialize.documents import is_text
from headwater.materialize.joined import joined
from headwater.materialize.projections import packable, times_of_day
from headwater.materialize.tuples import Element
from headwater.materialize.uuids import uuid_bytes


def typed(column: pa.ChunkedArray | pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column in a type; raises what Arrow says of a value that does not fit."""
    array = joined(column)
    if pa.types.is_nested(array.type) or is_text(kind):
        array = packable(array)  # JSON text, or the text of a number or time as keys have it.
    if is_text(array.type) and pa.types.is_time(kind):
        return times_of_day(array, kind)
    if is_text(array.type) and kind == pa.uuid():
        return uuid_bytes(array).cast(kind)
    return array.cast(kind)


def stored(array: pa.Array) -> pa.Array:
    """Return UUIDs as their bytes, which every function of Arrow's knows; all else as it is."""
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def typed_rows(rows: pa.Table, columns: Sequence[str], kinds: Sequence[pa.DataType]) -> pa.Table:
    """Return some columns of rows, each in its type."""
    arrays = [typed(rows.column(name), kind) for name, kind in zip(columns, kinds, strict=True)]
    return pa.table(arrays, names=list(columns))


def typed_keys(
    keys: Sequence[tuple[Element, ...]], columns: Sequence[str], kinds: Sequence[pa.DataType]
) -> pa.Table:
    """Return unpacked keys as columns, each in its type."""
    parts = list(zip(*keys, strict=True)) or [()] * len(columns)
    arrays = [typed(pa.array(list(p)), kind) for p, kind in zip(parts, kinds, strict=True)]
    return pa.table(arrays, names=list(columns))

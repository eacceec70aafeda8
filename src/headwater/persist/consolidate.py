"""Consolidation: one update for each distinct ``(row, time)``, none with diff 0.

    consolidate(U) = { (row, time, sum of diffs of (row, time) in U) : that sum is not 0 }

It denotes the same collection as ``U`` at every time, and the sum of all diffs stays what it was.

**Row identity is bitwise**, unlike SQL equality: NULL is identical to NULL, NaN to the same NaN,
``0.0`` is not ``-0.0``, ``1.10`` and ``1.1`` of one decimal type are the same bits. Otherwise a
retraction could cancel a row that a reader can tell apart from it. A map is identified by the set
of its entries, because nobody promises their order.

The output keeps the order of first appearance, so a sorted input gives a sorted output, and the
same input always gives the same bytes. Nested columns take a slower way, through canonical bytes.

Most updates have no twin. So those that can have one are found first (``persist/fingerprint.py``),
and only they are compared; where that is most of them, all are.

Kept by: this module. Relied on by: merges of Parquet parts and of keyed runs, snapshots, views.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.persist import fingerprint

TIME: Final = "__time"
"""The column of an update's time: ``int64``, never NULL."""

DIFF: Final = "__diff"
"""The column of an update's multiplicity: ``int64``, never NULL."""

Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def consolidate(updates: pa.Table) -> pa.Table:
    """Return the consolidated updates; the very same table where there was nothing to do."""
    shared = _shared(updates)
    if shared is None and _all_alive(updates):
        return updates
    rows, diffs = _consolidation(updates, shared)
    if len(rows) == len(updates):
        return updates
    if 2 * len(rows) > len(updates):
        # Much faster than to take most rows one by one; the order is the same.
        alive = np.zeros(len(updates), np.bool_)
        alive[rows] = True
        kept = updates.filter(pa.array(alive))
    else:
        kept = updates.take(pa.array(rows))
    position = kept.schema.get_field_index(DIFF)
    return kept.set_column(position, kept.schema.field(position), pa.array(diffs))


def consolidation(updates: pa.Table) -> tuple[Longs, Longs]:
    """Return what consolidation keeps: row numbers, ascending, and the summed diff of each.

    The row number is that of the first of the identical updates.
    """
    return _consolidation(updates, _shared(updates))


def _shared(updates: pa.Table) -> Mask | None:
    """Return which updates may have a twin; ``None`` where none has."""
    if len(updates) < 2:
        return None
    return fingerprint.shared(updates, [name for name in updates.column_names if name != DIFF])


def _all_alive(updates: pa.Table) -> bool:
    """Whether no diff is 0; chunk by chunk, because to join them would cost more than to look."""
    chunks = _long_column(updates, DIFF).chunks
    return all(np.count_nonzero(chunk.to_numpy()) == len(chunk) for chunk in chunks)


def _consolidation(updates: pa.Table, shared: Mask | None) -> tuple[Longs, Longs]:
    diffs = column_longs(updates, DIFF)
    if shared is None:
        rows: Longs = np.flatnonzero(diffs)
        return rows, diffs[rows]
    twins = np.flatnonzero(shared)
    if 2 * len(twins) > len(updates):
        return _grouped(updates, diffs)
    # A filter goes chunk by chunk, where to take rows would first join all chunks.
    first, sums = _grouped(updates.filter(pa.array(shared)), diffs[twins])
    alive = ~shared & (diffs != 0)
    alive[twins[first]] = True
    rows, summed = np.flatnonzero(alive), diffs.copy()
    summed[twins[first]] = sums
    return rows, summed[rows]


def _grouped(updates: pa.Table, diffs: Longs) -> tuple[Longs, Longs]:
    """Do as ``consolidation`` does, by comparing every update with every other."""
    identity = dict(_identity(updates))
    names = list(identity)
    numbered = pa.table({**identity, "diff": diffs, "row": np.arange(len(updates), dtype=np.int64)})
    # One thread: the order of the groups is then that of their first rows.
    groups = numbered.group_by(names, use_threads=False).aggregate(
        [("diff", "sum"), ("row", "min")]
    )
    sums: Longs = groups["diff_sum"].to_numpy()
    first: Longs = groups["row_min"].to_numpy()
    alive = sums != 0
    order = np.argsort(first[alive], kind="stable")
    return first[alive][order], sums[alive][order]


def column_longs(updates: pa.Table, name: str) -> Longs:
    """Return a system column (time, diff, hash) as numbers; it must be ``int64`` without NULLs."""
    numbers: Longs = _long_column(updates, name).to_numpy()
    return numbers


def _long_column(updates: pa.Table, name: str) -> Any:
    column = updates[name]
    assert column.type == pa.int64(), f"column {name} is {column.type}, not int64"
    assert column.null_count == 0, f"column {name} has NULLs"
    return column


def _identity(updates: pa.Table) -> Iterator[tuple[str, Any]]:
    """Yield flat columns that are equal (to Arrow's group_by) iff the rows are identical."""
    for number, (field, column) in enumerate(zip(updates.schema, updates.columns, strict=True)):
        if field.name != DIFF:
            yield from _flat(f"c{number}", column)


def _flat(name: str, column: Any) -> Iterator[tuple[str, Any]]:
    type_ = column.type
    if pa.types.is_struct(type_):
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        yield f"{name}?", pc.is_valid(array)
        # flatten() makes a field NULL where its struct is.
        for number, child in enumerate(array.flatten()):
            yield from _flat(f"{name}.{number}", child)
    elif pa.types.is_floating(type_):
        yield name, _bits(column)
    elif pa.types.is_nested(type_):
        yield name, pa.array([_canonical(value, type_) for value in column], pa.large_binary())
    elif pa.types.is_dictionary(type_):
        yield from _flat(name, column.cast(type_.value_type))
    else:
        yield name, column


_BITS: Final = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


def _bits(column: Any) -> Any:
    """Read floats as integers of the same bits, so that identity does not hang on Arrow's taste."""
    bits = _BITS[column.type.bit_width]
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([chunk.view(bits) for chunk in column.chunks], bits)
    return column.view(bits)


def _canonical(value: Any, type_: pa.DataType) -> bytes | None:
    """Return bytes that are equal iff two values of this type are identical; ``None`` for NULL."""
    if not value.is_valid:
        return None
    t = pa.types
    if t.is_map(type_):
        entries = [
            _packed(key, type_.key_type) + _packed(item, type_.item_type)
            for key, item in _entries(value)
        ]
        return _counted(sorted(entries))
    if t.is_list(type_) or t.is_large_list(type_) or t.is_fixed_size_list(type_):
        return _counted([_packed(item, type_.value_type) for item in value.values])
    if t.is_struct(type_):
        return b"".join(_packed(value[n], type_.field(n).type) for n in range(type_.num_fields))
    if t.is_float64(type_):
        return struct.pack("<d", value.as_py())
    if t.is_floating(type_):
        return struct.pack("<f", value.as_py())  # exact for half and single precision
    if t.is_temporal(type_) and not t.is_interval(type_):
        return str(value.value).encode()  # the stored number: as_py() would cut nanoseconds
    plain = value.as_py()
    return plain if isinstance(plain, bytes) else str(plain).encode()


def _entries(value: Any) -> Iterator[tuple[Any, Any]]:
    for entry in value.values:
        yield entry[0], entry[1]


def _packed(value: Any, type_: pa.DataType) -> bytes:
    """Prefix the bytes by their length (0 for NULL, else length + 1): no two lists run together."""
    canonical = _canonical(value, type_)
    if canonical is None:
        return struct.pack("<Q", 0)
    return struct.pack("<Q", len(canonical) + 1) + canonical


def _counted(parts: list[bytes]) -> bytes:
    return struct.pack("<Q", len(parts)) + b"".join(parts)

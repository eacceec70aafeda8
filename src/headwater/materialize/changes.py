"""From the updates of an interval to what is stored: one upsert or delete per key.

A binding with a key promises that its collection has at most one row per key at every time.
Summing the updates of ``[lower, upper)`` per row, whatever their times, gives the net change: rows
with -1 were there at ``lower`` and are gone, rows with +1 are there now. So

    exists = the key has a row with -1        delete = the key has no row with +1

and nothing need be loaded to know whether a key was there: the collection says it itself.

The result is ordered by packed key, as the protocol demands; only keys whose hash is in the shard's
range are in it. A key with two rows, or without a value, is refused by name.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.base.errors import InvalidUsage
from headwater.materialize.key_range import KeyRange, key_hashes
from headwater.materialize.projections import packable
from headwater.materialize.protocol.messages import StoreMany
from headwater.materialize.tuples import pack_columns, unpack
from headwater.persist.compact import advance
from headwater.persist.consolidate import consolidate
from headwater.persist.evolution import DIFF, TIME


class NotUnique(InvalidUsage):
    """Two rows have the same key at one time."""

    def __init__(self, binding: int, key: Sequence[str], packed: bytes) -> None:
        super().__init__(
            f"binding {binding}: two rows have the key {unpack(packed)}, and {list(key)} must be "
            "unique; choose key columns that identify a row"
        )


class NullKey(InvalidUsage):
    """A row whose key has no value."""

    def __init__(self, binding: int, column: str) -> None:
        super().__init__(
            f"binding {binding}: a row has NULL in its key column {column!r}; choose key columns "
            "without NULLs, or filter such rows out in a view"
        )


def changes(
    binding: int, key: Sequence[str], updates: pa.Table, upper: int, key_range: KeyRange
) -> StoreMany:
    """Return the net change of a binding's part in a key range."""
    net = consolidate(advance(updates, upper)).drop_columns([TIME]).combine_chunks()
    for column in key:
        if net.column(column).null_count:
            raise NullKey(binding, column)
    packed = pack_columns([packable(_array(net.column(column))) for column in key])
    diff = _array(net.column(DIFF)).to_numpy()
    if key_range != KeyRange.full():
        hashes = key_hashes(packed)
        owned = pa.array((hashes >= key_range.begin) & (hashes <= key_range.end))
        net, packed, diff = net.filter(owned), packed.filter(owned), diff[owned.to_numpy(False)]
    # Of one key, what is gone comes before what is there now.
    by_key = pc.sort_indices(
        pa.table({"key": packed, "diff": diff}), [("key", "ascending"), ("diff", "ascending")]
    )
    net, packed, diff = net.take(by_key), packed.take(by_key), diff[by_key.to_numpy()]
    same = _same_as_before(packed)
    _check_unique(binding, key, packed, diff, same)
    followed = np.append(same[1:], False) if len(same) else same
    kept = pa.array(~followed)
    return StoreMany(
        binding,
        packed.filter(kept),
        net.filter(kept).drop_columns([DIFF]),
        exists=pa.array((diff < 0) | same).filter(kept),
        delete=pa.array(diff < 0).filter(kept),
    )


def _array(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined


def _same_as_before(packed: pa.LargeBinaryArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which keys equal the one before them."""
    if len(packed) < 2:
        return np.zeros(len(packed), bool)
    equal = pc.equal(packed.slice(1), packed.slice(0, len(packed) - 1))
    return np.concatenate([[False], equal.to_numpy(zero_copy_only=False)])


def _check_unique(
    binding: int,
    key: Sequence[str],
    packed: pa.LargeBinaryArray,
    diff: np.ndarray[tuple[int], np.dtype[np.int64]],
    same: np.ndarray[tuple[int], np.dtype[np.bool_]],
) -> None:
    """Each key has at most one row that goes, and one that comes."""
    again = same & (np.sign(diff) == np.sign(np.roll(diff, 1)))
    wrong = np.flatnonzero(again | (np.abs(diff) > 1))
    if len(wrong):
        raise NotUnique(binding, key, packed[int(wrong[0])].as_py())

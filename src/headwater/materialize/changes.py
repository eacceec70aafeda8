"""From the updates of an interval to what is stored: one upsert or delete per key.

A binding with a key promises that its collection has at most one row per key at every time.
Summing the updates of ``[lower, upper)`` per row, whatever their times, gives the net change: rows
with -1 were there at ``lower`` and are gone, rows with +1 are there now. So

    exists = the key has a row with -1        delete = the key has no row with +1

and nothing need be loaded to know whether a key was there: the collection says it itself.

The result is ordered by packed key, as the protocol demands; only keys whose hash is in the shard's
range are in it. A key with two rows, or without a value, is refused by name. A second row for a key
that is in the endpoint already cannot be seen here: it is stored with ``exists`` false, and the
driver refuses it (``drivers/sql.py``).

In delta mode nothing is combined but the interval: each row that went or came is a document; those
of one key are ordered by what became of them, then by the packed bytes of the whole row.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.base.errors import InvalidUsage
from headwater.materialize.documents import to_documents
from headwater.materialize.joined import joined
from headwater.materialize.key_range import KeyRange, key_hashes
from headwater.materialize.projections import OP, packable
from headwater.materialize.protocol.messages import StoreMany
from headwater.materialize.tuples import pack_columns, unpack
from headwater.persist.compact import advance
from headwater.persist.consolidate import consolidate
from headwater.persist.evolution import DIFF, TIME

OP_FIELD: Final = pa.field(OP, pa.string(), nullable=False)


class NotUnique(InvalidUsage):
    """Two rows have the same key at one time."""

    def __init__(self, binding: int | str, key: Sequence[str], packed: bytes) -> None:
        self.key, self.packed = tuple(key), packed
        super().__init__(
            f"binding {binding}: two rows have the key {unpack(packed)}, and {list(key)} must be "
            "unique; choose key columns that identify a row, or say which row is delivered: "
            "WITH (DUPLICATE_KEYS 'first') or 'last'"
        )

    def of(self, binding: str) -> NotUnique:
        """Return the same of a binding that has a name."""
        return NotUnique(binding, self.key, self.packed)


class NullKey(InvalidUsage):
    """A row whose key has no value."""

    def __init__(self, binding: int | str, column: str) -> None:
        self.column = column
        super().__init__(
            f"binding {binding}: a row has NULL in its key column {column!r}; choose key columns "
            "without NULLs, or filter such rows out in a view"
        )

    def of(self, binding: str) -> NullKey:
        """Return the same of a binding that has a name."""
        return NullKey(binding, self.column)


_Longs = np.ndarray[tuple[int], np.dtype[np.int64]]
_Flags = np.ndarray[tuple[int], np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class Net:
    """The net change of an interval in a key range, ordered by packed key and diff."""

    found: pa.Table
    """Its rows, as they were found: to bring them into order is what costs most of it."""
    order: _Longs | None
    """Which of them comes when; ``None``: as they are."""
    packed: pa.LargeBinaryArray
    diff: _Longs
    distinct: bool = False
    """Whether no key is there twice, as far as that is known."""

    def same_as_before(self) -> _Flags:
        """Return which keys equal the one before them."""
        return np.zeros(len(self.diff), bool) if self.distinct else same_as_before(self.packed)

    def rows(self, wanted: _Longs | None = None) -> pa.Table:
        """Return the rows in order: all, or those at some places of it."""
        at = wanted
        if self.order is not None:
            at = self.order if wanted is None else self.order[wanted]
        return self.found if at is None else self.found.take(pa.array(at))


def net_change(
    binding: int, key: Sequence[str], updates: pa.Table, upper: int, key_range: KeyRange
) -> Net:
    """Return the rows that went and came; of one key, what is gone comes first."""
    net = _net_rows(key, updates, upper)
    packed = packed_keys(binding, key, net)
    if key_range != KeyRange.full():
        owned = owned_keys(packed, key_range)
        net, packed = net.filter(owned), packed.filter(owned)
    diff = joined(net.column(DIFF)).to_numpy()
    rows = net.drop_columns([DIFF])
    keys = [joined(rows.column(column)) for column in key]
    if _ascends(_comparable(keys, packed)):
        # As it is where rows were written in the order of their key.
        return Net(rows, None, packed, diff, distinct=True)
    order = _order(keys, packed, diff)
    return Net(rows, order, packed.take(pa.array(order)), diff[order])


def _comparable(keys: Sequence[pa.Array], packed: pa.LargeBinaryArray) -> pa.Array:
    """Return what has the order of packed keys, as cheap to compare as it can be."""
    alone = len(keys) == 1 and pa.types.is_integer(keys[0].type)
    return keys[0] if alone else packed


def _order(keys: Sequence[pa.Array], packed: pa.LargeBinaryArray, diff: _Longs) -> _Longs:
    """Return in which order rows ascend by packed key, then by diff."""
    if len(keys) == 1 and pa.types.is_integer(keys[0].type):
        # Integers have the order of their packed bytes. What came and what went each ascend
        # mostly, and this sort has only to merge what is in order already.
        values = keys[0].to_numpy()
        by_diff = np.argsort(diff, kind="stable")
        return by_diff[np.argsort(values[by_diff], kind="stable")]
    order: _Longs = pc.sort_indices(
        pa.table({"key": packed, "diff": diff}), [("key", "ascending"), ("diff", "ascending")]
    ).to_numpy()
    return order


def _net_rows(key: Sequence[str], updates: pa.Table, upper: int) -> pa.Table:
    """Return the rows of updates and the sum of the diffs of each, none of which is 0."""
    if in_order(key, updates):
        # No key is there twice, so no row is. So it is with snapshots, mostly; and to look is
        # far cheaper than to compare whole rows.
        alive = pc.not_equal(updates.column(DIFF), 0)
        rows = updates if pc.all(alive).as_py() else updates.filter(alive)
        return rows.drop_columns([TIME])
    return consolidate(advance(updates, upper)).drop_columns([TIME])


def in_order(key: Sequence[str], rows: pa.Table) -> bool:
    """Whether rows ascend by key and are all different, as the first column of it can tell."""
    first = rows.column(key[0])
    text = pa.types.is_string(first.type) or pa.types.is_large_string(first.type)
    may_tell = text or pa.types.is_integer(first.type)
    return bool(rows.num_rows and may_tell and _ascends(joined(first)))


def _ascends(keys: pa.Array) -> bool:
    """Whether each key is greater than the one before it; none is NULL then."""
    greater = pc.less(keys.slice(0, max(0, len(keys) - 1)), keys.slice(1))
    return not keys.null_count and bool(pc.all(greater).as_py())


def packed_keys(binding: int, key: Sequence[str], rows: pa.Table) -> pa.LargeBinaryArray:
    """Return the packed key of each row; refuse a NULL."""
    for column in key:
        if rows.column(column).null_count:
            raise NullKey(binding, column)
    return pack_columns([packable(joined(rows.column(column))) for column in key])


def owned_keys(packed: pa.LargeBinaryArray, key_range: KeyRange) -> pa.BooleanArray:
    """Return which keys are in a range."""
    hashes = key_hashes(packed)
    return pa.array((hashes >= key_range.begin) & (hashes <= key_range.end))


def changes(
    binding: int, key: Sequence[str], updates: pa.Table, upper: int, key_range: KeyRange
) -> StoreMany:
    """Return the net change of a binding's part in a key range: one row per key."""
    net = net_change(binding, key, updates, upper, key_range)
    same = net.same_as_before()
    _check_unique(binding, key, net.packed, net.diff, same)
    if not same.any():
        gone = pa.array(net.diff < 0)
        return StoreMany(binding, net.packed, net.rows(), exists=gone, delete=gone)
    kept = np.flatnonzero(~np.append(same[1:], False))
    return StoreMany(
        binding,
        net.packed.take(pa.array(kept)),
        net.rows(kept),
        exists=pa.array(((net.diff < 0) | same)[kept]),
        delete=pa.array(net.diff[kept] < 0),
    )


def with_op(store: StoreMany) -> StoreMany:
    """Return the same stores with a column that says what became of each row."""
    op = pc.if_else(store.delete, "d", pc.if_else(store.exists, "u", "c"))
    return replace(store, rows=store.rows.append_column(OP_FIELD, op))


def with_document(store: StoreMany, field: pa.Field, json: Collection[str]) -> StoreMany:
    """Return the same stores with a column that has each row as JSON; ``json``: columns that
    are."""
    columns = [name for name in store.rows.column_names if name != OP]
    documents = to_documents(store.rows.select(columns), json)
    texts = [msgspec.json.encode(document).decode() for document in documents]
    return replace(store, rows=store.rows.append_column(field, pa.array(texts, field.type)))


def deltas(
    binding: int, key: Sequence[str], updates: pa.Table, upper: int, key_range: KeyRange
) -> StoreMany:
    """Return every row that went or came, as often as it did, marked so; for delta updates."""
    net = _by_row(net_change(binding, key, updates, upper, key_range))
    times = pa.array(np.repeat(np.arange(len(net.diff)), np.abs(net.diff)))
    gone = pa.array(net.diff < 0).take(times)
    never = pa.repeat(pa.scalar(False), len(times))
    op = pc.if_else(gone, "d", "c")
    rows = net.rows().take(times).append_column(OP_FIELD, op)
    return StoreMany(binding, net.packed.take(times), rows, exists=never, delete=never)


def _by_row(net: Net) -> Net:
    """Return the same change with the rows of one key in an order of their own."""
    if not net.same_as_before().any():
        return net
    rows = net.rows()
    columns = [packable(joined(column)) for column in rows.columns]
    order = pc.sort_indices(
        pa.table({"key": net.packed, "diff": net.diff, "row": pack_columns(columns)}),
        [("key", "ascending"), ("diff", "ascending"), ("row", "ascending")],
    )
    return Net(rows.take(order), None, net.packed.take(order), net.diff[order.to_numpy()])


def same_as_before(packed: pa.LargeBinaryArray) -> _Flags:
    """Return which keys equal the one before them."""
    if len(packed) < 2:
        return np.zeros(len(packed), bool)
    equal = pc.equal(packed.slice(1), packed.slice(0, len(packed) - 1))
    return np.concatenate([[False], equal.to_numpy(zero_copy_only=False)])


def _check_unique(
    binding: int,
    key: Sequence[str],
    packed: pa.LargeBinaryArray,
    diff: _Longs,
    same: _Flags,
) -> None:
    """Each key has at most one row that goes, and one that comes."""
    if not len(diff) or (not same.any() and diff.min() >= -1 and diff.max() <= 1):
        return
    again = same & (np.sign(diff) == np.sign(np.roll(diff, 1)))
    wrong = np.flatnonzero(again | (np.abs(diff) > 1))
    if len(wrong):
        raise NotUnique(binding, key, packed[int(wrong[0])].as_py())

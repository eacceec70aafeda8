"""Combining: from the updates of an interval to one delta per key.

For a binding with a key the collection holds at most one row per key at every time. Summing the
updates of ``[lower, upper)`` per row, whatever their times, gives the net change: rows with -1 were
there at ``lower`` and are gone, rows with +1 are there now. A key in both was updated: it is put,
not removed. A key with two rows, or a row twice, breaks the binding's promise and is refused.
"""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc

from headwater.base.errors import InvalidUsage
from headwater.materialize.drivers.driver import BindingSpec, Delta
from headwater.persist.compact import advance
from headwater.persist.consolidate import consolidate
from headwater.persist.evolution import DIFF, TIME


class KeyNotUnique(InvalidUsage):
    """Two rows have the same key at one time."""

    def __init__(self, binding: BindingSpec, key: object) -> None:
        super().__init__(
            f"binding {binding.name!r}: two rows have the key {key}, and {list(binding.key)} must "
            f"be unique; choose key columns that identify a row"
        )


def combine(binding: BindingSpec, updates: pa.Table, upper: int) -> Delta:
    """Return the net change of a binding."""
    net = consolidate(advance(updates, upper)).drop_columns([TIME])
    diff = net.column(DIFF)
    rows = net.drop_columns([DIFF])
    removed = rows.filter(pc.less(diff, 0)).select(list(binding.key))
    put = rows.filter(pc.greater(diff, 0))
    put_keys = _keys(put.select(list(binding.key)))
    for key, count in Counter(put_keys).items():
        if count > 1:
            raise KeyNotUnique(binding, key)
    twice = net.filter(pc.greater(pc.abs(diff), 1))
    if twice.num_rows:
        raise KeyNotUnique(binding, _keys(twice.select(list(binding.key)))[0])
    updated = set(put_keys)
    only_removed = [key not in updated for key in _keys(removed)]
    return Delta(binding, removed.filter(pa.array(only_removed, pa.bool_())), put)


def _keys(table: pa.Table) -> list[tuple[object, ...]]:
    if not table.num_rows:
        return []
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))

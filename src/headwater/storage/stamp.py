"""Stamping: records of a range with the times that remap gives them. Pure.

The same wherever it happens, in the server's process or in a task: a function of the records and of
remap alone.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.persist.evolution import TIME
from headwater.storage.errors import DefiniteError
from headwater.storage.offsets import Offsets
from headwater.storage.reclock import Longs, times_of
from headwater.storage.remap import Remap
from headwater.storage.source import OFFSET, PARTITION


def stamped(source: str, remap: Remap, table: pa.Table, lower: Offsets, upper: Offsets) -> pa.Table:
    """Return records of ``[lower, upper)`` with their times; refuse any that are not of it."""
    offsets = table.column(OFFSET).to_numpy()
    times: Longs = np.zeros(len(offsets), np.int64)
    partitions = table.column(PARTITION).combine_chunks().dictionary_encode()
    codes = partitions.indices.to_numpy(zero_copy_only=False)
    for code, partition in enumerate(partitions.dictionary.to_pylist()):
        mine = codes == code
        places = offsets[mine]
        if places.min() < lower[partition] or places.max() >= upper[partition]:
            raise DefiniteError(
                source,
                f"asked for [{lower[partition]}, {upper[partition]}) of partition "
                f"{partition!r}, it gave offsets {places.min()} to {places.max()}",
                "this is a mistake of the source's implementation",
            )
        times[mine] = times_of(remap, partition, places)
    return table.append_column(pa.field(TIME, pa.int64(), nullable=False), pa.array(times))


def since(updates: pa.Table, upper: int) -> pa.Table:
    """Return what a collection that is complete before ``upper`` does not have yet."""
    if not updates.num_rows or pc.min(updates.column(TIME)).as_py() >= upper:
        return updates
    return updates.filter(pc.greater_equal(updates.column(TIME), upper))

"""A column of a table as one array.

Arrow's own way to that copies also what is one array already, and of a slice all of it; here only
what is in pieces is copied. An array so made may begin in the middle of its buffers: whoever looks
at these must mind its offset.

Relied on by: all that packs keys, compares them, or hands columns to an endpoint's client.
"""

from __future__ import annotations

import pyarrow as pa


def joined(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return a column as one array, without a copy where it is one."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    whole = column.combine_chunks()
    # What is too large for one array stays in pieces; no table of ours has so much in hand.
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole

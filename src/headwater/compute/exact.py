"""Exact integers as columns: sums that never overflow and never round.

An *exact column* is a numpy array of Python integers (dtype ``object``). An integer column is its
values, a DECIMAL(p, s) column its unscaled values (``1.25`` of scale 2 is 125). Adding, multiplying
and comparing such arrays is exact whatever the size; only what is stored or shown is narrowed, and
what does not fit raises :class:`Overflow`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.base.errors import HeadwaterError

Exact = npt.NDArray[np.object_]
Mask = npt.NDArray[np.bool_]

_LOW_WORD: Final = 2**64 - 1


class Overflow(HeadwaterError):
    """A sum that its SQL type cannot hold."""

    def __init__(self, type_: pa.DataType) -> None:
        super().__init__(f"a sum does not fit into {type_}; cast the column to a wider type")


def exact(column: Any) -> Exact:
    """Return an integer or decimal column as exact numbers; NULL as 0."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_integer(array.type):
        integers: Exact = array.cast(pa.int64()).fill_null(0).to_numpy().astype(object)
        return integers
    assert pa.types.is_decimal128(array.type), f"{array.type} has no exact sum"
    words = np.frombuffer(array.buffers()[1], np.int64)
    words = words[2 * array.offset : 2 * (array.offset + len(array))].reshape(-1, 2)
    high, low = words[:, 1].astype(object), words[:, 0].astype(np.uint64).astype(object)
    numbers: Exact = high * (_LOW_WORD + 1) + low
    if array.null_count:
        numbers[np.asarray(array.is_null())] = 0
    return numbers


def column(numbers: Exact, type_: pa.DataType, valid: Mask | None = None) -> pa.Array:
    """Return exact numbers as a column of this type, NULL where not ``valid``."""
    shown = numbers if valid is None else np.where(valid, numbers, 0)
    if pa.types.is_decimal(type_):
        limit = 10**type_.precision - 1
    else:
        limit = 2 ** (type_.bit_width - 1) - 1
    if len(shown) and (max(shown) > limit or min(shown) < -limit - (type_ == pa.int64())):
        raise Overflow(type_)
    nulls = None if valid is None else ~valid
    if not pa.types.is_decimal(type_):
        return pa.array(shown.astype(np.int64), type_, mask=nulls)
    words = np.empty((len(shown), 2), np.uint64)
    words[:, 0] = (shown & _LOW_WORD).astype(np.uint64)
    words[:, 1] = ((shown >> 64) & _LOW_WORD).astype(np.uint64)
    bits = None if valid is None else pa.array(valid).buffers()[1]
    return pa.Array.from_buffers(type_, len(shown), [bits, pa.py_buffer(words.tobytes())])

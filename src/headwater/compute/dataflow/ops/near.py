"""A number for each row, by which what is near in an order is near in an ordered run.

    number(row)  =  partition · 2^40  +  rank        both signed; rank in [1, 2^40 - 2]

    partition   24 bits of the hash of the partition's columns; 0 where there are none
    rank        rises with the value of the first key of the order: never falls, may stand still

So the rows of a partition are between two numbers (:func:`span`), with those of the few partitions
that have the same 24 bits; and of two of its rows the one with the lesser value has no greater
number. What is *between* two rows is therefore found between their numbers; who comes first where
numbers are equal is for the values to say.

    rank of whole numbers       the number itself up to 2^38, then by 33 digits of it
    of dates and timestamps     that of their days, and of their 8,192 microseconds
    of floating numbers         the first 40 bits; -0.0 as 0.0, NaN after all others
    of strings, binary          the first five bytes
    of NULL                     the end at which the order has it, seen from the values

Rows that agree in that much of their first key are one place: what reads around it reads them all.

Stored in states: never changed (``tests/unit/dataflow/test_near.py`` has golden numbers).
Kept by: this module. Relied on by: ``stretches.py``, ``lower_window.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.collection.key_hash import key_hash
from headwater.compute.dataflow.graph import Sort
from headwater.compute.dataflow.ops.exact import whole_numbers
from headwater.compute.dataflow.ops.groups import normalised, one_array
from headwater.compute.dataflow.term import decimal

Longs = npt.NDArray[np.int64]

RANK_BITS: Final = 40
_LEAST, _GREATEST = 1, (1 << RANK_BITS) - 2
_MIDDLE: Final = 1 << (RANK_BITS - 1)
_EXACT: Final = 1 << (RANK_BITS - 2)
"""Up to here a whole number is its own rank."""
_DIGITS_MAX: Final = 18
_TIMESTAMP_BITS: Final = 13
_TYPES: Final = frozenset(
    [
        "boolean",
        "tinyint",
        "smallint",
        "int",
        "bigint",
        "float",
        "double",
        "date",
        "timestamp",
        "timestamp_ntz",
        "string",
        "binary",
    ]
)


def has_rank(type_: str) -> bool:
    """Whether values of a type have ranks.

    >>> has_rank("int"), has_rank("decimal(12,2)"), has_rank("decimal(38,0)"), has_rank("map")
    (True, True, False, False)
    """
    digits = decimal(type_)
    return type_ in _TYPES or (digits is not None and digits[0] <= _DIGITS_MAX)


def numbers(rows: pa.Table, partition: Sequence[str], first: Sort) -> Longs:
    """Return the number of each row."""
    ranks = _ranks(one_array(rows.column(first.column)), first)
    if not partition:
        return ranks
    hashes = key_hash([rows.column(name) for name in partition])
    numbered: Longs = ((hashes >> RANK_BITS) << RANK_BITS) + ranks
    return numbered


def reached(
    rows: pa.Table, partition: Sequence[str], first: Sort, distance: int
) -> tuple[Longs, Longs]:
    """Return the least and the greatest number that values have which are so near to a row's.

    The distance is one of whole numbers, of days or of microseconds. NULL is near to NULL alone.
    """
    column = one_array(rows.column(first.column))
    own = numbers(rows, partition, first)
    start, _ = span(own)
    known = np.asarray(column.is_valid(), dtype=np.bool_)
    values, unit = _wholes(column.drop_null())
    least, greatest = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    room = np.clip(values, least + distance, greatest - distance)
    low, high = own.copy(), own.copy()
    low[known] = start[known] + _clipped(_of_wholes((room - distance) >> unit))
    high[known] = start[known] + _clipped(_of_wholes((room + distance) >> unit))
    return low, high


def span(numbered: Longs) -> tuple[Longs, Longs]:
    """Return two numbers between which all rows of the partition of each row are."""
    start = (numbered >> RANK_BITS) << RANK_BITS
    return start, start + (_GREATEST + 1)


def _ranks(column: Any, first: Sort) -> Longs:
    known = np.asarray(column.is_valid(), dtype=np.bool_)
    ranks = np.full(len(column), _LEAST if first.nulls_first != first.descending else _GREATEST)
    values = column if known.all() else column.drop_null()
    ranks[known] = _clipped(_ranked(values))
    return ranks


def _clipped(from_middle: Longs) -> Longs:
    ranks: Longs = np.clip(from_middle + _MIDDLE, _LEAST, _GREATEST)
    return ranks


def _ranked(values: Any) -> Longs:
    """Return the rank of each value, counted from the middle."""
    type_ = values.type
    if pa.types.is_floating(type_):
        return _of_doubles(normalised(values).cast(pa.float64()).to_numpy(zero_copy_only=False))
    if pa.types.is_decimal(type_):
        return _of_wholes(whole_numbers(values).digits.astype(np.int64))
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return _of_bytes(values.cast(pa.large_binary())) - _MIDDLE
    wholes, unit = _wholes(values)
    return _of_wholes(wholes >> unit)


def _wholes(values: Any) -> tuple[Longs, int]:
    """Return values as whole numbers, and how many bits of them are less than their rank tells."""
    if pa.types.is_timestamp(values.type):
        return values.cast(pa.int64()).to_numpy(), _TIMESTAMP_BITS
    if pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    return values.cast(pa.int64()).to_numpy(), 0


def _of_wholes(values: Longs) -> Longs:
    """Return whole numbers as they are while they fit, then the first digits of them.

    As doubles they keep their order, and the bits of a double that is not negative rise with it.
    """
    size = np.abs(values.astype(np.float64))
    beyond = (size.view(np.int64) - np.float64(_EXACT).view(np.int64)) >> 19
    ranks: Longs = np.where(size > _EXACT, np.sign(values) * (_EXACT + beyond), values)
    return ranks


def _of_doubles(values: npt.NDArray[np.float64]) -> Longs:
    bits = values.view(np.int64)
    rising = bits ^ ((bits >> 63) & np.iinfo(np.int64).max)
    ranks: Longs = rising >> (64 - RANK_BITS)
    return ranks


def _of_bytes(values: Any) -> Longs:
    length = pc.binary_length(values).to_numpy(zero_copy_only=False)
    _, offsets, data = values.buffers()
    start = np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values)]
    held = (
        np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    )
    ranks = np.zeros(len(values), np.int64)
    for place in range(RANK_BITS // 8):
        byte = held[np.minimum(start + place, len(held) - 1)]
        ranks = (ranks << 8) | np.where(place < length, byte, 0)
    return ranks

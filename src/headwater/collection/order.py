"""The canonical total order of rows: wherever SQL leaves an order open, it is this one.

Two rows are compared column by column, each in the *order of its values*:

    NULL             before everything, at every depth
    boolean          false before true
    numbers, times   as numbers; -0.0 equals 0.0; every NaN equals every NaN, above infinity
    text             by its UTF-8 bytes (UTF8_BINARY); binary by its bytes, unsigned
    array            by its elements, then the shorter first
    struct           by its fields
    map              as the array of its entries (key, value) in the order of their keys

It is Spark's own ``ASC NULLS FIRST`` wherever Spark has one. Only when *all* columns are equal so,
the *tie* decides: the bits of the floats, column by column. So the order is total on row identity
(``persist/consolidate.py``): rows that compare equal are identical, and the tie never comes before
another column. Equal rows keep their given order.

The definition is bytes. ``order_key(value, type)`` compares bytewise as the values do;
``row_key`` is the order bytes of all columns followed by the ties of all columns, and:

    sort_indices(table)  sorts by row_key          order_by_sql(columns)  sorts by row_key, on Spark

Encoding, version 1 (``tests/formats/order_v1.json``), big-endian:

    NULL 00, else 01 and: boolean 1 byte; integers, dates, times, intervals 8 bytes, sign flipped;
    floats as doubles, 8 bytes, sign flipped, negative ones inverted; decimals the unscaled number
    in 16 bytes, sign flipped; text and binary with 00 written as 00 FF, then 00 00;
    array and map (01 element)* 00; struct its fields one after the other

Kept by: this module. Relied on by: ties, ``first``, ``collect_list``, ``LIMIT`` without order, and
every rule that needs one order for all.
"""

from __future__ import annotations

import decimal
import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.base.errors import InvalidUsage

Longs = npt.NDArray[np.int64]

_LOWEST: Final = np.int64(-(2**63))
_ABOVE_INFINITY: Final = 0x7FF8000000000000
_DIGITS: Final = decimal.Context(prec=80)


class NoOrder(InvalidUsage):
    """A type whose values have no canonical order."""

    def __init__(self, type_: pa.DataType, why: str) -> None:
        super().__init__(f"values of type {type_} have no canonical order: {why}")
        self.type = type_


# ---- the definition --------------------------------------------------------------------------


def order_key(value: Any, type_: pa.DataType) -> bytes:
    """Return bytes that compare as values of this type do; equal iff the values are identical.

    >>> order_key(None, pa.int32()) < order_key(-1, pa.int32()) < order_key(1, pa.int32())
    True
    """
    order, tie = _encoded(_scalar(value, type_), type_)
    return order + tie


def row_key(values: Sequence[Any], types: Sequence[pa.DataType]) -> bytes:
    """Return bytes that compare as rows do: all orders, then all ties."""
    encoded = [
        _encoded(_scalar(value, type_), type_) for value, type_ in zip(values, types, strict=True)
    ]
    return b"".join(order for order, _ in encoded) + b"".join(tie for _, tie in encoded)


def _scalar(value: Any, type_: pa.DataType) -> Any:
    return value if isinstance(value, pa.Scalar) else pa.scalar(value, type_)


def _encoded(value: Any, type_: pa.DataType) -> tuple[bytes, bytes]:
    """Return the order bytes and the tie bytes of a value."""
    t = pa.types
    if t.is_dictionary(type_):
        return _encoded(value.value if value.is_valid else value, type_.value_type)
    if not value.is_valid:
        return b"\x00", b""
    if t.is_struct(type_):
        fields = ((value[n], type_.field(n).type) for n in range(type_.num_fields))
        order, tie = _joined(_encoded(*field) for field in fields)
        return b"\x01" + order, tie
    if t.is_map(type_):
        entries = [
            _joined((_encoded(entry[0], type_.key_type), _encoded(entry[1], type_.item_type)))
            for entry in value.values
        ]
        return _sequence(sorted(entries))
    if t.is_list(type_) or t.is_large_list(type_) or t.is_fixed_size_list(type_):
        return _sequence([_encoded(item, type_.value_type) for item in value.values])
    order, tie = _flat(value, type_)
    return b"\x01" + order, tie


def _joined(parts: Iterable[tuple[bytes, bytes]]) -> tuple[bytes, bytes]:
    encoded = list(parts)
    return b"".join(order for order, _ in encoded), b"".join(tie for _, tie in encoded)


def _sequence(items: list[tuple[bytes, bytes]]) -> tuple[bytes, bytes]:
    order = b"".join(b"\x01" + order for order, _ in items)
    return b"\x01" + order + b"\x00", b"".join(tie for _, tie in items)


def _flat(value: Any, type_: pa.DataType) -> tuple[bytes, bytes]:
    t = pa.types
    if not _is_known(type_):
        raise NoOrder(type_, "it is no type of ours")
    if t.is_boolean(type_):
        return (b"\x01" if value.as_py() else b"\x00"), b""
    if t.is_floating(type_):
        return _float(value, type_)
    if t.is_decimal(type_):
        unscaled = int(value.as_py().scaleb(type_.scale, _DIGITS))
        return (unscaled + (1 << 127)).to_bytes(16, "big"), b""
    if t.is_integer(type_):
        return _long(value.as_py()), b""
    if _is_bytes(type_):
        plain = value.as_py()
        raw = plain.encode() if isinstance(plain, str) else plain
        return raw.replace(b"\x00", b"\x00\xff") + b"\x00\x00", b""
    return _long(value.value), b""  # dates, times and intervals, as the number that is stored


def _long(number: int) -> bytes:
    return (number + (1 << 63)).to_bytes(8, "big")


def _float(value: Any, type_: pa.DataType) -> tuple[bytes, bytes]:
    number = value.as_py()
    double = int.from_bytes(struct.pack(">d", number), "big")
    equal = _ABOVE_INFINITY if math.isnan(number) else 0 if number == 0 else double
    if pa.types.is_float64(type_):
        return _total(equal, 64), _total(double, 64)
    # The bits as they are stored: a detour through Python would change a signalling NaN.
    single = pa.array([value], type_).view(pa.int32())[0].as_py()
    return _total(equal, 64), _total(single % (1 << 32), 32)


def _total(bits: int, width: int) -> bytes:
    """Return the bits of a float so that they compare as it does: IEEE's total order."""
    sign = 1 << (width - 1)
    ordered = bits | sign if not bits & sign else ~bits & (2 * sign - 1)
    return ordered.to_bytes(width // 8, "big")


def _is_bytes(type_: pa.DataType) -> bool:
    t = pa.types
    return bool(
        t.is_string(type_)
        or t.is_large_string(type_)
        or t.is_string_view(type_)
        or t.is_binary(type_)
        or t.is_large_binary(type_)
        or t.is_binary_view(type_)
        or t.is_fixed_size_binary(type_)
    )


# ---- whole tables ----------------------------------------------------------------------------


def sort_indices(table: pa.Table, columns: Sequence[str] | None = None) -> Longs:
    """Return the row numbers in canonical order, by these columns (all of them); stable."""
    names = table.column_names if columns is None else list(columns)
    orders: list[Any] = []
    ties: list[Any] = []
    for name in names:
        column = table.column(name).combine_chunks()
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        orders.extend(_order_columns(column))
        ties.extend(_tie_columns(column))
    keys = [*orders, *ties]
    if not keys or table.num_rows < 2:
        return np.arange(table.num_rows, dtype=np.int64)
    sorted_by = pa.table(keys, names=[f"k{n}" for n in range(len(keys))])
    indices = pc.sort_indices(
        sorted_by, sort_keys=[(name, "ascending") for name in sorted_by.column_names]
    )
    found: Longs = indices.to_numpy().astype(np.int64)
    return found


def _order_columns(column: Any) -> Iterator[Any]:
    """Yield columns without NULLs and NaNs whose plain order is the order of the values."""
    type_ = column.type
    if pa.types.is_null(type_):
        return
    if pa.types.is_nested(type_):
        yield pa.array([_encoded(value, type_)[0] for value in column], pa.large_binary())
        return
    if not _is_known(type_):
        raise NoOrder(type_, "it is no type of ours")
    if column.null_count:
        yield column.is_valid()
    if pa.types.is_floating(type_):
        yield pa.array(_ordered_longs(column.cast(pa.float64()), equal=True))
        return
    if pa.types.is_string_view(type_) or pa.types.is_binary_view(type_):
        column = column.cast(pa.large_binary())  # Arrow cannot sort its view types
    yield _without_nulls(column)


def _tie_columns(column: Any) -> Iterator[Any]:
    type_ = column.type
    if pa.types.is_nested(type_):
        if _has_floats(type_):
            yield pa.array([_encoded(value, type_)[1] for value in column], pa.large_binary())
    elif pa.types.is_floating(type_):
        yield pa.array(_ordered_longs(column, equal=False))


def _ordered_longs(column: Any, *, equal: bool) -> Longs:
    """Return floats as integers in their order; ``equal``: all zeros one, all NaNs one."""
    width = column.type.bit_width
    raw = _without_nulls(column.view(pa.int32() if width == 32 else pa.int64()))
    bits: Longs = np.asarray(raw).astype(np.int64)
    if equal:
        floats = np.asarray(_without_nulls(column))
        bits = np.where(floats == 0, np.int64(0), bits)
        bits = np.where(np.isnan(floats), np.int64(_ABOVE_INFINITY), bits)
    # A negative float's bits grow as it falls: mirror them below the positive ones.
    lowest = _LOWEST >> np.int64(64 - width)
    return np.where(bits < 0, lowest - bits - 1, bits)


def _without_nulls(column: Any) -> Any:
    if not column.null_count:
        return column
    filler = column.drop_null()
    if not len(filler):
        # Every value is NULL: any constant will do.
        return pa.array(np.zeros(len(column), dtype=np.int8))
    return column.fill_null(filler[0])


def _is_known(type_: pa.DataType) -> bool:
    t = pa.types
    return bool(
        t.is_boolean(type_)
        or (t.is_integer(type_) and not t.is_uint64(type_))
        or t.is_float32(type_)
        or t.is_float64(type_)
        or t.is_decimal(type_)
        or _is_bytes(type_)
        or (t.is_temporal(type_) and not t.is_interval(type_))
    )


def _has_floats(type_: pa.DataType) -> bool:
    if pa.types.is_nested(type_):
        return any(_has_floats(type_.field(n).type) for n in range(type_.num_fields))
    return bool(pa.types.is_floating(type_))


# ---- on Spark --------------------------------------------------------------------------------


def order_by_sql(columns: Sequence[tuple[str, pa.DataType]]) -> str:
    """Return what follows ``ORDER BY`` in Spark SQL to sort these expressions canonically.

    Spark has one NaN, so NaNs of different bits stay as they come there. A map is ordered only
    where it stands alone, not inside another value.

    >>> order_by_sql([("a", pa.int32()), ("b", pa.string())])
    '(a) ASC NULLS FIRST, (b) ASC NULLS FIRST'
    """
    orders: list[str] = []
    ties: list[str] = []
    for text, type_ in columns:
        value = _sortable_sql(f"({text})", type_)
        orders.append(f"{value} ASC NULLS FIRST")
        if pa.types.is_floating(type_):
            # '-0.0' sorts before '0.0'; nothing else is told apart.
            ties.append(f"if({value} = 0, cast({value} as string), null) ASC NULLS FIRST")
        elif _has_floats(type_):
            # Equal so far, so the texts differ in the signs of zeros alone.
            ties.append(f"cast({value} as string) ASC NULLS FIRST")
    if not orders:
        raise InvalidUsage("an order needs at least one column")
    return ", ".join([*orders, *ties])


def _sortable_sql(value: str, type_: pa.DataType) -> str:
    if pa.types.is_map(type_):
        if _has_map(type_.key_type) or _has_map(type_.item_type):
            raise NoOrder(type_, "Spark cannot compare a map inside another value")
        return f"array_sort(map_entries({value}))"
    if _has_map(type_):
        raise NoOrder(type_, "Spark cannot compare a map inside another value")
    return value


def _has_map(type_: pa.DataType) -> bool:
    if pa.types.is_map(type_):
        return True
    nested = pa.types.is_nested(type_)
    return nested and any(_has_map(type_.field(n).type) for n in range(type_.num_fields))

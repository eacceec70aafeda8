"""Which bytes of a run some rows of its columns occupy.

An Arrow array is a tree of buffers. Given row ranges ``[start, stop)``, the walk visits each buffer
of the tree, asks for the bytes that hold these rows to be verified, and only then reads offsets out
of them to find the ranges of the children. So nothing is ever interpreted before it is verified.

All columns are walked abreast, and what they ask for is verified at once: of a few rows the bytes
are few, and the price is that of the call. Columns of a fixed width need no walk at all: where a
row of theirs is, is arithmetic, done for all of them together.

Relies on: arrays as they come out of a run: not sliced (offset 0), in one mapped buffer, of a type
that :func:`is_storable` accepts. Relied on by: ``collection/run.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Longs = npt.NDArray[np.int64]
Ranges = tuple[Longs, Longs]
Verify = Callable[[Longs, Longs], None]
"""Verify byte ranges ``[start, stop)``."""


def is_storable(type_: pa.DataType) -> bool:
    """Whether a column of this type can be laid out in a run."""
    t = pa.types
    if t.is_nested(type_):
        supported = (
            t.is_list(type_)
            or t.is_large_list(type_)
            or t.is_map(type_)
            or t.is_struct(type_)
            or t.is_fixed_size_list(type_)
        )
        return bool(supported) and all(is_storable(child) for child in _children(type_))
    return _offset_type(type_) is not None or _is_fixed(type_) or bool(t.is_null(type_))


class Extent:
    """The buffers of some columns of a run, whose bytes begin at an address."""

    def __init__(self, arrays: Iterable[Any], base: int) -> None:
        flat: list[tuple[int, int]] = []
        self._walked: list[Any] = []
        for array in arrays:
            assert array.offset == 0, "an array of a run is not sliced"
            if _is_flat(array.type):
                flat += _areas(array.type, iter(array.buffers()))
            else:
                self._walked.append(array)
        self._base = base
        self._starts = np.array([[address - base] for address, _ in flat], np.int64)
        self._bits = np.array([[bits] for _, bits in flat], np.int64)

    def verify(self, starts: Longs, stops: Longs, verify: Verify) -> None:
        """Verify the bytes of the rows ``[start, stop)`` of each of these columns."""
        some = stops > starts
        if not some.all():
            starts, stops = starts[some], stops[some]
        if not len(starts):
            return
        asked = []
        if len(self._starts):
            begins = self._starts + (starts * self._bits >> 3)
            asked.append((begins.ravel(), (self._starts + (stops * self._bits + 7 >> 3)).ravel()))
        walks = [_walk(a.type, iter(a.buffers()), starts, stops) for a in self._walked]
        while walks or asked:
            moved = [(walk, ranges) for walk in walks if (ranges := next(walk, None)) is not None]
            asked += [(begin - self._base, end - self._base) for _, (begin, end) in moved]
            if asked:
                verify(*(np.concatenate(ends) for ends in zip(*asked, strict=True)))
            walks, asked = [walk for walk, _ in moved], []


def _is_flat(type_: pa.DataType) -> bool:
    """Whether all its buffers have so many bits for each row."""
    if pa.types.is_struct(type_):
        return all(map(_is_flat, _children(type_)))
    return _is_fixed(type_) or bool(pa.types.is_null(type_))


def _areas(type_: pa.DataType, buffers: Iterator[Any]) -> Iterator[tuple[int, int]]:
    """Yield the address and the bits for each row of the buffers of a flat type."""
    own = [(next(buffers), 1)]
    if pa.types.is_struct(type_):
        for child in _children(type_):
            yield from _areas(child, buffers)
    elif not pa.types.is_null(type_):
        own.append((next(buffers), type_.bit_width))
    yield from ((buffer.address, bits) for buffer, bits in own if buffer is not None)


def _walk(
    type_: pa.DataType, buffers: Iterator[Any], starts: Longs, stops: Longs
) -> Iterator[Ranges]:
    """Yield what is to be verified next; going on, it takes it for verified."""
    some = stops > starts
    if not some.all():
        starts, stops = starts[some], stops[some]
    validity = next(buffers)
    if validity is not None:
        yield from _bits(validity, starts, stops)
    offset_type = _offset_type(type_)
    if offset_type is not None:
        offsets = next(buffers)
        if len(starts):
            yield from _bytes(offsets, starts, stops + 1, np.dtype(offset_type).itemsize)
            values = np.frombuffer(offsets, offset_type)
            starts, stops = values[starts].astype(np.int64), values[stops].astype(np.int64)
        if not pa.types.is_nested(type_):
            yield from _bytes(next(buffers), starts, stops, 1)
    elif pa.types.is_fixed_size_list(type_):
        starts, stops = starts * type_.list_size, stops * type_.list_size
    elif pa.types.is_boolean(type_):
        yield from _bits(next(buffers), starts, stops)
    elif _is_fixed(type_):
        yield from _bytes(next(buffers), starts, stops, type_.bit_width // 8)
    for child in _children(type_):
        yield from _walk(child, buffers, starts, stops)


def _children(type_: pa.DataType) -> list[pa.DataType]:
    if pa.types.is_map(type_):
        # A map is a list of entries, and the entries are one struct with buffers of its own.
        return [pa.struct([type_.key_field, type_.item_field])]
    if pa.types.is_nested(type_):
        return [type_.field(number).type for number in range(type_.num_fields)]
    return []


def _offset_type(type_: pa.DataType) -> type[np.signedinteger[Any]] | None:
    t = pa.types
    if t.is_string(type_) or t.is_binary(type_) or t.is_list(type_) or t.is_map(type_):
        return np.int32
    if t.is_large_string(type_) or t.is_large_binary(type_) or t.is_large_list(type_):
        return np.int64
    return None


def _is_fixed(type_: pa.DataType) -> bool:
    t = pa.types
    return bool(
        t.is_primitive(type_)
        or t.is_decimal(type_)
        or t.is_fixed_size_binary(type_)
        or t.is_interval(type_)
    )


def _bytes(buffer: Any, starts: Longs, stops: Longs, width: int) -> Iterator[Ranges]:
    some = stops > starts
    if buffer is not None and some.any():
        if not some.all():
            starts, stops = starts[some], stops[some]
        yield buffer.address + starts * width, buffer.address + stops * width


def _bits(buffer: Any, starts: Longs, stops: Longs) -> Iterator[Ranges]:
    yield from _bytes(buffer, starts // 8, (stops + 7) // 8, 1)

"""Fingerprints of rows: which updates can be identical at all, found without comparing them.

    identical(a, b)  ⇒  fingerprint(a) == fingerprint(b)

That is all that is promised, and all that ``persist/consolidate.py`` needs: rows whose fingerprint
nobody shares are alone, and only the others are compared exactly. Columns that are hard to look at
(nested ones) and the middle of long strings are left out; it then just rules out less.

A fingerprint is 32 bits wide, because numbers of that width are sorted at twice the speed and a
few false alarms cost little. It lives in memory only and may change with any version.

It is computed in blocks that stay in the processor's cache: whole columns at a time it would wait
for memory.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

BLOCK_ROWS: Final = 16 * 1024

Words = npt.NDArray[np.uint64]
Fingerprints = npt.NDArray[np.uint32]

_FIRST: Final = np.uint64(0x9E3779B97F4A7C15)
_SECOND: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_NULL: Final = np.uint64(0x165667B19E3779F9)
_HALF: Final = np.uint64(32)

_MASKS: Final = np.array([(1 << (8 * n)) - 1 for n in range(8)] + [2**64 - 1], np.uint64)
"""By length: which bytes of a little-endian word belong to a string of that length."""


def shared(updates: pa.Table, columns: list[str]) -> npt.NDArray[np.bool_] | None:
    """Return which rows share their fingerprint with another; ``None`` where no row does."""
    prints = fingerprints(updates, columns)
    ordered = np.sort(prints)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(twice):
        return None
    return _among(prints, twice)


def _among(prints: Fingerprints, twice: Fingerprints) -> npt.NDArray[np.bool_]:
    """Return which fingerprints are in the sorted list; most are told by a bitmap alone."""
    marked = np.zeros(1 << 16, np.bool_)
    marked[twice >> np.uint32(16)] = True
    found = marked[prints >> np.uint32(16)]
    maybe = np.flatnonzero(found)
    place = np.searchsorted(twice, prints[maybe])
    place[place == len(twice)] = 0
    found[maybe] = twice[place] == prints[maybe]
    return np.asarray(found, np.bool_)


def fingerprints(updates: pa.Table, columns: list[str]) -> Fingerprints:
    """Return one fingerprint for each row."""
    prints = np.empty(updates.num_rows, np.uint32)
    at = 0
    for batch in updates.select(columns).to_batches(max_chunksize=BLOCK_ROWS):
        if not batch.num_rows:
            continue
        mixed = np.zeros(batch.num_rows, np.uint64)
        for column in batch.columns:
            # What is mixed, and how often, depends on the type alone: how the rows are cut into
            # blocks, and what else is in a block, must not show.
            words = _words(column)
            if words is not None:
                mixed ^= words
                mixed *= _FIRST
                mixed ^= mixed >> _HALF
        mixed *= _SECOND
        prints[at : at + len(mixed)] = mixed >> _HALF
        at += len(mixed)
    return prints


def _words(column: Any) -> Words | None:
    """Return words that are equal wherever two values are identical; ``None`` for a hard type."""
    type_ = column.type
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        words = _of_bytes(column, np.int32)
    elif pa.types.is_large_string(type_) or pa.types.is_large_binary(type_):
        words = _of_bytes(column, np.int64)
    elif pa.types.is_boolean(type_):
        words = _stored(column.cast(pa.uint8()), np.uint8)
    elif pa.types.is_primitive(type_) and type_.bit_width in (8, 16, 32, 64):
        words = _stored(column, np.dtype(f"u{type_.bit_width // 8}"))
    elif pa.types.is_decimal128(type_):
        pairs = np.frombuffer(column.buffers()[1], np.uint64).reshape(-1, 2)
        ours = pairs[column.offset : column.offset + len(column)]
        words = ours[:, 0] ^ (ours[:, 1] * _SECOND)
    else:
        return None
    if column.null_count:
        # Anything may be stored under a NULL.
        words[pc.is_null(column).to_numpy(zero_copy_only=False)] = _NULL
    return words


def _stored(column: Any, kind: Any) -> Words:
    """Return the bytes of fixed-width values as they are: identity is bitwise."""
    raw = np.frombuffer(column.buffers()[1], kind)
    return raw[column.offset : column.offset + len(column)].astype(np.uint64)


def _of_bytes(column: Any, kind: Any) -> Words:
    """Return a mixture of the length, the first and the last eight bytes."""
    _, offsets_buffer, data = column.buffers()
    offsets = np.frombuffer(offsets_buffer, kind)[column.offset : column.offset + len(column) + 1]
    starts, ends = offsets[:-1], offsets[1:]
    lengths = ends - starts
    words: Words = lengths.astype(np.uint64) * _SECOND
    size = 0 if data is None else data.size
    if not size:
        return words
    if size < 8:
        data, size = bytes(data) + bytes(8 - size), 8
    # Every position of the data as a word of eight bytes, aligned or not.
    at_byte: Words = np.ndarray((size - 7,), np.dtype("<u8"), data, strides=(1,))
    # A string within the last seven bytes of the data is read from further left, and shifted; by
    # 64 bits, which is undefined, only the empty one at the very end would be.
    first = np.minimum(starts, size - 8)
    shift = np.minimum((starts - first) * 8, 63).astype(np.uint64)
    words += (at_byte[first] >> shift) & _MASKS[np.minimum(lengths, 8)]
    long = lengths > 8
    if long.any():
        words += np.where(long, at_byte[np.maximum(ends - 8, 0)], np.uint64(0)) * _FIRST
    return words

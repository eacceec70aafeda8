"""Fingerprints of rows: which updates can be identical at all, found without comparing them.

    identical(a, b)  ⇒  fingerprint(a) == fingerprint(b)

That is all that is promised, and all that ``persist/consolidate.py`` needs: rows whose fingerprint
nobody shares are alone, and only the others are compared exactly. Columns that are hard to look at
(nested ones) and the middle of long strings are left out; it then just rules out less.

A fingerprint is 64 bits wide: among millions of rows, a false alarm would be a wonder. It lives in
memory only and may change with any version.

It is computed in blocks that stay in the processor's cache: whole columns at a time it would wait
for memory. Equal ones are found by a table of slots, in which every row writes its number and looks
who wrote last; to sort them would take twice as long, unless they are few.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

BLOCK_ROWS: Final = 16 * 1024
SLOT_ROWS: Final = 64 * 1024
STRETCH_ROWS: Final = 64 * 1024
SORTED_ROWS: Final = 16 * 1024

Words = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.int64]

_FIRST: Final = np.uint64(0x9E3779B97F4A7C15)
_SECOND: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_NULL: Final = np.uint64(0x165667B19E3779F9)
_HALF: Final = np.uint64(32)

_MASKS: Final = np.array([(1 << (8 * n)) - 1 for n in range(8)] + [2**64 - 1], np.uint64)
"""By length: which bytes of a little-endian word belong to a string of that length."""


def shared(updates: pa.Table, columns: list[str]) -> npt.NDArray[np.bool_] | None:
    """Return which rows share their fingerprint with another; ``None`` where no row does."""
    prints = fingerprints(updates, columns)
    found = np.zeros(len(prints), np.bool_)
    for stretch in _stretches(updates, columns):
        _mark_twins(prints[stretch], found[stretch])
    return found if found.any() else None


def _stretches(updates: pa.Table, columns: list[str]) -> Iterator[slice]:
    """Cut the rows into stretches between which no two are identical.

    Where all of a column's values so far are less than all that follow, as keys that only grow
    are, nothing before has a twin behind; and a short stretch stays in the processor's cache.
    """
    chunks = [updates.column(name).chunks for name in columns]
    ends, start = np.empty(0, np.int64), 0
    for column in chunks if len(updates) > 2 * STRETCH_ROWS else ():
        if pa.types.is_integer(column[0].type):
            ends = np.union1d(ends, _rising(column))
    for end in (*ends.tolist(), len(updates)):
        if end - start >= STRETCH_ROWS or end == len(updates):
            yield slice(start, end)
            start = end


def _rising(chunks: list[Any]) -> Rows:
    """Return before which rows all values are less than all that follow, looking between chunks."""
    chunks = [chunk for chunk in chunks if len(chunk)]
    if any(chunk.null_count for chunk in chunks):
        return np.empty(0, np.int64)
    values = [chunk.to_numpy() for chunk in chunks]
    greatest = np.maximum.accumulate(np.array([chunk.max() for chunk in values]))
    least = np.minimum.accumulate(np.array([chunk.min() for chunk in values])[::-1])[::-1]
    ends = np.cumsum([len(chunk) for chunk in values])[:-1]
    return np.asarray(ends[greatest[:-1] < least[1:]], np.int64)


def _mark_twins(prints: Words, found: npt.NDArray[np.bool_]) -> None:
    """Mark which fingerprints occur twice."""
    if len(prints) <= SORTED_ROWS:
        order = np.argsort(prints)
        twins = prints[order[1:]] == prints[order[:-1]]
        found[order[1:][twins]] = True
        found[order[:-1][twins]] = True
        return
    losers, winners = _contest(prints)
    while len(losers):
        twins = prints[losers] == prints[winners]
        found[losers[twins]] = True
        found[winners[twins]] = True
        # Who lost to another fingerprint can have twins only among those who did, too: equal ones
        # meet in one slot, and lose to the same row.
        rest = losers[~twins]
        lost, won = _contest(prints[rest])
        losers, winners = rest[lost], rest[won]


def _contest(prints: Words) -> tuple[Rows, Rows]:
    """Let each row take the slot of its fingerprint; return who lost it, and to whom."""
    count = len(prints)
    bits = max(count.bit_length(), 8)
    number = np.int32 if count < 2**31 else np.int64
    owner = np.empty(1 << bits, number)  # Only slots that a row has written are read.
    blocks = [slice(at, at + SLOT_ROWS) for at in range(0, count, SLOT_ROWS)]

    def slots(block: slice) -> Rows:
        return (prints[block] >> np.uint64(64 - bits)).view(np.int64)

    def rows(block: slice) -> npt.NDArray[Any]:
        return np.arange(block.start, min(block.stop, count), dtype=number)

    for block in blocks:
        owner[slots(block)] = rows(block)
    losers, winners = [np.empty(0, np.int64)], [np.empty(0, number)]
    for block in blocks:
        winner = owner[slots(block)]
        lost = np.flatnonzero(winner != rows(block))
        losers.append(lost + block.start)
        winners.append(winner[lost])
    return np.concatenate(losers), np.concatenate(winners).astype(np.int64)


def fingerprints(updates: pa.Table, columns: list[str]) -> Words:
    """Return one fingerprint for each row."""
    prints = np.zeros(updates.num_rows, np.uint64)
    at = 0
    for batch in updates.select(columns).to_batches(max_chunksize=BLOCK_ROWS):
        if not batch.num_rows:
            continue
        mixed = prints[at : at + batch.num_rows]
        for column in batch.columns:
            # What is mixed, and how often, depends on the type alone: how the rows are cut into
            # blocks, and what else is in a block, must not show.
            words = _words(column)
            if words is not None:
                mixed ^= words
                mixed *= _FIRST
                mixed ^= mixed >> _HALF
        mixed *= _SECOND
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
    raw = np.frombuffer(column.buffers()[1], kind)[column.offset : column.offset + len(column)]
    # What is stored is only read here, unless something is to be written over a NULL.
    return raw.astype(np.uint64, copy=bool(column.null_count))


def _of_bytes(column: Any, kind: Any) -> Words:
    """Return a mixture of the length, the first and the last eight bytes."""
    _, offsets_buffer, data = column.buffers()
    offsets = np.frombuffer(offsets_buffer, kind)[column.offset : column.offset + len(column) + 1]
    # Once, and not wherever they are an index.
    offsets = offsets.astype(np.int64)
    starts, ends = offsets[:-1], offsets[1:]
    lengths = ends - starts
    words: Words = lengths.view(np.uint64) * _SECOND
    size = 0 if data is None else data.size
    if not size:
        return words
    if size < 8:
        data, size = bytes(data) + bytes(8 - size), 8
    # Every position of the data as a word of eight bytes, aligned or not.
    at_byte: Words = np.ndarray((size - 7,), np.dtype("<u8"), data, strides=(1,))
    shortest = lengths.min()
    head = at_byte[starts] if starts[-1] <= size - 8 else _at_the_end(at_byte, starts)
    if shortest < 8:
        head &= _MASKS[np.minimum(lengths, 8)]
    words += head
    if shortest > 8:
        words += at_byte[ends - 8] * _FIRST
    elif (lengths > 8).any():
        tail = at_byte[np.maximum(ends - 8, 0)] * _FIRST
        words += np.where(lengths > 8, tail, np.uint64(0))
    return words


def _at_the_end(at_byte: Words, starts: Rows) -> Words:
    """Return the eight bytes from each start on, where some are within the last seven bytes.

    Those are read from further left, and shifted; by 64 bits, which is undefined, only the empty
    string at the very end would be.
    """
    first = np.minimum(starts, len(at_byte) - 1)
    shift = np.minimum((starts - first) * 8, 63).astype(np.uint64)
    return at_byte[first] >> shift

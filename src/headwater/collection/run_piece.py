"""Pieces of a block of a keyed run: short stretches whose sums are computed many at a time.

The sum of a piece, with its bytes read as little-endian words ``w0, w1, …`` of 64 bits:

    sum = (k0 * m(w0) + k1 * m(w1) + …  mod 2^64) >> 32        m(w) = w xor (w >> 32)

The keys ``k`` are odd and fixed (:data:`KEYS`), a part of the format. Every flipped bit is noticed,
whatever the piece holds; any other damage with all but a chance of 2^-32, as by a CRC. It exists
because numpy computes thousands of them in one call, each far from the other, where a checksum
per call takes longer to call than to compute.

Kept by: ``tests/unit/collection/test_run_piece.py``. Relied on by: ``collection/run_file.py``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]

PIECES: Final = 8
"""Pieces per block: as many as a byte has bits, of which each says of one that it was verified."""

WORD: Final = 8
_HALF: Final = np.uint64(32)
_SUM_ROWS: Final = 8192


def piece_length_of(block_length: int) -> int:
    """Return the length of a block's pieces; 0 where they are not whole words, or too long."""
    length, rest = divmod(block_length, PIECES)
    return length if not rest and length % WORD == 0 and length <= WORD * len(KEYS) else 0


def pieces_in(arrow: Any, piece_length: int) -> Words:
    """Return the whole pieces of a buffer as rows of words, zero-copy; none if the length is 0."""
    if not piece_length:
        return np.empty((0, 1), np.uint64)
    count = memoryview(arrow).nbytes // piece_length
    words = np.frombuffer(arrow, "<u8", count * piece_length // WORD)
    return words.reshape(count, piece_length // WORD)


def _keys(count: int) -> Words:
    """Return the first keys: SplitMix64 of 1, 2, …, made odd."""
    mixed = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (mixed ^ (mixed >> np.uint64(31))) | np.uint64(1)


KEYS: Final = _keys(1024)


def piece_sums(pieces: Words) -> npt.NDArray[np.uint32]:
    """Return the sum of each piece, a row of words."""
    sums = np.empty(len(pieces), np.uint32)
    keys = KEYS[: pieces.shape[1]]
    for start in range(0, len(pieces), _SUM_ROWS):
        some = pieces[start : start + _SUM_ROWS]
        mixed = some >> _HALF
        mixed ^= some
        sums[start : start + len(some)] = (mixed @ keys) >> _HALF
    return sums

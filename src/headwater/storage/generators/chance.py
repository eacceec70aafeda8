"""Chance that can be asked for any place: a number is a function of (seed, stream, place).

A generator that draws from a sequence must replay it from the beginning to resume in the middle.
These are mixed from the place itself (SplitMix64's finaliser), so that any range can be made at
once, again, and in pieces, and is the same for ever, on every machine.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Longs = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)


def words(seed: int, stream: int, places: Longs) -> Words:
    """Return a word of 64 bits for each place; streams of one seed are independent."""
    mixed = _mixed(np.asarray(places, np.int64).view(np.uint64) + _GOLDEN)
    own = _mixed(np.array([seed], np.int64).view(np.uint64) * _GOLDEN + np.uint64(stream))
    return _mixed(mixed ^ own)


def below(seed: int, stream: int, places: Longs, bound: int) -> Longs:
    """Return for each place a number in ``[0, bound)``."""
    return (words(seed, stream, places) % np.uint64(bound)).astype(np.int64)


def _mixed(word: Words) -> Words:
    word = (word ^ (word >> np.uint64(30))) * _FIRST
    word = (word ^ (word >> np.uint64(27))) * _SECOND
    return np.asarray(word ^ (word >> np.uint64(31)), np.uint64)

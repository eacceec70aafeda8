"""Key ranges: which shard of a materialization owns which keys.

The key hash of a document is the upper 32 bits of HighwayHash-64 of its packed key, under a fixed
256-bit key that Flow declared never to change. A shard owns an *inclusive* range of hashes,
``[begin, end]``; the ranges of a materialization's shards tile ``[0, 2**32 - 1]``.

Invariant:      a packed key has one hash, so at any time exactly one shard owns it.
Kept by:        :func:`key_hashes` (the only implementation; golden vectors of Flow and of the C
                library), and :meth:`KeyRange.split`, whose halves tile their parent.
Relied on by:   the fences of an endpoint, one row per range: what overlaps is fenced, what covers
                is inherited from; the runtime, which gives each shard the documents in its range.

Not the key hash of keyed runs (``collection/key_hash.py``): that one is ours and has 64 bits; this
one is part of a protocol, and existing endpoints hold fences made with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NewType

import numpy as np
import pyarrow as pa

from headwater.base.errors import InvalidUsage

KeyHash = NewType("KeyHash", int)
"""32 bits."""

KEY_HASH_MAX: Final = 0xFFFF_FFFF

SHARDS_MAX: Final = 64
"""Each shard is a thread, and a connection to its endpoint."""

_KEY: Final = np.frombuffer(
    bytes.fromhex("ba737e89155238d47d8067c35aad4d25ecdd1c3488227e011ffa480c022bd3ba"), "<u8"
).astype(np.uint64)
_PACKET_BYTES: Final = 32
_ROWS_AT_ONCE: Final = 1 << 14
"""So many rows keep the state of the hash within a processor's cache."""

_Words = np.ndarray[tuple[int, ...], np.dtype[np.uint64]]
_Sizes = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


class InvalidKeyRange(InvalidUsage):
    """Bounds that are no range of key hashes."""

    def __init__(self, begin: int, end: int) -> None:
        super().__init__(f"[{begin:#x}, {end:#x}] is no range of 32-bit key hashes")


class InvalidShards(InvalidUsage):
    """A number of shards that cannot be."""

    def __init__(self, shards: int) -> None:
        super().__init__(f"a materialization has 1 to {SHARDS_MAX} shards, not {shards}")


@dataclass(frozen=True, slots=True, order=True)
class KeyRange:
    """An inclusive range of key hashes.

    >>> KeyRange.full().split()
    (KeyRange(00000000-7fffffff), KeyRange(80000000-ffffffff))
    """

    begin: KeyHash
    end: KeyHash

    def __post_init__(self) -> None:
        if not 0 <= self.begin <= self.end <= KEY_HASH_MAX:
            raise InvalidKeyRange(self.begin, self.end)

    @classmethod
    def full(cls) -> KeyRange:
        """Return the range of every hash: that of a materialization with one shard."""
        return cls(KeyHash(0), KeyHash(KEY_HASH_MAX))

    @classmethod
    def tiling(cls, shards: int) -> tuple[KeyRange, ...]:
        """Return the ranges of so many shards: as equal as can be, ascending.

        >>> KeyRange.tiling(2) == KeyRange.full().split()
        True
        """
        if not 1 <= shards <= SHARDS_MAX:
            raise InvalidShards(shards)
        edges = [number * (KEY_HASH_MAX + 1) // shards for number in range(shards + 1)]
        return tuple(cls(KeyHash(begin), KeyHash(end - 1)) for begin, end in pairwise(edges))

    @classmethod
    def parse(cls, text: str) -> KeyRange:
        """Return the range that is written so.

        >>> KeyRange.parse("00000000-7fffffff")
        KeyRange(00000000-7fffffff)
        """
        begin, _, end = text.partition("-")
        return cls(KeyHash(int(begin, 16)), KeyHash(int(end, 16)))

    def owns(self, key_hash: int) -> bool:
        """Whether a hash is in the range."""
        return self.begin <= key_hash <= self.end

    def overlaps(self, other: KeyRange) -> bool:
        """Whether some hash is in both: then the two cannot both be at work."""
        return self.begin <= other.end and other.begin <= self.end

    def covers(self, other: KeyRange) -> bool:
        """Whether every hash of ``other`` is ours: then it may inherit our checkpoint."""
        return self.begin <= other.begin and other.end <= self.end

    def split(self) -> tuple[KeyRange, KeyRange]:
        """Return the two halves; refused for a single hash."""
        if self.begin == self.end:
            raise InvalidKeyRange(self.begin, self.begin - 1)
        middle = self.begin + (self.end - self.begin) // 2
        return (
            KeyRange(self.begin, KeyHash(middle)),
            KeyRange(KeyHash(middle + 1), self.end),
        )

    def __str__(self) -> str:
        return f"{self.begin:08x}-{self.end:08x}"

    def __repr__(self) -> str:
        return f"KeyRange({self})"


def tiles(ranges: Sequence[KeyRange]) -> bool:
    """Whether the ranges own every hash exactly once, whatever their order."""
    expected = 0
    for key_range in sorted(ranges):
        if key_range.begin != expected:
            return False
        expected = key_range.end + 1
    return expected == KEY_HASH_MAX + 1


def nested(some: Sequence[KeyRange], others: Sequence[KeyRange]) -> bool:
    """Whether one of two tilings is made of the other by splits alone."""
    return _refines(some, others) or _refines(others, some)


def _refines(fine: Sequence[KeyRange], coarse: Sequence[KeyRange]) -> bool:
    return all(any(wide.covers(narrow) for wide in coarse) for narrow in fine)


def key_hash(packed_key: bytes) -> KeyHash:
    """Return the key hash of one packed key; for many, :func:`key_hashes`."""
    return KeyHash(int(key_hashes(pa.array([packed_key], pa.large_binary()))[0]))


def key_hashes(packed_keys: pa.LargeBinaryArray) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    """Return the key hash of each packed key."""
    hashes = [
        _highway_hash(packed_keys.slice(start, _ROWS_AT_ONCE)) >> np.uint64(32)
        for start in range(0, len(packed_keys), _ROWS_AT_ONCE)
    ]
    return np.concatenate([np.zeros(0, np.uint64), *hashes]).astype(np.uint32)


def _highway_hash(keys: pa.LargeBinaryArray) -> _Words:
    """Return HighwayHash-64 of each key: packets of 32 bytes, what is left over, four rounds."""
    _, offsets_buffer, content_buffer = keys.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)[keys.offset : keys.offset + len(keys) + 1]
    content = np.frombuffer(content_buffer or b"", np.uint8)
    starts, sizes = offsets[:-1], np.diff(offsets)
    state = _State.initial(len(keys))
    for packet in range(int(sizes.max(initial=0)) // _PACKET_BYTES):
        at = packet * _PACKET_BYTES
        rows = np.flatnonzero(sizes >= at + _PACKET_BYTES)
        taken = content[starts[rows, None] + (at + np.arange(_PACKET_BYTES))]
        state.scatter(rows, state.gather(rows).updated(taken.view("<u8").astype(np.uint64)))
    rows = np.flatnonzero(sizes % _PACKET_BYTES)
    if len(rows):
        left = sizes[rows] % _PACKET_BYTES
        packets = _remainder(content, starts[rows] + sizes[rows] - left, left)
        state.scatter(rows, state.gather(rows).with_remainder(packets, left))
    return state.finished()


def _remainder(
    content: np.ndarray[tuple[int], np.dtype[np.uint8]], starts: _Sizes, sizes: _Sizes
) -> _Words:
    """Return the last packet: whole words in front, the odd bytes where nothing else stands."""
    whole = sizes & ~3
    place = np.arange(_PACKET_BYTES)
    last = len(content) - 1
    taken = content[np.minimum(starts[:, None] + place, last)]
    packets = np.where(place < whole[:, None], taken, np.uint8(0))
    long = np.flatnonzero(sizes & 16)
    tail = starts[long, None] + sizes[long, None] - 4 + np.arange(4)
    packets[long, 28:] = content[tail]
    short = np.flatnonzero((sizes & 16 == 0) & (sizes & 3 != 0))
    odd, rest = sizes[short] & 3, starts[short] + whole[short]
    packets[short, 16] = content[rest]
    packets[short, 17] = content[rest + (odd >> 1)]
    packets[short, 18] = content[rest + odd - 1]
    return packets.view("<u8").astype(np.uint64)


def _word(value: int) -> np.uint64:
    return np.uint64(value)


_LOW: Final = _word(0xFFFF_FFFF)
_MUL_0: Final = np.array(
    [0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3], np.uint64
)
_MUL_1: Final = np.array(
    [0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377], np.uint64
)


@dataclass(slots=True)
class _State:
    """HighwayHash's state of each row: four vectors of four words."""

    v0: _Words
    v1: _Words
    mul0: _Words
    mul1: _Words

    @classmethod
    def initial(cls, rows: int) -> _State:
        def repeated(words: _Words) -> _Words:
            return np.repeat(words[None, :], rows, axis=0)

        return cls(
            repeated(_MUL_0 ^ _KEY),
            repeated(_MUL_1 ^ _halves_swapped(_KEY)),
            repeated(_MUL_0),
            repeated(_MUL_1),
        )

    def gather(self, rows: _Sizes) -> _State:
        return _State(self.v0[rows], self.v1[rows], self.mul0[rows], self.mul1[rows])

    def scatter(self, rows: _Sizes, other: _State) -> None:
        self.v0[rows], self.v1[rows] = other.v0, other.v1
        self.mul0[rows], self.mul1[rows] = other.mul0, other.mul1

    def updated(self, packets: _Words) -> _State:
        v1 = self.v1 + self.mul0 + packets
        mul0 = self.mul0 ^ ((v1 & _LOW) * (self.v0 >> _word(32)))
        v0 = self.v0 + self.mul1
        mul1 = self.mul1 ^ ((v0 & _LOW) * (v1 >> _word(32)))
        v0 = v0 + _zipper_merged(v1)
        v1 = v1 + _zipper_merged(v0)
        return _State(v0, v1, mul0, mul1)

    def with_remainder(self, packets: _Words, sizes: _Sizes) -> _State:
        size = sizes.astype(np.uint64)[:, None]
        low, high = self.v1 & _LOW, self.v1 >> _word(32)
        turned = (_turned(high, size) << _word(32)) | _turned(low, size)
        v0 = self.v0 + (size << _word(32)) + size
        return _State(v0, turned, self.mul0, self.mul1).updated(packets)

    def finished(self) -> _Words:
        state = self
        for _ in range(4):
            state = state.updated(_halves_swapped(state.v0[:, [2, 3, 0, 1]]))
        words: _Words = state.v0[:, 0] + state.v1[:, 0] + state.mul0[:, 0] + state.mul1[:, 0]
        return words


def _halves_swapped(words: _Words) -> _Words:
    swapped: _Words = (words << _word(32)) | (words >> _word(32))
    return swapped


def _turned(halves: _Words, by: _Words) -> _Words:
    """Rotate 32-bit values to the left; ``by`` is 1 to 31."""
    turned: _Words = ((halves << by) & _LOW) | (halves >> (_word(32) - by))
    return turned


def _zipper_merged(words: _Words) -> _Words:
    """Return what HighwayHash's zipper merge adds: bytes of each pair of words, interleaved."""
    even, odd = words[:, 0::2], words[:, 1::2]
    merged = np.empty_like(words)
    merged[:, 0::2] = (
        (((even & _word(0xFF000000)) | (odd & _word(0xFF00000000))) >> _word(24))
        | (((even & _word(0xFF0000000000)) | (odd & _word(0xFF000000000000))) >> _word(16))
        | (even & _word(0xFF0000))
        | ((even & _word(0xFF00)) << _word(32))
        | ((odd & _word(0xFF00000000000000)) >> _word(8))
        | (even << _word(56))
    )
    merged[:, 1::2] = (
        (((odd & _word(0xFF000000)) | (even & _word(0xFF00000000))) >> _word(24))
        | (odd & _word(0xFF0000))
        | ((odd & _word(0xFF0000000000)) >> _word(16))
        | ((odd & _word(0xFF00)) << _word(24))
        | ((even & _word(0xFF000000000000)) >> _word(8))
        | ((odd & _word(0xFF)) << _word(48))
        | (even & _word(0xFF00000000000000))
    )
    return merged

"""The sums of pieces: the ones that were written, and every flipped bit."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headwater.collection.key_hash import HASH
from headwater.collection.run import Run, write_run
from headwater.collection.run_file import BLOCK_LENGTH, CorruptRun
from headwater.collection.run_piece import (
    KEYS,
    PIECES,
    WORD,
    piece_length_of,
    piece_sums,
    pieces_in,
)
from headwater.persist.consolidate import DIFF, TIME

WORDS = BLOCK_LENGTH // PIECES // WORD
MASK = 2**64 - 1


def test_the_sums_are_those_of_the_format() -> None:
    """Computed once more, in plain integers, from the definition."""
    random = np.random.default_rng(3)
    data = random.bytes(20 * 512 + 100)
    found = piece_sums(pieces_in(data, 512))
    assert len(found) == 20
    for number, sum_ in enumerate(found.tolist()):
        total = 0
        for place in range(64):
            start = number * 512 + place * 8
            word = int.from_bytes(data[start : start + 8], "little")
            total += int(KEYS[place]) * (word ^ (word >> 32))
        assert sum_ == (total & MASK) >> 32
    assert [hex(key) for key in KEYS[:3].tolist()] == [
        "0xe220a8397b1dcdaf",
        "0x6e789e6aa1b965f5",
        "0x6c45d188009454f",
    ]


def test_every_flipped_bit_is_noticed_whatever_the_piece_holds() -> None:
    """A flip adds a difference to the total, of which the upper half must not vanish.

    The lower half may carry into it, by one: so neither 0 nor the greatest number may it be.
    """
    for key in KEYS[:WORDS].tolist():
        for bit in range(64):
            parts = [1 << bit] if bit < 32 else [1 << bit, 1 << (bit - 32)]
            signed = [0]
            for part in parts:
                signed = [total + sign * part for total in signed for sign in (1, -1)]
            for difference in signed:
                upper = (key * difference & MASK) >> 32
                lower = key * difference & (2**32 - 1)
                assert upper not in ((0, 2**32 - 1) if lower else (0,)), (hex(key), bit)


def test_two_flipped_signs_do_not_cancel() -> None:
    piece = np.zeros((1, WORDS), np.uint64)
    flipped = np.repeat(piece, WORDS - 1, axis=0)
    flipped[:, 0] = flipped[np.arange(WORDS - 1), np.arange(1, WORDS)] = np.uint64(1) << np.uint64(
        63
    )
    assert (piece_sums(flipped) != piece_sums(piece)).all()


@pytest.mark.parametrize(
    ("block", "piece"), [(4096, 512), (64, 8), (8, 0), (72, 0), (2**20, 0), (65536, 8192)]
)
def test_pieces_are_whole_words(block: int, piece: int) -> None:
    assert piece_length_of(block) == piece


def many(rows: int) -> pa.Table:
    numbers = np.arange(rows)
    return pa.table({"k": numbers, TIME: numbers % 5, DIFF: np.ones(rows, np.int64)})


def test_scattered_rows_are_verified_by_pieces_and_stay_so() -> None:
    run = Run.open(write_run(many(100_000), ["k"]))
    opened = run.verified_bytes
    rows = np.arange(0, 100_000, 5_000)
    assert run.longs(rows, HASH).tolist() == run.table()[HASH].take(pa.array(rows)).to_pylist()
    run = Run.open(write_run(many(100_000), ["k"]))
    run.longs(rows, HASH)
    assert run.verified_bytes == opened + len(rows) * 512
    run.longs(rows, HASH)
    assert run.verified_bytes == opened + len(rows) * 512
    run.verify_all()
    assert run.verified_bytes >= run.arrow_bytes


def test_a_damaged_piece_is_named_by_its_block_and_leaves_others_readable() -> None:
    written = bytearray(write_run(many(100_000), ["k"]))
    sound = Run.open(bytes(written))
    column = sound.table()[HASH].chunk(0)
    place = column.buffers()[1].address - sound._file.arrow.address + 8 * 50_000
    written[place] ^= 1
    run = Run.open(bytes(written))
    far = np.array([10, 90_000])
    assert run.longs(far, HASH).tolist() == column.take(pa.array(far)).to_pylist()
    with pytest.raises(CorruptRun, match=f"block {place // BLOCK_LENGTH}, is corrupted"):
        run.longs(np.array([10, 50_000, 90_000]), HASH)
    with pytest.raises(CorruptRun, match=f"block {place // BLOCK_LENGTH}, is corrupted"):
        run.verify_all()

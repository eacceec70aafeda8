"""The bytes of a keyed run, format version 2: an Arrow stream, then how to trust it.

A run is a *segment*: a whole object or a range of one. All integers are little-endian.

    arrow     schema message, ONE uncompressed record batch, end-of-stream
    footer    u32 length of head, head (msgpack array, see :class:`RunHead`), zeros to 8 bytes,
              u64 per block: xxh3-64 of ``block_length`` bytes of ``arrow`` (the last may be short)
              i64 per index entry: hash of the rows 0, ``index_stride``, 2 ``index_stride``, …
              u32 per whole piece: sum of ``piece_length`` bytes of ``arrow``
              (``collection/run_piece.py``); none where ``piece_length`` is 0
              zeros until the segment's length is a multiple of 64
    trailer   u64 length of footer, u64 xxh3-64 of (footer, the other 24 bytes of the trailer),
              u8 format version, 7 zero bytes, magic ``HWKEYRUN``

The three tile the segment, so every byte is under a checksum. Footer, trailer and Arrow's metadata
(what lies outside the batch's body) are verified when the run is opened; the body when somebody is
about to read it (:meth:`RunFile.verify`), once per opened run.

Version 1 had no pieces, nor ``piece_length`` in its head. It is still read, and never written.

One record batch: every column is one contiguous area, so a probe is a ``searchsorted`` and a
``take`` and needs no list of batches. A tool that knows only Arrow can read a whole run as a
stream and stops before the footer. The trailer's layout holds for all future versions.

A block is a page (4 KiB) and has ``PIECES`` pieces. A probe of a large run touches about one place
per key and column, each in another block: there the pieces are verified, thousands of them in a few
calls. Where several pieces of a block are needed, or all of the run, it is the blocks: their
checksum is the stronger one, and the faster where bytes follow each other
(``docs/design/20261115_keyed_runs.md``).

Kept by: :func:`encode`. Relied on by: ``collection/run.py``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from headwater.base.decoding import from_msgpack
from headwater.collection.run_piece import PIECES, Words, piece_length_of, piece_sums, pieces_in
from headwater.persist.errors import Corrupt, NewerFormat

Longs = npt.NDArray[np.int64]

VERSION: Final = 2
BLOCK_LENGTH: Final = 4096
INDEX_STRIDE: Final = 64
SHORT_BLOCKS: Final = 32
"""Up to so many blocks are all verified when a run is opened: a probe of a thousand keys touches
most of them anyway, and finding out which takes longer than the checksums do."""
ALIGNMENT: Final = 64
"""Segments begin at multiples of this in their object; :func:`encode` keeps it by its padding."""

_MAGIC: Final = b"HWKEYRUN"
_TRAILER: Final = struct.Struct("<QQB7s8s")
_END_OF_STREAM: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"


class CorruptRun(Corrupt):
    """A keyed run whose bytes are not those that were written. ``region`` says where."""

    def __init__(self, name: str, region: str, problem: str) -> None:
        super().__init__(f"keyed run {name}, {region},", problem)
        self.name, self.region = name, region


class NewerRunFormat(NewerFormat):
    """A keyed run written by a newer Headwater."""

    def __init__(self, name: str, found: int) -> None:
        super().__init__(f"keyed run {name}", found, VERSION)
        self.found = found


class RunHead(msgspec.Struct, frozen=True, array_like=True):
    """The facts of a run that are known without reading its rows.

    ``min_time``, ``max_time``, ``first_hash`` and ``last_hash`` are 0 where there are no rows.
    """

    rows: int
    key: tuple[str, ...]
    arrow_length: int
    body_offset: int
    body_length: int
    block_length: int
    index_stride: int
    min_time: int
    max_time: int
    first_hash: int
    last_hash: int
    piece_length: int = 0


def encode(
    batch: pa.RecordBatch,
    *,
    key: tuple[str, ...],
    hashes: Longs,
    times: Longs,
    block_length: int = BLOCK_LENGTH,
    index_stride: int = INDEX_STRIDE,
) -> bytes:
    """Return the segment for a batch that is sorted by ``(hash, time)`` already."""
    schema_message = batch.schema.serialize()
    batch_message = batch.serialize()
    body_length = pa.ipc.read_message(batch_message).body.size
    arrow = b"".join((schema_message, batch_message, _END_OF_STREAM))
    head = _head(
        key,
        hashes,
        times,
        arrow_length=len(arrow),
        body_offset=schema_message.size + batch_message.size - body_length,
        body_length=body_length,
        block_length=block_length,
        index_stride=index_stride,
        piece_length=piece_length_of(block_length),
    )
    footer = _encode_footer(head, memoryview(arrow), hashes[::index_stride])
    trailer = _TRAILER.pack(len(footer), 0, VERSION, bytes(7), _MAGIC)
    checksum = _footer_checksum(footer, trailer)
    return b"".join((arrow, footer, trailer[:8], struct.pack("<Q", checksum), trailer[16:]))


def _head(key: tuple[str, ...], hashes: Longs, times: Longs, **lengths: int) -> RunHead:
    return RunHead(
        rows=len(hashes),
        key=key,
        min_time=int(times.min()) if len(times) else 0,
        max_time=int(times.max()) if len(times) else 0,
        first_hash=int(hashes[0]) if len(hashes) else 0,
        last_hash=int(hashes[-1]) if len(hashes) else 0,
        **lengths,
    )


def _encode_footer(head: RunHead, arrow: memoryview, index: Longs) -> bytes:
    packed = msgspec.msgpack.encode(head)
    packed = struct.pack("<I", len(packed)) + packed
    packed += bytes(-len(packed) % 8)
    checksums = [
        xxhash.xxh3_64_intdigest(arrow[start : start + head.block_length])
        for start in range(0, len(arrow), head.block_length)
    ]
    footer = packed + np.array(checksums, "<u8").tobytes() + index.astype("<i8").tobytes()
    if head.piece_length:
        footer += piece_sums(pieces_in(arrow, head.piece_length)).astype("<u4").tobytes()
    return footer + bytes(-(len(arrow) + len(footer) + _TRAILER.size) % ALIGNMENT)


def _footer_checksum(footer: Any, trailer: bytes) -> int:
    digest = xxhash.xxh3_64(footer)
    digest.update(trailer[:8])
    digest.update(trailer[16:])
    return digest.intdigest()


def _spanned(starts: Longs, stops: Longs, length: int) -> Longs:
    """Return the numbers of the stretches of ``length`` bytes that hold the byte ranges."""
    first, last = starts // length, (stops - 1) // length
    spans = last - first
    if not spans.any():
        return first
    counts = spans + 1
    # Each range as its consecutive stretches, all ranges in one array.
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.asarray(np.repeat(first, counts) + within, np.int64)


def _distinct(numbers: Longs) -> Longs:
    """Do as ``np.unique`` does, which takes longer than all the rest for a thousand numbers."""
    if len(numbers) > _MARKED and numbers.max() < 8 * len(numbers):
        marks = np.zeros(int(numbers.max()) + 1, np.bool_)
        marks[numbers] = True
        return np.flatnonzero(marks)
    ordered = np.sort(numbers)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


_ALL: Final = np.uint8(2**PIECES - 1)
_MARKED: Final = 16 * 1024
"""More numbers than this are told apart by marks, if those are few enough, and not by sorting."""


@dataclass(frozen=True, slots=True, eq=False)
class RunFile:
    """An opened segment: its verified head, and its rows, verified as they are needed.

    Invariant: bit ``p`` of ``verified[b]`` implies that piece ``p`` of block ``b``, or all of that
    block, matched its checksum since the run was opened.
    """

    name: str
    head: RunHead
    arrow: pa.Buffer
    checksums: npt.NDArray[np.uint64]
    index: Longs
    pieces: Words
    """The bytes by whole pieces; none where there are no sums of them."""
    sums: npt.NDArray[np.uint32]
    verified: npt.NDArray[np.uint8] = field(repr=False)
    whole: bool = False
    """Whether all of it was verified when it was opened, because it is short."""

    def verify(self, starts: Longs, stops: Longs) -> None:
        """Verify what holds the byte ranges ``[start, stop)`` of the Arrow bytes."""
        if self.whole or not len(starts):
            return
        if self.head.piece_length and self._is_sparse(starts, stops):
            self._verify_pieces(_spanned(starts, stops, self.head.piece_length))
        else:
            self._verify_unverified(_spanned(starts, stops, self.head.block_length))

    def _is_sparse(self, starts: Longs, stops: Longs) -> bool:
        """Whether the ranges have, by and large, a block each, and need little of it."""
        blocks = (stops.max() - starts.min()) // self.head.block_length + 1
        pieces = (stops - starts).sum() // self.head.piece_length
        return bool(max(len(starts), pieces) < 2 * blocks)

    def verify_all(self) -> None:
        """Verify every block that is not verified yet."""
        self._verify_blocks(np.flatnonzero(self.verified != _ALL))

    @property
    def verified_bytes(self) -> int:
        """How many bytes were verified so far."""
        return int(np.bitwise_count(self.verified).sum()) * self.head.block_length // PIECES

    def _verify_pieces(self, numbers: Longs) -> None:
        seen = self.verified[numbers // PIECES] >> (numbers % PIECES).astype(np.uint8) & 1
        numbers = _distinct(numbers[seen == 0])
        if len(numbers) and numbers[-1] >= len(self.sums):
            # The bytes behind the last whole piece have only their block's checksum.
            self._verify_unverified(numbers[-1:] // PIECES)
            numbers = numbers[:-1]
        wrong = numbers[piece_sums(self.pieces[numbers]) != self.sums[numbers]]
        if len(wrong):
            raise self._corrupt(int(wrong[0]) // PIECES)
        bits = np.left_shift(np.uint8(1), (numbers % PIECES).astype(np.uint8))
        np.bitwise_or.at(self.verified, numbers // PIECES, bits)

    def _verify_unverified(self, blocks: Longs) -> None:
        self._verify_blocks(_distinct(blocks[self.verified[blocks] != _ALL]))

    def _verify_blocks(self, blocks: Longs) -> None:
        length, view = self.head.block_length, memoryview(self.arrow)
        digest = xxhash.xxh3_64_intdigest
        for block, expected in zip(blocks.tolist(), self.checksums[blocks].tolist(), strict=True):
            if digest(view[block * length : (block + 1) * length]) != expected:
                raise self._corrupt(block)
        self.verified[blocks] = _ALL

    def _corrupt(self, block: int) -> CorruptRun:
        return CorruptRun(self.name, f"block {block}", "its checksum does not match")

    def batch(self) -> pa.RecordBatch:
        """Return the rows, zero-copy and lazily: verify what you are about to read."""
        return pa.ipc.open_stream(self.arrow).read_next_batch()


def unwritten(*, key: tuple[str, ...], hashes: Longs, times: Longs) -> RunFile:
    """Return what stands for a segment of rows that are nowhere but in memory.

    It has no bytes, so all of them are verified.
    """
    head = _head(
        key,
        hashes,
        times,
        arrow_length=0,
        body_offset=0,
        body_length=0,
        block_length=BLOCK_LENGTH,
        index_stride=INDEX_STRIDE,
    )
    return RunFile(
        name="in memory",
        head=head,
        arrow=pa.py_buffer(b""),
        checksums=np.empty(0, np.uint64),
        index=hashes[::INDEX_STRIDE],
        pieces=pieces_in(b"", 0),
        sums=np.empty(0, np.uint32),
        verified=np.empty(0, np.uint8),
        whole=True,
    )


def decode(segment: pa.Buffer, name: str) -> RunFile:
    """Open a segment; footer and metadata are verified here, the rows only where they are few."""
    footer, trailer_start = _decode_envelope(segment, name)
    view = memoryview(footer)
    try:
        (head_length,) = struct.unpack_from("<I", view)
        head = from_msgpack(view[4 : 4 + head_length], RunHead)
    except (struct.error, msgspec.MsgspecError) as error:
        raise CorruptRun(name, "footer", f"its head cannot be read ({error})") from error
    blocks = -(-head.arrow_length // head.block_length)
    entries = -(-head.rows // head.index_stride)
    arrays = 4 + head_length + -(4 + head_length) % 8
    arrow = segment.slice(0, head.arrow_length)
    pieces = pieces_in(arrow, head.piece_length)
    end = arrays + 8 * (blocks + entries)
    if (
        head.arrow_length + footer.size != trailer_start
        or end + 4 * len(pieces) > len(view)
        or head.piece_length not in (0, piece_length_of(head.block_length))
    ):
        raise CorruptRun(name, "footer", "its lengths do not add up")
    run_file = RunFile(
        name=name,
        head=head,
        arrow=arrow,
        checksums=np.frombuffer(view, "<u8", blocks, arrays),
        index=np.frombuffer(view, "<i8", entries, arrays + 8 * blocks),
        pieces=pieces,
        sums=np.frombuffer(view, "<u4", len(pieces), end),
        verified=np.zeros(blocks, np.uint8),
        whole=blocks <= SHORT_BLOCKS,
    )
    if run_file.whole:
        run_file.verify_all()
        return run_file
    body_end = head.body_offset + head.body_length
    run_file.verify(np.array([0, body_end]), np.array([head.body_offset, head.arrow_length]))
    return run_file


def _decode_envelope(segment: pa.Buffer, name: str) -> tuple[pa.Buffer, int]:
    trailer_start = segment.size - _TRAILER.size
    if trailer_start < 0:
        raise CorruptRun(name, "trailer", f"{segment.size} bytes are too few: it was cut")
    trailer = segment.slice(trailer_start).to_pybytes()
    footer_length, checksum, version, _, magic = _TRAILER.unpack(trailer)
    if magic != _MAGIC:
        raise CorruptRun(
            name, "trailer", "it does not end as a run does: it was cut or overwritten"
        )
    if footer_length > trailer_start:
        raise CorruptRun(name, "trailer", "its footer is longer than the segment")
    footer = segment.slice(trailer_start - footer_length, footer_length)
    if _footer_checksum(footer, trailer) != checksum:
        raise CorruptRun(name, "footer", "its checksum does not match")
    # After the checksum: a flipped version byte is a corruption, not a newer format.
    if version > VERSION:
        raise NewerRunFormat(name, version)
    return footer, trailer_start

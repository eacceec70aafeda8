"""What a phase of a large first step puts aside for the next one, by ranges of key hashes.

    range of a key  =  floor(ranges · (hash - least) / 2^64)        so ranges of hashes, in order

A task cuts its rows by the range of each and writes them as one object, a segment of Arrow's own
bytes per range; a task of the next phase reads the segments of its range, whoever wrote them. They
are named like parts, by attempt, and nobody but the step refers to them: a retry writes others, and
all are swept when the step is closed.

No Spark is imported here. Kept by: this module. Relied on by: ``stage.py``,
``compute/hydration.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from headwater.collection.key_hash import Hashes, key_hash
from headwater.persist.batch import Part, Segment
from headwater.persist.compact import advance
from headwater.persist.errors import PartCollected
from headwater.persist.part import verify_segment
from headwater.persist.spark_parts import Cut, Place, Reading, Writing

ALIGNED = 64
"""Segments begin at multiples of this, so that what is mapped is aligned."""


class Aside(msgspec.Struct, frozen=True):
    """Rows of a range that were put aside."""

    range: int
    rows: int
    where: Segment


def ranges_of(hashes: Hashes, ranges: int) -> Any:
    """Return the range of each hash; they rise with the (signed) hash."""
    upper = (hashes.view(np.uint64) ^ np.uint64(1 << 63)) >> np.uint64(32)
    return ((upper * np.uint64(ranges)) >> np.uint64(32)).astype(np.uint16)


def cut_by_range(
    updates: pa.Table, key: Sequence[str], ranges: int
) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of each range that has any; without key columns all are in the first."""
    if not updates.num_rows:
        return
    if not key or ranges == 1:
        yield 0, updates
        return
    of = ranges_of(key_hash([updates.column(name) for name in key]), ranges)
    order = np.argsort(of, kind="stable")
    (batch, *more) = updates.combine_chunks().to_batches()
    # Out of a batch rows are taken in half the time that a table needs.
    moved = updates.take(pa.array(order)) if more else batch.take(pa.array(order))
    found, starts = np.unique(of[order], return_index=True)
    for number, start, end in zip(found, starts, [*starts[1:], len(order)], strict=True):
        piece = moved.slice(int(start), int(end - start))
        yield int(number), piece if more else pa.Table.from_batches([piece])


def put_aside(
    writing: Writing, attempt: str, pieces: Sequence[tuple[int, pa.Table]]
) -> list[Aside]:
    """Write rows by range as one object; return where those of each range are."""
    if not pieces:
        return []
    data = [_encoded(rows) for _, rows in pieces]
    segments = writing.put_aside(data, attempt)
    return [
        Aside(number, rows.num_rows, segment)
        for (number, rows), segment in zip(pieces, segments, strict=True)
    ]


def _encoded(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    sink.write(b"\0" * (-sink.tell() % ALIGNED))
    return bytes(sink.getvalue())


@dataclass(frozen=True, slots=True)
class Received:
    """The updates of a range, as they were put aside."""

    place: Place
    schema: pa.Schema
    segments: tuple[Segment, ...]

    def table(self) -> pa.Table:
        """Read them, verified."""
        return pa.concat_tables([self.schema.empty_table(), *map(self._read, self.segments)])

    def _read(self, segment: Segment) -> pa.Table:
        found = self.place.fetch(segment)
        if found is None:
            raise PartCollected("what was put aside", segment.key)
        verify_segment(segment, found, f"object {segment.key} at {segment.offset}")
        with pa.ipc.open_stream(found) as reader:
            return reader.read_all().cast(self.schema)


@dataclass(frozen=True, slots=True)
class Slice:
    """The ``number``-th of ``of`` slices of a part."""

    part: Part
    number: int = 0
    of: int = 1

    @property
    def rows(self) -> int:
        """About how many updates it has."""
        return self.part.rows // self.of


@dataclass(frozen=True, slots=True)
class Sliced:
    """Some slices of the updates of a stored collection over an interval."""

    reading: Reading
    cut: Cut
    slices: tuple[Slice, ...]

    def table(self) -> pa.Table:
        """Read them: all columns, under their own names; not consolidated."""
        return pa.concat_tables([self.reading.schema.empty_table(), *map(self._read, self.slices)])

    def _read(self, one: Slice) -> pa.Table:
        return advance(self.reading.updates(one.part, (one.number, one.of)), self.cut.lower)


def slices(cut: Cut, rows_max: int) -> list[Slice]:
    """Return the parts of a cut, large ones as several slices."""
    counts = ((part, max(1, -(-part.rows // rows_max))) for part in cut.parts)
    return [Slice(part, number, of) for part, of in counts for number in range(of)]


@dataclass(frozen=True, slots=True)
class Scatter:
    """What one task does to bring stored updates to the ranges of a key."""

    updates: Sliced
    key: tuple[str, ...]
    ranges: int
    writing: Writing

    def __call__(self, attempt: str) -> bytes:
        """Put the updates aside; return where they are."""
        pieces = list(cut_by_range(self.updates.table(), self.key, self.ranges))
        return msgspec.msgpack.encode(put_aside(self.writing, attempt, pieces))

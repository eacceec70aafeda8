"""Rows read piece by piece: which parts of a snapshot need nothing of each other.

A row is there as often as the diffs of all its updates say, so that in general equal rows have to
be brought together before any can be shown. Not so where nothing is taken away: a part of whose
diffs, by its statistics, none is negative shows its rows as they are, and so does every slice of
it. The other parts, if they are small, are read at once; what they add comes on top (``more``), and
what they take away (``gone``) every piece subtracts from its own rows, provided that no row can be
in two pieces.

    rows of all pieces + more  ==  the rows of the snapshot, as multisets

Kept by: this module, without Spark. Relied on by: ``persist/spark.py``, whose tasks read pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.persist.batch import Part
from headwater.persist.consolidate import consolidate
from headwater.persist.evolution import DIFF
from headwater.persist.fingerprint import fingerprints
from headwater.persist.state import CollectionState

SLICE_ROWS_MIN: Final = 100_000
"""A part is not cut into slices of fewer rows: each costs a task."""

Read = Callable[[Part], pa.Table]
"""The updates of a part, without times."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The ``number``-th of ``of`` slices of a part."""

    part: Part
    number: int
    of: int

    @property
    def rows(self) -> int:
        """About how many updates it has."""
        return self.part.rows // self.of

    @property
    def size_bytes(self) -> int:
        """About its stored size."""
        return self.part.size_bytes // self.of

    def cut(self, updates: pa.Table) -> pa.Table:
        """Return the slice, of all updates of the part."""
        first, end = (len(updates) * n // self.of for n in (self.number, self.number + 1))
        return updates.slice(first, end - first)


@dataclass(frozen=True, slots=True)
class Pieces:
    """A snapshot's rows in pieces, and the little that is not in them."""

    pieces: tuple[Piece, ...]
    more: pa.Table
    gone: pa.Table

    def rows(self, piece: Piece, read: Read) -> pa.Table:
        """Return what is left of a piece: data columns and diffs, none negative."""
        updates = piece.cut(read(piece.part))
        if not self.gone.num_rows:
            return updates
        names = [name for name in updates.column_names if name != DIFF]
        hit = pa.array(np.isin(fingerprints(updates, names), fingerprints(self.gone, names)))
        touched = consolidate(pa.concat_tables([updates.filter(hit), self.gone]))
        # What is gone and not in this piece is in another. If there is none, it is in no piece.
        if len(self.pieces) > 1:
            touched = touched.filter(pc.greater(touched.column(DIFF), 0))
        return pa.concat_tables([updates.filter(pc.invert(hit)), touched])


def only_inserts(part: Part) -> bool:
    """Whether statistics prove that nothing of a part takes anything away."""
    known = part.stats.get(DIFF)
    return known is not None and isinstance(known.lower, int) and known.lower > 0


def in_pieces(
    collection: CollectionState,
    parts: Sequence[Part],
    read: Read,
    empty: pa.Table,
    *,
    rest_rows_max: int,
    tasks: int,
) -> Pieces | None:
    """Return a snapshot's rows in pieces, about as many as ``tasks``; ``None`` if it has none.

    Of the parts that also take away, at most ``rest_rows_max`` rows are read here. What is returned
    travels to tasks: nothing in it may refer to the buffers of a part.
    """
    many = [part for part in parts if only_inserts(part)]
    rest = [part for part in parts if not only_inserts(part)]
    if not many or sum(part.rows for part in rest) > rest_rows_max:
        return None
    once = each_row_once(collection, many)
    little = consolidate(pa.concat_tables([empty, *map(read, rest)]))
    added = pc.greater(little.column(DIFF), 0)
    more, gone = (little.filter(kept) for kept in (added, pc.invert(added)))
    if gone.num_rows and not once:
        if len(many) > 1:
            return None
        tasks = 1
    return Pieces(tuple(_slices(many, tasks)), more, gone)


def _slices(parts: Sequence[Part], tasks: int) -> list[Piece]:
    share = max(SLICE_ROWS_MIN, sum(part.rows for part in parts) // max(1, tasks))
    counts = ((part, max(1, round(part.rows / share)) if tasks > 1 else 1) for part in parts)
    return [Piece(part, number, of) for part, of in counts for number in range(of)]


def each_row_once(collection: CollectionState, parts: Sequence[Part]) -> bool:
    """Whether no row is in two places: all are of one batch, merged, all of it at one time.

    That the times are not after ``since`` is not enough: a merge that ran before ``since`` was
    there has left equal rows of different times as they were.
    """
    owners = [b for b in collection.batches if any(part in b.parts for part in parts)]
    times = {time for part in parts for time in (part.time_min, part.time_max)}
    return (
        len(owners) == 1
        and len(times) == 1
        and all(part.consolidated and part in owners[0].parts for part in parts)
    )

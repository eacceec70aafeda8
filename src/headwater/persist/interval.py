"""Intervals: the updates of a collection over a span of times, unread.

An interval is cut out of one state, by reference: its parts are pinned against our own garbage
collection and nothing is read before somebody asks. Then they are read piece by piece, so that
what is held at once does not depend on how much was written at once.

    updates()   the rows, each at its own time; not consolidated
    errors()    the other side, which is small, at once

A *whole* interval has what was there before it, too, at its first time: the snapshot, then what
came after it.

Invariant:      two reads of an interval give the same updates, whatever is merged meanwhile; those
                of ``[a, b)`` and ``[b, c)`` together are those of ``[a, c)``.
Relied on by:   materializations, which deliver what may be larger than memory.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from headwater.base.ids import GlobalId
from headwater.persist import evolution
from headwater.persist.batch import Part
from headwater.persist.compact import advance
from headwater.persist.consolidate import consolidate
from headwater.persist.core import Core
from headwater.persist.decision import collection_of
from headwater.persist.evolution import ERROR_SCHEMA, TIME
from headwater.persist.narrow import read_rows
from headwater.persist.part import PIECE_BYTES, PartMissing, read_part_pieces
from headwater.persist.read import not_there
from headwater.persist.spark_parts import cut


class Interval:
    """Updates at times in ``[lower, upper)``, which must be sealed; see the module's docstring."""

    def __init__(
        self, core: Core, gid: GlobalId, lower: int, upper: int, *, whole: bool = False
    ) -> None:
        self._core, self._id = core, gid
        while True:
            self.collection = collection_of(core.state, gid)
            self.ok, self._errors = cut(self.collection, lower, upper, hydrating=whole)
            parts = (*self.ok.parts, *self._errors.parts)
            self._release = weakref.finalize(self, core.pin(parts))
            if not core.in_use.is_claimed(parts):
                break
            # Collected between our look at the state and our pin: the state has moved on since.
            self._release()

    @property
    def schema(self) -> pa.Schema:
        """The columns of its updates."""
        return evolution.with_system_columns(self.collection.schemas[-1])

    @property
    def first_time(self) -> int | None:
        """No update is before it; ``None``: there are none."""
        times = [part.time_min for part in self.ok.parts]
        return max(self.ok.lower, min(times)) if times else None

    def find_first_time(self) -> int | None:
        """Return the time of the first update, if need be by reading; ``None``: there are none."""
        known = [part.time_min for part in self.ok.parts if part.window is None]
        cut_through = [part for part in self.ok.parts if part.window is not None]
        read = (updates[TIME] for updates in self._read(cut_through) if updates.num_rows)
        known += [pc.min(times).as_py() for times in read]
        return max(self.ok.lower, min(known)) if known else None

    @property
    def last_time(self) -> int | None:
        """No update is after it; ``None``: there are none."""
        times = [part.time_max for part in self.ok.parts]
        return min(self.ok.upper - 1, max(self.ok.lower, *times)) if times else None

    def at_end(self) -> Interval:
        """Return all that is there at its last time, which must be readable still."""
        return Interval(self._core, self._id, self.ok.upper - 1, self.ok.upper, whole=True)

    def updates(self) -> Iterator[pa.Table]:
        """Yield the updates, piece by piece; memory is that of one."""
        return self._read(self.ok.parts)

    def _read(self, parts: Iterable[Part]) -> Iterator[pa.Table]:
        try:
            for part in parts:
                for piece in read_part_pieces(
                    part,
                    self.collection,
                    fetch=self._core.fetch,
                    layouts=self._core.layouts,
                    piece_bytes=PIECE_BYTES,
                ):
                    yield advance(piece, self.ok.lower) if self.ok.hydrating else piece
        except PartMissing as missing:
            raise not_there(self._core, self.collection.name, missing.key) from missing

    def errors(self) -> pa.Table:
        """Return the updates of the error side, consolidated."""
        none = evolution.updates_schema(ERROR_SCHEMA).empty_table()
        try:
            read = [read_rows(self._core, self.collection, p, None) for p in self._errors.parts]
        except PartMissing as missing:
            raise not_there(self._core, self.collection.name, missing.key) from missing
        tables = [advance(t, self._errors.lower) if self._errors.hydrating else t for t in read]
        return consolidate(pa.concat_tables([none, *tables]))

"""What a session hands to a task: updates by reference, which the task reads where it runs.

    Interval, Snapshot  ─▶  Sent: a collection without its history, and which parts to read
    Difference          ─▶  SentDifference: two of them

Reading one gives what reading the original gives, by the same functions; the objects must be pinned
as long as the task reads, so whoever sends them keeps the originals until it has its answer.

Relied on by: ``in_task``, which sends them; couriers, to whom they are like any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from headwater.collection.difference import Difference, difference
from headwater.persist.compact import advance
from headwater.persist.errors import CollectionHasErrors, PartCollected
from headwater.persist.interval import Interval
from headwater.persist.part import PIECE_BYTES, PartMissing, read_part_pieces
from headwater.persist.read import Snapshot
from headwater.persist.spark_parts import Cut, Place, Reading


@dataclass(frozen=True, slots=True)
class Sent:
    """Updates of one collection."""

    reading: Reading
    cut: Cut
    end: Sent | None = None
    """All that is there at its last time, where somebody asks for that."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of its updates."""
        return self.reading.schema

    def updates(self) -> Iterator[pa.Table]:
        """Yield the updates, piece by piece; memory is that of one."""
        collection, place = self.reading.collection, self.reading.place
        try:
            for part in self.cut.parts:
                for piece in read_part_pieces(
                    part,
                    collection,
                    fetch=place.fetch,
                    layouts=place.layouts,
                    piece_bytes=PIECE_BYTES,
                ):
                    yield advance(piece, self.cut.lower) if self.cut.hydrating else piece
        except PartMissing as missing:
            raise PartCollected(collection.name, missing.key) from missing

    def at_end(self) -> Sent:
        """Return all that is there at its last time."""
        assert self.end is not None, "nobody said that it would be asked for"
        return self.end


@dataclass(frozen=True, slots=True)
class SentDifference:
    """What makes of one collection another."""

    old: Sent
    new: Sent

    @property
    def schema(self) -> pa.Schema:
        """The columns of its updates: those of the new collection."""
        return self.new.schema

    def updates(self) -> Iterator[pa.Table]:
        """Yield what comes, then what goes."""
        return difference(self.old, self.new)

    def at_end(self) -> Sent:
        """Return all that is there at its last time."""
        return self.new


def sent(place: Place, one: Interval | Difference, end: Interval | None) -> Sent | SentDifference:
    """Return what a task reads in the place of an interval; ``end``: what there is at its end."""
    if isinstance(one, Difference):
        return SentDifference(_interval(place, one.old), _interval(place, one.new))
    return _interval(place, one, None if end is None else _interval(place, end))


def _interval(place: Place, interval: Interval, end: Sent | None = None) -> Sent:
    return Sent(Reading.of(place, interval.collection), interval.ok, end)


def sent_snapshot(place: Place, snapshot: Snapshot) -> Sent:
    """Return what a task reads in the place of a snapshot, which must be free of errors."""
    errors = snapshot.errors()
    if errors.num_rows:
        messages = tuple(errors.column("message").to_pylist())
        raise CollectionHasErrors(snapshot.name, snapshot.as_of, messages)
    rows = tuple(part for part in snapshot.parts if not part.errors)
    cut = Cut(rows, snapshot.as_of, snapshot.as_of + 1, hydrating=True)
    return Sent(Reading.of(place, snapshot.collection), cut)

"""Batches, by reference: which updates, and where their bytes are.

An *update* is ``(row, time, diff)``. A **part** is an immutable run of updates in one place: inline
in the log, or a segment of a blob object (one object may hold segments of many collections). A
**batch** is the set of all updates of one collection at times in ``[lower, upper)``; an *unsealed*
write is a part at times not before the collection's upper.

- A part may be read through a ``window``: then only its updates at times in the window count. So
  one part can serve two batches when a seal cuts through it, and nothing is rewritten.
- After a merge times are advanced to the batch's ``since`` and may lie beyond its upper; merged
  parts therefore have no window.
- ``errors`` tells the two sides of a collection apart: ok rows, and errors as data.

Kept by: ``persist/state.py`` (tiling), writers (counts, checksums). Relied on by: readers, merges.
"""

from __future__ import annotations

from typing import Final

import msgspec

from headwater.algebra.frontier import Frontier
from headwater.base.ids import BatchId

Times = Frontier[int]

MINIMUM: Final = 0
TIME_LIMIT: Final = 2**63 - 1
"""Times are in ``[0, TIME_LIMIT)``: an exclusive bound so that ``time + 1`` always fits."""


class Inline(msgspec.Struct, frozen=True, tag="i", array_like=True):
    """Bytes that live in the log itself; covered by the checksum of their entry or rollup."""

    data: bytes


class Segment(msgspec.Struct, frozen=True, tag="s", array_like=True):
    """A range of a blob object, with the xxh3-64 of its bytes."""

    key: str
    offset: int
    length: int
    checksum: int


class ColumnStats(msgspec.Struct, frozen=True, array_like=True):
    """What is known of one column of a part: bounds of its non-null values, how many nulls.

    ``None`` bounds mean "assume anything". Strings may be cut: the lower bound is then
    still a lower bound, and the upper one is dropped.
    """

    lower: int | float | str | None
    upper: int | float | str | None
    nulls: int


class Part(msgspec.Struct, frozen=True, array_like=True):
    """An immutable run of updates of one side of one collection."""

    where: Inline | Segment
    layout: str
    """How the bytes are laid out: a name in the registry of ``persist/layout.py``."""
    schema: int
    """Version of the collection's schema in which the part was written."""
    errors: bool
    rows: int
    diff_sum: int
    time_min: int
    time_max: int
    window: tuple[int, int] | None = None
    stats: dict[str, ColumnStats] = {}
    consolidated: bool = False
    """No two updates have equal row and time, and no diff is zero."""

    def through(self, lower: int, upper: int) -> Part | None:
        """Return this part seen through ``[lower, upper)``; ``None`` if nothing can be there."""
        if self.window is not None:
            lower, upper = max(lower, self.window[0]), min(upper, self.window[1])
        if self.time_max < lower or self.time_min >= upper:
            return None
        if lower <= self.time_min and self.time_max < upper:
            return self if self.window is None else msgspec.structs.replace(self, window=None)
        return msgspec.structs.replace(self, window=(lower, upper))

    @property
    def size_bytes(self) -> int:
        """Stored size."""
        return len(self.where.data) if isinstance(self.where, Inline) else self.where.length


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """All updates of a collection at times in ``[lower, upper)``, by reference."""

    no: int
    """Names the batch inside its collection; never reused."""
    lower: Times
    upper: Times
    since: Times
    """Times may have been advanced to this frontier."""
    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        assert self.lower <= self.upper, f"batch [{self.lower}, {self.upper}) is inverted"
        assert self.lower != self.upper or not self.parts, "an empty interval holds no updates"

    @property
    def rows(self) -> int:
        """Number of updates, before any window."""
        return sum(part.rows for part in self.parts)


class Unsealed(msgspec.Struct, frozen=True, array_like=True):
    """A durable write at times not yet sealed; ``token`` recognises its retry until it is."""

    token: BatchId
    parts: tuple[Part, ...]

    @property
    def time_min(self) -> int:
        """The earliest time that may be in it."""
        return min(
            part.time_min if part.window is None else max(part.time_min, part.window[0])
            for part in self.parts
        )

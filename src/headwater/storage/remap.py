"""Remap: the bindings of our times to the frontiers of a source.

A *binding* says: at our time ``t`` the source's frontier was ``F``. Between bindings the last one
holds, so remap is a function of every time it knows:

    remap(t)  =  the offsets of the last binding at a time <= t        for since <= t < upper

and everything else of an ingestion is a function of it (``storage/reclock.py``).

Invariants, kept by :class:`Remap` and :func:`mint`, relied on by reclock and resumption:

- **monotone**: later bindings are at least as far in every partition;
- **from the beginning**: the first binding is at the *birth* of the collection (0; on a timeline,
  where that was then), whatever the clock says, so that what is upstream already is there at every
  time at which the collection can be read at all;
- **after a probe**: a binding never goes past what a probe has seen upstream;
- **before the data**: who appends data has the binding of its time from the durable collection;
- **once**: a time below ``upper`` is bound for ever. Two ingesters that race append to the same
  upper; the loser drops its probe, reads the winner's bindings, and probes again.

**As a collection** remap has the columns ``partition`` and ``offset``, and at every time one row
for each partition that has progress: a binding retracts what it replaces. A binding that changes
nothing is no row, and just moves the upper. So the collection at ``t`` *is* the frontier at ``t``,
for whoever wants to look, and its compaction is the one of any collection.

**Compaction** to ``s`` replaces all bindings at times <= ``s`` by one at ``s``. It never goes to
the resumption time ``r`` itself but to ``r - 1`` at most: what is durable reaches to remap(r - 1),
and with ``r - 1`` forgotten nobody could tell where to resume.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa

from headwater.persist.evolution import DIFF, TIME, updates_schema
from headwater.storage.errors import BrokenRemap, CompactedBinding, UpstreamRegressed
from headwater.storage.offsets import NOTHING, Offsets, Partition

SCHEMA: Final = pa.schema(
    [
        pa.field("partition", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
    ]
)
"""The columns of a remap collection."""


@dataclass(frozen=True, slots=True)
class Binding:
    """At our time ``time`` the source's frontier was ``offsets``."""

    time: int
    offsets: Offsets


@dataclass(frozen=True, slots=True)
class Remap:
    """What is known of the bindings of a source: all times in ``[since, upper)``.

    >>> remap = Remap.empty().bind(0, 5, Offsets({"p": 3})).bind(7, 8, Offsets({"p": 9}))
    >>> remap.at(0), remap.at(6), remap.at(7)
    ({p: 3}, {p: 3}, {p: 9})
    """

    bindings: tuple[Binding, ...]
    since: int
    upper: int
    birth: int = 0
    """Before it there is nothing; 0, too, where that is long past."""

    def __post_init__(self) -> None:
        times = [binding.time for binding in self.bindings]
        if self.upper == self.birth:
            if times or self.since != self.birth:
                raise BrokenRemap(f"remap has bindings at {times} and nothing of it is known")
            return
        if not times or times[0] != self.since:
            raise BrokenRemap(f"remap is known from time {self.since} on, and bound at {times[:1]}")
        if any(b <= a for a, b in pairwise(times)) or times[-1] >= self.upper:
            raise BrokenRemap(f"remap is bound at the times {times}, with upper {self.upper}")
        for earlier, later in pairwise(self.bindings):
            if not earlier.offsets <= later.offsets:
                raise BrokenRemap(
                    f"remap is at {earlier.offsets} at time {earlier.time}, "
                    f"and goes back to {later.offsets} at time {later.time}"
                )

    @classmethod
    def empty(cls, birth: int = 0) -> Remap:
        """Return the remap of a source that nobody has probed."""
        return cls((), birth, birth, birth)

    @property
    def latest(self) -> Offsets:
        """How far the source is bound."""
        return self.bindings[-1].offsets if self.bindings else NOTHING

    def at(self, time: int) -> Offsets:
        """Return remap(time)."""
        if time < self.since:
            raise CompactedBinding(f"time {time}", self.since)
        if time >= self.upper:
            raise ValueError(f"time {time} is not bound yet; remap is known before {self.upper}")
        place = bisect_right(self.bindings, time, key=lambda binding: binding.time)
        return self.bindings[place - 1].offsets

    def bind(self, time: int, upper: int, offsets: Offsets) -> Remap:
        """Return remap with one binding more, known before ``upper``.

        A binding that changes nothing leaves no trace but the upper; the first always does.
        """
        if not self.upper <= time < upper:
            raise BrokenRemap(f"a binding at {time} in [{time}, {upper}) after {self.upper}")
        if self.bindings and offsets == self.latest:
            return replace(self, upper=upper)
        return replace(self, bindings=(*self.bindings, Binding(time, offsets)), upper=upper)

    def known_before(self, upper: int) -> Remap:
        """Return remap as it is when its upper has moved and nothing was bound.

        Before the first binding nothing moves.
        """
        return replace(self, upper=max(upper, self.upper)) if self.bindings else self

    def compact(self, since: int) -> Remap:
        """Return remap as whoever reads from ``since`` on sees it; never past the last time."""
        since = min(since, self.upper - 1)
        if since <= self.since:
            return self
        later = tuple(binding for binding in self.bindings if binding.time > since)
        return replace(self, bindings=(Binding(since, self.at(since)), *later), since=since)

    # ---- as a collection ---------------------------------------------------------------------

    @classmethod
    def read(
        cls, rows: Iterable[Mapping[str, Any]], since: int, upper: int, birth: int = 0
    ) -> Remap:
        """Return the remap that a collection's updates say, those before ``since`` at it."""
        changes: dict[int, dict[tuple[Partition, int], int]] = {}
        for row in rows:
            at = changes.setdefault(max(row[TIME], since), {})
            pair = (row["partition"], row["offset"])
            at[pair] = at.get(pair, 0) + row[DIFF]
        if upper == birth:
            return cls.empty(birth)
        counts: dict[tuple[Partition, int], int] = {}
        bindings: list[Binding] = []
        for time in sorted({since, *changes}):
            for pair, diff in changes.get(time, {}).items():
                counts[pair] = counts.get(pair, 0) + diff
                if not counts[pair]:
                    del counts[pair]
            offsets = Offsets(dict(counts.keys()))
            if len(offsets) != len(counts) or any(count != 1 for count in counts.values()):
                raise BrokenRemap(f"remap at time {time} is {counts}: not one offset a partition")
            if not bindings or offsets != bindings[-1].offsets:
                bindings.append(Binding(time, offsets))
        return cls(tuple(bindings), since, upper, birth)


@dataclass(frozen=True, slots=True)
class Probe:
    """When our clock read ``at_ms``, everything before ``offsets`` was there upstream."""

    at_ms: int
    offsets: Offsets


@dataclass(frozen=True, slots=True)
class Minted:
    """A binding to be made durable: an append of ``[lower, upper)``, and what remap is then."""

    lower: int
    upper: int
    binding: Binding
    was: Offsets

    @property
    def changes(self) -> bool:
        """Whether anything is new upstream."""
        return self.binding.offsets != self.was

    def updates(self) -> pa.Table:
        """Return the updates of the collection: what is replaced, and what replaces it."""
        rows = list(self._rows())
        return pa.Table.from_pylist(rows, schema=updates_schema(SCHEMA))

    def _rows(self) -> Iterator[dict[str, Any]]:
        for diff, before, after in (
            (-1, self.was, self.binding.offsets),
            (1, self.binding.offsets, self.was),
        ):
            for partition, offset in before.items():
                if after[partition] != offset:
                    row = {"partition": partition, "offset": offset}
                    yield {**row, TIME: self.binding.time, DIFF: diff}


def mint(source: str, remap: Remap, probe: Probe) -> Minted | None:
    """Decide which binding a probe gives; ``None`` if its time is bound already.

    ``remap`` is what was durable *before* the probe: only then does a probe that is behind it
    mean that upstream went back, and not that somebody else has seen more since.
    """
    if probe.at_ms < remap.upper:
        return None  # The clock was set back, or has not moved: the next probe will do.
    for partition, was in remap.latest.items():
        if probe.offsets[partition] < was:
            raise UpstreamRegressed(source, partition, was, probe.offsets[partition])
    time = probe.at_ms if remap.bindings else remap.birth
    return Minted(remap.upper, probe.at_ms + 1, Binding(time, probe.offsets), remap.latest)

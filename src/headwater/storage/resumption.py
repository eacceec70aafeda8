"""Resumption: where an ingestion goes on, and what upstream may forget.

    time       =  the meet of the uppers of *everything* the ingestion keeps: every output with its
                  errors, the dead letters, upsert state, and remap itself
    offsets    =  remap inverted there: remap(time - 1)
    remap's since  <=  time - 1, strictly below

Before ``offsets`` everything is durable everywhere, so it is never read again, and upstream may
forget it. A meet that leaves out one of them would let upstream forget records whose dead letters,
say, were not written yet: so it is made from a record with a field for each, not from a list that
somebody has to remember to extend.

Computed afresh at the start, once, by whoever starts the ingestion; after that it only grows, with
every append, and each growth is fed back: committed upstream, and to remap's hold. The two are done
in either order, because neither is relied on by the other: a restart reads only our own frontiers.

    probe ──▶ remap ──▶ read ──▶ reclock ──▶ envelope ──▶ outputs, errors, dead letters
      ▲         ▲ │                                         │
      │         │ └── inverted ◀── resumption time ◀────────┘ uppers
   commit ◀─────┴──────────┘ hold at time - 1
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.storage.offsets import Offsets
from headwater.storage.reclock import offsets_at
from headwater.storage.remap import Remap


@dataclass(frozen=True, slots=True)
class Uppers:
    """How far each thing that an ingestion keeps is complete.

    Errors are the other side of their output, with one upper, and the state of an upsert is the
    output itself; both are in ``outputs`` therefore.
    """

    outputs: Mapping[str, int]
    dead_letters: int
    remap: int

    def meet(self) -> int:
        """Return the resumption time: before it, everything of everything is durable."""
        return min(self.remap, self.dead_letters, *self.outputs.values())


@dataclass(frozen=True, slots=True)
class Resumption:
    """Where to go on: everything before ``time``, and before ``offsets``, is durable."""

    time: int
    offsets: Offsets

    @property
    def remap_since(self) -> int:
        """How far remap may be compacted."""
        return remap_since(self.time)


def remap_since(time: int) -> int:
    """Return how far remap may be compacted where ``time`` is gone on at: strictly below it."""
    return max(0, time - 1)


def resumption(uppers: Uppers, remap: Remap) -> Resumption:
    """Return where an ingestion with these uppers goes on."""
    time = uppers.meet()
    return Resumption(time, offsets_at(remap, time))

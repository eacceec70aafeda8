"""Reclock: from places in a source to our times, through remap. Pure.

    reclocked(t)  =  all records that are not beyond remap(t)

so a record appears at the first time whose binding covers it, and for ever after; records at one
place appear together; and whoever has the same remap makes the same collection of them, before or
after any crash, in one piece or in many. That is all there is to exactly-once ingestion.

- :func:`times_of`: records to times. ``None`` where no binding covers them yet; a record that the
  compacted part covers has no time of its own any more, which is an error, because it was durable
  already and should not have been read.
- :func:`reclock_frontier`: of a frontier of the source, the first of our times that it leaves
  open. Everything at times before it is complete once everything before the frontier was read.
- :func:`offsets_at`: its inverse. An output whose upper is ``t`` has everything before
  ``remap(t - 1)``, and upstream may forget that. (``t - 1``, not ``t``: the binding at ``t`` says
  what will be there once ``t`` itself is complete.) Time is totally ordered, so it has a
  predecessor; this is where that is needed.

    reclock_frontier(offsets_at(t)) >= t           with = where the binding at t brought something
    offsets_at(reclock_frontier(F)) <= F           what is complete is never more than was read
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
import numpy.typing as npt

from headwater.storage.errors import CompactedBinding
from headwater.storage.offsets import NOTHING, Offsets, Partition
from headwater.storage.remap import Remap

Longs = npt.NDArray[np.int64]


def time_of(remap: Remap, partition: Partition, offset: int) -> int | None:
    """Return the time of one record; ``None`` if it is not bound yet."""
    if remap.latest.allows(partition, offset):
        return None
    return int(times_of(remap, partition, np.array([offset], np.int64))[0])


def times_of(remap: Remap, partition: Partition, offsets: Longs) -> Longs:
    """Return the times of records of one partition; all of them must be bound.

    >>> remap = Remap.empty().bind(0, 5, Offsets({"p": 3})).bind(7, 8, Offsets({"p": 9}))
    >>> times_of(remap, "p", np.array([0, 2, 3, 8])).tolist()
    [0, 0, 7, 7]
    """
    bound = np.array([binding.offsets[partition] for binding in remap.bindings], np.int64)
    places = np.searchsorted(bound, offsets, side="right")
    if len(places) and int(places.max()) >= len(bound):
        beyond = int(offsets[int(places.argmax())])
        raise ValueError(f"offset {beyond} of partition {partition!r} is not bound yet")
    if remap.since > remap.birth and len(places) and int(places.min()) == 0:
        known = int(offsets[int(places.argmin())])
        raise CompactedBinding(f"offset {known} of partition {partition!r}", remap.since)
    times = np.array([binding.time for binding in remap.bindings], np.int64)
    return times[places] if len(times) else np.zeros(0, np.int64)


def reclock_frontier(remap: Remap, offsets: Offsets) -> int:
    """Return the first time at which records beyond ``offsets`` may still appear."""
    # Bindings are monotone, so those that ``offsets`` covers are the first ones.
    covered = bisect_left(remap.bindings, True, key=lambda binding: not binding.offsets <= offsets)
    return remap.bindings[covered].time if covered < len(remap.bindings) else remap.upper


def offsets_at(remap: Remap, upper: int) -> Offsets:
    """Return how far the source is complete in an output that is complete before ``upper``."""
    return NOTHING if upper <= remap.birth else remap.at(upper - 1)

"""What this process is reading: pins on objects, holds on history.

A **pin** keeps our own garbage collection from an object, a **hold** keeps our own merges from
advancing the times of a collection past a time. Both live in memory only, for comfort: without them
a reader would have to fetch again, or be told that it came too late. What must survive is a reader
in the log.

Collecting **claims** its objects first. A claim and a pin exclude each other: what is pinned is not
claimed, and whoever pins what is claimed is told, and takes the newest state instead, which does
not refer to it any more.

Pins and holds are released by finalizers, which run in any thread at any allocation, also in one
that is just inside this module. Hence the lock can be taken again by its owner, and whatever is
iterated over is copied first.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable

from headwater.algebra.frontier import Frontier
from headwater.base.ids import GlobalId
from headwater.persist.batch import Part, Segment, Times


def objects_of(parts: Iterable[Part]) -> list[str]:
    """Return the keys of the objects that parts live in, one for each."""
    return [part.where.key for part in parts if isinstance(part.where, Segment)]


class InUse:
    """The pins, holds and claims of one process on one location."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._pins: Counter[str] = Counter()
        self._holds: Counter[tuple[GlobalId, int]] = Counter()
        self._claims: set[str] = set()

    def pin(self, parts: Iterable[Part]) -> Callable[[], None]:
        """Keep the objects of ``parts`` from our own garbage collection until released."""
        keys = objects_of(parts)
        with self._lock:
            self._pins.update(keys)

        def release() -> None:
            with self._lock:
                self._pins.subtract(keys)
                for key in keys:
                    if self._pins[key] <= 0:
                        del self._pins[key]

        return release

    def pinned(self) -> frozenset[str]:
        """The objects somebody in this process is reading."""
        with self._lock:
            return frozenset(self._pins)

    def claim(self, keys: Iterable[str]) -> list[str]:
        """Return those of ``keys`` that nobody reads: nobody will, until they are unclaimed."""
        with self._lock:
            free = [key for key in list(keys) if key not in self._pins]
            self._claims.update(free)
            return free

    def unclaim(self, keys: Iterable[str]) -> None:
        """They are deleted, or were not to be after all."""
        with self._lock:
            self._claims.difference_update(keys)

    def is_claimed(self, parts: Iterable[Part]) -> bool:
        """Whether an object of ``parts`` is being collected."""
        keys = objects_of(parts)
        with self._lock:
            return not self._claims.isdisjoint(keys)

    def hold(self, gid: GlobalId, time: int) -> Callable[[], None]:
        """Keep our own merges from advancing times past ``time`` until released."""
        with self._lock:
            self._holds[gid, time] += 1

        def release() -> None:
            with self._lock:
                self._holds[gid, time] -= 1
                if self._holds[gid, time] <= 0:
                    del self._holds[gid, time]

        return release

    def is_held(self, gid: GlobalId) -> bool:
        """Whether somebody in this process follows a collection."""
        with self._lock:
            holds = list(self._holds)
        return any(holder == gid for holder, _ in holds)

    def merge_since(self, gid: GlobalId, since: Times) -> Times:
        """Return how far a merge may advance times now."""
        with self._lock:
            holds = list(self._holds)
        held = [time for holder, time in holds if holder == gid]
        return since.meet(Frontier.of(min(held))) if held else since

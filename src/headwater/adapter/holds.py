"""What decides compaction: how long history is promised, and who is still reading it.

The server keeps the history of every table and view by one durable hold each (the owner's, in the
log). The holds of its sessions are in memory beneath it: a transaction that reads at ``r`` keeps
every collection readable at ``r``, since it may read any of them next. :func:`retained` moves the
durable holds to

    min(read time of the oracle - RETAIN HISTORY,  the newest complete time,  every session's hold)

so never past the oracle's read time, and never past somebody who reads. It moves them in the entry
of a tick, and only where there is something to compact and the way is worth an entry's bytes: an
idle collection costs nothing.

After a take-over the sessions are gone, and with them their holds; the durable ones are the same.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from headwater.adapter import catalog
from headwater.adapter.transients import transients
from headwater.algebra.frontier import Frontier
from headwater.persist.commands import AllowCompaction, Command
from headwater.persist.state import OWNER, CollectionState, State, bound

SLACK_MS: Final = 2_000
"""How far a hold may lag behind what is promised before it is worth moving."""


class Holds:
    """The times at which sessions are reading just now."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._times: Counter[int] = Counter()

    def acquire(self, time: int) -> None:
        """Keep everything readable at ``time``, if it still is."""
        with self._lock:
            self._times[time] += 1

    def release(self, time: int) -> None:
        """Give up what :meth:`acquire` took."""
        with self._lock:
            self._times[time] -= 1
            if self._times[time] <= 0:
                del self._times[time]

    @contextmanager
    def at(self, time: int) -> Iterator[None]:
        """Hold for as long as it takes."""
        self.acquire(time)
        try:
            yield
        finally:
            self.release(time)

    def least(self) -> int | None:
        """Return the earliest time somebody reads at."""
        with self._lock:
            return min(self._times, default=None)


def retained(state: State, upper: int, least: int | None) -> tuple[Command, ...]:
    """Return the command that lets history go; none if there is nothing worth it (pure)."""
    moved = []
    for name, retain_ms in _promised(state):
        gid = state.names.get(name)
        if gid is None:
            continue
        since = _target(state, state.collections[gid], upper - 1 - retain_ms)
        if since is not None and least is not None:
            since = min(since, least)
        if since is not None and _is_worth_it(state.collections[gid], since):
            moved.append((gid, Frontier.of(since)))
    return (AllowCompaction(tuple(moved)),) if moved else ()


def _promised(state: State) -> Iterator[tuple[str, int]]:
    """Yield every collection of which history is promised, and of how long."""
    for each in catalog.objects(state):
        yield each.collection, each.retain_ms
    for name in transients(state):
        yield name, 0  # Its only reader is a session, whose hold says how far.


def _target(state: State, collection: CollectionState, promised: int) -> int | None:
    upper = state.upper(collection)
    if OWNER not in collection.readers or upper.is_closed:
        return None
    return max(0, min(promised, upper.only() - 1))


def _is_worth_it(collection: CollectionState, since: int) -> bool:
    held = collection.readers[OWNER].since
    if held.is_closed or since - held.only() < SLACK_MS:
        return False
    newest = collection.batches[-1] if collection.batches else None
    return newest is not None and bound(newest.upper) > held.only() + 1

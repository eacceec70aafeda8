"""How transactions are delivered: what a user may say of it, and the clock of it.

    MIN_DURATION    between two commits lies at least so much time: more changes, fewer transactions
    MAX_DURATION    a transaction has no more than so much of the time of its inputs: what has
                    waited for long is delivered in several
    SPILL_LIMIT     how much of a transaction is held in memory; the rest is spilled to disk
    SHARDS_IN       where shards run: in threads of this process, or in tasks (``in_task``)

None of them changes what is delivered. The first snapshot is not slowed down.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import msgspec

THREADS: Final = "threads"
TASKS: Final = "tasks"


class Tuning(msgspec.Struct, frozen=True):
    """What a materialization was told; 0 and empty are "as usual"."""

    min_duration_ms: int = 0
    max_duration_ms: int = 0
    spill_bytes: int = 0
    shards_in: str = ""
    """``threads`` or ``tasks``; empty: tasks on a cluster, threads elsewhere."""


class Pace:
    """When a shard may commit again."""

    def __init__(self, tuning: Tuning, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = tuning.min_duration_ms / 1_000
        self._clock = clock
        self._last: float | None = None

    def committed(self) -> None:
        """Take notice of a commit."""
        self._last = self._clock()

    @property
    def rest_s(self) -> float:
        """How long to wait before the next transaction begins; 0: no longer."""
        if self._last is None:
            return 0.0
        return max(0.0, self._last + self._seconds - self._clock())

"""The steps of one process: numbers in part names, each open while parts of it may be committed.

A step is a piece of work that writes parts and then commits them, or does not. Every step below
``closed()`` is over; entries carry that number (``Role.closed_step``), and with it the log says
which parts that nobody refers to are garbage, and which are work in progress.

What a step wrote for itself alone it discards. The maintenance deletes it once the step is closed,
instead of finding it in the next sweep.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable


class Steps:
    """Hands out step numbers, from 1 on; 0 stands for no step at all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 1
        self._open: set[int] = set()
        self._discarded: set[str] = set()

    def take(self) -> int:
        """Open a step."""
        with self._lock:
            step, self._next = self._next, self._next + 1
            self._open.add(step)
            return step

    def close(self, step: int) -> None:
        """The step's parts are committed, or will never be."""
        with self._lock:
            self._open.discard(step)

    def closed(self) -> int:
        """Return the first step that may be open: all before it are closed."""
        with self._lock:
            return min(self._open, default=self._next)

    def discard(self, keys: Iterable[str]) -> None:
        """Say of objects that no entry will ever refer to them."""
        with self._lock:
            self._discarded.update(keys)

    def take_discarded(self) -> set[str]:
        """Return what was discarded since the last call."""
        with self._lock:
            discarded, self._discarded = self._discarded, set()
            return discarded

    def is_open(self, step: int) -> bool:
        """Whether parts of the step may still be committed."""
        with self._lock:
            return step in self._open

"""How many bytes of updates may be on their way into parts at once.

A request that is still being written keeps its updates in memory. The queue of the machine bounds
how many requests there are; here is bounded how large they are together. Whoever submits more waits
until others are through. One that is larger than the bound alone passes when nothing else is there.

Invariant: what is taken is the sum of the sizes between their ``take`` and their ``give_back``.
"""

from __future__ import annotations

import threading


class Backlog:
    """Bytes on their way, at most ``limit_bytes``."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._taken_bytes = 0
        self._changed = threading.Condition()

    def take(self, size_bytes: int, *, wait: bool) -> None:
        """Count ``size_bytes`` as on their way; with ``wait``, when there is room for them."""
        with self._changed:
            while wait and self._taken_bytes and self._taken_bytes + size_bytes > self._limit_bytes:
                self._changed.wait()
            self._taken_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """They are through."""
        with self._changed:
            self._taken_bytes -= size_bytes
            assert self._taken_bytes >= 0, "more was given back than taken"
            self._changed.notify_all()

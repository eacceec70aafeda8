"""What other threads have to say to the event loop, by one wake-up for all that comes at once.

``call_soon_threadsafe`` writes to a pipe each time, and lets the loop's thread run at once, beside
who has more to say. A commit that answers thirty clients says it once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable


class Arrivals:
    """Calls to be made in the loop, in the order in which they came."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[Callable[[], None]] = deque()
        self._woken = False
        """Whether the loop will look; set back before it does, so that nothing is left."""

    def put(self, call: Callable[[], None]) -> None:
        """Have it called in the loop, soon. From any thread, also when the loop has ended."""
        self._calls.append(call)
        if not self._woken:
            self._woken = True
            with contextlib.suppress(RuntimeError):  # Closed: there is nobody to be told.
                self._loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        self._woken = False
        while self._calls:
            self._calls.popleft()()

"""How long a statement may take: ``statement_timeout``, and a client that cancels it.

A :class:`Limit` belongs to one statement. Whoever waits on its behalf asks how long it may still
wait, and gives the error of the limit when it is over. What is durable already is never undone by
a limit: it ends waiting, not committing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from headwater.adapter.errors import QueryCanceled

LOOK_AGAIN_SECONDS: Final = 1.0
"""How long anybody waits at most before it looks again whether it was cancelled."""


class Limit:
    """The time limit of one statement; 0 ms: none."""

    def __init__(
        self,
        timeout_ms: int = 0,
        cancelled: threading.Event | None = None,
        reason: Callable[[], str] = lambda: "request",
    ) -> None:
        self._reason = reason
        # How long somebody is made to wait has nothing to do with what time it is.
        self._end = time.monotonic() + timeout_ms / 1000 if timeout_ms else None
        self._cancelled = cancelled

    def rest_s(self) -> float | None:
        """Return how long to wait before looking again."""
        if self._end is None:
            return None if self._cancelled is None else LOOK_AGAIN_SECONDS
        return max(0.0, min(LOOK_AGAIN_SECONDS, self._end - time.monotonic()))

    def is_over(self) -> bool:
        """Whether the statement has to end now."""
        if self._cancelled is not None and self._cancelled.is_set():
            return True
        return self._end is not None and time.monotonic() >= self._end

    def error(self, waiting_for: str | None = None) -> QueryCanceled:
        """Return why the statement ends."""
        detail = None if waiting_for is None else f"It was waiting for {waiting_for}."
        cancelled = self._cancelled is not None and self._cancelled.is_set()
        if cancelled and self._reason() != "timeout":
            return QueryCanceled("user request", detail=detail)
        return QueryCanceled("statement timeout", detail=detail)


NO_LIMIT: Final = Limit()

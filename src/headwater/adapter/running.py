"""The statement that a thread executes: under which name its jobs run, and what ends it.

All calls of a session are made by one thread, one after another, so what runs there is kept with
the thread's context and need not be handed through everything that may read. Whoever evaluates
queries runs them under the name (a job group of Spark's), so that a client's cancel, or its
timeout, ends the jobs of its own statement and of no other.

Relied on by: :mod:`.session`, which sets it, and :mod:`.reads`, which evaluates under it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

from headwater.adapter.limit import NO_LIMIT, Limit


@dataclass(slots=True)
class Running:
    """A statement that runs."""

    group: str = ""
    """The name of its jobs; empty: they have none."""
    limit: Limit = NO_LIMIT
    evaluating: bool = False
    """Whether jobs of it may run just now."""
    _ending: threading.Lock = field(default_factory=threading.Lock)

    def end_jobs(self, cancel: Callable[[str], None]) -> None:
        """Let the jobs be ended, from any thread, without waiting for it; not twice at a time."""
        if self.evaluating and self._ending.acquire(blocking=False):
            threading.Thread(target=self._end, args=(cancel,), daemon=True).start()

    def _end(self, cancel: Callable[[str], None]) -> None:
        try:
            cancel(self.group)
        finally:
            self._ending.release()


_RUNNING: Final[ContextVar[Running | None]] = ContextVar("running", default=None)


@contextmanager
def running(statement: Running) -> Iterator[None]:
    """Execute a statement inside the block."""
    token = _RUNNING.set(statement)
    try:
        yield
    finally:
        _RUNNING.reset(token)


@contextmanager
def evaluating() -> Iterator[str]:
    """Evaluate a query inside the block, under the name that it is given.

    What fails because the statement was ended is told as that.
    """
    statement = _RUNNING.get() or Running()
    statement.evaluating = True
    try:
        yield statement.group
    except Exception as error:
        if statement.limit.is_over():
            raise statement.limit.error() from error
        raise
    finally:
        statement.evaluating = False

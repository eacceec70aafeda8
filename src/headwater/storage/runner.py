"""Runs an ingestion: a tick every interval, a status that never lies, and backoff when upstream is
away.

    starting ─▶ running ◀──▶ stalled        a transient error: tried again, and goes on
                   │
                   ├──▶ failed              a definite error: the same for ever, with its remedy
                   ├──▶ paused              somebody wants it so; ``paused`` is also where it begins
                   └──▶ stopped, fenced

A stall is visible at once and ends with the next tick that works, which :meth:`Runner.wake` lets be
tried at once. What was durable stays, and can
be read: on a timeline also at later times, where nothing more is bound. The status changes are
kept as a history, with the time of each, for the system views. They do not name the source: whoever
shows them has the name that it has now.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headwater.base.clock import Clock
from headwater.base.errors import ExternalError
from headwater.base.retry import Retry, RetryPolicy
from headwater.persist.errors import Fenced, Stopped
from headwater.storage.errors import DefiniteError, TransientError
from headwater.storage.ingestion import Ingestion
from headwater.storage.outputs import Statistics

HISTORY_MAX: Final = 100
FOR_EVER: Final = 10**9


class Condition(enum.Enum):
    """What a source is doing."""

    STARTING = "starting"
    RUNNING = "running"
    STALLED = "stalled"
    FAILED = "failed"
    PAUSED = "paused"
    STOPPED = "stopped"
    FENCED = "fenced"


@dataclass(frozen=True, slots=True)
class Status:
    """A condition, since when, and why."""

    condition: Condition
    since_ms: int
    why: str = ""


class Runner:
    """Ticks an ingestion until it is stopped, fails, or is fenced.

    ``start`` makes the ingestion, and may meet the same errors as a tick: an upstream that is away
    when the server starts is stalled, not lost.
    """

    def __init__(
        self,
        start: Callable[[], Ingestion],
        clock: Clock,
        *,
        interval_ms: int = 1_000,
        retry: RetryPolicy | None = None,
        begins: Condition = Condition.STARTING,
        before: Runner | None = None,
    ) -> None:
        """Begin in a condition, with the history and the figures of who ran it before."""
        self._start = start
        self._clock = clock
        self._interval_ms = interval_ms
        self._retry = Retry(retry or RetryPolicy(attempts_max=FOR_EVER), clock)
        self._stopping = threading.Event()
        self._woken = threading.Event()
        history = () if before is None else before.history[-HISTORY_MAX + 1 :]
        self._history = [*history, Status(begins, clock.now_ms())]
        self._last = Statistics() if before is None else before.statistics
        self.ingestion: Ingestion | None = None

    @property
    def status(self) -> Status:
        """What the source is doing now."""
        return self._history[-1]

    @property
    def history(self) -> tuple[Status, ...]:
        """The newest changes of status, oldest first."""
        return tuple(self._history)

    def run(self) -> None:
        """Tick until it is over; the status then says why."""
        while not self._stopping.is_set():
            wait_ms = self.once()
            if wait_ms is None:
                return
            self._woken.wait(wait_ms / 1000)
            self._woken.clear()
        self.finish()

    def finish(self) -> None:
        """End in order, in the thread that ticks: give the role back, and close the source."""
        if self.ingestion is not None:
            self._last = self.ingestion.statistics
            self.ingestion.stop()
            self.ingestion = None
        self._now(Condition.STOPPED)

    def stop(self) -> None:
        """Ask :meth:`run` to end, from any thread."""
        self._stopping.set()
        self._woken.set()

    def wake(self) -> None:
        """Ask :meth:`run` to tick now, from any thread, however long it would have waited."""
        self._woken.set()

    def once(self) -> int | None:
        """Tick once; return in how many milliseconds to tick again, ``None`` if it is over."""
        try:
            if self.ingestion is None:
                started = self._start()
                started.statistics.go_on_from(self._last)
                self.ingestion = started
            self.ingestion.tick(self._clock.now_ms())
        except (TransientError, ExternalError) as error:
            now_ms = self._clock.now_ms()
            state = self._retry.failed(error)
            self._now(Condition.STALLED, _told(error))
            # An append may have happened although its reply was lost: look before going on.
            self._let_go()
            return self._interval_ms if state is None else max(1, state.next_try_ms - now_ms)
        except DefiniteError as error:
            self._let_go()
            self._now(Condition.FAILED, error.told)
            return None
        except Fenced as error:
            self._let_go()
            self._now(Condition.FENCED, str(error))
            return None
        except Stopped:
            self._let_go()
            self._now(Condition.STOPPED)
            return None
        except Exception as error:
            # A mistake of ours or of a library: said in the status, and known to whoever looks.
            self._let_go()
            self._now(Condition.FAILED, f"{type(error).__name__}: {error}")
            raise
        self._retry.over()
        self._now(Condition.RUNNING)
        return self._interval_ms

    @property
    def statistics(self) -> Statistics:
        """The counters of the ingestion; of the last one, while there is none."""
        return self._last if self.ingestion is None else self.ingestion.statistics

    def _let_go(self) -> None:
        """Close the source; whoever goes on starts afresh, from what is durable."""
        if self.ingestion is not None:
            self._last = self.ingestion.statistics
            self.ingestion.source.close()
            self.ingestion = None

    def _now(self, condition: Condition, why: str = "") -> None:
        if (self.status.condition, self.status.why) != (condition, why):
            self._history.append(Status(condition, self._clock.now_ms(), why))
            del self._history[:-HISTORY_MAX]


def _told(error: TransientError | ExternalError) -> str:
    return error.told if isinstance(error, TransientError) else str(error)

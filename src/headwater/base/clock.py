"""The port to wall-clock time.

No other module reads the machine's clock, so a test can stop time, move it on, or set it back.
``now_ms`` is milliseconds since the Unix epoch and may go back; ``sleep`` is real waiting.
Whoever needs time that never goes back keeps its own maximum (the log does: ``State.clock_ms``).
"""

from __future__ import annotations

import time
from threading import Lock
from typing import Protocol


class Clock(Protocol):
    """Where time comes from."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch; may go back when the machine's clock is set."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


class ShiftedClock(SystemClock):
    """The machine's clock as another machine would have it: ahead of ours, or behind."""

    def __init__(self, shift_ms: int) -> None:
        self._shift_ms = shift_ms

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch, by that clock."""
        return super().now_ms() + self._shift_ms


class ManualClock:
    """A clock that moves only when told to, or when somebody sleeps on it."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms
        self._lock = Lock()

    def now_ms(self) -> int:
        """Return the time last set."""
        with self._lock:
            return self._now_ms

    def set(self, now_ms: int) -> None:
        """Set the time, also back."""
        with self._lock:
            self._now_ms = now_ms

    def sleep(self, seconds: float) -> None:
        """Move the clock on by ``seconds`` and return at once."""
        with self._lock:
            self._now_ms += max(1, round(seconds * 1000))

"""Every retry of a runtime: how long a failure is waited out, and what is failing just now.

``base/retry.py`` says *when* one operation is tried again; here is what all operations of a runtime
have in common. Each has its :class:`Attempts`, and as long as one of them is failing,
:attr:`Retries.state` says so: attempts, cause, next try. Of several, that which failed most often.

**Stopping is bounded.** From :meth:`Retries.hurry` on, what was promised to somebody (a submitted
request, its parts) is tried for ``stop_ms`` more, anything else not again. A wait is cut into
slices, so that it ends soon after that; an attempt itself takes as long as its port lets it.

Relied on by: metrics and `inspect`, which show a storage that is down; ``Core.stop``, which ends in
an outage, too. The time of ``stop_ms`` and of deadlines is that of blocked threads, hence monotonic
and not the clock port's: a clock that is set back must not prolong it.
"""

from __future__ import annotations

import threading
import time
from typing import Final

from headwater.base.clock import Clock
from headwater.base.retry import Retry, RetryPolicy, RetryState
from headwater.persist.errors import DiskFull
from headwater.persist.metrics import Metrics
from headwater.persist.room import Room

FULL_SECONDS: Final = 0.5
"""How long room is waited for: something may be just about to be deleted."""
SLICE_S: Final = 0.1
"""How long a waiting operation does not notice that it should hurry."""


class Retries:
    """What is failing in one runtime."""

    def __init__(
        self, policy: RetryPolicy, clock: Clock, metrics: Metrics, *, stop_ms: int
    ) -> None:
        self._policy = policy
        self._clock = clock
        self._metrics = metrics
        self._stop_s = stop_ms / 1000
        self._failing: dict[object, RetryState] = {}
        self._lock = threading.Lock()
        self._give_up_at: float | None = None
        self.room = Room(metrics)
        self.given_up = False
        """Whether something promised was given up because the runtime stops."""

    @property
    def state(self) -> RetryState | None:
        """The worst failure we are in, or ``None``."""
        with self._lock:
            return max(self._failing.values(), key=lambda state: state.attempts, default=None)

    def hurry(self) -> None:
        """The runtime stops: give up what was promised in a while, everything else now."""
        if self._give_up_at is None:
            self._give_up_at = time.monotonic() + self._stop_s

    def attempts(self, name: object, *, promised: bool) -> Attempts:
        """Begin an operation; one that fails is known under ``name`` until it is over."""
        return Attempts(self, name, promised=promised)

    def _observe(self, name: object, state: RetryState | None) -> None:
        if state is None and name not in self._failing:
            return
        with self._lock:
            if state is None:
                self._failing.pop(name, None)
            else:
                self._failing[name] = state
        self._metrics.show_retry(self.state)

    def _out_of_time(self, *, promised: bool) -> bool:
        if self._give_up_at is None:
            return False
        if not promised:
            return True
        self.given_up = self.given_up or time.monotonic() >= self._give_up_at
        return self.given_up


class Attempts:
    """The attempts of one operation."""

    def __init__(self, retries: Retries, name: object, *, promised: bool) -> None:
        self._retries = retries
        self._name = name
        self._promised = promised
        self._full_until: float | None = None
        self._retry = Retry(retries._policy, retries._clock, observe=self._observe)

    def again(self, cause: BaseException, deadline: float | None = None) -> bool:
        """Record a failure and wait for the next attempt; ``False`` if there is none.

        There is none when they are used up, when the runtime stops (see the module's docstring),
        when ``deadline`` (monotonic seconds) comes first, or when a disk is full for longer than
        :data:`FULL_SECONDS`: who waits can do something about that, if he is told.
        """
        if isinstance(cause, DiskFull):
            self._retries.room.lacks(cause)
            self._full_until = self._full_until or time.monotonic() + FULL_SECONDS
            deadline = min(deadline or self._full_until, self._full_until)
        asked_ms = self._retries._clock.now_ms()
        due = self._retry.failed(cause)
        if due is None:
            return False
        left_s = max(0, due.next_try_ms - asked_ms) / 1000
        while not self._retries._out_of_time(promised=self._promised):
            if deadline is not None and time.monotonic() + left_s > deadline:
                return False
            if left_s <= 0:
                return True
            slice_s = min(left_s, SLICE_S)
            self._retries._clock.sleep(slice_s)
            left_s -= slice_s
        return False

    def over(self) -> None:
        """Storage answered, or the failure was handed to somebody: it is no longer shown."""
        self._retry.over()
        # Also what an earlier operation of this name left behind when it gave up.
        self._observe(None)

    def _observe(self, state: RetryState | None) -> None:
        self._retries._observe(self._name, state)

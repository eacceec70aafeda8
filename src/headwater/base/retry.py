"""Bounded retry with exponential backoff and full jitter, driven by the clock port.

After the ``n``-th failed attempt the caller waits a time drawn evenly from ``[0, bound(n)]`` with

    bound(n) = min(limit_ms, first_ms * factor ** (n - 1))

Full jitter: many callers that failed together do not come back together. After ``attempts_max``
attempts there is no next one, and the caller raises what it last caught, so that an Indeterminate
failure stays one: giving up does not make it certain that nothing happened.

What is retried is the caller's decision, and so is whether repeating is safe. Here is only *when*:

    retry = Retry(policy, clock)
    while True:
        try:
            return consensus.head()
        except ExternalError as error:
            if not retry.again(error):
                raise

Invariant: between a failure and the success that ends it, :attr:`Retry.state` says how many
attempts failed, why the last one did and when the next one is. Relied on by metrics and `inspect`,
which show a storage that is down as *down until*, not as silence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from headwater.base.clock import Clock


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to wait after each failure, and when to give up.

    With the defaults the bound is 16 s from the 13th failure on; giving up takes 96 s on average
    and 192 s at most, without the time of the attempts.
    """

    first_ms: int = 4
    factor: int = 2
    limit_ms: int = 16_000
    attempts_max: int = 24

    def __post_init__(self) -> None:
        if not 0 < self.first_ms <= self.limit_ms:
            raise ValueError(f"first_ms {self.first_ms} is not in (0, limit_ms {self.limit_ms}]")
        if self.factor < 1 or self.attempts_max < 1:
            raise ValueError("factor and attempts_max are at least 1")

    def bound_ms(self, attempts: int) -> int:
        """Return the longest wait after ``attempts`` failures."""
        grown = self.first_ms * int(self.factor ** (attempts - 1))
        return min(self.limit_ms, grown)


@dataclass(frozen=True, slots=True)
class RetryState:
    """An operation that has failed and not yet succeeded or been given up."""

    attempts: int
    cause: str
    next_try_ms: int


def _ignore(state: RetryState | None) -> None:
    pass


class Retry:
    """The attempts of one operation.

    ``observe`` is called with every new state, and with ``None`` when the operation is over.
    """

    def __init__(
        self,
        policy: RetryPolicy,
        clock: Clock,
        *,
        random: Random | None = None,
        observe: Callable[[RetryState | None], None] = _ignore,
    ) -> None:
        self._policy = policy
        self._clock = clock
        self._random = random
        self._observe = observe
        self._state: RetryState | None = None

    @property
    def state(self) -> RetryState | None:
        """The failure we are in, or ``None``."""
        return self._state

    def failed(self, cause: BaseException) -> RetryState | None:
        """Record a failure; return when the next attempt is due, ``None`` if there is none.

        For callers that schedule rather than wait. The state stays visible after giving up, until
        :meth:`over`.
        """
        attempts = 1 if self._state is None else self._state.attempts + 1
        if self._random is None:
            # Only now: every commit has a Retry, few of them fail, and a seed costs a system call.
            self._random = Random()
        delay_ms = self._random.randint(0, self._policy.bound_ms(attempts))
        self._state = RetryState(
            attempts, f"{type(cause).__name__}: {cause}", self._clock.now_ms() + delay_ms
        )
        self._observe(self._state)
        return self._state if attempts < self._policy.attempts_max else None

    def again(self, cause: BaseException) -> bool:
        """Record a failure and wait for the next attempt; ``False`` if there is none."""
        asked_ms = self._clock.now_ms()
        state = self.failed(cause)
        if state is None:
            return False
        self._clock.sleep(max(0, state.next_try_ms - asked_ms) / 1000)
        return True

    def over(self) -> None:
        """The operation succeeded, or somebody else answers for it now: start afresh."""
        if self._state is not None:
            self._state = None
            self._observe(None)

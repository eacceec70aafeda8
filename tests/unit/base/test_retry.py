"""When to try again: bounds, jitter, what is visible meanwhile."""

from __future__ import annotations

from random import Random

import pytest

from headwater.base.clock import ManualClock
from headwater.base.errors import Indeterminate
from headwater.base.retry import Retry, RetryPolicy, RetryState


def test_the_bound_doubles_up_to_the_limit() -> None:
    policy = RetryPolicy(first_ms=4, factor=2, limit_ms=50)
    assert [policy.bound_ms(n) for n in range(1, 7)] == [4, 8, 16, 32, 50, 50]


@pytest.mark.parametrize("seed", range(20))
def test_every_wait_is_within_its_bound_and_the_number_of_attempts_too(seed: int) -> None:
    policy = RetryPolicy(attempts_max=8, limit_ms=100)
    clock = ManualClock(1_000)
    retry = Retry(policy, clock, random=Random(seed))
    attempts = 0
    while True:
        attempts += 1
        before_ms = clock.now_ms()
        if not retry.again(Indeterminate("lost")):
            break
        # A manual clock moves by a millisecond at least, also for no wait at all.
        assert clock.now_ms() - before_ms <= max(1, policy.bound_ms(attempts))
        assert retry.state is not None
        assert retry.state.next_try_ms <= clock.now_ms()
    assert attempts == policy.attempts_max


def test_a_failure_is_visible_until_it_is_over() -> None:
    seen: list[RetryState | None] = []
    retry = Retry(RetryPolicy(), ManualClock(100), random=Random(1), observe=seen.append)
    assert retry.state is None
    retry.over()
    assert seen == [], "nothing was wrong, so there is nothing to report"

    assert retry.again(Indeterminate("connection reset"))
    assert retry.again(Indeterminate("connection refused"))
    assert retry.state is not None
    assert (retry.state.attempts, retry.state.cause) == (2, "Indeterminate: connection refused")

    retry.over()
    assert retry.state is None
    assert [state and state.attempts for state in seen] == [1, 2, None]


def test_giving_up_leaves_the_cause_to_be_seen() -> None:
    retry = Retry(RetryPolicy(attempts_max=1), ManualClock(), random=Random(1))
    assert retry.failed(Indeterminate("disk is gone")) is None
    assert retry.state is not None
    assert retry.state.cause == "Indeterminate: disk is gone"


def test_scheduling_does_not_wait() -> None:
    clock = ManualClock(100)
    state = Retry(RetryPolicy(), clock, random=Random(1)).failed(Indeterminate("lost"))
    assert state is not None
    assert clock.now_ms() == 100
    assert 100 <= state.next_try_ms <= 104


@pytest.mark.parametrize(
    "wrong",
    [
        {"first_ms": 0},
        {"first_ms": 10, "limit_ms": 5},
        {"factor": 0},
        {"attempts_max": 0},
    ],
)
def test_a_policy_is_checked(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"first_ms|factor"):
        RetryPolicy(**wrong)

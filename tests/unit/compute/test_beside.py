"""A thread for steps that nobody waits for: it ends, whatever is in it."""

from __future__ import annotations

from threading import Event
from typing import Any, cast

import pytest

from headwater.base.errors import HeadwaterError
from headwater.base.ids import GlobalId
from headwater.compute.beside import Beside

PATIENCE_SECONDS = 60
A, B = GlobalId(1), GlobalId(2)


class Woken:
    """What is woken when a step is over."""

    def __init__(self) -> None:
        self.woken = Event()

    def wake(self) -> None:
        self.woken.set()

    def wait(self) -> None:
        assert self.woken.wait(PATIENCE_SECONDS)
        self.woken.clear()


@pytest.fixture
def core() -> Any:
    return cast("Any", Woken())


def test_a_step_is_run_and_is_in_hand_until_it_is_over(core: Any) -> None:
    beside = Beside(core, "test")
    assert not beside.is_on
    beside.start()
    assert beside.is_on
    go = Event()
    beside.submit([A, B], lambda: go.wait(PATIENCE_SECONDS))
    assert A in beside
    assert B in beside
    go.set()
    core.wait()
    assert A not in beside
    assert B not in beside
    beside.stop()
    assert not beside.is_on


@pytest.mark.parametrize("error", [HeadwaterError("stopped"), ValueError("a bug")])
def test_what_a_step_raises_ends_nothing(core: Any, error: Exception) -> None:
    beside = Beside(core, "test")
    beside.start()

    def fails() -> None:
        raise error

    beside.submit([A], fails)
    core.wait()
    done = Event()
    beside.submit([A], done.set)
    assert done.wait(PATIENCE_SECONDS)
    beside.stop()


def test_stopping_waits_for_what_is_in_hand_alone(core: Any) -> None:
    """What waits for its turn is forgotten; what runs is told to hurry, again and again."""
    beside = Beside(core, "test")
    beside.stop()
    beside.start()
    beside.stop()
    beside.start()
    begun, go, never = Event(), Event(), Event()
    told: list[int] = []

    def in_hand() -> None:
        begun.set()
        assert go.wait(PATIENCE_SECONDS)

    def hurry() -> None:
        told.append(1)
        if len(told) == 2:
            go.set()

    beside.submit([A], in_hand)
    beside.submit([B], never.set)
    assert begun.wait(PATIENCE_SECONDS)
    beside.stop(hurry)
    assert len(told) >= 2
    assert not never.is_set()
    assert A not in beside
    assert B not in beside
    beside.start()
    beside.submit([B], never.set)
    assert never.wait(PATIENCE_SECONDS)
    beside.stop()

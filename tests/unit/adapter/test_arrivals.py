"""What other threads say to the event loop: each call is made, once, in order."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import closing
from functools import partial

import pytest

from headwater.adapter.pgwire.arrivals import Arrivals

WAIT_SECONDS = 20
"""How long is waited for what may come from another thread."""
THREADS, CALLS = 4, 500


def test_every_call_of_every_thread_is_made_in_its_order() -> None:
    made: list[tuple[int, int]] = []

    async def story() -> None:
        arrivals, over = Arrivals(asyncio.get_running_loop()), asyncio.Event()

        def note(thread: int, call: int) -> None:
            made.append((thread, call))
            if len(made) == THREADS * CALLS:
                over.set()

        def say(thread: int) -> None:
            for call in range(CALLS):
                arrivals.put(partial(note, thread, call))

        threads = [threading.Thread(target=say, args=(each,)) for each in range(THREADS)]
        for thread in threads:
            thread.start()
        try:
            await asyncio.wait_for(over.wait(), WAIT_SECONDS)
        except TimeoutError:
            raise AssertionError(f"{THREADS * CALLS - len(made)} calls were never made") from None

    asyncio.run(story())
    for thread in range(THREADS):
        assert [call for whose, call in made if whose == thread] == list(range(CALLS))


def test_one_wake_up_serves_all_that_came(monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[Callable[[], None]] = []
    made: list[int] = []
    with closing(asyncio.new_event_loop()) as loop:
        monkeypatch.setattr(loop, "call_soon_threadsafe", woken.append)
        arrivals = Arrivals(loop)
        for each in range(3):
            arrivals.put(partial(made.append, each))
        assert len(woken) == 1
        woken.pop()()
        assert made == [0, 1, 2]
        arrivals.put(partial(made.append, 3))
        assert len(woken) == 1, "the loop has looked, and is to be woken again"


class FoundEmpty(deque[Callable[[], None]]):
    """Says that it is empty just before something comes: another thread was quicker."""

    def __init__(self, comes: Callable[[], None]) -> None:
        super().__init__()
        self._comes: Callable[[], None] | None = comes

    def __len__(self) -> int:
        found, comes = super().__len__(), self._comes
        if found == 0 and comes is not None:
            self._comes = None
            comes()
        return found


def test_what_comes_when_the_loop_has_just_looked_is_not_left() -> None:
    async def story() -> None:
        arrivals, over = Arrivals(asyncio.get_running_loop()), asyncio.Event()
        arrivals._calls = FoundEmpty(lambda: arrivals.put(over.set))
        arrivals.put(lambda: None)
        try:
            await asyncio.wait_for(over.wait(), WAIT_SECONDS)
        except TimeoutError:
            raise AssertionError("a call came as the loop had looked, and was never made") from None

    asyncio.run(story())


def test_a_loop_that_has_ended_is_told_nothing() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    Arrivals(loop).put(lambda: None)

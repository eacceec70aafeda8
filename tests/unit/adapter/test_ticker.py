"""Time goes on after a tick that failed, whatever it failed of."""

from __future__ import annotations

import threading

import pytest

from headwater.base.clock import SystemClock
from headwater.base.errors import HeadwaterError
from headwater.testing.sql_server import SqlServer

WAIT_SECONDS = 20
"""How long is waited for the thread."""


@pytest.mark.parametrize("failure", [KeyError("a bug"), HeadwaterError("a failure")])
def test_the_next_tick_comes(failure: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    with SqlServer(SystemClock(), tick_seconds=0.01) as server:
        timeline, failures, again = server.timeline, [failure], threading.Event()
        tick = timeline.tick

        def failing() -> None:
            if failures:
                raise failures.pop()
            tick()
            again.set()

        monkeypatch.setattr(timeline, "tick", failing)
        before = timeline.upper
        timeline.start()
        assert again.wait(WAIT_SECONDS), "no tick came any more"
        assert timeline.upper > before

"""The timeline: which time a statement happens at.

Its state is the timeline of the log (``upper``: every time before it is complete). The rules:

1. times never decrease; 2. a write is strictly after every read before it; 3. a read is at a time
its inputs still have; 4. a write is not before the upper of its target.

A read happens at ``upper - 1``, confirmed by a linearizable read of the log (so a fenced server
cannot answer from the past). A write happens at ``t >= upper`` and its entry advances the timeline
to ``t + 1``: whoever reads after the acknowledgement reads at ``t`` or later. Times follow the
clock and are not ahead of it: a write that would be waits, for a few milliseconds at the most. If
the clock was set back further than that, the timeline goes on from where it was.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from headwater.base.clock import Clock
from headwater.persist.client import Client
from headwater.persist.commands import Advance, Outcome

DEFAULT: Final = "default"
WAIT_MAX_MS: Final = 50
TICK_SECONDS: Final = 1.0


class Timeline:
    """The default timeline of a location."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._writes = threading.Lock()
        self._stopping = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="headwater-tick", daemon=True)
        if DEFAULT not in client.core.state.timelines:
            client.core.submit(Advance(DEFAULT, clock.now_ms())).result()

    @property
    def upper(self) -> int:
        """Every time before it is complete for every table."""
        return self._client.core.state.timelines[DEFAULT].upper

    def start(self) -> None:
        """Let time go on also when nobody writes."""
        self._ticker.start()

    def stop(self) -> None:
        """Stop ticking."""
        self._stopping.set()
        if self._ticker.is_alive():
            self._ticker.join()

    def read_time(self) -> int:
        """Return the time of a strictly serializable read."""
        return self._client.core.confirm().timelines[DEFAULT].upper - 1

    def write(self, commit: Callable[[int], Outcome]) -> int:
        """Run one write at its time; ``commit(t)`` must advance the timeline to ``t + 1``.

        Writes go one after another: what a write reads is not changed by another before it lands.
        """
        with self._writes:
            time = self._write_time()
            commit(time)
            return time

    def _write_time(self) -> int:
        now, upper = self._clock.now_ms(), self.upper
        waited = 0
        while now < upper and upper - now <= WAIT_MAX_MS and waited < WAIT_MAX_MS:
            self._clock.sleep(0.001)
            waited += 1
            now = self._clock.now_ms()
        return max(now, upper)

    def _tick(self) -> None:
        while not self._stopping.wait(TICK_SECONDS):
            with self._writes:
                now = self._clock.now_ms()
                if now > self.upper:
                    self._client.core.submit(Advance(DEFAULT, now)).result()

"""The recomputer: it runs steps of recomputed views, and commits them.

    at once    where the controller is asked for a step
    beside     the ticking of others, while it runs by itself: in a thread, one view after the other

What a recomputation costs its query says, and it is due at every time of its inputs: a view that
takes a second, over a table that is written five times a second, never catches up. So nobody waits
for it; and what runs beside others is committed as far as it is after :data:`STEP_MS_MAX`, for
readers to see it move, for the next view to have its turn, and for a process that dies to lose no
more than that.

Kept by: this module. Relied on by: the controller, which decides when and what.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Any, Final

from headwater.base.errors import HeadwaterError
from headwater.compute import recompute
from headwater.compute.beside import Beside
from headwater.compute.recompute import Changes, GoOn, RecomputedView
from headwater.compute.step import StepFailed, last_line
from headwater.persist.commands import All, Atomic
from headwater.persist.core import Core
from headwater.persist.errors import Stopped
from headwater.persist.spark_end import SparkEnded

LOG: Final = logging.getLogger(__name__)

STEP_MS_MAX: Final = 2_000
"""How long a step beside others goes on to a further time of its inputs."""


class Recomputer:
    """Runs steps in one Spark session, for one location."""

    def __init__(
        self,
        core: Core,
        session: Any,
        stall: Callable[[RecomputedView, HeadwaterError, int], None],
        recovered: Callable[[RecomputedView], None],
    ) -> None:
        self._core, self._session = core, session
        self._stall, self._recovered = stall, recovered
        self.beside = Beside(core, "headwater-recompute")

    def run(self, view: RecomputedView) -> list[str]:
        """Run the next step of a view; return its name if it has advanced already."""
        if not self.beside.is_on:
            return self._stepped(view, lambda: True)
        if view.id not in self.beside:
            self.beside.submit([view.id], lambda: self._for_a_while(view))
        return []

    def _for_a_while(self, view: RecomputedView) -> None:
        core = self._core
        end_ms = core.clock.now_ms() + STEP_MS_MAX

        def go_on() -> bool:
            wanted = self.beside.is_on and view.id in core.state.collections
            return wanted and core.clock.now_ms() < end_ms

        try:
            self._stepped(view, go_on)
        except HeadwaterError:
            raise
        except Exception as error:  # A bug: it is told, and is not tried again at once for ever.
            LOG.exception("a view was not recomputed; it is tried again")
            self._stall(view, StepFailed(view.name, last_line(error)), 0)

    def _stepped(self, view: RecomputedView, go_on: GoOn) -> list[str]:
        begun = monotonic()
        try:
            advanced = self._committed(view, go_on)
        except Stopped:
            raise
        except HeadwaterError as error:
            if isinstance(error, SparkEnded) and not error.out_of_memory:
                raise  # No view is to blame.
            self._stall(view, error, int(1_000 * (monotonic() - begun)))
            return []
        self._recovered(view)
        return [view.name] if advanced else []

    def _committed(self, view: RecomputedView, go_on: GoOn) -> bool:
        core = self._core
        planned = recompute.plan_step(core.state, view)
        if planned is None:
            return False
        release = core.pin(planned.pinned())
        try:
            with core.step() as step:
                found = Changes(planned, [])
                if not planned.is_empty():
                    found = recompute.run(core, self._session, planned, go_on)
                parts = step.write(found.pending) if found.pending else ()
                command = Atomic(recompute.commands(found.step, parts))
                return isinstance(core.submit(command).result(), All)
        finally:
            release()

"""Storage's edge to Spark: pieces of a large range, run as tasks of one job after the other.

A job has at most as many tasks as there are slots for background work (two less than all), so that
a tick always finds one free. The session may still be on its way when the first source runs; a
range that is large enough to come here waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headwater.persist.core import Core, Step
from headwater.persist.spark import background_slots, run_in_background, writing
from headwater.persist.spark_parts import Writing


class SparkTasks:
    """Tasks of one session, for one range."""

    def __init__(self, session: Any, core: Core, step: Step) -> None:
        self._session = session
        self._core = core
        self._step = step

    def run(self, work: Sequence[Callable[[str], bytes]]) -> list[bytes]:
        """Run each in a task."""
        return run_in_background(self._session, work)

    def writing(self) -> Writing:
        """Return under which names tasks of this range write: others each time."""
        return writing(self._core, self._step)

    @property
    def at_once(self) -> int:
        """How many slots there are for them."""
        return background_slots(self._session)

"""A thread for steps that nobody waits for.

    start() … stop()    between them what is submitted runs beside the ticking, one after the other;
                        stop() waits for the one in hand, which it may be told how to hurry, and
                        forgets those that wait
    view in beside      a step of the view runs, or waits for its turn

What is submitted tells its failures itself. Of what ends everything, a runtime that was stopped or
a Spark that ended, whoever asks those is told; this thread has nobody to tell.

Kept by: this module. Relied on by: ``stepper.py`` and ``recomputer.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Thread
from typing import Final

from headwater.base.errors import HeadwaterError
from headwater.base.ids import GlobalId
from headwater.persist.core import Core

LOG: Final = logging.getLogger(__name__)
HURRY_SECONDS: Final = 0.5
"""How often a step in hand is told to end."""


class Beside:
    """One thread, and the views whose steps are in it."""

    def __init__(self, core: Core, name: str) -> None:
        self._core, self._name = core, name
        self._thread: ThreadPoolExecutor | None = None
        self._views: set[GlobalId] = set()

    @property
    def is_on(self) -> bool:
        """Whether steps run beside; else nobody ticks, and they are run at once."""
        return self._thread is not None

    def __contains__(self, view: GlobalId) -> bool:
        return view in self._views

    def start(self) -> None:
        """Run beside what is submitted from now on."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=self._name)

    def stop(self, hurry: Callable[[], None] = lambda: None) -> None:
        """Wait for the step in hand; the others will be submitted again."""
        thread, self._thread = self._thread, None
        if thread is not None:
            ending = Thread(target=partial(thread.shutdown, cancel_futures=True))
            ending.start()
            ending.join(HURRY_SECONDS)
            while ending.is_alive():
                hurry()
                ending.join(HURRY_SECONDS)
        self._views.clear()

    def submit(self, views: Iterable[GlobalId], step: Callable[[], object]) -> None:
        """Run a step of views of which none is in hand."""
        assert self._thread is not None, "asked before"
        taken = frozenset(views)
        self._views |= taken

        def run() -> None:
            try:
                step()
            except HeadwaterError:
                pass
            except Exception:  # A bug, and no reason for later steps not to be run.
                LOG.exception("a step beside the others failed; it is tried again")
            finally:
                self._views -= taken
                self._core.wake()

        self._thread.submit(run)

"""Whether there is room on the disks that a location is written to.

Who finds none says so (:meth:`Room.lacks`), and whoever has committed says that there is some
(:meth:`Room.has`). A small write may find room where a large one found none, so the shortage is
over only when nobody has met it for :data:`OVER_SECONDS`. The log has one line when it begins and
one when it ends.

Kept by: ``persist/retries.py`` and ``persist/machine.py``. Relied on by: ``/healthz``, metrics and
``hw_status``, which are of one opinion because they all look here.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from headwater.persist.errors import DiskFull
from headwater.persist.metrics import Metrics

LOG: Final = logging.getLogger(__name__)

OVER_SECONDS: Final = 3.0


class Room:
    """The shortage that we are in, if there is one."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._full: DiskFull | None = None
        self._met_s = 0.0
        self._lock = threading.Lock()

    @property
    def full(self) -> DiskFull | None:
        """Where there is no room; None: there is."""
        return self._full

    def lacks(self, error: DiskFull) -> None:
        """A write found no room."""
        with self._lock:
            begins, self._full = self._full is None, error
            self._met_s = time.monotonic()
        if begins:
            self._metrics.disk_full.set(1)
            LOG.error("nothing can be written: %s", error)

    def has(self) -> None:
        """A commit found room."""
        if self._full is None:
            return
        with self._lock:
            if time.monotonic() - self._met_s < OVER_SECONDS:
                return
            self._full = None
        self._metrics.disk_full.set(0)
        LOG.warning("there is room on the disk again")

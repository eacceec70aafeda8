"""When a JVM that runs is of no use any more: it has no context, or nobody works for it.

    stopped     the context is: the cluster has removed the application (an operator did, or
                no worker could start an executor), or Spark's scheduler has failed
    alone       stages wait, and of the executors that there were none is left and none has come for
                :data:`ALONE_SECONDS`: a master that was started again without its state knows
                nothing of the application, ends its executors, and never tells it

Spark itself would wait for ever in both. Another JVM announces itself anew, and whatever waited
is begun again there. A context that never had an executor (a local master; a queue that is long) is
not alone: it may wait.

A stopped context is looked at twice: a JVM that ends by itself stops its context first.

Kept by: this module; :meth:`Watch.why` is a function of what it was shown. Relied on by:
``warming.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

ALONE_SECONDS: Final = 120.0
"""Workers that were started again have come back by then, with executors for those who wait."""

STOPPED: Final = "its context was stopped, by its cluster or by an error of Spark's"
ALONE: Final = "its cluster has given it no executor for two minutes after it lost the last one"


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen of a context at a moment."""

    stopped: bool
    executors: int
    """Without the driver, which is one where it is all there is."""
    waiting: bool
    """Whether there are stages to be run."""


def look(session: Any, *, local: bool) -> Look | None:
    """Look at the context of a session; ``None``: its JVM does not answer, or is ending.

    A local one is not asked for executors.
    """
    try:
        context = session.sparkContext._jsc.sc()
        stopped = bool(context.isStopped())
        if stopped or local:
            return Look(stopped, executors=0, waiting=False)
        tracker = context.statusTracker()
        executors = len(tracker.getExecutorInfos()) - 1
        return Look(stopped, executors, waiting=len(tracker.getActiveStageIds()) > 0)
    except Exception:  # noqa: BLE001 - whatever PySpark and Py4J have to say of a JVM that goes
        return None


class Watch:
    """Looks at one context again and again."""

    def __init__(self) -> None:
        self._was_stopped = False
        self._had_executors = False
        self._alone_since: float | None = None

    def why(self, seen: Look | None, now: float) -> str | None:
        """Take in what was seen; return why the context is of no use, if so."""
        if seen is None:
            return None
        if seen.stopped:
            twice, self._was_stopped = self._was_stopped, True
            return STOPPED if twice else None
        self._had_executors |= seen.executors > 0
        if seen.executors > 0 or not seen.waiting or not self._had_executors:
            self._alone_since = None
            return None
        if self._alone_since is None:
            self._alone_since = now
        return ALONE if now - self._alone_since >= ALONE_SECONDS else None

"""The end of Spark's JVM, told as what it is.

Whoever calls Spark when its JVM ends gets whatever was in the way: a closed socket, half an answer,
a context that is being shut down. :func:`or_ended` turns that into one error, :class:`SparkEnded`,
which says why the JVM ended where its status tells, and that what ran there is not visible: no task
and no JVM ever commits.

A socket is closed a moment before a process has ended, so an error that *looks* like it waits a
little for the status; any other error passes at once.

Kept by: this module. Relied on by: whoever runs something on Spark; ``compute/warming.py``, which
starts another one.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from headwater.base.errors import Determinate, HeadwaterError

OUT_OF_MEMORY: Final = (3, 52)
"""Statuses of a JVM that had not enough: Java's own (``-XX:+ExitOnOutOfMemoryError``), Spark's."""

ENDING_SECONDS: Final = 10.0
"""How long a JVM whose connections are closed may take to end."""

_OF_JAVA: Final = "java_exception"
_ENDING: Final = (
    "SparkContext was shut down",
    "stopped SparkContext",
    "SparkContext has been shut",
)


class SparkEnded(Determinate):
    """Spark's JVM ended while something ran in it; nothing of that is visible."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.out_of_memory = status in OUT_OF_MEMORY
        why = "Spark's memory was used up" if self.out_of_memory else "Spark ended unexpectedly"
        super().__init__(f"{why} while this ran ({said(status)}); nothing of it was done")


def said(status: int) -> str:
    """Say how a process ended.

    >>> said(-9), said(3), said(1)
    ('killed by SIGKILL', 'out of memory', 'status 1')
    """
    if status < 0:
        try:
            return f"killed by {signal.Signals(-status).name}"
        except ValueError:
            return f"killed by signal {-status}"
    return "out of memory" if status in OUT_OF_MEMORY else f"status {status}"


def process_of(session: Any) -> Any | None:
    """Return the JVM's process: of a session, or of what stands for one; None: it is not ours."""
    found = getattr(type(session), "process", None)
    if found is not None:
        return session.process
    return getattr(session.sparkContext._gateway, "proc", None)


@contextmanager
def or_ended(session: Any) -> Iterator[None]:
    """Raise :class:`SparkEnded` instead of whatever is raised because the JVM is gone."""
    before = process_of(session)
    try:
        yield
    except HeadwaterError:
        raise
    except Exception as error:
        if _looks_ended(error):
            for process in (before, process_of(session)):
                status = _status(process)
                if status is not None:
                    raise SparkEnded(status) from error
        raise


def _looks_ended(error: Exception) -> bool:
    """Whether this is what a caller gets to see of a JVM that goes."""
    of_gateway = type(error).__module__.startswith("py4j.")
    # What Java has thrown arrived by a connection that works.
    if isinstance(error, (OSError, EOFError)) or (of_gateway and not hasattr(error, _OF_JAVA)):
        return True
    return any(words in str(error) for words in _ENDING)


def _status(process: Any | None) -> int | None:
    if process is None:
        return None
    try:
        return int(process.wait(ENDING_SECONDS))
    except subprocess.TimeoutExpired:
        return None

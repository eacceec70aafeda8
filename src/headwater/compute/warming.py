"""The SparkSession of a server: there before it is started, and again after its JVM has ended.

Starting the JVM takes seconds, and most of what a server does first (tables, inserts, point reads,
definitions' looking up) needs none of it. :class:`WarmingSession` stands for the session from the
beginning: any attribute of it is that of the session, once there is one.

A JVM can end at any time: killed by the system for its memory, or by itself because a query took
all of it. Whatever ran in it is told so (``persist/spark_end.py``); the next use waits for another
JVM, which a thread starts in its place. Nothing else is lost: what views are and how far they are
is in the log. JVMs that end one soon after another are started after longer and longer pauses.

A JVM may be of no use while it runs: its cluster has forgotten it (``abandoned.py``). Such a one is
ended, and goes the way of the others.

If Spark cannot be started at all, every use says so, and :attr:`WarmingSession.failure` does.

Kept by: this module. Relied on by: ``server/compose.py``, which opens its door meanwhile; whoever
keeps something of a session for later asks whether its ``sparkContext`` is still the same.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

from headwater.base.errors import HeadwaterError
from headwater.compute import abandoned
from headwater.compute.session import (
    SparkSettings,
    close_session,
    crash_file,
    forget_session,
    open_session,
)
from headwater.persist.spark_end import process_of, said

LOG: Final = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.2
CONTEXT_LOOK_SECONDS: Final = 2.0
"""How often the JVM itself is asked how it is: that takes some words with its gateway."""
STARTS_MAX: Final = 5
"""How often it is tried to start another JVM, before there will be none."""
PAUSE_SECONDS_MAX: Final = 30.0
STEADY_SECONDS: Final = 60.0
"""A JVM that ran this long did not end because of how it was started."""
TERMINATED: Final = (143, -15)
TERMINATED_SECONDS: Final = 5.0
"""A signal to the whole group of processes ends the JVM first: the server is about to stop, too."""

_STOPPING: Final = "the server is stopping"


class SparkUnavailable(HeadwaterError):
    """Spark could not be started."""

    def __init__(self, cause: object) -> None:
        told = str(cause).strip().splitlines() or [type(cause).__name__]
        super().__init__(
            f"Spark did not start: {told[0]}; look at the lines above it, and check JAVA_HOME, "
            "--spark-master and --spark-memory-mib"
        )


class _Running(NamedTuple):
    session: Any
    process: Any | None

    @property
    def status(self) -> int | None:
        return None if self.process is None else self.process.poll()

    def end(self) -> None:
        """End the JVM."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class WarmingSession:
    """The process's SparkSession, from before it is there."""

    def __init__(self, settings: SparkSettings) -> None:
        self._settings = settings
        self._future: Future[_Running] = Future()
        self._last: _Running | None = None
        self._changing = threading.Lock()
        self._closing, self._ended = threading.Event(), threading.Event()
        self._over = False
        self.restarts = 0
        """How many JVMs have ended and were followed by another."""
        self._thread = threading.Thread(target=self._run, name="headwater-spark", daemon=True)
        self._thread.start()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session(), name)

    def session(self) -> Any:
        """Return the session, when it is there."""
        while True:
            future = self._future
            failure = future.exception()
            if isinstance(failure, HeadwaterError):
                raise failure.again()
            running = future.result()
            if running.status is None or self._closing.is_set():
                return running.session
            self._replace(future)

    @property
    def process(self) -> Any | None:
        """The process of the newest JVM, running or ended; None: there was none yet."""
        return None if self._last is None else self._last.process

    @property
    def ready(self) -> bool:
        """Whether nobody has to wait."""
        future = self._future
        return future.done() and future.exception() is None and future.result().status is None

    @property
    def failure(self) -> HeadwaterError | None:
        """Why there will be no session, if so."""
        future = self._future
        failure = future.exception() if future.done() else None
        return failure if isinstance(failure, HeadwaterError) else None

    def start_no_more(self) -> None:
        """Start no other JVM from now on: whoever waits for one is told."""
        self._closing.set()
        self._ended.set()

    def close(self) -> None:
        """Stop the session; one that is being started is waited for, and stopped."""
        self.start_no_more()
        self._thread.join()
        close_session()

    def _replace(self, future: Future[_Running]) -> None:
        """Let everybody wait for another JVM, if they do not yet."""
        with self._changing:
            if self._future is future:
                self._future = Future()
                if self._over:
                    self._future.set_exception(SparkUnavailable(_STOPPING))
        self._ended.set()

    def _run(self) -> None:
        try:
            self._keep()
        finally:
            with self._changing:
                self._over = True
                if not self._future.done():
                    self._future.set_exception(SparkUnavailable(_STOPPING))

    def _keep(self) -> None:
        """Start a JVM, and another one whenever it has ended."""
        pause_seconds = 0.0
        starts_max = 1  # What cannot be started at first is a mistake of whoever started it.
        while (running := self._started(starts_max)) is not None:
            future, began = self._future, time.monotonic()
            future.set_result(running)
            why = self._awaited(running)
            if why is None:
                return
            status = running.status
            self._replace(future)
            self._ended.clear()
            steady = time.monotonic() - began >= STEADY_SECONDS
            pause_seconds = 0.0 if steady else min(PAUSE_SECONDS_MAX, 2 * pause_seconds + 1)
            if status in TERMINATED:
                pause_seconds = max(pause_seconds, TERMINATED_SECONDS)
            starts_max = STARTS_MAX
            event = {"why": why, "pause_seconds": pause_seconds}
            if running.process is not None and crash_file(running.process.pid).exists():
                event["told_in"] = str(crash_file(running.process.pid))
            LOG.warning("Spark's JVM ended and is started again", extra={"event": event})
            forget_session()
            self.restarts += 1
            if self._closing.wait(pause_seconds):
                return

    def _awaited(self, running: _Running) -> str | None:
        """Wait until a JVM has ended, or is of no use any more; return why, None: we are closed."""
        watch, asked = abandoned.Watch(), time.monotonic()
        while (status := running.status) is None:
            self._ended.wait(LOOK_SECONDS)
            if self._closing.is_set():
                return None
            now = time.monotonic()
            if running.process is not None and now - asked >= CONTEXT_LOOK_SECONDS:
                asked = now
                seen = abandoned.look(running.session, local=self._settings.is_local)
                why = watch.why(seen, now)
                if why is not None:
                    running.end()
                    return why
        return said(status)

    def _started(self, attempts: int) -> _Running | None:
        """Start a JVM; None: it could not be, and whoever asks is told why."""
        began = time.monotonic()
        for left in reversed(range(attempts)):
            try:
                session = open_session(self._settings)
                event = {"seconds": round(time.monotonic() - began, 1), "version": session.version}
                self._last = running = _Running(session, process_of(session))
            except HeadwaterError as error:
                self._future.set_exception(error)
                return None
            except Exception as error:  # noqa: BLE001 - PySpark and Py4J raise whatever they have
                why = SparkUnavailable(error)  # Of Java's errors only their JVM knows the words.
                forget_session()
                if not left or self._closing.wait(PAUSE_SECONDS_MAX / (left + 1)):
                    self._future.set_exception(why)
                    return None
            else:
                LOG.info("Spark is ready", extra={"event": event})
                return running
        return None

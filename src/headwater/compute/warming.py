"""A SparkSession that is still being started: whoever uses it waits for it.

Starting the JVM takes seconds, and most of what a server does first (tables, inserts, point reads,
definitions' looking up) needs none of it. :class:`WarmingSession` stands for the session from the
beginning: any attribute of it is that of the session, once there is one. If Spark cannot be
started, every use says so, and :attr:`WarmingSession.failure` does; also when its JVM has ended.

Kept by: this module. Relied on by: ``server/compose.py``, which opens its door meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future
from typing import Any, Final

from headwater.base.errors import HeadwaterError
from headwater.compute.session import SparkSettings, close_session, jvm_status, open_session

LOG: Final = logging.getLogger(__name__)


class SparkUnavailable(HeadwaterError):
    """Spark could not be started."""

    def __init__(self, cause: object) -> None:
        told = str(cause).strip().splitlines() or [type(cause).__name__]
        super().__init__(
            f"Spark did not start: {told[0]}; look at the lines above it, and check JAVA_HOME, "
            "--spark-master and --spark-memory-mib"
        )


class SparkEnded(HeadwaterError):
    """The JVM of Spark is gone."""

    def __init__(self, status: int) -> None:
        super().__init__(
            f"Spark's JVM ended with status {status}; start the server again, and if the system "
            "killed it for its memory, give it less with --spark-memory-mib"
        )


class WarmingSession:
    """The process's SparkSession, from before it is there."""

    def __init__(self, settings: SparkSettings) -> None:
        self._settings = settings
        self._future: Future[Any] = Future()
        self._thread = threading.Thread(target=self._start, name="headwater-spark", daemon=True)
        self._thread.start()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session(), name)

    def session(self) -> Any:
        """Return the session, when it is there."""
        failure = self._future.exception()
        if isinstance(failure, HeadwaterError):
            raise failure.again()
        return self._future.result()

    @property
    def ready(self) -> bool:
        """Whether nobody has to wait any more."""
        return self._future.done() and self._future.exception() is None

    @property
    def failure(self) -> HeadwaterError | None:
        """Why there will be no session, or is none any more, if so."""
        if not self._future.done():
            return None
        failure = self._future.exception()
        if failure is None:
            status = jvm_status(self._future.result())
            return None if status is None else SparkEnded(status)
        return failure if isinstance(failure, HeadwaterError) else None

    def close(self) -> None:
        """Stop the session; one that is being started is waited for, and stopped."""
        self._thread.join()
        close_session()

    def _start(self) -> None:
        began = time.monotonic()
        try:
            session = open_session(self._settings)
        except HeadwaterError as error:
            self._future.set_exception(error)
        except Exception as error:  # noqa: BLE001 - PySpark and Py4J raise whatever they have
            self._future.set_exception(SparkUnavailable(error))
        else:
            seconds = round(time.monotonic() - began, 1)
            LOG.info(
                "Spark is ready", extra={"event": {"seconds": seconds, "version": session.version}}
            )
            self._future.set_result(session)

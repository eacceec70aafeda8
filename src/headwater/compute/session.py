"""The SparkSession of a process: one, from a frozen configuration.

Settings that belong to the *meaning* of a query (UTC, ANSI, binary string order) are not for the
user to choose: a view hydrated under one meaning must not be stepped under another. The rest is
:class:`SparkSettings`. Everything listens on loopback unless ``host`` says otherwise.

What Spark and Java want to keep on disk lies in a scratch directory, which goes with the JVM: a
session that is opened after another was closed has the same JVM, which knows no other directory.
Whoever opens the first one sweeps what processes that were killed have left. What a JVM says of its
own crash (:func:`crash_file`) lies beside it, and stays.

A local master has two slots more than there are cores, so that background work never starves a
step (DESIGN §2).

Kept by: :func:`open_session`. Relied on by: everything in ``compute``; nobody takes a session from
the air.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import socket
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JNetworkError

from headwater.base.errors import InvalidUsage
from headwater.base.scratch import Scratch, sweep
from headwater.compute import class_archive
from headwater.persist.spark_end import process_of

LOG: Final = logging.getLogger(__name__)

MEANING: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.collation.default": "UTF8_BINARY",
    "spark.sql.timeType.enabled": "true",
    "spark.sql.caseSensitive": "false",
}
"""Settings that decide what a query says; stored plans depend on them."""

RESULT_BYTES_MAX: Final = "spark.headwater.result.bytesMax"
"""How large the answer of a query may be; Spark keeps it for us (``compute/answer.py``)."""
RESULT_MIB_MAX: Final = 4096

_LOG_PROPERTIES: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} spark %p %c{1}: %m%n%ex{short}
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = error
logger.task.name = org.apache.spark.scheduler.TaskSetManager
logger.task.level = off
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = off
logger.stream.name = org.apache.spark.sql.execution.streaming
logger.stream.level = off
logger.writer.name = org.apache.spark.sql.execution.datasources.v2
logger.writer.level = off
logger.python.name = org.apache.spark.api.python.PythonRunner
logger.python.level = off
"""
"""A failed task or query reaches us as an exception; the log need not repeat it.

The level of ``shell`` is the root's, or Spark announces on every start that it changed it.
"""

_COMPILER: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:Tier4InvocationThreshold=50000 "
    "-XX:Tier4MinInvocationThreshold=6000 -XX:Tier4CompileThreshold=150000"
)
"""When the JVM compiles a method for the second time, with C2: after ten times as many calls.

A step calls thousands of methods some hundred times each. With Java's own thresholds, compiling
them anew was half of the JVM's time during the first dozens of steps of a view, and a third after a
hundred. Loops, which are what a large query spends its time in, are compiled as soon as ever.
"""

_STACK: Final = "-Xss4m"
"""How deep a thread may call: Spark reads texts and plans by recursion.

With Java's own megabyte a sum of 300 columns was read or not, depending on what was compiled yet.
"""


_COLLECTED_EVERY: Final = "5min"
"""How often the JVM is asked to collect what is old, beside its work (G1: concurrently).

Every job leaves some 6 KB with the old objects, which nobody looks at before the heap is as large
as it may be: 12 MiB in 10,000 ticks. Spark asks by itself, every half an hour, and stops the world.
"""

_LOCAL, _WAREHOUSE = "local", "warehouse"
_SOCKET_DIRECTORY_MAX: Final = 60
"""A socket has a name of 43 characters in its directory, and a path of 103 at most."""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """How Spark is run. ``master`` empty: local, with ``cores`` + 2 slots."""

    master: str = ""
    cores: int = 0
    """Cores to plan for; 0: as many as this process may use."""
    host: str = "127.0.0.1"
    driver_memory: str = "1g"
    collect_mib: int = 0
    """How much tasks may return to the driver in one job; 0: as much as Spark lets them, 1 GiB."""
    result_mib: int = RESULT_MIB_MAX
    """How large the answer of a query may be."""
    java_options: str = ""
    """Further options of the driver's JVM; empty: those that use the archive of its classes."""
    extra: tuple[tuple[str, str], ...] = ()
    """Further settings of Spark, except those of :data:`MEANING`."""

    def __post_init__(self) -> None:
        fixed = [key for key, _ in self.extra if key in MEANING]
        if fixed:
            raise InvalidUsage(f"{', '.join(fixed)} decides what queries mean and cannot be set")

    @property
    def cores_used(self) -> int:
        """The number of cores planned for."""
        return self.cores or len(os.sched_getaffinity(0))

    @property
    def master_url(self) -> str:
        """Spark's name of the cluster."""
        return self.master or f"local[{self.cores_used + 2}]"

    @property
    def is_local(self) -> bool:
        """Whether tasks run in the JVM of this very process's Spark."""
        return self.master_url == "local" or self.master_url.startswith("local[")


@dataclass(slots=True)
class _Open:
    settings: SparkSettings
    session: Any


_lock: Final = threading.Lock()
_open: _Open | None = None
_scratch: Scratch | None = None
"""Of the JVM of this process, while there is one."""


def open_session(settings: SparkSettings | None = None) -> Any:
    """Return the process's SparkSession, started now if there is none.

    Asking again with other settings is refused: Spark would silently keep the first ones.
    """
    global _open
    settings = settings or SparkSettings()
    with _lock:
        if _open is not None:
            if _open.settings != settings:
                raise InvalidUsage(
                    f"this process runs Spark with {_open.settings}; close that session first"
                )
            return _open.session
        session = _start(settings, _directory())
        _open = _Open(settings, session)
        return session


def _directory() -> Path:
    """Return where the JVM keeps what it has on disk."""
    global _scratch
    if _scratch is None:
        for path in sweep():
            LOG.info("removed what a killed process left", extra={"event": {"path": str(path)}})
        _scratch = Scratch("spark")
        _temporary(_scratch.path).mkdir()
        atexit.register(_scratch.close)
    return _scratch.path


def _temporary(directory: Path) -> Path:
    """Where Java puts libraries that it unpacks, and Spark the artifacts of sessions."""
    return directory / "tmp"


def crash_file(process: int | str) -> Path:
    """Return where a JVM writes why it crashed, by its number."""
    return Path(tempfile.gettempdir(), f"headwater-java-crash-{process}.log")


def running_session() -> Any | None:
    """Return a session of the Spark that this process runs already, whoever started it."""
    with _lock:
        return _somebodys() if _open is None else _open.session


def _somebodys() -> Any | None:
    from pyspark.sql import SparkSession

    # The active one is that of the thread; the one that was instantiated is that of the process.
    found = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    return None if found is None or found.sparkContext._jsc is None else found


def with_meaning(session: Any) -> Any:
    """Return a session of the same Spark in which queries mean what they do to us.

    The given one if it is such a session, else a new one: the settings of somebody else's session
    are theirs.
    """
    if all(session.conf.get(key, None) == value for key, value in MEANING.items()):
        return session
    own = session.newSession()
    own._headwater_borrowed = True
    _set_meaning(own)
    return own


def new_session(session: Any) -> Any:
    """Return a session beside one of ours: other names, the same meaning.

    Spark makes it of the settings that the whole Spark was started with. If somebody else did that,
    they are not ours.
    """
    made = session.newSession()
    if getattr(session, "_headwater_borrowed", False):
        made._headwater_borrowed = True
        _set_meaning(made)
    return made


def _set_meaning(session: Any) -> None:
    for key, value in MEANING.items():
        session.conf.set(key, value)


def close_session() -> None:
    """Stop the session of this process, if there is one, and remove what it had on disk."""
    global _open
    with _lock:
        if _open is None:
            return
        closing, _open = _open, None
        try:
            closing.session.stop()
        except (ConnectionError, Py4JNetworkError):
            # A signal to the whole group of processes ends the JVM, too: it is ending, or has.
            pass
        except Exception:
            if jvm_status(closing.session) is None:
                raise
        finally:
            for kept in (_LOCAL, _WAREHOUSE):
                shutil.rmtree(_directory() / kept, ignore_errors=True)


def forget_session() -> None:
    """Let this process start Spark anew when its JVM has ended, or could not be started.

    PySpark has no way to say so: it keeps the gateway to its first JVM for as long as the process
    lives, in variables of its classes.
    """
    global _open, _scratch
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    with _lock:
        _open = None
        gone, _scratch = _scratch, None
        context, gateway = SparkContext._active_spark_context, SparkContext._gateway
        SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
        SparkSession._instantiatedSession = SparkSession._activeSession = None
    process = getattr(gateway, "proc", None)
    if process is not None:
        if process.poll() is None:
            process.kill()  # It has no context that anybody could use.
        process.wait()
        process.stdin.close()
    if context is not None:
        context._jsc = None
        if context._accumulatorServer is not None:
            context._accumulatorServer.shutdown()
            context._accumulatorServer.server_close()
    if gone is not None:
        atexit.unregister(gone.close)
        gone.close()


def jvm_status(session: Any) -> int | None:
    """Return with which status the JVM of a session ended; None: it runs, or is not ours."""
    process = process_of(session)
    return None if process is None else process.poll()


def _start(settings: SparkSettings, directory: Path) -> Any:
    # Workers must be this very Python: another one on the PATH has not our packages.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    # It prints every failed query with its Java stack; whoever ran the query has the exception.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    if _somebodys() is not None:
        raise InvalidUsage("this process has a SparkSession of its own already; stop it first")
    log = directory / "log4j2.properties"
    log.write_text(_LOG_PROPERTIES)
    builder = SparkSession.builder.master(settings.master_url).appName("headwater")
    options = settings.java_options or class_archive.options(class_archive.path())
    for key, value in configuration(settings, directory, log, options).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    # It prints a stack when the JVM goes; whoever used the JVM is told.
    session.sparkContext._accumulatorServer.handle_error = _not_told
    return session


def _not_told(*_: object) -> None:
    pass


def configuration(
    settings: SparkSettings, directory: Path, log: Path, options: str = ""
) -> dict[str, str]:
    """Return every setting the session is started with (pure); ``options`` are the JVM's."""
    java = (
        f"-Dlog4j2.configurationFile={log.as_uri()} -Dderby.system.home={directory} "
        f"-Djava.io.tmpdir={_temporary(directory)} "
        # Otherwise in the directory that whoever started us is in.
        f"-XX:ErrorFile={crash_file('%p')} -XX:ReplayDataFile={crash_file('%p-compiler')} "
        # A JVM that had no memory for one thread is broken for all: it ends, and is followed by
        # another (``warming.py``), instead of going on without whatever it lost.
        f"-XX:+ExitOnOutOfMemoryError -XX:+ExplicitGCInvokesConcurrent {_COMPILER} "
        f"{_STACK} {options}"
    )
    collected = {"spark.driver.maxResultSize": f"{settings.collect_mib}m"}
    return {
        **MEANING,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": settings.host,
        "spark.driver.bindAddress": settings.host,
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.extraJavaOptions": java,
        "spark.local.dir": str(directory / _LOCAL),
        "spark.sql.warehouse.dir": (directory / _WAREHOUSE).as_uri(),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.shuffle.partitions": str(settings.cores_used),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",
        # A row on which Java's stack overflows fails its task (``too_deep.py``), not the JVM and
        # with it all that runs there. A JVM without memory still ends: see above, and below.
        "spark.executor.killOnFatalError.depth": "0",
        "spark.executor.defaultJavaOptions": f"-XX:+ExitOnOutOfMemoryError {_STACK}",
        # Without it a flipped byte in a Parquet page is read silently wrong (latency.md, 11).
        "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
        "spark.scheduler.mode": "FAIR",
        "spark.cleaner.periodicGC.interval": _COLLECTED_EVERY,
        "spark.python.daemon.module": "headwater.compute.worker_daemon",
        **_sockets(settings, directory),
        RESULT_BYTES_MAX: str(settings.result_mib << 20),
        **(collected if settings.collect_mib else {}),
        **dict(settings.extra),
    }


def _sockets(settings: SparkSettings, directory: Path) -> dict[str, str]:
    """Let the JVM and Python on this machine speak without TCP, where we know the machine.

    Over TCP the JVM's second small message waits until Python's kernel acknowledges the first,
    which it puts off: some 30 ms of every small step, in which nobody works.
    """
    if (
        not settings.is_local
        or not hasattr(socket, "AF_UNIX")
        or len(str(directory)) > _SOCKET_DIRECTORY_MAX
    ):
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(directory),
    }

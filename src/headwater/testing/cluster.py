"""A standalone Spark cluster on this machine: a master and workers as processes of their own.

    with standalone_cluster(workers=2) as cluster:
        session = open_session(SparkSettings(master=cluster.master, extra=cluster.extra))

Everything is started from the jars of the pyspark wheel and listens on loopback, at free ports.
Worker *n* calls itself 127.0.0.(*n* + 1): Spark tells machines apart by the names of their hosts,
and places a speculative copy of a task only on another host than the first, so that workers of one
name would never see one. Executors are children of their worker, and end with it.

Each process stands behind a guard that ends it when its standard input closes: by us, in order, or
by the system when the tests die. Linux answers on all of 127.0.0.0/8, others on 127.0.0.1 alone.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import headwater

MASTER: Final = "org.apache.spark.deploy.master.Master"
WORKER: Final = "org.apache.spark.deploy.worker.Worker"
MASTER_HOST: Final = "127.0.0.1"
START_TIMEOUT_S: Final = 90
STOP_TIMEOUT_S: Final = 20
DAEMON_MEMORY: Final = "256m"

_GUARD: Final = f"""
import subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=sys.stderr)
print(child.pid, flush=True)
sys.stdin.read()
child.terminate()
try:
    child.wait({STOP_TIMEOUT_S})
except subprocess.TimeoutExpired:
    child.kill()
    child.wait()
"""


class ClusterNotStarted(Exception):
    """A process of the cluster ended, or did not say in time that it is ready."""


class Cluster:
    """A running cluster. What was killed of it can be started again."""

    def __init__(
        self, directory: Path, running: ExitStack, *, cores: int, executor_memory: str
    ) -> None:
        self._directory, self._running, self._cores = directory, running, cores
        self._started = 0
        self._master: _Process | None = None
        self._workers: dict[str, _Process] = {}
        self.master = ""
        """Its address: what a session is opened with."""
        self.extra = (
            ("spark.executorEnv.PYTHONPATH", str(Path(headwater.__file__).parents[1])),
            ("spark.executor.memory", executor_memory),
            ("spark.executor.cores", str(cores)),
        )
        """Settings of Spark with which executors find our packages and fit into their workers."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of the workers' hosts, one worker each."""
        return tuple(self._workers)

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes: the master, then the workers in the order of ``hosts``."""
        assert self._master is not None
        return (self._master.pid, *(worker.pid for worker in self._workers.values()))

    def start_master(self) -> None:
        """Start a master; another one at the same port, without the state of the first."""
        port = self.master.rpartition(":")[2] or "0"
        self._master = self._process("master", MASTER_HOST, port, [MASTER])
        self.master = self._master.await_line(r"Starting Spark master at (spark://\S+)")

    def start_worker(self, host: str) -> None:
        """Start a worker that calls itself so, or another one instead of it."""
        work = self._directory / f"work-{self._started}"
        arguments = [WORKER, "--cores", str(self._cores), "--memory", "2g", "--work-dir", str(work)]
        self._workers[host] = self._process("worker", host, "0", [*arguments, self.master])

    def await_workers(self) -> None:
        """Wait until the master knows every worker."""
        for worker in self._workers.values():
            worker.await_line(r"(Successfully registered) with master")

    def _process(self, what: str, host: str, port: str, arguments: list[str]) -> _Process:
        self._started += 1
        name = f"{what}-{self._started}"
        made = _process(self._directory, name, host, [*arguments, "--host", host, "--port", port])
        return self._running.enter_context(made)


@contextmanager
def standalone_cluster(
    workers: int = 2, *, cores: int = 1, executor_memory: str = "512m"
) -> Iterator[Cluster]:
    """Run a cluster of ``workers``, each with ``cores`` slots; stop every process of it after."""
    with ExitStack() as running:
        directory = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="headwater-")))
        cluster = Cluster(directory, running, cores=cores, executor_memory=executor_memory)
        cluster.start_master()
        for number in range(1, workers + 1):
            cluster.start_worker(f"127.0.0.{number + 1}")
        cluster.await_workers()
        yield cluster


@dataclass(frozen=True, slots=True)
class _Process:
    guard: subprocess.Popen[str]
    pid: int
    log: Path

    def await_line(self, pattern: str) -> str:
        """Wait until the process has said something; return the group of the pattern."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            said = self.log.read_text(errors="replace")
            found = re.search(pattern, said)
            if found is not None:
                return found.group(1)
            if self.guard.poll() is not None or time.monotonic() > deadline:
                raise ClusterNotStarted(f"{self.log.stem} did not start:\n{said[-4000:]}")
            if not Path("/proc", str(self.pid)).exists():
                raise ClusterNotStarted(f"{self.log.stem} ended:\n{said[-4000:]}")
            time.sleep(0.05)


@contextmanager
def _process(directory: Path, name: str, host: str, arguments: list[str]) -> Iterator[_Process]:
    import pyspark

    spark_home = Path(pyspark.__file__).parent
    configuration = directory / f"conf-{name}"
    configuration.mkdir()
    (configuration / "log4j2.properties").write_text(_LOG_PROPERTIES)
    log = directory / f"{name}.log"
    settings = "-Dspark.master.rest.enabled=false -Dspark.ui.enabled=false"
    with log.open("w") as output:
        guard = subprocess.Popen(
            [
                sys.executable,
                "-c",
                _GUARD,
                str(spark_home / "bin" / "spark-class"),
                *arguments,
                "--webui-port",
                "0",
            ],
            env={
                **os.environ,
                "SPARK_HOME": str(spark_home),
                "SPARK_CONF_DIR": str(configuration),
                "SPARK_LOCAL_IP": host,
                "SPARK_LOCAL_DIRS": str(directory / f"local-{name}"),
                "SPARK_DAEMON_MEMORY": DAEMON_MEMORY,
                "SPARK_DAEMON_JAVA_OPTS": settings,
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
        )
    assert guard.stdin is not None
    assert guard.stdout is not None
    try:
        yield _Process(guard, int(guard.stdout.readline()), log)
    finally:
        guard.stdin.close()
        guard.wait()
        guard.stdout.close()


_LOG_PROPERTIES: Final = """\
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""

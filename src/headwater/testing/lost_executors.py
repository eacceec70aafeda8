"""An executor that is killed while it carries a shard, at a moment of a transaction.

    before      StartedCommit has come; that the task asks for its commit never arrives
    asked       the task has asked, and is gone when the commit is made
    after       the commit is made; the task is gone before it can say Acknowledge

Killed is killed: SIGKILL for the JVM of the executor, the daemon of its Python workers and the
worker that runs the task. All three moments are at the commit, which the process that runs this
makes for the task; so they are exact.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal

from headwater.materialize.channel import ChannelClosed
from headwater.materialize.checkpoint import Position
from headwater.materialize.in_task import InTask
from headwater.materialize.recovery import RecoveryEntry, ShardLog
from headwater.materialize.shards import Materialization

WAIT_SECONDS: Final = 240.0

When = Literal["before", "asked", "after"]


def eventually(condition: Callable[[], object], seen: Callable[[], object]) -> None:
    """Wait for a condition; if it never comes, say what was seen instead."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"it never came: {seen()}")
        time.sleep(0.02)


class LostExecutors:
    """Kills, once for each time that it is told to; makes itself part of every commit."""

    def __init__(self) -> None:
        self.killed: list[int] = []
        """The JVMs of executors, or what was left of one, one after the other."""
        self._due: tuple[Materialization, When] | None = None
        self._commit = ShardLog.commit
        ShardLog.commit = self._committing()  # type: ignore[method-assign]

    def arm(self, of: Materialization, when: When) -> None:
        """Kill whoever carries a materialization's shard when it next moves its checkpoint."""
        self._due = of, when

    @property
    def armed(self) -> bool:
        """Whether it has still to kill."""
        return self._due is not None

    def _committing(self) -> Any:
        real = self._commit

        def commit(log: ShardLog, entry: RecoveryEntry, acknowledged: Position | None) -> None:
            when = None
            if self._due is not None and entry.position != log.entry.position:
                of, due = self._due
                if f"/{of.name}/" in log._key:
                    when, self._due = due, None
            if when in ("before", "asked"):
                self._kill(of)
            if when == "before":
                raise ChannelClosed("it was killed before it could ask")
            real(log, entry, acknowledged)
            if when == "after":
                self._kill(of)

        return commit

    def _kill(self, of: Materialization) -> None:
        courier = of.shards[0].courier
        assert isinstance(courier, InTask)
        assert courier.carrier is not None
        processes = _up_to_the_executor(courier.carrier.pid)
        for pid in processes:
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: not any(map(_runs, processes)), lambda: processes)
        self.killed.append(processes[-1])


def _up_to_the_executor(pid: int) -> list[int]:
    """Return a process and those above it, up to the JVM of its executor.

    One whose executor was killed before, for another shard, may have outlived it: then it is alone.
    """
    found = [pid]
    while True:
        folder = Path("/proc", str(found[-1]))
        if b"--executor-id" in (folder / "cmdline").read_bytes().split(b"\0"):
            return found
        above = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        if above <= 1:
            return [pid]
        found.append(above)


def _runs(pid: int) -> bool:
    try:
        state = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"

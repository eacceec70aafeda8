"""Run by ``test_view_cluster.py`` in a process of its own: one process has one SparkContext.

A server's controller keeps views on a standalone cluster, and the cluster loses one thing after the
other, each in the middle of a step:

    executor     the executor that runs the step
    executors    all of them
    python       every Python process of the executors
    frozen       the executor that runs the step stands still for longer than Spark waits for it
    worker       a worker with all that is below it, which is started again
    workers      all of them
    context      the application is removed: its JVM has no context any more
    master       the master, which is started again and knows nothing of the application

After each the views must come to where their tables are, by themselves. Prints what was seen, as
one JSON object.

    lossy_cluster_story.py FOLDER LOSS…
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from headwater.collection.run_layout import LAYOUTS
from headwater.compute.session import SparkSettings
from headwater.compute.warming import WarmingSession
from headwater.persist.client import open_location
from headwater.persist.core import Settings
from headwater.testing.cluster import Cluster, standalone_cluster
from tests.spark.view_cluster_story import HARD, SQL, Story, executors, running_on

PATIENCE = (
    ("spark.network.timeout", "20s"),
    ("spark.network.timeoutInterval", "5s"),
    ("spark.executor.heartbeatInterval", "2s"),
)
"""How long Spark waits for an executor that stands still."""
WAIT_S = 600.0
"""For the views to move, however busy the machine is."""


def processes_below(process: int) -> list[int]:
    """Return all processes below one."""
    found = []
    for children in Path("/proc", str(process), "task").glob("*/children"):
        with suppress(OSError):
            for child in children.read_text().split():
                found += [int(child), *processes_below(int(child))]
    return found


def send(processes: Iterable[int], what: signal.Signals = signal.SIGKILL) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, what)


class Losses:
    """What is done to a cluster; each returns when it has happened."""

    def __init__(self, cluster: Cluster, session: Any) -> None:
        self.cluster, self.session = cluster, session

    def executor(self) -> None:
        send([self._busy()])

    def executors(self) -> None:
        send(executors(self.cluster.pids).values())

    def python(self) -> None:
        for process in executors(self.cluster.pids).values():
            send(processes_below(process))

    def frozen(self) -> None:
        send([self._busy()], signal.SIGSTOP)

    def worker(self) -> None:
        self._restart(self.cluster.hosts[:1])

    def workers(self) -> None:
        self._restart(self.cluster.hosts)

    def context(self) -> None:
        self.session._jsc.sc().stop()

    def master(self) -> None:
        send(self.cluster.pids[:1])
        self.cluster.start_master()
        # Its workers tell it of executors that it does not know, and it ends them.
        while executors(self.cluster.pids):
            time.sleep(0.05)

    def _restart(self, hosts: tuple[str, ...]) -> None:
        pids = dict(zip(self.cluster.hosts, self.cluster.pids[1:], strict=True))
        for host in hosts:
            send([pids[host], *processes_below(pids[host])])
        for host in hosts:
            self.cluster.start_worker(host)

    def _busy(self) -> int:
        known = executors(self.cluster.pids)
        return known.get(running_on(self.session) or "") or next(iter(known.values()))


class Watched:
    """A story whose controller runs by itself."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.stalled: set[str] = set()

    def eventually(self, condition: Callable[[], bool]) -> None:
        """Wait; as long as some view moves, for as long as it takes."""
        last, moved = self._uppers(), time.monotonic()
        while not condition():
            self.stalled |= set(self.story.controller.failures().values())
            if self._uppers() != last:
                last, moved = self._uppers(), time.monotonic()
            assert time.monotonic() < moved + WAIT_S, (last, self.story.upper, self.stalled)
            time.sleep(0.05)

    def are_there(self) -> bool:
        return all(upper == self.story.upper for upper in self._uppers())

    def _uppers(self) -> list[int]:
        return [self.story.controller.view_upper(name).only() for name in SQL]


def main(folder: Path, losses: list[str]) -> None:
    seen: dict[str, Any] = {"took": {}, "stalled": {}}
    with standalone_cluster(workers=2) as cluster:
        settings = SparkSettings(master=cluster.master, extra=(*cluster.extra, *PATIENCE))
        session = WarmingSession(settings)
        with open_location(folder, layouts=LAYOUTS, settings=Settings()) as client:
            story = Story(client, session)
            story.go_on(0)
            for name, sql in SQL.items():
                story.controller.create_view(name, sql)
            story.controller.start()
            watched, done = Watched(story), Losses(cluster, session)
            watched.eventually(watched.are_there)
            for number, loss in enumerate(losses, 1):
                story.go_on(1_000 * number, HARD)
                watched.eventually(lambda: running_on(session) is not None)
                began, watched.stalled = time.monotonic(), set()
                getattr(done, loss)()
                watched.eventually(watched.are_there)
                story.go_on(1_000 * number + 500)  # What is left of the cluster works.
                watched.eventually(watched.are_there)
                seen["took"][loss] = round(time.monotonic() - began, 1)
                seen["stalled"][loss] = sorted(watched.stalled)
                print(loss, seen["took"][loss], seen["stalled"][loss], file=sys.stderr, flush=True)
            story.controller.stop()
            seen["failures"] = list(story.controller.failures().values())
            seen["wrong"] = story.wrong()
            seen["restarts"] = session.restarts
        session.close()
    print(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])

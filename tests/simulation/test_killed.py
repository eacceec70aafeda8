"""A process really killed, again and again, on SQLite and a directory; and two of them racing."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from random import Random

import pytest

from headwater.persist.blob.file import FileBlob
from headwater.persist.consensus.sqlite import SqliteConsensus
from headwater.persist.fsck import check
from headwater.persist.layout import Layouts
from headwater.persist.state import violations
from headwater.testing.killed import complaints, found, open_writer, write_until_killed

pytestmark = pytest.mark.server  # It starts processes of ours.

SEED = 20261115
KILLS = 12
SOAK_KILLS = 300


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    """Children come from a server that has everything imported: each starts in milliseconds.

    Also pandas, which pyarrow imports at the first array made of Python values.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["headwater.testing.killed", "pyarrow.parquet", "pandas"])
    return context


class Child:
    """A writer in a process of its own."""

    def __init__(self, context: ForkServerContext, root: Path, *, take_over: bool = False) -> None:
        self._told: Connection
        self._told, theirs = context.Pipe(duplex=False)
        self.process: ForkServerProcess = context.Process(
            target=write_until_killed, args=(root, theirs, take_over), daemon=True
        )
        self.process.start()
        theirs.close()
        self.acknowledged: set[tuple[str, int]] = set()
        self.fenced = False

    def listen(self, count: int) -> None:
        """Wait until ``count`` more are acknowledged, or it is over."""
        for message in self._messages():
            if message == "fenced":
                self.fenced = True
                return
            self.acknowledged.add(message)  # type: ignore[arg-type]
            count -= 1
            if count <= 0:
                return

    def kill(self) -> None:
        """Kill it, and hear what it had said before."""
        self.process.kill()
        self.listen(10**9)
        self.process.join()

    def _messages(self) -> Iterator[object]:
        while True:
            try:
                yield self._told.recv()
            except EOFError:
                return


def kill_repeatedly(processes: ForkServerContext, root: Path, kills: int, seed: int) -> None:
    random, told = Random(seed), set[tuple[str, int]]()
    for kill in range(kills):
        child = Child(processes, root)
        # Some die while they open, some at once, some after merges and rollups have begun.
        child.process.join(random.random() * 0.05 if random.random() < 0.3 else 0)
        child.listen(random.choice((0, 1, 7, 40, 90)))
        child.kill()
        told |= child.acknowledged
        with open_writer(root) as client:
            problems = [*complaints(found(client), told), *violations(client.core.state)]
        assert not problems, f"seed {seed}, kill {kill}: {problems[:5]}"
    assert told, "nothing was ever acknowledged"
    findings = check(FileBlob(root / "blob"), SqliteConsensus(root / "log.db"), Layouts())
    assert not [str(finding) for finding in findings if finding.severity == "error"]


def test_a_killed_writer_loses_nothing(processes: ForkServerContext, tmp_path: Path) -> None:
    kill_repeatedly(processes, tmp_path, KILLS, SEED)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_many_kills(processes: ForkServerContext, tmp_path: Path, seed: int) -> None:
    kill_repeatedly(processes, tmp_path, SOAK_KILLS // 10, seed)


def test_two_processes_take_the_location_from_each_other(
    processes: ForkServerContext, tmp_path: Path
) -> None:
    """Each new one fences the one before in the middle of its work; nothing told is lost."""
    told, before = set[tuple[str, int]](), Child(processes, tmp_path)
    before.listen(1)
    for _ in range(6):
        after = Child(processes, tmp_path, take_over=True)
        after.listen(5)
        before.listen(10**9)
        before.process.join()
        assert before.fenced
        assert before.process.exitcode == 3
        told |= before.acknowledged
        before = after
    before.kill()
    with open_writer(tmp_path, take_over=True) as client:
        problems = list(complaints(found(client), told | before.acknowledged))
    assert not problems

"""Fail the n-th effect, for every n, with a process that is really killed, on real files.

Killed before its n-th effect a real process leaves what it leaves when it is killed after the one
before: there is no other mode. The life, and what must hold, is in ``tests/simulation/life.py``.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator
from itertools import count
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from tests.simulation.killed_life import life_in, live_until_killed
from tests.simulation.life import END, WRITES, contents, told_again

pytestmark = pytest.mark.server  # It starts processes of ours.

CHUNKS = 4
EFFECTS_MIN = 40
"""Fewer than this, and the process was not killed where it does its work."""


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    """Children come from a server that has everything imported: each starts in milliseconds."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.simulation.killed_life", "pyarrow.parquet", "pandas"])
    return context


def heard(told: Connection) -> Iterator[str]:
    """Yield what a process said before its end."""
    while True:
        try:
            yield told.recv()
        except EOFError:
            return


def killed_at(processes: ForkServerContext, root: Path, n: int) -> tuple[bool, set[str]]:
    """Let a process live until its n-th effect; whether it was killed, and what it had said."""
    told, theirs = processes.Pipe(duplex=False)
    child = processes.Process(target=live_until_killed, args=(root, n, theirs), daemon=True)
    child.start()
    theirs.close()
    acknowledged = set(heard(told))
    child.join()
    assert child.exitcode in (0, -signal.SIGKILL)
    return child.exitcode != 0, acknowledged


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_killed_at_every_effect(processes: ForkServerContext, tmp_path: Path, chunk: int) -> None:
    for n in count(1 + chunk, CHUNKS):
        root = tmp_path / str(n)
        root.mkdir()
        killed, acknowledged = killed_at(processes, root, n)
        life = life_in(root)
        life.acknowledged |= acknowledged
        client, found = told_again(life)
        end = contents(client.core, "a")
        client.stop()
        assert not found, f"killed before effect {n}: {found}"
        assert end == END, f"killed before effect {n}: the end is {end}"
        if not killed:
            assert acknowledged == set(WRITES)
            assert n > EFFECTS_MIN
            return

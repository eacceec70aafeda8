"""The life of a shadow: it begins, ends with its server, and is started again when it died."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from headwater.adapter.shadow.instance import Instance
from headwater.adapter.shadow.shadow import Shadow
from headwater.testing.awaited import until
from headwater.testing.shadow_directory import shadow_directory
from tests.integration.shadow_world import OBJECTS, USERS, oid, rows

pytestmark = pytest.mark.server


def await_end(pid: int) -> None:
    """Wait until there is no such process any more."""
    until(lambda: not Path(f"/proc/{pid}").exists(), f"the end of process {pid}")


def test_its_life() -> None:
    """One directory through everything that can befall it."""
    with shadow_directory() as directory:
        odd = [
            "ada",
            'Odd "One"',
            "headwater",
            "headwater_reader",
            "pg_monitor",
            "public",
            "x" * 64,
        ]
        with Shadow(directory, odd) as first:
            first.mirror(OBJECTS)
            known = oid(first, "t")
            assert rows(first, USERS) == [('Odd "One"',), ("ada",), ("headwater",)]

        # Stopped and started, it shows what it showed; killed, its lock files stay.
        again = Shadow(directory)
        assert again.start() is False
        assert again.mirror(OBJECTS) == ()
        assert oid(again, "t") == known
        assert rows(again, USERS) == [("headwater",)]
        pid = again.instance.postmaster_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        again.stop()

        # A lock with the number of a living stranger (us) is stale all the same.
        (directory / "data" / "postmaster.pid").write_text(f"{os.getpid()}\n{directory}/data\n")
        (directory / ".s.PGSQL.5432.lock").write_text(f"{os.getpid()}\n")
        third = Shadow(directory, ["eve"])
        assert third.start() is False
        assert rows(third, USERS) == [("eve",), ("headwater",)]
        assert third.mirror(OBJECTS) == ()
        third.stop()

        # Of before the machine's last start, or damaged: made again, and filled again.
        marker = json.loads((directory / "shadow.json").read_text())
        assert marker["boot"]
        (directory / "shadow.json").write_text(json.dumps({**marker, "boot": "another"}))
        fourth = Shadow(directory)
        assert fourth.start() is True
        assert len(fourth.mirror(OBJECTS)) == len(OBJECTS)
        fourth.stop()
        (directory / "data" / "global" / "pg_control").write_bytes(b"")
        fifth = Shadow(directory)
        assert fifth.start() is True
        assert len(fifth.mirror(OBJECTS)) == len(OBJECTS)
        fifth.stop()


def test_it_ends_with_a_server_that_is_killed() -> None:
    program = (
        "import sys, time; from pathlib import Path;"
        "from headwater.adapter.shadow.instance import Instance;"
        "i = Instance(Path(sys.argv[1])); i.start(); print(i.postmaster_pid, flush=True);"
        "time.sleep(600)"
    )
    with shadow_directory() as directory:
        server = subprocess.Popen(
            [sys.executable, "-c", program, str(directory)], stdout=subprocess.PIPE, text=True
        )
        assert server.stdout is not None
        pid = int(server.stdout.readline())
        server.kill()
        server.communicate()
        await_end(pid)
        instance = Instance(directory)
        assert instance.start() is False
        instance.stop()


def test_a_process_that_died_is_started_again_by_whoever_asks() -> None:
    with shadow_directory() as directory, Shadow(directory) as own:
        own.mirror(OBJECTS)
        for ask in (
            lambda: rows(own, "select 1"),
            lambda: own.analyse("select a from t"),
            lambda: own.mirror(OBJECTS),
        ):
            pid = own.instance.postmaster_pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            await_end(pid)
            until(partial(_answers_anew, own, ask, pid), "another process")
            assert oid(own, "t") is not None


def _answers_anew(own: Shadow, ask: Callable[[], object], killed: int) -> bool:
    """Ask; whether another process is there. A session that has not yet noticed may answer."""
    ask()
    return own.instance.postmaster_pid != killed

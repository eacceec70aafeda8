"""Servers in processes of their own that can be killed, frozen and replaced in milliseconds.

    with Nursery() as nursery:
        first = nursery.serve(root)                       # first.port
        first.freeze()
        second = nursery.serve(root, take_over=True)
        first.thaw()
        first.await_fenced()
        second.kill()                                     # kill -9

Each serves the wire over the real core on a real directory, without Spark (``SqlServer``), under
the reentrance id of that directory, as ``headwater serve`` does. ``clock_ms`` is added to what the
machine's clock says, so that a restart may find the clock set back.

A nursery is a process that has everything imported and does nothing but fork: importing takes
seconds, a fork does not. Whoever has it alone talks to it, by lines on its standard input
(``serve …``) and output (``pid port n``, ``pid fenced``); when its input closes it kills its
children and ends. Run by ``python -m headwater.testing.wire_process``.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

START_SECONDS_MAX: Final = 120.0
LOOK_SECONDS: Final = 0.02
TICK_SECONDS: Final = 0.05


class Serving:
    """A server in a process of its own."""

    def __init__(self, pid: int, port: int, fenced: threading.Event) -> None:
        self.pid = pid
        self.port = port
        self._fenced = fenced

    def kill(self) -> None:
        """End it at once, wherever it is."""
        os.kill(self.pid, signal.SIGKILL)

    def freeze(self) -> None:
        """Stop its time."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on as if nothing had happened; nothing if it went on before, and has ended."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)

    def await_fenced(self) -> None:
        """Wait until it has noticed that another has its place, and ended."""
        assert self._fenced.wait(START_SECONDS_MAX), f"process {self.pid} was not fenced"


class Nursery:
    """Starts servers; see the module's docstring."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "headwater.testing.wire_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._ports: queue.Queue[tuple[int, int]] = queue.Queue()
        self._fenced: dict[int, threading.Event] = {}
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def serve(self, root: Path, *, take_over: bool = False, clock_ms: int = 0) -> Serving:
        """Start a server on a directory; when this returns, clients can connect."""
        wanted = {"root": str(root), "take_over": take_over, "clock_ms": clock_ms}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(wanted) + "\n")
        self._process.stdin.flush()
        pid, port = self._ports.get(timeout=START_SECONDS_MAX)
        return Serving(pid, port, self._fenced[pid])

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            pid, what, *rest = line.split()
            if what == "port":
                self._fenced[int(pid)] = threading.Event()
                self._ports.put((int(pid), int(rest[0])))
            elif what == "fenced":
                self._fenced[int(pid)].set()

    def close(self) -> None:
        """Kill every server, and end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(START_SECONDS_MAX)
        self._listener.join(START_SECONDS_MAX)
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# ---- in the nursery ------------------------------------------------------------------------------


def _serve(root: str, *, take_over: bool, clock_ms: int) -> None:
    """Serve until killed or fenced."""
    from headwater.adapter.pgwire import WireServer
    from headwater.base.clock import ShiftedClock
    from headwater.collection.run_layout import LAYOUTS
    from headwater.persist.client import open_location
    from headwater.persist.core import Settings
    from headwater.testing.sql_server import SqlServer

    clock = ShiftedClock(clock_ms)
    client = open_location(
        root,
        reentrance_id=f"server:{root}",
        take_over=take_over,
        layouts=LAYOUTS,
        clock=clock,
        settings=Settings(rollup_entries=100),
    )
    core = SqlServer(clock, client=client, tick_seconds=TICK_SECONDS)
    core.timeline.start()
    core.materializations.start()
    wire = WireServer("127.0.0.1", 0, core.coordinator)
    wire.start()
    _say(f"port {wire.port}")
    machine = client.core.machine
    assert machine is not None
    while machine.failure is None:
        time.sleep(LOOK_SECONDS)
    _say("fenced")


def _say(what: str) -> None:
    # One write: lines of several processes do not mix.
    os.write(1, f"{os.getpid()} {what}\n".encode())


def _main() -> None:
    for module in ("pandas", "pyarrow.parquet", "duckdb", "headwater.testing.sql_server"):
        importlib.import_module(module)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Whoever has it decides when it ends.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Nobody asks for the status of a killed one.
    children = []
    for line in sys.stdin:
        wanted = json.loads(line)
        pid = os.fork()
        if pid == 0:
            try:
                _serve(wanted["root"], take_over=wanted["take_over"], clock_ms=wanted["clock_ms"])
            except BaseException as error:  # noqa: BLE001 - it ends here, whatever it was
                os.write(2, f"server {os.getpid()}: {error!r}\n".encode())
            os._exit(3)
        children.append(pid)
    for pid in children:
        with suppress(ProcessLookupError):  # Killed before.
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    _main()

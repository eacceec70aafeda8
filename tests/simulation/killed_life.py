"""A process that lives a whole life on real files, and is killed at its n-th effect."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock
from typing import TypeVar

from headwater.persist.blob.file import FileBlob
from headwater.persist.consensus.sqlite import SqliteConsensus
from headwater.testing.unreliable import InterceptedBlob, InterceptedConsensus, Kind
from tests.simulation.life import Life

Answer = TypeVar("Answer")


class Killed:
    """Kills this process just before its ``n``-th effect, counted from 1 over all ports."""

    def __init__(self, n: int) -> None:
        self._left = n
        self._lock = Lock()

    def __call__(self, kind: Kind, call: str, perform: Callable[[], Answer]) -> Answer:
        """Perform the call, unless it is the one."""
        del call
        with self._lock:  # No other thread performs a later effect.
            if kind is Kind.EFFECT:
                self._left -= 1
                if self._left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return perform()

    def may_close(self) -> bool:
        """Nobody asks the dead."""
        return True


def life_in(root: Path) -> Life:
    """Return the life of a location on real files."""
    return Life(FileBlob(root / "blob"), SqliteConsensus(root / "log.db"))


def live_until_killed(root: Path, n: int, told: Connection) -> None:
    """Live, and send each write that is acknowledged; ends by the kill, or with the story."""
    life, killed = life_in(root), Killed(n)
    life.on_acknowledged = told.send
    client = life.open(InterceptedBlob(life.blob, killed), InterceptedConsensus(life.log, killed))
    life.tell(client)
    client.stop()

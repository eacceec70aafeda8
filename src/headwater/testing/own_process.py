"""A server process of a test: killed as a machine would, or ended by its id."""

from __future__ import annotations

import subprocess
from typing import Final

STOP_TIMEOUT_S: Final = 60.0


class OwnProcess:
    """A process that may run; whoever starts it keeps it here."""

    _process: subprocess.Popen[bytes] | None = None

    def kill(self) -> None:
        """Kill it; it had no time to say goodbye."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def stop(self) -> None:
        """End it by its id, if it runs."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
            self._process = None
        except subprocess.TimeoutExpired:
            self.kill()

"""``headwater run`` in a process of its own, which kills itself once a sink has a batch.

Nothing has been noted of the batch then. Run as a program: the arguments are those of the command.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from headwater.cli.main import app
from headwater.pipelines import sinks


def main() -> None:
    """Run, and die."""
    write = sinks.Sending._write

    def write_and_die(self: sinks.Sending, *given: Any) -> None:
        write(self, *given)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(sinks.Sending, "_write", write_and_die)  # noqa: B010 - mypy knows it as a method
    app(["run", *sys.argv[1:]])


if __name__ == "__main__":
    main()

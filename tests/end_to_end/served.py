"""``headwater serve`` in a process group of its own, asked over the wire, ended by signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psycopg

DEADLINE_SECONDS = 300.0


class Served:
    """A server, with a directory of its own; shared services by its environment."""

    def __init__(self, environment: dict[str, str], data: Path, *more: str) -> None:
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "headwater", "serve", "--data", str(data)),
                *("--listen", "127.0.0.1:0", "--console", "off", *more),
            ],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.port = int(line.rsplit(":", 1)[1]) if line.startswith("listening on ") else 0

    def run(self, sql: str) -> list[tuple[object, ...]]:
        with psycopg.connect(
            host="127.0.0.1", port=self.port, user="headwater", dbname="headwater", autocommit=True
        ) as connection:
            cursor = connection.execute(sql.encode())
            return list(cursor.fetchall()) if cursor.description is not None else []

    def end(self, number: signal.Signals | None = None) -> tuple[int, str]:
        """Wait for the end, after a signal if one is given; return status and standard error."""
        if number is not None:
            os.killpg(self.process.pid, number)
        _, told = self.process.communicate(timeout=DEADLINE_SECONDS)
        return self.process.returncode, told

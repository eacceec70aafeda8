"""README and quickstart, typed as they stand, with every command a process of its own.

``tests/integration/docs_typist.py`` says how a page is read, and who reads it in every run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwater.testing.free_ports import free_ports
from headwater.testing.servers import postgres_server
from tests.integration.docs_typist import LIMIT_S, Typist

pytestmark = [
    *(pytest.mark.spark, pytest.mark.server, pytest.mark.soak),
    pytest.mark.skipif(shutil.which("psql") is None, reason="psql is not installed"),
]


class InShell(Typist):
    """Types into a shell."""

    def __init__(self, directory: Path, dsn: str) -> None:
        super().__init__(directory, dsn)
        (self.port,) = free_ports(1)
        programs = str(Path(sys.executable).parent)
        self._environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HEADWATER_LISTEN": f"127.0.0.1:{self.port}",
            "HEADWATER_CONSOLE": "127.0.0.1:0",
        }
        self._server: subprocess.Popen[str] | None = None

    def type(self, command: str) -> None:
        if command.startswith("headwater serve"):
            self._serve(command)
            return
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.directory,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"

    def _serve(self, command: str) -> None:
        self._server = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=self.directory,
            env=self._environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._server.stdout is not None
        assert self._server.stdout.readline().startswith("listening on ")

    def stop(self) -> None:
        """Stop the server."""
        if self._server is not None:
            self._server.terminate()
            assert self._server.wait(LIMIT_S) == 0
            assert self._server.stdout is not None
            self._server.stdout.close()


@contextmanager
def typing(directory: Path) -> Iterator[InShell]:
    with postgres_server() as dsn:
        typist = InShell(directory, dsn)
        try:
            yield typist
        finally:
            typist.stop()


def test_docs_quickstart_md_is_true(tmp_path: Path) -> None:
    with typing(tmp_path) as typist:
        assert typist.read("docs/quickstart.md") > 10


def test_the_session_of_readme_md_is_true(tmp_path: Path) -> None:
    with typing(tmp_path) as typist:
        typist.type("headwater serve --data data")
        assert typist.read("README.md") > 1

"""The command blocks of README and quickstart, executed as they stand.

``sh`` blocks run line by line in one directory, ``sql`` blocks through psql in the server that the
page starts, and a ``text`` block is what psql printed for the ``sql`` block before it. What is not
executed stands in :data:`ELSEWHERE`, with its reason.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwater.testing.servers import postgres_server

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.soak]

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_SECONDS = 300.0
ELSEWHERE = {
    "make setup": "whoever runs the tests has done it",
    ". .venv/bin/activate": "the tests run in it",
    "make demo": "the quickstart runs `headwater demo`, which is the same",
    "make test": "this is it",
}
A_DSN = "postgresql://postgres@localhost/postgres"
A_TIME = re.compile(r"AS OF \d{13}")


def blocks(page: str) -> list[tuple[str, str]]:
    """Return the blocks of a page: language and text."""
    text = (ROOT / page).read_text("utf-8")
    return re.findall(r"^```(\w+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands(text: str) -> list[str]:
    """Return the commands of a shell block that are to be run here."""
    lines = [line.split("   #")[0].strip() for line in text.splitlines()]
    return [line for line in lines if line and line not in ELSEWHERE]


class Reader:
    """Somebody who reads a page and types what it says."""

    def __init__(self, directory: Path, dsn: str) -> None:
        self._directory, self._dsn = directory, dsn
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        programs = str(Path(sys.executable).parent)
        self._environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HEADWATER_LISTEN": f"127.0.0.1:{self.port}",
            "HEADWATER_CONSOLE": "127.0.0.1:0",
        }
        self.server: subprocess.Popen[str] | None = None
        self.printed = ""

    def type(self, command: str) -> None:
        """Run a command of a shell; a server goes on beside us."""
        if command.startswith("headwater serve"):
            self.serve(command)
            return
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._directory,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"

    def serve(self, command: str) -> None:
        """Start a server and wait for its door."""
        self.server = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=self._directory,
            env=self._environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.server.stdout is not None
        assert self.server.stdout.readline().startswith("listening on ")

    def psql(self, text: str) -> None:
        """Send a block through psql, as a person would paste it.

        The time that a page reads at is one of its author's: here it is that of the moment.
        """
        past = A_TIME.search(text)
        if past is not None:
            begin = text.rindex("\n", 0, past.start())
            self.psql(text[:begin])
            text = A_TIME.sub(f"AS OF {time.time_ns() // 1_000_000}", text[begin:])
        text = text.replace(A_DSN, self._dsn)
        where = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "headwater"]
        done = subprocess.run(
            ["psql", *where, "-X", "-v", "ON_ERROR_STOP=1"],
            cwd=self._directory,
            input=text,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        self.printed = done.stdout

    def compare(self, text: str) -> None:
        """Find in what was printed what the page says is printed."""
        wanted = [line.rstrip() for line in text.splitlines() if line.strip()]
        found = [line.rstrip() for line in self.printed.splitlines()]
        assert any(found[n : n + len(wanted)] == wanted for n in range(len(found))), self.printed

    def stop(self) -> None:
        """Stop the server."""
        if self.server is not None:
            self.server.terminate()
            assert self.server.wait(DEADLINE_SECONDS) == 0
            assert self.server.stdout is not None
            self.server.stdout.close()


@contextmanager
def reading(directory: Path) -> Iterator[Reader]:
    with postgres_server() as dsn:
        reader = Reader(directory, dsn)
        try:
            yield reader
        finally:
            reader.stop()


@pytest.mark.skipif(shutil.which("psql") is None, reason="psql is not installed")
def test_the_quickstart_is_true(tmp_path: Path) -> None:
    with reading(tmp_path) as reader:
        for language, text in blocks("docs/quickstart.md"):
            if language == "sh":
                for command in commands(text):
                    reader.type(command)
            elif language == "sql":
                reader.psql(text)
            else:
                assert language == "text"
                reader.compare(text)


@pytest.mark.skipif(shutil.which("psql") is None, reason="psql is not installed")
def test_the_session_of_the_readme_is_true(tmp_path: Path) -> None:
    with reading(tmp_path) as reader:
        reader.serve("headwater serve --data data")
        for language, text in blocks("README.md"):
            if language == "sh":
                assert commands(text) == []
            elif language == "sql":
                reader.psql(text)


def test_every_language_of_a_block_is_known() -> None:
    for page in ("README.md", "docs/quickstart.md"):
        assert {language for language, _ in blocks(page)} <= {"sh", "sql", "text", "python"}

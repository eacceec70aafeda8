"""Somebody who types README and quickstart as they stand, block by block, and reads the answers.

``sh`` blocks are typed line by line in one directory, ``sql`` blocks through psql in the server
that the page starts, and a ``text`` block is what psql printed for the ``sql`` block before it.

The pages are read twice. In every run (``test_quickstart_typed.py``) commands run in the test's
process and the server is one without Spark, so that a page is a matter of a second or two: wire,
location, deliveries and answers are the real ones, rows are evaluated by DuckDB. In the soak
(``tests/end_to_end/test_quickstart.py``) each command is a process of its own.
"""

from __future__ import annotations

import re
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final

from tests.integration.docs_pages import pages

LIMIT_S: Final = 300.0
NOT_TYPED: Final = {
    "make setup": "whoever runs the tests has done it",
    ". .venv/bin/activate": "the tests run in it",
    "make demo": "the quickstart runs `headwater demo`, which is the same",
    "make test": "this is it",
}
"""Commands that no test can type, with the reason."""
A_DSN: Final = "postgresql://postgres@localhost/postgres"
A_TIME: Final = re.compile(r"AS OF \d{13}")


def commands(text: str) -> list[str]:
    """Return the commands of a shell block that are to be typed."""
    lines = [line.split("   #")[0].strip() for line in text.splitlines()]
    return [line for line in lines if line and line not in NOT_TYPED]


class Typist(ABC):
    """One reader of one page, with a PostgreSQL of theirs at ``dsn``."""

    def __init__(self, directory: Path, dsn: str) -> None:
        self.directory, self._dsn = directory, dsn
        self.port = 0
        """Where the server of the page listens, once it was started."""
        self._printed = ""

    @abstractmethod
    def type(self, command: str) -> None:
        """Type a command of a shell, which must succeed; a server goes on beside us."""

    def read(self, page: str) -> int:
        """Type everything on a page; return how many blocks were typed or compared."""
        count = 0
        for language, text in pages()[page]:
            if language == "sh":
                for command in commands(text):
                    self.type(command)
            elif language == "sql":
                self.psql(text)
            elif self._printed:
                assert language == "text", language
                self.compare(text)
            else:
                continue  # A picture before anything was typed.
            count += 1
        return count

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
            cwd=self.directory,
            input=text,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        self._printed = done.stdout

    def compare(self, text: str) -> None:
        """Find in what was printed what the page says is printed."""
        wanted = [line.rstrip() for line in text.splitlines() if line.strip()]
        found = [line.rstrip() for line in self._printed.splitlines()]
        assert any(found[n : n + len(wanted)] == wanted for n in range(len(found))), self._printed

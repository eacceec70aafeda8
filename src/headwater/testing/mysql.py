"""A real MySQL 8 for tests: one process, on this machine only, with a binary log of rows.

The server is the one that ``scripts/upstreams`` brought (a distribution on Maven Central); without
it there is none and :func:`missing` says why, for the reason of a skip. Nothing here imitates it.
It is started, killed and reached as a :class:`~headwater.testing.mariadb.MariaDb` is.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from headwater.testing.mariadb import MariaDb, running

FOLDER: Final = Path(os.environ.get("MYSQL_CACHE", "build/mysql"))

_ROOT: Final = """
ALTER USER root@localhost IDENTIFIED BY 'not a \\'secret\\'';
CREATE USER root@'%' IDENTIFIED BY 'not a \\'secret\\'';
GRANT ALL ON *.* TO root@'%' WITH GRANT OPTION;
"""

SETTINGS: Final = {
    "log-bin": "binlog",
    "server-id": "7",
    "binlog-row-metadata": "FULL",
    "innodb-redo-log-capacity": "8M",
    "innodb-buffer-pool-size": "32M",
    # Written at each commit, if not synced: a killed process loses nothing, and its log and its
    # tables agree.
    "innodb-flush-log-at-trx-commit": "2",
    "sync-binlog": "0",
    "skip-name-resolve": "ON",
    "performance-schema": "OFF",
    "mysqlx": "OFF",
    # MariaDB's own; MySQL takes four times as much, and the same tests are too small for that.
    "max-allowed-packet": "16M",
}


def missing(folder: Path = FOLDER) -> str | None:
    """Return why there is no server here; ``None`` if there can be one."""
    server = folder / "bin" / "mysqld"
    if not server.exists():
        return f"no MySQL: it is not in {folder}; `scripts/upstreams` brings it with Maven"
    answer = subprocess.run([server, "--version"], capture_output=True, check=False)
    if answer.returncode:
        return f"no MySQL: it does not run here: {answer.stderr.decode().strip()}"
    return None


class MySql(MariaDb):
    """One server; ``port`` stays the same, also after a kill and a start."""

    def format(self) -> None:
        """Make its system tables, once."""
        (self.folder / "init.sql").write_text(_ROOT)
        answer = subprocess.run(
            self._command("--initialize-insecure", f"--init-file={self.folder / 'init.sql'}"),
            capture_output=True,
            check=False,
        )
        if answer.returncode:
            raise RuntimeError(f"MySQL has no system tables: {answer.stderr[-2_000:].decode()}")

    def _program(self) -> list[str]:
        return [str((FOLDER / "bin" / "mysqld").resolve()), "--no-defaults"]


@contextmanager
def mysql_server(**settings: str) -> Iterator[MySql]:
    """Run an empty MySQL; ``_`` in a setting is a dash."""
    given = {name.replace("_", "-"): value for name, value in settings.items()}
    with running(MySql, {**SETTINGS, **given}) as server:
        yield server

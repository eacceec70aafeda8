"""A real MariaDB for tests: one process, on this machine only, with a binary log of rows.

The server is Debian's (``scripts/setup --mariadb`` installs it where it may); without it there is
none and :func:`missing` says why, for the reason of a skip. Nothing here imitates it.

It has real users: ``root`` with a password, and whoever a test makes. It can be killed
(``SIGKILL``) and started again on the same port with the same data, which is what a crash of the
process is: what it has written is in the page cache, and stays.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from headwater.testing.free_ports import free_ports, start_somewhere
from headwater.testing.own_process import OwnProcess

START_TIMEOUT_S: Final = 120
TABLES: Final = Path("/usr/share/mysql")
PASSWORD: Final = "not a 'secret'"  # noqa: S105 - of a server that lives for a test

_ROOT: Final = """
DELETE FROM global_priv;
FLUSH PRIVILEGES;
CREATE USER root@'%' IDENTIFIED BY 'not a \\'secret\\'';
GRANT ALL ON *.* TO root@'%' WITH GRANT OPTION;
"""

SETTINGS: Final = {
    "log-bin": "binlog",
    "server-id": "7",
    "binlog-format": "ROW",
    "binlog-row-metadata": "FULL",
    "innodb-log-file-size": "8M",
    "innodb-buffer-pool-size": "32M",
    # Written at each commit, if not synced: a killed process loses nothing, and its log and its
    # tables agree.
    "innodb-flush-log-at-trx-commit": "2",
    "innodb-read-io-threads": "1",
    "innodb-write-io-threads": "1",
    "skip-name-resolve": "ON",
    "performance-schema": "OFF",
}


def _server() -> str | None:
    return shutil.which("mariadbd") or shutil.which("mariadbd", path="/usr/sbin")


def missing() -> str | None:
    """Return why there is no server here; ``None`` if there can be one."""
    if _server() is None or not (TABLES / "mysql_system_tables.sql").exists():
        return "no MariaDB: Debian's mariadb-server-core is not installed; `make mariadb` does it"
    return None


@dataclass(slots=True)
class MariaDb(OwnProcess):
    """One server; ``port`` stays the same, also after a kill and a start."""

    folder: Path
    port: int
    settings: dict[str, str]
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def format(self) -> None:
        """Make its system tables, once."""
        (self.folder / "data").mkdir()
        made = [(TABLES / f"mysql_system_tables{part}.sql").read_text() for part in ("", "_data")]
        statements = "\n".join(["CREATE DATABASE mysql;", "USE mysql;", *made, _ROOT])
        answer = subprocess.run(
            self._command("--bootstrap", "--skip-log-bin"),
            input=statements.encode(),
            capture_output=True,
            check=False,
        )
        if answer.returncode:
            raise RuntimeError(f"MariaDB has no system tables: {answer.stderr[-2_000:].decode()}")

    def start(self) -> None:
        """Start it and wait until it answers."""
        assert self._process is None, "it runs already"
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(self._command(), stdout=log, stderr=log)
        import pymysql

        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                self.connect().close()
                return
            except pymysql.Error as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.kill()
                    tail = (self.folder / "server.log").read_text()[-2_000:]
                    raise RuntimeError(f"MariaDB did not start: {error}: {tail}") from error
            time.sleep(0.05)

    def _command(self, *more: str) -> list[str]:
        where = [f"--datadir={self.folder / 'data'}", f"--socket={self.folder / 's'}"]
        net = ["--bind-address=127.0.0.1", f"--port={self.port}"]
        # It does not run as root unless it is told to.
        user = ["--user=root"] if os.getuid() == 0 else []
        told = [f"--{name}={value}" for name, value in self.settings.items()]
        return [*self._program(), *where, *net, *user, *told, *more]

    def _program(self) -> list[str]:
        server = _server()
        assert server is not None, missing()
        return [server, "--no-defaults"]

    # ---- clients -----------------------------------------------------------------------------

    @property
    def config(self) -> dict[str, str]:
        """What a connection to it says, as ``root``."""
        return {
            "host": "127.0.0.1",
            "port": str(self.port),
            "user": "root",
            "password": PASSWORD,
        }

    def connect(self, **options: Any) -> Any:
        """Return a client's connection, as ``root``, without a transaction."""
        import pymysql

        given = {**self.config, "port": self.port, "autocommit": True, **options}
        return pymysql.connect(**given)


Server = TypeVar("Server", bound=MariaDb)


@contextmanager
def mariadb_server(**settings: str) -> Iterator[MariaDb]:
    """Run an empty MariaDB; ``_`` in a setting is a dash."""
    given = {name.replace("_", "-"): value for name, value in settings.items()}
    with running(MariaDb, {**SETTINGS, **given}) as server:
        yield server


@contextmanager
def running(kind: type[Server], settings: dict[str, str]) -> Iterator[Server]:
    """Run an empty server."""
    # A short path: that of its socket has to fit into 107 bytes.
    with tempfile.TemporaryDirectory(prefix="hw-my-", ignore_cleanup_errors=True) as folder:
        server = kind(Path(folder), free_ports(1)[0], settings)
        server.format()
        start_somewhere(server)
        try:
            yield server
        finally:
            server.stop()

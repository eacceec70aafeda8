"""A DuckDB file, opened for one piece of work at a time and closed behind it.

DuckDB lets one process at a time write a file, and nobody read it meanwhile. So a file is open from
the beginning of a transaction to its end, and no longer: in between anybody may read it, or write.

Invariant:      of all sessions in this process at most one has the file open; of all processes,
                because DuckDB locks it, at most one has.
Kept by:        :meth:`DuckFile.open`, which waits for both, and says who has the file if that takes
                too long. The lock here is by the file's resolved path: opened under two names,
                DuckDB would not know that it is one.
Relied on by:   the driver, for "a transaction excludes all others".

What DuckDB has not checkpointed when the process dies is in the log beside the file, which the next
who opens it applies. Extensions are never installed: what we need is built in.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import duckdb

from headwater.base.errors import Determinate

BUSY_S: Final = 10.0
_POLL_S: Final = 0.02
_SETTINGS: Final = (
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET TimeZone = 'UTC'",
)

_in_use: Final[dict[Path, threading.Lock]] = {}
"""By resolved path, who in this process has the file; never forgotten, for there are few."""


class FileBusy(Determinate):
    """Somebody else has the file open."""

    def __init__(self, path: Path, who: str) -> None:
        super().__init__(
            f"cannot open DuckDB file {path}: it is in use ({who}); DuckDB lets nobody write while "
            "others have it open: close it there, or attach it for the time of a query only"
        )


class DuckFile:
    """One session's access to a file."""

    def __init__(self, path: str) -> None:
        self.path = Path(path).resolve()
        self._lock = _in_use.setdefault(self.path, threading.Lock())
        self._locked = False
        self._connection: duckdb.DuckDBPyConnection | None = None

    @property
    def connection(self) -> duckdb.DuckDBPyConnection | None:
        """What :meth:`open` returned, as long as it is open."""
        return self._connection

    def check(self) -> None:
        """Refuse a place where no file can be, without making one."""
        there = next(parent for parent in self.path.parents if parent.exists())
        if not there.is_dir():
            raise NotADirectoryError(f"{there} is no directory")
        if not os.access(there, os.W_OK):
            raise PermissionError(f"{there} cannot be written")

    def open(self) -> duckdb.DuckDBPyConnection:
        """Return a connection when it is our turn; the file is made if it is not there."""
        assert self._connection is None
        deadline = time.monotonic() + BUSY_S
        if not self._lock.acquire(timeout=BUSY_S):
            raise FileBusy(self.path, "another session of this process is writing")
        self._locked = True
        try:
            self._connection = self._connected(deadline)
            for setting in _SETTINGS:
                executed(self._connection, setting)
        except BaseException:
            self.close()
            raise
        return self._connection

    def _connected(self, deadline: float) -> duckdb.DuckDBPyConnection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            try:
                return duckdb.connect(str(self.path))
            except duckdb.IOException as error:
                if "lock on file" not in str(error):
                    raise
                if time.monotonic() > deadline:
                    raise FileBusy(self.path, str(error)) from error
            time.sleep(_POLL_S)

    def close(self) -> None:
        """Close it, if it is open; a transaction in hand is rolled back by that."""
        connection, self._connection = self._connection, None
        try:
            if connection is not None:
                connection.close()
        finally:
            if self._locked:
                self._locked = False
                self._lock.release()


def executed(
    connection: duckdb.DuckDBPyConnection, statement: str, arguments: Sequence[Any] = ()
) -> list[tuple[Any, ...]]:
    """Execute a statement to its end, and return all rows of its answer.

    One whose answer is not read to the end is in the way of the next.
    """
    return connection.execute(statement, list(arguments)).fetchall()

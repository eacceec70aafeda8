"""The log as one table of a SQLite database in WAL mode with full sync.

**Commit.** ``append`` is one ``IMMEDIATE`` transaction: it takes SQLite's only write lock, then
reads the head, then inserts iff the entry follows it. No other writer, of this process or
another, can come between. ``synchronous=FULL`` syncs the WAL at every commit.

**Birth.** A new database is made under a temporary name, complete with table and format number,
and then *linked* to its name. So a database under that name is always a whole, valid log, and of
two processes which make it at once one loses without harm.

**Reading only** writes nothing: no file is made, and none is changed. SQLite's own ``mode=ro`` is
not enough for that: it makes the ``-wal`` and ``-shm`` files of a WAL database where they are
missing, and notes its marks in ``-shm``. So each operation has a connection of its own, and which
one depends on the ``-wal`` file:

- It exists: somebody writes, or crashed. ``readonly_shm`` reads beside a writer without a mark of
  its own, and rebuilds the index of a crashed one in memory. Only where ``-shm`` is missing (a
  careless copy of a location) it cannot, and ``mode=ro`` has to make one.
- It does not: the last writer has closed, and the database file holds everything. Read it as
  ``immutable``; afterwards look again: if there is a ``-wal`` now, or the file has changed, discard
  what was read and repeat. (On kernels before 6.13 two changes within one clock tick, some 4 ms,
  look like one.)

All connections of a process to one file share its ``-shm``, as the first one opened it; a writer
that came second to ``readonly_shm`` could not write. Hence :data:`_OPENING`.

**Sorting of failures.** Before ``COMMIT`` is issued nothing can have happened: Determinate. From
then on only a full disk is, and what :data:`REFUSALS` lists: others hold the lock. An I/O error is
Indeterminate, and the connection is replaced, so that the next call reads what is really there.
A database that cannot be read because its pages are damaged is Corrupt.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Final, TypeVar
from urllib.parse import quote
from uuid import uuid4

from headwater.base.errors import Determinate, ExternalError, Indeterminate, InvalidUsage
from headwater.base.ids import SeqNo
from headwater.persist.blob.directory import DurableDirectories, sync_directory
from headwater.persist.consensus.seqno import check_limit, check_seqno, check_truncation, follows
from headwater.persist.errors import Corrupt, DiskFull, NewerFormat
from headwater.persist.location import AppendOutcome, Committed, LogEntry, LostRace

APPLICATION_ID: Final = 0x48574C47  # "HWLG"
FORMAT: Final = 1
PLACE: Final = "the location's log"
BUSY_TIMEOUT_S: Final = 5.0
QUIET_READ_ATTEMPTS_MAX: Final = 100
INCOMPLETE_ATTEMPTS_MAX: Final = 20
INCOMPLETE_WAIT_S: Final = 0.001

# Primary result code → what to do. With these SQLite says it did nothing.
REFUSALS: Final = {
    sqlite3.SQLITE_BUSY: "another process holds the log; try again",
    sqlite3.SQLITE_LOCKED: "another process holds the log; try again",
    sqlite3.SQLITE_READONLY: "it is read-only; give this user write access, or open read-only",
    sqlite3.SQLITE_PERM: "permission denied; give this user access to it",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; check that path and directory exist, and that "
    "this user may write the directory (with a -wal file but no -shm file, also to read); on a "
    "read-only file system, open read-only",
    sqlite3.SQLITE_NOTADB: "it is not a SQLite database; check the path",
    sqlite3.SQLITE_TOOBIG: "the entry is too big; put large content into the blob",
}

# With these it depends on when they came.
HINTS: Final = {
    sqlite3.SQLITE_IOERR: "; check that its disk has free space and works",
    sqlite3.SQLITE_CORRUPT: "; headwater fsck says what can be read: restore it from a backup",
}

Read = TypeVar("Read")

_OPENING: Final = Lock()
"""Held while a writer of this process opens, and while a reader has ``-shm`` open."""


class SqliteConsensus:
    """One log in one file; made durably if absent, unless ``read_only``. Threads may share it."""

    def __init__(
        self, path: Path, read_only: bool = False, *, busy_timeout_s: float = BUSY_TIMEOUT_S
    ) -> None:
        self._busy_timeout_s = busy_timeout_s
        self._path = path.absolute()
        self._wal = Path(f"{self._path}-wal")
        self._shm = Path(f"{self._path}-shm")
        self._read_only = read_only
        self._lock = Lock()
        self.closed = False
        self._connection: sqlite3.Connection | None = None
        if not self._path.exists():
            if read_only:
                raise Determinate(f"{self._path}: no such log; check the location's path")
            self._make()
        with self._lock:  # find out now that it is somebody else's file, or a newer format
            self._read(lambda _connection: None)

    def head(self) -> SeqNo | None:
        """Return the newest sequence number."""
        with self._lock:
            return self._read(_head)

    def append(self, seqno: SeqNo, data: bytes) -> AppendOutcome:
        """Commit ``data`` at ``seqno`` iff that is 0 for an empty log, else exactly head + 1."""
        check_seqno(seqno)
        with self._lock, self._transaction() as connection:
            head = _head(connection)
            if not follows(seqno, head):
                return LostRace(head)
            connection.execute("INSERT INTO log (seqno, data) VALUES (?, ?)", (seqno, data))
        return Committed()

    def adopt(self, entries: Sequence[LogEntry]) -> bool:
        """Fill an empty log with the end of another, in one commit; whether it was empty."""
        with self._lock, self._transaction() as connection:
            if _head(connection) is not None:
                return False
            rows = [(entry.seqno, entry.data) for entry in entries]
            connection.executemany("INSERT INTO log (seqno, data) VALUES (?, ?)", rows)
        return True

    def scan(self, start: SeqNo, limit: int) -> tuple[LogEntry, ...]:
        """Return up to ``limit`` entries from ``start`` on, ascending."""
        check_seqno(start)
        check_limit(limit)
        with self._lock:
            rows = self._read(
                lambda connection: connection.execute(
                    "SELECT seqno, data FROM log WHERE seqno >= ? ORDER BY seqno LIMIT ?",
                    (start, limit),
                ).fetchall()
            )
        if not all(isinstance(data, bytes) for _, data in rows):
            # NOT NULL, and NULL all the same: pages that were cut off read as zeros.
            raise Corrupt(f"log {self._path}", "it has an entry without content")
        return tuple(LogEntry(SeqNo(seqno), data) for seqno, data in rows)

    def truncate(self, seqno: SeqNo) -> int:
        """Delete all entries before ``seqno`` (at most head); return how many."""
        check_seqno(seqno)
        with self._lock, self._transaction() as connection:
            check_truncation(seqno, _head(connection))
            return connection.execute("DELETE FROM log WHERE seqno < ?", (seqno,)).rowcount

    def close(self) -> None:
        """Close the connection; the last writer's close folds the WAL into the database."""
        with self._lock:
            self.closed = True
            self._drop()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Run the body with the write lock held, and commit it."""
        if self._read_only:
            raise InvalidUsage(f"{self._path} was opened read-only; open it for writing")
        committing = False
        try:
            connection = self._connected()
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                committing = True
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        except sqlite3.Error as cause:
            if _code(cause) != sqlite3.SQLITE_FULL:
                # Of that it has rolled back, and to open another connection may need room, too.
                self._drop()
            raise self._external(cause, nothing_happened=not committing) from cause

    def _read(self, read: Callable[[sqlite3.Connection], Read]) -> Read:
        """Run a query on whichever connection shows everything committed (module docstring)."""
        if self.closed:
            raise InvalidUsage(f"{self._path} was closed; open it again")
        try:
            if not self._read_only:
                return read(self._connected())
            return self._read_quietly(read)
        except sqlite3.Error as cause:
            self._drop()
            if _code(cause) == sqlite3.SQLITE_CORRUPT:
                # To read it again will not help, and nothing can have happened.
                raise Corrupt(f"log {self._path}", str(cause)) from cause
            raise self._external(cause, nothing_happened=False) from cause

    def _read_quietly(self, read: Callable[[sqlite3.Connection], Read]) -> Read:
        refusal: sqlite3.DatabaseError | None = None
        incomplete = 0
        for _ in range(QUIET_READ_ATTEMPTS_MAX):
            before = self._fingerprint()
            beside_writer = self._wal.exists()
            mode = "ro&readonly_shm=1" if beside_writer else "ro&immutable=1"
            if beside_writer and not self._shm.exists():
                # A writer is just opening or closing; or there is none, and it will stay so.
                incomplete += 1
                if incomplete < INCOMPLETE_ATTEMPTS_MAX:
                    time.sleep(INCOMPLETE_WAIT_S)
                    continue
                mode = "ro"
            try:
                if beside_writer:
                    with _OPENING:
                        return self._read_once(mode, read)
                found = self._read_once(mode, read)
            except sqlite3.DatabaseError as cause:
                refusal = cause  # We race with writers that come and go: look again.
                continue
            if not self._wal.exists() and self._fingerprint() == before:
                return found
            refusal = None
        if refusal is not None:
            raise refusal
        raise Determinate(f"{self._path}: changed under every attempt to read it; try again")

    def _read_once(self, mode: str, read: Callable[[sqlite3.Connection], Read]) -> Read:
        connection = self._connect(mode)
        try:
            return read(connection)
        finally:
            connection.close()

    def _fingerprint(self) -> tuple[int, int, int]:
        # By name, never through a descriptor of our own: closing one would release the POSIX
        # locks that SQLite holds on the same file for another connection of this process.
        try:
            status = self._path.stat()
        except OSError as cause:
            raise Determinate(f"{self._path}: {cause.strerror}; check the path") from cause
        return (status.st_ino, status.st_size, status.st_mtime_ns)

    def _connected(self) -> sqlite3.Connection:
        if self.closed:
            raise InvalidUsage(f"{self._path} was closed; open it again")
        if self._connection is None:
            with _OPENING:
                self._connection = self._connect("rw")
        return self._connection

    def _connect(self, mode: str) -> sqlite3.Connection:
        """Open an existing log; refuse a file that is something else."""
        connection = self._open(self._path, mode)
        try:
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA fullfsync=ON")  # means something on macOS only
            (application_id,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if application_id != APPLICATION_ID:
                raise Determinate(f"{self._path} is not a Headwater log; check the path")
            if version > FORMAT:
                raise NewerFormat(f"log {self._path}", version, FORMAT)
            if version < FORMAT:
                raise Corrupt(f"log {self._path}", f"it has format version {version}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _open(self, path: Path, mode: str) -> sqlite3.Connection:
        return sqlite3.connect(
            f"file:{quote(str(path))}?mode={mode}",
            uri=True,
            timeout=self._busy_timeout_s,
            isolation_level=None,  # transactions begin where we say so
            check_same_thread=False,  # our lock serializes the threads
        )

    def _make(self) -> None:
        """Make an empty log and give it its name, unless somebody was quicker."""
        unborn = self._path.with_name(f"{self._path.name}~{uuid4().hex}")
        try:
            DurableDirectories(self._path.parent).ensure(self._path.parent)
            try:
                connection = self._open(unborn, "rwc")
                try:
                    connection.execute("PRAGMA synchronous=FULL")
                    (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
                    if mode != "wal":
                        raise Determinate(f"{self._path}: no WAL here; use a local file system")
                    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
                    connection.execute(f"PRAGMA user_version={FORMAT}")
                    connection.execute(
                        "CREATE TABLE log (seqno INTEGER PRIMARY KEY, data BLOB NOT NULL)"
                    )
                finally:
                    connection.close()  # folds the WAL into the file and syncs it
                with suppress(FileExistsError):
                    os.link(unborn, self._path)
                sync_directory(self._path.parent)
            finally:
                for leftover in ("", "-wal", "-shm", "-journal"):
                    with suppress(OSError):
                        Path(f"{unborn}{leftover}").unlink()
        except sqlite3.Error as cause:
            raise self._external(cause, nothing_happened=True) from cause
        except OSError as cause:
            raise Determinate(
                f"{self._path}: {cause.strerror}; check the path, its permissions and free space"
            ) from cause

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def _has_room(self) -> bool:
        """Whether its disk has any; of a file that could not grow SQLite says no more."""
        try:
            return os.statvfs(self._path.parent).f_bavail > 0
        except OSError:
            return True

    def _external(self, cause: sqlite3.Error, *, nothing_happened: bool) -> ExternalError:
        """Sort an error of SQLite by whether its effect may have happened."""
        code = _code(cause)
        stopped = nothing_happened and code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
        if code == sqlite3.SQLITE_FULL or (stopped and not self._has_room()):
            return DiskFull(PLACE, str(self._path))
        remedy = REFUSALS.get(code)
        if remedy is not None:
            return Determinate(f"{self._path}: {cause}: {remedy}")
        what = f"{self._path}: {cause}{HINTS.get(code, '')}"
        return (Determinate if nothing_happened else Indeterminate)(what)


def _code(cause: sqlite3.Error) -> int:
    """Return the primary result code; -1 for an error that is not SQLite's own."""
    code: int | None = getattr(cause, "sqlite_errorcode", None)
    return -1 if code is None else code & 0xFF


def _head(connection: sqlite3.Connection) -> SeqNo | None:
    (head,) = connection.execute("SELECT max(seqno) FROM log").fetchone()
    return None if head is None else SeqNo(head)

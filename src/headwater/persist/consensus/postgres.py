"""The log as rows of one PostgreSQL table, shared by any number of logs and processes.

``headwater_log(log, seqno, data)`` with primary key ``(log, seqno)``. Every method is one
statement (the very first append excepted), in autocommit, at READ COMMITTED.

**Why append is right.** ``INSERT`` at ``s > 0`` happens only from a row at ``s - 1`` that is the
newest of its snapshot and that it could lock (``FOR UPDATE``).

- *No gap:* the row at ``s - 1`` exists, since locked rows cannot be deleted before we commit.
- *No second entry at s:* if the row ``s`` exists, the primary key refuses ours (``ON CONFLICT DO
  NOTHING``), waiting first for its transaction to end.
- *Nor one at an* ``s`` *that was committed and truncated meanwhile*, which the primary key cannot
  see: truncation deletes everything below a bound, so it would have deleted ``s - 1`` with it or
  before it. Had it committed, our lock would find no row; had it not, it holds or awaits that
  row, and cannot be done with ``s``. (Both waiting for each other is a deadlock, which
  PostgreSQL ends by an error in one: Determinate.)

At ``s = 0`` there is no row to lock. There, a transaction-scoped advisory lock lets only one
first append at a time look, with a snapshot taken *after* the lock: if it sees no row, none was
ever committed (a truncation leaves the head), and none can be until it is done.

**Head is linearizable** because it is asked of the primary: a commit is visible to every
snapshot taken after it was acknowledged. A standby is refused unless the DSN says otherwise.

**Sorting of failures.** A connection that cannot be made: Determinate. One that breaks under a
statement: Indeterminate, and the next call connects again. An error *answered by the server* for
a statement is Determinate if its SQLSTATE is on the list: such a statement was rolled back.

The DSN holds secrets: no error text contains it or any part of it that we were given.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Final

import psycopg
from psycopg import Connection, conninfo

from headwater.base.errors import Determinate, ExternalError, Indeterminate, InvalidUsage
from headwater.base.ids import SeqNo
from headwater.persist.consensus.seqno import check_limit, check_seqno, check_truncation
from headwater.persist.location import AppendOutcome, Committed, LogEntry, LostRace

CONNECT_TIMEOUT_S: Final = 10
# A silent network must become an error some day: a lost packet is given up after this long.
TCP_USER_TIMEOUT_MS: Final = 30_000

LOG_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,200}\Z")

# SQLSTATE, or its class of two characters, for which the server has certainly rolled back.
REFUSALS: Final = frozenset(
    {
        "40001",  # serialization failure
        "40P01",  # deadlock
        "55P03",  # lock not available
        "57014",  # canceled, e.g. by statement_timeout
        "57P03",  # cannot connect now
        "22",  # data exception
        "23",  # integrity constraint
        "25",  # invalid transaction state, e.g. read-only server
        "28",  # authentication
        "3D",  # no such database
        "42",  # no such table, no privilege
        "53",  # disk full, too many connections
        "54",  # limit exceeded
    }
)

CREATE: Final = """
    CREATE TABLE IF NOT EXISTS headwater_log (
        log text NOT NULL, seqno bigint NOT NULL, data bytea NOT NULL, PRIMARY KEY (log, seqno)
    )"""
HEAD: Final = "SELECT max(seqno) FROM headwater_log WHERE log = %s"
LOCK_FIRST: Final = "SELECT pg_advisory_xact_lock(hashtextextended('headwater_log/' || %s, 0))"
APPEND_FIRST: Final = """
    INSERT INTO headwater_log (log, seqno, data) SELECT %(log)s, 0, %(data)s
    WHERE NOT EXISTS (SELECT FROM headwater_log WHERE log = %(log)s)
    ON CONFLICT DO NOTHING"""
APPEND_NEXT: Final = """
    WITH head AS (
        SELECT seqno FROM headwater_log WHERE log = %(log)s ORDER BY seqno DESC LIMIT 1 FOR UPDATE
    )
    INSERT INTO headwater_log (log, seqno, data) SELECT %(log)s, seqno + 1, %(data)s
    FROM head WHERE seqno = %(seqno)s - 1
    ON CONFLICT DO NOTHING"""
ADOPT: Final = "INSERT INTO headwater_log (log, seqno, data) VALUES (%s, %s, %s)"
SCAN: Final = """
    SELECT seqno, data FROM headwater_log WHERE log = %s AND seqno >= %s ORDER BY seqno LIMIT %s"""
TRUNCATE: Final = "DELETE FROM headwater_log WHERE log = %s AND seqno < %s"


class PostgresConsensus:
    """The log named ``log`` behind ``dsn``; the table is made if absent, unless ``read_only``."""

    def __init__(self, dsn: str, log: str, read_only: bool = False) -> None:
        if LOG_NAME.match(log) is None:
            raise InvalidUsage(f"{log!r} is not a log name: use up to 200 of [A-Za-z0-9_.-]")
        self._log = log
        self._read_only = read_only
        self._lock = Lock()
        self._closed = False
        self._dsn, self._password = _complete(dsn)
        self._connection: Connection | None = None
        with self._statement():
            pass  # find out now if it cannot be reached

    def head(self) -> SeqNo | None:
        """Return the newest sequence number."""
        with self._statement() as connection:
            return self._head(connection)

    def append(self, seqno: SeqNo, data: bytes) -> AppendOutcome:
        """Commit ``data`` at ``seqno`` iff that is 0 for an empty log, else exactly head + 1."""
        check_seqno(seqno)
        self._check_writable()
        with self._statement() as connection:
            values = {"log": self._log, "seqno": seqno, "data": data}
            if seqno == 0:
                with connection.transaction():
                    connection.execute(LOCK_FIRST, (self._log,))
                    inserted = connection.execute(APPEND_FIRST, values).rowcount
            else:
                inserted = connection.execute(APPEND_NEXT, values).rowcount
        if inserted == 1:
            return Committed()
        return LostRace(self.head())

    def adopt(self, entries: Sequence[LogEntry]) -> bool:
        """Fill an empty log with the end of another, in one commit; whether it was empty."""
        self._check_writable()
        with self._statement() as connection, connection.transaction():
            connection.execute(LOCK_FIRST, (self._log,))
            if self._head(connection) is not None:
                return False
            rows = [(self._log, entry.seqno, entry.data) for entry in entries]
            connection.cursor().executemany(ADOPT, rows)
        return True

    def scan(self, start: SeqNo, limit: int) -> tuple[LogEntry, ...]:
        """Return up to ``limit`` entries from ``start`` on, ascending."""
        check_seqno(start)
        check_limit(limit)
        with self._statement() as connection:
            if not self._table_exists(connection):
                return ()
            rows = connection.execute(SCAN, (self._log, start, limit), binary=True).fetchall()
        return tuple(LogEntry(SeqNo(seqno), bytes(data)) for seqno, data in rows)

    def truncate(self, seqno: SeqNo) -> int:
        """Delete all entries before ``seqno`` (at most head); return how many."""
        check_seqno(seqno)
        self._check_writable()
        with self._statement() as connection:
            # The head never moves back: what may be truncated now may be truncated for ever.
            check_truncation(seqno, self._head(connection))
            return connection.execute(TRUNCATE, (self._log, seqno)).rowcount

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._closed = True
            self._drop()

    @contextmanager
    def _statement(self) -> Iterator[Connection]:
        """Lend the connection to one caller at a time; sort what goes wrong."""
        with self._lock:
            try:
                connection = self._connected()
            except psycopg.Error as cause:
                raise self._external(cause, nothing_happened=True) from cause
            try:
                yield connection
            except psycopg.Error as cause:
                raise self._external(cause, nothing_happened=False) from cause
            finally:
                # Broken, or interrupted in the middle of a statement: never to be used again.
                if connection.closed or connection.info.transaction_status != _IDLE:
                    self._drop()

    def _connected(self) -> Connection:
        if self._closed:
            raise InvalidUsage(f"log {self._log!r} was closed; open it again")
        if self._connection is None:
            connection = psycopg.connect(self._dsn, autocommit=True)
            try:
                self._prepare_session(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _prepare_session(self, connection: Connection) -> None:
        connection.execute("SET default_transaction_isolation = 'read committed'")
        # Whatever the server's default is, what we are told is committed must be durable.
        connection.execute(
            "SELECT set_config('synchronous_commit', 'on', false) "
            "WHERE current_setting('synchronous_commit') = 'off'"
        )
        if self._read_only:
            connection.execute("SET default_transaction_read_only = on")
        elif not _table_exists(connection):
            # Two sessions may both get here; IF NOT EXISTS alone still lets the slower one fail.
            with connection.transaction():
                connection.execute(LOCK_FIRST, ("",))
                connection.execute(CREATE)

    def _head(self, connection: Connection) -> SeqNo | None:
        if not self._table_exists(connection):
            return None
        row = connection.execute(HEAD, (self._log,)).fetchone()
        return None if row is None or row[0] is None else SeqNo(row[0])

    def _table_exists(self, connection: Connection) -> bool:
        """A reader may come before the first writer: the log is empty then, not broken."""
        return not self._read_only or _table_exists(connection)

    def _check_writable(self) -> None:
        if self._read_only:
            raise InvalidUsage(f"log {self._log!r} was opened read-only; open it for writing")

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    def _external(self, cause: psycopg.Error, *, nothing_happened: bool) -> ExternalError:
        """Sort an error of psycopg by whether its effect may have happened."""
        state = cause.sqlstate or ""
        text = (cause.diag.message_primary or str(cause)).strip()
        if self._password:
            text = text.replace(self._password, "***")
        message = f"PostgreSQL log {self._log!r}: {text}" + (f" ({state})" if state else "")
        if nothing_happened or state in REFUSALS or state[:2] in REFUSALS:
            return Determinate(message)
        return Indeterminate(message)


_IDLE: Final = psycopg.pq.TransactionStatus.IDLE


def _table_exists(connection: Connection) -> bool:
    row = connection.execute("SELECT to_regclass('headwater_log') IS NOT NULL").fetchone()
    return row is not None and bool(row[0])


def _complete(dsn: str) -> tuple[str, str]:
    """Add to the DSN what a log needs, unless it says otherwise; also return its password."""
    try:
        given = {name: value for name, value in conninfo.conninfo_to_dict(dsn).items() if value}
    except psycopg.Error:
        # Not even as the cause: libpq quotes the part it could not read, maybe the password.
        raise InvalidUsage(
            "the PostgreSQL address cannot be parsed: use postgresql://user@host/database, with "
            "special characters of user and password as %XX"
        ) from None
    complete = {
        "connect_timeout": CONNECT_TIMEOUT_S,
        "tcp_user_timeout": TCP_USER_TIMEOUT_MS,
        "target_session_attrs": "primary",
        "application_name": "headwater",
        **given,
    }
    return conninfo.make_conninfo("", **complete), str(given.get("password", ""))

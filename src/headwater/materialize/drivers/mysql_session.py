"""A session with a MySQL or MariaDB server: statements in, answers out.

Every session has the same settings: UTC, a strict mode in which a backslash is a backslash
(``mysql_types`` relies on it), READ COMMITTED (shards write rows of one table, and the gaps between
keys are nobody's). Counts of rows are of those that were found, changed or not.

The server ends a session that is idle for :data:`IDLE_S`, and with it the transaction in hand and
what that holds: a frozen process must not make others wait for ever. Between transactions that may
happen at any time, so each begins with :meth:`MySqlSession.awake`, which connects again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pymysql
from pymysql.constants import CLIENT

from headwater.base.errors import Determinate
from headwater.base.mysql import connected
from headwater.materialize.drivers.mysql_types import SQL_MODE, UUID_TEXT, quoted

IDLE_S: Final = 60
LOCK_S: Final = 90
_SILENCE_S: Final = 600
_STATEMENT_MAX: Final = 1 << 20
_PACKET_SLACK: Final = 1_024
_HAS_UUID: Final = (10, 7)
_SESSION: Final = (
    f"SET SESSION time_zone = '+00:00', SESSION sql_mode = '{SQL_MODE}', "
    f"SESSION wait_timeout = {IDLE_S}, SESSION innodb_lock_wait_timeout = {LOCK_S}"
)


class MySqlSession:
    """One connection at a time."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self._database = ""
        self._dial()
        ((version, packet),) = self.run("SELECT version(), @@max_allowed_packet")
        mariadb = "mariadb" in version.lower()
        self.collation = "utf8mb4_nopad_bin" if mariadb else "utf8mb4_0900_bin"
        """That which compares texts byte by byte."""
        since = re.match(r"(\d+)\.(\d+)", version)
        has_uuid = mariadb and since is not None and tuple(map(int, since.groups())) >= _HAS_UUID
        self.uuid = "uuid" if has_uuid else UUID_TEXT
        """What UUIDs are in a new column."""
        self._packet_max = int(packet) - _PACKET_SLACK

    def _dial(self) -> None:
        self._connection = connected(
            self._config, session=_SESSION, silence_s=_SILENCE_S, flags=CLIENT.FOUND_ROWS
        )
        self.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        if self._database:
            self.use(self._database)

    def close(self) -> None:
        """Close it; an open transaction is rolled back by that."""
        if self._connection.open:
            self._connection.close()

    @property
    def id(self) -> int:
        """What the server knows the session by."""
        return int(self._connection.thread_id())

    def use(self, database: str) -> None:
        """Choose a database: a DELETE from a join is refused without one, whatever it names."""
        self.run(f"USE {quoted(database)}")
        self._database = database

    def awake(self) -> None:
        """Connect again, if the server has ended the session; for use between transactions."""
        try:
            self._connection.ping(reconnect=False)
        except (pymysql.Error, OSError):
            self._dial()

    def run(self, statement: str) -> Sequence[tuple[Any, ...]]:
        """Run a statement; return what it answers."""
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            answers: Sequence[tuple[Any, ...]] = cursor.fetchall()
        return answers

    def changed(self, statement: str) -> int:
        """Run a statement; return how many rows it found to change."""
        with self._connection.cursor() as cursor:
            return int(cursor.execute(statement))

    def insert(self, into: str, names: str, texts: pa.ChunkedArray) -> None:
        """Insert rows by their texts, many in a statement."""
        begin = f"INSERT INTO {into} ({names}) VALUES "  # noqa: S608
        held: list[str] = []
        size = 0
        for text in texts.to_pylist():
            if held and size + len(text) > _STATEMENT_MAX:
                self.run(begin + ",".join(held))
                held, size = [], 0
            if len(text) > _STATEMENT_MAX and len((begin + text).encode()) > self._packet_max:
                raise Determinate(
                    f"a row of {len(text):,} characters is larger than what the server takes; "
                    "raise its max_allowed_packet"
                )
            held.append(text)
            size += len(text) + 1
        if held:
            self.run(begin + ",".join(held))

"""MySQL and MariaDB by their binary log: tables of a server, transaction by transaction.

One partition, whose offsets are positions in the log: the number of the file, and the position in
it (``sources/my_binlog.py``). The place of a transaction is where its group begins; a server
reports only ends of groups, so no group straddles a probe. Place 0 is the snapshot.

**Why positions, and not GTIDs.** They are a total order on every server, whatever it is set to.
GTIDs are not: MySQL has them off unless told otherwise, with gaps where replicas apply in parallel;
in MariaDB a sequence may go back unless ``gtid_strict_mode`` is on, and a place among them can be
asked for only together with the server that wrote it. What positions do not survive is a change of
the server: a replica that takes over has others. So a source is of one server (``server``), and
another at its address is a definite error, not a guess.

**Probe.** The end of the log.

**Read** of ``[lower, upper)`` follows the log (``sources/my_stream.py``) and takes the groups whose
place is in the range, whole. A stream is begun afresh at ``lower`` where it does not stand there.

**Snapshot** (``lower`` is 0): the contents of all tables at ``upper``, as one. A snapshot is taken
at a position ``S >= upper`` (``sources/my_copy.py``); then what was committed in ``[upper, S)`` is
undone, from the log, at place 0. So it is the same whenever it is taken.

**Commit** tells nobody: a server keeps its log by its own rules (``binlog_expire_logs_seconds``).
A file that is gone with changes we do not have is a definite error.

``TRUNCATE`` retracts what was there. A column added upstream is ignored; one dropped, or of another
type, is a definite error that names it. So is everything else that changes rows without a log of
them (``sources/my_statements.py``): a table dropped, renamed, exchanged.

Reliance *retained upstream*.

**From options.** ``MySql(config, tables, server=…)``: ``config`` is what the connection says;
``tables`` (``schema.table``) and ``server`` are of :func:`~.my_discover.discover`, fixed when the
source is created; each table is an output, with the envelope ``Rows``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pymysql

from headwater.storage.errors import DefiniteError, TransientError
from headwater.storage.offsets import Offsets
from headwater.storage.source import Records, Reliance
from headwater.storage.sources.misfit import Misfit
from headwater.storage.sources.my_binlog import (
    POSITION_BITS,
    Malformed,
    file_number,
    place,
    place_text,
)
from headwater.storage.sources.my_changes import Changes, Followed, Void
from headwater.storage.sources.my_copy import copied, end_of_log, take_snapshot
from headwater.storage.sources.my_discover import charsets_of, is_maria, server_of
from headwater.storage.sources.my_stream import Stream
from headwater.storage.sources.my_types import Unreadable
from headwater.storage.sources.my_wire import Config, connected, one, rows

LOG: Final = "binlog"
"""The one partition."""

COPY_SILENCE_MAX_S: Final = 600
_LOG_UNREADABLE: Final = 1236


class MySql:
    """Tables of a server."""

    reliance: Final = Reliance.RETAINED

    def __init__(
        self,
        config: Config,
        tables: Mapping[str, pa.Schema],
        *,
        server: str = "",
        name: str = "mysql",
    ) -> None:
        self.name = name
        self._config = dict(config)
        self._tables = dict(tables)
        self._server = server
        self._connection: Any = None
        self._stream: Stream | None = None
        self._followed: Followed | None = None
        self._void: set[int] = set()

    # ---- connections -------------------------------------------------------------------------

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Any]:
        """Lend the connection; a failure is transient, and closes it."""
        try:
            if self._connection is None:
                self._connection = connected(self._config)
                self._look(self._connection)
            yield self._connection
        except (pymysql.Error, OSError) as error:
            self.close()
            raise TransientError(self.name, f"{error.args[-1] if error.args else error}") from error

    def _look(self, connection: Any) -> None:
        """See which server it is, and what has to be known to read its log."""
        maria = is_maria(connection)
        server = server_of(connection, maria=maria)
        if self._server and server != self._server:
            raise DefiniteError(
                self.name,
                f"another server is there: it was {self._server!r}, and is {server!r} now, "
                "where positions in the log mean something else",
                "connect to the one that it was, or drop the source and create it again",
            )
        found = one(connection, "SELECT @@lower_case_table_names")
        assert found is not None
        self._followed = Followed(
            self._tables, charsets_of(connection), maria=maria, folded=bool(found[0])
        )

    def _streaming(self, first: int) -> Stream:
        """Return the stream at ``first``."""
        if self._stream is None or self._stream.given != first:
            self._close_stream()
            self._stream = Stream(self._config, self._file_of(first), first)
        return self._stream

    def _file_of(self, first: int) -> str:
        """Return the file that a place is in."""
        number = first >> POSITION_BITS
        with self._connected() as connection:
            files = [str(row[0]) for row in rows(connection, "SHOW BINARY LOGS")]
        for file in files:
            if file_number(file) == number:
                return file
        raise self._gone(first)

    def _gone(self, first: int) -> DefiniteError:
        return DefiniteError(
            self.name,
            f"the server does not have its binary log from {place_text(first)} on any more, and "
            "changes we do not have are gone with it",
            "drop the source and create it again; let the server keep its log for longer "
            "(binlog_expire_logs_seconds)",
        )

    def _close_stream(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def close(self) -> None:
        """Close the connections."""
        self._close_stream()
        if self._connection is not None:
            with contextlib.suppress(pymysql.Error, OSError):
                self._connection.close()
            self._connection = None

    # ---- probing -----------------------------------------------------------------------------

    def probe(self) -> Offsets:
        """Return the end of the log."""
        with self._connected() as connection:
            end = end_of_log(connection)
        if end is None:
            raise TransientError(
                self.name, "the server keeps no binary log: set log_bin, and restart it"
            )
        return Offsets({LOG: place(file_number(end[0]), end[1])})

    # ---- reading -----------------------------------------------------------------------------

    def read(self, lower: Offsets, upper: Offsets) -> Iterator[Records]:
        """Return the transactions of a range; from 0 on, the contents at its end."""
        first, last = lower[LOG], upper[LOG]
        if first >= last:
            return
        with self._connected():
            try:
                yield from self._changes(first, last) if first else self._snapshot(last)
            except (Misfit, Unreadable, Malformed) as error:
                self._close_stream()
                raise DefiniteError(
                    self.name, str(error), "change it back, or drop the source and create it again"
                ) from error

    def _changes(self, first: int, last: int, *, undo: bool = False) -> Iterator[Records]:
        """Return the transactions with a place in ``[first, last)``."""
        assert self._followed is not None, "it is looked at when connected"
        stream = self._streaming(first)
        changes = Changes(self._followed, LOG, first, last, void=self._void, undo=undo)
        try:
            yield from changes.records(stream.read(last))
        except Void as error:
            self._void.add(error.place)
            self._close_stream()
            raise TransientError(
                self.name, f"{error}: at {place_text(error.place)}; reading again without it"
            ) from error
        except pymysql.Error as error:
            if error.args[0] == _LOG_UNREADABLE and "ould not find" in str(error.args[-1]):
                raise self._gone(first) from error
            raise

    def _snapshot(self, last: int) -> Iterator[Records]:
        """Return the contents at ``last``: those of a snapshot, without what came since."""
        assert self._followed is not None, "it is looked at when connected"
        copying = connected(self._config, silence_s=COPY_SILENCE_MAX_S)
        try:
            at = take_snapshot(copying, self._config, self._tables, maria=self._followed.maria)
            for table, schema in self._tables.items():
                yield from copied(copying, LOG, table, schema, 0)
        finally:
            copying._force_close()
        if last < at:
            yield from self._changes(last, at, undo=True)

    def estimate(self, upper: Offsets) -> int:
        """Return how many rows the server believes the tables to have."""
        del upper
        with self._connected() as connection:
            found = rows(
                connection,
                "SELECT CONCAT(table_schema, '.', table_name), table_rows "
                "FROM information_schema.tables",
            )
        return sum(int(count or 0) for table, count in found if table in self._tables)

    # ---- committing --------------------------------------------------------------------------

    def commit(self, offsets: Offsets) -> None:
        """Nothing is told: the server keeps its log by its own rules."""

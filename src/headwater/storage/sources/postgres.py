"""PostgreSQL by logical replication: tables of a publication, transaction by transaction.

One partition, whose offsets are positions in the write-ahead log (LSN). The place of a transaction
is where its commit record begins; that is how a slot compares too, so *slot confirmed to F* and
*everything before F is durable* are the same. Place 0 is the snapshot.

**Probe.** The end of the log as inserted, once it is flushed: a boundary of records, so no commit
straddles it. It moves with the whole server, also where our tables are idle, and the slot is
confirmed along with it: an idle database pins no log.

**Read** of ``[lower, upper)`` peeks at the slot, which gives the same for as long as it is not
confirmed further, and takes the transactions whose place is in the range, whole.

**Snapshot** (``lower`` is 0): the contents of all tables at ``upper``, as one. A temporary slot
exports a snapshot at its position ``S >= upper``; the tables are copied in it; then what was
committed in ``[upper, S)`` is undone, from our slot, at place 0. So it is the same whenever it is
taken.

**Commit** advances the slot, which only we use, to what is durable, and never further. A slot that
is further than we are has forgotten what we need: a definite error.

Needs ``REPLICA IDENTITY FULL`` of the tables, so that updates and deletes carry the row that goes,
its large values included. ``TRUNCATE`` retracts what was there (:class:`Records.clears`). A column
added upstream is ignored; one dropped, or of another type, is a definite error that names it.

Reliance *bounded*: the server keeps its log from the slot's position on, and nothing before it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import pq, sql
from pyarrow import csv

from headwater.storage.errors import DefiniteError, TransientError
from headwater.storage.generators.generator import placed, with_diffs
from headwater.storage.offsets import Offsets
from headwater.storage.source import Records, Reliance
from headwater.storage.sources import pgoutput
from headwater.storage.sources.pg_changes import Changes, Misfit
from headwater.storage.sources.pg_types import SESSION, Unreadable, arrow_type, column_of

LOG: Final = "wal"
"""The one partition."""

ROWS_AT_ONCE: Final = 10_000
FLUSH_ATTEMPTS_MAX: Final = 100
PAGE_BYTES: Final = 8192
PAGE_HEADER_BYTES: Final = 40


def lsn(text: str) -> int:
    """Return a position from its text: ``16/B374D848``."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) | int(low, 16)


def lsn_text(position: int) -> str:
    """Return a position as PostgreSQL writes it."""
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"


def discover(dsn: str, publication: str) -> dict[str, pa.Schema]:
    """Return the tables of a publication (``schema.table``) and their columns."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        rows = connection.execute(
            "SELECT p.schemaname || '.' || p.tablename, a.attname, a.atttypid::bigint, "
            "a.atttypmod, a.attnotnull FROM pg_publication_tables p "
            "JOIN pg_attribute a ON a.attrelid = format('%%I.%%I', p.schemaname, p.tablename)"
            "::regclass WHERE p.pubname = %s AND a.attnum > 0 AND NOT a.attisdropped "
            "ORDER BY 1, a.attnum",
            (publication,),
        ).fetchall()
    tables: dict[str, list[pa.Field]] = {}
    for table, column, oid, modifier, required in rows:
        field = pa.field(column, arrow_type(oid, modifier), nullable=not required)
        tables.setdefault(table, []).append(field)
    return {table: pa.schema(fields) for table, fields in tables.items()}


def drop_slot(dsn: str, slot: str) -> None:
    """Drop a slot, if it is there: nothing is kept for us any more."""
    try:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
                "WHERE slot_name = %s",
                (slot,),
            )
    except psycopg.Error as error:
        raise TransientError(slot, f"{error}".strip()) from error


class Postgres:
    """The tables of a publication."""

    reliance: Final = Reliance.BOUNDED

    def __init__(
        self,
        dsn: str,
        publication: str,
        slot: str,
        tables: Mapping[str, pa.Schema],
        *,
        name: str = "postgres",
    ) -> None:
        self.name = name
        self._dsn = dsn
        self._publication = publication
        self._slot = slot
        self._tables = dict(tables)
        self._durable = 0
        self._connection: psycopg.Connection[Any] | None = None

    # ---- connections -------------------------------------------------------------------------

    @contextlib.contextmanager
    def _connected(self) -> Iterator[psycopg.Connection[Any]]:
        """Lend the connection; a failure is transient, and closes it.

        Also what the server refuses (a publication that did not exist yet where we read, a
        permission that was taken): it may be mended there, and until then the source is stalled.
        """
        try:
            if self._connection is None:
                self._connection = psycopg.connect(self._dsn, autocommit=True)
                self._connection.execute(SESSION)
            yield self._connection
        except psycopg.Error as error:
            self.close()
            raise TransientError(self.name, f"{error}".strip()) from error

    def close(self) -> None:
        """Close the connection; the slot stays, and keeps what is not durable."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # ---- probing -----------------------------------------------------------------------------

    def probe(self) -> Offsets:
        """Return the end of the log; make the slot first, if there is none yet."""
        with self._connected() as connection:
            self._check_publication(connection)
            if self._confirmed(connection) is None:
                if self._durable:
                    raise self._slot_lost("does not exist any more")
                connection.execute(
                    "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (self._slot,)
                )
            (text,) = _one(connection, "SELECT pg_current_wal_insert_lsn()::text")
            end = lsn(text)
            for _ in range(FLUSH_ATTEMPTS_MAX):
                (text,) = _one(connection, "SELECT pg_current_wal_flush_lsn()::text")
                if _flushed(lsn(text), end):
                    return Offsets({LOG: end})
                connection.execute("SELECT pg_sleep(0.02)")
        raise TransientError(self.name, f"the server does not flush its log to {lsn_text(end)}")

    def _check_publication(self, connection: psycopg.Connection[Any]) -> None:
        found = connection.execute(
            "SELECT p.schemaname || '.' || p.tablename, c.relreplident "
            "FROM pg_publication_tables p JOIN pg_class c "
            "ON c.oid = format('%%I.%%I', p.schemaname, p.tablename)::regclass "
            "WHERE p.pubname = %s",
            (self._publication,),
        ).fetchall()
        identities = {table: _letter(identity) for table, identity in found}
        for table in self._tables:
            if table not in identities:
                raise TransientError(
                    self.name,
                    f"publication {self._publication!r} has no table {table!r}; "
                    f"CREATE PUBLICATION {self._publication} FOR TABLE {table}, or ALTER it",
                )
            if identities[table] != "f":
                raise TransientError(
                    self.name,
                    f"table {table!r} does not log the rows that go; "
                    f"ALTER TABLE {table} REPLICA IDENTITY FULL",
                )

    def _confirmed(self, connection: psycopg.Connection[Any]) -> int | None:
        """Return the position of our slot; ``None`` if there is no slot."""
        row = connection.execute(
            "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s",
            (self._slot,),
        ).fetchone()
        return None if row is None else lsn(row[0])

    def _slot_lost(self, why: str) -> DefiniteError:
        return DefiniteError(
            self.name,
            f"replication slot {self._slot!r} {why}, and changes we do not have are gone with it",
            "drop the source and create it again; let nobody else use or drop its slot",
        )

    # ---- reading -----------------------------------------------------------------------------

    def read(self, lower: Offsets, upper: Offsets) -> Iterator[Records]:
        """Return the transactions of a range; from 0 on, the contents at its end."""
        first, last = lower[LOG], upper[LOG]
        if first >= last:
            return
        with self._connected() as connection:
            confirmed = self._confirmed(connection)
            needed = first or last
            if confirmed is None or confirmed > needed:
                where = "is gone" if confirmed is None else f"is at {lsn_text(confirmed)}"
                raise self._slot_lost(f"{where}, past {lsn_text(needed)}")
            try:
                if first:
                    yield from self._changes(connection, first, last).records()
                else:
                    yield from self._snapshot(connection, last)
            except (Misfit, Unreadable, pgoutput.Malformed) as error:
                raise DefiniteError(
                    self.name, str(error), "change the table back, or drop the source"
                ) from error

    def _changes(self, connection: psycopg.Connection[Any], first: int, last: int) -> Changes:
        """Return the transactions with a place in ``[first, last)``."""
        changes = Changes(self._tables, LOG)
        with connection.cursor(binary=True) as cursor:
            found = cursor.stream(
                "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, %s::text::pg_lsn, NULL, "
                "'proto_version', '1', 'publication_names', %s)",
                (self._slot, lsn_text(last), self._publication),
            )
            for (data,) in found:
                changes.add(pgoutput.decode(bytes(data)), first, last)
        return changes

    def _snapshot(self, connection: psycopg.Connection[Any], last: int) -> Iterator[Records]:
        """Return the contents at ``last``: those of a snapshot, without what came since."""
        with self._exported() as (position, snapshot):
            with psycopg.connect(self._dsn, autocommit=True) as copying:
                copying.execute(SESSION)
                copying.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                copying.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(snapshot))
                for table, schema in self._tables.items():
                    yield from self._copied(copying, table, schema)
            undone = self._changes(connection, last, position)
        if undone.truncated:
            raise DefiniteError(
                self.name,
                f"table {undone.truncated[0]!r} was truncated while its snapshot was taken",
                "drop the source and create it again",
            )
        yield from undone.undone()

    @contextlib.contextmanager
    def _exported(self) -> Iterator[tuple[int, str]]:
        """Make a temporary slot; yield its position and the name of the snapshot at it."""
        conninfo = psycopg.conninfo.make_conninfo(self._dsn, replication="database")
        replication = pq.PGconn.connect(conninfo.encode())
        try:
            if replication.status != pq.ConnStatus.OK:
                raise TransientError(self.name, replication.error_message.decode().strip())
            answer = replication.exec_(
                f'CREATE_REPLICATION_SLOT "{self._slot}_snapshot" TEMPORARY LOGICAL pgoutput '
                "(SNAPSHOT 'export')".encode()
            )
            if answer.status != pq.ExecStatus.TUPLES_OK:
                raise TransientError(self.name, answer.error_message.decode().strip())
            position, snapshot = answer.get_value(0, 1), answer.get_value(0, 2)
            assert position is not None
            assert snapshot is not None
            yield lsn(position.decode()), snapshot.decode()
        finally:
            replication.finish()

    def _copied(
        self, copying: psycopg.Connection[Any], table: str, schema: pa.Schema
    ) -> Iterator[Records]:
        names = sql.SQL(", ").join(map(sql.Identifier, schema.names))
        space, _, name = table.partition(".")
        # Nulls are unquoted, and a text that looks like one is quoted: so they can be told apart.
        query = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT (FORMAT csv, NULL '\\N')").format(
            names, sql.Identifier(space, name)
        )
        rows: list[bytes] = []
        try:
            with copying.cursor() as cursor, cursor.copy(query) as copy:
                for row in copy:  # The server sends each row as a message of its own.
                    rows.append(bytes(row))
                    if len(rows) >= ROWS_AT_ONCE:
                        yield _placed_rows(table, schema, rows)
                        rows = []
        except psycopg.errors.UndefinedColumn as error:
            raise Misfit(f"table {table!r}: {error}".strip()) from error
        except psycopg.errors.UndefinedTable as error:
            raise Misfit(f"table {table!r}: {error}".strip()) from error
        if rows:
            yield _placed_rows(table, schema, rows)

    # ---- committing --------------------------------------------------------------------------

    def commit(self, offsets: Offsets) -> None:
        """Confirm the slot to what is durable, so that the server can drop its log before it."""
        self._durable = max(self._durable, offsets[LOG])
        if not self._durable:
            return
        with self._connected() as connection:
            confirmed = self._confirmed(connection)
            if confirmed is None:
                raise self._slot_lost("does not exist any more")
            if confirmed < self._durable:
                connection.execute(
                    "SELECT pg_replication_slot_advance(%s, %s::text::pg_lsn)",
                    (self._slot, lsn_text(self._durable)),
                )


def _placed_rows(table: str, schema: pa.Schema, rows: list[bytes]) -> Records:
    names = [str(number) for number in range(len(schema))]
    texts = csv.read_csv(
        pa.BufferReader(b"".join(rows)),
        read_options=csv.ReadOptions(
            column_names=names, use_threads=False, block_size=sum(map(len, rows)) + 1
        ),
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=["\\N"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    assert texts.num_rows == len(rows), "a message of COPY is a row"
    arrays = []
    for texts_of, field in zip(texts.columns, schema, strict=True):
        try:
            arrays.append(column_of(texts_of, field.type))
        except Unreadable as error:
            raise Misfit(f"table {table!r}, column {field.name!r}: {error}") from error
    payload = with_diffs(pa.Table.from_arrays(arrays, schema=schema), 1)
    return Records(table, placed(LOG, np.zeros(len(rows), np.int64), payload))


def _one(connection: psycopg.Connection[Any], query: str) -> tuple[Any, ...]:
    row = connection.execute(query).fetchone()
    assert row is not None
    return tuple(row)


def _letter(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _flushed(flushed: int, end: int) -> bool:
    """Whether everything before ``end`` is flushed; at a page's start its header may be missing."""
    at_page = flushed % PAGE_BYTES == 0 and end - flushed <= PAGE_HEADER_BYTES
    return flushed >= end or at_page

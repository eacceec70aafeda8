"""PostgreSQL by logical replication: tables of a publication, transaction by transaction.

One partition, whose offsets are positions in the write-ahead log (LSN). The place of a transaction
is where its commit record begins; that is how a slot compares too, so *slot confirmed to F* and
*everything before F is durable* are the same. Place 0 is the snapshot.

**Probe.** The end of the log as inserted, once it is flushed: a boundary of records, so no commit
straddles it. It moves with the whole server, also where our tables are idle, and the slot is
confirmed along with it: an idle database pins no log.

**Read** of ``[lower, upper)`` follows the slot's stream (``sources/pg_stream.py``) and takes the
transactions whose place is in the range, whole. What is not confirmed can be read again: a stream
is begun afresh at ``lower`` wherever it does not stand there already.

**Snapshot** (``lower`` is 0): the contents of all tables at ``upper``, as one. A temporary slot
exports a snapshot at its position ``S >= upper``; the tables are copied in it; then what was
committed in ``[upper, S)`` is undone, from our slot, at place 0. So it is the same whenever it is
taken.

**Commit** confirms the slot, which only we use, to what is durable, and never further: in the
stream, which is also how the server knows that we live. A slot that is further than we are has
forgotten what we need: a definite error.

**The rows that go.** With ``REPLICA IDENTITY FULL`` updates and deletes carry them, large values
included. Of a table in ``keys`` they carry its primary key, and the output has the rest
(``storage/keyed_changes.py``). Then nothing can be undone, so the snapshot is the one at which the
source is bound: a probe, while nothing is durable, is the position of a snapshot that we hold open
until it is. Whoever comes after one that died holds another (``Momentary`` in
``storage/source.py``). Its rows are at the last place before the probe.

``TRUNCATE`` retracts what was there (:class:`Records.clears`). A column added upstream is ignored;
one dropped, or of another type, is a definite error that names it. So is a table that was dropped
and made again (``oids``): nobody logs that its rows went.

Reliance *bounded*: the server keeps its log from the slot's position on, and nothing before it.

**From options.** ``Postgres(dsn, publication, slot, tables)``: the ``dsn`` (with its password) is
the connection's; ``tables`` is :func:`discover` of the publication, or the part of it that is
wanted, fixed when the source is created; each is an output, with the envelope ``Rows``, or
``Keyed`` where :func:`table_keys` has it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import psycopg
import pyarrow as pa
from psycopg import sql

from headwater.storage.errors import DefiniteError, TransientError
from headwater.storage.offsets import Offsets
from headwater.storage.source import Records, Reliance
from headwater.storage.sources import pgoutput
from headwater.storage.sources.misfit import Misfit
from headwater.storage.sources.pg_changes import Changes, Relations
from headwater.storage.sources.pg_copy import copied
from headwater.storage.sources.pg_estimate import rows_of
from headwater.storage.sources.pg_stream import HeldSnapshot, Stream
from headwater.storage.sources.pg_types import (
    SESSION,
    Unreadable,
    field_of,
    lsn,
    lsn_text,
    reached,
)

LOG: Final = "wal"
"""The one partition."""

FLUSH_ATTEMPTS_MAX: Final = 100
DROP_ATTEMPTS_MAX: Final = 100


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
        field = field_of(column, oid, modifier, nullable=not required)
        tables.setdefault(table, []).append(field)
    return {table: pa.schema(fields) for table, fields in tables.items()}


def table_oids(dsn: str, publication: str) -> dict[str, int]:
    """Return what each table of a publication is to its server, whatever it is called."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        return {table: oid for table, _, oid in _published(connection, publication)}


def table_keys(dsn: str, publication: str) -> dict[str, tuple[str, ...]]:
    """Return the keys by which the log names rows, of the tables where it does not have them."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        rows = connection.execute(
            "SELECT p.schemaname || '.' || p.tablename, array_agg(a.attname::text ORDER BY k.n) "
            "FROM pg_publication_tables p "
            "JOIN pg_class c ON c.oid = format('%%I.%%I', p.schemaname, p.tablename)::regclass "
            "JOIN pg_index i ON i.indrelid = c.oid AND CASE c.relreplident WHEN 'd' "
            "THEN i.indisprimary AND i.indimmediate WHEN 'i' THEN i.indisreplident "
            "ELSE false END "
            "CROSS JOIN unnest(i.indkey::int[]) WITH ORDINALITY AS k(attnum, n) "
            "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum "
            "WHERE p.pubname = %s AND k.n <= i.indnkeyatts GROUP BY 1",
            (publication,),
        ).fetchall()
    return {table: tuple(columns) for table, columns in rows}


def obstacles(dsn: str, publication: str, tables: Collection[str]) -> list[str]:
    """Return what keeps these tables from being followed, each with its remedy."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        (level,) = _one(connection, "SELECT current_setting('wal_level')")
        identities = {table: letter for table, letter, _ in _published(connection, publication)}
    found = []
    if level != "logical":
        found.append(
            f"wal_level is {level}: ALTER SYSTEM SET wal_level = 'logical', and restart upstream"
        )
    keys = table_keys(dsn, publication)
    found += [
        f"table {table} does not log the rows that go, nor a primary key: "
        f"ALTER TABLE {table} REPLICA IDENTITY FULL"
        for table in tables
        if identities.get(table) != "f" and table not in keys
    ]
    return found


def drop_slot(dsn: str, slot: str) -> None:
    """Drop a slot, if it is there: nothing is kept for us any more."""
    try:
        with psycopg.connect(dsn, autocommit=True) as connection:
            for _ in range(DROP_ATTEMPTS_MAX):
                try:
                    connection.execute(
                        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
                        "WHERE slot_name = %s",
                        (slot,),
                    )
                    return
                except psycopg.errors.ObjectInUse:
                    # The server has not noticed yet that our stream ended.
                    connection.execute("SELECT pg_sleep(0.1)")
    except psycopg.Error as error:
        raise TransientError(slot, f"{error}".strip()) from error
    raise TransientError(slot, "somebody uses the slot")


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
        oids: Mapping[str, int] | None = None,
        keys: Mapping[str, tuple[str, ...]] | None = None,
        name: str = "postgres",
    ) -> None:
        self.name = name
        self._keys = dict(keys or {})
        self._held: HeldSnapshot | None = None
        self._oids = dict(oids or {})
        self._dsn = dsn
        self._publication = publication
        self._slot = slot
        self._tables = dict(tables)
        self._durable = 0
        self._connection: psycopg.Connection[Any] | None = None
        self._stream: Stream | None = None
        self._relations: Relations = {}

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

    def _streaming(self, first: int) -> Stream:
        """Return the stream of our slot at ``first``."""
        if self._stream is None or self._stream.given != first:
            self._close_stream()
            self._stream = Stream(self._dsn, self._slot, self._publication, first)
        return self._stream

    def _close_stream(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        self._relations = {}

    def close(self) -> None:
        """Close the connections; the slot stays, and keeps what is not durable."""
        self._close_stream()
        self._let_snapshot_go()
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
            if self._keys and not self._durable:
                return self._hold_snapshot()
            (text,) = _one(connection, "SELECT pg_current_wal_insert_lsn()::text")
            end = lsn(text)
            for _ in range(FLUSH_ATTEMPTS_MAX):
                (text,) = _one(connection, "SELECT pg_current_wal_flush_lsn()::text")
                if reached(lsn(text), end):
                    return Offsets({LOG: end})
                connection.execute("SELECT pg_sleep(0.02)")
        raise TransientError(self.name, f"the server does not flush its log to {lsn_text(end)}")

    def _check_publication(self, connection: psycopg.Connection[Any]) -> None:
        found = {
            table: (identity, oid)
            for table, identity, oid in _published(connection, self._publication)
        }
        for table in self._tables:
            if table not in found:
                raise TransientError(
                    self.name,
                    f"publication {self._publication!r} has no table {table!r}; "
                    f"CREATE PUBLICATION {self._publication} FOR TABLE {table}, or ALTER it",
                )
            identity, oid = found[table]
            if self._oids.get(table, oid) != oid:
                raise DefiniteError(
                    self.name,
                    f"table {table!r} was dropped upstream and made again",
                    "drop the source and create it again",
                )
            if identity != "f" and (table not in self._keys or identity == "n"):
                raise TransientError(
                    self.name,
                    f"table {table!r} does not log the rows that go; "
                    f"ALTER TABLE {table} REPLICA IDENTITY FULL",
                )

    def _confirmed(self, connection: psycopg.Connection[Any]) -> int | None:
        """Return the position of our slot; ``None`` if there is no slot."""
        row = connection.execute(
            "SELECT confirmed_flush_lsn::text, wal_status FROM pg_replication_slots "
            "WHERE slot_name = %s",
            (self._slot,),
        ).fetchone()
        if row is None:
            return None
        if row[1] == "lost":
            raise self._slot_lost("was invalidated: the server kept its log no longer for it")
        return lsn(row[0])

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
                    yield from self._changes(first, last)
                elif self._keys:
                    yield from self._held_snapshot(last)
                else:
                    yield from self._snapshot(last)
            except (Misfit, Unreadable, pgoutput.Malformed) as error:
                raise DefiniteError(
                    self.name, str(error), "change the table back, or drop the source"
                ) from error

    def _changes(self, first: int, last: int, *, undo: bool = False) -> Iterator[Records]:
        """Return the transactions with a place in ``[first, last)``."""
        stream = self._streaming(first)
        changes = Changes(
            self._tables,
            LOG,
            first,
            last,
            relations=self._relations,
            oids=self._oids,
            keys=self._keys,
            undo=undo,
        )
        yield from changes.records(map(pgoutput.decode, stream.read(last)))

    def _snapshot(self, last: int) -> Iterator[Records]:
        """Return the contents at ``last``: those of a snapshot, without what came since."""
        held = HeldSnapshot.taken(self._dsn, self._slot)
        try:
            yield from self._copied(held, 0)
        finally:
            held.close()
        yield from self._changes(last, held.position, undo=True)

    def _copied(self, held: HeldSnapshot, place: int) -> Iterator[Records]:
        """Return the contents of all tables in a snapshot, at one place."""
        with psycopg.connect(self._dsn, autocommit=True) as copying:
            copying.execute(SESSION)
            copying.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            copying.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(held.name))
            for table, schema in self._tables.items():
                yield from copied(copying, LOG, table, schema, place)

    # ---- a snapshot that is held -------------------------------------------------------------

    def has(self, upper: Offsets) -> bool:
        """Whether the first contents can be read at ``upper``."""
        return not self._keys or (
            self._held is not None and self._held.position == upper[LOG] and self._held.is_open
        )

    def _hold_snapshot(self) -> Offsets:
        self._let_snapshot_go()
        self._held = HeldSnapshot.taken(self._dsn, self._slot)
        return Offsets({LOG: self._held.position})

    def _let_snapshot_go(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None

    def _held_snapshot(self, last: int) -> Iterator[Records]:
        if self._held is None or self._held.position != last:
            raise TransientError(
                self.name, f"the snapshot at {lsn_text(last)} is not held any more"
            )
        yield from self._copied(self._held, last - 1)

    def estimate(self, upper: Offsets) -> int:
        """Return about how many rows the tables have."""
        del upper
        with self._connected() as connection:
            return rows_of(connection, self._tables)

    # ---- committing --------------------------------------------------------------------------

    def commit(self, offsets: Offsets) -> None:
        """Confirm the slot to what is durable, so that the server can drop its log before it.

        Without a stream there is nothing to confirm yet: the next range opens one, and confirms.
        """
        self._durable = max(self._durable, offsets[LOG])
        if self._durable:
            self._let_snapshot_go()
        if self._durable and self._stream is not None:
            with self._connected():
                self._stream.confirm(self._durable)


def _one(connection: psycopg.Connection[Any], query: str) -> tuple[Any, ...]:
    row = connection.execute(query).fetchone()
    assert row is not None
    return tuple(row)


def _published(connection: psycopg.Connection[Any], publication: str) -> list[tuple[str, str, int]]:
    """Return the tables of a publication, how each is identified in the log, and its oid."""
    return connection.execute(
        "SELECT p.schemaname || '.' || p.tablename, c.relreplident::text, c.oid::bigint "
        "FROM pg_publication_tables p JOIN pg_class c "
        "ON c.oid = format('%%I.%%I', p.schemaname, p.tablename)::regclass "
        "WHERE p.pubname = %s",
        (publication,),
    ).fetchall()

"""The changes of a slot as a stream: PostgreSQL's replication protocol, by libpq's own calls.

    Stream(dsn, slot, publication, first)      START_REPLICATION at ``first``, in COPY BOTH mode
    read(last)     ->  the messages of all transactions with a place before ``last``, whole
    confirm(p)         everything before ``p`` is durable: the server may drop its log before it

Both sides speak all the while. The server sends ``w`` (a message of the output plugin) and ``k`` (a
keepalive: how far it has read its log, and whether it wants an answer); we send ``r`` (what is
durable, and whether we want an answer). Transactions come whole, in the order of their places.

**The end of a range** is known from either of two: a transaction begins at or behind it (it is held
for the next range), or a keepalive outside of any transaction says that the log was read that far.
So an idle log costs one question and one answer, and a range with nothing for us in it ends too.

The stream stays open between ranges and goes on where it is; ``given`` is the end of the last one.
The server ends a stream that does not answer for ``wal_sender_timeout``: every :meth:`confirm`
answers, and so does every range that is read.

A slot is used by one stream at a time. Whoever opens one ends the session that has it: the slot is
ours alone, and the one who writes is decided by the epoch of the ingestion, not by who was first.
"""

from __future__ import annotations

import contextlib
import secrets
import select
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import psycopg
from psycopg import pq

from headwater.storage.sources.pg_types import SESSION, lsn, lsn_text, reached

NAME_MAX: Final = 50
"""So much of a slot's name, with what follows it, fits into the 63 bytes of a name."""

WAIT_S: Final = 0.01
ANSWER_S: Final = 1.0
SILENCE_MAX_S: Final = 60.0
TAKE_ATTEMPTS_MAX: Final = 100

_STATUS: Final = struct.Struct(">cQQQqB")
_DATA_HEADER_BYTES: Final = 25
_KEEPALIVE: Final = struct.Struct(">QqB")
_PLACE: Final = struct.Struct(">Q")

_DATA, _ALIVE, _BEGIN, _COMMIT = b"wkBC"


class Stream:
    """One replication session."""

    def __init__(self, dsn: str, slot: str, publication: str, first: int) -> None:
        self.given = first
        self._durable = 0
        self._held: bytes | None = None
        self._connection = replication_connection(dsn)
        try:
            for statement in SESSION.split("; "):
                _answer(self._connection, statement, pq.ExecStatus.COMMAND_OK)
            name = publication.replace('"', '""').replace("'", "''")
            self._start(
                dsn,
                slot,
                f'START_REPLICATION SLOT "{slot}" LOGICAL {lsn_text(first)} '
                f"(proto_version '1', publication_names '\"{name}\"')",
            )
        except BaseException:
            self.close()
            raise

    def _start(self, dsn: str, slot: str, command: str) -> None:
        for attempt in range(TAKE_ATTEMPTS_MAX):
            try:
                _answer(self._connection, command, pq.ExecStatus.COPY_BOTH)
                return
            except psycopg.errors.ObjectInUse:
                if attempt + 1 == TAKE_ATTEMPTS_MAX:
                    raise
                _end_user(dsn, slot)
                time.sleep(WAIT_S)

    def close(self) -> None:
        """End the session; the slot keeps what is not confirmed."""
        self._connection.finish()

    # ---- reading -----------------------------------------------------------------------------

    def read(self, last: int) -> Iterator[bytes]:
        """Return the messages of all transactions before ``last``; of the plugin, undecoded."""
        inside, ask_at, heard_at = False, 0.0, time.monotonic()
        if self._held is not None:
            if _place(self._held) >= last:
                self.given = last
                return
            yield self._held
            inside, self._held = True, None
        while True:
            message = self._received()
            if message is None:
                now = time.monotonic()
                if now - heard_at > SILENCE_MAX_S:
                    raise psycopg.OperationalError("the server does not answer the stream")
                if not inside and now >= ask_at:
                    self._tell(answer=True)
                    ask_at = now + ANSWER_S
                if select.select([self._connection.socket], [], [], WAIT_S)[0]:
                    heard_at = now
                    self._connection.consume_input()
                continue
            if message[0] == _ALIVE:
                end, _, wants_answer = _KEEPALIVE.unpack_from(message, 1)
                if wants_answer:
                    self._tell(answer=False)
                if not inside:
                    if reached(end, last):
                        break
                    ask_at = time.monotonic() + WAIT_S
                continue
            if message[0] != _DATA:
                continue
            payload = bytes(message[_DATA_HEADER_BYTES:])
            if payload[0] == _BEGIN:
                if _place(payload) >= last:
                    self._held = payload
                    break
                inside = True
            elif payload[0] == _COMMIT:
                inside = False
            yield payload
        self.given = last

    def _received(self) -> memoryview | None:
        """Return the next message, if one is here already."""
        length, data = self._connection.get_copy_data(1)
        if length > 0:
            return data
        if length == 0:
            return None
        # The server ended the stream: it says why.
        result = self._connection.get_result()
        why = "" if result is None else result.error_message.decode().strip()
        raise psycopg.OperationalError(why or "the server ended the stream")

    # ---- telling -----------------------------------------------------------------------------

    def confirm(self, position: int) -> None:
        """Tell the server what is durable; it forgets what is before it, when it likes."""
        self._durable = max(self._durable, position)
        self._tell(answer=False)

    def _tell(self, *, answer: bool) -> None:
        at = self._durable
        self._connection.put_copy_data(_STATUS.pack(b"r", at, at, at, 0, answer))
        self._connection.flush()


def _place(begin: bytes) -> int:
    """Return the place of the transaction that begins."""
    return int(_PLACE.unpack_from(begin, 1)[0])


def replication_connection(dsn: str) -> pq.abc.PGconn:
    """Open a connection that speaks the replication protocol; raise ``psycopg.Error``."""
    conninfo = psycopg.conninfo.make_conninfo(dsn, replication="database")
    connection = pq.PGconn.connect(conninfo.encode())
    if connection.status != pq.ConnStatus.OK:
        why = connection.error_message.decode().strip()
        connection.finish()
        raise psycopg.OperationalError(why)
    return connection


def _answer(connection: pq.abc.PGconn, command: str, expected: pq.ExecStatus) -> pq.abc.PGresult:
    result = connection.exec_(command.encode())
    if result.status != expected:
        raise psycopg.errors.error_from_result(result)
    return result


@dataclass(frozen=True, slots=True)
class HeldSnapshot:
    """A snapshot of the whole database at a position of the log, there while it is held.

    It has every transaction with a place before ``position``, and no other.
    """

    position: int
    name: str
    _connection: pq.abc.PGconn

    @classmethod
    def taken(cls, dsn: str, slot: str) -> HeldSnapshot:
        """Take one; a temporary slot, which lives as long, says where it is."""
        connection = replication_connection(dsn)
        try:
            # A name of its own: the slot of a reader that died stays until the server notices.
            temporary = f"{slot[:NAME_MAX]}_{secrets.token_hex(4)}"
            command = (
                f'CREATE_REPLICATION_SLOT "{temporary}" TEMPORARY LOGICAL pgoutput '
                "(SNAPSHOT 'export')"
            )
            result = _answer(connection, command, pq.ExecStatus.TUPLES_OK)
            position, name = result.get_value(0, 1), result.get_value(0, 2)
            assert position is not None
            assert name is not None
            return cls(lsn(position.decode()), name.decode(), connection)
        except BaseException:
            connection.finish()
            raise

    @property
    def is_open(self) -> bool:
        """Whether it is there, as far as we have heard."""
        return self._connection.status == pq.ConnStatus.OK

    def close(self) -> None:
        """Let it go."""
        self._connection.finish()


def _end_user(dsn: str, slot: str) -> None:
    """End the session that uses the slot; it is one of ours, and not the newest."""
    with contextlib.suppress(psycopg.Error), psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
            "WHERE slot_name = %s AND active_pid IS NOT NULL",
            (slot,),
        )

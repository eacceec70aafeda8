"""Where client text meets the shadow: sessions of the reader, used once and wiped.

``analyse`` lets PostgreSQL parse and plan nothing: it prepares the text and describes it. ``run``
executes it. Both send it by the extended protocol, which takes one command, in a session that is
the reader from login on (there is no other role to go back to), in a read-only transaction of its
own, under a timeout; afterwards ``DISCARD ALL`` forgets every setting, lock and statement of it,
or the session is closed. The answer is taken row by row and given up when it grows too large.

Rows are PostgreSQL's text form, as the wire wants them.
"""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import psycopg
from psycopg import adapt, pq, sql
from psycopg.types.string import StrDumperUnknown

from headwater.adapter.shadow.errors import AnswerTooLarge, PostgresRejected, ShadowUnavailable
from headwater.adapter.shadow.numbers import HINT, SESSION

ROWS_MAX: Final = 100_000
BYTES_MAX: Final = 64 * 1024 * 1024
SESSIONS_MAX: Final = 8
_WAIT_SECONDS: Final = 30.0
_SYSTEM: Final = "hw_catalog"
PUBLIC_PATH: Final = ("public",)
_DENIED: Final = "42501"
_GONE: Final = ("57P", "080")
"""SQLSTATEs of a server that stops or of a connection that broke."""


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column as RowDescription has it."""

    name: str
    oid: int
    modifier: int
    size: int


@dataclass(frozen=True, slots=True)
class Analysis:
    """What PostgreSQL says a statement is: no columns if it returns no rows."""

    columns: tuple[ResultColumn, ...]
    parameters: tuple[int, ...]
    """OIDs of ``$1`` …, as given or as inferred."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of a catalog query, each value in PostgreSQL's text form."""

    columns: tuple[ResultColumn, ...]
    rows: tuple[tuple[str | None, ...], ...]


class _TextLoader(adapt.Loader):
    """The text as it came: the client's driver reads it, not we."""

    def load(self, data: adapt.Buffer) -> str:
        return bytes(data).decode()


class Sessions:
    """At most :data:`SESSIONS_MAX` sessions of the reader, made when needed."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]]) -> None:
        self._connect = connect
        self._idle: queue.LifoQueue[psycopg.Connection[Any] | None] = queue.LifoQueue()
        for _ in range(SESSIONS_MAX):
            self._idle.put(None)

    def close(self) -> None:
        """Close every idle session; one in use fails by itself. New ones are made when needed."""
        taken = []
        with contextlib.suppress(queue.Empty):
            while True:
                taken.append(self._idle.get_nowait())
        for connection in taken:
            if connection is not None:
                connection.close()
            self._idle.put(None)

    def analyse(
        self, text: str, parameters: Sequence[int] = (), path: Sequence[str] = PUBLIC_PATH
    ) -> Analysis:
        """Types and names of what ``text`` returns. ``parameters``: OIDs, 0 for unknown."""
        with self._session() as connection:
            server = connection.pgconn
            # Our system's relations are found without their schema; lists of relations leave them
            # out, as those of pg_catalog.
            _accept(server.exec_(_set_path((*path, _SYSTEM))))
            described = _described(server, text, parameters)
            types = tuple(described.param_type(n) for n in range(described.nparams))
            return Analysis(_columns(described), types)

    def run(
        self,
        text: str,
        parameters: Sequence[str | None] = (),
        settings: Mapping[str, str] = MappingProxyType({}),
        path: Sequence[str] = PUBLIC_PATH,
    ) -> Answer:
        """Every row of ``text``; parameters in text form, their types inferred.

        ``settings`` hold for it alone; with the rows of some, our system's relations are found.
        """
        rows, size = [], 0
        _bytes(text)
        with self._session() as connection, psycopg.RawCursor(connection) as cursor:
            try:
                for name, value in settings.items():
                    cursor.execute("SELECT set_config($1, $2, false)", [name, value], prepare=False)
                if any(not name.startswith(SESSION) for name in settings):
                    _accept(connection.pgconn.exec_(_set_path((*path, _SYSTEM))))
                elif tuple(path) != PUBLIC_PATH:
                    _accept(connection.pgconn.exec_(_set_path(path)))
                # A list, even if empty, makes it the extended protocol.
                for row in cursor.stream(text, list(parameters)):
                    rows.append(tuple(row))
                    size += sum(len(value) for value in row if value is not None)
                    if len(rows) > ROWS_MAX or size > BYTES_MAX:
                        raise AnswerTooLarge(ROWS_MAX, BYTES_MAX)
            except psycopg.Error as error:
                if cursor.pgresult is None and error.sqlstate is None and not connection.closed:
                    raise PostgresRejected("a catalog query returns rows", "0A000") from None
                raise _rejection(error) from None
            # Rows that are streamed bring their columns with them. Where there is none they are
            # asked for, or a client would see an answer without columns.
            result = cursor.pgresult or _described(connection.pgconn, text)
            columns = _columns(result)
        return Answer(columns, tuple(rows))

    @contextlib.contextmanager
    def _session(self) -> Iterator[psycopg.Connection[Any]]:
        try:
            connection = self._idle.get(timeout=_WAIT_SECONDS)
        except queue.Empty:
            raise ShadowUnavailable("every session of the shadow PostgreSQL is busy") from None
        kept: psycopg.Connection[Any] | None = None
        try:
            if connection is None or connection.closed:
                connection = self._connect()
                _read_text(connection)
            yield connection
            kept = connection
        except (AnswerTooLarge, PostgresRejected):
            kept = connection  # The session is as good as before, unless wiping it says otherwise.
            raise
        except psycopg.OperationalError as error:
            raise ShadowUnavailable(f"the shadow PostgreSQL is gone: {error}") from error
        finally:
            if kept is not None and not _wipe(kept):
                kept = None
            if kept is None and connection is not None:
                connection.close()
            self._idle.put(kept)


def _set_path(path: Sequence[str]) -> bytes:
    names = sql.SQL(", ").join(map(sql.Identifier, path)) if path else sql.SQL("''")
    return sql.SQL("SET search_path = {}").format(names).as_bytes(None)


def _read_text(connection: psycopg.Connection[Any]) -> None:
    for known in connection.adapters.types:
        connection.adapters.register_loader(known.oid, _TextLoader)
        if known.array_oid:
            connection.adapters.register_loader(known.array_oid, _TextLoader)
    connection.adapters.register_loader(0, _TextLoader)
    connection.adapters.register_dumper(str, StrDumperUnknown)


def _wipe(connection: psycopg.Connection[Any]) -> bool:
    try:
        connection.execute("DISCARD ALL")
    except psycopg.Error:
        return False
    return True


def _bytes(text: str) -> bytes:
    if "\0" in text:
        raise PostgresRejected('invalid byte sequence for encoding "UTF8": 0x00', "22021")
    return text.encode()


def _accept(result: pq.abc.PGresult) -> None:
    if result.status == pq.ExecStatus.FATAL_ERROR:
        raise _rejection(psycopg.errors.error_from_result(result))


def _described(server: pq.abc.PGconn, text: str, parameters: Sequence[int] = ()) -> pq.abc.PGresult:
    _accept(server.prepare(b"", _bytes(text), list(parameters) or None))
    described = server.describe_prepared(b"")
    _accept(described)
    return described


def _rejection(error: psycopg.Error) -> Exception:
    said = error.diag
    if said.sqlstate is None or said.message_primary is None or said.sqlstate[:3] in _GONE:
        return ShadowUnavailable(f"the shadow PostgreSQL is gone: {error}")
    return PostgresRejected(
        said.message_primary,
        said.sqlstate,
        detail=said.message_detail,
        hint=HINT if _is_about_the_process(said) else said.message_hint,
        position=int(said.statement_position) if said.statement_position else None,
    )


def _is_about_the_process(said: psycopg.errors.Diagnostic) -> bool:
    return said.sqlstate == _DENIED and "pg_stat_" in (said.message_primary or "")


def _columns(result: pq.abc.PGresult) -> tuple[ResultColumn, ...]:
    return tuple(
        ResultColumn(
            (result.fname(n) or b"").decode(), result.ftype(n), result.fmod(n), result.fsize(n)
        )
        for n in range(result.nfields)
    )

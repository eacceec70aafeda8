"""One client's connection: pg-mimic's protocol loop, with the statements handled by us.

From pg-mimic come start-up, authentication, framing, the dispatch of messages, skip-until-Sync
after an error and cancellation. Ours is everything between a message and the backend:

- the text is parsed into :data:`~headwater.adapter.sql.statements.Statement` before anything
  runs, the whole text of a simple query included;
- every blocking call is made in the connection's :class:`~.worker.Worker`, so the event loop
  never waits;
- rows leave in chunks, each drained before the next is encoded: a slow client bounds our memory;
- a portal runs its statement once, at Describe if the client asks for the columns then, else at
  Execute;
- ``tx_status`` is PostgreSQL's: I, T, and E after an error inside a transaction, from which only
  ROLLBACK (or COMMIT, which then rolls back) leads out.

Not yet: several statements of one simple query are not one transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pg_mimic import messages
from pg_mimic.connection import Connection
from pg_mimic.errors import PgError
from pg_mimic.session import BaseSession
from pg_mimic.stream import ConnectionClosed

from headwater.adapter.errors import (
    AdapterError,
    TransactionFailed,
    UnknownPrepared,
    UnknownSetting,
)
from headwater.adapter.pgwire import parameters, variables
from headwater.adapter.pgwire.backend import Backend, Column, Result
from headwater.adapter.pgwire.rows import RowStream, format_of
from headwater.adapter.pgwire.worker import Worker
from headwater.adapter.sql import statements
from headwater.adapter.sql.parse import parse_with_text
from headwater.adapter.sql.tokens import DATABASE, SCHEMA, Source
from headwater.adapter.sql.types import TEXT, wire_type

LOG = logging.getLogger(__name__)

ROWS_PER_WRITE_MAX = 1_000

IDLE, IN_TRANSACTION, FAILED = b"I", b"T", b"E"

_RETURNS_ROWS = (
    statements.Select,
    statements.SelectSession,
    statements.Show,
    statements.ShowTables,
)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement of the extended protocol: its text, and the types of its parameters.

    ``source`` None is the empty statement, which PostgreSQL lets one prepare too.
    """

    source: Source | None
    param_oids: tuple[int, ...]


@dataclass(slots=True)
class BoundPortal:
    """A statement with its parameters, and its result from the moment it has run."""

    statement: statements.Statement | None
    sql: str
    formats: Sequence[int]
    result: Result | None = None
    rows: RowStream | None = field(default=None, repr=False)


class _NoSession(BaseSession):  # type: ignore[misc]  # pg-mimic is Any here
    """pg-mimic's own session, which our handlers make idle."""

    async def prepare(self, sql: str, param_oids: list[int | None]) -> Any:
        """Never called: every handler that would is overridden."""
        raise NotImplementedError


class WireConnection(Connection):  # type: ignore[misc]  # pg-mimic is Any here
    """The protocol's server side for one client."""

    def __init__(
        self,
        stream: Any,
        server: Any,
        pid: int,
        secret: int,
        startup_params: dict[str, str],
        backend: Backend,
    ) -> None:
        self.tx_status: bytes
        super().__init__(stream, _NoSession(), server, pid, secret, startup_params)
        self._variables = variables.SessionVariables(startup_params.get("application_name", ""))
        self._worker = Worker(backend, f"headwater-wire-{pid}")

    async def run(self) -> None:
        """Serve the client until it leaves. Closing the session is :meth:`close_session`."""
        try:
            await super().run()
        except ConnectionError:
            LOG.debug("client of connection %d is gone", self.pid)

    async def close_session(self) -> None:
        """Close the backend's session after what it is doing."""
        try:
            await self._worker.close()
        except Exception:
            LOG.exception("the session of connection %d did not close", self.pid)

    async def _dispatch(self, tag: bytes, payload: bytes) -> None:
        await super()._dispatch(tag, payload)
        if tag == messages.SYNC and self.tx_status == IDLE:
            # A portal lives as long as its transaction, which ends here.
            for name in tuple(self.portals):
                await self._close_portal(name)

    # --- simple protocol --------------------------------------------------------------------------

    async def _handle_simple_query(self, sql: str) -> None:
        with _reported():
            parsed = parse_with_text(sql)
            if not parsed:
                self.stream.write(messages.make_empty_query_response())
            for statement, text in parsed:
                portal = BoundPortal(statement, text, ())
                try:
                    result = await self._run(portal)
                    if result.columns is not None:
                        self.stream.write(_row_description(result.columns, ()))
                    await self._send_rows(portal, 0)
                finally:
                    await self._release(portal)

    # --- extended protocol ------------------------------------------------------------------------

    async def _handle_parse(self, parsed: Any) -> None:
        with _reported():
            source = parameters.only_statement(parsed.sql)
            total = 0 if source is None else parameters.count(source)
            given = tuple(parsed.param_oids[:total])
            # A type left open is text to us: the literal it becomes is of unknown type anyway.
            oids = tuple(oid or TEXT.oid for oid in given) + (TEXT.oid,) * (total - len(given))
            if source is not None and not oids:
                parse_with_text(source.text)  # Errors are due now. With parameters: at Bind.
            self.statements[parsed.statement_name] = Prepared(source, oids)
            self.stream.write(messages.make_parse_complete())

    async def _handle_bind(self, parsed: Any) -> None:
        with _reported():
            prepared = self._prepared(parsed.statement_name)
            values = [
                self._decode_param(
                    value,
                    format_of(parsed.param_format_codes, index),
                    list(prepared.param_oids),
                    index,
                )
                for index, value in enumerate(parsed.params)
            ]
            await self._close_portal(parsed.portal_name)
            self.portals[parsed.portal_name] = _bound(
                prepared, values, tuple(parsed.result_format_codes)
            )
            self.stream.write(messages.make_bind_complete())

    async def _handle_describe(self, parsed: Any) -> None:
        with _reported():
            if parsed.kind == messages.TARGET_STATEMENT:
                prepared = self._prepared(parsed.name)
                columns = await self._columns_of(prepared)
                self.stream.write(messages.make_parameter_description(list(prepared.param_oids)))
                formats: Sequence[int] = ()
            else:
                portal = self._portal(parsed.name)
                formats = portal.formats
                columns = None
                if isinstance(portal.statement, _RETURNS_ROWS):
                    columns = (await self._run(portal)).columns
            if columns is None:
                self.stream.write(messages.make_no_data())
            else:
                self.stream.write(_row_description(columns, formats))

    async def _handle_execute(self, parsed: Any) -> None:
        with _reported():
            portal = self._portal(parsed.portal_name)
            if portal.statement is None:
                self.stream.write(messages.make_empty_query_response())
                return
            await self._run(portal)
            await self._send_rows(portal, parsed.max_rows)

    async def _handle_close(self, parsed: Any) -> None:
        with _reported():
            if parsed.kind != messages.TARGET_STATEMENT:
                await self._close_portal(parsed.name)
            await super()._handle_close(parsed)

    def _prepared(self, name: str) -> Prepared:
        prepared = self.statements.get(name)
        if prepared is None:
            raise UnknownPrepared("prepared statement", name)
        assert isinstance(prepared, Prepared)
        return prepared

    def _portal(self, name: str) -> BoundPortal:
        portal = self.portals.get(name)
        if portal is None:
            raise UnknownPrepared("portal", name)
        assert isinstance(portal, BoundPortal)
        return portal

    async def _columns_of(self, prepared: Prepared) -> tuple[Column, ...] | None:
        """The columns of a statement not bound yet: it is run for no rows, parameters NULL."""
        portal = _bound(prepared, [None] * len(prepared.param_oids), ())
        if not isinstance(portal.statement, _RETURNS_ROWS):
            return None
        if isinstance(portal.statement, statements.Select):
            select = portal.statement
            portal.statement = statements.Select(
                f"SELECT * FROM ({select.query_sql}\n) AS described LIMIT 0",  # noqa: S608, it parsed
                select.as_of,
                select.tables,
            )
        try:
            return (await self._run(portal)).columns
        finally:
            await self._release(portal)

    # --- running ----------------------------------------------------------------------------------

    async def _run(self, portal: BoundPortal) -> Result:
        """The portal's result; the first call executes the statement."""
        if portal.result is None:
            assert portal.statement is not None
            portal.result = await self._execute(portal.statement, portal.sql)
            if portal.result.columns is not None:
                portal.rows = RowStream(portal.result)
        return portal.result

    async def _execute(self, statement: statements.Statement, sql: str) -> Result:
        if self.tx_status == FAILED:
            if not isinstance(statement, statements.Commit | statements.Rollback):
                raise TransactionFailed
            statement = statements.Rollback()
        match statement:
            case statements.Show(name) if self._variables.holds(name):
                return _one_row({name: self._variables.show(name)}, "SHOW")
            case statements.SetVariable(name, value) if self._variables.holds(name):
                warning = self._variables.assign(name, value)
                if warning is not None:
                    self._warn("01000", warning)
                return Result("SET")
            case statements.SelectSession(columns):
                return _one_row(
                    {column.name: self._session_value(column) for column in columns}, "SELECT"
                )
            case statements.Begin():
                if self.tx_status == IN_TRANSACTION:
                    self._warn("25001", "there is already a transaction in progress")
                    return Result("BEGIN")
                result = await self._worker.execute(statement, sql)
                self.tx_status = IN_TRANSACTION
                return result
            case statements.Commit() | statements.Rollback():
                if self.tx_status == IDLE:
                    self._warn("25P01", "there is no transaction in progress")
                    tag = "COMMIT" if isinstance(statement, statements.Commit) else "ROLLBACK"
                    return Result(tag)
                self.tx_status = IDLE  # Whatever the outcome: a COMMIT that fails has ended it too.
                return await self._worker.execute(statement, sql)
            case _:
                return await self._worker.execute(statement, sql)

    def _session_value(self, column: statements.SessionColumn) -> str:
        match column.function:
            case "version":
                return variables.VERSION_TEXT
            case "current_database" | "current_catalog":
                return DATABASE
            case "current_schema":
                return SCHEMA
            case "current_user" | "session_user":
                return str(self.username)
            case "pg_backend_pid":
                return str(self.pid)
            case "pg_is_in_recovery":
                return "f"
            case "current_setting":
                assert column.argument is not None
                if not self._variables.holds(column.argument):
                    raise UnknownSetting(column.argument)
                return self._variables.show(column.argument)
            case function:
                raise AssertionError(f"the parser knows {function}, the wire does not")

    def _warn(self, sqlstate: str, message: str) -> None:
        notice = {"S": "WARNING", "V": "WARNING", "C": sqlstate, "M": message}
        self.stream.write(messages.make_notice_response(notice))

    async def _send_rows(self, portal: BoundPortal, rows_max: int) -> None:
        """Rows and the end of the command, or the suspension after ``rows_max`` (0: no limit)."""
        assert portal.result is not None
        sent = 0
        while portal.rows is not None:
            room = ROWS_PER_WRITE_MAX if rows_max <= 0 else min(ROWS_PER_WRITE_MAX, rows_max - sent)
            if room == 0:
                self.stream.write(messages.make_portal_suspended())
                return
            rows, formats = portal.rows, portal.formats
            encoded, taken = await self._worker.call(lambda: rows.take(room, formats))  # noqa: B023
            if taken == 0:
                await self._release(portal)
                break
            sent += taken
            self.stream.write(encoded)
            await self.stream.drain()
        tag = portal.result.tag
        self.stream.write(
            messages.make_command_complete(f"{tag} {sent}" if tag == "SELECT" else tag)
        )

    async def _close_portal(self, name: str) -> None:
        portal = self.portals.pop(name, None)
        if portal is not None:
            await self._release(portal)

    async def _release(self, portal: BoundPortal) -> None:
        rows, portal.rows = portal.rows, None
        if rows is not None:
            await self._worker.call(rows.close)


def _bound(prepared: Prepared, values: Sequence[object], formats: Sequence[int]) -> BoundPortal:
    if prepared.source is None:
        return BoundPortal(None, "", formats)
    sql = parameters.bind(prepared.source, values, prepared.param_oids)
    ((statement, text),) = parse_with_text(sql)
    return BoundPortal(statement, text, formats)


def _one_row(values: dict[str, str], tag: str) -> Result:
    columns = tuple(Column(name, pa.string()) for name in values)
    arrays = [pa.array([value]) for value in values.values()]
    return Result(tag, columns, [pa.RecordBatch.from_arrays(arrays, names=list(values))])


def _row_description(columns: Sequence[Column], formats: Sequence[int]) -> bytes:
    fields = []
    for index, column in enumerate(columns):
        wire = wire_type(column.type)
        fields.append(
            messages.FieldSpec(
                name=column.name,
                oid=wire.oid,
                type_size=wire.size,
                type_modifier=wire.modifier,
                format_code=format_of(formats, index),
            )
        )
    described: bytes = messages.make_row_description(fields)
    return described


@contextmanager
def _reported() -> Iterator[None]:
    """Turn what goes wrong inside into what pg-mimic sends as an ErrorResponse."""
    try:
        yield
    except AdapterError as error:
        fields = {
            "D": error.detail,
            "H": error.hint,
            "P": None if error.position is None else str(error.position),
        }
        given = {code: value for code, value in fields.items() if value is not None}
        raise PgError(error.sqlstate, error.primary, **given) from error
    except (PgError, ConnectionClosed, ConnectionError):
        raise
    except Exception as error:
        # Our mistake, not the client's: it is told so, and the trace is ours to read.
        LOG.exception("a statement failed with an unexpected error")
        raise PgError("XX000", f"internal error: {type(error).__name__}: {error}") from error

"""What the statements of one connection do: its transaction, portals, cursors, variables, COPYs.

:class:`Execution` runs a portal's statement once (:meth:`Execution.run`) and sends its rows
(:meth:`Execution.send`), as often as it is asked. Statements of the wire are done here; all others
go to the backend's session, as promised in :mod:`.backend`: transactions well formed, one call at
a time. :mod:`.connection` decides what is asked when.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from headwater.adapter.errors import (
    TransactionFailed,
    UnknownPrepared,
    Unsupported,
)
from headwater.adapter.pgwire import refusals, variables
from headwater.adapter.pgwire import wire_statements as wire
from headwater.adapter.pgwire.backend import Column, CopyOut, Result, TellsColumns
from headwater.adapter.pgwire.calls import Calls
from headwater.adapter.pgwire.copying import receive, send_copy
from headwater.adapter.pgwire.framing import Stream
from headwater.adapter.pgwire.grouping import Group, grouped
from headwater.adapter.pgwire.kinds import asks, has_rows, is_left, reads
from headwater.adapter.pgwire.portals import Answer, Portal, Prepared, bound
from headwater.adapter.pgwire.prepare_statements import ExecutePrepared, Prepare
from headwater.adapter.pgwire.preparing import described, executed, undescribed
from headwater.adapter.pgwire.rows import PIECE_ROWS_MAX, RowStream, row_encoder
from headwater.adapter.pgwire.variable_statements import VariableStatements
from headwater.adapter.sql import statements
from headwater.adapter.sql.tokens import Source

IDLE, IN_TRANSACTION, FAILED = b"I", b"T", b"E"
EXECUTE_DEPTH_MAX: Final = 100
_SETTINGS: Final = "pg_settings"
"""The one relation of the catalog that has something of the connection's."""
_WAYS_OUT: Final = (statements.Commit, statements.Rollback, statements.RollbackTo)
"""Of a failed transaction."""
_RUN_HERE: Final = (wire.DeclareCursor, wire.CloseCursor, wire.Deallocate, Prepare)
"""What has no rows and fails while it runs, not when it is looked at."""


class Execution:
    """The statements of one connection."""

    def __init__(
        self, stream: Stream, calls: Calls, held: variables.SessionVariables, user: str, pid: int
    ) -> None:
        self.status = IDLE
        self.failed_now = False
        self.prepared: dict[str, Prepared] = {}
        self.portals: dict[str, Portal] = {}
        self.variables = held
        self._stream = stream
        self._calls = calls
        self._variables = VariableStatements(stream, held, self._backend, user, pid)
        self._grouped = False

    @property
    def _in_transaction(self) -> bool:
        return self.status == IN_TRANSACTION or self._grouped

    # --- transactions -----------------------------------------------------------------------------

    def fail(self) -> None:
        """An error was told to the client."""
        self.failed_now = True
        if self.status == IN_TRANSACTION:
            self.status = FAILED
            for portal in self.portals.values():
                portal.failed = True

    def check_not_failed(self, statement: wire.AnyStatement | None) -> None:
        """Refuse what is not the end of a failed transaction."""
        if self.status == FAILED and not isinstance(statement, _WAYS_OUT):
            raise TransactionFailed

    def end_of_series(self) -> None:
        """A simple query, or a series up to Sync, is over."""
        if self.status == IDLE:
            self._close_portals()

    @asynccontextmanager
    async def grouped(
        self, parsed: Sequence[tuple[wire.AnyStatement, str]]
    ) -> AsyncIterator[Group]:
        """The statements of one simple query as one transaction, if the session can."""
        if self.status != IDLE:
            yield Group(self._calls, active=False)
            return
        async with grouped(self._calls, [statement for statement, _ in parsed]) as group:
            self._grouped, committed = group.active, False
            if self._grouped:
                self.variables.begin()
            try:
                yield group
                committed = True
            finally:
                if self._grouped:
                    self._grouped = False
                    self._variables.end_transaction(committed=committed)

    # --- prepared statements ----------------------------------------------------------------------

    async def prepare(self, source: Source | None, oids: Sequence[int]) -> Prepared:
        """What is known of a statement without its values; None is the empty one."""
        found = undescribed(source, oids, self.variables.dialect)
        if source is None:
            return found
        self.check_not_failed(found.statement)
        if isinstance(found.statement, ExecutePrepared):
            columns = await self._execute_columns(found.statement)
            told = None if columns is None else tuple(columns)
            return replace(found, described=True, columns=told)
        if self.is_for_session(found.statement):
            return await described(found, oids, self._calls)
        return found

    def keep(self, name: str, prepared: Prepared) -> None:
        """Keep a prepared statement under a name that is free; the unnamed one always is."""
        if name and name in self.prepared:
            raise refusals.DuplicatePrepared(name)
        self.prepared[name] = prepared

    async def _execute_columns(self, asked: ExecutePrepared) -> Sequence[Column] | None:
        """The columns of an EXECUTE; that it has nothing to execute is told when it is run."""
        known = self.prepared.get(asked.name)
        if known is None or known.described:
            return None if known is None else known.columns
        nulls = bound(known, [None] * len(known.parameter_oids), ())
        return await self.columns_without_running(nulls)

    async def _executed(self, asked: ExecutePrepared) -> Answer:
        # What is prepared by the protocol may be an EXECUTE itself, even of its own name.
        for _ in range(EXECUTE_DEPTH_MAX):
            if asked.name not in self.prepared:
                raise UnknownPrepared("prepared statement", asked.name)
            portal = executed(asked, self.prepared[asked.name])
            if portal.statement is None:
                return Answer("EXECUTE")  # Of an empty text, which has no tag of its own.
            if not isinstance(portal.statement, ExecutePrepared):
                return await self._start(portal.statement, portal.sql)
            asked = portal.statement
        raise refusals.ExecutedTooDeep(asked.name)

    # --- portals ----------------------------------------------------------------------------------

    def close_portal(self, name: str) -> None:
        """Forget a portal, if there is one of this name."""
        portal = self.portals.pop(name, None)
        if portal is not None:
            self.release(portal)

    def leave(self, portal: Portal) -> None:
        """As PostgreSQL: what failed while it ran, without rows, is the unnamed portal until the
        transaction ends; it can be described."""
        if self.status == IN_TRANSACTION and isinstance(portal.statement, _RUN_HERE):
            self.portals[""] = portal

    def close(self) -> None:
        """The client is gone: let go of every portal, in the worker, before its session ends."""
        self._close_portals(held=True)

    def _close_portals(self, *, held: bool = False) -> None:
        for name, portal in tuple(self.portals.items()):
            if held or not portal.hold:
                self.close_portal(name)

    def release(self, portal: Portal) -> None:
        """Let go of rows nobody will ask for. What a call still does with them comes first."""
        answer = portal.answer
        if answer is not None and answer.rows is not None and not answer.shared and not portal.done:
            portal.done = True  # What is closed says that it has ended, and has its columns still.
            if not answer.rows.is_over:
                self._calls.forget(answer.rows.close)

    def is_for_session(self, statement: wire.AnyStatement | None) -> bool:
        """Whether the session may be asked for its types; None is one not known without values."""
        if self.status == FAILED:
            return False
        match statement:
            case statements.Show(name) | statements.SetVariable(name):
                return not self.variables.holds(name)
            case statements.SelectSession() | statements.Begin() | statements.Commit():
                return False
            case statements.Savepoint() | statements.RollbackTo() | statements.Release():
                return False
            case _:
                return not isinstance(statement, wire.WireStatement | statements.Rollback)

    def has_rows(self, prepared: Prepared) -> bool:
        """Whether a prepared statement answers with rows."""
        if prepared.described:
            return prepared.columns is not None
        if isinstance(prepared.statement, wire.Fetch):
            return self._cursor_columns(prepared.statement.name) is not None
        return prepared.statement is not None and has_rows(prepared.statement)

    async def columns(self, portal: Portal) -> Sequence[Column] | None:
        """The columns of a portal; where nothing else tells them, a read is run."""
        if portal.answer is None:
            if isinstance(portal.statement, ExecutePrepared):
                return await self._execute_columns(portal.statement)
            if portal.prepared is not None and portal.prepared.described:
                return portal.prepared.columns
            if isinstance(portal.statement, wire.Fetch):
                return self._cursor_columns(portal.statement.name)
            if portal.statement is None or not has_rows(portal.statement):
                return None
            await self.run(portal)
        assert portal.answer is not None
        rows = portal.answer.rows
        return None if rows is None or portal.answer.copied is not None else rows.columns

    async def columns_without_running(self, portal: Portal) -> Sequence[Column] | None:
        """The columns of a statement not bound yet, its parameters NULL.

        Where the session does not tell them, a query is run for no rows.
        """
        asked = portal.statement
        if asked is not None and asks(asked):
            told = await self._calls.call(lambda: self._told(asked), abandon=True)
            if told is not None:
                return told
        if portal.statement is None or not reads(portal.statement):
            return await self.columns(portal) if isinstance(portal.statement, wire.Fetch) else None
        if isinstance(portal.statement, statements.Select):
            select = portal.statement
            portal.statement = statements.Select(
                f"SELECT * FROM ({select.query_sql}\n) AS described LIMIT 0",  # noqa: S608, it parsed
                select.as_of,
                select.tables,
            )
        try:
            return await self.columns(portal)
        finally:
            self.release(portal)

    def _told(self, statement: statements.ForSession) -> Sequence[Column] | None:
        session = self._calls.worker.session()
        return session.columns(statement) if isinstance(session, TellsColumns) else None

    # --- running ----------------------------------------------------------------------------------

    async def run(self, portal: Portal) -> Answer:
        """The portal's answer; the first call executes the statement."""
        if portal.answer is None:
            assert portal.statement is not None
            portal.answer = await self._start(portal.statement, portal.sql)
        elif portal.done and portal.answer.rows is None and not portal.answer.counted:
            raise refusals.InvalidPortalState("the portal cannot be run")
        return portal.answer

    async def _start(self, statement: wire.AnyStatement, sql: str) -> Answer:
        self.check_not_failed(statement)
        if self.status == FAILED and not isinstance(statement, statements.RollbackTo):
            statement = statements.Rollback()
        match statement:
            case statements.SetVariable():
                return await self._variables.assign(
                    statement, sql, in_transaction=self._in_transaction
                )
            case statements.SetTransaction(read_only, session):
                answer = await self._backend(statement, sql)
                if session and read_only is not None:
                    self._variables.read_only_from_now(read_only)
                elif self._in_transaction:
                    self.variables.begin_with(read_only)
                return answer
            case statements.Begin(read_only):
                if self.status == IN_TRANSACTION:
                    self._variables.warn("25001", "there is already a transaction in progress")
                    return Answer("BEGIN")
                answer = await self._backend(statement, sql)
                self.variables.begin()
                self.variables.begin_with(read_only)
                self.status = IN_TRANSACTION
                return answer
            case statements.Commit() | statements.Rollback():
                if self.status == IDLE:
                    self._variables.warn("25P01", "there is no transaction in progress")
                    tag = "COMMIT" if isinstance(statement, statements.Commit) else "ROLLBACK"
                    self._close_portals()
                    return Answer(tag)
                self.status = IDLE  # Whatever the outcome: a COMMIT that fails has ended it too.
                self._close_portals()
                committed = False
                try:
                    answer = await self._backend(statement, sql)
                    committed = isinstance(statement, statements.Commit)
                finally:
                    self._variables.end_transaction(committed=committed)
                return answer
            case statements.Savepoint() | statements.RollbackTo() | statements.Release():
                if self.status == IDLE:
                    raise refusals.NoTransaction(" ".join(sql.split()[:2]).upper())
                answer = await self._backend(statement, sql)
                self._variables.savepoint(statement)
                self.status = IN_TRANSACTION
                return answer
            case wire.CopyTo(query, query_sql, chosen):
                with refusals.placed(_place(sql, query_sql)):
                    answer = await self._asked(query, query_sql)
                if answer.rows is None:
                    raise Unsupported("COPY of a statement without rows")
                answer.tag, answer.counted, answer.copied = "COPY", True, chosen
                return answer
            case ExecutePrepared():
                return await self._executed(statement)
            case wire.CopyFrom():
                received = await receive(self._stream, self._calls, statement)
                return Answer(f"COPY {received}")
            case _:
                pass
        if isinstance(statement, wire.WireStatement):
            return await self._connection_statement(statement, sql)
        return await self._asked(statement, sql)

    async def _asked(self, statement: statements.Statement, sql: str) -> Answer:
        """The answer to a statement that changes nothing of the connection, wherever it stands."""
        match statement:
            case statements.Show(name):
                return await self._variables.show(name, sql)
            case statements.SelectSession(columns):
                return await self._variables.session_functions(
                    columns, in_transaction=self._in_transaction
                )
            case statements.SelectCatalog(query) if _SETTINGS in query.lower():
                shown = await self._variables.shown()
                return await self._backend(replace(statement, variables=shown), sql)
            case _:
                return await self._backend(statement, sql)

    async def _backend(self, statement: statements.ForSession, sql: str) -> Answer:
        result = await self._calls.execute(statement, sql, abandon=is_left(statement))
        match result:
            case CopyOut(columns, batches, chosen):
                return Answer("COPY", RowStream(columns, batches), counted=True, copied=chosen)
            case Result(tag, None):
                return Answer(tag)
            case Result(tag, columns, batches):
                assert columns is not None
                return Answer(tag, RowStream(columns, batches), counted=tag == "SELECT")

    async def _connection_statement(self, statement: wire.WireStatement, sql: str) -> Answer:
        match statement:
            case wire.DeclareCursor(name, query, query_sql, binary, hold):
                if self.status == IDLE and not hold and not self._grouped:
                    raise refusals.NoTransaction("DECLARE CURSOR")
                if name in self.portals:
                    raise refusals.DuplicateCursor(name)
                with refusals.placed(_place(sql, query_sql)):
                    answer = await self._asked(query, query_sql)
                if answer.rows is None:
                    raise Unsupported("a cursor over a statement without rows")
                answer.binary, answer.counted = binary, True
                formats = (1,) if binary else ()
                self.portals[name] = Portal(
                    query, query_sql, formats, answer, hold=hold, binary=binary
                )
                return Answer("DECLARE CURSOR")
            case wire.Fetch(name, rows_max, timeout_ms):
                await self._run_portal(name)
                return Answer(
                    "FETCH",
                    self._cursor(name),
                    counted=True,
                    rows_max=rows_max,
                    timeout_ms=timeout_ms,
                    shared=True,
                    binary=self.portals[name].binary,
                )
            case wire.Move(name, rows_max):
                await self._run_portal(name)
                rows = self._cursor(name)
                passed = self._calls.call(lambda: rows.pass_over(rows_max), abandon=True)
                return Answer(f"MOVE {await passed}")
            case wire.CloseCursor(None):
                self._close_portals(held=True)
                return Answer("CLOSE CURSOR ALL")
            case wire.CloseCursor(name):
                assert name is not None
                self._cursor(name)
                self.close_portal(name)
                return Answer("CLOSE CURSOR")
            case Prepare(name, oids, query):
                with refusals.placed(_place(sql, query.text)):
                    found = await self.prepare(query, oids)
                    if not found.described and not found.parameter_oids:
                        # What is wrong with it is told now.
                        await self.columns_without_running(bound(found, (), ()))
                self.keep(name, found)
                return Answer("PREPARE")
            case wire.Deallocate(None):
                self.prepared.clear()
                return Answer("DEALLOCATE ALL")
            case wire.Deallocate(name):
                assert name is not None
                if self.prepared.pop(name, None) is None:
                    raise UnknownPrepared("prepared statement", name)
                return Answer("DEALLOCATE")
            case wire.Discard():
                self._close_portals(held=True)
                self.prepared.clear()
                await self._variables.reset_all()
                return Answer("DISCARD ALL")
            case wire.ResetAll():
                await self._variables.reset_all()
                return Answer("RESET")
            case _:
                return Answer("UNLISTEN")

    async def _run_portal(self, name: str) -> None:
        """A portal made by Bind is a cursor too, which the first FETCH runs."""
        portal = self.portals.get(name)
        if portal is None or portal.answer is not None or portal.statement is None:
            return
        if has_rows(portal.statement):
            await self.run(portal)

    def _cursor_columns(self, name: str) -> Sequence[Column] | None:
        """The columns of a cursor; that there is none is for FETCH to complain about."""
        try:
            return self._cursor(name).columns
        except refusals.UnknownCursor:
            return None

    def _cursor(self, name: str) -> RowStream:
        portal = self.portals.get(name)
        if portal is None or portal.answer is None or portal.answer.rows is None:
            raise refusals.UnknownCursor(name)
        return portal.answer.rows

    # --- sending ----------------------------------------------------------------------------------

    async def send(self, portal: Portal, rows_max: int) -> str | None:
        """Rows, and the tag of the end; None after ``rows_max`` of them (0: no limit)."""
        answer = portal.answer
        assert answer is not None
        if answer.copied is not None and answer.rows is not None:
            copied = await send_copy(self._stream, self._calls, answer.rows, answer.copied)
            self.release(portal)
            return f"COPY {copied}"
        sent = 0
        if answer.rows is not None:
            sent, suspended = await self._send_rows(portal, answer.rows, rows_max)
            if suspended:
                return None
            self.release(portal)
        portal.done = True
        return f"{answer.tag} {sent}" if answer.counted else answer.tag

    async def _send_rows(self, portal: Portal, rows: RowStream, rows_max: int) -> tuple[int, bool]:
        answer = portal.answer
        assert answer is not None
        encode = row_encoder(rows.columns, portal.formats)
        loop = asyncio.get_running_loop()
        until = None if answer.timeout_ms is None else loop.time() + answer.timeout_ms / 1000
        sent = 0
        while True:
            room = PIECE_ROWS_MAX
            if rows_max > 0:
                room = min(room, rows_max - sent)
                if room == 0:  # As PostgreSQL: whether there is more is found out when asked.
                    return sent, True
            if answer.rows_max is not None:
                room = min(room, answer.rows_max - answer.rows_sent)
                if room == 0:
                    return sent, False
            if rows.is_small:
                piece = rows.take(room, encode)
            else:
                piece = await self._calls.call(
                    lambda: rows.take(room, encode),  # noqa: B023, it is awaited here
                    abandon=True,
                )
            sent += piece.rows
            answer.rows_sent += piece.rows
            self._stream.write(piece.data)
            if piece.ended and not (rows_max > 0 and sent == rows_max):
                return sent, False
            await self._stream.drain()
            if until is not None and piece.rows == 0 and loop.time() >= until:
                return sent, False


def _place(sql: str, query_sql: str) -> int | None:
    """Where a query stands in the statement around it; None if the statement only implies it."""
    found = sql.find(query_sql)
    return None if found < 0 else found

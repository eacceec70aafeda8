"""One client's connection after its start: messages in, statements run, messages out.

The loop reads one message at a time and answers it:

- text is parsed before anything runs, the whole text of a simple query included;
- every blocking call is made in the connection's :class:`~.worker.Worker`, so the event loop never
  waits; while a call runs, the next message is already being read, so that a client that vanishes
  is noticed at once and its statement ended;
- rows leave in pieces, each drained before the next is made: a slow client bounds our memory and
  holds up nobody else;
- a portal runs its statement once, at Describe if only that tells its columns, else at Execute;
- after an error in the extended protocol messages are skipped up to Sync; a message whose *framing*
  is wrong ends the connection, because what follows cannot be trusted;
- ``status`` is PostgreSQL's: I, T, and E after an error inside a transaction, from which only
  ROLLBACK (or COMMIT, which then rolls back) leads out.

What one statement does is :mod:`.execution`; cancelling and timeouts are :mod:`.calls`.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Sequence
from dataclasses import replace

from headwater.adapter.errors import (
    AdapterError,
    ProtocolError,
    UnknownPrepared,
    Unsupported,
)
from headwater.adapter.pgwire import frontend, messages, parameters, refusals
from headwater.adapter.pgwire.backend import Column
from headwater.adapter.pgwire.calls import Calls
from headwater.adapter.pgwire.execution import IDLE, Execution
from headwater.adapter.pgwire.framing import Disconnected, Stream
from headwater.adapter.pgwire.portals import Portal, Prepared, bound, check_announced
from headwater.adapter.pgwire.refusals import placed
from headwater.adapter.pgwire.rows import row_description
from headwater.adapter.pgwire.wire_statements import parse_text
from headwater.adapter.too_complex import TooComplex
from headwater.persist.errors import Fenced, Stopped

LOG = logging.getLogger(__name__)


class Connection:
    """The protocol's server side for one client that has been let in."""

    def __init__(self, stream: Stream, calls: Calls, execution: Execution) -> None:
        self._stream = stream
        self._calls = calls
        self._execution = execution
        self._skipping = False

    async def run(self) -> None:
        """Serve the client until it leaves."""
        self._stream.write(messages.ready_for_query(self._execution.status))
        await self._stream.drain()
        while True:
            try:
                tag, payload = await self._next_message()
            except AdapterError as error:
                # The framing is lost, or the client kept a transaction for too long.
                await self._end(error)
                return
            if tag == frontend.TERMINATE:
                return
            if not self._skipping or tag == frontend.SYNC:
                try:
                    await self._answer(tag, payload)
                except refusals.Replaced as error:
                    await self._end(error)
                    return
            if self._calls.waits():
                await self._stream.drain()
            else:
                await self._stream.flush()

    async def _end(self, error: AdapterError) -> None:
        """Tell the client why this connection ends."""
        self._stream.write(refusals.response(error, "FATAL"))
        await self._calls.end_reading()
        await self._stream.linger()

    async def _next_message(self) -> tuple[bytes, bytes]:
        idle = self._execution.status == IDLE
        name = "idle_session_timeout" if idle else "idle_in_transaction_session_timeout"
        limit = self._execution.variables.seconds(name)
        if limit is None:
            return await self._calls.next_message()
        try:
            async with asyncio.timeout(limit):
                return await self._calls.next_message()
        except TimeoutError:
            raise (refusals.IdleSession if idle else refusals.IdleInTransaction) from None

    async def _answer(self, tag: bytes, payload: bytes) -> None:
        try:
            await self._dispatch(frontend.decode(tag, payload))
        except AdapterError as error:
            self._refuse(error)
        except (Disconnected, ConnectionError):
            raise
        except (Fenced, Stopped) as error:
            # Nothing can be answered here any more. What was to be committed may be there or not,
            # which is what a client takes a lost connection for.
            raise refusals.Replaced from error
        except RecursionError as error:
            # Python's stack is what bounds how deeply a statement may be nested.
            LOG.warning("a statement is nested too deeply: %s", _where(error))
            self._refuse(TooComplex())
        except Exception as error:
            # Our mistake, not the client's: it is told so, and the trace is ours to read.
            LOG.exception("a statement failed with an unexpected error")
            self._refuse(_Internal(error))
        if tag in (frontend.QUERY, frontend.SYNC, frontend.FUNCTION_CALL):
            self._skipping = False
            self._execution.end_of_series()
            self._stream.write(messages.ready_for_query(self._execution.status))
        elif self._execution.failed_now:
            self._skipping = True
        self._execution.failed_now = False

    def _refuse(self, error: AdapterError) -> None:
        self._stream.write(refusals.response(error))
        self._execution.fail()

    async def _dispatch(self, message: frontend.FrontendMessage) -> None:
        match message:
            case frontend.Query():
                await self._query(message.sql)
            case frontend.Parse():
                await self._parse(message)
            case frontend.Bind():
                self._bind(message)
            case frontend.Describe():
                await self._describe(message)
            case frontend.Execute():
                await self._execute(message)
            case frontend.Close():
                self._close(message)
            case frontend.Flush():
                await self._stream.drain()
            case frontend.Sync():
                pass
            case frontend.CopyData() | frontend.CopyDone() | frontend.CopyFail():
                pass  # What a client had sent when its COPY failed.
            case frontend.FunctionCall():
                raise Unsupported("the function call of the protocol")
            case frontend.Password() | frontend.Terminate():
                raise ProtocolError("a message that has no place here")

    # --- simple protocol --------------------------------------------------------------------------

    async def _query(self, sql: str) -> None:
        self._execution.close_portal("")
        self._execution.prepared.pop("", None)  # As PostgreSQL: the unnamed ones end here.
        parsed = parse_text(sql, self._execution.variables.dialect)
        if not parsed:
            self._stream.write(messages.EMPTY_QUERY_MESSAGE)
        async with self._execution.grouped(parsed) as group:
            start = 0
            for number, (statement, text) in enumerate(parsed, start=1):
                portal = Portal(statement, text)
                start = sql.find(text, start)
                try:
                    with placed(start), self._calls.statement(self._execution.variables):
                        answer = await self._execution.run(portal)
                        if answer.rows is not None and answer.copied is None:
                            formats = (1,) if answer.binary else ()
                            self._stream.write(row_description(answer.rows.columns, formats))
                            portal.formats = formats
                        tag = await self._execution.send(portal, 0)
                        if number == len(parsed):
                            await group.commit()
                    assert tag is not None, "without a limit there is no suspension"
                    self._stream.write(messages.command_complete(tag))
                except AdapterError:
                    self._execution.leave(portal)
                    raise
                finally:
                    self._execution.release(portal)

    # --- extended protocol ------------------------------------------------------------------------

    async def _parse(self, message: frontend.Parse) -> None:
        if not message.statement:
            self._execution.prepared.pop("", None)  # Gone also if this one fails.
        source = parameters.only_statement(message.sql)
        start = None if source is None else source.tokens[0].start
        with placed(start), self._calls.statement(self._execution.variables):
            found = await self._execution.prepare(source, message.parameter_oids)
        self._execution.keep(message.statement, found)
        self._stream.write(messages.PARSE_COMPLETE_MESSAGE)

    def _bind(self, message: frontend.Bind) -> None:
        prepared = self._prepared(message.statement)
        values = parameters.decode(
            message.parameters, message.parameter_formats, prepared.parameter_oids
        )
        self._execution.check_not_failed(prepared.statement)
        if message.portal and message.portal in self._execution.portals:
            raise refusals.DuplicateCursor(message.portal, "portal")
        self._execution.close_portal(message.portal)
        portal = bound(prepared, values, message.result_formats)
        self._execution.portals[message.portal] = portal
        self._stream.write(messages.BIND_COMPLETE_MESSAGE)

    async def _describe(self, message: frontend.Describe) -> None:
        if message.kind == "statement":
            prepared = self._prepared(message.name)
            if self._execution.has_rows(prepared):
                self._execution.check_not_failed(prepared.statement)
            self._stream.write(messages.parameter_description(prepared.parameter_oids))
            columns: Sequence[Column] | None = prepared.columns
            if not prepared.described:
                portal = bound(prepared, [None] * len(prepared.parameter_oids), ())
                with self._calls.statement(self._execution.variables):
                    columns = await self._execution.columns_without_running(portal)
            self._write_columns(columns, ())
            if columns is not None:
                told = replace(prepared, announced=tuple(columns))
                self._execution.prepared[message.name] = told
            return
        portal = self._portal(message.name)
        with placed(_start(portal)), self._calls.statement(self._execution.variables):
            columns = await self._execution.columns(portal)
        if columns is not None:
            self._execution.check_not_failed(None)
        formats = portal.formats
        if not formats and portal.answer is not None and portal.answer.binary:
            formats = (1,)
        self._write_columns(columns, formats)

    def _write_columns(self, columns: Sequence[Column] | None, formats: Sequence[int]) -> None:
        if columns is None:
            self._stream.write(messages.NO_DATA_MESSAGE)
        else:
            self._stream.write(row_description(columns, formats))

    async def _execute(self, message: frontend.Execute) -> None:
        portal = self._portal(message.portal)
        if portal.statement is None:
            self._stream.write(messages.EMPTY_QUERY_MESSAGE)
            return
        self._execution.check_not_failed(None if portal.failed else portal.statement)
        with placed(_start(portal)), self._calls.statement(self._execution.variables):
            await self._execution.run(portal)
            check_announced(portal)
            tag = await self._execution.send(portal, message.rows_max)
        if tag is None:
            self._stream.write(messages.PORTAL_SUSPENDED_MESSAGE)
        else:
            self._stream.write(messages.command_complete(tag))

    def _close(self, message: frontend.Close) -> None:
        if message.kind == "statement":
            self._execution.prepared.pop(message.name, None)
        else:
            self._execution.close_portal(message.name)
        self._stream.write(messages.CLOSE_COMPLETE_MESSAGE)

    def _prepared(self, name: str) -> Prepared:
        prepared = self._execution.prepared.get(name)
        if prepared is None:
            raise UnknownPrepared("prepared statement", name)
        return prepared

    def _portal(self, name: str) -> Portal:
        portal = self._execution.portals.get(name)
        if portal is None:
            raise refusals.UnknownCursor(name, "portal")
        return portal


def _start(portal: Portal) -> int | None:
    """Where a portal's text stands in the client's; None if it has parameters in it."""
    prepared = portal.prepared
    if prepared is None or prepared.source is None or prepared.parameter_oids:
        return None
    return int(prepared.source.tokens[0].start)


def _where(error: BaseException) -> str:
    """The innermost place of an error."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    return f"{frame.f_code.co_qualname}, line {line}"


class _Internal(AdapterError):
    """A mistake of ours."""

    condition = "INTERNAL_ERROR"
    sqlstate = "XX000"

    def __init__(self, error: Exception) -> None:
        super().__init__(f"internal error: {type(error).__name__}: {error}")

"""Blocking calls of a connection that can be ended: by a cancel request, a timeout, a lost client.

:meth:`Calls.call` runs a function in the worker, :meth:`Calls.execute` a statement there or, if it
needs no thread, nowhere. Both wait for whichever comes first:

- it is done: its answer, or its error;
- the statement is cancelled (:meth:`Calls.cancel`, the timeout of :meth:`Calls.statement`): the
  session is asked to end it, and what it then says is the truth. A session that cannot be asked is
  left alone if the call only reads (``abandon``): :class:`~.refusals.Cancelled` is raised at once
  and the call's outcome thrown away when it comes; a write is waited for;
- the client is gone: a read is ended, and the connection is over; a write is done as it was asked,
  as PostgreSQL does, unless it waits for a time that is to come (``AS OF``).

To notice the last, one message is read ahead while a call runs, unless the next is there already.
There is at most one reader, so messages keep their order; a read that has begun is never given up,
so framing cannot slip. What is there is read without a task of its own, which is most of what a
message would cost; now and then others are let in between.

Everything here runs in the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from headwater.adapter.pgwire import frontend
from headwater.adapter.pgwire.backend import CancelReason, CopyOut, Result
from headwater.adapter.pgwire.framing import Disconnected, Stream
from headwater.adapter.pgwire.refusals import Cancelled
from headwater.adapter.pgwire.variables import SessionVariables
from headwater.adapter.pgwire.worker import Worker
from headwater.adapter.sql.statements import ForSession

LOG = logging.getLogger(__name__)

T = TypeVar("T")

ASK_AGAIN_SECONDS: Final = 0.2
READ_AT_ONCE_MAX: Final = 64
"""How many messages that are there are read before other connections have their turn."""


class Calls:
    """The calls of one connection."""

    def __init__(self, stream: Stream, worker: Worker) -> None:
        self.worker = worker
        self._stream = stream
        self._reading: asyncio.Task[tuple[bytes, bytes]] | None = None
        self._end: asyncio.Task[tuple[bytes, bytes]] | None = None
        self._cancelled: asyncio.Future[CancelReason] | None = None
        self._read_at_once = 0

    # --- reading ----------------------------------------------------------------------------------

    async def next_message(self) -> tuple[bytes, bytes]:
        """The next message, read ahead or not."""
        if self._reading is None and self._stream.has_message:
            self._read_at_once = (self._read_at_once + 1) % READ_AT_ONCE_MAX
            if not self._read_at_once:
                await asyncio.sleep(0)
            return await self._stream.read_raw()
        reading = self._ahead()
        message = await asyncio.shield(reading)
        self._reading = None
        return message

    async def next_message_or_cancelled(self) -> tuple[bytes, bytes]:
        """The next message inside a statement (COPY), which may be cancelled meanwhile."""
        assert self._cancelled is not None, "a statement runs"
        reading = self._ahead()
        waited: set[asyncio.Future[Any]] = {reading, self._cancelled}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        self.check()
        self._reading = None
        return await reading

    def waits(self) -> bool:
        """Whether the client has said nothing more, as far as we know."""
        if self._reading is not None and self._reading.done():
            return False
        return not self._stream.has_input

    def _ahead(self) -> asyncio.Task[tuple[bytes, bytes]]:
        if self._reading is None:
            self._reading = asyncio.create_task(self._stream.read_raw())
        return self._reading

    async def end_reading(self) -> None:
        """Nothing is read any more, and nobody waits to: the stream is free for its last words."""
        waiting = [reading for reading in (self._reading, self._end) if reading is not None]
        self.stop_reading()
        await asyncio.gather(*waiting, return_exceptions=True)

    def stop_reading(self) -> None:
        """The connection is over."""
        for reading in (self._reading, self._end):
            if reading is not None:
                reading.cancel()
                reading.add_done_callback(_ignore)
        self._reading = self._end = None

    # --- cancelling -------------------------------------------------------------------------------

    @contextmanager
    def statement(self, variables: SessionVariables) -> Iterator[None]:
        """The time in which a cancel request means this statement."""
        loop = asyncio.get_running_loop()
        self._cancelled = loop.create_future()
        seconds = variables.seconds("statement_timeout")
        timer = None if seconds is None else loop.call_later(seconds, self.cancel, "timeout")
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()
            self._cancelled = None

    def cancel(self, reason: CancelReason) -> None:
        """End the statement that runs, if one does."""
        if self._cancelled is not None and not self._cancelled.done():
            self._cancelled.set_result(reason)

    def check(self) -> None:
        """Raise if the statement has been cancelled."""
        if self._cancelled is not None and self._cancelled.done():
            raise Cancelled(self._cancelled.result())

    # --- calling ----------------------------------------------------------------------------------

    async def call(self, function: Callable[[], T], *, abandon: bool) -> T:
        """``function()`` in the worker; ``abandon`` if its outcome may be thrown away."""
        self.check()
        return await self._outcome(self.worker.call(function), abandon=abandon)

    async def execute(self, statement: ForSession, sql: str, *, abandon: bool) -> Result | CopyOut:
        """Execute in the session: as a promise of it, or in the worker."""
        self.check()
        promised: asyncio.Future[Any] | None = self.worker.promise(statement, sql)
        return await self._outcome(promised or self.worker.execute(statement, sql), abandon=abandon)

    async def _outcome(self, running: asyncio.Future[T], *, abandon: bool) -> T:
        running.add_done_callback(_ignore)  # Its error is told below, or wanted by nobody.
        reading, cancelled = self._watched(), self._cancelled
        waited: set[asyncio.Future[Any]] = {running}
        if reading is not None:
            waited.add(reading)
        if cancelled is not None:
            waited.add(cancelled)
        while not running.done():
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                break
            if cancelled is not None and cancelled.done():
                reason = cancelled.result()
                while self.worker.cancel(reason) or not abandon:
                    # Asked again and again: the call may not have begun when it was asked first.
                    done, _ = await asyncio.wait({running}, timeout=ASK_AGAIN_SECONDS)
                    if done:
                        return running.result()
                running.add_done_callback(self._dispose)
                raise Cancelled(reason)
            assert reading is not None, "what else could have come"
            # The client has said something, or is gone.
            waited.discard(reading)
            if abandon and isinstance(reading.exception(), Disconnected):
                self.worker.cancel("gone")
                running.add_done_callback(self._dispose)
                raise Disconnected
            if reading is self._reading and _is_good_bye(reading):
                # It may still want the answer; when it hangs up it does not.
                reading = self._hanging_up()
                waited.add(reading)
        return running.result()

    def _watched(self) -> asyncio.Task[tuple[bytes, bytes]] | None:
        """What tells that the client is gone; None: it has said what is to be done next."""
        there = self._reading is None and self._stream.has_message
        if there and self._stream.next_tag != frontend.TERMINATE:
            return None
        return self._ahead()

    def _hanging_up(self) -> asyncio.Task[tuple[bytes, bytes]]:
        """What comes after the good-bye: nothing can, but the end."""
        if self._end is None:
            self._end = asyncio.create_task(self._stream.read_raw())
        return self._end

    def forget(self, function: Callable[[], None]) -> None:
        """``function()`` in the worker, after all that has been asked for; nobody waits."""
        self.worker.call(function).add_done_callback(_report)

    def _dispose(self, done: asyncio.Future[Any]) -> None:
        """Throw an outcome away: its rows may hold something."""
        if done.cancelled() or done.exception() is not None:
            return
        close = getattr(getattr(done.result(), "batches", None), "close", None)
        if close is not None:
            self.forget(close)


def _is_good_bye(reading: asyncio.Task[tuple[bytes, bytes]]) -> bool:
    return reading.exception() is None and reading.result()[0] == frontend.TERMINATE


def _ignore(done: asyncio.Future[Any]) -> None:
    if not done.cancelled():
        done.exception()


def _report(done: asyncio.Future[None]) -> None:
    if not done.cancelled() and done.exception() is not None:
        LOG.error("closing the rows of a statement failed", exc_info=done.exception())

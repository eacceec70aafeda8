"""The session of one connection, and the thread that makes all its blocking calls, in order.

One thread per connection and not a pool for all: a session is used by one thread at a time even
when a client cancels (its next statement waits for the cancelled one to end), and a client that
waits for a view cannot keep others from being served. The thread starts with the first call.

What a session promises (:class:`~.backend.Promises`) is begun in the event loop and needs no thread
while it goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any, TypeVar

from headwater.adapter.pgwire.arrivals import Arrivals
from headwater.adapter.pgwire.backend import (
    Backend,
    CancelReason,
    Cancels,
    CopyOut,
    Describes,
    Introduces,
    Promises,
    Result,
    Session,
)
from headwater.adapter.sql.statements import ForSession

T = TypeVar("T")


class Worker:
    """The session of one connection, and its thread."""

    def __init__(
        self,
        backend: Backend,
        name: str,
        arrivals: Arrivals,
        about: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._backend = backend
        self._arrivals = arrivals
        self._about = about
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._session: Session | None = None
        self._promises: Promises | None = None
        self._last: asyncio.Future[Any] | None = None
        """What was asked for last, and is over when all is."""

    def call(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """``function()`` in the thread, after everything asked for before."""
        asked = asyncio.get_running_loop().run_in_executor(self._executor, function)
        self._last = asked
        return asked

    def execute(self, statement: ForSession, sql: str) -> asyncio.Future[Result | CopyOut]:
        """Execute in the session."""
        return self.call(lambda: self.session().execute(statement, sql))

    def promise(self, statement: ForSession, sql: str) -> asyncio.Future[Result] | None:
        """Begin in the session what it can promise, if it is at rest; None: it is to be executed.

        In the event loop, as everything that is called meanwhile.
        """
        session = self._promises
        if session is None or self._last is None or not self._last.done():
            return None
        promised: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

        def settle() -> None:
            assert promise is not None, "it is told of what was begun"
            try:
                promised.set_result(promise.result())
            except Exception as error:  # noqa: BLE001 - handed to whoever waits
                promised.set_exception(error)

        promise = session.promise(statement, sql, lambda: self._arrivals.put(settle))
        if promise is None:
            return None
        self._last = promised
        return promised

    def session(self) -> Session:
        """The session, opened by the first call that needs it. In the thread only."""
        if self._session is None:
            self._session = self._backend.open_session()
            if isinstance(self._session, Introduces):
                self._session.introduce(self._about)
            if isinstance(self._session, Promises):
                self._promises = self._session
        return self._session

    @property
    def cannot_describe(self) -> bool:
        """Whether the session is known not to be asked for types: no call is needed to learn it."""
        return self._session is not None and not isinstance(self._session, Describes)

    def cancel(self, reason: CancelReason) -> bool:
        """Ask the running call to end; whether the session can be asked. From any thread."""
        session = self._session
        if not isinstance(session, Cancels):
            return False
        session.cancel(reason)
        return True

    async def close(self) -> None:
        """Close the session after what is running, and let the thread end."""
        try:
            if self._last is not None:  # A client that came and went has no thread to end.
                await asyncio.wait({self._last})
                await self.call(self._close)
        finally:
            self._executor.shutdown(wait=False)

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

"""The thread that makes all blocking calls of one connection, in order.

One thread per connection and not a pool for all: a session is used by one thread at a time even
when a client cancels (its next statement waits for the cancelled one to end), and a client that
waits for a view cannot keep others from being served. The thread starts with the first statement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from headwater.adapter.pgwire.backend import Backend, Result, Session
from headwater.adapter.sql.statements import Statement

T = TypeVar("T")


class Worker:
    """The session of one connection, and its thread."""

    def __init__(self, backend: Backend, name: str) -> None:
        self._backend = backend
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._session: Session | None = None

    async def call(self, function: Callable[[], T]) -> T:
        """``function()`` in the thread, after everything asked for before."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, function)

    async def execute(self, statement: Statement, sql: str) -> Result:
        """Execute in the session, which the first statement opens."""
        return await self.call(lambda: self._execute(statement, sql))

    def _execute(self, statement: Statement, sql: str) -> Result:
        if self._session is None:
            self._session = self._backend.open_session()
        return self._session.execute(statement, sql)

    async def close(self) -> None:
        """Close the session after what is running, and let the thread end."""
        try:
            await self.call(self._close)
        finally:
            self._executor.shutdown(wait=False)

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

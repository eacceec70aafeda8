"""A connection's worker: its session is used by one at a time, in the order that was asked for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

from headwater.adapter.pgwire.arrivals import Arrivals
from headwater.adapter.pgwire.backend import Promise, Result
from headwater.adapter.pgwire.worker import Worker
from headwater.adapter.sql.parse import parse_for_session
from headwater.adapter.sql.statements import Statement

WAIT_SECONDS = 20
"""How long is waited for what may come from another thread."""
((INSERT, _),) = parse_for_session("INSERT INTO t VALUES (1)")
T = TypeVar("T")


class Kept:
    """A promise that is kept when it is asked for."""

    def result(self) -> Result:
        return Result("INSERT 0 1")


class OneAtATime:
    """A backend and its only session, which notices when it is used by two."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self._tell: list[Callable[[], None]] = []
        """How to say that a promise is kept, for each that was given."""
        self.goes_on = threading.Event()
        self._in_use = threading.Lock()

    def open_session(self) -> OneAtATime:
        return self

    def execute(self, statement: Statement, sql: str) -> Result:
        self._use(f"executed {sql}", self.goes_on.wait if sql == "slow" else lambda _: True)
        return Result("INSERT 0 1")

    def promise(self, statement: Statement, sql: str, tell: Callable[[], None]) -> Promise | None:
        self._use(f"promised {sql}")
        self._tell.append(tell)
        return Kept()

    def keep_promises(self) -> None:
        while self._tell:
            self.done.append("kept")
            self._tell.pop()()

    def close(self) -> None:
        self._use("closed")

    def _use(self, what: str, wait: Callable[[float], bool] = lambda _: True) -> None:
        assert self._in_use.acquire(blocking=False), f"{what} beside another call"
        try:
            self.done.append(what)
            assert wait(WAIT_SECONDS), f"{what}: nobody let it go on"
        finally:
            self._in_use.release()


async def soon(awaited: Awaitable[T], what: str) -> T:
    """Wait for something, and no longer than it may take."""
    try:
        return await asyncio.wait_for(awaited, WAIT_SECONDS)
    except TimeoutError:
        raise AssertionError(f"never came: {what}") from None


def told(story: Callable[[Worker, OneAtATime], Awaitable[None]]) -> list[str]:
    """What was done with the session while a story was told, and when the client went."""
    session = OneAtATime()

    async def run() -> None:
        worker = Worker(session, "test", Arrivals(asyncio.get_running_loop()))
        try:
            await story(worker, session)
        finally:
            session.goes_on.set()
            closing = asyncio.ensure_future(worker.close())
            await asyncio.sleep(0)  # It has begun to close.
            session.keep_promises()
            await soon(closing, "the end of the worker")

    asyncio.run(run())
    return session.done


def test_a_session_at_rest_promises() -> None:
    async def story(worker: Worker, session: OneAtATime) -> None:
        assert worker.promise(INSERT, "first") is None, "it is not open yet"
        await soon(worker.execute(INSERT, "first"), "an answer to the first")
        promised = worker.promise(INSERT, "second")
        assert promised is not None
        assert not promised.done()
        session.keep_promises()
        assert (await soon(promised, "what was promised")).tag == "INSERT 0 1"

    assert told(story) == ["executed first", "promised second", "kept", "closed"]


def test_a_session_in_use_promises_nothing() -> None:
    async def story(worker: Worker, session: OneAtATime) -> None:
        await soon(worker.execute(INSERT, "first"), "an answer to the first")
        slow = worker.execute(INSERT, "slow")
        assert worker.promise(INSERT, "beside") is None
        session.goes_on.set()
        await soon(slow, "an answer to the slow one")
        assert worker.promise(INSERT, "after") is not None
        assert worker.promise(INSERT, "beside a promise") is None

    assert told(story) == ["executed first", "executed slow", "promised after", "kept", "closed"]


def test_it_closes_after_what_was_promised() -> None:
    async def story(worker: Worker, _: OneAtATime) -> None:
        await soon(worker.execute(INSERT, "first"), "an answer to the first")
        assert worker.promise(INSERT, "second") is not None

    assert told(story) == ["executed first", "promised second", "kept", "closed"]

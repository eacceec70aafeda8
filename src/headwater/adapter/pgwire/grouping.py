"""Several statements of one simple query as one transaction, where the session can have it so.

PostgreSQL runs the statements of one Query message in one transaction unless they contain BEGIN,
COMMIT or ROLLBACK themselves. The session sees an ordinary ``Begin … Commit``, or ``Rollback`` if a
statement failed; the client is told that it is idle all the while.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from headwater.adapter.errors import AdapterError
from headwater.adapter.pgwire.backend import Groups
from headwater.adapter.pgwire.calls import Calls
from headwater.adapter.pgwire.wire_statements import AnyStatement
from headwater.adapter.sql import statements

LOG = logging.getLogger(__name__)

_TRANSACTION: Final = (statements.Begin, statements.Commit, statements.Rollback)


class Group:
    """Several statements as one transaction, or, if not ``active``, each for itself."""

    def __init__(self, calls: Calls, *, active: bool) -> None:
        self._calls = calls
        self.active = active

    async def commit(self) -> None:
        """The last statement is done."""
        if self.active:
            self.active = False
            await _transact(self._calls, statements.Commit(), "COMMIT")


@asynccontextmanager
async def grouped(calls: Calls, parsed: Sequence[AnyStatement]) -> AsyncIterator[Group]:
    """Begin before the statements and roll back if they fail; commit is the caller's to say."""
    alone = len(parsed) < 2 or any(isinstance(each, _TRANSACTION) for each in parsed)

    def session_groups() -> bool:
        session = calls.worker.session()
        return isinstance(session, Groups) and session.groups_statements

    if alone or not await calls.call(session_groups, abandon=False):
        yield Group(calls, active=False)
        return
    await _transact(calls, statements.Begin(), "BEGIN")
    group = Group(calls, active=True)
    try:
        yield group
    finally:
        if group.active:
            group.active = False
            try:
                await _transact(calls, statements.Rollback(), "ROLLBACK")
            except AdapterError:
                LOG.exception("the transaction of a failed query could not be rolled back")


async def _transact(calls: Calls, statement: statements.ForSession, sql: str) -> None:
    await calls.call(lambda: calls.worker.session().execute(statement, sql), abandon=False)

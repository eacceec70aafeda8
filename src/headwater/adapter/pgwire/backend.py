"""What the wire needs of the system behind it: sessions that execute statements.

Contract between :class:`~.server.WireServer` and a :class:`Backend`:

- Every call blocks and is made in a worker thread; all calls of one session are made by one
  thread, one after another, in the order the client sent them. Different sessions call at the
  same time.
- ``execute`` returns when the statement is done as far as its tag says (an ``INSERT`` is
  durable); the rows of a query may still be computed while they are iterated. The iterator is
  used by that same thread, possibly after further statements of its transaction, and closed when
  its portal is (``close()`` if it has one).
- A refusal is an :class:`~headwater.adapter.errors.AdapterError` and changed nothing.
- Transactions arrive well formed: ``(Begin … (Commit | Rollback))*``. After a failure inside one,
  the next thing a session sees is ``Rollback`` or ``close``; ``close`` with one open means
  rollback.
- A session does not see :class:`~headwater.adapter.sql.statements.SelectSession`, nor ``SHOW``
  and ``SET`` of the variables in :mod:`.variables`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from headwater.adapter.sql.statements import Statement


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a result: its name and Arrow type."""

    name: str
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Result:
    """What a statement answers.

    ``tag`` is PostgreSQL's command tag (``INSERT 0 3``, ``CREATE TABLE``). To the tag ``SELECT``
    the wire adds the number of rows, which nobody knows before they are sent. ``columns`` None:
    no rows, not even none. Every batch has the columns of ``columns``, in order.
    """

    tag: str
    columns: tuple[Column, ...] | None = None
    batches: Iterable[pa.RecordBatch] = ()

    @classmethod
    def of_table(cls, table: pa.Table, tag: str = "SELECT") -> Result:
        """All rows of an Arrow table."""
        columns = tuple(Column(field.name, field.type) for field in table.schema)
        return cls(tag, columns, table.to_batches())


class Session(Protocol):
    """One client's session."""

    def execute(self, statement: Statement, sql: str) -> Result:
        """Execute ``statement``, whose text was ``sql``."""
        ...

    def close(self) -> None:
        """The client is gone. Called once, last."""
        ...


class Backend(Protocol):
    """Opens sessions, from any thread."""

    def open_session(self) -> Session:
        """A new session."""
        ...

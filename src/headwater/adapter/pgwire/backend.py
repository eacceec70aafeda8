"""What the wire needs of the system behind it: sessions that execute statements.

Contract between :class:`~.server.WireServer` and a :class:`Backend`:

- Every call blocks and is made in a worker thread; all calls of one session are made by one
  thread, one after another, in the order the client sent them, except ``cancel``, which may come
  from another thread at any time, and ``promise``, which does not block. Different sessions call at
  the same time.
- ``execute`` returns when the statement is done as far as its tag says (an ``INSERT`` is
  durable); the rows of a query may still be computed while they are iterated. The iterator is
  used by that same thread, possibly after further statements of its transaction, and closed when
  its portal is (``close()`` if it has one).
- A refusal is an :class:`~headwater.adapter.errors.AdapterError` and changed nothing.
- Transactions arrive well formed: ``(Begin … (Commit | Rollback))*``, savepoints only inside one.
  After a failure inside one, the next thing a session sees is ``Rollback``, ``RollbackTo`` or
  ``close``; ``close`` with one open means rollback.
- A session does not see :class:`~headwater.adapter.sql.statements.SelectSession` (it is no
  ``ForSession``, so nothing can hand it on), nor ``SHOW`` and ``SET`` of the variables in
  :mod:`.variables`, nor the statements of :mod:`.wire_statements` (COPY, cursors, DEALLOCATE, …),
  which the wire makes of the others.

What a session *may* have besides, each on its own; the wire looks and does without:

- :class:`Describes`: types of parameters and columns before anything runs. Without it a parameter
  left open is text.
- :class:`TellsColumns`: the columns of a statement without running it. Without it those of a query
  come from running it for no rows.
- :class:`Introduces`: who it is that connected, for whoever asks who is there.
- :class:`TakesCopies`: ``COPY … FROM STDIN``. Without it that is refused.
- :class:`Cancels`: a running call can be made to end. Without it a cancelled *read* is abandoned
  (its thread ends later, by itself), and a cancelled write goes on, because a client must not be
  told that a write was cancelled which then happens.
- :class:`Promises`: some statements are begun and left to themselves, in no thread. Without it each
  is executed.
- :class:`Groups`: several statements of one simple query are one transaction, as in PostgreSQL.
  Without it each is its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

import pyarrow as pa

from headwater.adapter.pgwire.copy_format import CopyFormat
from headwater.adapter.pgwire.wire_types import of_arrow
from headwater.adapter.sql.statements import ForSession
from headwater.collection.schema import type_of
from headwater.collection.types import SqlType, UnsupportedType


@dataclass(frozen=True, slots=True)
class Passed:
    """A type that is not ours: what another PostgreSQL says of its column."""

    oid: int
    size: int = -1
    modifier: int = -1


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a result: its name and Arrow type, and ours where Arrow's does not tell it.

    ``passed``: the values, of Arrow's type string, are texts of another PostgreSQL's type, and are
    sent under its name (answers about the catalog).
    """

    name: str
    type: pa.DataType
    sql_type: SqlType | None = None
    passed: Passed | None = None

    @property
    def sent_as(self) -> SqlType:
        """The type under which its values are sent."""
        return of_arrow(self.type) if self.sql_type is None else self.sql_type

    @property
    def sent_oid(self) -> int:
        """The OID under which its values are sent."""
        return self.sent_as.oid if self.passed is None else self.passed.oid

    @classmethod
    def of_field(cls, told: pa.Field) -> Column:
        """The column of an Arrow field; its metadata tells jsonb and uuid from text."""
        try:
            return cls(told.name, told.type, type_of(told))
        except UnsupportedType:
            return cls(told.name, told.type)  # What cannot be sent is refused when it is sent.


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
        columns = tuple(Column.of_field(told) for told in table.schema)
        return cls(tag, columns, table.to_batches())


@dataclass(frozen=True, slots=True)
class CopyOut:
    """Rows that leave as a COPY. The wire makes one of ``COPY (query) TO STDOUT``.

    A session may return one itself, for a statement whose only form is a stream.
    """

    columns: tuple[Column, ...]
    batches: Iterable[pa.RecordBatch]
    format: CopyFormat = field(default_factory=CopyFormat)


class CopyIn(Protocol):
    """A COPY of rows into a table that has begun: ``write* (finish | abort)``.

    Rows arrive in batches of :attr:`columns` as the client sends them, so that the whole is never
    in one place because of the wire. Nothing is visible before ``finish``, nothing after
    ``abort``; a refusal by ``write`` or ``finish`` is followed by ``abort``.
    """

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of every batch, in order: those named in the statement, or all."""
        ...

    def write(self, batch: pa.RecordBatch) -> None:
        """Take some rows."""
        ...

    def finish(self) -> None:
        """The rows are complete: make them durable."""
        ...

    def abort(self) -> None:
        """Forget the rows."""
        ...


class Session(Protocol):
    """One client's session."""

    def execute(self, statement: ForSession, sql: str) -> Result | CopyOut:
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


# --- what a session may have besides --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Description:
    """A statement before it runs: the OID of every parameter, and its columns if it has rows.

    ``tells_columns`` False: only the parameters are known by the text.
    """

    parameter_oids: tuple[int, ...]
    columns: tuple[Column, ...] | None
    tells_columns: bool = True


@runtime_checkable
class Describes(Protocol):
    """A session that knows the types of a statement from its text."""

    def describe(self, sql: str, parameter_oids: tuple[int, ...]) -> Description | None:
        """The types of ``sql`` with its ``$n`` in place; an OID of 0 is the session's choice.

        None: not known, as for a session without the method.
        """
        ...


@runtime_checkable
class TellsColumns(Protocol):
    """A session that knows the columns of a statement's rows without running it."""

    def columns(self, statement: ForSession) -> tuple[Column, ...] | None:
        """The columns; None if they are not known. Called for statements that answer with rows."""
        ...


@runtime_checkable
class TakesCopies(Protocol):
    """A session that takes ``COPY table [(columns)] FROM STDIN``."""

    def copy_in(self, table: str, columns: tuple[str, ...] | None) -> CopyIn:
        """Begin a COPY; unknown tables and columns are refused here."""
        ...


@runtime_checkable
class Introduces(Protocol):
    """A session that is told whose it is: once, first."""

    def introduce(self, about: Mapping[str, str]) -> None:
        """``pid``, ``user``, ``address`` and ``application_name`` of the connection."""
        ...


CancelReason = Literal["request", "timeout", "gone"]


@runtime_checkable
class Cancels(Protocol):
    """A session whose running call can be made to end."""

    def cancel(self, reason: CancelReason) -> None:
        """Make the call that runs now, if one does, raise :class:`~.errors.Cancelled` soon.

        From any thread, at any time, also when nothing runs (then nothing happens). A call that is
        done before it notices returns as if it had not been asked.
        """
        ...


class Promise(Protocol):
    """A statement that is done, or refused, when the one who began it is told so."""

    def result(self) -> Result:
        """What it answers, or the refusal. Does not block; called once, after that."""
        ...


@runtime_checkable
class Promises(Protocol):
    """A session that can begin a statement without waiting for it."""

    def promise(self, statement: ForSession, sql: str, tell: Callable[[], None]) -> Promise | None:
        """Begin ``statement``, and call ``tell`` from any thread when it is over.

        None: it is to be executed, and nothing has happened. In the event loop, while no other call
        of the session runs; the next comes when this one is over.
        """
        ...


@runtime_checkable
class Groups(Protocol):
    """A session whose transactions may hold every statement it can execute."""

    @property
    def groups_statements(self) -> bool:
        """Whether the statements of one simple query are put between Begin and Commit."""
        ...

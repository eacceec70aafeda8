"""``SET``, ``SHOW``, ``RESET`` and the functions that do the same, for one connection.

A variable of the wire (:mod:`.variables`) is set and shown here; every other one belongs to the
session. What ends with a transaction, or with a part of it, is undone here, and the client told of
what it follows (:meth:`VariableStatements.end_transaction`, :meth:`VariableStatements.savepoint`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from headwater.adapter.errors import Unsupported
from headwater.adapter.pgwire import messages, variables
from headwater.adapter.pgwire.backend import Column
from headwater.adapter.pgwire.framing import Stream
from headwater.adapter.pgwire.portals import Answer
from headwater.adapter.pgwire.rows import RowStream
from headwater.adapter.setting_errors import UnknownSetting
from headwater.adapter.sql import statements
from headwater.adapter.sql.names import DATABASE
from headwater.adapter.sql.statements import Release, RollbackTo, Savepoint

Ask = Callable[[statements.ForSession, str], Awaitable[Answer]]
"""Has the session execute a statement."""

ALL: Final = "all"
"""The name that stands for every variable: ``SHOW ALL``, ``RESET ALL``."""

_KNOWN: Final = "SELECT name, setting, short_desc FROM pg_catalog.pg_settings"
_SHOWN_ALL: Final = ("name", "setting", "description")


class VariableStatements:
    """What a connection's statements about variables do."""

    def __init__(
        self, stream: Stream, held: variables.SessionVariables, ask: Ask, user: str, pid: int
    ) -> None:
        self._stream = stream
        self._variables = held
        self._ask = ask
        self._user = user
        self._pid = pid

    async def show(self, name: str, sql: str) -> Answer:
        """``SHOW name``."""
        if name == ALL:
            return await self._show_all()
        if self._variables.holds(name):
            return _one_row([(name, self._variables.show(name))], "SHOW")
        try:
            return await self._ask(statements.Show(name), sql)
        except UnknownSetting:
            if not self._variables.shares(name):
                raise
            return _one_row([(name, self._variables.show(name))], "SHOW")

    async def assign(
        self, statement: statements.SetVariable, sql: str, *, in_transaction: bool
    ) -> Answer:
        """``SET [LOCAL] name = value`` or ``RESET name``."""
        tag = Answer("RESET" if sql[:5].upper() == "RESET" else "SET")
        name, value = statement.name, statement.value
        if statement.local and not in_transaction:
            self.warn("25P01", "SET LOCAL can only be used in transaction blocks")
            return tag
        if not self._variables.holds(name):
            try:
                await self._ask(statement, sql)
            except UnknownSetting:
                if not self._variables.shares(name):
                    raise
            if self._variables.shares(name):
                self._variables.assign(name, value, local=statement.local)
                self._tell(name)
            return tag
        self._variables.assign(name, value, local=statement.local)
        self._tell(name)
        return tag

    async def reset_all(self) -> None:
        """``RESET ALL``: the variables as they were when the session began."""
        self._variables.reset_all()
        for name in variables.FOLLOWED:
            self._tell(name)
        with contextlib.suppress(UnknownSetting):  # of a session that has no variables
            await self._ask(statements.SetVariable(ALL, None), "RESET ALL")

    def read_only_from_now(self, read_only: bool) -> None:
        """Follow a ``SET SESSION CHARACTERISTICS``, which the session has executed."""
        name = "default_transaction_read_only"
        self._variables.assign(name, "on" if read_only else "off")
        self._tell(name)

    def end_transaction(self, *, committed: bool) -> None:
        """Put back what was set for the transaction only; all of it, unless it committed."""
        with self._telling():
            self._variables.end(committed=committed)

    def savepoint(self, statement: Savepoint | RollbackTo | Release) -> None:
        """Follow what the session has done with a savepoint."""
        with self._telling():
            self._variables.savepoint(statement)

    async def session_functions(
        self, columns: tuple[statements.SessionColumn, ...], *, in_transaction: bool
    ) -> Answer:
        """``SELECT version(), current_setting('x'), set_config('x', 'y', false), …``."""
        values: list[tuple[str, str | None]] = []
        for column in columns:
            if column.function == "set_config":
                assert column.argument is not None
                value = await self._set_config(column, in_transaction=in_transaction)
            elif column.function == "current_setting":
                assert column.argument is not None
                value = await self._shown(column.argument, missing_ok=column.missing_ok)
            elif column.function == "current_schema":
                value = await self._shown("current_schema", missing_ok=True)
            else:
                value = self._value(column.function)
            values.append((column.name, value))
        return _one_row(values, "SELECT")

    async def shown(self) -> tuple[tuple[str, str], ...]:
        """What every variable is that belongs to the wire, or is remembered here."""
        names = self._variables.names()
        values = [(name, await self._shown(name, missing_ok=True)) for name in names]
        return tuple((name, value) for name, value in values if value is not None)

    def warn(self, sqlstate: str, message: str) -> None:
        """Tell the client something that is no error, if it wants to hear it."""
        if self._variables.warns:
            notice = {"S": "WARNING", "V": "WARNING", "C": sqlstate, "M": message}
            self._stream.write(messages.notice_response(notice))

    async def _set_config(
        self, column: statements.SessionColumn, *, in_transaction: bool
    ) -> str | None:
        assert column.argument is not None
        if not column.local or in_transaction:
            wanted = statements.SetVariable(column.argument, column.value, column.local)
            text = "SET"
            await self.assign(wanted, text, in_transaction=in_transaction)
        return column.value

    async def _shown(self, name: str, *, missing_ok: bool) -> str | None:
        if self._variables.holds(name):
            return self._variables.show(name)
        try:
            answer = await self.show(name, f"SHOW {name}")
        except UnknownSetting:
            if not missing_ok:
                raise
            return None
        assert answer.rows is not None
        return answer.rows.first_text()

    async def _show_all(self) -> Answer:
        found: dict[str, tuple[str, str | None, str | None]] = {}
        try:
            asked = statements.SelectCatalog(_KNOWN, await self.shown())
            answer = await self._ask(asked, _KNOWN)
        except Unsupported:
            pass  # A session without a catalog: what the wire has is all there is.
        else:
            assert answer.rows is not None
            for name, setting, description in answer.rows.all_rows():
                assert name is not None
                found[name.lower()] = (name, setting, description)
        for name in self._variables.names():
            spelled, _, description = found.get(name, (name, None, None))
            found[name] = (spelled, await self._shown(name, missing_ok=True), description)
        rows = [row for _, row in sorted(found.items())]
        arrays = [pa.array([row[n] for row in rows], pa.string()) for n in range(len(_SHOWN_ALL))]
        batch = pa.RecordBatch.from_arrays(arrays, names=list(_SHOWN_ALL))
        shown = tuple(Column(name, pa.string()) for name in _SHOWN_ALL)
        return Answer("SHOW", RowStream(shown, [batch]))

    def _value(self, function: str) -> str:
        match function:
            case "version":
                return variables.VERSION_TEXT
            case "current_database" | "current_catalog":
                return DATABASE
            case "current_user" | "session_user":
                return self._user
            case "pg_backend_pid":
                return str(self._pid)
            case "pg_is_in_recovery":
                return "f"
            case _:
                raise AssertionError(f"the parser knows {function}, the wire does not")

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        """Tell the client which of the variables that it follows have changed."""
        before = [self._variables.show(name) for name in variables.FOLLOWED]
        yield
        for name, was in zip(variables.FOLLOWED, before, strict=True):
            if self._variables.show(name) != was:
                self._tell(name)

    def _tell(self, name: str) -> None:
        if name in variables.FOLLOWED:
            self._stream.write(messages.parameter_status(name, self._variables.show(name)))


def _one_row(values: Sequence[tuple[str, str | None]], tag: str) -> Answer:
    columns = tuple(Column(name, pa.string()) for name, _ in values)
    arrays = [pa.array([value], pa.string()) for _, value in values]
    batch = pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in values])
    return Answer(tag, RowStream(columns, [batch]), counted=tag == "SELECT")

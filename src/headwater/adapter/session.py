"""A session: one client's statements, its settings, and its transaction.

A statement outside a transaction block is a transaction of its own. The difference shows where it
reads before it writes: on its own it keeps other writers off its tables meanwhile, so it is never
refused; inside a block its reads are long past when COMMIT comes, and it is refused with 40001 if
what it read has changed (``adapter/transaction.py``).

Used by one thread at a time, but for :meth:`ClientSession.cancel`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from headwater.adapter import catalog, promised
from headwater.adapter.acting import acting_as
from headwater.adapter.clients import shown_text
from headwater.adapter.copy_in import TableCopy
from headwater.adapter.definitions import Definition
from headwater.adapter.describing import described
from headwater.adapter.errors import AdapterError, SerializationFailure, Unsupported
from headwater.adapter.group_commit import TableWrite, Write
from headwater.adapter.limit import Limit
from headwater.adapter.mistakes import users_mistakes
from headwater.adapter.namespaces import current, placed, searching
from headwater.adapter.open_transaction import OpenTransaction
from headwater.adapter.pgwire.backend import Column, Description, Result
from headwater.adapter.read_then_write import read_then_write
from headwater.adapter.reads import Planned
from headwater.adapter.refining import refined, spark_reads
from headwater.adapter.running import Running, running
from headwater.adapter.savepoints import Savepoints
from headwater.adapter.scoped import Scoped
from headwater.adapter.session_settings import Assigned, SessionSettings
from headwater.adapter.settings import Settings
from headwater.adapter.sql.connection_statements import ValidateConnection
from headwater.adapter.sql.materialization_statements import ValidateMaterialization
from headwater.adapter.sql.names import exact
from headwater.adapter.sql.statements import (
    Begin,
    Commit,
    CreateTable,
    CreateTableAs,
    Delete,
    Dialect,
    ExplainQuery,
    ExplainReplacement,
    ExplainTimestamp,
    ExplainView,
    ForSession,
    Insert,
    Refresh,
    Release,
    Rollback,
    RollbackTo,
    Savepoint,
    Select,
    SelectCatalog,
    SetTransaction,
    SetVariable,
    Show,
    ShowColumns,
    ShowCreate,
    ShowObjects,
    ShowSchemas,
    ShowTables,
    Subscribe,
    Truncate,
    Update,
)
from headwater.adapter.tables_as import definition
from headwater.adapter.timeline import DEFAULT
from headwater.adapter.timestamps import STRICT, explained
from headwater.adapter.transaction import ATTEMPTS_MAX, Transaction, unsteady
from headwater.adapter.writes_as_of import write_as_of
from headwater.base.tracing import span
from headwater.persist.errors import DestroyedCollection, UnknownCollection
from headwater.persist.state import State

if TYPE_CHECKING:
    from headwater.adapter.coordinator import Coordinator


class ClientSession:
    """One connection."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._variables = SessionSettings(coordinator.catalog_queries)
        self._transaction: OpenTransaction | None = None
        self._savepoints: Savepoints[tuple[Transaction, Scoped[Assigned]]] = Savepoints()
        self._cancelled = threading.Event()
        self._reason = "request"
        self._running = Running()
        self._user = ""
        self._number = coordinator.clients.opened(coordinator.now_ms())

    @property
    def _settings(self) -> Settings:
        return self._variables.now

    @property
    def dialect(self) -> Dialect:
        """In which dialect the queries of this session are."""
        return self._settings.dialect

    def introduce(self, about: Mapping[str, str]) -> None:
        """Note whose it is."""
        self._user = about.get("user", "")
        self._coordinator.clients.told(self._number, about)

    def execute(self, statement: ForSession, sql: str) -> Result:
        """Execute a statement; what it acknowledges is durable, unless a transaction is open."""
        limit = self._limit()
        self._note("active", shown_text(statement, sql))
        self._running = Running(f"session-{self._number}", limit)
        try:
            kind, path = type(statement).__name__, searching(self._path())
            user = acting_as(self._user)
            told = users_mistakes(lambda: spark_reads(statement, self._state()))
            with span("statement", kind=kind), path, user, running(self._running), told:
                return self._execute(statement, sql, limit)
        except AdapterError as error:
            queries = self._coordinator.catalog_queries
            with searching(self._path()):
                better = refined(error, statement, sql, queries, self._state())
            if better is error:
                raise
            raise better from error
        finally:
            self._note("idle" if self._transaction is None else "in transaction")

    def promise(
        self, statement: ForSession, sql: str, tell: Callable[[], None]
    ) -> promised.Promised | None:
        """Begin a statement that waits for nothing but being durable; None: it is another."""
        elsewhere = self._transaction is not None or self._settings.read_only
        if elsewhere or not isinstance(statement, Insert):
            return None
        with searching(self._path()):
            found = promised.planned(self._coordinator, statement, self._state(), self._note)
        if found is not None:
            self._note("active", shown_text(statement, sql))
            self._coordinator.commits.offer(found.write, self._number, tell, self._limit())
        return found

    def _limit(self) -> Limit:
        """The limit of a statement that begins."""
        self._cancelled.clear()
        return Limit(self._settings.statement_timeout_ms, self._cancelled, lambda: self._reason)

    def _path(self) -> tuple[str, ...]:
        """Where names are looked for."""
        return self._settings.path(self._user)

    def _note(
        self, state: Literal["idle", "active", "in transaction"], statement: str | None = None
    ) -> None:
        coordinator, transaction = self._coordinator, self._transaction
        time = None if transaction is None else transaction.now.time
        isolation = str(self._settings.isolation)
        coordinator.clients.does(
            self._number, state, coordinator.now_ms(), isolation, statement, time
        )

    def describe(self, sql: str, parameter_oids: tuple[int, ...]) -> Description | None:
        """Return what is known of a statement by its text."""
        queries = self._coordinator.catalog_queries
        if queries is None or self._settings.dialect == "spark":
            return None
        with searching(self._path()):
            return described(queries, self._state(), sql, parameter_oids)

    def columns(self, statement: ForSession) -> tuple[Column, ...] | None:
        """Return the columns of a statement's rows, if they are known; nothing is read."""
        with searching(self._path()), acting_as(self._user), users_mistakes():
            return self._coordinator.columns(statement, self._state())

    def cancel(self, reason: str = "request") -> None:
        """End the waiting of the statement that runs, from any thread."""
        self._reason = reason
        self._cancelled.set()
        self._coordinator.wake()
        self._running.end_jobs(self._coordinator.cancel_jobs)

    def close(self) -> None:
        """Nothing of a session outlives it."""
        self._end()
        self._coordinator.clients.closed(self._number)

    def _execute(self, statement: ForSession, sql: str, limit: Limit) -> Result:
        if isinstance(statement, Definition):
            return self._define(statement, sql)
        match statement:
            case Begin(read_only):
                self._begin(self._settings.read_only if read_only is None else read_only)
                started = sql.lstrip().upper().startswith("START")
                return Result("START TRANSACTION" if started else "BEGIN")
            case SetTransaction():
                return self._set_transaction(statement)
            case Commit():
                return self._commit(limit)
            case Rollback():
                self._end()
                return Result("ROLLBACK")
            case Savepoint() | RollbackTo() | Release():
                return self._savepoint(statement)
            case SetVariable():
                return self._set(statement)
            case Show(name):
                shown = pa.table({name: pa.array([self._shown(name)], pa.string())})
                return Result.of_table(shown, "SHOW")
            case Select():
                return self._select(statement, limit)
            case SelectCatalog():
                return self._coordinator.ask_catalog(statement, self._state())
            case Refresh(name):
                return self._refresh(name, limit)
            case ExplainTimestamp(select):
                return self._explain(select)
            case ExplainQuery(select):
                planned = self._explainable(select)
                lines = pa.array(self._coordinator.explain_query(planned), pa.string())
                return Result.of_table(pa.table({"plan": lines}), "EXPLAIN")
            case ExplainView(name, kind):
                lines = pa.array(self._coordinator.explain(name, kind).splitlines(), pa.string())
                return Result.of_table(pa.table({"view": lines}), "EXPLAIN")
            case ExplainReplacement(create):
                lines = pa.array(self._coordinator.explain_replacement(create), pa.string())
                return Result.of_table(pa.table({"replacement": lines}), "EXPLAIN")
            case Subscribe():
                return self._subscribe(statement)
            case Insert() | Update() | Delete():
                return self._write(statement, limit)
            case CreateTableAs():
                return self._in_a_block(lambda: self._create_table_as(statement, limit), limit)
            case Truncate():
                return self._in_a_block(lambda: self._truncate(statement, limit), limit)
            case ShowTables() | ShowObjects() | ShowSchemas() | ShowColumns() | ShowCreate():
                return Result.of_table(self._coordinator.show(statement))
            case ValidateMaterialization(create):
                return Result.of_table(self._coordinator.validated(create))
            case ValidateConnection(name):
                self._coordinator.connections.validate(name)
                return Result("VALIDATE CONNECTION")

    # ---- variables ---------------------------------------------------------------------------

    def _set(self, statement: SetVariable) -> Result:
        if statement.name == "all":  # RESET ALL
            self._variables.reset()
        else:
            self._variables.assign(statement.name, statement.value, local=statement.local)
        return Result("SET")

    def _shown(self, name: str) -> str | None:
        if name == "current_schema":  # A function; asked for as a variable by the wire.
            return current(self._state())
        return self._variables.show(name)

    # ---- reading -----------------------------------------------------------------------------

    def _select(self, statement: Select, limit: Limit) -> Result:
        """Answer a query; once more if what it reads was replaced meanwhile."""
        try:
            return self._selected(statement, limit)
        except (DestroyedCollection, UnknownCollection):
            # Its names are looked up anew: they mean the new collection, or nothing any more.
            if self._transaction is not None:
                raise
            return self._selected(statement, limit)

    def _selected(self, statement: Select, limit: Limit) -> Result:
        reads, transaction = self._coordinator.reads, self._transaction
        isolation = self._settings.isolation
        if transaction is not None and statement.as_of is None:
            if statement.locks:
                transaction.lock()
            planned = transaction.planned(statement)
            if self._is_introspection(planned):
                return self._coordinator.introspect(statement, planned.sources, self._state())
            time = transaction.read_time(planned.sources, isolation, limit)
            return Result.of_table(reads.select(planned, time))
        planned = reads.planned(statement, self._known_time(statement), self._state())
        if planned.sources.system and statement.as_of is not None:
            raise Unsupported("AS OF of a system view", detail="It has no history.")
        if self._is_introspection(planned):
            return self._coordinator.introspect(statement, planned.sources, self._state())
        with reads.chosen(planned.sources, isolation, statement.as_of, limit) as time:
            return Result.of_table(reads.select(planned, time))

    @staticmethod
    def _is_introspection(planned: Planned) -> bool:
        sources = planned.sources
        return bool(sources.system) and not sources.collections and not sources.created

    def _known_time(self, statement: Select) -> int | None:
        """Return when a query reads, as far as that is settled before its time is chosen."""
        if statement.as_of is not None:
            return statement.as_of.time
        return None if self._transaction is None else self._transaction.now.time

    def _refresh(self, name: str, limit: Limit) -> Result:
        """Wait until a view has all that was written before."""
        sources = self._coordinator.refreshed(name)
        with self._coordinator.reads.chosen(sources, STRICT, None, limit):
            return Result("REFRESH MATERIALIZED VIEW")

    def _state(self) -> State:
        """Return the catalog as this session sees it: with its own definitions."""
        transaction = self._transaction
        return (
            self._coordinator.definitions.seen(None) if transaction is None else transaction.state
        )

    def _subscribe(self, statement: Subscribe) -> Result:
        coordinator = self._coordinator
        named = statement.name if statement.named else None
        statement = coordinator.resumed(statement)
        followed = coordinator.followed(statement)
        isolation = self._settings.isolation
        choice = coordinator.reads.choose(followed.sources, isolation, statement.as_of)
        # It goes on for as long as it is wanted: what ends it is being cancelled.
        endless = Limit(0, self._cancelled, lambda: self._reason)
        return coordinator.subscribe(statement, followed, choice.time, endless, self._number, named)

    def _explainable(self, select: Select) -> Planned:
        """Return how a query is answered; what nobody has stored yet cannot be looked at."""
        reads, time = self._coordinator.reads, self._known_time(select)
        planned = reads.planned(select, time, self._state())
        for name, collection in planned.sources.relations.items():
            if collection in planned.sources.created:
                raise catalog.created_here(f'EXPLAIN of a query over "{name}"')
        return planned

    def _explain(self, select: Select) -> Result:
        reads, time = self._coordinator.reads, self._known_time(select)
        sources = self._explainable(select).sources
        if sources.system and not sources.collections:
            raise Unsupported("EXPLAIN TIMESTAMP of system views", detail="They have no history.")
        if select.as_of is None and time is not None:
            choice = reads.at(sources, self._settings.isolation, time)
        else:
            choice = reads.choose(sources, self._settings.isolation, select.as_of)
        lines = pa.array(explained(choice, DEFAULT), pa.string())
        return Result.of_table(pa.table({"timestamp": lines}), "EXPLAIN")

    # ---- writing -----------------------------------------------------------------------------

    def _write(self, statement: Insert | Update | Delete, limit: Limit) -> Result:
        coordinator = self._coordinator
        self._alone_or_in_block().admit_write(type(statement).__name__.upper())
        if self._transaction is not None:
            return self._transaction.write(statement, self._settings.isolation, limit)
        state = self._state()
        target = coordinator.target(statement.table, state)
        sources = coordinator.read_by(statement, target, state)
        if statement.as_of is not None:
            return write_as_of(coordinator, statement, statement.as_of, target, limit)
        if sources is not None and sources.unsteady:
            raise unsteady(next(iter(sources.unsteady.values())))
        if sources is None:
            planned = coordinator.plan(statement, target, None, None)
            committed = coordinator.commits.write(Write((planned.table,)), limit)
            return planned.result(committed.written[0])
        return read_then_write(coordinator, statement, limit, sources)

    def copy_in(self, table: str, columns: tuple[str, ...] | None) -> TableCopy:
        """Begin ``COPY table [(columns)] FROM STDIN``."""
        self._alone_or_in_block().admit_write("COPY FROM")
        with searching(self._path()):
            target = self._coordinator.target(table, self._state())
            return TableCopy(target, columns, self._write_rows)

    def _write_rows(self, rows: TableWrite) -> None:
        if self._transaction is None:
            self._coordinator.commits.write(Write((rows,)))
        else:
            self._transaction.wrote(rows, self._settings.isolation)

    # ---- definitions -------------------------------------------------------------------------

    def _define(self, statement: Definition, sql: str) -> Result:
        if isinstance(statement, CreateTable):
            self._coordinator.calculations.check(statement)
        self._alone_or_in_block().admit_definition()
        if self._transaction is None:
            return Result(self._coordinator.definitions.execute(statement, sql))
        return self._transaction.define(statement, sql)

    def _create_table_as(self, statement: CreateTableAs, limit: Limit) -> Result:
        state, reads, select = self._state(), self._coordinator.reads, statement.query
        name = placed(state, statement.name)
        if statement.if_not_exists and catalog.called(state, name) is not None:
            return Result("CREATE TABLE AS")
        sources = reads.sources(select.tables, self._known_time(select), state)
        schema = reads.describe(select, sources, state)
        create, text, insert = definition(statement, exact(name), schema)
        self._define(create, text)
        if not statement.with_data:
            return Result("CREATE TABLE AS")
        return Result(self._write(insert, limit).tag.replace("INSERT 0", "SELECT"))

    def _truncate(self, statement: Truncate, limit: Limit) -> Result:
        for table in statement.tables:
            self._write(Delete(table), limit)
        return Result("TRUNCATE TABLE")

    # ---- transactions ------------------------------------------------------------------------

    def _in_a_block(self, execute: Callable[[], Result], limit: Limit) -> Result:
        """Do what takes several steps: in the client's transaction, or in one of its own."""
        if self._transaction is not None:
            return execute()
        for attempt in range(ATTEMPTS_MAX):
            self._begin(self._settings.read_only)
            try:
                done = execute()
                self._commit(limit)
            except SerializationFailure:
                if attempt + 1 == ATTEMPTS_MAX:
                    raise
            else:
                return done
            finally:
                self._end()
        raise AssertionError("the last attempt returns or raises")

    def _alone_or_in_block(self) -> Transaction:
        """The open transaction, or what a statement on its own is."""
        if self._transaction is not None:
            return self._transaction.now
        return Transaction(self._settings.read_only)

    def _begin(self, read_only: bool) -> None:
        self._variables.begin()
        self._transaction = OpenTransaction(self._coordinator, read_only=read_only)

    def _commit(self, limit: Limit) -> Result:
        transaction, committed = self._transaction, False
        try:
            if transaction is not None:
                transaction.commit(limit)
            committed = True
        finally:
            self._end(committed=committed)
        return Result("COMMIT")

    def _set_transaction(self, statement: SetTransaction) -> Result:
        if statement.read_only is not None:
            if statement.session:
                self._variables.assign_read_only(statement.read_only)
            elif self._transaction is not None:
                self._transaction.restrict(read_only=statement.read_only)
        return Result("SET")

    def _savepoint(self, statement: Savepoint | RollbackTo | Release) -> Result:
        transaction = self._transaction
        assert transaction is not None, "the wire sees to it"
        match statement:
            case Savepoint(name):
                kept = (transaction.now, self._variables.kept())
                self._savepoints = self._savepoints.having(name, kept)
                return Result("SAVEPOINT")
            case RollbackTo(name):
                self._savepoints, (then, set_then) = self._savepoints.back_to(name)
                transaction.back_to(then)
                self._variables.back_to(set_then)
                return Result("ROLLBACK")
            case Release(name):
                self._savepoints = self._savepoints.released(name)
                return Result("RELEASE")

    def _end(self, *, committed: bool = False) -> None:
        """Forget the transaction, and let go what it held."""
        transaction, self._transaction = self._transaction, None
        if transaction is None:
            return
        self._savepoints = Savepoints()
        self._variables.end(committed=committed)
        transaction.end()

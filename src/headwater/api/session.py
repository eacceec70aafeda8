"""A session from Python: statements one after another, with their settings and transactions.

    with db.session() as session:
        session.sql("SET transaction_isolation = 'serializable'")
    with db.transaction() as tx:                     # COMMIT at the end, ROLLBACK on an exception
        tx.sql("INSERT INTO orders VALUES ($1, $2)", (1, 10))
        tx.sql("INSERT INTO payments VALUES ($1, $2)", (1, 10))

One statement at a time: who comes from another thread waits for the one before.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Self

import pyarrow as pa

from headwater.adapter.errors import Unsupported
from headwater.adapter.pgwire.backend import CopyOut, Result
from headwater.adapter.sql.parse import parse_for_session
from headwater.adapter.sql.statements import (
    Begin,
    Commit,
    ForSession,
    Rollback,
    SetVariable,
    Subscribe,
)
from headwater.api.answer import Answer
from headwater.api.engine import Engine, ReadOnlyDatabase
from headwater.api.values import bound, rows_of

_ISOLATION = "transaction_isolation"


class Session:
    """See the module's docstring; made by ``Database.session()``."""

    def __init__(self, engine: Engine, isolation: str | None = None) -> None:
        self._engine = engine
        self._inner = engine.coordinator.open_session()
        self._turn = threading.RLock()
        self._isolation_is_chosen = isolation is not None
        if isolation is not None:
            self._run(SetVariable(_ISOLATION, isolation), "SET")
        if engine.timeout_ms:
            self._run(SetVariable("statement_timeout", f"{engine.timeout_ms}ms"), "SET")

    def sql(self, text: str, params: Sequence[object] = ()) -> Answer:
        """Execute statements; answer the last one. ``$1`` … ``$n`` (of one statement) are params.

        What it acknowledges is durable, unless a transaction is open.
        """
        if params:
            text = bound(text, params)
        answer = Answer("", None, self._engine.spark)
        with self._turn:
            for statement, words in parse_for_session(text, self._inner.dialect):
                answer = self._answer(statement, words)
        return answer

    def execute(self, statement: ForSession, text: str) -> Answer:
        """Execute one statement that has been read already."""
        with self._turn:
            return self._answer(statement, text)

    def insert(self, table: str, rows: Any) -> int:
        """Insert rows, all at one time or none of them; return how many.

        ``rows``: an Arrow table or batch, a pandas or PySpark DataFrame, or mappings. Columns are
        matched by name; those left out get their defaults.
        """
        engine = self._engine
        if not engine.writable:
            raise ReadOnlyDatabase(f"an insert into {table}")
        with self._turn:
            target = engine.coordinator.target(table)
            taken = rows_of(rows, target.schema, table)
            copy = self._inner.copy_in(table, tuple(taken.column_names))
            for batch in taken.to_batches():
                copy.write(batch)
            copy.finish()
        return int(taken.num_rows)

    def _answer(self, statement: ForSession, text: str) -> Answer:
        if isinstance(statement, Subscribe):
            raise Unsupported("SUBSCRIBE as a statement here", hint="Use Database.subscribe().")
        if isinstance(statement, SetVariable) and statement.name == _ISOLATION:
            self._isolation_is_chosen = statement.value is not None
        self._engine.admit(statement, text)
        if not self._isolation_is_chosen:
            self._inner.execute(SetVariable(_ISOLATION, str(self._engine.isolation)), "SET")
        result = self._run(statement, text)
        rows = None
        if result.columns is not None:
            fields = [pa.field(each.name, each.type) for each in result.columns]
            batches = list(result.batches)
            schema = batches[0].schema if batches else pa.schema(fields)
            rows = pa.Table.from_batches(batches, schema=schema)
        return Answer(result.tag, rows, self._engine.spark)

    def _run(self, statement: ForSession, text: str) -> Result:
        result = self._inner.execute(statement, text)
        assert not isinstance(result, CopyOut), "only the wire makes copies of answers"
        return result

    def cancel(self) -> None:
        """End the statement that runs, from any thread: it raises ``QueryCanceled``."""
        self._inner.cancel()

    def close(self) -> None:
        """Forget the open transaction, if there is one."""
        self._inner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Transaction(Session):
    """A session whose whole life is one transaction."""

    def __init__(self, engine: Engine, isolation: str | None = None) -> None:
        super().__init__(engine, isolation)
        self.execute(Begin(None if engine.writable else True), "BEGIN")

    def __exit__(self, *raised: object) -> None:
        try:
            if raised[0] is None:
                self.execute(Commit(), "COMMIT")
            else:
                self.execute(Rollback(), "ROLLBACK")
        finally:
            self.close()

"""SQL of a person at the console: executed in a session of the server, answered as texts.

A :class:`Desk` is one open page: one session, one statement at a time, so that transactions and
settings hold from one statement to the next as they do in psql. It may be at another time than now:
then every query that does not say so itself is read ``AS OF`` that time.

:func:`readable` is over which times a query can be read: the meet of what it reads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from headwater.adapter import catalog
from headwater.adapter.session import ClientSession
from headwater.adapter.sql.parse import parse_for_session
from headwater.adapter.sql.statements import AsOf, Select, Subscribe
from headwater.base.errors import HeadwaterError
from headwater.console.sight import Sight
from headwater.persist.state import State

ROWS_MAX: Final = 1_000
TEXT_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class Answer:
    """What a statement gave."""

    tag: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str | None, ...], ...] = ()
    more: bool = False
    """Whether there were more rows than are shown."""
    seconds: float = 0.0
    error: str = ""
    hint: str = ""


class Desk:
    """One page's session."""

    def __init__(self, sight: Sight) -> None:
        self._sight = sight
        self._session: ClientSession | None = None
        self._turn = threading.Lock()

    def run(self, sql: str, as_of: int | None = None) -> list[Answer]:
        """Execute statements one after another, up to the first that fails."""
        with self._turn:
            try:
                statements = parse_for_session(sql)
            except HeadwaterError as error:
                return [_failed(error)]
            if self._session is None:
                self._session = self._sight.open_session()
            answers: list[Answer] = []
            for statement, text in statements:
                answers.append(self._execute(self._session, _at(statement, as_of), text))
                if answers[-1].error:
                    break
            return answers

    def cancel(self) -> None:
        """End what runs."""
        session = self._session
        if session is not None:
            session.cancel()

    def close(self) -> None:
        """End the session."""
        self.cancel()
        with self._turn:
            session, self._session = self._session, None
            if session is not None:
                session.close()

    def _execute(self, session: ClientSession, statement: Any, text: str) -> Answer:
        if isinstance(statement, Subscribe):
            return Answer("", error="SUBSCRIBE goes on for ever; the page of an object shows it")
        began = time.monotonic()
        try:
            result = session.execute(statement, text)
            names = tuple(column.name for column in result.columns or ())
            rows, more = first_rows(result.batches)
        except HeadwaterError as error:
            return _failed(error)
        return Answer(result.tag, names, rows, more, time.monotonic() - began)


def first_rows(
    batches: Iterable[pa.RecordBatch], limit: int = ROWS_MAX
) -> tuple[tuple[tuple[str | None, ...], ...], bool]:
    """Return the first rows as texts, and whether there are more."""
    rows: list[tuple[str | None, ...]] = []
    for batch in batches:
        columns = [column.to_pylist() for column in batch.slice(0, limit + 1 - len(rows)).columns]
        rows.extend(tuple(map(shown, row)) for row in zip(*columns, strict=True))
        if len(rows) > limit:
            return tuple(rows[:limit]), True
    return tuple(rows), False


def shown(value: object) -> str | None:
    """Return a value as a cell shows it; None: NULL."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + "…"


def relations_of(sql: str) -> Sequence[str]:
    """Return what the queries of a text read; nothing of a text that is none."""
    try:
        found = [s for s, _ in parse_for_session(sql) if isinstance(s, Select)]
    except HeadwaterError:
        return ()
    return tuple(dict.fromkeys(name for select in found for name in select.tables))


def readable(state: State, names: Sequence[str]) -> tuple[int, int] | None:
    """Return the first and the last time at which all of these can be read; None: at none."""
    try:
        sources = catalog.sources(state, names)
    except HeadwaterError:
        return None
    first, last = None, None
    for gid in sources.collections:
        collection = state.collections[gid]
        upper = state.upper(collection)
        if collection.since.is_closed or upper.is_closed:
            continue
        since, newest = collection.since.only(), upper.only() - 1
        first = since if first is None else max(first, since)
        last = newest if last is None else min(last, newest)
    if first is None or last is None or first > last:
        return None
    return first, last


def _at(statement: Any, as_of: int | None) -> Any:
    if as_of is None or not isinstance(statement, Select) or statement.as_of is not None:
        return statement
    return replace(statement, as_of=AsOf(as_of))


def _failed(error: HeadwaterError) -> Answer:
    hint = getattr(error, "hint", None)
    return Answer("", error=str(error), hint=hint if isinstance(hint, str) else "")

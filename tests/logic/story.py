"""Statements over the wire, one line of answer each, and views checked at every time.

Directives:

``each``
    Statements, each ended by a semicolon at the end of a line; one line of output for each: its
    rows (columns joined by ``,``, rows by `` / ``, sorted unless it has ORDER BY), its tag if it
    has no rows, or ``ERROR`` and the SQLSTATE. Values are as they came over the wire, as text, an
    empty one as ``""``. ``as=name``: in a session of that name. ``prepared``: by the extended
    protocol, in binary and in text.
``views``
    Every materialized view made so far, at every time since it was made at which something was
    answered (or at ``times_max`` of them): its rows are those of its query at that time, and its
    newest those of its query now.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import psycopg

from headwater.adapter.sql.parse import parse
from headwater.adapter.sql.statements import CreateMaterializedView
from headwater.testing.datadriven import Directive

MAIN: Final = "main"


class WireStory:
    """Sessions by name on one server."""

    def __init__(self, *, times_max: int | None = None, **where: Any) -> None:
        self._where = where
        self._times_max = times_max
        self._sessions: dict[str, psycopg.Connection[Any]] = {}
        self._views: dict[str, str] = {}
        self._table: str | None = None
        self._times: dict[str, set[int]] = {}
        self.statements = 0
        self.checked = 0

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()

    def session(self, name: str) -> psycopg.Connection[Any]:
        found = self._sessions.get(name)
        if found is None:
            found = psycopg.connect(**self._where, autocommit=True, connect_timeout=60)
            self._sessions[name] = found
        return found

    def handle(self, directive: Directive) -> str:
        if directive.command == "views":
            return self._check_views()
        assert directive.command == "each", directive.command
        session = self.session(directive.args.get("as", MAIN))
        return "\n".join(
            self._one(session, statement, prepared="prepared" in directive.args)
            for statement in split(directive.input)
        )

    def _one(self, session: psycopg.Connection[Any], sql: str, *, prepared: bool) -> str:
        self.statements += 1
        try:
            if not prepared:
                answer = shown(session.execute(sql), sql)
            else:
                with session.cursor() as cursor:
                    answer = shown(cursor.execute(sql, prepare=True), sql)
                    binary = list(cursor.execute(sql, prepare=True, binary=True))
                    assert len(binary) == cursor.rowcount
        except psycopg.Error as error:
            return f"ERROR {error.sqlstate}"
        self._note(sql)
        return answer

    # ---- views -------------------------------------------------------------------------------

    def _note(self, sql: str) -> None:
        """Remember views, and the time of what was answered."""
        upper = sql.lstrip().upper()
        if upper.startswith("CREATE TABLE") and self._table is None:
            self._table = sql.split()[2]
        if upper.startswith("DROP MATERIALIZED VIEW"):
            self._views.pop(sql.split()[3].rstrip(";"), None)
        if upper.startswith("CREATE MATERIALIZED VIEW"):
            (statement,) = parse(sql)
            assert isinstance(statement, CreateMaterializedView)
            self._views[statement.name] = statement.query_sql
            self._times[statement.name] = set()
        if self._views:
            now = self._now()
            for name in self._views:
                self._times[name].add(now)

    def _now(self) -> int:
        lines = self.session("views").execute(f"EXPLAIN TIMESTAMP FOR SELECT * FROM {self._table}")
        return int(
            next(row[0] for row in lines if row[0].startswith("query timestamp")).split()[-1]
        )

    def _check_views(self) -> str:
        session = self.session("views")
        for name, query in self._views.items():
            times = sorted(self._times[name])
            assert times, name
            every = 1 if self._times_max is None else max(1, len(times) // self._times_max)
            for time in times[::every]:
                kept = Counter(session.execute(f"SELECT * FROM {name} AS OF {time}"))
                fresh = Counter(session.execute(f"{query} AS OF {time}"))
                assert kept == fresh, f"{name} at {time}: {kept} is not {fresh}"
                self.checked += 1
            newest = Counter(session.execute(f"SELECT * FROM {name}"))
            assert newest == Counter(session.execute(query)), name
        return f"{len(self._views)} views"


def split(text: str) -> list[str]:
    """Return the statements of a case, without their semicolons."""
    found, lines = [], list[str]()
    for line in text.splitlines():
        lines.append(line)
        if line.rstrip().endswith(";"):
            found.append("\n".join(lines).rstrip().removesuffix(";"))
            lines = []
    assert not lines, f"no semicolon after {lines}"
    return found


def shown(cursor: psycopg.Cursor[Any], sql: str) -> str:
    """Return the last answer of a cursor on one line."""
    while cursor.nextset():
        pass
    result = cursor.pgresult
    assert result is not None
    if cursor.description is None:
        return str(cursor.statusmessage)
    rows = [
        ",".join(
            "NULL" if (value := result.get_value(row, column)) is None else value.decode() or '""'
            for column in range(result.nfields)
        )
        for row in range(result.ntuples)
    ]
    if "ORDER BY" not in sql.upper():
        rows.sort()
    return " / ".join(rows) if rows else "(none)"

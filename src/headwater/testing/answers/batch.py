"""A batch: queries asked four ways over one script, and what came out.

    1. a schema of its own is filled on both servers; PostgreSQL is asked every query;
    2. each query becomes a materialized view, which is read: the *hydrated* answer;
    3. transactions change the tables; PostgreSQL is asked again;
    4. the views are read again: the *maintained* answer; each query is asked *ad hoc*.

What PostgreSQL does not understand is no question, and is counted. What we refuse by name is no
agreement, and is counted by its reason. A difference that the table of ``differences.py`` knows is
told with its entry; any other is a finding, to be shrunk (``shrink.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from headwater.testing.answers.answer import Answer, Failed, ask, disagreement
from headwater.testing.answers.differences import known
from headwater.testing.answers.queries import Query
from headwater.testing.answers.served import IN_ERROR, Servers
from headwater.testing.answers.shrink import smallest
from headwater.testing.answers.world import Script

Way = Literal["created", "hydrated", "maintained", "ad hoc"]

REFUSED: Final = "0A000"
_NOT_UNDERSTOOD: Final = ("42", "0A", "54")


@dataclass(frozen=True, slots=True)
class Finding:
    """A query to which one of our ways gives another answer than PostgreSQL."""

    query: Query
    way: Way
    what: str

    def __str__(self) -> str:
        return f"{self.way}: {self.what}\n    {self.query.sql}"


@dataclass
class Report:
    """What came of some batches."""

    asked: int = 0
    """Queries that PostgreSQL understands."""
    nonsense: int = 0
    compared: int = 0
    """Those that ran all four ways."""
    refused: Counter[str] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)

    def add(self, other: Report) -> None:
        """Count what another report has, too."""
        self.asked += other.asked
        self.nonsense += other.nonsense
        self.compared += other.compared
        self.refused += other.refused
        self.known += other.known
        self.findings += other.findings

    def __str__(self) -> str:
        counted = (
            f"{self.asked} queries, {self.compared} ran on all four, "
            f"{len(self.findings)} differ, {sum(self.known.values())} in a way that is known, "
            f"{sum(self.refused.values())} refused ({self.nonsense} were no question)"
        )
        lines = [counted]
        lines += [f"  known, {count}: {why}" for why, count in self.known.most_common()]
        lines += [f"  refused, {count}: {why}" for why, count in self.refused.most_common()]
        return "\n".join([*lines, *map(str, self.findings)])


def run(servers: Servers, script: Script, queries: Sequence[Query]) -> Report:
    """Ask queries four ways over one script."""
    with servers.batch():
        return _Batch(servers, script, queries).run()


def shrunk(servers: Servers, script: Script, finding: Finding) -> Finding:
    """Return the smallest query found that shows what a finding shows."""
    query, found = finding.query, [finding]

    def still_fails(sql: str) -> bool:
        for each in run(servers, script, [replace(query, sql=sql)]).findings:
            if each.way == finding.way and _kind(each.what) == _kind(finding.what):
                found.append(each)
                return True
        return False

    smallest(query.sql, still_fails)
    return found[-1]


def _kind(what: str) -> str:
    """Return what two findings have in common that show the same: an error, or rows."""
    return what[: len("error 00000")] if what.startswith("error") else what.split(maxsplit=1)[0]


@dataclass
class _Batch:
    servers: Servers
    script: Script
    queries: Sequence[Query]
    report: Report = field(default_factory=Report)

    def run(self) -> Report:
        servers = self.servers
        for transaction in self.script.before:
            servers.both(*transaction)
        views = self._views()
        before = {name: ask(servers.theirs, query.sql) for name, query in views.items()}
        for name, query in views.items():
            self._judge("hydrated", query, servers.view(name), before[name])
        for transaction in self.script.after:
            servers.both(*transaction)
        for name, query in views.items():
            theirs = ask(servers.theirs, query.sql)
            maintained = self._judge("maintained", query, servers.view(name), theirs)
            asked = self._judge("ad hoc", query, ask(servers.ours, query.sql), theirs)
            self.report.compared += maintained and asked
        return self.report

    def _views(self) -> dict[str, Query]:
        """Make views of all that is not refused, in one transaction: they are hydrated together."""
        made: dict[str, Query] = {}
        ours = self.servers.ours
        ask(ours, "BEGIN")
        for number, query in enumerate(self.queries):
            theirs = ask(self.servers.theirs, query.sql)
            if isinstance(theirs, Failed) and theirs.sqlstate.startswith(_NOT_UNDERSTOOD):
                self.report.nonsense += 1
                continue
            self.report.asked += 1
            name = f"view_{number}"
            ask(ours, "SAVEPOINT before")
            created = ask(ours, f"CREATE MATERIALIZED VIEW {name} AS {query.sql}")
            if not isinstance(created, Failed):
                made[name] = query
                continue
            ask(ours, "ROLLBACK TO before")
            if created.sqlstate == REFUSED:
                self.report.refused[created.message] += 1
            else:
                self._judge("created", query, created, theirs)
        committed = ask(ours, "COMMIT")
        assert not isinstance(committed, Failed), committed
        return made

    def _judge(self, way: Way, query: Query, ours: Answer, theirs: Answer) -> bool:
        """Note what differs; return whether the query ran this way."""
        if isinstance(ours, Failed) and ours.sqlstate == REFUSED:
            self.report.refused[f"{way}: {ours.message}"] += 1
            return False
        if isinstance(ours, Failed) and ours.sqlstate == IN_ERROR and isinstance(theirs, Failed):
            return True
        # A view is a multiset: an order is that of who reads it.
        what = disagreement(ours, theirs, is_ordered=query.is_ordered and way == "ad hoc")
        if what is None:
            return True
        entry = known(query.sql, what)
        if entry is None:
            self.report.findings.append(Finding(query, way, what))
        else:
            self.report.known[entry.construct] += 1
        return True

"""The adapter's decisions, told in directive files.

- ``adapter/oracle``: the timeline's oracle over a real location in memory, with a clock that the
  story sets, restarts, and take-overs. After *every* directive the rules are checked over all that
  was answered so far: times never decrease, a write is after every read before it, a read has every
  write acknowledged before it, no time is ahead of the clock by more than the timeline was.
- ``adapter/selection``: the choice of a read's time, a pure function of frontiers.
- ``adapter/sql``: statements of several sessions, one after another, and what they answer.
  ``ingest`` lets every source run once, and says how many entries of the log that took;
  ``restart`` goes on with another server, while the old one is still there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.adapter.errors import AdapterError
from headwater.adapter.settings import Settings
from headwater.adapter.sql.statements import AsOf
from headwater.adapter.timestamps import Input, choose, explained
from headwater.base.clock import ManualClock
from headwater.persist.errors import Fenced
from headwater.testing.datadriven import Directive, collect, run_file
from headwater.testing.sql_server import SqlServer, SqlSession

FOLDER = Path(__file__).parent / "adapter"


class OracleStory:
    """One location and the servers that own it, one after another."""

    def __init__(self) -> None:
        self.clock = ManualClock(1_000)
        self.server = SqlServer(self.clock)
        self.old: SqlServer | None = None
        self.server.session()("CREATE TABLE t (k bigint)")
        self.read_max = self.write_max = self.upper_max = 0

    def handle(self, directive: Directive) -> str:
        answer = getattr(self, f"_{directive.command}")(directive)
        assert self.server.timeline.upper >= self.upper_max, "time went back"
        self.upper_max = self.server.timeline.upper
        return str(answer)

    def stop(self) -> None:
        for server in (self.old, self.server):
            if server is not None:
                server.stop()

    def _clock(self, directive: Directive) -> str:
        self.clock.set(int(directive.args["ms"]))
        return ""

    def _read(self, directive: Directive) -> str:
        server = self.old if "old" in directive.args else self.server
        assert server is not None
        try:
            time = server.timeline.read_time()
        except Fenced:
            return "fenced"
        assert time >= self.read_max, "a read before an earlier one"
        assert time >= self.write_max, "a read that misses an acknowledged write"
        self.read_max = time
        return f"at {time}"

    def _write(self, directive: Directive) -> str:
        server = self.old if "old" in directive.args else self.server
        assert server is not None
        try:
            server.session()("INSERT INTO t VALUES (1)")
        except Fenced:
            return "fenced"
        time = server.timeline.upper - 1
        assert time > self.read_max, "a write not after a read before it"
        assert time >= self.write_max, "a write before an earlier one"
        self.write_max = time
        return f"at {time}, clock {self.clock.now_ms()}"

    def _tick(self, _: Directive) -> str:
        before = self.server.client.core.state.seqno
        self.server.timeline.tick()
        entries = self.server.client.core.state.seqno - before
        return f"upper {self.server.timeline.upper}, entries {entries}"

    def _restart(self, _: Directive) -> str:
        stopped, self.server = self.server, None  # type: ignore[assignment]
        stopped.stop()
        self.server = SqlServer(self.clock, on=stopped)
        return f"upper {self.server.timeline.upper}"

    def _take_over(self, _: Directive) -> str:
        self.old, self.server = self.server, SqlServer(self.clock, on=self.server, take_over=True)
        return f"upper {self.server.timeline.upper}"


def select_time(directive: Directive) -> str:
    """Choose a time for the frontiers of the input lines: ``name since upper``."""
    args = directive.args
    inputs = [
        Input(name, None if since == "closed" else int(since), None if u == "closed" else int(u))
        for name, since, u in (line.split() for line in directive.input.splitlines())
    ]
    isolation = Settings().assigned("transaction_isolation", args.get("isolation")).isolation
    as_of = None
    if "as_of" in args:
        as_of = AsOf(int(args["as_of"]))
    elif "at_least" in args:
        as_of = AsOf(int(args["at_least"]), at_least=True)
    oracle = int(args["oracle"]) if "oracle" in args else None
    try:
        choice = choose(inputs, isolation, as_of, oracle)
    except AdapterError as error:
        return told(error)
    return "\n".join(explained(choice, "default"))


def told(error: AdapterError) -> str:
    lines = [f"{error.sqlstate} {error.condition}: {error.primary}"]
    lines += [f"  {text}" for text in (error.detail, error.hint) if text]
    return "\n".join(lines)


class SqlStory:
    """Sessions by name, on one server whose clock stands still unless it must move."""

    def __init__(self) -> None:
        self.server = SqlServer(ManualClock(1_000))
        self.sessions: dict[str, SqlSession] = {}
        self._before: list[SqlServer] = []

    def stop(self) -> None:
        for server in (*self._before, self.server):
            server.stop()

    def handle(self, directive: Directive) -> str:
        if directive.command == "clock":
            self.server.clock.set(int(directive.args["ms"]))  # type: ignore[attr-defined]
            return ""
        if directive.command == "tick":
            self.server.timeline.tick()
            return f"upper {self.server.timeline.upper}"
        if directive.command == "ingest":
            before = self.server.client.core.state.seqno
            self.server.ingestions.tick()
            return f"entries {self.server.client.core.state.seqno - before}"
        if directive.command == "restart":
            old = self.server
            self.server, self.sessions = SqlServer(old.clock, on=old, take_over=True), {}
            self._before.append(old)
            return ""
        assert directive.command == "sql", directive.command
        name = next(iter(directive.args), "main")
        session = self.sessions.setdefault(name, self.server.session())
        try:
            rows = session(directive.input)
        except AdapterError as error:
            return told(error)
        return "\n".join("\t".join("NULL" if v is None else str(v) for v in row) for row in rows)


def _stories(kind: str) -> list[Path]:
    return collect(FOLDER / kind)


@pytest.mark.parametrize("path", _stories("oracle"), ids=lambda path: path.stem)
def test_oracle(path: Path) -> None:
    story = OracleStory()
    try:
        run_file(path, story.handle)
    finally:
        story.stop()


@pytest.mark.parametrize("path", _stories("selection"), ids=lambda path: path.stem)
def test_selection(path: Path) -> None:
    handler: Callable[[Directive], str] = select_time
    run_file(path, handler)


@pytest.mark.parametrize("path", _stories("sql"), ids=lambda path: path.stem)
def test_sql(path: Path) -> None:
    story = SqlStory()
    try:
        run_file(path, story.handle)
    finally:
        story.stop()

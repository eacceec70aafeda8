"""SUBSCRIBE to plain views and to queries: what is kept for it is exact, and goes with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from headwater.adapter.errors import AdapterError
from headwater.adapter.transients import transients
from headwater.base.clock import ManualClock
from headwater.testing.sql_server import SqlServer, SqlSession

SUMS = "SELECT g, sum(x) AS s, count(*) AS n FROM t GROUP BY g"


@pytest.fixture
def server() -> Iterator[SqlServer]:
    with SqlServer(ManualClock(1_000)) as opened:
        opened.session()(f"CREATE TABLE t (g text, x int); CREATE VIEW sums AS {SUMS}")
        yield opened


def _left(server: SqlServer) -> list[str]:
    return list(transients(server.client.core.state))


def _told(server: SqlServer, text: str) -> list[tuple[Any, ...]]:
    batches = server.session().open(text)
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("what", ["sums", f"TO ({SUMS})"])
def test_every_time_of_a_subscription_is_the_query_at_that_time(
    server: SqlServer, what: str
) -> None:
    sql, random = server.session(), Random(3)
    sql("INSERT INTO t VALUES ('p', 1)")
    start = server.timeline.upper - 1
    for _ in range(6):
        g, x = random.choice("pqr"), random.randrange(5)
        sql(f"INSERT INTO t VALUES ('{g}', {x})" if x else f"DELETE FROM t WHERE g = '{g}'")
    end = server.timeline.upper
    middle = (start + end) // 2
    first = _told(server, f"SUBSCRIBE {what} AS OF {start} UP TO {middle}")
    # Begun anew from the last progress: nothing is lost, nothing comes twice.
    again = f"SUBSCRIBE {what} WITH (SNAPSHOT false) AS OF {middle - 1} UP TO {end}"
    told = first + _told(server, again)
    for time in range(start, end):
        seen: Counter[tuple[Any, ...]] = Counter()
        for at, diff, *row in told:
            seen[tuple(row)] += diff if at <= time else 0
        assert sorted((+seen).elements()) == sorted(sql(f"{SUMS} AS OF {time}"))
    assert not _left(server)


def test_what_is_kept_goes_with_its_reader_however_that_goes(server: SqlServer) -> None:
    sql, reader = server.session(), server.session()
    batches = reader.open(f"SUBSCRIBE ({SUMS})")
    assert sql("SELECT object, session_id FROM hw_subscriptions") == [(f"({SUMS})", 3)]
    assert len(_left(server)) == 1
    assert sql("SHOW OBJECTS") == [("sums", "view", None), ("t", "table", None)]
    batches.close()
    assert not _left(server)
    with pytest.raises(AdapterError, match="before the start"):
        sql("SUBSCRIBE sums UP TO 5")
    assert not _left(server)
    # A server that dies drops nothing; the next one does.
    left = reader.open("SUBSCRIBE sums")
    with SqlServer(server.clock, on=server, take_over=True) as after:
        assert not _left(after)
        assert len(after.client.core.state.collections) == 1
    assert left is not None


def test_history_is_kept_as_far_as_the_reader_is(server: SqlServer) -> None:
    sql = server.session()
    batches = server.session().open("SUBSCRIBE sums WITH (PROGRESS)")
    (name,) = _left(server)

    def since() -> int:
        state = server.client.core.state
        return int(state.collections[state.names[name]].since.only())

    began = since()
    for _ in range(2):
        server.clock.set(server.clock.now_ms() + 10_000)  # type: ignore[attr-defined]
        sql("INSERT INTO t VALUES ('p', 1)")
    server.timeline.tick()
    assert since() == began, "nothing was read yet"
    wanted = server.timeline.upper
    reached = 0
    while reached < wanted:
        told = next(batches).to_pylist()
        reached = max([reached, *(row["mz_timestamp"] for row in told if row["mz_progressed"])])
    server.clock.set(server.clock.now_ms() + 10_000)  # type: ignore[attr-defined]
    server.timeline.tick()
    assert since() > began + 10_000
    batches.close()


def test_an_index_is_followed_where_there_is_one(server: SqlServer) -> None:
    sql: SqlSession = server.session()
    sql("CREATE INDEX i ON sums (g); INSERT INTO t VALUES ('p', 4)")
    evaluated = -1
    while evaluated != server.evaluator.evaluated:  # Until the index answers by itself.
        evaluated = server.evaluator.evaluated
        assert sql("SELECT s FROM sums WHERE g = 'p'") == [(4,)]
    batches = server.session().open("SUBSCRIBE sums")
    assert not _left(server)
    batches.close()


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("SUBSCRIBE ()", "SYNTAX_ERROR"),
        ("SUBSCRIBE (SELECT * FROM t", "SYNTAX_ERROR"),
        ("SUBSCRIBE SELECT * FROM t", "FEATURE_NOT_SUPPORTED"),
        ("SUBSCRIBE (SELECT * FROM t AS OF 5)", "FEATURE_NOT_SUPPORTED"),
        ("SUBSCRIBE (SELECT * FROM nope)", "UNDEFINED_RELATION"),
        ("SUBSCRIBE (SELECT * FROM hw_objects)", "SYSTEM_RELATION"),
        ("SUBSCRIBE sums AS OF 5", "TIMESTAMP_NOT_READABLE"),
    ],
)
def test_what_is_refused(server: SqlServer, text: str, condition: str) -> None:
    with pytest.raises(AdapterError) as refused:
        server.session()(text)
    assert refused.value.condition == condition
    assert not _left(server)

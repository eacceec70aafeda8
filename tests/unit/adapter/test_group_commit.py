"""Group commit: many writes in few entries, each decided after the ones before it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headwater.adapter.errors import (
    AdapterError,
    QueryCanceled,
    SerializationFailure,
    UniqueViolation,
)
from headwater.base.clock import SystemClock
from headwater.base.errors import HeadwaterError
from headwater.persist.errors import Fenced
from headwater.testing.awaited import until
from headwater.testing.sql_server import SqlServer


@pytest.fixture
def server() -> Iterator[SqlServer]:
    with SqlServer(SystemClock()) as opened:
        opened.session()("CREATE TABLE t (k bigint PRIMARY KEY, v text)")
        yield opened


def together(*calls: Callable[[], Any]) -> list[Any]:
    """Run calls at the same time; return what each returned or raised."""
    outcomes: list[Any] = [None] * len(calls)

    def run(place: int) -> None:
        try:
            outcomes[place] = calls[place]()
        except HeadwaterError as error:
            outcomes[place] = error

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def test_writes_that_wait_for_one_entry_share_the_next(server: SqlServer) -> None:
    table = server.coordinator.target("t").id
    before = server.client.core.state.seqno
    sessions = [server.session() for _ in range(20)]
    results: list[Any] = []
    with server.coordinator.commits.turns.exclusive(frozenset((table,))):
        writers = threading.Thread(
            target=lambda: results.extend(
                together(
                    *(
                        lambda s=s, n=n: s.tag(f"INSERT INTO t VALUES ({n}, 'x')")
                        for n, s in enumerate(sessions)
                    )
                )
            )
        )
        writers.start()
        until(lambda: server.coordinator.commits.turns.waiting >= 20, "twenty writes that wait")
    writers.join()
    assert results == ["INSERT 0 1"] * 20
    assert server.client.core.state.seqno == before + 1
    assert server.session()("SELECT count(*) FROM t") == [(20,)]


def test_one_key_has_one_winner_also_inside_a_group(server: SqlServer) -> None:
    sessions = [server.session() for _ in range(8)]
    for k in range(10):
        outcomes = together(
            *(
                lambda s=s, n=n, k=k: s.tag(f"INSERT INTO t VALUES ({k}, 'of {n}')")
                for n, s in enumerate(sessions)
            )
        )
        assert sum(outcome == "INSERT 0 1" for outcome in outcomes) == 1
        assert sum(isinstance(outcome, UniqueViolation) for outcome in outcomes) == 7
    assert server.session()("SELECT count(*) FROM t") == [(10,)]


def test_a_refused_write_leaves_the_others_of_its_group_alone(server: SqlServer) -> None:
    sql = server.session()
    sql("INSERT INTO t VALUES (1, 'a')")
    with pytest.raises(UniqueViolation):
        sql("BEGIN; INSERT INTO t VALUES (2, 'b'); INSERT INTO t VALUES (1, 'b'); COMMIT")
    # Nothing of it is there, and its keys are free.
    assert sql("ROLLBACK; INSERT INTO t VALUES (2, 'c'); SELECT * FROM t") == [(1, "a"), (2, "c")]


def test_a_load_is_checked_as_its_rows_would_be(server: SqlServer) -> None:
    sql = server.session()
    rows = ", ".join(f"({k}, 'x')" for k in range(1_200))
    assert sql.tag(f"INSERT INTO t VALUES {rows}") == "INSERT 0 1200"
    fresh = ", ".join(f"({k}, 'y')" for k in range(2_000, 3_100))
    for bad in ("1199", "2000"):
        with pytest.raises(UniqueViolation):
            sql(f"INSERT INTO t VALUES {fresh}, ({bad}, 'z')")
    sql(f"INSERT INTO t VALUES {fresh}")
    assert sql("SELECT count(*) FROM t") == [(2_300,)]


def test_keys_may_be_exchanged_in_one_statement(server: SqlServer) -> None:
    sql = server.session()
    sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    sql("UPDATE t SET k = 3 - k")
    assert sql("SELECT * FROM t") == [(1, "b"), (2, "a")]


def test_who_waits_for_a_gate_can_be_cancelled(server: SqlServer) -> None:
    table = server.coordinator.target("t").id
    waiting = server.session()
    outcomes: list[Any] = []
    with server.coordinator.commits.turns.exclusive(frozenset((table,))):
        thread = threading.Thread(
            target=lambda: outcomes.extend(
                together(lambda: waiting("INSERT INTO t VALUES (1, 'x')"))
            )
        )
        thread.start()
        until(lambda: server.coordinator.commits.turns.waiting, "a write that waits")
        waiting.session.cancel()
        thread.join()
        # Another table is nobody's business.
        server.session()("CREATE TABLE u (k bigint); INSERT INTO u VALUES (1)")
    assert isinstance(outcomes[0], QueryCanceled)
    assert server.session()("SELECT count(*) FROM t") == [(0,)]


def test_statements_that_read_first_are_serialized_not_refused(server: SqlServer) -> None:
    sql = server.session()
    sql("CREATE TABLE n (k bigint PRIMARY KEY, x bigint); INSERT INTO n VALUES (1, 0)")
    sessions = [server.session() for _ in range(6)]

    def bump(session: Any) -> None:
        for _ in range(5):
            session("UPDATE n SET x = x + 1 WHERE k = 1")

    outcomes = together(*(lambda s=s: bump(s) for s in sessions))
    assert outcomes == [None] * 6
    assert sql("SELECT x FROM n WHERE k = 1") == [(30,)]


def test_a_fenced_server_acknowledges_nothing(server: SqlServer) -> None:
    session = server.session()
    session("INSERT INTO t VALUES (1, 'a')")
    with SqlServer(server.clock, on=server, take_over=True) as successor:
        with pytest.raises(Fenced):
            session("INSERT INTO t VALUES (2, 'b')")
        with pytest.raises(Fenced):
            session("SELECT v FROM t WHERE k = 1")
        assert successor.session()("SELECT * FROM t") == [(1, "a")]


def test_a_table_that_is_gone_is_not_written(server: SqlServer) -> None:
    sql = server.session()
    other = server.session()
    sql("BEGIN; INSERT INTO t VALUES (1, 'x')")
    other("DROP TABLE t")
    with pytest.raises(AdapterError) as refused:
        sql("COMMIT")
    assert refused.value.sqlstate == "42P01"


def test_rows_that_come_due_between_a_read_and_its_write_count_as_written() -> None:
    with SqlServer() as server:
        sql = server.session()
        sql("CREATE TABLE n (x bigint); INSERT INTO n VALUES (1)")
        soon = server.timeline.upper + 20
        sql("BEGIN; SELECT * FROM n; INSERT INTO n VALUES (2)")
        server.session()(f"INSERT INTO n VALUES (7) AS OF {soon}")
        server.clock.set(soon + 10)  # type: ignore[attr-defined]
        with pytest.raises(SerializationFailure):
            sql("COMMIT")
        # A statement of its own looks again instead.
        server.session()(f"INSERT INTO n VALUES (8) AS OF {soon + 50}")
        server.clock.set(soon + 60)  # type: ignore[attr-defined]
        assert sql.tag("UPDATE n SET x = x + 1") == "UPDATE 3"
        assert sql("SELECT * FROM n") == [(2,), (8,), (9,)]

"""Writes at a time of the client's choice: who waits for whom, who is refused, what is left."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headwater.adapter.appointments import Appointment, Appointments
from headwater.adapter.errors import (
    AdapterError,
    QueryCanceled,
    SerializationFailure,
    UnknownRelation,
    WriteInThePast,
)
from headwater.adapter.timeline import APPOINTED, DEFAULT
from headwater.base.clock import ManualClock
from headwater.base.errors import HeadwaterError
from headwater.base.ids import GlobalId
from headwater.persist.errors import Fenced
from headwater.persist.state import violations
from headwater.testing.sql_server import SqlServer

WAIT_SECONDS = 60
A, B = GlobalId(1), GlobalId(2)


# ---- the decision --------------------------------------------------------------------------------


def test_an_appointment_bars_its_table_from_its_time_on() -> None:
    mine, late = Appointment(A, 10), Appointment(A, 20)
    both = Appointments().having(late).having(mine)
    assert both.first(A) == 10
    assert both.first(B) is None
    assert both.tables == {A}
    assert [both.bar({A}, time) for time in (9, 10, 11)] == [False, True, True]
    assert not both.bar({B}, 99)
    assert both.bar({A, B}, 99)
    assert both.without(mine, wrote=True).first(A) == 20
    assert not both.without(mine, wrote=True).bar({A}, 19)


def test_the_second_at_one_time_knows_what_the_first_wrote() -> None:
    first, second, other = Appointment(A, 10), Appointment(B, 10), Appointment(B, 11)
    after = Appointments().having(first).having(second).having(other).without(first, wrote=True)
    assert after.overtook(second, A)
    assert not after.overtook(second, B)
    assert not after.overtook(other, A), "that is before its time: it has seen it"
    assert (
        not Appointments()
        .having(first)
        .having(second)
        .without(first, wrote=False)
        .overtook(second, A)
    )


def test_what_nobody_can_ask_about_is_forgotten() -> None:
    first, second, other = Appointment(A, 10), Appointment(B, 10), Appointment(B, 11)
    stand = Appointments().having(first).having(second).having(other)
    one = stand.without(first, wrote=True)
    assert one.written
    assert not one.without(second, wrote=False).written
    assert stand.without(other, wrote=True).without(second, wrote=False).written
    assert one.without(second, wrote=True).without(other, wrote=True) == Appointments()


# ---- statements side by side ---------------------------------------------------------------------


class Aside:
    """A call in a thread of its own."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.outcome: Any = None
        self._thread = threading.Thread(target=self._run, args=(call,))
        self._thread.start()

    def _run(self, call: Callable[[], Any]) -> None:
        try:
            self.outcome = call()
        except HeadwaterError as error:
            self.outcome = error

    @property
    def waits(self) -> bool:
        self._thread.join(0.05)
        return self._thread.is_alive()

    def done(self) -> Any:
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive(), "it waits for ever"
        return self.outcome


class Evaluation:
    """Holds up the queries of a server that have a word in them."""

    def __init__(self, server: SqlServer) -> None:
        self._began, self.goes_on = threading.Semaphore(0), threading.Event()
        self._select = server.evaluator.select
        server.evaluator.select = self._held  # type: ignore[method-assign]

    def began(self) -> None:
        """Wait until one more query is held up."""
        assert self._began.acquire(timeout=WAIT_SECONDS), "nobody has begun"

    def _held(self, sql: str, as_of: int, **given: Any) -> Any:
        if "slow" in sql:
            self._began.release()
            assert self.goes_on.wait(WAIT_SECONDS)
        return self._select(sql, as_of, **given)


@contextmanager
def stopping(*servers: SqlServer) -> Iterator[None]:
    try:
        yield
    finally:
        for server in servers:
            state = server.client.core.state
            server.stop()
            assert not list(violations(state))


@pytest.fixture
def server() -> Iterator[SqlServer]:
    opened = SqlServer(ManualClock(1_000))
    sql = opened.session()
    sql("CREATE TABLE t (k bigint PRIMARY KEY, v text)")
    sql("CREATE TABLE u (k bigint PRIMARY KEY, v text)")
    sql("INSERT INTO t VALUES (1, 'slow'), (2, 'b')")
    sql("INSERT INTO u VALUES (1, 'slow'), (2, 'b')")
    with stopping(opened):
        yield opened


def at(server: SqlServer, ms: int) -> None:
    server.clock.set(ms)  # type: ignore[attr-defined]


def held(server: SqlServer) -> set[str]:
    state = server.client.core.state
    return {
        collection.name
        for collection in state.collections.values()
        if APPOINTED in collection.writers
    }


SLOW = "UPDATE {table} SET v = v || '!' WHERE v LIKE 'slow%' AS OF {time}"


def test_the_timeline_goes_on_without_the_table(server: SqlServer) -> None:
    evaluation, sql = Evaluation(server), server.session()
    at(server, 2_000)
    slow = Aside(lambda: server.session().tag(SLOW.format(table="t", time=1_500)))
    evaluation.began()
    assert not held(server), "the timeline has not passed it yet"

    server.timeline.tick()
    assert len(held(server)) == 1
    assert server.timeline.upper == 2_000
    assert sql.tag("UPDATE u SET v = 'x' WHERE k = 2") == "UPDATE 1"  # Who has to do with another.
    assert sql("SELECT v FROM t WHERE k = 1 AS OF 1499") == [("slow",)]

    read = Aside(lambda: server.session()("SELECT v FROM t WHERE k = 1"))
    insert = Aside(lambda: server.session().tag("INSERT INTO t VALUES (3, 'c')"))
    update = Aside(lambda: server.session().tag("UPDATE t SET v = v || '?' WHERE k = 1"))
    rests = Aside(lambda: server.session().tag("INSERT INTO u SELECT k + 10, v FROM t WHERE k = 1"))
    assert all(each.waits for each in (read, insert, update, rests))
    with pytest.raises(QueryCanceled):
        server.session()("SET statement_timeout = '30ms'; DELETE FROM t WHERE k = 2")

    evaluation.goes_on.set()
    assert slow.done() == "UPDATE 1"
    assert read.done()[0][0].startswith("slow!")
    assert [each.done() for each in (insert, update, rests)] == [
        "INSERT 0 1",
        "UPDATE 1",
        "INSERT 0 1",
    ]
    assert not held(server)
    assert not server.client.core.state.timelines[DEFAULT].apart
    assert sql("SELECT v FROM t WHERE k = 1 AS OF 1500") == [("slow!",)]
    assert sql("SELECT k, v FROM t") == [(1, "slow!?"), (2, "b"), (3, "c")]
    assert sql("SELECT v FROM u WHERE k = 11")[0][0].startswith("slow!")


def test_a_time_to_come_is_in_nobodys_way(server: SqlServer) -> None:
    sql = server.session()
    later = Aside(lambda: server.session().tag("UPDATE t SET v = v || '!' AS OF 5000"))
    for ms in (1_500, 2_500):
        assert later.waits
        at(server, ms)
        sql(f"INSERT INTO t VALUES ({ms}, 'x')")
        server.timeline.tick()
        assert (sql("SELECT k FROM t WHERE k = 2")) == [(2,)]
    assert not held(server)
    at(server, 6_000)
    sql("INSERT INTO t VALUES (6000, 'later')")  # It comes behind, whoever wakes first.
    assert later.done() == "UPDATE 4"
    assert sql("SELECT v FROM t WHERE k = 2500") == [("x!",)]
    assert sql("SELECT v FROM t WHERE k = 6000") == [("later",)]
    assert sql("SELECT count(*) FROM t AS OF 5000") == [(4,)]


def test_who_gives_up_leaves_nothing(server: SqlServer) -> None:
    session = server.session()
    later = Aside(lambda: session.tag("DELETE FROM t AS OF 5000"))
    assert later.waits
    session.session.cancel()
    assert isinstance(later.done(), QueryCanceled)
    assert server.timeline.appointments == Appointments()
    at(server, 6_000)
    assert server.session()("SELECT count(*) FROM t") == [(2,)]


def test_who_fails_while_it_holds_its_table_lets_it_go(server: SqlServer) -> None:
    evaluation = Evaluation(server)
    at(server, 2_000)
    slow = "UPDATE t SET k = 2 WHERE v LIKE 'slow%' AS OF 1500"  # The key is taken.
    failing = Aside(lambda: server.session().tag(slow))
    evaluation.began()
    server.timeline.tick()
    insert = Aside(lambda: server.session().tag("INSERT INTO t VALUES (3, 'c')"))
    assert insert.waits
    evaluation.goes_on.set()
    assert failing.done().sqlstate == "23505"
    assert insert.done() == "INSERT 0 1"
    assert not held(server)


def test_in_the_order_of_their_times(server: SqlServer) -> None:
    evaluation = Evaluation(server)
    at(server, 2_000)
    first = Aside(lambda: server.session().tag(SLOW.format(table="t", time=1_500)))
    evaluation.began()
    second = Aside(lambda: server.session()("DELETE FROM t WHERE k = 1 RETURNING v AS OF 1501"))
    server.timeline.tick()
    blind = server.session()
    third = Aside(lambda: blind.tag("INSERT INTO u SELECT k + 20, v FROM t AS OF 2100"))
    assert second.waits
    assert third.waits
    at(server, 2_200)
    evaluation.goes_on.set()
    assert first.done() == "UPDATE 1"
    assert second.done() == [("slow!",)]
    assert third.done() == "INSERT 0 1"
    assert not held(server)


def test_two_at_one_time(server: SqlServer) -> None:
    evaluation = Evaluation(server)
    at(server, 2_000)
    slow = Aside(lambda: server.session().tag(SLOW.format(table="t", time=1_500)))
    evaluation.began()
    quick = server.session()
    assert quick.tag("UPDATE t SET v = 'quick' WHERE k = 1 AS OF 1500") == "UPDATE 1"
    assert quick("SELECT v FROM t WHERE k = 2 AS OF 1499") == [("b",)]
    evaluation.goes_on.set()
    refused = slow.done()
    assert isinstance(refused, WriteInThePast)
    assert "1501" in str(refused.detail)
    assert quick("SELECT k, v FROM t") == [(1, "quick"), (2, "b")]
    assert not held(server)


def test_two_at_one_time_do_not_miss_each_other(server: SqlServer) -> None:
    """Each rests on what the other writes: one of them is refused."""
    evaluation = Evaluation(server)
    at(server, 2_000)
    clause = "(SELECT k FROM {other} WHERE v LIKE 'slow%') AS OF 1500"
    of_t = "UPDATE t SET v = 'x' WHERE k IN " + clause.format(other="u")
    of_u = "UPDATE u SET v = 'x' WHERE k IN " + clause.format(other="t")
    both = [
        Aside(lambda: server.session().tag(of_t)),
        Aside(lambda: server.session().tag(of_u)),
    ]
    evaluation.began()
    evaluation.began()
    evaluation.goes_on.set()
    outcomes = [each.done() for each in both]
    assert outcomes.count("UPDATE 1") == 1
    assert sum(isinstance(each, SerializationFailure) for each in outcomes) == 1


def test_rows_for_a_table_without_a_key_go_beside(server: SqlServer) -> None:
    sql, evaluation = server.session(), Evaluation(server)
    sql("CREATE TABLE n (v text); INSERT INTO n VALUES ('slow')")
    at(server, 2_000)
    slow = Aside(lambda: server.session().tag(SLOW.format(table="n", time=1_500)))
    evaluation.began()
    server.timeline.tick()
    sql("INSERT INTO n VALUES ('slow too') AS OF 1500")  # Durable, and no matter to the other.
    sql("INSERT INTO n VALUES ('after') AS OF 1600")
    evaluation.goes_on.set()
    assert slow.done() == "UPDATE 1"
    assert sql("SELECT v FROM n") == [("after",), ("slow too",), ("slow!",)]
    assert not server.client.core.state.timelines[DEFAULT].apart


def test_a_block_that_read_before_is_refused(server: SqlServer) -> None:
    evaluation, block = Evaluation(server), server.session()
    block("BEGIN; SELECT v FROM t WHERE k = 2; INSERT INTO u VALUES (9, 'of t')")
    at(server, 2_000)
    slow = Aside(lambda: server.session().tag(SLOW.format(table="t", time=1_500)))
    evaluation.began()
    commit = Aside(lambda: block.tag("COMMIT"))
    assert commit.waits, "whether what it has read is still so is not decided yet"
    evaluation.goes_on.set()
    assert slow.done() == "UPDATE 1"
    assert isinstance(commit.done(), SerializationFailure)
    assert server.session()("SELECT count(*) FROM u") == [(2,)]


def test_a_table_that_is_dropped_meanwhile(server: SqlServer) -> None:
    evaluation = Evaluation(server)
    at(server, 2_000)
    slow = Aside(lambda: server.session().tag(SLOW.format(table="t", time=1_500)))
    later = Aside(lambda: server.session().tag("DELETE FROM t AS OF 9000"))
    evaluation.began()
    server.timeline.tick()
    sql = server.session()
    sql("DROP TABLE t; CREATE TABLE t (k bigint PRIMARY KEY, v text)")
    at(server, 9_500)
    evaluation.goes_on.set()
    assert isinstance(slow.done(), HeadwaterError)
    assert isinstance(later.done(), UnknownRelation)
    assert sql.tag("INSERT INTO t VALUES (1, 'new')") == "INSERT 0 1"
    assert not held(server)


def test_a_source_may_be_rested_on(server: SqlServer) -> None:
    sql = server.session()
    sql("CREATE SOURCE c FROM LOAD GENERATOR COUNTER (TICK INTERVAL '200ms')")
    for ms in range(1_500, 4_000, 500):
        at(server, ms)
        server.ingestions.tick()
    at(server, 5_000)
    server.ingestions.tick()
    when = server.timeline.upper
    at(server, when)
    with pytest.raises(AdapterError):
        sql("INSERT INTO t SELECT counter + 100, 'c' FROM c")
    ((count,),) = sql(f"SELECT count(*) FROM c AS OF {when - 1}")
    assert count > 0
    assert sql.tag(f"INSERT INTO t SELECT counter + 100, 'c' FROM c AS OF {when}") == (
        f"INSERT 0 {count}"
    )


# ---- crashes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("passed", [False, True])
def test_who_takes_over_finds_the_table_free(server: SqlServer, passed: bool) -> None:
    """Killed between its read and its write, before the timeline has passed its time or after."""
    evaluation = Evaluation(server)
    at(server, 2_000)
    slow = Aside(lambda: server.session().tag(SLOW.format(table="t", time=1_500)))
    evaluation.began()
    if passed:
        server.timeline.tick()
    assert len(held(server)) == passed
    next_one = SqlServer(server.clock, on=server, take_over=True)
    with stopping(next_one):
        evaluation.goes_on.set()
        assert isinstance(slow.done(), Fenced)
        at(server, 3_000)
        sql = next_one.session()
        assert sql.tag("INSERT INTO t VALUES (3, 'c')") == "INSERT 0 1"
        assert not held(next_one)
        assert sql("SELECT k, v FROM t") == [(1, "slow"), (2, "b"), (3, "c")]
        assert sql("SELECT k, v FROM t AS OF 2500") == [(1, "slow"), (2, "b")]


def test_an_idle_server_lets_it_go_by_a_tick(server: SqlServer) -> None:
    evaluation = Evaluation(server)
    at(server, 2_000)
    slow = Aside(lambda: server.session().tag(SLOW.format(table="t", time=1_500)))
    evaluation.began()
    server.timeline.tick()
    next_one = SqlServer(server.clock, on=server, take_over=True)
    with stopping(next_one):
        evaluation.goes_on.set()
        slow.done()
        assert held(next_one)
        at(server, 3_000)
        next_one.timeline.tick()
        assert not held(next_one)
        assert next_one.session()("SELECT v FROM t WHERE k = 1") == [("slow",)]

"""The wire in front of the real core: sessions, transactions, COPY, SUBSCRIBE; queries by DuckDB.

What needs Spark (views) is elsewhere. Here it is seen that the core keeps the port's contract.
"""

from __future__ import annotations

import contextlib
import select
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.pq.abc import PGconn, PGresult

from headwater.adapter.pgwire import WireServer
from headwater.base.clock import SystemClock
from headwater.testing.awaited import until
from headwater.testing.sql_server import SqlServer
from tests.end_to_end.memory_backend import WAIT_SECONDS

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("quiet")]


@pytest.fixture
def wire() -> Iterator[WireServer]:
    with SqlServer(SystemClock()) as core, WireServer("127.0.0.1", 0, core.coordinator) as running:
        yield running


class Enough(Exception):
    """A consumer has seen what it wanted."""


def connect(wire: WireServer, **options: Any) -> psycopg.Connection[Any]:
    return psycopg.connect(
        host=wire.host,
        port=wire.port,
        user="headwater",
        connect_timeout=WAIT_SECONDS,
        **{"autocommit": True, **options},
    )


@pytest.fixture
def connection(wire: WireServer) -> Iterator[psycopg.Connection[Any]]:
    with connect(wire) as connected:
        connected.execute("create table t (k bigint primary key, s text)")
        yield connected


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_copy_in_and_out(connection: psycopg.Connection[Any], binary: bool) -> None:
    form = " (format binary)" if binary else ""
    rows = [(number, f"row {number}") for number in range(2000)]
    with connection.cursor().copy(f"copy t from stdin{form}") as copy:
        copy.set_types(["int8", "text"])
        for row in rows:
            copy.write_row(row)
    with connection.cursor().copy(f"copy t to stdout{form}") as copy:
        copy.set_types(["int8", "text"])
        assert sorted(copy.rows()) == rows
    assert connection.execute("select * from t where k = 7").fetchall() == [(7, "row 7")]


def test_a_copy_that_breaks_the_key_leaves_nothing(connection: psycopg.Connection[Any]) -> None:
    def copied() -> None:
        with connection.cursor().copy("copy t from stdin") as copy:
            copy.write("1\ta\n1\tb\n")

    with pytest.raises(psycopg.errors.UniqueViolation):
        copied()
    assert connection.execute("select * from t").fetchall() == []


def test_transactions(wire: WireServer, connection: psycopg.Connection[Any]) -> None:
    with connection.transaction():
        connection.execute("insert into t values (1, 'a')")
        with connect(wire) as other:
            assert other.execute("select * from t").fetchall() == []
    assert connection.execute("select * from t").fetchall() == [(1, "a")]
    with connection.transaction():
        connection.execute("insert into t values (2, 'b')")
        raise psycopg.Rollback
    returned = connection.execute("insert into t values (%s, %s) returning k, s", (3, "c"))
    assert returned.fetchall() == [(3, "c")]
    assert connection.execute("select k from t order by k").fetchall() == [(1,), (3,)]


def test_subscribe_by_copy_and_by_cursor(
    wire: WireServer, connection: psycopg.Connection[Any]
) -> None:
    connection.execute("insert into t values (1, 'a')")
    seen: list[tuple[Any, ...]] = []

    def follow() -> None:
        with connect(wire) as consumer:
            with (
                contextlib.suppress(Enough),
                consumer.cursor().copy("copy (subscribe t) to stdout") as copy,
            ):
                copy.set_types(["int8", "int8", "int8", "text"])
                for row in copy.rows():
                    seen.append(row[1:])
                    if len(seen) == 2:
                        raise Enough  # psycopg cancels the rest
            assert consumer.execute("select count(*) from t").fetchone() == (2,)

    following = threading.Thread(target=follow)
    following.start()
    until(lambda: seen, "what it follows")
    connection.execute("insert into t values (2, 'b')")
    following.join(WAIT_SECONDS)
    assert not following.is_alive()
    assert seen == [(1, 1, "a"), (1, 2, "b")]
    with connection.transaction():
        connection.execute("declare c cursor for subscribe t")
        fetched = connection.execute("fetch 2 from c").fetchall()
        assert sorted(row[1:] for row in fetched) == [(1, 1, "a"), (1, 2, "b")]
        assert connection.execute("fetch 1 from c with (timeout '100ms')").fetchall() == []


def test_writes_as_of_a_time_that_is_a_parameter(connection: psycopg.Connection[Any]) -> None:
    """As a client sends it: prepared or not, by number, text or binary."""
    connection.execute("insert into t values (1, 'a'), (2, 'b')")

    def soon() -> int:
        return time.time_ns() // 1_000_000 + 5

    for prepare, binary in ((False, False), (True, False), (True, True)):
        update = connection.execute(
            "update t set s = s || %s where k = %s returning s as of %s",
            ("!", 1, when := soon()),
            prepare=prepare,
            binary=binary,
        )
        assert update.statusmessage == "UPDATE 1"
        ((new,),) = update.fetchall()
        read = "select s from t where k = 1 as of %s"
        assert connection.execute(read, (when,)).fetchone() == (new,)
        assert connection.execute(read, (when - 1,)).fetchone() == (new[:-1],)
        insert = connection.execute(
            "insert into t values (%s, %s) on conflict (k) do update set s = excluded.s as of %s",
            (3, "c", soon()),
            prepare=prepare,
        )
        assert insert.statusmessage == "INSERT 0 1"
        delete = connection.execute(
            "delete from t where k = %s as of %s", (3, str(soon())), prepare=prepare, binary=binary
        )
        assert delete.statusmessage == "DELETE 1"
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="cannot be written") as refused:
        connection.execute("delete from t as of %s", (when,))
    assert "It is complete before time" in str(refused.value.diag.message_detail)
    assert sorted(connection.execute("select * from t").fetchall()) == [(1, "a!!!"), (2, "b")]


def test_a_write_as_of_a_time_to_come_ends_with_its_client() -> None:
    with SqlServer(SystemClock()) as core, WireServer("127.0.0.1", 0, core.coordinator) as wire:
        leaving = connect(wire)
        leaving.execute("create table t (k bigint primary key)")
        soon = time.time_ns() // 1_000_000 + 3_600_000
        leaving.pgconn.send_query(f"delete from t as of {soon}".encode())
        await_standing(core, 1)
        leaving.pgconn.finish()
        await_standing(core, 0)
        with connect(wire) as other:
            other.execute("insert into t values (1)")


def await_standing(core: SqlServer, count: int) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while len(core.timeline.appointments.standing) != count:
        assert time.monotonic() < deadline, f"there are not {count} appointments"
        time.sleep(0.01)


def test_a_wait_is_ended_by_cancel_and_by_timeout(
    wire: WireServer, connection: psycopg.Connection[Any]
) -> None:
    future = "select * from t as of 99999999999999"
    connection.execute("set statement_timeout = '100ms'")
    with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
        connection.execute(future)
    connection.execute("set statement_timeout = 0")
    outcome: list[BaseException] = []

    def wait() -> None:
        try:
            connection.execute(future)
        except psycopg.Error as error:
            outcome.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    while not outcome:
        connection.cancel_safe(timeout=WAIT_SECONDS)
        waiting.join(0.05)
    waiting.join(WAIT_SECONDS)
    assert isinstance(outcome[0], psycopg.errors.QueryCanceled)
    assert connection.execute("select count(*) from t").fetchone() == (0,)


def answered(pgconn: PGconn) -> PGresult | None:
    """Return the next result; libpq itself would wait for it and let no other thread run."""
    while pgconn.is_busy():
        assert select.select([pgconn.socket], [], [], WAIT_SECONDS)[0], "no answer"
        pgconn.consume_input()
    return pgconn.get_result()


def test_an_insert_that_waits_keeps_nobody_else_waiting() -> None:
    """It has no thread: it ends by cancel and by timeout all the same, and with the server."""
    with SqlServer(SystemClock()) as core:
        with (
            WireServer("127.0.0.1", 0, core.coordinator) as wire,
            connect(wire) as connection,
            connect(wire) as other,
        ):
            connection.execute("create table t (k bigint primary key); create table u (k bigint)")
            turns, table = core.coordinator.commits.turns, core.coordinator.target("t").id
            with turns.exclusive(frozenset((table,))):
                connection.execute("set statement_timeout = '100ms'")
                with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
                    connection.execute("insert into t values (1)")
                connection.execute("set statement_timeout = 0")
                connection.pgconn.send_query(b"insert into t values (2)")
                while not turns.waiting:
                    other.execute("insert into u values (1)")
                connection.cancel_safe(timeout=WAIT_SECONDS)
                result = answered(connection.pgconn)
                assert result is not None
                assert result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) == b"57014"
                assert answered(connection.pgconn) is None
                connection.pgconn.send_query(b"insert into t values (3)")
                until(lambda: turns.waiting, "a statement that waits for its turn")
                wire.stop()
                assert not turns.waiting
                connection.pgconn.finish()
        assert core.session()("SELECT * FROM t") == []


def test_many_inserts_of_many_clients(wire: WireServer) -> None:
    """Prepared and not, pipelined and one by one, some refused: each is told what is."""
    clients, rows = 6, 10

    def client(number: int) -> None:
        with connect(wire) as own:
            first = number * 1_000
            with own.pipeline():
                for k in range(first, first + rows):
                    own.execute("insert into t values (%s, %s)", (k, "x"), prepare=True)
            for k in range(first, first + rows):
                with pytest.raises(psycopg.errors.UniqueViolation):
                    own.execute(f"insert into t values ({k}, 'again')")
                answer = own.execute(
                    "insert into t values (%s, %s) returning k", (k + 500, "y"), prepare=True
                )
                assert answer.fetchall() == [(k + 500,)]
        done.append(number)

    done: list[int] = []
    with connect(wire) as connection:
        connection.execute("create table t (k bigint primary key, s text)")
        threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(done) == list(range(clients))
        counted = connection.execute("select s, count(*) from t group by s order by s")
        assert counted.fetchall() == [("x", clients * rows), ("y", clients * rows)]


def test_a_server_that_was_replaced_ends_its_connections() -> None:
    """Drivers take 57P01 for a lost connection and connect again, to whoever serves now."""
    with (
        SqlServer(SystemClock()) as core,
        WireServer("127.0.0.1", 0, core.coordinator) as wire,
        connect(wire) as reader,
        connect(wire) as writer,
    ):
        reader.execute("create table t (k bigint)")
        with SqlServer(SystemClock(), on=core, take_over=True):
            for lost, statement in ((reader, "select * from t"), (writer, "delete from t")):
                with pytest.raises(psycopg.errors.AdminShutdown, match="no longer has"):
                    lost.execute(statement)
                assert lost.broken

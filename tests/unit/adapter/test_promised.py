"""Statements that are promised: as those that are executed, in a group, and in no thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from decimal import Decimal

import pytest

from headwater.adapter.calculations import Calculations
from headwater.adapter.errors import AdapterError, QueryCanceled, UniqueViolation
from headwater.adapter.pgwire.backend import Result
from headwater.base import tracing
from headwater.base.clock import SystemClock
from headwater.persist.errors import Fenced
from headwater.testing.sql_server import PROMISE_SECONDS, Rows, SqlServer

TABLES = """
    CREATE TABLE t (k bigint PRIMARY KEY, v text NOT NULL DEFAULT 'none', n smallint);
    CREATE TABLE free (k numeric(6, 2), v varchar(3));
    INSERT INTO t VALUES (1, 'one', 1)
"""


@pytest.fixture
def server() -> Iterator[SqlServer]:
    with SqlServer(SystemClock()) as opened:
        opened.session()(TABLES)
        yield opened


def begun(server: SqlServer, sql: str) -> Callable[[], Result]:
    found = server.session().promise(sql)
    assert found is not None, f"{sql} was not promised"
    return found


def said(result: Result) -> tuple[str, Rows]:
    rows: Rows = []
    for batch in result.batches:
        rows.extend(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    return result.tag, rows


def test_a_promise_is_what_executing_is(server: SqlServer) -> None:
    with SqlServer(SystemClock()) as peer:
        peer.session()(TABLES)
        for sql in (
            "INSERT INTO t VALUES (2, 'two', 2)",
            "INSERT INTO t VALUES (3, 'three'), (4, 'four') RETURNING *",
            "INSERT INTO t (n, k) VALUES (7, 5) RETURNING v, k AS key",
            "INSERT INTO t VALUES (6, DEFAULT, NULL)",
            "INSERT INTO t VALUES (1, 'uno', 1), (7, 'due', 2) ON CONFLICT DO NOTHING RETURNING *",
            "INSERT INTO t VALUES (8, 'a', 1), (8, 'b', 2) ON CONFLICT (k) DO NOTHING",
            "INSERT INTO free VALUES (1.005, 'abc'), ('-0.004', 'abc  ')",
            "INSERT INTO t VALUES (1, 'uno', 1)",
            "INSERT INTO t VALUES (9, 'a', 1), (9, 'b', 2)",
        ):
            ours = begun(server, sql)
            try:
                expected = said(peer.session().result(sql))
            except AdapterError as refused:
                with pytest.raises(type(refused), match=refused.args[0]):
                    ours()
            else:
                assert said(ours()) == expected, sql
        for table in ("t", "free"):
            query = f"SELECT * FROM {table}"
            assert server.session()(query) == peer.session()(query)


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO t SELECT 2, 'two', 2",
        "INSERT INTO t VALUES (2, 'two', 2) AS OF 99999999999999",
        "INSERT INTO t VALUES (2, 'two', 2) ON CONFLICT (k) DO UPDATE SET v = 'again'",
        "INSERT INTO t VALUES " + ", ".join(f"({k}, 'x', 1)" for k in range(2, 200)),
        "UPDATE t SET v = 'x' WHERE k = 1",
        "SELECT 1",
        # Refused, which whoever executes them says.
        "INSERT INTO t VALUES (2, NULL, 2)",
        "INSERT INTO t VALUES (2, 'two', 99999)",
        "INSERT INTO t VALUES (2, 'two', 2, 2)",
        "INSERT INTO t VALUES ('two')",
        "INSERT INTO t (k, nope) VALUES (2, 2)",
        "INSERT INTO t VALUES (2, 'two', 2) RETURNING nope",
        "INSERT INTO nowhere VALUES (2)",
        "INSERT INTO free VALUES (1, 'long')",
    ],
)
def test_what_reads_or_is_refused_is_not_promised(server: SqlServer, sql: str) -> None:
    before = server.client.core.state.seqno
    assert server.session().promise(sql) is None
    assert server.client.core.state.seqno == before
    assert server.coordinator.commits.turns.waiting == 0


def test_nobody_is_asked_to_calculate(server: SqlServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object) -> None:
        raise AssertionError("a statement that is promised waits for nobody")

    monkeypatch.setattr(Calculations, "check", lambda *_: None)
    monkeypatch.setattr(Calculations, "values", asked)
    sql = server.session()
    sql("CREATE TABLE dated (k bigint, at timestamp DEFAULT now())")
    assert sql.promise("INSERT INTO dated VALUES (2)") is None
    assert sql.promise("INSERT INTO t VALUES (2, upper('two'), 2)") is None


def test_what_belongs_to_a_transaction_or_to_a_trace_is_not_promised(server: SqlServer) -> None:
    sql = server.session()
    sql("BEGIN")
    assert sql.promise("INSERT INTO t VALUES (2, 'two', 2)") is None
    sql("ROLLBACK")
    traced = object()
    tracing.collect(traced)  # type: ignore[arg-type]
    try:
        assert sql.promise("INSERT INTO t VALUES (2, 'two', 2)") is None
    finally:
        tracing.collect(None)


def test_the_path_says_which_table_is_meant(server: SqlServer) -> None:
    sql = server.session()
    sql("CREATE SCHEMA s; CREATE TABLE s.t (k bigint); SET search_path = s")
    promised = sql.promise("INSERT INTO t VALUES (5)")
    assert promised is not None
    promised()
    assert sql("SELECT * FROM s.t") == [(5,)]


def test_one_key_has_one_winner_and_neighbours_do_not_notice(server: SqlServer) -> None:
    gid = server.coordinator.target("t").id
    before = server.client.core.state.seqno
    with server.coordinator.commits.turns.exclusive(frozenset((gid,))):
        promised = [begun(server, f"INSERT INTO t VALUES ({k}, 'x', 1)") for k in (2, 1, 2, 3)]
    assert promised[0]().tag == promised[3]().tag == "INSERT 0 1"
    for refused in (promised[1], promised[2]):
        with pytest.raises(UniqueViolation):
            refused()
    assert server.client.core.state.seqno == before + 1
    assert server.session()("SELECT k FROM t") == [(1,), (2,), (3,)]


def test_a_value_that_cannot_be_encoded_is_its_own_statements_fault(server: SqlServer) -> None:
    gid = server.coordinator.target("t").id
    with server.coordinator.commits.turns.exclusive(frozenset((gid,))):
        promised = [
            begun(server, f"INSERT INTO t VALUES ({k}, '{v}', 1)")
            for k, v in ((2, "a"), (3, "\ud800"), (4, "b"))
        ]
    assert promised[0]().tag == promised[2]().tag == "INSERT 0 1"
    with pytest.raises(UnicodeEncodeError):
        promised[1]()
    assert server.session()("SELECT k, v FROM t") == [(1, "one"), (2, "a"), (4, "b")]


def test_rows_of_other_tables_and_schemas_are_encoded_as_alone(server: SqlServer) -> None:
    sql = server.session()
    tables = [server.coordinator.target(name).id for name in ("t", "free")]
    with server.coordinator.commits.turns.exclusive(frozenset(tables)):
        promised = [
            begun(server, "INSERT INTO t VALUES (2, 'a', 1), (3, 'b', NULL)"),
            begun(server, "INSERT INTO free VALUES (1.5, NULL)"),
            begun(server, "INSERT INTO t VALUES (4, 'c', 2) RETURNING *"),
            begun(server, "INSERT INTO free VALUES (2.5, 'x'), (3.5, 'y') RETURNING v"),
        ]
    answers = [said(each()) for each in promised]
    assert answers[2] == ("INSERT 0 1", [(4, "c", 2)])
    assert answers[3] == ("INSERT 0 2", [("x",), ("y",)])
    assert sql("SELECT k, n FROM t") == [(1, 1), (2, 1), (3, None), (4, 2)]
    assert sql("SELECT count(v), sum(k) FROM free") == [(2, Decimal("7.50"))]


def test_what_was_told_is_read_by_everybody(server: SqlServer) -> None:
    reader = server.session()
    for k in range(2, 12):
        begun(server, f"INSERT INTO t VALUES ({k}, 'x', 1)")()
        assert reader(f"SELECT k FROM t WHERE k = {k}") == [(k,)]


def test_a_promise_can_be_cancelled_until_it_is_being_kept(server: SqlServer) -> None:
    gid = server.coordinator.target("t").id
    sql = server.session()
    with server.coordinator.commits.turns.exclusive(frozenset((gid,))):
        promised = sql.promise("INSERT INTO t VALUES (2, 'x', 1)")
        assert promised is not None
        sql.session.cancel()
        with pytest.raises(QueryCanceled, match="user request"):
            promised()
    again = sql.promise("INSERT INTO t VALUES (3, 'x', 1)")
    assert again is not None
    again()
    assert sql("SELECT k FROM t") == [(1,), (3,)]


def test_others_see_what_the_session_does(server: SqlServer) -> None:
    gid = server.coordinator.target("t").id
    sql = server.session()

    def seen() -> tuple[str, str]:
        found = server.coordinator.clients.sessions()[-1]
        return found.state, found.statement

    with server.coordinator.commits.turns.exclusive(frozenset((gid,))):
        promised = sql.promise("INSERT INTO t VALUES (2, 'x', 1)")
        assert seen() == ("active", "INSERT INTO")
    assert promised is not None
    promised()
    assert seen() == ("idle", "INSERT INTO")


def test_a_fenced_server_promises_nothing_that_it_keeps(server: SqlServer) -> None:
    sql = server.session()
    with SqlServer(server.clock, on=server, take_over=True) as successor:
        promised = sql.promise("INSERT INTO t VALUES (2, 'b', 1)")
        assert promised is not None
        with pytest.raises(Fenced):
            promised()
        assert successor.session()("SELECT k FROM t") == [(1,)]


def test_promises_and_transactions_take_turns(server: SqlServer) -> None:
    """Rows of both are all there, whoever commits for whom."""
    failures: list[BaseException] = []

    def client(number: int) -> None:
        sql = server.session()
        try:
            for each in range(20):
                insert = f"INSERT INTO t VALUES ({100 * number + each}, 'x', 1)"
                if (number + each) % 3:
                    promised = sql.promise(insert)
                    assert promised is not None
                    promised()
                else:
                    sql(f"BEGIN; {insert}; COMMIT")
        except BaseException as error:
            failures.append(error)
            raise

    threads = [
        threading.Thread(target=client, args=(number,), daemon=True) for number in range(1, 7)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PROMISE_SECONDS)
        assert not thread.is_alive(), "a client waits for ever"
    assert not failures
    assert server.session()("SELECT count(*) FROM t") == [(121,)]

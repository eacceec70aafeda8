"""The wire, seen by psycopg: types, parameters, errors, transactions, cancelling.

The backend keeps tables as Arrow in memory and answers ``SELECT * FROM table`` only: what is tested
is everything between the socket and :class:`Session`.
"""

from __future__ import annotations

import threading
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from headwater.adapter.pgwire import WireServer
from headwater.testing.awaited import until
from tests.end_to_end import tables_backend
from tests.end_to_end.tables_backend import EVERY_ROW, EVERY_TYPE, WAIT_SECONDS, Tables, connect

pytestmark = pytest.mark.server

backend = tables_backend.backend
server = tables_backend.server
connection = tables_backend.connection


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_every_type_comes_back(connection: psycopg.Connection[Any], binary: bool) -> None:
    connection.execute(EVERY_TYPE)
    connection.execute(EVERY_ROW)
    cursor = connection.cursor(binary=binary)
    rows = cursor.execute("select * from every").fetchall()
    assert cursor.statusmessage == "SELECT 2"
    assert rows[0] == (
        -1,
        2,
        9007199254740993,
        True,
        "é 'q' \\",
        pytest.approx(0.1),
        1e300,
        Decimal("1.50"),
        Decimal("-0.000000001"),
        date(2026, 1, 2),
        datetime.fromisoformat("2026-01-02T03:04:05.600000"),
        datetime(2026, 1, 2, 1, 4, 5, tzinfo=UTC),
        b"\x00\xff",
    )
    assert rows[1] == (None,) * 13
    assert cursor.description is not None
    assert [column.type_code for column in cursor.description] == [
        21, 23, 20, 16, 25, 700, 701, 1700, 1700, 1082, 1114, 1184, 17,
    ]  # fmt: skip
    assert (cursor.description[7].precision, cursor.description[7].scale) == (10, 2)


@pytest.mark.parametrize("format_", ["%s", "%b", "%t"])
def test_parameters_of_every_type(connection: psycopg.Connection[Any], format_: str) -> None:
    row = (
        -32768,
        -5,
        2**62,
        False,
        "'; drop table every; --",
        0.5,
        -2.5,
        Decimal("-12.34"),
        Decimal("1e5"),
        date(1, 1, 1),
        datetime.fromisoformat("2026-01-02T03:04:05"),
        datetime(2026, 1, 2, tzinfo=UTC),
        b"\x00'\\",
    )
    connection.execute(EVERY_TYPE)
    places = ",".join([format_] * len(row))
    connection.execute(f"insert into every values ({places})", row)
    nulls = ", ".join(["%s"] * len(row))
    connection.execute(f"insert into every values ({nulls})", (None,) * len(row))
    assert connection.execute("select * from every").fetchall() == [row, (None,) * len(row)]


def test_prepared_statements(connection: psycopg.Connection[Any], backend: Tables) -> None:
    connection.execute("create table t (a int)")
    for number in range(8):  # psycopg prepares by itself from the fifth on
        connection.execute("insert into t values (%s)", (number,))
        assert len(connection.execute("select * from t", prepare=True).fetchall()) == number + 1
    assert backend.tables["t"]["a"].to_pylist() == list(range(8))


def test_a_pipeline(connection: psycopg.Connection[Any]) -> None:
    with connection.pipeline():
        connection.execute("create table t (a int)")
        for number in range(5):
            connection.execute("insert into t values (%s)", (number,))
        rows = connection.execute("select * from t")
    assert rows.fetchall() == [(number,) for number in range(5)]


def test_errors_carry_their_fields_and_the_connection_goes_on(
    connection: psycopg.Connection[Any],
) -> None:
    with pytest.raises(psycopg.errors.UndefinedTable) as refused:
        connection.execute("select * from missing")
    assert refused.value.diag.severity == "ERROR"
    assert refused.value.diag.message_primary == 'relation "missing" does not exist'
    assert refused.value.diag.message_hint == "Create it."
    connection.execute("create table t (a int not null)")
    for sql, error in (
        ("create table t (a int)", psycopg.errors.DuplicateTable),
        ("insert into t values ('x')", psycopg.errors.InvalidTextRepresentation),
        ("insert into t values (null)", psycopg.errors.NotNullViolation),
        ("insert into t values (1e10)", psycopg.errors.NumericValueOutOfRange),
        ("insert into t (b) values (1)", psycopg.errors.UndefinedColumn),
        ("update t set a = 1", psycopg.errors.FeatureNotSupported),
        ("selec 1", psycopg.errors.SyntaxError),
        ("select breaks", psycopg.errors.FeatureNotSupported),
    ):
        with pytest.raises(error):
            connection.execute(sql)
        with pytest.raises(error):
            connection.execute(sql.encode(), prepare=False)
    assert connection.execute("select * from t").fetchall() == []


def test_our_own_mistake_is_an_internal_error(
    connection: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(psycopg.errors.InternalError_, match="ZeroDivisionError: planted"):
        connection.execute("select 1 / 0")
    assert "ZeroDivisionError" in caplog.text
    assert connection.execute("select one").fetchone() == (1,)


def test_ten_thousand_rows_in_many_batches(
    connection: psycopg.Connection[Any], backend: Tables
) -> None:
    numbers = pa.table({"n": pa.array(range(10_000), pa.int64()), "s": ["x" * 100] * 10_000})
    pieces = [numbers.slice(start, 777) for start in range(0, 10_000, 777)]
    backend.tables["t"] = pa.concat_tables([numbers.slice(0, 0), *pieces])
    cursor = connection.execute("select * from t")
    assert [row[0] for row in cursor.fetchall()] == list(range(10_000))
    assert cursor.statusmessage == "SELECT 10000"
    streamed = connection.cursor().stream("select * from t")
    assert sum(row[0] for row in streamed) == sum(range(10_000))


def status(connection: psycopg.Connection[Any]) -> psycopg.pq.TransactionStatus:
    return connection.info.transaction_status


def test_transactions_have_their_states(server: WireServer, backend: Tables) -> None:
    with connect(server) as connection:
        connection.execute("create table t (a int)")
        assert status(connection) == psycopg.pq.TransactionStatus.INTRANS
        connection.commit()
        connection.execute("insert into t values (1)")
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("select * from missing")
        assert status(connection) == psycopg.pq.TransactionStatus.INERROR
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            connection.execute("select * from t")
        assert connection.execute("commit").statusmessage == "ROLLBACK"
        assert status(connection) == psycopg.pq.TransactionStatus.IDLE
        with connection.transaction():
            connection.execute("insert into t values (2)")
    assert backend.tables["t"]["a"].to_pylist() == [2]


def test_a_waiting_statement_keeps_nobody_else_waiting(
    server: WireServer, backend: Tables, connection: psycopg.Connection[Any]
) -> None:
    with connect(server, autocommit=True) as other:
        waiting = threading.Thread(target=lambda: other.execute("select wait"))
        waiting.start()
        for _ in range(3):
            assert connection.execute("select one").fetchone() == (1,)
        assert waiting.is_alive()
        backend.release.set()
        waiting.join(WAIT_SECONDS)
        assert not waiting.is_alive()


def test_a_cancelled_statement_leaves_a_usable_connection(
    server: WireServer, backend: Tables, connection: psycopg.Connection[Any]
) -> None:
    outcome: list[BaseException] = []

    def wait() -> None:
        try:
            connection.execute("select wait")
        except psycopg.Error as error:
            outcome.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    until(lambda: "select wait" in backend.texts, "the statement that waits")
    connection.cancel_safe(timeout=WAIT_SECONDS)
    waiting.join(WAIT_SECONDS)
    assert isinstance(outcome[0], psycopg.errors.QueryCanceled)
    backend.release.set()
    assert connection.execute("select one").fetchone() == (1,)

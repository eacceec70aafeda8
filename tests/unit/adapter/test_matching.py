"""UPDATE and DELETE by keys: the same rows as by a query, and no query is evaluated for them."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from headwater.adapter.errors import OutOfRange
from headwater.base.clock import SystemClock
from headwater.testing.sql_server import SqlServer

TABLES = ("looked_up", "evaluated")


@pytest.fixture(scope="module")
def server() -> Iterator[SqlServer]:
    with SqlServer(SystemClock()) as opened:
        yield opened


@pytest.fixture(autouse=True)
def tables(server: SqlServer) -> Iterator[None]:
    sql = server.session()
    for name in TABLES:
        sql(
            f"CREATE TABLE {name} (k int PRIMARY KEY, g int, n int, big bigint, small smallint);"
            f"INSERT INTO {name} VALUES (1, 1, 10, 100, 1), (2, 1, NULL, 200, 2), "
            f"(3, 2, 2147483647, 9223372036854775807, 32767)"
        )
    yield
    sql("; ".join(f"DROP TABLE {name}" for name in TABLES))


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE {} SET n = n + 1 WHERE {}k = 1 RETURNING *",
        "UPDATE {} SET n = 7, big = big - n * 2 WHERE {}k IN (1, 2, 9) RETURNING k, n, big",
        "UPDATE {0} SET small = {0}.small + 1, g = -g WHERE {1}k = 2 RETURNING *",
        "UPDATE {} SET big = n * 10, n = small WHERE {}k = 1 RETURNING *",
        "UPDATE {} SET k = k + 10 WHERE {}k IN (1, 3) RETURNING k",
        "UPDATE {} SET n = DEFAULT, g = 5 WHERE {}k = 3 RETURNING *",
        "DELETE FROM {} WHERE {}k IN (1, 2) RETURNING *",
        "DELETE FROM {} WHERE {}k = 4 RETURNING *",
        "UPDATE {} SET n = n + 1 WHERE {}k = 3",
        "UPDATE {} SET small = small + 1 WHERE {}k = 3",
        "UPDATE {} SET big = n + 1 WHERE {}k = 3",
        "UPDATE {} SET big = big + 1 WHERE {}k = 3",
    ],
)
def test_both_ways_agree(server: SqlServer, statement: str) -> None:
    sql = server.session()
    answers: list[object] = []
    for name, condition in zip(TABLES, ("", "g IS NOT NULL AND "), strict=True):
        before = server.evaluator.evaluated
        try:
            answer: object = sql(statement.format(name, condition))
        except (OutOfRange, duckdb.OutOfRangeException):
            answer = "out of range"
        # ``-g`` is not among what is computed without a query.
        assert (server.evaluator.evaluated == before) == (not condition and "-g" not in statement)
        answers.append((answer, sql(f"SELECT * FROM {name} ORDER BY k")))
    assert answers[0] == answers[1]


def test_by_an_index(server: SqlServer) -> None:
    sql = server.session()
    sql("CREATE INDEX by_group ON looked_up (g)")
    update = "UPDATE looked_up SET n = k + 100 WHERE g = 1 RETURNING k, n"
    while True:  # Until there is an index.
        before = server.evaluator.evaluated
        assert sql(update) == [(1, 101), (2, 102)]
        if server.evaluator.evaluated == before:
            break


def test_in_a_transaction(server: SqlServer) -> None:
    sql = server.session()
    sql("BEGIN; UPDATE looked_up SET n = n + 1 WHERE k = 1; COMMIT")
    # A name of this very transaction means what it means in it, not what others see by it.
    sql(
        "BEGIN; ALTER TABLE looked_up RENAME TO other; ALTER TABLE evaluated RENAME TO looked_up;"
        "DELETE FROM looked_up WHERE k = 1; COMMIT"
    )
    assert sql("SELECT k, n FROM other WHERE k < 3 ORDER BY k") == [(1, 11), (2, None)]
    assert sql("SELECT k FROM looked_up ORDER BY k") == [(2,), (3,)]
    sql("ALTER TABLE looked_up RENAME TO evaluated; ALTER TABLE other RENAME TO looked_up")

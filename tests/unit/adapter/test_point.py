"""Which queries are point reads: the same answer as the evaluator's, and none that only look so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.adapter.errors import AdapterError
from headwater.testing.sql_server import SqlServer, SqlSession


@pytest.fixture
def server() -> Iterator[SqlServer]:
    with SqlServer() as opened:
        sql = opened.session()
        sql(
            "CREATE TABLE t (k bigint PRIMARY KEY, v text);"
            "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (-3, 'c');"
            "CREATE TABLE d (a date, n numeric(6,2), b boolean, x int, PRIMARY KEY (a, n, b));"
            "INSERT INTO d VALUES ('2026-01-02', 1.50, true, 1), ('2026-01-02', 1.50, false, 2)"
        )
        yield opened


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT * FROM t WHERE k = 1", [(1, "a")]),
        ("SELECT v AS w, k FROM public.t WHERE 2 = t.k", [("b", 2)]),
        ("SELECT q.v FROM t AS q WHERE q.k = -3", [("c",)]),
        ("SELECT * FROM t WHERE k = '2'", [(2, "b")]),
        ("SELECT * FROM t WHERE k = 9", []),
        ("SELECT v FROM t WHERE k = (-3)", [("c",)]),
        ("SELECT v FROM t WHERE k = '2'::bigint", [("b",)]),
        ("SELECT x FROM d WHERE a = DATE '2026-01-02' AND n = 1.5 AND b = 'f'", [(2,)]),
        ("SELECT x FROM d WHERE a = '2026-01-02' AND n = 1.5 AND b = true", [(1,)]),
        ("SELECT x FROM d WHERE a = '2026-01-02' AND n = '1.500' AND b = true", [(1,)]),
        (
            "SELECT x FROM d WHERE a = '2026-01-02' AND n = 1.504::numeric(6,2) AND b = true",
            [(1,)],
        ),
    ],
)
def test_a_point_read_needs_no_evaluator(server: SqlServer, query: str, rows: list[object]) -> None:
    assert server.session()(query) == rows
    assert server.evaluator.evaluated == 0


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT * FROM t WHERE k = 1.5", []),
        ("SELECT v FROM t WHERE k = 1::smallint", [("a",)]),
        ("SELECT v FROM t WHERE k = 1 OR k = 2", [("a",), ("b",)]),
        ("SELECT v FROM t WHERE k = 1 AND v = 'z'", []),
        ("SELECT v FROM t WHERE NOT k = 1 AND k < 0", [("c",)]),
        ("SELECT count(*) FROM t WHERE k = 1", [(1,)]),
        ("SELECT v FROM t WHERE k = 1 LIMIT 0", []),
        ("SELECT upper(v) FROM t WHERE k = 1", [("A",)]),
        ("SELECT x FROM d WHERE a = '2026-01-02' AND n = 1.5", [(1,), (2,)]),
        ("SELECT x FROM d WHERE a = '2026-01-02' AND n = 1.501 AND b = true", []),
        ("SELECT 1 WHERE EXISTS (SELECT * FROM t)", [(1,)]),
        ("SELECT 'none' WHERE NOT EXISTS (SELECT * FROM t)", []),
        ("SELECT 'many' WHERE 2 < (SELECT count(*) FROM t)", [("many",)]),
        ("SELECT x FROM d WHERE a = '2026-01-02' AND n = '1.501' AND b = true", []),
    ],
)
def test_everything_else_is_evaluated(server: SqlServer, query: str, rows: list[object]) -> None:
    assert server.session()(query) == rows
    assert server.evaluator.evaluated == 1


def test_key_conditions_of_writes_need_no_evaluator(server: SqlServer) -> None:
    sql: SqlSession = server.session()
    assert sql.tag("UPDATE t SET v = 'z' WHERE k = 1") == "UPDATE 1"
    assert sql.tag("DELETE FROM t WHERE k = 2") == "DELETE 1"
    assert sql.tag("DELETE FROM t WHERE k = 2") == "DELETE 0"
    with pytest.raises(AdapterError):
        sql("INSERT INTO t VALUES (1, 'again')")
    assert server.evaluator.evaluated == 0
    assert sql("SELECT * FROM t") == [(-3, "c"), (1, "z")]

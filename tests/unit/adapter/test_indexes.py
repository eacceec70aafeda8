"""Indexes: the same answers with and without, over random tables, writes and queries.

An index that lags, hydrates, stalls, or does not reach back must never show in an answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from headwater.adapter.errors import AdapterError
from headwater.base.clock import ManualClock
from headwater.testing.sql_server import SqlServer, SqlSession

GROUPS = ("'p'", "'q'", "'it''s'", "NULL")


@pytest.fixture
def server() -> Iterator[SqlServer]:
    with SqlServer(ManualClock(1_000)) as opened:
        yield opened


def _evaluated(server: SqlServer, sql: SqlSession, query: str) -> tuple[list[tuple[object]], int]:
    before = server.evaluator.evaluated
    return sql(query), server.evaluator.evaluated - before


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 20))]
)
def test_answers_are_the_same_with_and_without(server: SqlServer, seed: int) -> None:
    random, sql = Random(seed), server.session()
    sql(
        "CREATE TABLE t (k bigint, g text, x int, d numeric(6,2));"
        "CREATE VIEW kept AS SELECT g, x, count(*) AS n FROM t GROUP BY g, x;"
        "CREATE VIEW computed AS SELECT g, x, count(*) AS n FROM t GROUP BY g, x;"
        "CREATE INDEX ON t (g); CREATE INDEX ON t (x, d); CREATE INDEX ON kept (x)"
    )
    sql("SELECT * FROM kept")  # Its index is hydrated by the time that somebody has read it.
    probed = 0
    for _ in range(3):
        for _ in range(random.randrange(3)):
            _write(random, sql)
        group, x, d = random.choice(GROUPS[:3]), random.randrange(4), random.randrange(3)
        for with_index, without in (
            (
                f"SELECT k, x FROM t WHERE g IN ({group}, 'p')",
                f"SELECT k, x FROM (SELECT * FROM t) AS s WHERE g IN ({group}, 'p')",
            ),
            (
                f"SELECT d, k, g FROM t WHERE x = {x} AND d = {d}.50",
                f"SELECT d, k, g FROM (SELECT * FROM t) AS s WHERE x = {x} AND d = {d}.50",
            ),
            (f"SELECT * FROM kept WHERE x = {x}", f"SELECT * FROM computed WHERE x = {x}"),
            ("SELECT sum(n), max(g) FROM kept", "SELECT sum(n), max(g) FROM computed"),
        ):
            # Both in one transaction, and so at one time.
            sql("BEGIN")
            found, evaluated = _evaluated(server, sql, with_index)
            assert found == sql(without), f"seed {seed}: {with_index}"
            sql("COMMIT")
            probed += not evaluated
    assert probed > 4, "indexes were used"


def _write(random: Random, sql: SqlSession) -> None:
    choice = random.random()
    if choice < 0.6:
        rows = ", ".join(
            f"({random.randrange(5)}, {random.choice(GROUPS)}, {random.randrange(4)}, "
            f"{random.randrange(3)}.5)"
            for _ in range(random.randrange(1, 4))
        )
        sql(f"INSERT INTO t VALUES {rows}")
    elif choice < 0.8:
        sql(f"DELETE FROM t WHERE k = {random.randrange(5)}")
    else:
        sql(f"UPDATE t SET x = {random.randrange(4)} WHERE k = {random.randrange(5)}")


def test_an_index_that_is_behind_is_completed_by_what_its_table_has_since(
    server: SqlServer,
) -> None:
    sql = server.session()
    sql("CREATE TABLE t (k bigint, g text); INSERT INTO t VALUES (1, 'p'), (2, 'p'), (2, 'p')")
    sql("CREATE INDEX i ON t (g); SELECT * FROM t WHERE g = 'p'")
    _until_used(server, sql, "SELECT * FROM t WHERE g = 'p'")
    with server.evaluator.views.paused():
        sql("DELETE FROM t WHERE k = 1; INSERT INTO t VALUES (3, 'p'), (2, 'p'), (9, 'q')")
        found = _evaluated(server, sql, "SELECT k FROM t WHERE g = 'p'")
        assert found == ([(2,), (2,), (2,), (3,)], 0)
        assert sql("SELECT k FROM t WHERE g = 'q'") == [(9,)]
    assert sql("SELECT k FROM t WHERE g = 'p' AS OF 1001") == [(1,), (2,), (2,)]
    # Before its history begins, an index is not used.
    past = server.timeline.upper - 1
    sql("INSERT INTO t VALUES (5, 'p'); CREATE INDEX later ON t (k)")
    _until_used(server, sql, "SELECT g FROM t WHERE k = 5")
    assert _evaluated(server, sql, f"SELECT g FROM t WHERE k = 9 AS OF {past}") == ([("q",)], 1)


def _until_used(server: SqlServer, sql: SqlSession, query: str) -> None:
    while _evaluated(server, sql, query)[1]:
        sql("SELECT * FROM hw_lag")


def test_an_index_that_is_stalled_is_not_used(server: SqlServer) -> None:
    sql = server.session()
    sql("CREATE TABLE t (k bigint, g text); CREATE VIEW v AS SELECT g, k FROM t WHERE k > 0")
    sql("CREATE INDEX i ON v (g); INSERT INTO t VALUES (1, 'p')")
    _until_used(server, sql, "SELECT k FROM v WHERE g = 'p'")
    (index,) = sql("SELECT object_id FROM hw_indexes")
    collection = server.client.core.state.names[str(index[0])]
    server.evaluator.views.broken[collection] = "a test says so"
    sql("INSERT INTO t VALUES (2, 'p')")
    assert _evaluated(server, sql, "SELECT k FROM v WHERE g = 'p'") == ([(1,), (2,)], 1)
    ((lag, own, slowest),) = sql(
        "SELECT lag_ms, own_lag_ms, slowest_input FROM hw_lag WHERE name = 'i'"
    )
    assert lag == own > 0
    assert slowest == "t"
    assert sql("SELECT status, detail FROM hw_status WHERE name = 'i'") == [
        ("stalled", "a test says so")
    ]


def test_indexes_live_and_go_with_what_they_are_of(server: SqlServer) -> None:
    sql = server.session()
    sql("CREATE TABLE t (k bigint, g text); CREATE VIEW v AS SELECT g FROM t")
    sql("CREATE INDEX ON t (k, g); CREATE INDEX ON t (k, g); CREATE INDEX vi IN CLUSTER c ON v (g)")
    sql("CREATE INDEX IF NOT EXISTS vi ON v (g)")
    assert sql("SELECT name, on_name, on_kind, key FROM hw_indexes") == [
        ("t_k_g_idx", "t", "table", "k, g"),
        ("t_k_g_idx1", "t", "table", "k, g"),
        ("vi", "v", "view", "g"),
    ]
    assert sql("SHOW CREATE INDEX vi") == [("vi", 'CREATE INDEX "vi" ON "v" ("g")')]
    sql("ALTER INDEX vi RENAME TO w; COMMENT ON INDEX w IS 'of v'; ALTER TABLE t RENAME TO u")
    assert sql("SHOW INDEXES")[2] == ("w", "index", "of v")
    assert sql("SELECT * FROM u WHERE k = 1 AND g = 'a'") == []
    # A restart finds them as they were.
    with SqlServer(server.clock, on=server, take_over=True) as after:
        again = after.session()
        again("DROP INDEX t_k_g_idx")
        assert again("SHOW INDEXES") == [("t_k_g_idx1", "index", None), ("w", "index", "of v")]
        again("DROP TABLE u CASCADE")
        assert again("SHOW OBJECTS") == []
        assert not after.client.core.state.collections


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("CREATE INDEX ON t (nope)", "UNDEFINED_COLUMN"),
        ("CREATE INDEX ON nope (k)", "UNDEFINED_RELATION"),
        ("CREATE INDEX t ON t (k)", "DUPLICATE_RELATION"),
        ("CREATE INDEX hw_i ON t (k)", "RESERVED_NAME"),
        ("CREATE INDEX ON t (k, k)", "DUPLICATE_COLUMN"),
        ("CREATE UNIQUE INDEX ON t (k)", "FEATURE_NOT_SUPPORTED"),
        ("CREATE INDEX ON t (lower(g))", "FEATURE_NOT_SUPPORTED"),
        ("CREATE INDEX ON t ((k + 1))", "FEATURE_NOT_SUPPORTED"),
        ("CREATE INDEX ON t (k) WHERE k > 1", "FEATURE_NOT_SUPPORTED"),
        ("CREATE INDEX ON hw_objects (name)", "SYSTEM_RELATION"),
        ("SELECT * FROM i", "UNDEFINED_RELATION"),
        ("INSERT INTO i VALUES (1)", "READ_ONLY_RELATION"),
        ("DROP TABLE i", "WRONG_OBJECT_TYPE"),
        ("CREATE INDEX ON i (k)", "UNDEFINED_RELATION"),
        ("SUBSCRIBE i", "UNDEFINED_RELATION"),
    ],
)
def test_what_is_refused(server: SqlServer, text: str, condition: str) -> None:
    sql = server.session()
    sql("CREATE TABLE t (k bigint, g text); CREATE INDEX i ON t (k)")
    with pytest.raises(AdapterError) as refused:
        sql(text)
    assert refused.value.condition == condition

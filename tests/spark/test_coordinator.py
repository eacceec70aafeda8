"""Statements, sequenced on one timeline, over real Spark: what they answer and what they refuse."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

import pytest

from headwater.adapter.coordinator import ClientSession, Coordinator
from headwater.adapter.errors import AdapterError
from headwater.adapter.sql.parse import parse_for_session
from headwater.adapter.timeline import DEFAULT, Timeline
from headwater.base.clock import ManualClock
from headwater.compute.controller import ViewController
from headwater.materialize.controller import Materializations
from headwater.persist.client import Client
from headwater.persist.errors import Fenced

pytestmark = pytest.mark.spark


class Sql:
    """A session, and the clock it lives by."""

    def __init__(self, client: Client, spark: Any) -> None:
        self.clock = ManualClock(1_000)
        self.timeline = Timeline(client, self.clock)
        self.views = ViewController(client, spark)
        self.materializations = Materializations(client)
        self.coordinator = Coordinator(client, self.timeline, self.views, self.materializations)
        self.session: ClientSession = self.coordinator.open_session()

    def __call__(self, sql: str) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        for statement, text in parse_for_session(sql, self.session.dialect):
            for batch in self.session.execute(statement, text).batches:
                rows.extend(zip(*(column.to_pylist() for column in batch.columns), strict=True))
        return sorted(rows, key=repr)

    def another(self) -> Sql:
        """Return another client of the same server."""
        other = copy(self)
        other.session = self.coordinator.open_session()
        return other


@pytest.fixture
def sql(client: Client, spark: Any) -> Iterator[Sql]:
    opened = Sql(client, spark)
    opened.views.start()
    yield opened
    opened.materializations.stop()
    opened.views.stop()


def test_a_table_is_readable_at_once_and_writes_are_seen_by_the_next_read(sql: Sql) -> None:
    sql("CREATE TABLE t (k bigint PRIMARY KEY, v text)")
    assert sql("SELECT * FROM t") == []
    sql("INSERT INTO t VALUES (1, 'a'), (2, NULL)")
    assert sql("SELECT * FROM t") == [(1, "a"), (2, None)]
    sql("DELETE FROM t WHERE k = 1")
    assert sql("SELECT count(*) FROM t") == [(1,)]
    assert sql("SELECT t.v FROM t WHERE k = 2") == [(None,)]


def test_the_past_reads_as_it_was_and_time_never_goes_back(sql: Sql) -> None:
    sql("CREATE TABLE t (k bigint)")
    moments = []
    for k in range(3):
        sql(f"INSERT INTO t VALUES ({k})")
        moments.append(sql.timeline.upper - 1)
        # Set back: times go on from where they were.
        sql.clock.set(10)
    assert moments == sorted(set(moments))
    for k, moment in enumerate(moments):
        assert sql(f"SELECT count(*) FROM t AS OF {moment}") == [(k + 1,)]


def test_a_view_is_read_at_the_time_of_its_tables(sql: Sql) -> None:
    sql("CREATE TABLE a (k bigint, g text); CREATE TABLE b (k bigint, x bigint)")
    sql("INSERT INTO a VALUES (1, 'p'), (2, 'q')")
    sql(
        "CREATE MATERIALIZED VIEW v AS SELECT a.g, sum(b.x) AS s FROM a JOIN b ON a.k = b.k "
        "GROUP BY a.g"
    )
    for x in (5, 7):
        sql(f"INSERT INTO b VALUES (1, {x})")
        both = sql("SELECT v.s, t.s FROM v JOIN (SELECT sum(x) AS s FROM b) t ON v.g = 'p'")
        assert both == [(both[0][1], both[0][1])]
    assert sql("SELECT * FROM v") == [("p", 12)]
    assert sql("SHOW TABLES") == [
        ("a", "table"),
        ("b", "table"),
        ("v", "materialized view"),
    ]


def test_any_deterministic_query_is_a_view(sql: Sql) -> None:
    sql("CREATE TABLE a (k bigint, g text); CREATE TABLE b (k bigint, x bigint)")
    sql("INSERT INTO a VALUES (1, 'p'), (2, 'q'); INSERT INTO b VALUES (1, 5), (1, 7)")
    query = (
        "SELECT a.g, max(b.x) AS most, count(b.x) AS n FROM a LEFT JOIN b ON a.k = b.k GROUP BY a.g"
    )
    sql(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert sql("SELECT * FROM v") == [("p", 7, 2), ("q", None, 0)]
    sql("DELETE FROM b WHERE x = 7")
    assert sql("SELECT * FROM v") == sql(query) == [("p", 5, 1), ("q", None, 0)]
    # A write may rest on a view of tables: the tables are kept as they are until it is there.
    sql("INSERT INTO b SELECT n + 10, most FROM v; INSERT INTO b SELECT 1, max(x) + 1 FROM b")
    assert sql("SELECT * FROM v") == sql(query) == [("p", 6, 2), ("q", None, 0)]
    assert sql("EXPLAIN MATERIALIZED VIEW v")


def test_views_over_views_whatever_they_are_called(sql: Sql) -> None:
    sql("CREATE TABLE t (k bigint PRIMARY KEY, g text, x int)")
    sql("INSERT INTO t VALUES (1, 'p', 5), (2, 'q', 7), (3, 'p', NULL)")
    sql("CREATE VIEW named AS SELECT g, x FROM t WHERE x IS NOT NULL")
    sql("CREATE MATERIALIZED VIEW sums AS SELECT g, sum(x) AS s FROM named GROUP BY g")
    sql("CREATE VIEW top (group_name) AS SELECT g FROM sums WHERE s > 5")
    assert sql("SELECT * FROM top") == [("q",)]
    sql("ALTER TABLE t RENAME TO u; ALTER VIEW named RENAME TO other")
    sql("ALTER MATERIALIZED VIEW sums RENAME TO totals; CREATE TABLE t (nothing int)")
    # The view follows the table, and whoever reads it next sees what was acknowledged before.
    sql("UPDATE u SET x = x * 2 + k WHERE g = 'p'; INSERT INTO u VALUES (4, 'p', 1)")
    assert sql("SELECT * FROM totals") == [("p", 12), ("q", 7)]
    assert sql("SELECT * FROM top") == [("p",), ("q",)]
    sql("DROP TABLE u CASCADE")
    assert sql("SHOW TABLES") == [("t", "table")]


def test_definitions_of_a_block_commit_together(sql: Sql, client: Client) -> None:
    sql("CREATE TABLE t (k bigint); INSERT INTO t VALUES (1), (2)")
    sql("CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t")
    sql("BEGIN; ALTER MATERIALIZED VIEW m RENAME TO m_old")
    sql("CREATE MATERIALIZED VIEW m AS SELECT max(k) AS n FROM t; CREATE VIEW w AS SELECT 1 AS x")
    assert [name for name, _ in sql("SHOW TABLES")] == ["m", "t"]
    sql("COMMIT")
    assert [name for name, _ in sql("SHOW TABLES")] == ["m", "m_old", "t", "w"]
    assert sql("SELECT * FROM m") == [(2,)]
    assert sql("SELECT * FROM m_old") == [(2,)]


def test_views_of_a_block_share_what_they_arrange_and_are_made_for_its_commit(sql: Sql) -> None:
    sql("CREATE TABLE l (k bigint PRIMARY KEY, v bigint); INSERT INTO l VALUES (1, 10), (2, 20)")
    sql("CREATE MATERIALIZED VIEW j AS SELECT l.k FROM l JOIN l AS m ON l.v = m.v")
    sql(
        """
        BEGIN;
        CREATE TABLE r (k bigint PRIMARY KEY, w bigint);
        INSERT INTO r VALUES (1, 5);
        DROP MATERIALIZED VIEW IF EXISTS j CASCADE;
        CREATE MATERIALIZED VIEW IF NOT EXISTS j AS
            SELECT l.k, v + w AS s FROM l JOIN r ON l.k = r.k;
        CREATE MATERIALIZED VIEW j2 AS SELECT l.k, w FROM l LEFT JOIN r ON l.k = r.k;
        CREATE MATERIALIZED VIEW top AS SELECT max(s) AS m FROM j;
        CREATE INDEX ON j (s);
        """
    )
    # History moves on before it commits: what is read then begins later than when it was planned.
    other = sql.another()
    for moment in range(3):
        sql.clock.set(sql.clock.now_ms() + 120_000)
        other(f"UPDATE l SET v = v + 1 WHERE k = 2; INSERT INTO l VALUES ({moment + 7}, 0)")
        sql.timeline.tick()
    sql("COMMIT")
    assert sql("SELECT * FROM j") == [(1, 15)]
    assert sql("SELECT count(*), count(w) FROM j2") == [(5, 1)]
    sql("INSERT INTO r VALUES (2, 100)")
    assert sql("SELECT m FROM top") == [(123,)]
    assert sql("SELECT k FROM j WHERE s = 123") == [(2,)]


def test_a_transaction_reads_its_own_writes_of_large_tables_and_through_views(sql: Sql) -> None:
    sql("CREATE TABLE t (k bigint PRIMARY KEY, g bigint, x bigint)")
    sql("CREATE TABLE u (x bigint, s text)")
    sql("SET dialect = spark")
    sql("INSERT INTO t SELECT id, id % 10, 1 FROM range(30000)")
    sql("INSERT INTO u SELECT id, 'abc' FROM range(30000)")
    sql("SET dialect = postgres")
    sql("CREATE VIEW odd AS SELECT k, g, x FROM t WHERE k % 2 = 1")
    sql("CREATE MATERIALIZED VIEW sums AS SELECT g, sum(x) AS s, count(*) AS n FROM odd GROUP BY g")
    sql("CREATE MATERIALIZED VIEW top AS WITH r AS (SELECT max(s) AS m FROM sums) SELECT m FROM r")
    sql("BEGIN")
    sql("UPDATE t SET x = x + 5 WHERE k IN (1, 2)")
    sql("UPDATE t SET x = x + 5 WHERE k = 1")
    sql("DELETE FROM t WHERE k = 3; INSERT INTO t VALUES (30001, 1, 100)")
    sql("DELETE FROM u WHERE x = 7; INSERT INTO u VALUES (5, 'abc'), (5, 'abc')")
    assert sql("SELECT count(*), sum(x) FROM t") == [(30_000, 30_000 + 10 + 5 - 1 + 100)]
    assert sql("SELECT count(*), count(DISTINCT x), sum(x) FROM u") == [
        (30_001, 29_999, 30_000 * 29_999 // 2 - 7 + 10)
    ]
    assert sql("SELECT s, n FROM sums WHERE g = 1") == [(3_110, 3_001)]
    assert sql("SELECT m FROM top") == [(3_110,)]
    assert sql("SELECT s - m FROM sums JOIN top ON s = m") == [(0,)]
    assert sql("SELECT x FROM t WHERE k = 1") == [(11,)]
    # Many rows: what is on top is no longer little.
    sql("UPDATE t SET x = x + 1; UPDATE t SET g = g + 1 WHERE k > 20000")
    sql("INSERT INTO u SELECT k, 'new' FROM t; DELETE FROM u WHERE s = 'abc'")
    assert sql("SELECT count(*), sum(x) FROM t") == [(30_000, 60_114)]
    found = sql("SELECT g, s, n FROM sums"), sql("SELECT count(*), sum(x) FROM u")
    sql("COMMIT")
    assert (sql("SELECT g, s, n FROM sums"), sql("SELECT count(*), sum(x) FROM u")) == found
    assert sql("SELECT x FROM t WHERE k = 1") == [(12,)]


def test_a_subscription_to_a_view_adds_up_to_it(sql: Sql) -> None:
    sql("CREATE TABLE t (g text, x int)")
    sql("CREATE MATERIALIZED VIEW v AS SELECT g, count(*) AS n FROM t GROUP BY g")
    start = sql.timeline.upper - 1
    sql("INSERT INTO t VALUES ('a', 1); INSERT INTO t VALUES ('a', 2), ('b', 3)")
    sql("DELETE FROM t WHERE g = 'b'")
    changes = sql(f"SUBSCRIBE v AS OF {start} UP TO {sql.timeline.upper}")
    rows: dict[Any, int] = {}
    for _, diff, *row in changes:
        rows[tuple(row)] = rows.get(tuple(row), 0) + diff
    assert {row: n for row, n in rows.items() if n} == {("a", 2): 1}
    assert sql("SELECT * FROM v") == [("a", 2)]


@pytest.mark.parametrize(
    ("statement", "sqlstate"),
    [
        ("SELECT * FROM nothing", "42P01"),
        ("INSERT INTO nothing VALUES (1)", "42P01"),
        ("CREATE TABLE t (k bigint)", "42P07"),
        ("INSERT INTO t VALUES (1, 'again')", "23505"),
        ("INSERT INTO t VALUES (7, 'a'), (7, 'b')", "23505"),
        ("SELECT * FROM t AS OF 5", "22023"),
        ("DROP TABLE t", "2BP01"),
        ("DROP TABLE v", "42809"),
        ("INSERT INTO v VALUES ('p', 1)", "42809"),
        ("CREATE MATERIALIZATION m INTO SQLITE (PATH '/x') (nothing AS n KEY (k))", "42P01"),
        ("BEGIN; INSERT INTO t VALUES (9, 'x'); INSERT INTO t VALUES (9, 'y')", "23505"),
        ("SELECT nothing FROM t", "42703"),
        ("SELECT 1 / 0.0 FROM t", "22012"),
        ("CREATE MATERIALIZED VIEW w AS SELECT nothing FROM t", "42703"),
        ("CREATE MATERIALIZED VIEW w AS SELECT random() AS r FROM t", "0A000"),
    ],
)
def test_what_is_refused_says_so_and_changes_nothing(
    client: Client, spark: Any, statement: str, sqlstate: str
) -> None:
    sql = Sql(client, spark)
    sql("CREATE TABLE t (k bigint PRIMARY KEY, v text)")
    sql("INSERT INTO t VALUES (1, 'a')")
    sql(
        "CREATE MATERIALIZED VIEW v AS SELECT x.v, count(*) AS n FROM t x JOIN t y ON x.k = y.k "
        "GROUP BY x.v"
    )
    before = (client.core.state.items, client.core.state.names)
    upper = sql.timeline.upper
    with pytest.raises(AdapterError) as refused:
        sql(statement)
    assert refused.value.sqlstate == sqlstate
    assert (client.core.state.items, client.core.state.names) == before
    assert sql.timeline.upper == upper


def test_a_dropped_name_can_be_given_again(sql: Sql, tmp_path: Path) -> None:
    sql("CREATE TABLE t (k bigint, v bigint); INSERT INTO t VALUES (1, 1)")
    sql("CREATE MATERIALIZED VIEW v AS SELECT x.k, sum(y.v) AS n FROM t x JOIN t y ON x.k = y.k "
        "GROUP BY x.k")  # fmt: skip
    sql(f"CREATE MATERIALIZATION m INTO SQLITE (PATH '{tmp_path}/e.db') (v AS v KEY (k))")
    sql("DROP MATERIALIZATION m; DROP MATERIALIZED VIEW v; DROP TABLE t")
    assert sql("SHOW TABLES") == []
    sql("CREATE TABLE t (k text)")
    assert sql("SELECT * FROM t") == []


def test_a_fenced_server_does_not_answer_from_the_past(client: Client, spark: Any) -> None:
    from headwater.persist.client import open_location

    sql = Sql(client, spark)
    sql("CREATE TABLE t (k bigint); INSERT INTO t VALUES (1)")
    other = open_location(blob=client.core.blob, consensus=client.core.consensus, take_over=True)
    assert DEFAULT in other.core.state.timelines
    with pytest.raises(Fenced):
        sql("SELECT * FROM t")

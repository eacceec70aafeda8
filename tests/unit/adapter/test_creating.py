"""SHOW CREATE: what it shows makes the same object, whatever was renamed and altered before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.adapter.sql.names import quoted_name
from headwater.base.clock import ManualClock
from headwater.testing.sql_server import SqlServer, SqlSession

KINDS = (
    "subscription", "materialization", "index", "materialized view", "view", "source", "table",
    "connection", "secret",
)  # fmt: skip
"""Of what is made of others, before those."""


@pytest.fixture
def server() -> Iterator[SqlServer]:
    with SqlServer(ManualClock(1_000)) as opened:
        yield opened


def shown(sql: SqlSession, kind: str, name: str) -> str:
    ((_, text),) = sql(f"SHOW CREATE {kind} {quoted_name(name)}")
    return str(text)


def everything(sql: SqlSession) -> dict[str, tuple[str, str]]:
    """What makes each object that has a statement of its own, by name."""
    found = {}
    for name, kind, _ in sql("SHOW OBJECTS"):
        text = shown(sql, kind, name)
        if not text.startswith("CREATE SUBSOURCE"):
            found[name] = (kind, text)
    return found


def anew(sql: SqlSession) -> None:
    """Drop all objects, make them again by what SHOW CREATE says, and compare."""
    before = everything(sql)
    order = sorted(before, key=lambda name: KINDS.index(before[name][0]))
    for name in order:
        sql(f"DROP {before[name][0]} IF EXISTS {quoted_name(name)} CASCADE")
    assert [kind for _, kind, _ in sql("SHOW OBJECTS")] == []
    left = [before[name][1] for name in reversed(order)]
    while left:
        # One that is made of another of its kind comes after that.
        later = [text for text in left if not _made(sql, text)]
        assert len(later) < len(left), later
        left = later
    assert everything(sql) == before


def _made(sql: SqlSession, text: str) -> bool:
    try:
        sql(text)
    except Exception as error:
        if "does not exist" not in str(error):
            raise
        return False
    return True


MADE = """
    CREATE SCHEMA s;
    CREATE SECRET pw AS 'x';
    CREATE CONNECTION pg TO POSTGRES (HOST 'h', DATABASE 'd', USER 'u', PASSWORD SECRET pw);
    CREATE TABLE t (k bigint PRIMARY KEY, v text DEFAULT 'it''s', n numeric(8,2) DEFAULT 1.5);
    CREATE TABLE s.t (k bigint) WITH (RETAIN HISTORY FOR '5 minutes');
    CREATE SOURCE house FROM LOAD GENERATOR AUCTION (UP TO 3) FOR ALL TABLES;
    CREATE SOURCE hook (a int) FROM WEBHOOK (HMAC SECRET pw) FORMAT JSON;
    CREATE VIEW v AS SELECT t.k, o.k AS other FROM t, s.t AS o WHERE t.k IN (SELECT k FROM s.t);
    CREATE VIEW w (a, b) AS WITH t AS (SELECT k FROM v) SELECT k, 'FROM t' FROM t /* t */;
    CREATE VIEW far AS SELECT s.t.k FROM s.t;
    CREATE VIEW constant AS VALUES (1, 'a');
    CREATE MATERIALIZED VIEW m AS SELECT k, count(*) AS n FROM public.t GROUP BY k;
    CREATE MATERIALIZED VIEW kept WITH (RETAIN HISTORY FOR '1h') AS SELECT n FROM m;
    CREATE INDEX i ON v (k);
    CREATE INDEX ON s.t (k) WITH (RETAIN HISTORY FOR '2h');
    CREATE SUBSCRIPTION sub TO m;
"""


def test_it_makes_the_same_again(server: SqlServer) -> None:
    sql = server.session()
    sql(MADE)
    anew(sql)


def test_it_makes_the_same_again_under_other_names(server: SqlServer) -> None:
    sql = server.session()
    sql(MADE)
    sql(
        "ALTER SECRET pw RENAME TO password; ALTER CONNECTION pg RENAME TO Shop;"
        'ALTER TABLE t RENAME TO "T 1"; ALTER SCHEMA s RENAME TO r; ALTER VIEW v RENAME TO v2;'
        "ALTER MATERIALIZED VIEW m RENAME TO m2; ALTER INDEX i RENAME TO j;"
        "ALTER SOURCE house RENAME TO home; ALTER SOURCE bid RENAME TO offer;"
        "ALTER SUBSCRIPTION sub RENAME TO sub2; CREATE TABLE t (another text);"
        "ALTER TABLE t SET (RETAIN HISTORY FOR '90s');"
        "ALTER MATERIALIZED VIEW kept RESET (RETAIN HISTORY);"
        "ALTER INDEX j SET (RETAIN HISTORY FOR '2 minutes');"
        "ALTER SOURCE hook SET (RETAIN HISTORY FOR '1 day')"
    )
    texts = {name: text for name, (_, text) in everything(sql).items()}
    assert texts["v2"] == (
        'CREATE VIEW "v2" AS SELECT t.k, o.k AS other FROM "T 1" AS "t", "r"."t" AS o '
        'WHERE t.k IN (SELECT k FROM "r"."t")'
    )
    assert texts["w"] == (
        'CREATE VIEW w (a, b) AS WITH t AS (SELECT k FROM "v2" AS "v") SELECT k, \'FROM t\' FROM t'
    )
    assert texts["far"] == 'CREATE VIEW far AS SELECT "t".k FROM "r"."t"'
    assert texts["t"] == "CREATE TABLE t (another text) WITH (RETAIN HISTORY FOR '90s')"
    assert 'WITH (RETAIN HISTORY FOR \'1min\') AS SELECT n FROM "m2" AS "m"' in texts["kept"]
    assert texts["j"] == 'CREATE INDEX "j" ON "v2" ("k") WITH (RETAIN HISTORY FOR \'2min\')'
    assert 'PASSWORD SECRET "password"' in texts["shop"]
    assert texts["home"] == (
        'CREATE SOURCE "home" FROM LOAD GENERATOR AUCTION (UP TO 3) FOR TABLES ('
        '"person" AS "person", "auction" AS "auction", "bid" AS "offer")'
    )
    anew(sql)


def test_a_name_means_the_same_along_another_path(server: SqlServer) -> None:
    sql = server.session()
    sql("CREATE SCHEMA s; CREATE TABLE t (k bigint); SET search_path TO s")
    sql("CREATE TABLE t (k int); CREATE VIEW v AS SELECT k FROM t")
    assert shown(sql, "VIEW", "v") == 'CREATE VIEW "s"."v" AS SELECT k FROM t'
    assert shown(sql, "TABLE", "public.t") == 'CREATE TABLE "public"."t" (k bigint)'
    sql("SET search_path TO public")
    assert shown(sql, "VIEW", "s.v") == 'CREATE VIEW "s"."v" AS SELECT k FROM "s"."t"'
    sql("ALTER VIEW s.v SET SCHEMA public; ALTER TABLE t RENAME TO old; DROP TABLE old")
    sql("ALTER TABLE s.t SET SCHEMA public")
    assert shown(sql, "VIEW", "v") == 'CREATE VIEW "v" AS SELECT k FROM t'


def test_a_query_of_sparks_dialect_has_its_quotes(server: SqlServer) -> None:
    sql = server.session()
    sql("CREATE TABLE t (k bigint); SET dialect = spark")
    sql("CREATE VIEW v AS SELECT `t`.`k` AS `a b` FROM t")
    sql("ALTER TABLE t RENAME TO u; ALTER VIEW v RENAME TO w")
    text = "CREATE VIEW `w` AS SELECT `t`.`k` AS `a b` FROM `u` AS `t`"
    assert shown(sql, "VIEW", "w") == text
    sql(f"DROP VIEW w; {text}")
    assert shown(sql, "VIEW", "w") == text


def test_settings_of_a_materialization_are_told(server: SqlServer, tmp_path: Path) -> None:
    sql = server.session()
    sql("CREATE TABLE t (k bigint PRIMARY KEY, v text)")
    into = f"INTO SQLITE (PATH '{tmp_path / 'e.db'}')"
    sql(f"CREATE MATERIALIZATION d {into} (t AS out KEY (k)) WITH (MIN_DURATION = '1s')")
    sql("ALTER TABLE t RENAME TO u; ALTER MATERIALIZATION d SET (MAX_DURATION '5s', SHARDS 2)")
    text = shown(sql, "MATERIALIZATION", "d")
    assert text == (
        f'CREATE MATERIALIZATION d {into} ("u" AS out KEY (k)) '
        "WITH (MIN_DURATION '1s', MAX_DURATION '5s', SHARDS '2')"
    )
    sql(f"DROP MATERIALIZATION d; {text}")
    assert shown(sql, "MATERIALIZATION", "d") == text

"""``SET dialect = spark``: queries go to Spark as they are, and views remember theirs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.adapter.errors import AdapterError
from headwater.adapter.sql import statements
from headwater.adapter.sql.parse import parse_with_text
from headwater.testing.sql_server import SqlServer


@pytest.fixture
def server() -> Iterator[SqlServer]:
    with SqlServer() as opened:
        opened.session()(
            "CREATE TABLE t (k bigint, g text); INSERT INTO t VALUES (1, 'p'), (7, 'q')"
        )
        yield opened


def test_the_same_text_means_what_its_dialect_means(server: SqlServer) -> None:
    sql = server.session()
    sql("CREATE VIEW ours AS SELECT k, k / 2 AS half FROM t")
    assert sql("SELECT half FROM ours") == [(0,), (3,)]
    sql("SET dialect = spark")
    assert sql("SHOW dialect") == [("spark",)]
    # Each of them is Spark's alone, or means something else there.
    assert sql("SELECT k / 2 AS `a half` FROM t") == [(0.5,), (3.5,)]
    assert sql('SELECT k FROM t WHERE g = "q"') == [(7,)]
    assert sql("WITH x AS (SELECT k FROM t) SELECT max(k) FROM x") == [(7,)]
    # Views remember the dialect that they were made in.
    sql("CREATE VIEW theirs AS SELECT `k`, k / 2 AS half FROM `t`")
    sql("CREATE MATERIALIZED VIEW kept AS SELECT `g`, k / 2 AS half FROM t")
    sql('INSERT INTO t SELECT k + 1, "r" FROM t WHERE g = "q"; INSERT INTO t VALUES (3, \'s\')')
    both = "SELECT sum(ours.half) AS o, sum(theirs.half) AS t FROM ours JOIN theirs USING (k)"
    assert sql(both) == [(8, 9.5)]
    sql("RESET dialect")
    assert sql("SELECT sum(half) FROM theirs") == [(9.5,)]
    assert sql("SELECT half FROM kept WHERE g = 'r'") == [(4.0,)]
    assert sql("SELECT k / 2 FROM t WHERE g = 'q'") == [(3,)]
    sql("ALTER VIEW theirs RENAME TO other; DROP VIEW other")
    sql("SET dialect = spark")
    sql("CREATE OR REPLACE MATERIALIZED VIEW kept AS SELECT `g`, k / 4 AS half FROM `t`")
    assert sql("SELECT half FROM kept WHERE g = 'r'") == [(2.0,)]
    sql("DROP MATERIALIZED VIEW kept")


def test_what_holds_a_query_takes_it_as_it_is(server: SqlServer) -> None:
    sql = server.session()
    sql("SET dialect = 'spark'")
    start = server.timeline.upper - 1
    followed = f"SUBSCRIBE (SELECT `g` FROM t WHERE k > 1) AS OF {start} UP TO {start + 1}"
    assert sql(followed) == [(start, 1, "q")]
    lines = [line for (line,) in sql("EXPLAIN SELECT `g` FROM t")]
    assert "dialect: spark" in lines
    assert "Spark SQL: SELECT `g` FROM t" in lines
    assert sql(f"SELECT `k` FROM t AS OF {start}") == [(1,), (7,)]
    # What is no query is the same in both.
    sql('CREATE TABLE "Other" (a int); DROP TABLE "Other"')
    assert sql("SELECT count(*) FROM hw_objects") == [(1,)]


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("SELECT FROM WHERE", "SYNTAX_ERROR"),
        ("SELECT * FROM other.t", "FEATURE_NOT_SUPPORTED"),
        ("SELECT * FROM nope", "UNDEFINED_RELATION"),
        ("SET dialect = mysql", "INVALID_PARAMETER_VALUE"),
    ],
)
def test_what_is_refused(server: SqlServer, text: str, condition: str) -> None:
    sql = server.session()
    sql("SET dialect = spark")
    with pytest.raises(AdapterError) as refused:
        sql(text)
    assert refused.value.condition == condition


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("FROM t SELECT k", ("t",)),
        ("SELECT * FROM a JOIN `B` ON a.x <=> `B`.y", ("a", "B")),
        ("SELECT v FROM t LATERAL VIEW explode(split(g, ',')) e AS v", ("t",)),
        ("WITH c AS (SELECT * FROM t) SELECT * FROM c, u", ("t", "u")),
        ("SELECT 'it\\'s', id FROM range(3)", ()),
        ("SELECT count(*) FROM o GROUP BY window(ts, '1 hour')", ("o",)),
        ("SELECT window.start FROM o GROUP BY window", ("o",)),
        ("SELECT sum(k) OVER w FROM t WINDOW w AS (ORDER BY k)", ("t",)),
    ],
)
def test_relations_are_found_in_what_only_spark_reads(text: str, tables: tuple[str, ...]) -> None:
    ((statement, written),) = parse_with_text(text, "spark")
    assert isinstance(statement, statements.Select)
    assert (statement.query_sql, statement.dialect) == (text, "spark") == (written, "spark")
    assert sorted(statement.tables) == sorted(tables)


@pytest.mark.parametrize("replaced", ["", "OR REPLACE "])
@pytest.mark.parametrize("kind", ["VIEW", "MATERIALIZED VIEW"])
def test_the_query_of_a_view_is_in_its_dialect(kind: str, replaced: str) -> None:
    query = "FROM t LATERAL VIEW explode(split(g, ',')) e AS v SELECT v"
    ((made, _),) = parse_with_text(f"CREATE {replaced}{kind} w AS {query}", "spark")
    assert isinstance(made, statements.CreateView | statements.CreateMaterializedView)
    assert (made.query_sql, made.dialect, made.tables) == (query, "spark", ("t",))
    assert made.or_replace == bool(replaced)


def test_a_view_is_not_replaced_by_a_query_over_itself(server: SqlServer) -> None:
    sql = server.session()
    sql("CREATE VIEW w AS SELECT k FROM t")
    for dialect in ("postgres", "spark"):
        sql(f"SET dialect = {dialect}")
        with pytest.raises(AdapterError, match="it would be made of itself") as refused:
            sql("CREATE OR REPLACE VIEW w AS SELECT k FROM w")
        assert refused.value.sqlstate == "42P16"
    assert sql("SELECT k FROM w") == [(1,), (7,)]
    sql("CREATE OR REPLACE VIEW w AS SELECT k + 1 AS k FROM t")
    assert sql("SELECT k FROM w") == [(2,), (8,)]

"""A materialized view is replaced together with everything that reads it as it is stored.

Views are kept by DuckDB here; ``tests/spark/test_replacement.py`` does the same on Spark.
"""

from __future__ import annotations

import pytest

from headwater.adapter import replacement
from headwater.adapter.errors import AdapterError
from headwater.base.clock import SystemClock
from headwater.compute import definition
from headwater.testing.sql_server import SqlServer

SETUP = """
    CREATE TABLE t (k bigint PRIMARY KEY, v bigint);
    INSERT INTO t VALUES (1, 10), (2, 20), (3, 20);
    CREATE MATERIALIZED VIEW m AS SELECT k, v FROM t;
    CREATE VIEW w AS SELECT v, k FROM m;
    CREATE MATERIALIZED VIEW n AS SELECT v, count(*) AS c FROM w GROUP BY v;
    CREATE INDEX by_v ON n (v);
    CREATE MATERIALIZED VIEW other AS SELECT v FROM t;
"""


def test_readers_are_swapped_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replacement, "GRACE_SECONDS", 0.0)
    with SqlServer(SystemClock()) as server:
        sql = server.session()
        sql(SETUP)
        assert sql("SELECT v, c FROM n") == [(10, 1), (20, 2)]
        before = {view.name for view in definition.stored(server.client.core.state)}
        told = [line for (line,) in sql(f"EXPLAIN {REPLACE}")]
        assert "  materialized view n: it reads w" in told
        assert "  index by_v: it reads n" in told
        assert "  view w: a text, if the columns it uses stay" in told
        assert {view.name for view in definition.stored(server.client.core.state)} == before

        sql(REPLACE)
        assert sql("SELECT v, c FROM n") == [(30, 1), (60, 2)]
        assert sql("SELECT v, c FROM n WHERE v = 60") == [(60, 2)]
        sql("INSERT INTO t VALUES (4, 20)")
        assert sql("SELECT v, c FROM n WHERE v = 60") == [(60, 3)]
        core = server.client.core
        core.wait(lambda state: None if replacement.abandoned(state) else True, 60.0)
        after = {view.name for view in definition.stored(core.state)}
        assert len(after) == 4, "those that were replaced are gone"
        assert len(after & before) == 1, "what does not read it was not made again"
        sql("DROP MATERIALIZED VIEW m CASCADE")
        assert len(definition.stored(core.state)) == 1


REPLACE = "CREATE OR REPLACE MATERIALIZED VIEW m AS SELECT k, v * 3 AS v FROM t"


def test_one_that_cannot_be_changes_nothing() -> None:
    with SqlServer(SystemClock()) as server:
        sql = server.session()
        sql(SETUP)
        before = definition.stored(server.client.core.state)
        for query, told in (
            ("SELECT v, c AS k FROM n", "it would be made of itself"),
            ("SELECT k, v FROM m", "it would be made of itself"),
            ("SELECT k FROM t", "its columns would change, and view w needs them"),
        ):
            with pytest.raises(AdapterError, match=told):
                sql(f"CREATE OR REPLACE MATERIALIZED VIEW m AS {query}")
            assert definition.stored(server.client.core.state) == before
            assert replacement.abandoned(server.client.core.state) == []
            assert sql("SELECT v, c FROM n") == [(10, 1), (20, 2)]
        (lines,) = zip(
            *sql(f"EXPLAIN CREATE OR REPLACE MATERIALIZED VIEW m AS {query}"), strict=True
        )
        assert {"would be refused:", '  column "v" would be gone.'} < set(lines)

"""Whose words a client hears: PostgreSQL judges its own dialect, and no other."""

from __future__ import annotations

import pytest

from headwater.adapter.errors import AdapterError, QueryRejected, Unsupported
from headwater.adapter.refining import refined, spark_reads
from headwater.adapter.sql.parse import parse_with_text
from headwater.testing.sql_server import SqlServer


@pytest.mark.parametrize(
    ("sql", "position"),
    [
        ("SELECT a FROM t", 8),
        ("CREATE VIEW v AS SELECT a FROM t", 25),
        ("UPDATE t SET a = b + 1", None),
        ("INSERT INTO t SELECT a FROM t", None),
        ("SHOW jit", 8),
    ],
)
def test_without_a_shadow_the_words_are_ours_at_the_right_place(
    sql: str, position: int | None
) -> None:
    """Ours count in the query; of a statement that writes the query is of our own making."""
    ((statement, text),) = parse_with_text(sql)
    error = Unsupported("this", position=8)
    with SqlServer() as server:
        told = refined(error, statement, text, None, server.client.core.state)
    assert told is error
    assert told.position == position


def test_sparks_dialect_is_not_postgresqls_to_judge() -> None:
    ((statement, text),) = parse_with_text("SELECT `a` FROM t", "spark")
    error: AdapterError = QueryRejected("no", None, None)
    with SqlServer() as server:
        # Asked of a shadow that is not there it would fail.
        assert refined(error, statement, text, object(), server.client.core.state) is error  # type: ignore[arg-type]  # never asked


@pytest.mark.parametrize(
    ("sql", "position"),
    [
        ("SELECT `a` FROM t", 8),
        ("CREATE MATERIALIZED VIEW v AS\n SELECT `a` FROM t", 39),
        ("CREATE VIEW v AS SELECT `a` FROM t", 25),
        ("INSERT INTO t SELECT `a` FROM t", 22),
    ],
)
def test_of_sparks_dialect_the_places_are_sparks(sql: str, position: int) -> None:
    ((statement, text),) = parse_with_text(sql, "spark")
    error = QueryRejected("no", None, None, 8)
    with SqlServer() as server:
        server.session()("CREATE TABLE t (a int); CREATE VIEW p AS SELECT a FROM t")
        state = server.client.core.state
        assert spark_reads(statement, state) == "SELECT `a` FROM t"
        assert refined(error, statement, text, None, state).position == position
        ((over, _),) = parse_with_text("SELECT `a` FROM p", "spark")
        assert not spark_reads(over, state), "the text of the view stands in front of it"

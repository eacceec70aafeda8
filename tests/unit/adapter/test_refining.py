"""Whose words a client hears: PostgreSQL judges its own dialect, and no other."""

from __future__ import annotations

import pytest

from headwater.adapter.errors import AdapterError, QueryRejected, Unsupported
from headwater.adapter.refining import refined
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

"""Whose words a client hears: PostgreSQL judges its own dialect, and no other."""

from __future__ import annotations

import pytest

from headwater.adapter.errors import AdapterError, CannotBeMaintained, QueryRejected, Unsupported
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


@pytest.mark.parametrize(
    ("sql", "refused", "written", "position"),
    [
        ("SELECT a, now() AS n FROM t", "current_timestamp() cannot", "now() cannot", 11),
        (
            "SELECT a, Current_Timestamp FROM t",
            "current_timestamp() no",
            "current_timestamp no",
            11,
        ),
        ("SELECT 'now', current_date FROM t", "current_date() cannot", "current_date cannot", 15),
        ("SELECT a FROM t WHERE b = USER", "current_user in a view", "current_user in a view", 27),
        ("SELECT now(), now() FROM t", "current_timestamp() no", "current_timestamp() no", None),
        ("SELECT now() FROM t", "two columns 'k' cannot", "two columns 'k' cannot", None),
    ],
)
def test_a_word_that_is_there_once_is_the_place(
    sql: str, refused: str, written: str, position: int | None
) -> None:
    before = "CREATE VIEW v AS "
    ((statement, text),) = parse_with_text(f"{before}{sql}")
    error = CannotBeMaintained(f"{refused} be kept in a view", detail="Why.", hint="How.")
    with SqlServer() as server:
        told = refined(error, statement, text, None, server.client.core.state)
    assert told.primary == f"{written} be kept in a view"
    assert (told.detail, told.hint) == ("Why.", "How.")
    assert told.position == (None if position is None else len(before) + position)


@pytest.mark.parametrize(
    ("dialect", "sql", "said", "hint", "position"),
    [
        ("postgres", "SELECT k FROM t, u", '"k" is ambiguous', 'Write "t"."k" or "u"."k".', 39),
        ("postgres", "SELECT k FROM t a, t b", '"k" is ambiguous', 'Write "a"."k" or "b"."k".', 39),
        (
            "spark",
            "SELECT tt FROM tt",
            'relation "tt" does not exist',
            'Perhaps you meant "t".',
            47,
        ),
        ("spark", "SELECT cast(k AS nosuch) FROM t", 'near "nosuch"', None, 49),
    ],
)
def test_what_a_view_cannot_be_made_of_has_its_place(
    dialect: str, sql: str, said: str, hint: str | None, position: int
) -> None:
    with SqlServer() as server:
        session = server.session()
        session("CREATE TABLE t (k int); CREATE TABLE u (k int)")
        session(f"SET dialect = {dialect}")
        with pytest.raises(AdapterError, match=said) as refused:
            session(f"CREATE MATERIALIZED VIEW v AS  {sql}")
    assert (refused.value.hint, refused.value.position) == (hint, position)


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

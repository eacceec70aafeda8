"""System views, EXPLAIN, and subscriptions to queries, over the wire: psql and psycopg."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import psycopg
import pytest

from headwater.testing.datadriven import collect, run_file
from tests.end_to_end.client_door import Door, open_door
from tests.logic.story import WireStory

pytestmark = pytest.mark.server

LOGIC = Path(__file__).resolve().parents[1] / "logic" / "portable_with_shadow"


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    with open_door() as opened:
        with opened.connect() as session:
            session.execute("CREATE TABLE t (k bigint PRIMARY KEY, g text, x int)")
            session.execute("INSERT INTO t VALUES (1, 'p', 5), (2, 'q', 7)")
            session.execute("CREATE VIEW sums AS SELECT g, max(x) AS s FROM t GROUP BY g")
            session.execute("COMMENT ON TABLE t IS 'it''s \"t\"'")
        yield opened


def test_the_words_for_the_user_mean_the_sessions(door: Door) -> None:
    """Beside system views, in the catalog, in queries of ours, and where a value stands."""
    with psycopg.connect(f"postgresql://ann@{door.url}", autocommit=True) as session:
        for text in (
            "SELECT current_user, session_user, user, current_role",
            "SELECT current_user, session_user, user, current_role FROM hw_objects LIMIT 1",
            "SELECT current_user, session_user, user, current_role FROM pg_class LIMIT 1",
            "SELECT current_user, session_user, user, current_role FROM t LIMIT 1",
        ):
            found = session.execute(text)
            assert found.fetchone() == ("ann",) * 4, text
            assert found.description is not None
            names = [column.name for column in found.description]
            assert names == ["current_user", "session_user", "user", "current_role"], text
        session.execute("CREATE TABLE mine (k bigint, who text DEFAULT current_user)")
        session.execute("INSERT INTO mine VALUES (1, DEFAULT), (2, 'bob'), (3, user)")
        session.execute("INSERT INTO mine SELECT 4, session_user")
        session.execute("UPDATE mine SET who = current_user || '!' WHERE k = 4")
        found = session.execute("SELECT k, who FROM mine WHERE starts_with(who, current_user)")
        assert sorted(found.fetchall()) == [(1, "ann"), (3, "ann"), (4, "ann!")]
        for word in ("current_user", "user"):
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="in a view") as refused:
                session.execute(f"CREATE VIEW v AS SELECT k FROM mine WHERE who = {word}")
            assert "where it is read" in str(refused.value.diag.message_hint)
        session.execute("DROP TABLE mine")


def test_the_short_form_of_a_query_and_moving_a_cursor(door: Door) -> None:
    with door.connect() as session:
        rows = [(1, "p", 5), (2, "q", 7)]
        assert session.execute("TABLE t ORDER BY k").fetchall() == rows
        assert session.execute("TABLE ONLY t ORDER BY k DESC LIMIT 1").fetchall() == rows[1:]
        with session.cursor() as cursor, cursor.copy("COPY (TABLE t) TO STDOUT") as copied:
            assert len(list(copied)) == 2
        session.execute("BEGIN")
        session.execute("DECLARE c CURSOR FOR TABLE t ORDER BY k")
        assert session.execute("MOVE c").statusmessage == "MOVE 1"
        assert session.execute("FETCH c").fetchall() == rows[1:]
        assert session.execute("MOVE FORWARD ALL IN c").statusmessage == "MOVE 0"
        with pytest.raises(psycopg.errors.InvalidCursorName):
            session.execute("MOVE nothing")
        session.execute("ROLLBACK")


def test_any_expression_of_postgresql_reads_system_views(door: Door) -> None:
    with door.connect(application_name="a test") as session:
        found = session.execute(
            "SELECT o.name, string_agg(c.column_name || ':' || c.type, ', ' ORDER BY c.position)"
            " FILTER (WHERE c.nullable), max(o.retain_history_ms)"
            " FROM hw_catalog.hw_objects AS o LEFT JOIN hw_columns AS c USING (object_id)"
            " WHERE o.kind = ANY ('{table,view}') GROUP BY 1 ORDER BY 1 DESC NULLS LAST"
        )
        assert found.fetchall() == [
            ("t", "g:text, x:integer", 60_000),
            ("sums", "g:text, s:integer", None),
        ]
        assert session.execute("SELECT comment FROM hw_objects WHERE name = 't'").fetchone() == (
            'it\'s "t"',
        )
        mine = session.execute(
            "SELECT user_name, application_name, state, connected_at, backend_pid"
            " FROM hw_sessions WHERE session_id = (SELECT max(session_id) FROM hw_sessions)"
        ).fetchone()
        assert mine is not None
        user, application, state, since, pid = mine
        assert (user, application, state) == ("headwater", "a test", "active")
        assert isinstance(since, datetime)
        assert pid == session.info.backend_pid
        # By a parameter, in binary, and with its types known before it runs.
        prepared = session.execute(
            "SELECT upper, readable FROM hw_frontiers WHERE name = %b", ("t",), binary=True
        ).fetchone()
        assert prepared is not None
        assert prepared[1].endswith(f"{prepared[0]})")
        with pytest.raises(psycopg.errors.UndefinedColumn, match="nme"):
            session.execute("SELECT nme FROM hw_objects")
        with pytest.raises(psycopg.errors.UndefinedTable, match="hw_object"):
            session.execute("SELECT * FROM hw_object")


def test_a_transaction_reads_system_views_between_its_own(door: Door) -> None:
    with door.connect() as session, session.transaction():
        session.execute("SELECT * FROM t WHERE k = 1")
        ((state, time),) = session.execute(
            "SELECT state, read_time IS NOT NULL FROM hw_sessions WHERE backend_pid = %s",
            (session.info.backend_pid,),
        ).fetchall()
        assert (state, time) == ("active", True)


def test_psql_shows_them(door: Door) -> None:
    assert "hw_frontiers" in door.psql(r"\dv hw_catalog.*")
    assert "retain_history_ms" in door.psql(r"\d hw_catalog.hw_objects")
    assert "hw_" not in door.psql(r"\d")
    assert "looking up 1 key" in door.psql("EXPLAIN SELECT * FROM t WHERE k = 1")


def test_a_query_is_followed_by_copy_and_by_cursor(door: Door) -> None:
    query = "SELECT g, max(x) AS s FROM t GROUP BY g"
    with door.connect() as session, door.connect() as writer:
        with session.cursor().copy(f"COPY (SUBSCRIBE ({query})) TO STDOUT") as told:
            rows = iter(told.rows())
            assert sorted(row[1:] for row in (next(rows), next(rows))) == [
                ("1", "p", "5"),
                ("1", "q", "7"),
            ]
            writer.execute("INSERT INTO t VALUES (3, 'p', 6)")
            assert sorted(row[1:] for row in (next(rows), next(rows))) == [
                ("-1", "p", "5"),
                ("1", "p", "6"),
            ]
            session.cancel_safe(timeout=30)
            with pytest.raises(psycopg.errors.QueryCanceled):
                list(rows)
        with session.transaction():
            session.execute("DECLARE c CURSOR FOR SUBSCRIBE sums WITH (PROGRESS)")
            found = session.execute("FETCH 3 c").fetchall()
        assert found[0][1] is True
        assert sorted(row[2:] for row in found[1:]) == [(1, "p", 6), (1, "q", 7)]
        assert session.execute("SELECT * FROM hw_subscriptions").fetchall() == []


def test_sparks_dialect_over_the_wire(door: Door) -> None:
    with door.connect() as session:
        session.execute("SET dialect = spark")
        assert session.execute("SHOW dialect").fetchone() == ("spark",)
        assert session.execute('SELECT `k` FROM t WHERE g = "q"').fetchall() == [(2,)]
        # Prepared, with a parameter, by the extended protocol.
        found = session.execute("SELECT k / 2 AS `a half` FROM t WHERE g = %s", ("q",))
        assert found.fetchall() == [(1.0,)]
        assert session.execute("SELECT count(*) FROM pg_catalog.pg_class").fetchone() is not None
        session.execute("RESET dialect")
        assert session.execute("SELECT k / 2 FROM t WHERE k = 1").fetchall() == [(0,)]
    assert "(1 row)" in door.psql("SET dialect = spark", 'SELECT `g` FROM t WHERE g = "q"')


@pytest.mark.parametrize("path", collect(LOGIC), ids=lambda path: path.stem)
def test_what_only_postgresql_evaluates(door: Door, path: Path) -> None:
    story = WireStory(conninfo=f"postgresql://headwater@{door.url}")
    try:
        run_file(path, story.handle)
    finally:
        story.close()

"""The catalog, seen by clients people use: what psql shows, definitions, mistakes, settings.

The adapter and the shadow are the real ones; rows are evaluated without Spark. Drivers are in
``test_catalog_drivers.py``; dbt is in ``test_dbt.py``.
"""

from __future__ import annotations

import os
import re
import signal
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from tests.end_to_end.client_door import Door

pytestmark = pytest.mark.server


# --- psql -----------------------------------------------------------------------------------------


def test_psql_lists_what_there_is(door: Door) -> None:
    printed = door.psql(
        r"\d", r"\dt", r"\dv", r"\dm", r"\l", r"\dn", r"\df", r"\du", r"\di", r"\dp", r"\ds"
    )
    assert re.search(r"public \| orders +\| table +\| headwater", printed)
    assert re.search(r"public \| paid_orders +\| view +\| headwater", printed)
    assert re.search(r"headwater +\| headwater \| UTF8", printed)
    assert re.search(r"public +\| headwater", printed)
    assert re.search(r"orders_pkey \| index", printed)
    assert re.search(r"by_who +\| index", printed)
    assert re.search(r"public \| kept +\| materialized view \| headwater", printed)
    assert "hw_objects" not in printed
    assert re.search(r"hw_catalog \| hw_objects +\| view", door.psql(r"\dv hw_catalog.*"))


def test_schemas(door: Door) -> None:
    door.psql(
        "CREATE SCHEMA sales",
        "COMMENT ON SCHEMA sales IS 'what is sold'",
        "CREATE TABLE sales.orders (id bigint PRIMARY KEY, item text)",
        "SET search_path TO sales",
        "CREATE VIEW big AS SELECT * FROM orders WHERE id > 5",
    )
    try:
        printed = door.psql(r"\dn+", r"\dt sales.*", r"\d+ sales.big", r"\d sales.orders")
        assert re.search(r"sales +\| headwater .*what is sold", printed)
        assert re.search(r"sales +\| orders \| table", printed)
        assert "FROM sales.orders" in printed
        assert '"orders_pkey" PRIMARY KEY, btree (id)' in printed
        assert "sales" not in door.psql(r"\d")  # Not on the path.
        printed = door.psql("SET search_path TO sales, public", r"\d", r"\d orders")
        assert re.search(r"sales +\| big +\| view", printed)
        assert 'Table "sales.orders"' in printed
        engine = sa.create_engine(f"postgresql+psycopg://headwater@{door.url}")
        inspector = sa.inspect(engine)
        assert "sales" in inspector.get_schema_names()
        assert inspector.get_table_names(schema="sales") == ["orders"]
        table = sa.Table("orders", sa.MetaData(schema="sales"), autoload_with=engine)
        with engine.begin() as connection:
            connection.execute(table.insert(), [{"id": 7, "item": "tea"}, {"id": 1, "item": "x"}])
        with engine.begin() as connection:
            connection.execute(table.update().where(table.c.id == 1).values(item="jam"))
        with engine.begin() as connection:
            read = sa.select(table.c.item).order_by(table.c.id)
            assert list(connection.execute(read).scalars()) == ["jam", "tea"]
        engine.dispose()
        with door.connect(options="-c search_path=sales") as connected:
            assert connected.info.parameter_status("search_path") == "sales"
            found = connected.execute("SELECT item FROM big WHERE id = %s", (7,)).fetchall()
            assert found == [("tea",)]
            ours = connected.execute("SELECT current_schemas(false)::text").fetchall()
            assert ours == [("{sales}",)]
        door.psql("ALTER SCHEMA sales RENAME TO shop")
        assert "FROM shop.orders" in door.psql(r"\d+ shop.big")
        door.psql("ALTER SCHEMA shop RENAME TO sales")
    finally:
        door.psql("DROP SCHEMA sales CASCADE")
    assert "sales" not in door.psql(r"\dn")


def test_psql_describes_a_table(door: Door) -> None:
    printed = door.psql(r"\d+ orders", r"\dt+ orders")
    assert 'Table "public.orders"' in printed
    for line in (
        r" id +\| bigint +\| +\| not null \|",
        r" who +\| text +\| +\| not null \| 'nobody''s'::text",
        r" amount +\| numeric\(12,2\) .*\| in euros",
        r" at +\| timestamp with time zone",
        r' +"orders_pkey" PRIMARY KEY, btree \(id\)',
        r' +"by_who" btree \(who\)',
        r"\| what was ordered",
    ):
        assert re.search(line, printed), line


def test_psql_describes_views_by_their_text(door: Door) -> None:
    printed = door.psql(r"\d+ paid_orders", r"\d+ counts", r"\sv paid_orders", r"\d+ kept")
    assert "FROM orders\n  WHERE paid;" in printed
    assert re.search(r" n +\| bigint", printed)
    assert "CREATE OR REPLACE VIEW public.paid_orders" in printed
    assert 'Materialized view "public.kept"' in printed
    assert "max(amount) AS most" in printed


def test_a_view_is_shown_with_the_names_of_today(door: Door) -> None:
    printed = door.psql(
        "CREATE TABLE before (a bigint)",
        "CREATE VIEW of_before AS SELECT a FROM before",
        "ALTER TABLE before RENAME TO after_all",
        "CREATE TABLE before (b bigint)",
        r"\d+ of_before",
        "DROP TABLE after_all, before CASCADE",
        r"\d",
    )
    shown, left = printed.split("DROP TABLE")
    assert "FROM after_all before" in shown
    assert "before" not in left


def test_definitions_of_a_transaction_are_its_own(door: Door) -> None:
    """A client sees its own definitions at once, and nobody else's before they are committed."""
    named = "SELECT count(*) FROM pg_class WHERE relname = 'tentative'"
    with door.connect() as mine, door.connect() as theirs:

        def seen() -> tuple[int, int]:
            counts = [each.execute(named).fetchall()[0][0] for each in (mine, theirs)]
            return counts[0], counts[1]

        mine.execute("BEGIN")
        mine.execute("CREATE VIEW tentative AS SELECT 1 AS one")
        assert seen() == (1, 0)
        mine.execute("ROLLBACK")
        assert seen() == (0, 0)
        mine.execute("BEGIN")
        mine.execute("CREATE VIEW tentative AS SELECT 1 AS one")
        assert seen() == (1, 0)
        mine.execute("COMMIT")
        assert seen() == (1, 1)
        theirs.execute("DROP VIEW tentative")
        assert seen() == (0, 0)


def test_what_the_shadow_does_not_take_hides_nothing_else(door: Door) -> None:
    with door.connect() as connection:
        connection.execute("CREATE TABLE odd (ctid bigint)")
        try:
            found = connection.execute(
                "SELECT relname FROM pg_class WHERE relname ~ '^(odd|orders)$'"
            )
            assert found.fetchall() == [("orders",)]
        finally:
            connection.execute("DROP TABLE odd")


def test_the_catalog_and_relations_are_not_read_together(door: Door) -> None:
    with door.connect() as connection:
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="in one query"):
            connection.execute("SELECT * FROM orders, pg_class")
        with pytest.raises(psycopg.errors.UndefinedColumn) as refused:
            connection.execute("SELECT nothing FROM pg_class")
        assert refused.value.diag.statement_position == "8"
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT pg_sleep(1), pg_backend_pid()")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT pg_read_file('postgresql.conf')")


@pytest.mark.parametrize(
    ("sql", "sqlstate", "said", "at"),
    [
        ("SELECT nothing FROM orders", "42703", 'column "nothing" does not exist', "nothing"),
        ("SELECT id + who FROM orders", "42883", "operator does not exist: bigint + text", "+"),
        ("SELECT frobnicate(id) FROM orders", "42883", "function frobnicate(bigint)", "frob"),
        ("SELECT * FROM orders WHERE id", "42804", "argument of WHERE must be type bool", "id"),
        ("SELECT 'x'::bigint", "22P02", "invalid input syntax for type bigint", "'x'"),
        ("SELECT * FROM order_s", "42P01", 'relation "order_s" does not exist', "order_s"),
        ("CREATE VIEW v AS SELECT x FROM orders", "42703", 'column "x" does not exist', "x FROM"),
        ("UPDATE orders SET who = nope", "42703", 'column "nope" does not exist', "nope"),
        ("DELETE FROM orders WHERE who > 1", "42883", "operator does not exist: text >", ">"),
        ("COPY (SELECT nope FROM orders) TO STDOUT", "42703", 'column "nope"', "nope"),
    ],
)
def test_mistakes_are_told_in_postgresqls_words(
    door: Door, sql: str, sqlstate: str, said: str, at: str
) -> None:
    """Also behind a comment, behind another statement, and in the extended protocol."""
    with door.connect() as connection:
        for text, prepare in (
            (sql, False),
            (f"/* from somewhere */ {sql}", True),
            (f"SHOW jit; {sql}", False),
        ):
            if sql.startswith("COPY") and prepare:
                continue
            with pytest.raises(psycopg.Error) as refused:
                connection.execute(text, prepare=prepare)
            told = refused.value.diag
            assert told.sqlstate == sqlstate
            assert said in str(told.message_primary)
            assert told.statement_position is not None
            assert text[int(told.statement_position) - 1 :].startswith(at)


def test_a_shadow_that_died_is_started_again(door: Door) -> None:
    with door.connect() as connection:
        connection.execute("SELECT count(*) FROM pg_class")
        shadow = door.queries._shadow
        assert shadow is not None
        pid = shadow.instance.postmaster_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        while shadow.instance.postmaster_pid == pid:  # Its sessions notice by and by.
            found = connection.execute("SELECT relname FROM pg_class WHERE relname = 'orders'")
            assert found.fetchall() == [("orders",)]


# --- variables, pools, savepoints -----------------------------------------------------------------


def test_variables_that_drivers_set(door: Door) -> None:
    with door.connect() as connection:

        def one(sql: str) -> Any:
            return connection.execute(sql).fetchall()[0][0]

        assert one("SHOW jit") == "off"
        connection.execute("SET jit = on")
        assert one("SHOW jit") == "on"
        assert one("SELECT set_config('application_name', 'me', false)") == "me"
        assert one("SELECT current_setting('application_name')") == "me"
        assert connection.info.parameter_status("application_name") == "me"
        connection.execute("SET my.own = 'x'")
        assert one("SHOW my.own") == "x"
        assert one("SELECT current_setting('my.own', true)") == "x"
        assert one("SELECT current_setting('my.other', true)") is None
        asked = connection.execute("SELECT current_setting(%s)", ("my.own",), prepare=True)
        assert asked.fetchall() == [("x",)]
        with pytest.raises(psycopg.errors.UndefinedObject):
            connection.execute("SELECT current_setting('my.other')")
        assert one("SELECT pg_advisory_unlock_all()") == ""
        shown = dict(row[:2] for row in connection.execute("SHOW ALL").fetchall())
        assert shown["application_name"] == "me"
        assert shown["block_size"] == "8192"
        with pytest.raises(psycopg.errors.UndefinedObject):
            connection.execute("SET no_such_variable = 1")
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            connection.execute("SET enable_seqscan = 'perhaps'")
        connection.execute("DISCARD ALL")
        assert one("SHOW jit") == "off"
        assert one("SHOW application_name") == ""


def test_a_setting_follows_its_transaction(door: Door) -> None:
    with door.connect() as connection:
        for name, value in (
            ("idle_session_timeout", "1h"),
            ("statement_timeout", "20s"),
            ("enable_seqscan", "off"),
        ):
            before = connection.execute(f"SHOW {name}").fetchall()
            with connection.transaction():
                connection.execute(f"SET LOCAL {name} = '{value}'")
                assert connection.execute(f"SHOW {name}").fetchall() != before
            assert connection.execute(f"SHOW {name}").fetchall() == before
            with connection.transaction(force_rollback=True):
                connection.execute(f"SET {name} = '{value}'")
                assert connection.execute(f"SHOW {name}").fetchall() != before
            assert connection.execute(f"SHOW {name}").fetchall() == before


def test_savepoints(door: Door) -> None:
    with door.connect() as connection:
        connection.execute("CREATE TABLE saved (k bigint PRIMARY KEY)")
        with connection.transaction():
            connection.execute("INSERT INTO saved VALUES (1)")
            connection.execute("SAVEPOINT two")
            connection.execute("INSERT INTO saved VALUES (2)")
            with pytest.raises(psycopg.errors.UndefinedTable):
                connection.execute("INSERT INTO nowhere VALUES (1)")
            with pytest.raises(psycopg.errors.InFailedSqlTransaction):
                connection.execute("RELEASE two")
            connection.execute("ROLLBACK TO two")
            with connection.transaction():
                connection.execute("INSERT INTO saved VALUES (3)")
        assert connection.execute("SELECT k FROM saved ORDER BY k").fetchall() == [(1,), (3,)]
        with pytest.raises(psycopg.errors.NoActiveSqlTransaction):
            connection.execute("SAVEPOINT alone")
        with pytest.raises(psycopg.errors.InvalidSavepointSpecification), connection.transaction():
            connection.execute("RELEASE nothing")
        connection.execute("DROP TABLE saved")

"""The catalog, seen by clients people use, unmodified: psql, psycopg, asyncpg, SQLAlchemy, pgjdbc.

The adapter and the shadow are the real ones; rows are evaluated without Spark. dbt, and whatever
is about materialized views, is in ``tests/spark/test_dbt.py``.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from psycopg.types import TypeInfo
from sqlalchemy.ext.asyncio import create_async_engine

from tests.end_to_end.client_door import Door, open_door

pytestmark = pytest.mark.server

asyncpg: Any = pytest.importorskip("asyncpg", reason="asyncpg is not installed (tests only)")

JDBC_JAR = Path(os.environ.get("HEADWATER_JDBC_JAR", "/usr/share/java/postgresql.jar"))
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    with open_door() as opened, opened.connect() as connection:
        connection.execute(
            "CREATE TABLE orders (id bigint PRIMARY KEY, who text NOT NULL DEFAULT 'nobody''s',"
            " amount numeric(12,2), at timestamptz, paid boolean DEFAULT false)"
        )
        for statement in (
            "COMMENT ON TABLE orders IS 'what was ordered'",
            "COMMENT ON COLUMN orders.amount IS 'in euros'",
            "CREATE VIEW paid_orders AS SELECT id, amount FROM orders WHERE paid",
            "CREATE VIEW counts (who, n) AS SELECT who, count(*) FROM orders GROUP BY who",
            "CREATE INDEX by_who ON orders (who)",
            "CREATE MATERIALIZED VIEW kept AS SELECT max(amount) AS most FROM orders",
            "INSERT INTO orders VALUES (1, 'ada', 12.50, '2026-01-02 03:04:05+00', true)",
        ):
            connection.execute(statement)
        yield opened


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
            ("lock_timeout", "1s"),
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


# --- psycopg --------------------------------------------------------------------------------------


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_psycopg(door: Door, binary: bool) -> None:
    with door.connect() as connection:
        cursor = connection.cursor(binary=binary)
        # Untyped: the type is the shadow's to say.
        cursor.execute("SELECT * FROM orders WHERE id = %s", ("1",), prepare=True)
        assert cursor.fetchall() == [(1, "ada", Decimal("12.50"), AT, True)]
        cursor.execute(
            "SELECT oid, relname, relkind, relnatts, relhasindex FROM pg_class"
            " WHERE relname = ANY(%s) AND relkind = %s",
            (["orders", "other"], "r"),
        )
        ((oid, *rest),) = cursor.fetchall()
        assert rest == ["orders", "r", 5, True]
        found = cursor.execute("SELECT attname FROM pg_attribute WHERE attrelid = %s", (oid,))
        assert ("amount",) in found.fetchall()
        assert TypeInfo.fetch(connection, "numeric") is not None


def test_psycopg_pipeline_copy_and_named_cursors(door: Door) -> None:
    with door.connect() as connection:
        connection.execute("CREATE TABLE lines (n bigint, s text)")
        with connection.pipeline():
            for n in range(3):
                connection.execute("INSERT INTO lines VALUES (%s, %s)", (n, f"s{n}"))
            counted = connection.execute("SELECT count(*) FROM lines")
            named = connection.execute(
                "SELECT relname FROM pg_class WHERE relname = %s", ("lines",)
            )
            assert counted.fetchall() == [(3,)]
            assert named.fetchall() == [("lines",)]
        with connection.cursor().copy("COPY lines FROM STDIN") as copy:
            copy.write_row((4, "four"))
        asked = "COPY (SELECT relname, relnatts FROM pg_class WHERE relname = 'lines') TO STDOUT"
        with connection.cursor().copy(asked) as copy:
            assert b"".join(copy) == b"lines\t2\n"
        with connection.transaction(), connection.cursor("several") as cursor:
            cursor.execute("SELECT attname FROM pg_attribute WHERE attrelid = 'lines'::regclass")
            assert len(cursor.fetchmany(2)) == 2
        connection.execute("DROP TABLE lines")


# --- asyncpg --------------------------------------------------------------------------------------


def test_asyncpg(door: Door) -> None:
    async def story() -> None:
        async with asyncpg.create_pool(
            f"postgresql://headwater@{door.url}", min_size=1, max_size=2
        ) as pool:
            for _ in range(2):  # The second time after the pool has reset the connection.
                async with pool.acquire() as connection:
                    await prepared(connection)
                    await written(connection)

    async def prepared(connection: Any) -> None:
        statement = await connection.prepare(
            "SELECT id, amount, at FROM orders WHERE id = $1 AND amount > $2 AND at >= $3"
        )
        assert [each.name for each in statement.get_parameters()] == [
            "int8",
            "numeric",
            "timestamptz",
        ]
        assert [each.type.name for each in statement.get_attributes()] == [
            *("int8", "numeric", "timestamptz")
        ]
        assert await statement.fetchrow(1, Decimal(3), AT) == (1, Decimal("12.50"), AT)
        # Types that it asks the catalog for, and answers of the catalog in binary.
        types = await connection.fetch(
            "SELECT oid FROM pg_type WHERE oid = ANY($1::oid[])", [20, 25]
        )
        assert sorted(types) == [(20,), (25,)]
        row = await connection.fetchrow(
            "SELECT relname, relacl, relkind FROM pg_class WHERE relname = $1", "orders"
        )
        assert row["relname"] == "orders"
        assert row["relkind"] == b"r"
        assert len(row["relacl"]) == 2
        domain = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
        assert ("orders",) in await connection.fetch(domain)

    async def written(connection: Any) -> None:
        insert = "INSERT INTO orders (id, who, paid) VALUES ($1, $2, $3) RETURNING id, paid"
        assert await connection.fetchrow(insert, 50, "bob", None) == (50, None)
        await connection.executemany(
            "INSERT INTO orders (id, who) VALUES ($1, $2)", [(51, "eve"), (52, "eve")]
        )
        await connection.copy_records_to_table("orders", records=[(53, "x")], columns=["id", "who"])
        async with connection.transaction():
            cursor = connection.cursor(
                "SELECT id FROM orders WHERE id > $1 ORDER BY id", 40, prefetch=2
            )
            assert [row["id"] async for row in cursor] == [50, 51, 52, 53]
        assert await connection.fetch("SELECT id FROM orders ORDER BY id LIMIT $1", 1) == [(1,)]
        several = "SELECT id FROM orders WHERE id = ANY($1) AND who = ANY($2::text[]) ORDER BY id"
        assert await connection.fetch(several, [51, 52, 7], ["eve", "x"]) == [(51,), (52,)]
        assert await connection.fetch(several, [], ["eve"]) == []
        await connection.execute("DELETE FROM orders WHERE id >= $1", 50)

    asyncio.run(story())


def test_a_prepared_statement_whose_rows_change_is_prepared_anew(door: Door) -> None:
    async def story() -> None:
        connection = await asyncpg.connect(f"postgresql://headwater@{door.url}")
        await connection.execute("CREATE TABLE changing (v bigint)")
        await connection.execute("INSERT INTO changing VALUES (7)")
        kept = await connection.prepare("SELECT v FROM changing")
        assert await kept.fetchval() == 7
        await connection.execute("DROP TABLE changing")
        await connection.execute("CREATE TABLE changing (v text)")
        await connection.execute("INSERT INTO changing VALUES ('seven')")
        with pytest.raises(asyncpg.InvalidCachedStatementError):
            await kept.fetchval()  # In binary a text would be read as some number.
        assert await connection.fetchval("SELECT v FROM changing") == "seven"
        await connection.execute("DROP TABLE changing")
        await connection.close()

    asyncio.run(story())


# --- SQLAlchemy -----------------------------------------------------------------------------------


def test_sqlalchemy_reflects(door: Door) -> None:
    engine = sa.create_engine(f"postgresql+psycopg://headwater@{door.url}")
    try:
        inspector = sa.inspect(engine)
        assert "orders" in inspector.get_table_names()
        assert {"counts", "paid_orders"} <= set(inspector.get_view_names())
        assert inspector.get_pk_constraint("orders")["constrained_columns"] == ["id"]
        assert inspector.get_table_comment("orders") == {"text": "what was ordered"}
        assert "FROM orders" in str(inspector.get_view_definition("paid_orders"))
        columns = {each["name"]: each for each in inspector.get_columns("orders")}
        assert str(columns["amount"]["type"]) == "NUMERIC(12, 2)"
        assert columns["who"]["nullable"] is False
        assert columns["who"]["default"] == "'nobody''s'::text"
        assert columns["amount"]["comment"] == "in euros"
        assert not inspector.has_table("nowhere")
        reflected = sa.MetaData()
        reflected.reflect(engine, views=True)
        orders = reflected.tables["orders"]
        with engine.connect() as connection:
            found = connection.execute(sa.select(orders).where(orders.c.id == 1)).all()
        assert found == [(1, "ada", Decimal("12.50"), AT, True)]
    finally:
        engine.dispose()


def test_sqlalchemy_core(door: Door) -> None:
    engine = sa.create_engine(f"postgresql+psycopg://headwater@{door.url}", pool_pre_ping=True)
    metadata = sa.MetaData()
    items = sa.Table(
        "items",
        metadata,
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("name", sa.Text, nullable=False, server_default="thing"),
        sa.Column("price", sa.Numeric(10, 2)),
        comment="things to buy",
    )
    try:
        metadata.create_all(engine)
        metadata.create_all(engine)  # There already: asked of the catalog.
        with engine.begin() as connection:
            connection.execute(
                sa.insert(items), [{"id": n, "name": f"n{n}", "price": n / 2} for n in range(1, 4)]
            )
        with engine.begin() as connection:
            made = sa.insert(items).values(id=9).returning(items.c.id, items.c.name)
            assert connection.execute(made).all() == [(9, "thing")]
            with pytest.raises(sa.exc.IntegrityError), connection.begin_nested():
                connection.execute(sa.insert(items).values(id=10, name=None))
        with engine.begin() as connection:
            connection.execute(sa.update(items).where(items.c.id == 2).values(name="two"))
        with engine.connect() as connection:
            asked = sa.select(items.c.name).where(items.c.id <= 3).order_by(items.c.id)
            assert connection.execute(asked).scalars().all() == ["n1", "two", "n3"]
        metadata.drop_all(engine)
        assert not sa.inspect(engine).has_table("items")
    finally:
        engine.dispose()


def test_sqlalchemy_over_asyncpg(door: Door) -> None:
    async def story() -> None:
        engine = create_async_engine(f"postgresql+asyncpg://headwater@{door.url}")
        async with engine.connect() as connection:
            names = await connection.run_sync(lambda each: sa.inspect(each).get_table_names())
            assert "orders" in names
            found = await connection.execute(
                sa.text("SELECT who FROM orders WHERE id = :id"), {"id": 1}
            )
            assert found.scalars().all() == ["ada"]
        await engine.dispose()

    asyncio.run(story())


# --- JDBC -----------------------------------------------------------------------------------------

JDBC_SAYS = """\
product PostgreSQL 18
table jdbc_forms TABLE null
table jdbc_items TABLE of a Java program
table jdbc_view VIEW null
column id int8 -5 19 NO null
column name text 12 2147483647 YES null
column price numeric 2 10 YES null
column at timestamptz 93 35 YES null
column ok bool -7 1 YES true
key id 1
schemas 1, catalogs 1, types true, indexes 1
parameters 5 numeric
inserted 1
inserted 1
described int8 numeric ok
row 1 one 12.50 true
row 1 one 12.50 true
row 1 one 12.50 true
returned 3
batch 250
fetched 250
after a savepoint 1
refused 42703
described uuid jsonb
form a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11 true {"a": null, "b": 1.5}
form a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11 true {"a": null, "b": 1.5}
"""


def test_jdbc(door: Door) -> None:
    java = shutil.which("java")
    if java is None or not JDBC_JAR.exists():
        pytest.skip("pgjdbc is not on this machine (Debian: libpostgresql-jdbc-java)")
    with door.connect() as connection:
        connection.execute(
            "CREATE TABLE jdbc_items (id bigint PRIMARY KEY, name text, price numeric(10,2),"
            " at timestamptz, ok boolean DEFAULT true)"
        )
        for statement in (
            "COMMENT ON TABLE jdbc_items IS 'of a Java program'",
            "CREATE VIEW jdbc_view AS SELECT id FROM jdbc_items",
            "CREATE TABLE jdbc_forms (id uuid PRIMARY KEY, doc jsonb)",
        ):
            connection.execute(statement)
        program = Path(__file__).parent / "jdbc" / "Jdbc.java"
        done = subprocess.run(
            # Compiled in a hurry, for one run: what is slow to start is left out.
            [
                *(java, "-XX:TieredStopAtLevel=1", "-cp", str(JDBC_JAR)),
                *(str(program), f"jdbc:postgresql://{door.url}"),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == JDBC_SAYS
        connection.execute("DROP TABLE jdbc_items CASCADE")
        connection.execute("DROP TABLE jdbc_forms")

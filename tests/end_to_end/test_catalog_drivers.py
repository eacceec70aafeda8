"""The catalog, seen by drivers people use, unmodified: psycopg, asyncpg, SQLAlchemy, pgjdbc.

The adapter and the shadow are the real ones; rows are evaluated without Spark.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from psycopg.types import TypeInfo
from sqlalchemy.ext.asyncio import create_async_engine

from tests.end_to_end.client_door import Door

pytestmark = pytest.mark.server

asyncpg: Any = pytest.importorskip("asyncpg", reason="asyncpg is not installed (tests only)")

JDBC_JAR = Path(os.environ.get("HEADWATER_JDBC_JAR", "/usr/share/java/postgresql.jar"))
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


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


def test_sqlalchemy_with_cursors_of_the_server(door: Door) -> None:
    """From the first statement on, which asks for the version."""
    engine = sa.create_engine(f"postgresql+psycopg://headwater@{door.url}")
    with engine.connect() as connection:
        streaming = connection.execution_options(stream_results=True, max_row_buffer=2)
        asked = "SELECT pg_catalog.version(), current_user, current_schema()"
        ((version, user, schema),) = streaming.execute(sa.text(asked))
        assert (version.split()[0], user, schema) == ("PostgreSQL", "headwater", "public")
        assert [row.who for row in streaming.execute(sa.text("SELECT who FROM orders"))] == ["ada"]
    engine.dispose()


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("SELECT current_user", "headwater"),
        ("SELECT pg_catalog.current_schema()", "public"),
        ("SELECT current_setting('search_path') AS path", '"$user", public'),
        ("SHOW bytea_output", "hex"),
        ("SHOW statement_timeout", "0"),
    ],
)
def test_questions_about_the_connection_wherever_they_stand(
    door: Door, question: str, answer: str
) -> None:
    with door.connect() as connection:
        assert connection.execute(question.encode()).fetchall() == [(answer,)]
        with connection.transaction():
            connection.execute(b"DECLARE c CURSOR FOR " + question.encode())
            assert connection.execute("FETCH 1 FROM c").fetchall() == [(answer,)]
            assert connection.execute("FETCH ALL FROM c").fetchall() == []
        with connection.cursor().copy(b"COPY (" + question.encode() + b") TO STDOUT") as rows:
            assert [row for (row,) in rows.rows()] == [answer]
        if question.startswith("SELECT"):
            connection.execute(b"PREPARE p AS " + question.encode())
            assert connection.execute("EXECUTE p").fetchall() == [(answer,)]
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="EXPLAIN of a query"):
                connection.execute(b"EXPLAIN " + question.encode())


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

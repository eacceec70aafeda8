"""Columns of type uuid and jsonb, by the clients people use: psycopg, asyncpg, SQLAlchemy, psql."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import asyncpg  # type: ignore[import-untyped]
import psycopg
import pytest
import sqlalchemy as sa
from psycopg.types.json import Json, Jsonb

from tests.end_to_end.client_door import Door, open_door

pytestmark = pytest.mark.server

UUID_OID = 2950
FIRST, SECOND = UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"), UUID(int=10)


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    with open_door() as opened:
        with opened.connect() as session:
            session.execute(
                "CREATE TABLE u (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), v int, other uuid);"
                "CREATE VIEW same AS SELECT id AS it, v FROM u WHERE other = id;"
                "CREATE MATERIALIZED VIEW kept AS SELECT other, count(*) AS n FROM u GROUP BY other"
            )
        yield opened


@pytest.fixture
def session(door: Door) -> Iterator[psycopg.Connection[Any]]:
    with door.connect() as connected:
        connected.execute("TRUNCATE u")
        yield connected


def oids(cursor: psycopg.Cursor[Any]) -> list[int]:
    return [column.type_code for column in cursor.description or ()]


@pytest.mark.parametrize("binary", [False, True])
def test_psycopg(session: psycopg.Connection[Any], binary: bool) -> None:
    form = "%b" if binary else "%t"
    for v, other in ((1, FIRST), (2, None)):
        session.execute(
            f"INSERT INTO u VALUES ({form}, {v}, {form})",
            (FIRST if v == 1 else SECOND, other),
            prepare=True,
        )
    for text in (
        f"SELECT id, v FROM u WHERE id = {form}",
        f"SELECT id, v FROM u WHERE other = {form}",
        f"SELECT it, v FROM same WHERE it IN ({form})",
        f"SELECT other, 1 FROM kept WHERE other = {form}",
        f"SELECT max(v), 1 FROM u WHERE id = {form}",
    ):
        found = session.execute(text, (FIRST,), binary=binary, prepare=True)
        assert found.fetchall() in ([(FIRST, 1)], [(1, 1)]), text
        assert oids(found)[0] == (23 if "max" in text else UUID_OID), text
    found = session.execute("SELECT id FROM u WHERE v = 2 ORDER BY id", binary=binary)
    assert (found.fetchall(), oids(found)) == ([(SECOND,)], [UUID_OID])
    moved = session.execute(
        f"UPDATE u SET other = {form} WHERE id = {form} RETURNING other", (SECOND, FIRST)
    )
    assert (moved.fetchall(), oids(moved)) == ([(SECOND,)], [UUID_OID])


def test_a_default_is_another_one_for_each_row(session: psycopg.Connection[Any]) -> None:
    made = session.execute("INSERT INTO u (v) VALUES (1), (2), (3) RETURNING id").fetchall()
    assert len({id_ for (id_,) in made}) == 3
    assert all(isinstance(id_, UUID) and id_.version == 4 for (id_,) in made)
    with pytest.raises(psycopg.errors.DatatypeMismatch):
        session.execute("INSERT INTO u (id) VALUES (lower('A'))")
    with pytest.raises(psycopg.errors.DatatypeMismatch):
        session.execute("CREATE TABLE wrong (id uuid DEFAULT now())")


@pytest.mark.parametrize("form", ["text", "binary", "csv"])
def test_copy(session: psycopg.Connection[Any], form: str) -> None:
    rows = [(uuid4(), v, None if v % 3 else FIRST) for v in range(100)]
    with session.cursor() as cursor:
        with cursor.copy(f"COPY u FROM STDIN (FORMAT {form})") as copy:
            if form == "csv":
                for row in rows:
                    text = ",".join("" if each is None else str(each).upper() for each in row)
                    copy.write(f"{text}\n")
            else:
                copy.set_types(["uuid", "int4", "uuid"])
                for row in rows:
                    copy.write_row(row)
        assert sorted(cursor.execute("SELECT * FROM u")) == sorted(rows, key=lambda r: str(r[0]))
        with cursor.copy("COPY u TO STDOUT (FORMAT binary)") as copy:
            copy.set_types(["uuid", "int4", "uuid"])
            assert sorted(copy.rows(), key=repr) == sorted(rows, key=repr)
        with (
            pytest.raises(psycopg.errors.InvalidTextRepresentation),
            cursor.copy("COPY u FROM STDIN") as copy,
        ):
            copy.write("no uuid\t1\t\\N\n")


def test_subscribe(session: psycopg.Connection[Any]) -> None:
    session.execute("INSERT INTO u VALUES (%s, 1, %s)", (FIRST, SECOND))
    for what in ("u", "same", "kept", "(SELECT other, v FROM u)"):
        with session.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute(f"DECLARE c CURSOR FOR SUBSCRIBE {what}")
            cursor.execute("FETCH 1 c WITH (TIMEOUT '5s')" if what != "same" else "FETCH 0 c")
            assert UUID_OID in oids(cursor), what
            cursor.execute("ROLLBACK")


def test_catalogs_tell_the_type(door: Door, session: psycopg.Connection[Any]) -> None:
    found = session.execute("SELECT name, type FROM hw_columns WHERE column_name = 'other'")
    assert sorted(found.fetchall()) == [("kept", "uuid"), ("u", "uuid")]
    for name in ("u", "same", "kept"):
        column = {"u": "id", "same": "it", "kept": "other"}[name]
        told = session.execute(
            "SELECT data_type FROM information_schema.columns"
            " WHERE table_name = %s AND column_name = %s",
            (name, column),
        ).fetchone()
        # PostgreSQL has no materialized views there.
        assert told == (None if name == "kept" else ("uuid",))
    assert "uuid" in door.psql(r"\d kept")


def test_asyncpg(door: Door, session: psycopg.Connection[Any]) -> None:
    async def conversation() -> None:
        connection = await asyncpg.connect(f"postgresql://headwater@{door.url}")
        try:
            await connection.execute("INSERT INTO u VALUES ($1, $2, $3)", FIRST, 1, SECOND)
            rows = await connection.fetch("SELECT id, other FROM u WHERE other = $1", SECOND)
            assert [tuple(row) for row in rows] == [(FIRST, SECOND)]
            rows = await connection.fetch("SELECT v FROM u WHERE id = ANY($1::uuid[])", [FIRST])
            assert [tuple(row) for row in rows] == [(1,)]
        finally:
            await connection.close()

    asyncio.run(conversation())


def test_sqlalchemy(door: Door, session: psycopg.Connection[Any]) -> None:
    engine = sa.create_engine(f"postgresql+psycopg://headwater@{door.url}")
    try:
        table = sa.Table("u", sa.MetaData(), autoload_with=engine)
        assert isinstance(table.c.id.type, sa.UUID)
        with engine.begin() as connection:
            connection.execute(table.insert(), [{"id": FIRST, "v": 1, "other": SECOND}])
        with engine.connect() as connection:
            wanted = sa.select(table.c.id).where(table.c.other == SECOND)
            assert connection.execute(wanted).scalars().all() == [FIRST]
    finally:
        engine.dispose()


def test_json_by_psycopg(session: psycopg.Connection[Any]) -> None:
    value = {"bb": [1, None, "é"], "a": {"c": True}}
    session.execute("CREATE TABLE j (k int PRIMARY KEY, v jsonb)")
    try:
        session.execute("INSERT INTO j VALUES (1, %s), (2, %b)", (Jsonb(value), Jsonb([])))
        session.execute("INSERT INTO j VALUES (3, %s)", (Json(value),))
        with session.cursor() as cursor, cursor.copy("COPY j FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["int4", "jsonb"])
            copy.write_row((4, Jsonb(value)))
        for binary in (False, True):
            found = session.execute(
                "SELECT v, count(*) FROM j WHERE v = %s GROUP BY v", (Jsonb(value),), binary=binary
            )
            assert (found.fetchall(), oids(found)[0]) == ([(value, 3)], 3802)
            found = session.execute("SELECT v FROM j WHERE k = 4", binary=binary)
            assert (found.fetchall(), oids(found)) == ([(value,)], [3802])
        for text in ("SELECT v -> 'a' FROM j", "SELECT k FROM j WHERE v ->> 'a' = 'x'"):
            with pytest.raises(psycopg.errors.FeatureNotSupported) as refused:
                session.execute(text)
            assert "get_json_object" in str(refused.value.diag.message_hint)
    finally:
        session.execute("DROP TABLE j")

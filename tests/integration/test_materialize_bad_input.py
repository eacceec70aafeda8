"""Whatever is wrong with an endpoint or a row: it is told, nothing is half applied, others go on.

Each case breaks something under a materialization that runs, reads the cause from its status, looks
that the endpoint has nothing of the transaction that failed, and that another materialization goes
on. Then it is mended, and the first one goes on by itself, too.
"""

from __future__ import annotations

import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from headwater.base.errors import HeadwaterError
from headwater.materialize.controller import Materializations
from headwater.materialize.definition import Binding, Endpoint
from headwater.materialize.status import State
from headwater.persist.client import open_location
from headwater.persist.evolution import updates_schema
from tests.integration.shared_location import Postgres

pytestmark = pytest.mark.server

SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.string())])
WAIT_SECONDS = 60.0
RETRY_SECONDS = 0.02

Change = tuple[int | None, str, int]


class World:
    """A collection, delivered into PostgreSQL by a role of its own, and into SQLite beside it."""

    def __init__(self, directory: Path, postgres: Postgres) -> None:
        self._dsn = postgres.dsn
        self.role = f"r{uuid.uuid4().hex[:12]}"
        self.admin(f"CREATE ROLE {self.role} LOGIN")
        self.admin(f"CREATE SCHEMA {self.role} AUTHORIZATION {self.role}")
        self._location = open_location(directory / "data")
        client = self._location.__enter__()
        self.write, self.read = client.create_or_load("c", SCHEMA)
        self.running = Materializations(client, retry_seconds=RETRY_SECONDS)
        self._good = directory / "good.db"
        self.append((1, "a", 1))
        self.running.install(
            "good",
            Endpoint("sqlite", {"path": str(self._good)}),
            (Binding("c", self.read.id, "log", ("v",), delta_updates=True),),
        )

    def close(self) -> None:
        self.running.stop()
        self._location.__exit__(None, None, None)

    def admin(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._dsn, autocommit=True) as db:
            found = db.execute(statement.encode())
            return sorted(found.fetchall(), key=repr) if found.description else []

    def endpoint(self, role: str | None = None) -> Endpoint:
        dsn = psycopg.conninfo.make_conninfo(self._dsn, user=role or self.role)
        return Endpoint("postgres", {"dsn": dsn, "schema": self.role})

    def install(self) -> None:
        target = f"{self.role}.target"
        log = Binding("c", self.read.id, f"{self.role}.log", ("v",), delta_updates=True)
        self.running.install(
            "m", self.endpoint(), (log, Binding("c", self.read.id, target, ("k",)))
        )

    def append(self, *changes: Change) -> None:
        at = self.write.upper.only()
        columns = {
            "k": [k for k, _, _ in changes],
            "v": [v for _, v, _ in changes],
            "__time": [at] * len(changes),
            "__diff": [diff for _, _, diff in changes],
        }
        table = pa.table(columns, schema=updates_schema(SCHEMA))
        self.write.compare_and_append(table, at, at + 1).result()

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        try:
            return self.admin(f'SELECT v FROM {self.role}."{table}"')
        except psycopg.errors.UndefinedTable:
            return []

    def others(self) -> int:
        """How many rows of :meth:`stalls` the materialization beside it has delivered."""
        with closing(sqlite3.connect(self._good)) as db:
            try:
                rows = db.execute("SELECT count(*) FROM log WHERE v = 'other'")
                return int(rows.fetchone()[0])
            except sqlite3.OperationalError:
                return 0

    def stalls(self, cause: str) -> None:
        """Wait until it says why it cannot go on; see that others do, and nothing is half there."""
        found = self.running.get("m")
        assert found is not None
        eventually(lambda: found.status.state is State.STALLED and cause in found.status.error)
        before = self.others()
        self.append((None if cause == "NULL" else 77, "other", 1))
        eventually(lambda: self.others() == before + 1)
        assert found.status.state is State.STALLED

    def goes_on(self, *rows: str) -> None:
        expected = sorted((row,) for row in rows)
        eventually(lambda: self.rows("target") == expected)
        found = self.running.get("m")
        assert found is not None
        eventually(lambda: found.status.state is State.RUNNING)
        assert not found.status.error


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)


@pytest.fixture
def world(tmp_path: Path, postgres: Postgres) -> Iterator[World]:
    with closing(World(tmp_path, postgres)) as made:
        yield made


def test_an_endpoint_that_cannot_be_reached_is_refused(world: World, tmp_path: Path) -> None:
    binding = Binding("c", world.read.id, "target", ("k",))
    away = Endpoint("postgres", {"dsn": f"host={tmp_path} user=x"})
    with pytest.raises(HeadwaterError, match="cannot connect to PostgreSQL"):
        world.running.install("m", away, (binding,))
    with pytest.raises(HeadwaterError, match='role "nobody" does not exist'):
        world.running.install("m", world.endpoint("nobody"), (binding,))
    assert world.running.get("m") is None


def test_a_role_that_may_not_come_in_any_more(world: World) -> None:
    world.install()
    world.goes_on("a")
    world.admin(f"ALTER ROLE {world.role} NOLOGIN")
    world.admin(
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{world.role}'"
    )
    world.append((2, "b", 1))
    world.stalls("is not permitted to log in")
    world.admin(f"ALTER ROLE {world.role} LOGIN")
    world.goes_on("a", "b", "other")


def test_a_password_that_is_wrong(world: World) -> None:
    ((rules,),) = world.admin("SHOW hba_file")
    others = Path(rules).read_text()
    try:
        # The server trusts everybody else, as it did.
        own = "".join(f"{kind} scram-sha-256\n" for kind in _connections(world.role))
        Path(rules).write_text(own + others)
        world.admin(f"ALTER ROLE {world.role} PASSWORD 'right'")
        world.admin("SELECT pg_reload_conf()")
        log = Binding("c", world.read.id, f"{world.role}.log", ("v",), delta_updates=True)
        right, wrong = (
            Endpoint("postgres", {**known, "dsn": f"{known['dsn']} password={password}"})
            for password in ("right", "wrong")
            for known in (world.endpoint().config,)
        )

        def is_refused() -> bool:  # As soon as the server has read its rules again.
            try:
                world.running.dry_run("m", wrong, (log,))
            except HeadwaterError as error:
                return "password authentication failed" in str(error)
            return False

        eventually(is_refused)
        with pytest.raises(HeadwaterError, match="password authentication failed") as raised:
            world.running.install("m", wrong, (log,))
        assert "password=wrong" not in str(raised.value)
        target = Binding("c", world.read.id, f"{world.role}.target", ("k",))
        world.running.install("m", right, (log, target))
        world.goes_on("a")
        world.admin(f"ALTER ROLE {world.role} PASSWORD 'other'")
        world.admin(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{world.role}'"
        )
        world.append((2, "b", 1))
        world.stalls("password authentication failed")
        world.admin(f"ALTER ROLE {world.role} PASSWORD 'right'")
        world.goes_on("a", "b", "other")
    finally:
        Path(rules).write_text(others)
        world.admin("SELECT pg_reload_conf()")


def _connections(role: str) -> tuple[str, str]:
    return f"local all {role}", f"host all {role} all"


def test_missing_privileges(world: World) -> None:
    world.admin(f"ALTER SCHEMA {world.role} OWNER TO CURRENT_USER")
    world.admin(f"GRANT USAGE ON SCHEMA {world.role} TO {world.role}")
    world.install()
    world.stalls("permission denied for schema")
    world.admin(f"GRANT CREATE ON SCHEMA {world.role} TO {world.role}")
    world.goes_on("a", "other")
    world.admin(f"ALTER TABLE {world.role}.target OWNER TO CURRENT_USER")
    world.append((2, "b", 1))
    found = world.running.get("m")
    assert found is not None
    eventually(lambda: "permission denied for table target" in found.status.error)
    assert ("b",) not in world.rows("log"), "the other binding has nothing of it, either"
    world.admin(f"GRANT ALL ON {world.role}.target TO {world.role}")
    world.goes_on("a", "b", "other")


def test_a_table_that_somebody_changed(world: World) -> None:
    world.install()
    world.goes_on("a")
    world.admin(f"ALTER TABLE {world.role}.target ALTER COLUMN v TYPE int8 USING 0")
    world.append((2, "b", 1))
    world.stalls("'v': the table's column is int8, not text")
    assert world.rows("log") == [("a",)]
    world.admin(f"ALTER TABLE {world.role}.target ALTER COLUMN v TYPE text USING 'a'")
    world.goes_on("a", "b", "other")


def test_a_value_that_is_too_large(world: World) -> None:
    world.admin(f"CREATE TABLE {world.role}.target (k int8 PRIMARY KEY, v varchar(5))")
    world.admin(f"ALTER TABLE {world.role}.target OWNER TO {world.role}")
    world.install()
    world.goes_on("a")
    world.append((2, "much too long", 1))
    world.stalls("value too long for type character varying(5)")
    assert world.rows("log") == [("a",)]
    world.append((2, "much too long", -1), (2, "short", 1))
    world.goes_on("a", "other", "short")


def test_a_key_that_is_null(world: World) -> None:
    world.install()
    world.goes_on("a")
    world.append((None, "b", 1))
    world.stalls("NULL")
    assert world.rows("log") == [("a",)]
    world.append((None, "b", -1), (None, "other", -1), (2, "c", 1))
    world.goes_on("a", "c")


def test_a_key_of_two_rows(world: World) -> None:
    world.install()
    world.goes_on("a")
    world.append((1, "again", 1))
    world.stalls("(k)=(1) already exists")
    assert world.rows("log") == [("a",)]
    world.append((1, "a", -1))
    world.goes_on("again", "other")

"""The command blocks of the documentation, typed as they stand (``docs_pages``).

Through the wire, by psycopg; rows are evaluated by DuckDB, which changes nothing about what may be
typed. Each page, and each example of the reference of statements, has a schema of its own.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headwater.adapter.pgwire import WireServer
from headwater.adapter.pgwire.wire_statements import parse_text
from headwater.adapter.webhooks import Webhooks
from headwater.base.clock import SystemClock
from headwater.server.config import Address
from headwater.server.http import HttpServer
from headwater.server.webhooks import WebhookDoor
from headwater.testing.sql_server import SqlServer
from tests.integration.docs_pages import HERE, WITHOUT, Told, needed, typed
from tests.integration.shared_location import Postgres

pytestmark = pytest.mark.server

A_TIME = re.compile(r"\b1794749383106\b")
UPSTREAM = re.compile(r"^-- upstream\n(.*?)^-- here\n", re.MULTILINE | re.DOTALL)
SECRET = "a secret of theirs"
LIMIT_S = 120
numbers = itertools.count()


class Reader:
    """Somebody who reads a page and types what it says."""

    def __init__(self, server: SqlServer, wire: WireServer, http: str, other: Postgres) -> None:
        self._server = server
        self._wire, self._http, self._other = wire, http, other

    def names(self, folder: Path) -> dict[str, str]:
        """What is of the test's own, for one page."""
        number = next(numbers)
        there = psycopg.conninfo.conninfo_to_dict(self._other.dsn)
        return {
            "folder": str(folder),
            "schema": f"docs{number}",
            "publication": f"docs_p{number}",
            "host": str(there["host"]),
            "database": str(there["dbname"]),
            "user": str(there["user"]),
            "http": self._http,
            "secret": SECRET,
        }

    def connect(self, schema: str) -> psycopg.Connection[Any]:
        dsn = f"host=127.0.0.1 port={self._wire.port} user=headwater dbname=headwater"
        connection = psycopg.connect(dsn, autocommit=True)
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        connection.execute(f"SET search_path TO {schema}")
        return connection

    def upstream(self, schema: str, text: str) -> None:
        """Do something in the other database, in a schema of the page's own."""
        with psycopg.connect(self._other.dsn, autocommit=True) as other:
            other.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
            other.execute(f"SET search_path TO {schema}")
            other.execute(text)

    def type(self, connection: psycopg.Connection[Any], sql: str) -> None:
        """Type one statement, and take what it answers."""
        word = sql.split(maxsplit=1)[0].upper()
        # What is read is there; what is written is still to come, and waited for.
        ahead_ms = 1_000 if word in {"INSERT", "UPDATE", "DELETE"} else 0
        sql = A_TIME.sub(str(time.time_ns() // 1_000_000 + ahead_ms), sql)
        try:
            if word == "SUBSCRIBE":
                # For ever: what is there by now is enough.
                with connection.transaction():
                    connection.execute(f"DECLARE d CURSOR FOR {sql}")
                    connection.execute("FETCH 1 d WITH (TIMEOUT '0s')")
            elif word == "COPY":
                with connection.cursor() as cursor, cursor.copy(sql) as copy:
                    if "FROM STDIN" in sql:
                        copy.write("id,region\n7,north\n")
                    else:
                        list(copy)
            elif word == "ACKNOWLEDGE":
                _acknowledge(connection, sql)
            else:
                found = connection.execute(sql)
                if found.description is not None:
                    found.fetchall()
        except psycopg.Error as error:
            raise AssertionError(f"{sql}\n{error}") from error


def _acknowledge(connection: psycopg.Connection[Any], sql: str) -> None:
    """Say that everything up to now was taken, once all of it is there."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            connection.execute(sql)
        except psycopg.Error as error:
            if "is complete before" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


@pytest.fixture(scope="module")
def reader(logical: Postgres) -> Iterator[Reader]:
    with SqlServer(SystemClock()) as server:
        server.timeline.start()
        webhooks = Webhooks(server.client.core, server.ingestions, server.coordinator.connections)
        door = WebhookDoor(_nothing, webhooks.open, lambda: None)
        http = HttpServer(Address("127.0.0.1", 0), lambda: door)
        http.start()
        try:
            with WireServer("127.0.0.1", 0, server.coordinator) as wire:
                address = f"{http.address.host}:{http.address.port}"
                yield Reader(server, wire, address, logical)
        finally:
            http.stop()


async def _nothing(scope: Any, receive: Any, send: Any) -> None:
    """What is behind the door of webhooks: nobody asks here."""
    del scope, receive, send


def put(text: str, values: Mapping[str, str]) -> str:
    """Return a text with what is of the test's own in it."""
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def read(reader: Reader, told: Told, blocks: list[tuple[str, str]], folder: Path) -> int:
    """Type all blocks of a page; return how many statements and commands that were."""
    values = reader.names(folder)
    schema, count = values["schema"], 0
    for name in ("clicks", "prices", "in"):
        (folder / name).mkdir()
    if told.upstream:
        reader.upstream(schema, put(told.upstream, values))
    with reader.connect(schema) as connection:
        for _, statement in parse_text(put(told.before, values)) if told.before else ():
            reader.type(connection, statement)
        for language, written in blocks:
            text = written
            for name, stands_for in told.names.items():
                text = text.replace(name, put(stands_for, values))
            if language == "sh":
                _run(text, values)
                count += 1
                continue
            assert language == "sql", language
            for others in UPSTREAM.findall(text):
                reader.upstream(schema, others)
            if "headwater_status" in text:
                reader.upstream(schema, text)
                continue
            for _, statement in parse_text(UPSTREAM.sub("", text)):
                reader.type(connection, statement)
                count += 1
    return count


def _run(text: str, values: Mapping[str, str]) -> None:
    done = subprocess.run(
        ["bash", "-ec", text],
        env={**os.environ, "SECRET": values["secret"], "NO_PROXY": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == '{"messages": 1, "first": 0}'


@pytest.mark.parametrize("page", sorted(set(HERE) - {"docs/sql/statements.md"}))
def test_what_a_page_says_can_be_typed(reader: Reader, page: str, tmp_path: Path) -> None:
    blocks = typed(page)
    if any(language == "sh" for language, _ in blocks) and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    assert read(reader, HERE[page], blocks, tmp_path) >= len(blocks) - 1


def test_every_example_of_a_statement_can_be_typed(reader: Reader, tmp_path: Path) -> None:
    typed_of, refused = 0, list[str]()
    for _, text in typed("docs/sql/statements.md"):
        for example in text.strip().splitlines():
            statement = example.rstrip(";")
            if any(statement.startswith(begins) for begins in WITHOUT):
                continue
            folder = tmp_path / f"{typed_of}"
            folder.mkdir()
            values = reader.names(folder)
            if "POSTGRES" in statement:
                reader.upstream(
                    values["schema"],
                    f"CREATE TABLE orders (id int PRIMARY KEY); CREATE PUBLICATION "
                    f"{values['publication']} FOR TABLE orders",
                )
            statement = (
                statement.replace("/d/", f"{folder}/")
                .replace("HOST 'h', DATABASE 'd', USER 'u'", put(THERE, values))
                .replace("'all'", f"'{values['publication']}'")
                .replace("(orders)", f"({values['schema']}.orders)")
                .replace('"public.', f'"{values["schema"]}.')
            )
            connection = reader.connect(values["schema"])
            try:
                for before in needed(statement):
                    reader.type(connection, put(before, values))
                reader.type(connection, statement)
            except AssertionError as error:
                refused.append(str(error))
            finally:
                connection.close()
            typed_of += 1
    assert not refused, "\n\n".join(refused)
    assert typed_of > 90


THERE = "HOST '{host}', DATABASE '{database}', USER '{user}'"

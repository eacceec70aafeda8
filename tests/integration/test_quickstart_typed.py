"""README and quickstart, typed as they stand, at a server in this process (``docs_typist``)."""

from __future__ import annotations

import shlex
import shutil
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from headwater.adapter.pgwire import WireServer
from headwater.base.clock import SystemClock
from headwater.cli.main import app
from headwater.collection.run_layout import LAYOUTS
from headwater.persist.client import open_location
from headwater.testing.sql_server import SqlServer
from tests.integration.docs_typist import Typist
from tests.integration.shared_location import Postgres

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(shutil.which("psql") is None, reason="psql is not installed"),
]

SERVE = ["headwater", "serve", "--data"]
DEMO = ["headwater", "demo"]
"""It is Spark all through: it is typed in the soak."""
DELIVERED = [("north", 99.5, 1), ("south", 50.0, 1)]
"""What the quickstart says is in its view in the end."""
REVENUE = "SELECT region, CAST(total AS float), orders FROM revenue ORDER BY region"
LIMIT_S = 120

Rows = list[tuple[Any, ...]]


class Here(Typist):
    """Types commands into this process; what they start is ended with it."""

    def __init__(self, directory: Path, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(directory, dsn)
        self._monkeypatch = monkeypatch
        monkeypatch.chdir(directory)  # Commands and the server are where the page is read.
        self.open = ExitStack()

    def type(self, command: str) -> None:
        words = shlex.split(command)
        if words[:3] == SERVE:
            self._serve(self.directory / words[3])
        elif words[:2] != DEMO:
            assert words[0] == "headwater", command
            done = CliRunner().invoke(app, words[1:])
            assert done.exit_code == 0, f"{command}\n{done.stdout}\n{done.stderr}"

    def _serve(self, data: Path) -> None:
        clock = SystemClock()
        client = open_location(data, layouts=LAYOUTS, clock=clock)
        server = self.open.enter_context(SqlServer(clock, client=client, sources_run=True))
        server.timeline.start()
        wire = self.open.enter_context(WireServer("127.0.0.1", 0, server.coordinator))
        self.port = wire.port
        self._monkeypatch.setenv("HEADWATER_LISTEN", f"127.0.0.1:{self.port}")


@pytest.fixture
def dsn(postgres: Postgres) -> Iterator[str]:
    """A database in which nobody has a table yet."""
    name = f"d{uuid.uuid4().hex}"
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield psycopg.conninfo.make_conninfo(postgres.dsn, dbname=name)
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def typist(dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    typist = Here(tmp_path, dsn, monkeypatch)
    with typist.open:
        yield typist


def test_docs_quickstart_md_is_true(typist: Here, dsn: str) -> None:
    assert typist.read("docs/quickstart.md") == 13
    with psycopg.connect(dsn, autocommit=True) as endpoint:
        arrived(DELIVERED, lambda: endpoint.execute(REVENUE).fetchall())
    with closing(sqlite3.connect(typist.directory / "revenue.db")) as file:
        arrived(DELIVERED, lambda: file.execute(REVENUE).fetchall())


def arrived(wanted: Rows, found: Callable[[], Rows]) -> None:
    """Wait until the rows of a delivery are what they should be."""
    deadline = time.monotonic() + LIMIT_S
    while (rows := found()) != wanted:
        assert time.monotonic() < deadline, rows
        time.sleep(0.05)


def test_the_session_of_readme_md_is_true(typist: Here) -> None:
    typist.type("headwater serve --data data")
    assert typist.read("README.md") == 2

"""A door for clients of all kinds: the real adapter and the real shadow, no Spark behind them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from headwater.adapter.catalog_queries import CatalogQueries
from headwater.adapter.pgwire import WireServer
from headwater.base.clock import SystemClock
from headwater.testing.shadow_directory import shadow_directory
from headwater.testing.sql_server import SqlServer


class Door:
    """A server that is listening, and how clients reach it."""

    def __init__(self, wire: WireServer, queries: CatalogQueries) -> None:
        self.wire = wire
        self.queries = queries
        self.url = f"{wire.host}:{wire.port}/headwater"

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        """A connection of psycopg."""
        return psycopg.connect(f"postgresql://headwater@{self.url}", autocommit=True, **options)

    def psql(self, *commands: str) -> str:
        """What psql prints."""
        binary = shutil.which("psql")
        if binary is None:
            pytest.skip("psql is not on this machine (Debian: postgresql-client)")
        given = [word for command in commands for word in ("-c", command)]
        options = ("-X", "-w", "-v", "ON_ERROR_STOP=1", "-P", "pager=off")
        # A client's own language and settings are none of the test's.
        surroundings = {name: v for name, v in os.environ.items() if not name.startswith("PG")}
        done = subprocess.run(
            [binary, *options, f"postgresql://headwater@{self.url}", *given],
            capture_output=True,
            text=True,
            env={**surroundings, "LC_ALL": "C"},
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr


@contextmanager
def open_door() -> Iterator[Door]:
    """A server without Spark."""
    with (
        shadow_directory() as directory,
        SqlServer(SystemClock(), shadow=directory) as server,
        WireServer("127.0.0.1", 0, server.coordinator) as wire,
    ):
        assert server.catalog_queries is not None
        server.catalog_queries.start()
        yield Door(wire, server.catalog_queries)

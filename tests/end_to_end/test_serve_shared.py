"""A server on shared services: objects in S3, the log in PostgreSQL, and who may have them.

The same server after a crash goes on by itself; another one is refused with a sentence, unless it
takes over, and then the first one ends with the status of the fenced.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from headwater.cli.exit_status import ExitStatus
from headwater.testing.servers import postgres_server, s3_server

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.soak]

DEADLINE_SECONDS = 300.0


class Served:
    """A ``headwater serve`` on shared services, with a directory of its own."""

    def __init__(self, environment: dict[str, str], data: Path, *more: str) -> None:
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "headwater", "serve", "--data", str(data)),
                *("--listen", "127.0.0.1:0", "--console", "off", *more),
            ],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.port = int(line.rsplit(":", 1)[1]) if line.startswith("listening on ") else 0

    def run(self, sql: str) -> list[tuple[object, ...]]:
        with psycopg.connect(
            host="127.0.0.1", port=self.port, user="headwater", dbname="headwater", autocommit=True
        ) as connection:
            cursor = connection.execute(sql.encode())
            return list(cursor.fetchall()) if cursor.description is not None else []

    def end(self, number: signal.Signals | None = None) -> tuple[int, str]:
        """Wait for the end, after a signal if one is given; return status and standard error."""
        if number is not None:
            os.killpg(self.process.pid, number)
        _, told = self.process.communicate(timeout=DEADLINE_SECONDS)
        return self.process.returncode, told


def test_shared_services_crash_lock_and_take_over(tmp_path: Path) -> None:
    with postgres_server() as dsn, s3_server() as s3:
        s3.create_bucket("shared")
        log = f"{dsn}{'&' if '?' in dsn else '?'}headwater_log=served"
        environment = {
            **s3.environment,
            "HEADWATER_BLOB": "s3://shared/location",
            "HEADWATER_CONSENSUS": log,
        }
        first = Served(environment, tmp_path / "one")
        first.run("CREATE TABLE t (k bigint PRIMARY KEY, v bigint)")
        first.run("INSERT INTO t SELECT id, id FROM generate_series(1, 2000) AS g(id)")
        first.run("CREATE MATERIALIZED VIEW m AS SELECT sum(v) AS s, count(*) AS n FROM t")
        assert first.run("SELECT s, n FROM m") == [(2_001_000, 2000)]
        first.end(signal.SIGKILL)

        again = Served(environment, tmp_path / "one")
        again.run("INSERT INTO t VALUES (0, 1)")
        assert again.run("SELECT s, n FROM m") == [(2_001_001, 2001)]

        status, told = Served(environment, tmp_path / "two").end()
        assert status == ExitStatus.LOCKED, told
        assert "is held by" in told
        assert "Traceback" not in told

        other = Served(environment, tmp_path / "two", "--take-over")
        status, told = again.end()
        assert status == ExitStatus.FENCED, told
        assert other.run("SELECT s, n FROM m") == [(2_001_001, 2001)]
        status, told = other.end(signal.SIGTERM)
        assert status == ExitStatus.OK, told

"""A server on shared services: objects in S3, the log in PostgreSQL, and who may have them.

The same server after a crash goes on by itself; another one is refused with a sentence, unless it
takes over, and then the first one ends with the status of the fenced.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from headwater.cli.exit_status import ExitStatus
from headwater.testing.servers import postgres_server, s3_server
from tests.end_to_end.served import Served

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.soak]


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

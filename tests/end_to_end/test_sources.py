"""A server with a source that runs: killed at any moment, it goes on exactly where it was.

One server process, real Spark, a view over the source, and a join with a table.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.end_to_end.test_skeleton import DEADLINE_SECONDS, Served

pytestmark = [pytest.mark.spark, pytest.mark.server]

# One statement, so one time for all of it: the view and the source must agree.
LOOK = """
    SELECT kept.n, there.n, there.distinct_n, there.greatest
    FROM (SELECT sum(n) AS n FROM by_digit) AS kept CROSS JOIN
         (SELECT count(*) AS n, count(DISTINCT counter) AS distinct_n, max(counter) AS greatest
          FROM c) AS there
"""


def look(served: Served) -> int:
    """Return how many numbers there are; they have no gap and no double."""
    dsn = f"host=127.0.0.1 port={served.port} user=headwater dbname=headwater"
    with psycopg.connect(dsn, autocommit=True) as connection:
        row: tuple[Any, ...] | None = connection.execute(LOOK).fetchone()
    assert row is not None
    kept, count, distinct, greatest = row
    assert kept == count == distinct, row
    assert greatest is None or greatest == count - 1, row
    return int(count)


def look_until(served: Served, count: int) -> int:
    over = time.monotonic() + DEADLINE_SECONDS
    while (found := look(served)) < count:
        assert time.monotonic() < over, f"{found} of {count} came"
    return found


def test_killed_with_a_running_source(tmp_path: Path) -> None:
    served = Served(tmp_path / "data")
    try:
        served.psql("CREATE SOURCE c FROM LOAD GENERATOR COUNTER (TICK INTERVAL '50ms')")
        served.psql("CREATE TABLE t (k bigint, name text); INSERT INTO t VALUES (7, 'seven')")
        served.psql(
            "CREATE MATERIALIZED VIEW by_digit AS SELECT counter % 10 AS digit, count(*) AS n "
            "FROM c GROUP BY counter % 10"
        )
        known = look_until(served, 20)
        assert served.psql("SELECT name FROM c JOIN t ON counter = k") == [["seven"]]
        served.kill()
        served = Served(tmp_path / "data")
        count = look(served)
        assert count >= known, "what was told is there"
        look_until(served, count + 1)
    finally:
        served.stop()

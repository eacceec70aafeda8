"""NEXMark q0 to q22 as views under new events, updates and deletes: what DuckDB and Spark say.

DuckDB has no event-time windows, so five queries are said again in its own words. All windows are
of whole seconds since the epoch, as in Spark.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from headwater.persist.client import Client
from headwater.testing.nexmark import Auctions
from tests.queries.tables import queries
from tests.spark.suite_story import SuiteStory

pytestmark = pytest.mark.spark

SEED = 4
TIMES = 3
STEPS = 2

TEN = "INTERVAL '10 seconds'"
BUCKET = f"time_bucket({TEN}, dateTime)"
IN_DUCKDB = {
    # A bid is in the five windows that begin every two seconds at or before it.
    "q05": """
        WITH counted AS (
          SELECT auction, time_bucket(INTERVAL '2 seconds', dateTime) - to_seconds(2 * n) AS start,
            count(*) AS num
          FROM bid, range(5) AS hops(n) GROUP BY ALL)
        SELECT auction, num FROM counted AS c
        WHERE num >= (SELECT max(num) FROM counted AS m WHERE m.start = c.start)""",
    "q07": f"""
        SELECT auction, price, bidder, dateTime, extra FROM bid AS b
        WHERE price = (
          SELECT max(price) FROM bid AS m
          WHERE time_bucket({TEN}, m.dateTime) = time_bucket({TEN}, b.dateTime))""",
    "q08": f"""
        SELECT p.* FROM (SELECT DISTINCT id, name, {BUCKET} AS starttime FROM person) AS p
        SEMI JOIN (SELECT seller, {BUCKET} AS starttime FROM auction) AS a
          ON p.id = a.seller AND p.starttime = a.starttime""",
    # A session goes on while no two neighbours are ten seconds apart; it ends ten after the last.
    "q11": f"""
        WITH begun AS (
          SELECT bidder, dateTime, coalesce(
            dateTime >= lag(dateTime) OVER (PARTITION BY bidder ORDER BY dateTime) + {TEN}, true
          ) AS first FROM bid),
        numbered AS (
          SELECT bidder, dateTime,
            sum(first::INT) OVER (PARTITION BY bidder ORDER BY dateTime) AS session
          FROM begun)
        SELECT bidder, count(*), min(dateTime), max(dateTime) + {TEN} FROM numbered
        GROUP BY bidder, session""",
    "q12": f"""
        SELECT bidder, count(*), {BUCKET} AS starttime, {BUCKET} + {TEN} FROM bid GROUP BY ALL""",
}


def test_all_are_exact_at_every_time(spark: Any, client: Client) -> None:
    print(f"seed {SEED}")
    # Gaps of 100 ms spread the few events over many windows, and sessions end.
    stream = Auctions(SEED, gap_ms=100, auctions_open=10, churn=0.3)
    stream.batch(600)
    story = SuiteStory(client, spark, stream, queries("nexmark"), IN_DUCKDB)
    print(story.create_views())
    story.step()
    story.see()
    for _ in range(STEPS):
        story.go_on([partial(stream.batch, 60)] * TIMES)
        story.step()
        story.see()
    story.judge()
    assert story.unmoved() == set(), "an answer that never changes proves little"

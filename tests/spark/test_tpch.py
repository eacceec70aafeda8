"""All 22 TPC-H queries as views under inserts, deletes and updates: what DuckDB and Spark say.

Decimals are compared exactly; what is a double in DuckDB (averages, quotients) within one in the
last digit of ours: see ``headwater.testing.duck`` for that and for how ties are broken.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from headwater.persist.client import Client
from headwater.storage.generators.tpch_domains import NARROW
from headwater.testing.tpch import Refreshes
from tests.queries.tables import queries
from tests.spark.suite_story import SuiteStory

pytestmark = pytest.mark.spark

SEED = 38
TIMES = 3
STEPS = 2


def test_all_22_are_exact_at_every_time(spark: Any, client: Client) -> None:
    print(f"seed {SEED}")
    stream = Refreshes(0.001, SEED, NARROW)
    story = SuiteStory(client, spark, stream, queries("tpch"), {})
    print(story.create_views())
    story.step()
    story.see()
    for _ in range(STEPS):
        story.go_on([partial(stream.batch, 0.02, 0.05)] * TIMES)
        story.step()
        story.see()
    story.judge()
    assert story.unmoved() == set(), "an answer that never changes proves little"

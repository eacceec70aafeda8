"""Random queries that fail on some of their rows, four ways: all fail at just the same times.

A batch is a location with three tables and views over them: kept from the first change on, hydrated
over all changes at once when they are over, and recomputed; and the query asked at some times.
``HEADWATER_SEED=12`` runs batch 12 alone, ``HEADWATER_SEED=12/7`` just query 7 of it.

The judge is the product itself: what it says must not depend on the way it is asked.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headwater.compute.ir.refusal import Refused
from headwater.compute.maintained import MaintainedView
from headwater.compute.select import QueryFailed
from headwater.persist import spark as edge
from headwater.persist.client import Client
from headwater.persist.errors import CollectionHasErrors
from headwater.testing.few_rows import FEW_ROWS
from headwater.testing.random_failures import failing_query
from headwater.testing.random_sql import TABLES
from tests.spark.test_random_sql import UNCOMPILED, Batch, rows_of, schema

pytestmark = pytest.mark.spark

SEED = os.environ.get("HEADWATER_SEED", "")
SOAKED = [pytest.param(batch, marks=pytest.mark.soak) for batch in range(20)]
VIEWS, STEPS, ASKED, RECOMPUTED = 24, 3, 0.3, 0.25
"""How many queries a batch has, and how many steps; how many times are asked, views recomputed."""


def answered(ask: Callable[[], pa.Table]) -> object:
    """Return the rows, or that there are none because of an error."""
    try:
        return rows_of(ask())
    except (CollectionHasErrors, QueryFailed):
        return "an error"


class Story(Batch):
    """Views that may fail, and the same made otherwise."""

    def create_all(self, queries: Mapping[str, str], made: Mapping[str, bool]) -> None:
        """Create views of queries from time 0 on; ``made``: prefixes, and whether by rules."""
        for name, sql in queries.items():
            for prefix, rules in made.items():
                if not rules and self.random.random() > RECOMPUTED:
                    continue
                try:
                    view = self.controller.create_view(
                        f"{prefix}_{name}", sql, rules=rules, start=0
                    )
                except Refused as refusal:
                    if "a filter on the current time" not in str(refusal):
                        raise
                    continue
                if isinstance(view, MaintainedView):
                    self.views[view.name] = view

    def differences(self, queries: Mapping[str, str]) -> list[str]:
        """Return the queries whose answers at some time are not all the same."""
        known = {view.name for view in self.controller.views()}
        found = []
        for name, sql in queries.items():
            for time in range(self.upper):
                answers: dict[str, object] = {}
                for prefix in ("kept", "hydrated", "whole"):
                    if f"{prefix}_{name}" in known:
                        read = self.client.reader(f"{prefix}_{name}").snapshot(time, timeout=0)
                        answers[prefix] = answered(read.to_table)
                if time == self.upper - 1 or self.random.random() < ASKED:
                    answers["asked"] = answered(partial(self.controller.select, sql, time))
                first, *others = answers.values() or [None]
                if any(other != first for other in others):
                    found.append(f"{name} at {time}: {sql}\n{answers}")
                    break
        return found


@pytest.mark.parametrize("batch", [int(SEED.split("/")[0])] if SEED else SOAKED)
def test_all_ways_fail_at_the_same_times(
    spark: Any, client: Client, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"HEADWATER_SEED={SEED or batch}")
    alone = [int(number) for number in SEED.split("/")[1:]]
    if batch % 3 == 2:
        # As tables of many rows are read, for which Spark makes other plans.
        monkeypatch.setattr(edge, "DRIVER_ROWS_MAX", 0)
    session = spark.newSession()
    if batch % 2:
        for key in UNCOMPILED:
            session.conf.set(key, FEW_ROWS[key])
    story = Story(session, client, Random(f"failures {batch}"))
    queries = {
        f"q{n}": failing_query(Random(f"failures {batch}/{n}"), TABLES, 1 + n % 2).sql
        for n in alone or range(VIEWS)
    }
    story.write(10)
    story.create_all(queries, {"kept": True, "whole": False})
    for _ in range(STEPS):
        story.step()
        story.write(story.random.randint(2, 6))
    story.step()
    story.create_all(queries, {"hydrated": True})
    story.step()
    wrong = story.differences(queries)
    assert not wrong, "\n\n".join(wrong)


OUTER = {
    # What the filter says of the NULLs of rows without a partner is known before any row is seen.
    "is_there": "SELECT b.k FROM t b LEFT JOIN v a ON a.k = b.k WHERE a.k IS NOT NULL "
    "AND 10 div (b.k - 3) < b.k",
    "computed": "SELECT b.k, q, a.k AS ak FROM (SELECT k, 10 div (k - 3) AS q FROM t) b "
    "LEFT JOIN v a ON a.k = b.k WHERE a.k IS NOT NULL",
    # A key is asked of all rows of its side, also if a filter makes an inner join of it.
    "key": "SELECT a.k, b.h FROM t a LEFT JOIN u b ON a.k = 10 div b.y WHERE b.k > 1",
}
IN_TURN = {
    # What is NULL is not true, and nothing is asked after it, by whoever asks.
    "filter": "SELECT k FROM t WHERE d > 0 AND 10 div (k - 3) > 0",
    "filters": "SELECT k FROM (SELECT k, d FROM t WHERE d > 0) WHERE 10 div (k - 3) > 0",
    "pairs": "SELECT a.k FROM t a JOIN v b ON a.k = b.k + 2 "
    "WHERE a.d > b.k AND 10 div (a.k - b.k - 2) > 0",
    "between": "SELECT k FROM t WHERE d BETWEEN 0 AND 9 AND 10 div (k - 3) > 0",
    "subquery": "SELECT k FROM t WHERE d > (SELECT max(k) FROM v) AND 10 div (k - 3) > 0",
    "residual": "SELECT a.k, b.k AS l FROM t a LEFT JOIN v b "
    "ON a.k = b.k + 2 AND a.d > b.k AND 10 div (a.k - b.k - 2) > 0",
}


@pytest.mark.parametrize("many", [False, True])
def test_all_ways_fail_where_the_plan_does(
    spark: Any, client: Client, many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if many:
        monkeypatch.setattr(edge, "DRIVER_ROWS_MAX", 0)
    story = Story(spark.newSession(), client, Random(1))
    rows: dict[str, dict[str, Any]] = {
        "t": {"k": 3, "x": 1},
        "u": {"k": 1, "h": "a", "y": 0},
        "v": {"k": 1},
    }
    for table, row in rows.items():
        writer, _ = client.create_or_load(table, schema(table))
        writer.write([({**dict.fromkeys(TABLES[table]), **row}, 0, 1)]).result()
        writer.seal(1).result()
    story.upper = 1
    queries = OUTER | IN_TURN
    for name, sql in queries.items():
        for prefix, rules in (("kept", True), ("whole", False)):
            story.controller.create_view(f"{prefix}_{name}", sql, rules=rules, start=0)
    while story.controller.run_once():
        pass
    assert not story.differences(queries)
    for name in queries:
        found = answered(client.reader(f"kept_{name}").snapshot(0, timeout=0).to_table)
        assert (found == "an error") is (name in OUTER), name

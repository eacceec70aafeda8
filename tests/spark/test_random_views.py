"""Random views under random changes, on Spark: exact at every time, errors at just theirs.

A case is named by its batch and its number. ``HEADWATER_SEED=12`` runs batch 12 alone, and
``HEADWATER_SEED=12/7`` just case 7 of it, over the same history.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from headwater.collection.run_layout import LAYOUTS
from headwater.compute.ir.node import walk
from headwater.persist.client import Client, open_location
from headwater.testing.random_cases import SIZE, case
from headwater.testing.random_views import checked

pytestmark = pytest.mark.spark

SEED = os.environ.get("HEADWATER_SEED", "")
BATCHES = range(6)
SOAKED = range(100, 180)


def chosen() -> list[Any]:
    if SEED:
        return [int(SEED.split("/")[0])]
    return [*BATCHES, *(pytest.param(batch, marks=pytest.mark.soak) for batch in SOAKED)]


@pytest.fixture(scope="module")
def session(spark: Any) -> Any:
    """A session without generated code: plans are run a few times only, over a few rows."""
    made = spark.newSession()
    made.conf.set("spark.sql.codegen.wholeStage", "false")
    made.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    return made


@pytest.mark.parametrize("batch", chosen())
def test_views_are_exact_at_every_time(
    session: Any, client: Client, batch: int, tmp_path: Path
) -> None:
    alone = [int(number) for number in SEED.split("/")[1:]]
    print(f"HEADWATER_SEED={SEED or batch}")
    cases = [case(batch, n) for n in alone or range(SIZE)]

    def reopened() -> Client:
        return open_location(
            tmp_path / "data", layouts=LAYOUTS, take_over=True, settings=client.core.settings
        )

    wrong = checked(session, client, batch, cases, reopened)
    assert not wrong, "\n".join(wrong)


def test_the_cases_are_what_they_are_meant_to_be() -> None:
    cases = [case(batch, number) for batch in BATCHES for number in range(SIZE)]
    kinds = Counter(type(node).__name__ for one in cases for node in walk(one.plan))
    types = {column.type for one in cases for node in walk(one.plan) for column in node.columns}
    assert len(cases) == 150
    assert sum(one.told is not None for one in cases) >= 10, "some fail on some of their rows"
    assert min(kinds.values()) >= 5, kinds
    assert len(kinds) == 13, "every operator that has a rule"
    assert len(types) >= 25, types

"""Random plans under random changes: the dataflow's output is the plan's, at every time."""

from __future__ import annotations

from random import Random

import pytest

from headwater.testing.plans import random_plan
from tests.unit.dataflow.exact_plans import exact

BATCH = 40
CASES = range(0, 40, BATCH)
SOAKED = range(10_000, 16_000, BATCH)


def check(seed: int) -> str:
    """Return what became of the case: ``checked``, or why it was not."""
    random = Random(seed)
    found = exact(random_plan(random, random.choice([1, 2, 3, 3, 4, 4])), random, seed)
    return found if isinstance(found, str) else "checked"


@pytest.mark.parametrize(
    "first", [*CASES, *(pytest.param(first, marks=pytest.mark.soak) for first in SOAKED)]
)
def test_the_output_is_the_plans_at_every_time(first: int) -> None:
    print(f"seeds {first} to {first + BATCH - 1}")
    outcomes = [check(seed) for seed in range(first, first + BATCH)]
    assert outcomes.count("checked") > BATCH * 0.8, outcomes

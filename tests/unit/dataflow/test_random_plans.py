"""Random plans under random changes: the dataflow's output is the plan's, at every time."""

from __future__ import annotations

from random import Random

import pytest

from headwater.testing.plans import random_plan
from tests.seeds import seeds
from tests.unit.dataflow.exact_plans import exact

BATCH = 40
CASES = range(0, 40, BATCH)
SOAKED = range(10_000, 16_000, BATCH)


def check(seed: int) -> str:
    """Return what became of the case: ``checked``, or why it was not."""
    random = Random(seed)
    found = exact(random_plan(random, random.choice([1, 2, 3, 3, 4, 4])), random, seed)
    return found if isinstance(found, str) else "checked"


def check_with_debts(seed: int) -> str:
    """Return the same of a case of more steps, in which rows go before they come."""
    random = Random(f"debts {seed}")
    plan = random_plan(random, random.choice([1, 1, 2, 2, 3, 3, 4]))
    found = exact(plan, random, seed, steps=5, debts=random.choice([1, 2, 4]))
    return found if isinstance(found, str) else "checked"


@pytest.mark.parametrize(
    "first", [*CASES, *(pytest.param(first, marks=pytest.mark.soak) for first in SOAKED)]
)
def test_the_output_is_the_plans_at_every_time(first: int) -> None:
    print(f"seeds {first} to {first + BATCH - 1}")
    outcomes = [check(seed) for seed in range(first, first + BATCH)]
    assert outcomes.count("checked") > BATCH * 0.8, outcomes


@pytest.mark.parametrize("first", seeds(10, 4_000, 10))
def test_a_row_may_go_before_it_comes(first: int) -> None:
    print(f"seeds {first} to {first + 9}")
    outcomes = [check_with_debts(seed) for seed in range(first, first + 10)]
    assert outcomes.count("checked") > 7, outcomes

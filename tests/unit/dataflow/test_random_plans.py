"""Random plans under random changes: the dataflow's output is the plan's, at every time."""

from __future__ import annotations

from random import Random

import pytest

from headwater.compute.dataflow.graph import decoded, encoded
from headwater.compute.dataflow.lower import NoRule, lowered
from headwater.compute.ir.text import outlined
from headwater.testing import oracle
from headwater.testing.dataflow_model import DataflowModel
from headwater.testing.plans import random_plan
from headwater.testing.relations import RELATIONS, random_history, schemas

BATCH = 40
CASES = range(0, 40, BATCH)
SOAKED = range(10_000, 16_000, BATCH)


def check(seed: int) -> str:
    """Return what became of the case: ``checked``, or why it was not."""
    random = Random(seed)
    plan = random_plan(random, random.choice([1, 2, 3, 3, 4, 4]))
    histories = random_history(random)
    dataflow = lowered(plan)
    if isinstance(dataflow, NoRule):
        return f"no rule: {dataflow.kind}: {dataflow.reason}"
    assert decoded(encoded(dataflow)) == dataflow
    model = DataflowModel(dataflow, schemas(), histories.past, start=histories.start, seed=seed)
    for upper, updates in histories.steps:
        lower = model.upper
        model.step(updates, upper)
        for time in range(lower, upper):
            tables = {
                relation: oracle.Table(tuple(fields), histories.rows_at(relation, time))
                for relation, fields in RELATIONS.items()
            }
            try:
                expected = oracle.rows(plan, tables)
            except oracle.TooMany:
                return "too many rows"
            found = model.rows_at(time)
            assert found == expected, (
                f"seed {seed}, time {time}:\n{outlined(plan)}"
                f"missing {expected - found}\ntoo many {found - expected}"
            )
    assert model.errors == 0
    return "checked"


@pytest.mark.parametrize(
    "first", [*CASES, *(pytest.param(first, marks=pytest.mark.soak) for first in SOAKED)]
)
def test_the_output_is_the_plans_at_every_time(first: int) -> None:
    print(f"seeds {first} to {first + BATCH - 1}")
    outcomes = [check(seed) for seed in range(first, first + BATCH)]
    assert outcomes.count("checked") > BATCH * 0.8, outcomes

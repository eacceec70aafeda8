"""A random plan against the oracle: as a dataflow in memory, at every time of a random history."""

from __future__ import annotations

from random import Random

from headwater.compute.dataflow.graph import Dataflow, decoded, encoded
from headwater.compute.dataflow.lower import NoRule, lowered
from headwater.compute.ir.node import Node
from headwater.compute.ir.text import outlined
from headwater.testing import oracle
from headwater.testing.dataflow_model import DataflowModel
from headwater.testing.relations import RELATIONS, random_history, schemas, with_debts


def exact(
    plan: Node, random: Random, seed: int, *, steps: int = 3, debts: int = 0
) -> Dataflow | str:
    """Return the dataflow that was exact at every time, or why the plan could not be checked.

    So many rows go before they come; between these times nothing is said of the answer.
    """
    histories = random_history(random, steps=steps)
    if debts:
        histories = with_debts(random, histories, debts)
    dataflow = lowered(plan)
    if isinstance(dataflow, NoRule):
        return f"no rule: {dataflow.kind}: {dataflow.reason}"
    assert decoded(encoded(dataflow)) == dataflow
    model = DataflowModel(dataflow, schemas(), histories.past, start=histories.start, seed=seed)
    chance = Random(f"ahead {seed}")
    later = [*(updates for _, updates in histories.steps[1:]), {}]
    for (upper, updates), following in zip(histories.steps, later, strict=True):
        lower = model.upper
        model.step(updates, upper, {r: u for r, u in following.items() if chance.random() < 0.7})
        for time in range(lower, upper):
            if histories.owes_at(time):
                continue
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
    return dataflow

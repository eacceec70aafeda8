"""A plan over all times at once says at each time what the plan says there."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from headwater.compute.ir.text import outlined
from headwater.testing import oracle
from headwater.testing.at_times import AT, TIMES, at_times
from headwater.testing.plans import random_plan
from headwater.testing.relations import RELATIONS, random_history


@pytest.mark.parametrize("first", range(0, 80, 20))
def test_all_times_at_once_are_each_by_itself(first: int) -> None:
    checked = 0
    for seed in range(first, first + 20):
        random = Random(seed)
        plan, histories = random_plan(random, 3), random_history(random, steps=1)
        times = range(histories.steps[-1][0])
        by_time = {
            time: {
                relation: oracle.Table(tuple(fields), histories.rows_at(relation, time))
                for relation, fields in RELATIONS.items()
            }
            for time in times
        }
        every = {TIMES: oracle.Table((AT,), Counter((time,) for time in times))}
        for relation, fields in RELATIONS.items():
            rows: oracle.Rows = Counter()
            for time in times:
                for row, n in by_time[time][relation].rows.items():
                    rows[*row, time] += n
            every[relation] = oracle.Table((*fields, AT), rows)
        try:
            found = oracle.rows(at_times(plan), every)
        except oracle.TooMany:
            continue
        checked += 1
        for time in times:
            there = Counter({row[:-1]: n for row, n in found.items() if row[-1] == time})
            expected = oracle.rows(plan, by_time[time])
            assert there == expected, f"seed {seed}, time {time}:\n{outlined(plan)}"
    assert checked > 10

"""Materializations combine a large interval in Spark's tasks, as the driver process would."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from headwater.materialize.combine_job import CannotCombine, Combiner
from headwater.materialize.gather import gather
from headwater.materialize.key_range import KeyRange
from headwater.persist.client import Client
from headwater.persist.interval import Interval
from headwater.persist.spark import run_in_background
from tests.unit.materialize.combine_story import LIMIT, SCHEMA, append, bindings, contents

pytestmark = pytest.mark.spark


def test_what_spark_combines_is_what_the_driver_process_does(spark: Any, client: Client) -> None:
    write, read = client.create_or_load("c", SCHEMA)
    for time in (1, 2):
        append(write, time, [(k * time, f"p{k % 90}", k, 1) for k in range(time, 3_000, 2)])
    append(write, 3, [(1, "p1", 1, -1), (1, "q", 5, 1), (5, "twice", 0, 1)])
    ranges = KeyRange.tiling(2)
    combiner = Combiner(client.core, partial(run_in_background, spark), ranges, rows_min=1)
    kinds = bindings(read.id)
    for bound in (kinds[1], kinds[3]):
        interval = Interval(client.core, read.id, 1, 4)
        for key_range in ranges:
            made = combiner.run(bound, interval, 4, key_range, LIMIT)
            assert made is not None
            said = contents(made)
            assert said == contents(gather(bound, interval, 4, key_range, LIMIT))
            assert len(said) > 40
    with pytest.raises(CannotCombine, match="two rows have the key"):
        combiner.run(kinds[0], Interval(client.core, read.id, 1, 4), 4, ranges[0], LIMIT)

"""What an operator finds in an arrangement that is older than its view, or ahead of it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headwater.collection.probe import PROBE_INDEX
from headwater.collection.run import Run, write_run
from headwater.compute.dataflow.operator import History, update_schema
from headwater.compute.ir.expression import Column
from headwater.persist.consolidate import TIME
from headwater.testing.rig import updates_table

K = Column("k_1", "int", True)
FLOOR, UPPER = 5, 8


@pytest.fixture
def history() -> History:
    """One key, with an update at each time from 3 to 9."""
    updates = updates_table([K], [((1,), time, 1) for time in range(3, 10)])
    runs = [Run.open(write_run(part, ["k_1"])) for part in (updates.slice(0, 4), updates.slice(4))]
    return History(runs, ("k_1",), update_schema([K]), UPPER, FLOOR)


def found(history: History, at: list[int] | None, *, strict: bool) -> list[list[int]]:
    """Return the times of what is found for each of these times."""
    times = [0] if at is None else at
    table = history.probe(
        [pa.array([1] * len(times), pa.int32())],
        at=None if at is None else np.array(at),
        strict=strict,
    )
    rows = list(zip(*(table.column(name).to_pylist() for name in (PROBE_INDEX, TIME)), strict=True))
    return [[time for index, time in rows if index == number] for number in range(len(times))]


def test_the_past_of_an_older_arrangement_is_at_the_floor(history: History) -> None:
    assert found(history, [5, 6], strict=False) == [[5, 5, 5], [5, 5, 5, 6]]
    assert found(history, [5, 6, 7], strict=True) == [[], [5, 5, 5], [5, 5, 5, 6]]
    pieces = history.under(pa.array([1], pa.int32()), [TIME])
    assert [piece.column(TIME).to_pylist() for piece in pieces] == [[5, 5, 5, 6], [7]]


def test_nothing_is_found_from_the_upper_on(history: History) -> None:
    every = [[5, 5, 5, 6, 7]]
    assert found(history, None, strict=False) == found(history, [99], strict=False) == every
    assert found(history, [99], strict=True) == every

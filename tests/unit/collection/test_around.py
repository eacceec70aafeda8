"""What is around numbers in ordered runs, held against all rows there are."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from headwater.collection.around import GREATEST, LEAST, around
from headwater.collection.run import Run, in_order, write_run
from tests.seeds import seeds

SCHEMA = pa.schema(
    [("n", pa.int64()), ("row", pa.int64()), ("__time", pa.int64()), ("__diff", pa.int64())]
)


def run_of(numbers: list[int], first: int, random: Random) -> Run:
    """An ordered run; a row's own number says which one it is. Some are written, some are not."""
    columns = [numbers, range(first, first + len(numbers)), [first % 3] * len(numbers)]
    arrays = [pa.array(column, pa.int64()) for column in (*columns, [1] * len(numbers))]
    updates = in_order(pa.Table.from_arrays(arrays, schema=SCHEMA), ["n"])
    if random.random() < 0.5:
        return Run.of(updates, ["n"])
    return Run.open(write_run(updates, ["n"], block_length=64, index_stride=4))


@pytest.mark.parametrize("seed", seeds(60, 2_000))
def test_all_that_is_known_is_among_what_is_found(seed: int) -> None:
    random = Random(seed)
    held: list[tuple[int, int, int]] = []
    runs = []
    for _ in range(random.randint(0, 4)):
        spread = random.choice([5, 50, 400])
        numbers = [random.randint(-spread, spread) for _ in range(random.choice([0, 3, 60, 300]))]
        held += [(n, len(held) + i, len(held) % 3) for i, n in enumerate(numbers)]
        runs.append(run_of(numbers, len(held) - len(numbers), random))
    places = np.array(sorted({random.randint(-450, 450) for _ in range(random.randint(1, 8))}))
    margins = np.array([random.choice([1, 2, 7, 1_000]) for _ in places])
    until = random.choice([None, 2])
    found = around(runs, places, margins, ["n", "row"], SCHEMA, until)
    rows = list(zip(*(column.to_pylist() for column in found.rows.columns), strict=True))
    assert len(set(rows)) == len(rows), "a row near two places is read once"
    everything = {(n, row) for n, row, time in held if until is None or time < until}
    assert set(rows) <= everything
    for place, low, high, margin in zip(places, found.low, found.high, margins, strict=True):
        assert low < place < high
        assert {row for row in everything if low < row[0] < high} <= set(rows)
        if margin > len(held):
            assert (low, high) == (LEAST, GREATEST)
    most = sum(
        2 * int(margin) + sum(n == place for n, _, _ in held)
        for place, margin in zip(places, margins, strict=True)
    ) * max(1, len(runs))
    assert len(rows) <= most, "no more than the margins of each place in each run"


def test_a_number_at_the_edge_of_a_margin_is_not_known() -> None:
    columns = [[1, 1, 2, 3], range(4), [0] * 4, [1] * 4]
    updates = pa.Table.from_arrays(
        [pa.array(column, pa.int64()) for column in columns], schema=SCHEMA
    )
    run = Run.of(in_order(updates, ["n"]), ["n"])
    found = around([run], np.array([2]), np.array([1]), ["n", "row"], SCHEMA)
    assert found.rows.column("row").to_pylist() == [1, 2, 3]
    assert found.low.tolist() == [1], "one of the two rows with 1 was not read"
    assert found.high.tolist() == [GREATEST]

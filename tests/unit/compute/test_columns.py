"""Which rows of runs are hidden, and who reads what."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headwater.collection.run import Run, write_run
from headwater.compute.columns.frame import Slice, hidden_rows, shares
from headwater.persist.consolidate import DIFF, TIME

NAMES = ["k", "s"]
SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("s", pa.string())])
COUNTED = SCHEMA.append(pa.field(DIFF, pa.int64(), nullable=False))


def _run(rows: list[tuple[int, str]]) -> Run:
    count = np.ones(len(rows), np.int64)
    columns = [pa.array(column) for column in zip(*rows, strict=True)]
    table = pa.table([*columns, count * 5, count], [*NAMES, TIME, DIFF])
    return Run.open(write_run(table, ("k",)))


def _gone(*rows: tuple[int, str, int]) -> pa.Table:
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=COUNTED)


def _left(runs: list[Run], hidden: list[np.ndarray]) -> list[tuple[int, str]]:
    found = []
    for run, rows in zip(runs, hidden, strict=True):
        table = run.table().select(NAMES).take(np.setdiff1d(np.arange(run.rows), rows))
        found += [(row["k"], row["s"]) for row in table.to_pylist()]
    return sorted(found)


def test_each_is_hidden_as_often_as_it_goes() -> None:
    runs = [_run([(1, "a"), (1, "a"), (1, "b"), (2, "c")]), _run([(1, "a"), (2, "c"), (3, "d")])]
    hidden = hidden_rows(runs, _gone((1, "a", -3), (2, "c", -1)), NAMES)
    assert hidden is not None
    assert _left(runs, hidden) == [(1, "b"), (2, "c"), (3, "d")]


def test_what_is_not_there_cannot_be_hidden() -> None:
    runs = [_run([(1, "a"), (2, "c")])]
    for gone in (_gone((1, "a", -2)), _gone((1, "b", -1)), _gone((9, "a", -1), (2, "c", -1))):
        assert hidden_rows(runs, gone, NAMES) is None


def test_nothing_goes() -> None:
    hidden = hidden_rows([_run([(1, "a")])], COUNTED.empty_table(), NAMES)
    assert hidden is not None
    assert [len(rows) for rows in hidden] == [0]


def test_tasks_read_about_the_same() -> None:
    rows, gone = [250_000, 10_000, 140_000], [np.array([7, 199_999, 200_000]), [], []]
    assert shares(rows, [np.array(some, np.int64) for some in gone], 2) == [
        [Slice(0, 0, 200_000, [7, 199_999])],
        [Slice(0, 200_000, 250_000, [200_000]), Slice(1, 0, 10_000, []), Slice(2, 0, 140_000, [])],
    ]
    # No task for less than is worth one.
    assert len(shares([150_000], [np.array([], np.int64)], 8)) == 2

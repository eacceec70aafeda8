"""Going back inside a transaction: what was written is forgotten, what was read is not."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from headwater.adapter.group_commit import TableWrite
from headwater.adapter.savepoints import Savepoints, UnknownSavepoint
from headwater.adapter.transaction import Transaction
from headwater.base.ids import GlobalId

TABLE = GlobalId(1)
WRITE = TableWrite(TABLE, "t", ("k",), pa.table({"k": [1]}), [1])


def test_writes_go_and_reads_stay() -> None:
    before = Transaction().having_written(WRITE)
    points: Savepoints[Transaction] = Savepoints()
    points = points.having("a", before)
    later = replace(before.having_written(WRITE), time=7, reads={TABLE: "t"})
    points, then = points.back_to("a")
    assert later.back_to(then) == replace(before, time=7, reads={TABLE: "t"})
    assert points.back_to("a")[1] == before  # It is still there.


def test_the_later_of_two_with_one_name_counts() -> None:
    points: Savepoints[int] = Savepoints()
    points = points.having("a", 1).having("b", 2).having("a", 3)
    assert points.back_to("a")[1] == 3
    points = points.released("a")
    assert points.back_to("a")[1] == 1
    with pytest.raises(UnknownSavepoint):
        points.back_to("a")[0].back_to("b")
    with pytest.raises(UnknownSavepoint):
        points.released("c")

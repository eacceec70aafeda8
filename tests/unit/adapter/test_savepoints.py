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
    points = Savepoints().having("a", before)
    later = replace(before.having_written(WRITE), time=7, reads={TABLE: "t"})
    points, back = points.back_to("a", later)
    assert back == replace(before, time=7, reads={TABLE: "t"})
    assert points.back_to("a", back)[1] == back  # It is still there.


def test_the_later_of_two_with_one_name_counts() -> None:
    empty, written = Transaction(), Transaction().having_written(WRITE)
    points = Savepoints().having("a", empty).having("b", empty).having("a", written)
    assert points.back_to("a", written)[1] == written
    points = points.released("a")
    assert points.back_to("a", written)[1] == empty
    with pytest.raises(UnknownSavepoint):
        points.back_to("a", written)[0].back_to("b", written)
    with pytest.raises(UnknownSavepoint):
        points.released("c")

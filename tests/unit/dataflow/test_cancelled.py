"""What a join takes back and gives again in one step is not looked up by who reads it.

Every row of ``a`` is compared with one number, which changes in every step: so all of them go and
come. Those for which it makes no difference are the same rows, and cancel before the next operator.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from headwater.compute.dataflow.graph import Semi
from headwater.compute.dataflow.task import Done
from headwater.compute.ir import node as ir
from headwater.compute.ir.node import Aggregate, Filter, Join
from headwater.compute.maintained import GroupStep
from tests.unit.dataflow.lowered_plans import A, B, C, call, inner, where
from tests.unit.dataflow.ranged_views import RangedView, opened

ROWS = 200
TABLES = {
    "a": pa.table({"x": list(range(ROWS)), "y": list(range(ROWS))}),
    "b": pa.table({"x": [0], "z": [100]}),
    "c": pa.table({"z": list(range(0, ROWS, 2)), "w": [1] * (ROWS // 2)}),
}


@dataclass
class _Counting(RangedView):
    read: dict[str, int] = field(default_factory=dict)

    def _commit(self, group: GroupStep, done: Done) -> None:
        self.read = done.rows_read
        super()._commit(group, done)


def test_only_what_differs_is_looked_up(tmp_path: Path) -> None:
    limit = Aggregate(ir.keep(B, ["z_2"]), (), (call("s_1", "sum", "z_2"),))
    below = Filter(Join(A, limit, "inner"), where("(y_1 < s_1)", "y_1", "s_1"))
    plan = inner(ir.keep(below, ["x_1", "y_1"]), C, ("x_1", "z_3"), kind="anti")
    with opened(tmp_path / "data") as client:
        writers = {}
        for name, table in TABLES.items():
            writers[name], _ = client.create_or_load(name, table.schema)
            told = [(row, 0, 1) for row in table.to_pylist()]
            writers[name].compare_and_append(told, 0, 1).result()
        view = _Counting(client, plan, {name: name for name in TABLES}, 10_000)
        view.step()
        (anti,) = (n for n, o in enumerate(view.view.flow.operators) if isinstance(o, Semi))
        for time in range(1, 4):
            for name, writer in writers.items():
                more = [({"x": time, "z": 1}, time, 1)] if name == "b" else []
                writer.compare_and_append(more, time, time + 1).result()
            view.step()
            assert view.rows_at(time) == {(n, n): 1 for n in range(1, 100 + time, 2)}
            assert 0 < view.read[f"0/{anti}"] <= 4, "a row more than before"

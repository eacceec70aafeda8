"""What a step reads is what its operators declare: flat where a bound does not speak of the data.

The same change is made to tables of N and of 10 N rows, under one view per kind of operator. Rows
are such that a key has a few rows whatever N is, and a group (``g``) a tenth of them. Counted are
the rows of deltas and the rows that probes find (``Stepper.rows_read``).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headwater.collection.run_layout import LAYOUTS
from headwater.compute.controller import ViewController
from headwater.compute.dataflow import bounds
from headwater.compute.maintained import MaintainedView
from headwater.persist.client import Client, open_location
from headwater.persist.core import Settings
from headwater.persist.maintenance import Maintenance
from headwater.testing.random_views import step_together
from headwater.testing.relation import as_updates

pytestmark = pytest.mark.spark

N = 2_000
CHANGED = 20

FLAT = {
    "filtered": "SELECT id, x * 2 AS y FROM facts WHERE x % 3 > 0",
    "union": "SELECT k FROM facts UNION ALL SELECT id FROM keys",
    "joined": "SELECT f.x, c.y FROM facts f JOIN keys c ON f.k = c.id",
    "three_way": "SELECT a.x, b.x AS z, c.y FROM facts a JOIN keys c ON a.k = c.id "
    "JOIN facts b ON b.k = c.id",
    "sums": "SELECT g, sum(x) AS s, avg(x) AS a, count(*) AS n FROM facts GROUP BY g",
    "whole": "SELECT sum(x) AS s, var_pop(x) AS v FROM facts",
    "grouping_sets": "SELECT g, k, sum(x) AS s FROM facts GROUP BY GROUPING SETS ((g), (k), ())",
    "once": "SELECT DISTINCT g, k FROM facts",
    "exists": "SELECT id, y FROM keys c WHERE EXISTS (SELECT 1 FROM facts f WHERE f.k = c.id)",
    "not_exists": "SELECT id, y FROM keys c "
    "WHERE NOT EXISTS (SELECT 1 FROM facts f WHERE f.k = c.id)",
    "outer": "SELECT f.x, c.y FROM facts f LEFT JOIN keys c ON f.k = c.id",
    "extremes": "SELECT g, min(x) AS low, max(x) AS high FROM facts GROUP BY g",
    "distinct_of_few": "SELECT k, count(DISTINCT g) AS n FROM facts GROUP BY k",
    "highest": "SELECT id, x FROM facts ORDER BY x DESC LIMIT 3",
    "first_two": "SELECT g, id, x FROM (SELECT g, id, x, row_number() OVER "
    "(PARTITION BY g ORDER BY x) AS n FROM facts) WHERE n <= 2",
    "intersected": "SELECT k FROM facts INTERSECT ALL SELECT id FROM keys",
    "except": "SELECT k FROM facts EXCEPT ALL SELECT id FROM keys",
}
LINEAR = {
    "distinct_of_many": "SELECT g, count(DISTINCT k) AS n FROM facts GROUP BY g",
    "collected": "SELECT g, max_by(id, x) AS best FROM facts GROUP BY g",
    "non_equi": "SELECT a.y, b.y AS z FROM few a JOIN few b ON a.y < b.y",
}
"""Views that read whole groups, or all of the other side, and say so."""


def facts(rows: int, first: int = 0) -> pa.Table:
    ids = np.arange(first, first + rows)
    columns = {"id": ids, "k": ids // 4, "g": ids % 10, "x": ids * 7919 % 1_000_003}
    return pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})


def keys(rows: int) -> pa.Table:
    ids = np.arange(rows)
    return pa.table({"id": pa.array(ids), "y": pa.array(ids * 31 % 1_009)})


def read_in_a_step(session: Any, folder: Path, rows: int) -> tuple[Counter[str], dict[str, str]]:
    """Return how many rows each view reads for the change, and what it says of itself."""
    with open_location(folder, layouts=LAYOUTS, settings=Settings(maintenance=False)) as client:
        writes = {}
        tables = {"facts": facts(rows), "keys": keys(rows // 4), "few": keys(rows // 100)}
        for name, table in tables.items():
            writes[name], _ = client.create_or_load(name, table.schema)
            writes[name].compare_and_append(as_updates(table, 0, 1), 0, 1).result()
        controller = ViewController(client, session)
        views: list[MaintainedView] = []
        for name, sql in {**FLAT, **LINEAR}.items():
            view = controller.create_view(name, sql)
            assert isinstance(view, MaintainedView), controller.explain(name)
            views.append(view)
        assert not step_together(client, controller, views)
        _merge_everything(client)
        # Rows that all tables have go, others of the same keys and groups come.
        for name, table in tables.items():
            gone = table.slice(0, CHANGED if name != "few" else 1)
            ids = table.schema.get_field_index("id")
            come = gone.set_column(ids, "id", pa.array(np.arange(len(gone)) + 10_000_000))
            change = pa.concat_tables([as_updates(gone, 1, -1), as_updates(come, 2, 1)])
            writes[name].compare_and_append(change, 1, 3).result()
        assert not step_together(client, controller, views)
        read: Counter[str] = Counter()
        for operator, count in controller._stepper.rows_read.items():
            read[operator.split("/")[0]] += count
        return read, {view.name: bounds.written(view.flow) for view in views}


def _merge_everything(client: Client) -> None:
    maintenance = Maintenance(client.core)
    for collection in list(client.core.state.collections):
        while maintenance.merge_one(collection):
            pass


def test_what_a_step_reads_is_what_its_operators_declare(spark: Any, tmp_path: Path) -> None:
    small, said = read_in_a_step(spark, tmp_path / "small", N)
    large, _ = read_in_a_step(spark, tmp_path / "large", 10 * N)
    print({name: (small[name], large[name]) for name in small})
    assert set(small) == set(large) == {*FLAT, *LINEAR}
    for name in FLAT:
        assert large[name] <= 1.25 * small[name] + 8, f"{name} is not flat:\n{said[name]}"
        assert small[name] <= 100 * CHANGED, f"{name} reads more than a change needs:\n{said[name]}"
    for name in LINEAR:
        assert large[name] <= 11 * small[name], f"{name} is worse than linear:\n{said[name]}"
        # Else the count would not have seen what is not flat.
        assert large[name] > 3 * small[name], f"{name} is better than it says:\n{said[name]}"

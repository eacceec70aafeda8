"""What a step reads is what its operators declare: flat where a bound does not speak of the data.

The same change is made to tables of N and of 10 N rows, under one view per kind of operator. Rows
are such that a key has a few rows whatever N is, and a group (``g``) a tenth of them. Counted are
the rows of deltas and the rows that probes find (``Stepper.rows_read``).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest

from headwater.collection.run_layout import LAYOUTS
from headwater.compute.controller import ViewController
from headwater.compute.dataflow import bounds
from headwater.compute.dataflow.graph import Dataflow, Operator, Reduce, TopK
from headwater.compute.dataflow.ops import temporal
from headwater.compute.maintained import MaintainedView
from headwater.persist.client import open_location
from headwater.persist.core import Settings
from headwater.testing.merging import merge_everything
from headwater.testing.random_views import step_together
from headwater.testing.relation import as_updates

pytestmark = pytest.mark.spark

N = 2_000
CHANGED = 20

Flows = dict[str, Dataflow]

TIMESTAMP = "timestamp_seconds(x)"
OF_GROUPS = {
    "distinct": "SELECT {by}, count(DISTINCT {other}) AS n, sum(DISTINCT x) AS s "
    "FROM facts GROUP BY {by}",
    "best": "SELECT {by}, max_by(id, x) AS best, mode(x) AS often FROM facts GROUP BY {by}",
    "collected": "SELECT {by}, collect_list(x) AS xs, first(x) AS a, last(x) AS z "
    "FROM facts GROUP BY {by}",
    "percentile": "SELECT {by}, percentile(x, 0.5) AS p, median(x) AS m FROM facts GROUP BY {by}",
    "window": "SELECT {by}, id, rank() OVER (PARTITION BY {by} ORDER BY x) AS r, "
    "sum(x) OVER (PARTITION BY {by} ORDER BY x, id ROWS 2 PRECEDING) AS s FROM facts",
    "session": "SELECT {by}, count(*) AS n FROM facts "
    f"GROUP BY {{by}}, session_window({TIMESTAMP}, '5 minutes')",
}
"""Views that need the rows of each group that changes."""

FLAT = {
    # Without state, and what is there from the start.
    "filtered": "SELECT id, x * 2 AS y FROM facts WHERE x % 3 > 0",
    "exploded": "SELECT id, v FROM facts LATERAL VIEW explode(array(x, k)) AS v",
    "union": "SELECT k FROM facts UNION ALL SELECT id FROM keys UNION ALL SELECT 1",
    # Inner joins.
    "joined": "SELECT f.x, c.y FROM facts f JOIN keys c ON f.k = c.id",
    "three_way": "SELECT a.x, b.x AS z, c.y FROM facts a JOIN keys c ON a.k = c.id "
    "JOIN facts b ON b.k = c.id",
    # Sums, over groups of any size.
    "sums": "SELECT g, sum(x) AS s, avg(x) AS a, count(*) AS n FROM facts GROUP BY g",
    "whole": "SELECT sum(x) AS s, var_pop(x) AS v FROM facts",
    "grouping_sets": "SELECT g, k, sum(x) AS s FROM facts GROUP BY GROUPING SETS ((g), (k), ())",
    "pivoted": "SELECT * FROM (SELECT k % 7 AS k, g, x FROM facts) "
    "PIVOT (sum(x) FOR g IN (1 AS one, 2 AS two))",
    "tumbling": f"SELECT window({TIMESTAMP}, '10 minutes').start AS w, count(*) AS n "
    "FROM facts GROUP BY 1",
    "hopping": f"SELECT window({TIMESTAMP}, '10 minutes', '5 minutes').start AS w, "
    "count(*) AS n FROM facts GROUP BY 1",
    # Each once, and as often as both sides say.
    "once": "SELECT DISTINCT g, k FROM facts",
    "intersected": "SELECT k FROM facts INTERSECT ALL SELECT id FROM keys",
    "intersected_once": "SELECT k FROM facts INTERSECT SELECT id FROM keys",
    "except": "SELECT k FROM facts EXCEPT ALL SELECT id FROM keys",
    "except_once": "SELECT k FROM facts EXCEPT SELECT id FROM keys",
    # What has a partner, or none.
    "exists": "SELECT id, y FROM keys c WHERE EXISTS (SELECT 1 FROM facts f WHERE f.k = c.id)",
    "exists_if": "SELECT id, y FROM keys c "
    "WHERE EXISTS (SELECT 1 FROM facts f WHERE f.k = c.id AND f.x > c.y)",
    "exists_or": "SELECT id, y FROM keys c "
    "WHERE y > 500 OR EXISTS (SELECT 1 FROM facts f WHERE f.k = c.id)",
    "not_exists": "SELECT id, y FROM keys c "
    "WHERE NOT EXISTS (SELECT 1 FROM facts f WHERE f.k = c.id)",
    "in": "SELECT id, x FROM facts WHERE k IN (SELECT id FROM keys WHERE y > 10)",
    "not_in": "SELECT id, x FROM facts WHERE k NOT IN (SELECT id FROM keys)",
    "scalar": "SELECT c.y, (SELECT max(x) FROM facts f WHERE f.k = c.id) AS x FROM keys c",
    "outer": "SELECT f.x, c.y FROM facts f LEFT JOIN keys c ON f.k = c.id",
    "right_outer": "SELECT f.x, c.y FROM facts f RIGHT JOIN keys c ON f.k = c.id AND f.x > c.y",
    "full_outer": "SELECT f.x, c.y FROM facts f FULL JOIN keys c ON f.k = c.id",
    # Best values and first rows, of groups of any size.
    "extremes": "SELECT g, min(x) AS low, max(x) AS high FROM facts GROUP BY g",
    "highest": "SELECT id, x FROM facts ORDER BY x DESC LIMIT 3",
    "third": "SELECT id, x FROM facts ORDER BY x DESC LIMIT 1 OFFSET 2",
    "first_two": "SELECT g, id, x FROM (SELECT g, id, x, row_number() OVER "
    "(PARTITION BY g ORDER BY x) AS n FROM facts) WHERE n <= 2",
    "numbered": "SELECT g, id, n FROM (SELECT g, id, row_number() OVER "
    "(PARTITION BY g ORDER BY x) AS n FROM facts) WHERE n <= 2",
    # What needs the rows of a group, over groups of a few rows.
    **{f"{name}_of_few": sql.format(by="k", other="g") for name, sql in OF_GROUPS.items()},
    # Neighbours, in partitions of any size, and in none.
    "lag": "SELECT g, id, lag(x) OVER (PARTITION BY g ORDER BY x) AS before FROM facts",
    "moving": "SELECT id, sum(x) OVER (ORDER BY x, id ROWS BETWEEN 3 PRECEDING AND 2 FOLLOWING) "
    "AS s FROM facts",
    "near": "SELECT id, count(*) OVER (PARTITION BY g ORDER BY id RANGE BETWEEN 30 PRECEDING AND "
    "CURRENT ROW) AS n FROM facts",
    # What comes and goes by itself.
    "temporal": f"SELECT id, x FROM facts WHERE {TIMESTAMP} <= now() + INTERVAL 1 HOUR "
    f"AND {TIMESTAMP} > now() - INTERVAL 1 HOUR",
}
LINEAR = {
    **{f"{name}_of_many": sql.format(by="g", other="k") for name, sql in OF_GROUPS.items()},
    "ranked": "SELECT y, rank() OVER (ORDER BY y) AS r FROM few",
    "all_but_five": "SELECT g, id, x FROM facts ORDER BY x OFFSET 5",
    "above_average": "SELECT id, y FROM keys WHERE y > (SELECT avg(y) FROM few)",
    "non_equi": "SELECT a.y, b.y AS z FROM few a JOIN few b ON a.y < b.y",
    "non_equi_outer": "SELECT a.y, b.y AS z FROM few a LEFT JOIN few b ON a.y < b.y",
    "non_equi_anti": "SELECT a.y FROM few a WHERE NOT EXISTS (SELECT 1 FROM few b WHERE a.y < b.y)",
}
"""Views that read whole groups, or all of the other side, and say so."""
OF_DATA = ("the rows of each changed", "the matching rows", "the rows of the left")
"""What the bounds of operators that do are like."""
SCHEDULE = temporal.LEVELS * 2 ** (temporal.BITS + 1)
"""How many rows of a schedule's tree are read at most, whatever is scheduled."""


def facts(rows: int, first: int = 0) -> pa.Table:
    ids = np.arange(first, first + rows)
    columns = {"id": ids, "k": ids // 4, "g": ids % 10, "x": ids * 7919 % 1_000_003}
    return pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})


def keys(rows: int) -> pa.Table:
    ids = np.arange(rows)
    return pa.table({"id": pa.array(ids), "y": pa.array(ids * 31 % 1_009)})


def read_in_a_step(session: Any, folder: Path, rows: int) -> tuple[Counter[str], Flows]:
    """Return how many rows each view reads for the change, and what keeps it."""
    with open_location(folder, layouts=LAYOUTS, settings=Settings(maintenance=False)) as client:
        writes = {}
        tables = {
            "facts": facts(rows),
            "some_facts": facts(rows // 4),
            "keys": keys(rows // 4),
            "few": keys(rows // 100),
        }
        for name, table in tables.items():
            writes[name], _ = client.create_or_load(name, table.schema)
            writes[name].compare_and_append(as_updates(table, 0, 1), 0, 1).result()
        controller = ViewController(client, session)
        views: list[MaintainedView] = []
        for name, sql in {**FLAT, **LINEAR}.items():
            relations = {table: table for table in tables}
            if name in LINEAR:  # They read it all: less of it shows as much.
                relations["facts"] = "some_facts"
            view = controller.create_view(name, sql, relations=relations)
            assert isinstance(view, MaintainedView), controller.explain(name)
            views.append(view)
        assert not step_together(client, controller, views)
        merge_everything(client)
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
        return read, {view.name: view.flow for view in views}


@pytest.fixture(scope="module")
def counted(
    spark: Any, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Counter[str], Counter[str], Flows]:
    folder = tmp_path_factory.mktemp("bounds")
    small, flows = read_in_a_step(spark, folder / "small", N)
    large, _ = read_in_a_step(spark, folder / "large", 10 * N)
    return small, large, flows


def test_what_a_step_reads_is_what_its_operators_declare(
    counted: tuple[Counter[str], Counter[str], Flows],
) -> None:
    small, large, flows = counted
    said = {name: bounds.written(flow) for name, flow in flows.items()}
    print({name: (small[name], large[name]) for name in small})
    assert set(small) == set(large) == {*FLAT, *LINEAR}
    for name in FLAT:
        assert large[name] <= 1.25 * small[name] + 8, f"{name} is not flat:\n{said[name]}"
        most = 100 * CHANGED + (SCHEDULE if name == "temporal" else 0)
        assert small[name] <= most, f"{name} reads more than a change needs:\n{said[name]}"
    for name in LINEAR:
        assert large[name] <= 11 * small[name], f"{name} is worse than linear:\n{said[name]}"
        # Else the count would not have seen what is not flat.
        assert large[name] > 3 * small[name], f"{name} is better than it says:\n{said[name]}"
        assert any(words in said[name] for words in OF_DATA), f"{name} says less:\n{said[name]}"


def test_every_operator_that_there_is_is_among_them(
    counted: tuple[Counter[str], Counter[str], Flows],
) -> None:
    """Each kind of operator, with and without what it may keep, is in a view whose rows count."""
    _, _, flows = counted
    found = {_kind(operator) for flow in flows.values() for operator in flow.operators}
    kinds = {member.__name__ for member in get_args(Operator)} - {"Exchanged", "Arranged"}
    assert {kind.split()[0] for kind in found} == kinds
    assert found >= {
        "Semi semi",
        "Semi anti",
        "Bag intersect",
        "Bag except",
        "Reduce state",
        "Reduce",
        "TopK state",
        "TopK",
    }


def _kind(operator: Operator) -> str:
    kept = "state" if getattr(operator, "state", None) is not None else ""
    kept = kept if isinstance(operator, Reduce | TopK) else ""
    return " ".join(filter(None, (type(operator).__name__, getattr(operator, "kind", ""), kept)))

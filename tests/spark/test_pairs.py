"""Functions that look at one column of pairs do not see the other: in every way as Spark has them.

Infinities and NaN come and go in either column. What a maintained view, a late one, a recomputed
one and an ad-hoc query say of each time is what Spark says itself.
"""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headwater.compute.catalyst import lowering
from headwater.compute.controller import ViewController
from headwater.compute.maintained import MaintainedView
from headwater.compute.recompute import RecomputedView
from headwater.persist.client import Client
from headwater.persist.consolidate import DIFF
from headwater.testing.few_rows import for_few_rows
from headwater.testing.random_views import step_together

pytestmark = pytest.mark.spark

INF, NAN = math.inf, math.nan
FIELDS = [
    ("g", pa.string()),
    ("y", pa.float64()),
    ("x", pa.float64()),
    ("d", pa.decimal128(10, 2)),
    ("i", pa.int32()),
    ("k", pa.bool_()),
]
SCHEMA, HISTORY = pa.schema(FIELDS), pa.schema([("at", pa.int64()), *FIELDS])

Row = tuple[Any, ...]
Rows = dict[int, Counter[Row]]
"""What there is at each time."""

STAYING: list[Row] = [
    ("a", 2.0, 2.0, Decimal("1.25"), 1, True),
    ("a", 3.0, 5.0, Decimal("-0.01"), None, False),
    ("a", None, 7.0, Decimal("9.00"), 7, True),
    ("a", 9.0, None, None, 9, True),
    ("b", 0.5, -4.0, None, -3, None),
]
UP: Row = ("a", INF, 1.5, Decimal("3.50"), 4, True)
DOWN: Row = ("a", 4.0, -INF, Decimal("2.00"), 2, True)
OTHER: Row = ("a", -INF, INF, Decimal("0.50"), -2, False)
UNKNOWN: Row = ("b", 1.0, NAN, Decimal("8.00"), 3, True)
ALONE: Row = ("c", INF, None, Decimal("8.00"), 5, True)

CHANGES: list[list[tuple[Row, int]]] = [
    [*((row, 1) for row in STAYING), (STAYING[0], 1)],
    [(UP, 1), (UNKNOWN, 1)],
    [(UP, -1), (DOWN, 1), (ALONE, 1)],
    [(OTHER, 1), (UNKNOWN, -1)],
    [(DOWN, -1), (UP, 2)],
    [(UP, -2), (OTHER, -1), (ALONE, -1)],
]
"""At each time; the first step takes three of them."""
FIRST = 3

CALLS = (
    "regr_avgx(y, x) AS ax, regr_avgy(y, x) AS ay, regr_sxx(y, x) AS sx, regr_syy(y, x) AS sy, "
    "regr_avgx(y, x) FILTER (WHERE k) AS fx, regr_sxx(y, x) FILTER (WHERE k) AS fs, "
    "regr_avgx(y, i) AS i, regr_avgx(x, d) AS d, regr_avgy(d, y) AS e, regr_count(y, x) AS n"
)
ONCE = "{0}(DISTINCT y, x) AS ax, {1}(DISTINCT y, x) AS ay, {2}(DISTINCT y, x) AS sx"
NAMES = ("regr_avgx", "regr_avgy", "regr_sxx")
RUNNING = "OVER (PARTITION BY {at}g ORDER BY d, i ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)"
QUERIES = {
    "grouped": f"SELECT {{at}}g, {CALLS} FROM {{t}} GROUP BY {{at}}g",
    "sets": "SELECT {at}g, k, regr_avgx(y, x) AS a, regr_syy(y, x) AS s FROM {t} "
    "GROUP BY {at}GROUPING SETS ((g), (k), ())",
    "having": "SELECT {at}g, regr_avgy(y, x) AS a FROM {t} GROUP BY {at}g "
    "HAVING regr_avgx(y, x) < 4",
    "windows": "SELECT {at}g, d, regr_avgx(y, x) OVER (PARTITION BY {at}g) AS a, "
    f"regr_avgy(y, x) {RUNNING} AS b, regr_sxx(y, x) {RUNNING} AS s FROM {{t}}",
    "once": f"SELECT {{at}}g, {ONCE.format(*NAMES)} FROM {{t}} GROUP BY {{at}}g",
}
"""At one time, and at all of them at once."""
OF_PAIRS = (
    "SELECT at, g, regr_avgx(y, x) AS ax, regr_avgy(y, x) AS ay, regr_sxx(y, x) AS sx "
    "FROM (SELECT DISTINCT at, g, y, x FROM h) GROUP BY at, g"
)
"""What ``once`` means: Spark would take each value of the column once, not each pair."""


def _at_all_times(text: str) -> str:
    return text.format(at="at, ", t="h")


def _told(table: pa.Table) -> Rows:
    """Return the rows of each time, floats to twelve digits: ours are rounded otherwise."""

    def plain(value: Any) -> Any:
        return f"{value:.12g}" if isinstance(value, float) else value

    found: Rows = {}
    for row in table.to_pylist():
        diff = row.pop(DIFF, 1)
        at, *values = map(plain, row.values())
        found.setdefault(at, Counter())[tuple(values)] += diff
    return found


def _history() -> pa.Table:
    held: Counter[Row] = Counter()
    rows: list[Row] = []
    for at, changes in enumerate(CHANGES):
        for row, diff in changes:
            held[row] += diff
        rows += [(at, *row) for row in held.elements()]
    columns = [pa.array(v, f.type) for v, f in zip(zip(*rows, strict=True), HISTORY, strict=True)]
    return pa.table(columns, schema=HISTORY)


def _in_spark(spark: Any) -> dict[str, Rows]:
    """Return Spark's own answers at every time."""
    session = for_few_rows(spark.newSession())
    session.createDataFrame(_history()).createOrReplaceTempView("h")
    texts = {name: _at_all_times(text) for name, text in QUERIES.items()} | {"once": OF_PAIRS}
    return {name: _told(session.sql(text).toArrow()) for name, text in texts.items()}


def _viewed(client: Client, name: str, since: int = 0) -> Rows:
    reader = client.reader(name)
    found: Rows = {}
    for at in range(since, len(CHANGES)):
        rows = reader.snapshot(at).to_table()
        found |= _told(rows.add_column(0, "at", pa.array([at] * rows.num_rows, pa.int64())))
    return found


def test_what_is_of_one_column_is_sparks_in_every_way(
    spark: Any, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = _in_spark(spark)
    assert all(sorted(of) == list(range(len(CHANGES))) for of in expected.values())
    controller = ViewController(client, for_few_rows(spark.newSession()))
    write, _ = client.create_or_load("t", SCHEMA)
    kept: list[MaintainedView] = []

    def create(name: str, of: str) -> None:
        view = controller.create_view(name, QUERIES[of].format(at="", t="t"))
        assert isinstance(view, RecomputedView if of == "once" else MaintainedView)
        kept.extend([view] if isinstance(view, MaintainedView) else [])

    def go(lower: int, upper: int) -> None:
        updates = [
            (dict(zip(SCHEMA.names, row, strict=True)), at, diff)
            for at in range(lower, upper)
            for row, diff in CHANGES[at]
        ]
        write.compare_and_append(updates, lower, upper).result()
        assert not step_together(client, controller, kept)

    for name in QUERIES:
        create(name, name)
    controller.create_view("again", QUERIES["grouped"].format(at="", t="t"), rules=False)
    with monkeypatch.context() as before:
        before.setattr(lowering, "of_one_column", lambda call: call)
        for name in ("grouped", "windows"):
            create(f"{name}_before", name)
    go(0, FIRST)
    create("late", "grouped")
    go(FIRST, len(CHANGES))

    for name in QUERIES:
        assert _viewed(client, name) == expected[name], name
    assert _viewed(client, "again") == expected["grouped"]
    hydrated = {at: rows for at, rows in expected["grouped"].items() if at >= FIRST - 1}
    assert _viewed(client, "late", FIRST - 1) == hydrated
    for name, text in QUERIES.items():
        answer = controller.select(_at_all_times(text), 0, local={"h": _history()})
        assert _told(answer) == expected[name], name

    # Views that were stored as pairs say what they always said, and take it back.
    for name in ("grouped", "windows"):
        found = _viewed(client, f"{name}_before")
        same = [at for at, rows in expected[name].items() if found[at] == rows]
        assert same == [0, len(CHANGES) - 1], "wrong while there are infinities, and only then"

"""What is said of pairs with infinities and NaN is what Spark says, in every way that we have.

They come and go in either column. Functions that look at one column do not see the other; where a
group is one row, or a column is constant, those of both say so before they are NaN. What a
maintained view, a late one, a recomputed one and an ad-hoc query say of each time is what Spark
says itself.
"""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headwater.compute.catalyst import degenerate, lowering
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
    ("one", 5.0, None, Decimal("1.00"), 7, False),
    ("x", 1.0, 2.5, Decimal("1.00"), 7, True),
    ("x", 4.0, 2.5, Decimal("2.00"), 7, False),
    ("y", 2.5, 1.0, Decimal("1.00"), 7, True),
    ("y", 2.5, 4.0, Decimal("2.00"), 7, False),
    ("z", 3.0, 3.0, Decimal("1.00"), 7, False),
]
UP: Row = ("a", INF, 1.5, Decimal("3.50"), 4, True)
DOWN: Row = ("a", 4.0, -INF, Decimal("2.00"), 2, True)
OTHER: Row = ("a", -INF, INF, Decimal("0.50"), -2, False)
UNKNOWN: Row = ("b", 1.0, NAN, Decimal("8.00"), 3, True)
ALONE: Row = ("c", INF, None, Decimal("8.00"), 5, True)
ONE: Row = ("one", INF, 1.5, Decimal("2.00"), 7, True)
SECOND: Row = ("one", 2.0, NAN, Decimal("3.00"), 7, True)
OF_X: Row = ("x", -INF, 2.5, Decimal("3.00"), 7, True)
OF_Y: Row = ("y", 2.5, NAN, Decimal("3.00"), 7, True)
LEVEL: Row = ("z", NAN, 3.0, Decimal("3.00"), 7, True)
STEEP: Row = ("z", 3.0, INF, Decimal("2.00"), 7, True)
"""From ``ONE`` on: of groups in which one column is constant, or which are one pair."""

CHANGES: list[list[tuple[Row, int]]] = [
    [*((row, 1) for row in STAYING), (STAYING[0], 1)],
    [(UP, 1), (UNKNOWN, 1), (ONE, 1), (OF_X, 1), (STEEP, 1)],
    [(UP, -1), (DOWN, 1), (ALONE, 1), (ONE, 1), (OF_Y, 1), (STEEP, -1), (LEVEL, 2)],
    [(OTHER, 1), (UNKNOWN, -1), (ONE, -1), (OF_X, -1), (STAYING[-1], -1)],
    [(DOWN, -1), (UP, 2), (SECOND, 1), (OF_X, 2), (OF_Y, -1), (STAYING[-1], 1)],
    [(UP, -2), (OTHER, -1), (ALONE, -1), (ONE, -1), (SECOND, -1), (OF_X, -2), (LEVEL, -2)],
]
"""At each time; the first step takes three of them."""
FIRST = 3

CALLS = (
    "regr_avgx(y, x) AS ax, regr_avgy(y, x) AS ay, regr_sxx(y, x) AS sx, regr_syy(y, x) AS sy, "
    "regr_avgx(y, x) FILTER (WHERE k) AS fx, regr_sxx(y, x) FILTER (WHERE k) AS fs, "
    "regr_avgx(y, i) AS i, regr_avgx(x, d) AS d, regr_avgy(d, y) AS e, regr_count(y, x) AS n"
)
OF_BOTH = (
    "var_samp(y) AS v, stddev(x) AS s, covar_samp(y, x) AS c, corr(y, x) AS r, "
    "regr_slope(y, x) AS m, regr_intercept(y, x) AS b, regr_r2(y, x) AS q, count(y) AS n"
)
"""Where a group is degenerate; elsewhere Spark's answer may depend on the order of rows."""
WITH_WHOLE = (
    "std(i) AS w, corr(i, x) AS e, regr_slope(y, i) AS f, regr_intercept(i, x) AS h, "
    "regr_r2(i, x) AS j, regr_r2(y, i) AS l"
)
FILTERED = (
    "variance(y) FILTER (WHERE k) AS vk, covar_samp(y, x) FILTER (WHERE k) AS ck, "
    "corr(y, x) FILTER (WHERE k) AS rk, regr_r2(y, x) FILTER (WHERE k) AS qk"
)
ONCE = ", ".join(
    f"{function}(DISTINCT y, x) AS {function}"
    for function in (
        *("regr_avgx", "regr_avgy", "regr_sxx", "regr_syy", "regr_count"),
        *("covar_samp", "corr", "regr_slope", "regr_r2"),
    )
)
RUNNING = "OVER (PARTITION BY {at}g ORDER BY d, i ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)"
QUERIES = {
    "grouped": f"SELECT {{at}}g, {CALLS} FROM {{t}} GROUP BY {{at}}g",
    "sets": "SELECT {at}g, k, regr_avgx(y, x) AS a, regr_syy(y, x) AS s FROM {t} "
    "GROUP BY {at}GROUPING SETS ((g), (k), ())",
    "having": "SELECT {at}g, regr_avgy(y, x) AS a FROM {t} GROUP BY {at}g "
    "HAVING regr_avgx(y, x) < 4",
    "windows": "SELECT {at}g, d, regr_avgx(y, x) OVER (PARTITION BY {at}g) AS a, "
    f"regr_avgy(y, x) {RUNNING} AS b, regr_sxx(y, x) {RUNNING} AS s FROM {{t}}",
    "degenerate": f"SELECT {{at}}g, {OF_BOTH}, {WITH_WHOLE}, {FILTERED} FROM {{t}} "
    "WHERE g > 'm' GROUP BY {at}g",
    "degenerate sets": "SELECT {at}g, k, stddev_samp(y) AS s, corr(y, x) AS r, "
    "regr_r2(y, x) AS q FROM {t} GROUP BY {at}GROUPING SETS ((g), (k), ()) "
    "HAVING NOT coalesce(isnan(corr(y, x)), false)",
    "degenerate windows": f"SELECT {{at}}g, d, var_samp(y) {RUNNING} AS v, "
    f"covar_samp(y, x) {RUNNING} AS c, corr(y, x) {RUNNING} AS r, regr_slope(y, x) {RUNNING} AS m, "
    "regr_r2(y, x) OVER (PARTITION BY {at}g) AS q FROM {t} WHERE g > 'm'",
    "once": f"SELECT {{at}}g, {ONCE}, stddev(DISTINCT y) AS s FROM {{t}} "
    "WHERE g > 'm' GROUP BY {at}g",
    "once kept": "SELECT {at}g, regr_avgx(DISTINCT y, x) AS a, regr_avgy(DISTINCT d, y) AS b "
    "FROM {t} GROUP BY {at}g",
}
"""At one time, and at all of them at once."""
LATE = ("grouped", "degenerate")
OLD = ("grouped", "windows", "degenerate", "degenerate windows")


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
    answers = {name: session.sql(_at_all_times(text)) for name, text in QUERIES.items()}
    return {name: _told(answer.toArrow()) for name, answer in answers.items()}


def _viewed(client: Client, name: str, since: int = 0) -> Rows:
    reader = client.reader(name)
    found: Rows = {}
    for at in range(since, len(CHANGES)):
        rows = reader.snapshot(at).to_table()
        found |= _told(rows.add_column(0, "at", pa.array([at] * rows.num_rows, pa.int64())))
    return found


def test_what_is_said_of_pairs_is_sparks_in_every_way(
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
    for name in LATE:
        controller.create_view(f"{name} again", QUERIES[name].format(at="", t="t"), rules=False)
    with monkeypatch.context() as before:
        before.setattr(lowering, "of_one_column", lambda call: call)
        before.setattr(degenerate, "decided", lambda names, calls, columns: (tuple(calls), {}))
        for name in OLD:
            create(f"{name}_before", name)
    go(0, FIRST)
    for name in LATE:
        create(f"{name} late", name)
    go(FIRST, len(CHANGES))

    for name in QUERIES:
        assert _viewed(client, name) == expected[name], name
    for name in LATE:
        assert _viewed(client, f"{name} again") == expected[name], name
        hydrated = {at: rows for at, rows in expected[name].items() if at >= FIRST - 1}
        assert _viewed(client, f"{name} late", FIRST - 1) == hydrated, name
    for name, text in QUERIES.items():
        answer = controller.select(_at_all_times(text), 0, local={"h": _history()})
        assert _told(answer) == expected[name], name

    # Views that were stored as pairs say what they always said, and take it back.
    for name in OLD:
        found = _viewed(client, f"{name}_before")
        same = [at for at, rows in expected[name].items() if found[at] == rows]
        assert same == [0, len(CHANGES) - 1], "wrong while there are infinities, and only then"

"""Bad input to views: each refused or shown with its thing, its cause, its place and a remedy."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headwater.algebra.frontier import Frontier
from headwater.base.errors import InvalidUsage
from headwater.compute.controller import ViewController
from headwater.compute.ir.refusal import NotUnderstood, Position, Refused
from headwater.compute.maintained import MaintainedView
from headwater.persist.client import Client, WriteHandle
from headwater.persist.commands import AllowCompaction, Destroy
from headwater.persist.errors import CollectionHasErrors, DestroyedCollection
from headwater.persist.maintenance import Maintenance
from headwater.persist.state import violations

pytestmark = pytest.mark.spark

T = pa.schema(
    [
        pa.field("k", pa.int64()),
        pa.field("s", pa.string()),
        pa.field("x", pa.int64()),
        pa.field("m", pa.map_(pa.string(), pa.int64())),
    ]
)
U = pa.schema([("k", pa.int64()), ("y", pa.int64())])
MAX = 2**63 - 1

REFUSED = {
    "SELECT k,\n  rand() AS r FROM t": ("rand()", "not deterministic", "into a column", (2, 3)),
    "SELECT k FROM t WHERE uuid() > s": ("uuid()", "not deterministic", "into a column", (1, 23)),
    "SELECT now() AS n FROM t": ("now()", "although no row changes", "compare it with", (1, 8)),
    "SELECT current_user() AS u FROM t": ("current_user()", "depends on who asks", "", (1, 8)),
    "SELECT t.k, u.k FROM t JOIN u ON t.k = u.k": ("two columns 'k'", "just one", "alias", None),
    "SELECT parse_json(s) AS v FROM t": (
        "column 'v' of type variant",
        "cannot be stored",
        "use string",
        None,
    ),
    "SELECT make_ym_interval(1, 2) AS i FROM t": (
        "column 'i'",
        "cannot be stored",
        "use int",
        None,
    ),
    "SELECT count(*) AS n FROM t\nGROUP BY s COLLATE UTF8_LCASE": (
        "collate",
        "the collation UTF8_LCASE",
        "use UTF8_BINARY",
        (2, 10),
    ),
    "SELECT a.k FROM t a JOIN t b ON a.s COLLATE UNICODE_CI = b.s": (
        "collate",
        "the collation UNICODE_CI",
        "use UTF8_BINARY",
        (1, 33),
    ),
}

NOT_UNDERSTOOD = {
    "SELECT k,\n nope FROM t": ("UNRESOLVED_COLUMN", "`nope`.*Did you mean", (2, 2)),
    "SELECT k FROM t, u": ("AMBIGUOUS_REFERENCE", "could be: .`t`.`k`, `u`.`k`", (1, 8)),
    "SELECT k FROM nobody": ("TABLE_OR_VIEW_NOT_FOUND", "`nobody`; create it before", (1, 15)),
    "SELECT k FROM bad": ("TABLE_OR_VIEW_NOT_FOUND", "no relation `bad`", (1, 15)),
    "SELECT nofn(k) FROM t": ("UNRESOLVED_ROUTINE", "`nofn`", (1, 8)),
    "SELECT count(*) AS n FROM t GROUP BY parse_json(s)": ("GROUP_EXPRESSION", "VARIANT", (1, 38)),
    "SELECT k FROM t;\nSELECT 1": ("PARSE_SYNTAX_ERROR", "extra input", (2, 1)),
    "": ("PARSE_EMPTY", "empty statement", (1, 1)),
    "INSERT INTO t VALUES (1)": ("", "is a command, not a query; write a SELECT", (1, 1)),
    "CREATE TABLE z USING parquet AS SELECT 1 AS a": ("", "a command, not a query", (1, 1)),
    "WITH c AS (SELECT 1) INSERT INTO t SELECT * FROM c": ("", "a command, not a query", (1, 1)),
    "SET spark.sql.ansi.enabled = false": ("", "a command, not a query", (1, 1)),
}


def _tables(client: Client) -> WriteHandle:
    client.create_or_load("u", U)
    return client.create_or_load("t", T)[0]


def _row(k: int, x: int, s: str = "") -> dict[str, Any]:
    return {"k": k, "s": s, "x": x, "m": None}


def test_what_is_refused_changes_nothing_and_says_why(spark: Any, client: Client) -> None:
    _tables(client)
    controller = ViewController(client, spark)
    before = client.core.state
    for sql, (construct, reason, hint, position) in REFUSED.items():
        with pytest.raises(Refused) as refused:
            controller.create_view("bad", sql)
        error = refused.value
        assert construct in error.construct, sql
        assert reason in error.reason, sql
        assert hint in error.hint, sql
        assert error.position == (position and Position(*position)), sql
        assert construct in str(error)
    for sql, (condition, message, position) in NOT_UNDERSTOOD.items():
        with pytest.raises(NotUnderstood, match=message) as unclear:
            controller.create_view("bad", sql)
        assert unclear.value.condition.startswith(condition), sql
        assert unclear.value.position == Position(*position), sql
        assert f"(line {position[0]}, column {position[1]})" in str(unclear.value)
        assert unclear.value.sqlstate, sql
    with pytest.raises(InvalidUsage, match="'__time' is reserved; choose another"):
        controller.create_view("bad", "SELECT k AS __time FROM t")
    assert not spark.catalog.tableExists("z"), "a command is not even tried"
    found = client.core.state
    assert (found.collections, found.items) == (before.collections, before.items)


def test_errors_of_rows_are_data_and_neighbours_go_on(spark: Any, client: Client) -> None:
    write = _tables(client)
    controller = ViewController(client, spark)
    ratio, pairs = "div(10, least(a.x, b.x))", "t a JOIN t b USING (k)"
    views = {
        "ratio": ("SELECT k, div(10, x) AS y FROM t", "ivision by zero"),
        "number": ("SELECT k, CAST(s AS INT) AS y FROM t", "The value 'bad' .* cannot be cast"),
        "next": ("SELECT k, x + 1 AS y FROM t", "ARITHMETIC_OVERFLOW|overflow"),
        "total": ("SELECT sum(x) AS y FROM t", "does not fit into bigint"),
        "ranked": ("SELECT k, div(10, x) AS y, rank() OVER (ORDER BY k) AS r FROM t", "by zero"),
        "count": ("SELECT count(*) AS y FROM t", ""),
        # What is always NULL is computed, too: it may fail.
        "asserted": ("SELECT k, assert_true(x > 0) AS y FROM t", "'.x > 0.' is not true"),
        "raised": ("SELECT k, CASE WHEN x = 0 THEN raise_error('no x') END AS y FROM t", "no x"),
        "counted": (
            "SELECT count(IF(x = 0, raise_error('no x'), NULL)) AS y FROM t",
            "no x",
        ),
        # A row that FILTER leaves out does not fail.
        "filtered": ("SELECT sum(div(10, x)) FILTER (WHERE x <> 0) AS y FROM t", ""),
        "reduced": ("SELECT max(div(10, x)) FILTER (WHERE x <> 0) AS y FROM t", ""),
        "versioned": (
            "SELECT k, bit_or(div(10, x)) FILTER (WHERE x > 0) AS y FROM t GROUP BY k",
            "",
        ),
        # No row of these has a partner; one that fails is an error nevertheless, as in the plan.
        "joined": ("SELECT t.k, y FROM t JOIN u ON t.k = u.k WHERE div(10, x) > 0", "by zero"),
        "computed": (
            "SELECT a.z, y FROM (SELECT k, CAST(s AS INT) AS z FROM t) a JOIN u USING (k)",
            "bad",
        ),
        "semi": ("SELECT k FROM t WHERE div(10, x) > 0 AND k IN (SELECT k FROM u)", "by zero"),
        "mapped": (
            "SELECT m, y FROM (SELECT k, map('a', div(10, x)) AS m FROM t) JOIN u USING (k)",
            "by zero",
        ),
        "checked": (
            "SELECT y, c FROM (SELECT k, assert_true(x > 0) AS c FROM t) JOIN u USING (k)",
            "is not true",
        ),
        # Nor has a pair of rows.
        "pair": (
            f"SELECT z, y FROM (SELECT k, {ratio} AS z FROM {pairs}) JOIN u USING (k)",
            "zero",
        ),
        "paired": (
            f"SELECT y FROM (SELECT k FROM {pairs} WHERE {ratio} > 0) JOIN u USING (k)",
            "zero",
        ),
    }
    for name, (sql, _) in views.items():
        controller.create_view(name, sql)
    rows = [
        (_row(0, 1, "1"), 0, 1),
        *((_row(1, 0, "1"), time, diff) for time, diff in ((1, 1), (2, -1))),
        *((_row(1, 2, "bad"), time, diff) for time, diff in ((3, 1), (4, -1))),
        *((_row(1, MAX, "1"), time, diff) for time, diff in ((5, 1), (6, -1))),
    ]
    bad = {"ratio": {1}, "number": {3}, "next": {5}, "total": {5}, "ranked": {1}, "count": set()}
    bad |= {"joined": {1}, "computed": {3}, "semi": {1}, "pair": {1}, "paired": {1}}
    bad |= {"filtered": set(), "reduced": set(), "versioned": set()}
    bad |= {"mapped": {1}, "checked": {1}, "asserted": {1}, "raised": {1}, "counted": {1}}
    alone = ("total", "count", "counted", "filtered", "reduced")
    lonely = ("joined", "computed", "semi", "mapped", "checked", "pair", "paired")
    other, _ = client.create_or_load("u", U)
    for lower, upper in ((0, 2), (2, 7)):
        updates = [row for row in rows if lower <= row[1] < upper]
        write.compare_and_append(updates, lower, upper).result()
        other.compare_and_append([], lower, upper).result()
        assert set(controller.run_once()) == set(views), controller.failures()
    for name, (_, message) in views.items():
        for time in range(7):
            snapshot = client.reader(name).snapshot(time)
            if time in bad[name]:
                with pytest.raises(CollectionHasErrors, match=message):
                    snapshot.to_table()
            else:
                found = snapshot.to_table().filter(pa.compute.field("__diff") > 0)
                wanted = 1 if name in alone or time % 2 == 0 else 2
                assert found.num_rows == (0 if name in lonely else wanted), f"{name} at {time}"


def test_a_view_over_a_closed_input_finishes(spark: Any, client: Client) -> None:
    write = _tables(client)
    controller = ViewController(client, spark)
    controller.create_view(
        "before", "SELECT a.k, sum(b.x) AS x FROM t a JOIN t b USING (k) GROUP BY 1"
    )
    write.compare_and_append([(_row(1, 2), 0, 1)], 0, 1).result()
    controller.run_once()
    write.compare_and_append([(_row(1, 3), 5, 1)], 1, None).result()
    assert controller.run_once() == ("before",), controller.failures()
    controller.create_view(
        "after", "SELECT a.k, sum(b.x) AS x FROM t a JOIN t b USING (k) GROUP BY 1"
    )
    controller.create_view("ranked", "SELECT x, rank() OVER (ORDER BY x) AS r FROM before")
    controller.create_view("constant", "SELECT 1 AS one")
    while controller.run_once():
        assert not controller.failures()
    for name in ("before", "after", "ranked", "constant"):
        assert controller.view_upper(name) == Frontier.closed()
    for name in ("before", "after"):
        found = client.reader(name).snapshot(9).to_table().to_pylist()
        assert found == [{"k": 1, "x": 10, "__diff": 1}], name
    assert client.reader("before").snapshot(4).to_table().column("x").to_pylist() == [2]
    assert controller.drop_view("before")
    assert controller.drop_view("after")
    assert not list(violations(client.core.state))


def test_a_view_over_a_compacted_input_starts_where_it_is_readable(
    spark: Any, client: Client
) -> None:
    write = _tables(client)
    for time in range(6):
        write.compare_and_append([(_row(1, time), time, 1)], time, time + 1).result()
    forget = AllowCompaction(((client.core.state.names["t"], Frontier.of(4)),))
    client.core.submit(forget).result()
    maintenance = Maintenance(client.core)
    while maintenance.merge_one(client.core.state.names["t"]):
        pass
    controller = ViewController(client, spark)
    other, _ = client.create_or_load("u", U)
    other.compare_and_append([({"k": 1, "y": 1}, 0, 1)], 0, 2).result()
    view = controller.create_view("view", "SELECT sum(x * y) AS x FROM t JOIN u USING (k)")
    assert view.start == 4, "the other input is at 2, where this one is forgotten"
    assert controller.run_once() == ()
    other.compare_and_append([], 2, 6).result()
    assert controller.run_once() == ("view",), controller.failures()
    read = client.reader("view")
    found = [read.snapshot(time).to_table().column("x").to_pylist() for time in (4, 5)]
    assert found == [[10], [15]]
    # One that nobody can read any more is no input at all.
    client.core.submit(AllowCompaction(((client.core.state.names["u"], Frontier.closed()),)))
    controller.drop_view("view")
    with pytest.raises(InvalidUsage, match="'u' is no longer readable"):
        controller.create_view("late", "SELECT k FROM u")


def test_a_view_cannot_be_defined_by_itself(spark: Any, client: Client) -> None:
    write = _tables(client)
    controller = ViewController(client, spark)
    with pytest.raises(NotUnderstood, match="no relation `me`"):
        controller.create_view("me", "SELECT k FROM me")
    controller.create_view("one", "SELECT k FROM t")
    controller.create_view("two", "SELECT k FROM one")
    assert controller.drop_view("one")
    with pytest.raises(DestroyedCollection, match="names are never reused"):
        controller.create_view("one", "SELECT k FROM two")
    write.compare_and_append([(_row(1, 1), 0, 1)], 0, 1).result()
    two = next(view for view in controller.views() if view.name == "two")
    assert "its input 'one' was destroyed; drop the view" in controller.failures()[two.id]


def test_a_destroyed_input_stops_its_views_and_no_other(spark: Any, client: Client) -> None:
    write = _tables(client)
    other, _ = client.create_or_load("u", U)
    controller = ViewController(client, spark)
    joined = controller.create_view("joined", "SELECT t.k, y FROM t JOIN u ON t.k = u.k")
    controller.create_view("over", "SELECT count(*) AS n FROM joined")
    fine = controller.create_view("fine", "SELECT a.k, b.x FROM t a JOIN t b ON a.k = b.k")
    assert isinstance(fine, MaintainedView)
    write.compare_and_append([(_row(1, 1), 0, 1)], 0, 1).result()
    other.compare_and_append([({"k": 1, "y": 7}, 0, 1)], 0, 1).result()
    assert controller.run_once() == ("joined", "over", "fine"), controller.failures()
    client.core.submit(Destroy("u")).result()
    write.compare_and_append([(_row(1, 2), 1, 1)], 1, 2).result()
    assert controller.run_once() == ("fine",)
    assert set(controller.failures()) == {joined.id}, "the view on it only waits"
    message = controller.failures()[joined.id]
    assert message == "view 'joined' cannot advance: its input 'u' was destroyed; drop the view"
    assert client.reader("joined").snapshot(0).to_table().column("y").to_pylist() == [7]
    for name in ("joined", "over"):
        assert controller.drop_view(name)
    assert not controller.failures()
    write.compare_and_append([(_row(1, 3), 2, 1)], 2, 3).result()
    assert controller.run_once() == ("fine",), controller.failures()
    assert not list(violations(client.core.state))


def test_what_a_filter_leaves_out_fails_for_nobody(spark: Any, client: Client) -> None:
    write = _tables(client)
    write.compare_and_append([(_row(1, 0), 0, 1), (_row(2, 5), 0, 1)], 0, 1).result()
    client.create_or_load("u", U)[0].seal(1).result()
    controller = ViewController(client, spark)
    sql = (
        "SELECT sum(div(10, x)) FILTER (WHERE x <> 0) AS y, count(DISTINCT k) AS k, "
        "count(DISTINCT div(10, x), k) FILTER (WHERE x <> 0) AS n FROM t"
    )
    controller.create_view("kept", sql)
    controller.create_view("recomputed", sql, rules=False)
    controller.run_once()
    asked = controller.select(sql, 0).to_pylist()
    assert asked == [{"y": 2, "k": 2, "n": 1}]
    for name in ("kept", "recomputed"):
        found = client.reader(name).snapshot(0).to_table().drop_columns(["__diff"])
        assert found.to_pylist() == asked, name

"""``maintain_view`` of the formalism: capabilities in, several outputs, capabilities out."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.algebra.frontier import Frontier
from headwater.base.errors import InvalidUsage
from headwater.base.ids import GlobalId
from headwater.collection.capability import ReadCapability, WriteCapability, from_text
from headwater.collection.collections import Bound, Collections, Description, Gone
from headwater.collection.run_layout import LAYOUTS
from headwater.compute.catalyst.compiler import Workspace
from headwater.compute.controller import ViewController
from headwater.compute.maintain import InvalidView, Output, View
from headwater.compute.maintained import MaintainedView, arrangements
from headwater.compute.recompute import RecomputedView
from headwater.persist.batch import Times
from headwater.persist.client import Client, open_location
from headwater.persist.commands import Destroy
from headwater.persist.errors import InvalidCapability, NotTheOnlyWriter
from headwater.persist.read import Updates
from headwater.persist.state import violations

pytestmark = pytest.mark.spark

ORDERS = pa.schema([pa.field("g", pa.string()), pa.field("x", pa.int64())])
NAMES = pa.schema([pa.field("g", pa.string()), pa.field("name", pa.string())])
TOTALS = pa.schema([pa.field("g", pa.string()), pa.field("x", pa.int64())])

SUMS = Output("sums", "SELECT g, sum(x) AS x FROM o GROUP BY g")
NAMED = Output("named", "SELECT n.name, o.x FROM o JOIN n ON o.g = n.g")
PAIRS = Output(
    "pairs", "SELECT count(*) AS n FROM (SELECT map(g, x) AS m FROM o GROUP BY map(g, x))"
)
"""Of a kind that no rule keeps."""

Row = dict[str, Any]
Holding = tuple[ReadCapability, WriteCapability]


def at(time: int) -> Times:
    return Frontier.of(time)


def made(collections: Collections, schema: pa.Schema, start: int = 0) -> Holding:
    return collections.create(collections.new_id(), Description(schema, start=start))


def rows(collections: Collections, gid: GlobalId, time: int) -> Counter[tuple[Any, ...]]:
    """Return what a collection holds at a time, as a subscription with acquired rights says it."""
    read = collections.acquire_read(gid, at=time)
    subscription = collections.subscribe_at(read)
    event = subscription.fetch(timeout=60)
    subscription.close()
    collections.drop(read)
    found: Counter[tuple[Any, ...]] = Counter()
    if isinstance(event, Updates):
        for row in event.ok.to_pylist():
            *values, _, diff = row.values()
            found[tuple(values)] += diff
    return found


def test_several_outputs_from_a_common_frontier(spark: Any, client: Client) -> None:
    collections, controller = Collections(client), ViewController(client, spark)
    o, o_write = made(collections, ORDERS)
    n, n_write = made(collections, NAMES)
    o_write = collections.update_and_downgrade(
        o_write, [({"g": "a", "x": time}, time, 1) for time in range(4)], 4
    )
    n_write = collections.update_and_downgrade(n_write, [({"g": "a", "name": "A"}, 1, 1)], 6)
    mine = collections.clone_read(o)
    o, n = collections.downgrade_read(o, 1), collections.downgrade_read(n, 3)
    view = View(("o", "n"), (SUMS, NAMED, PAIRS))
    before = client.core.state
    would = controller.validation.maintain_view([o, n], view)
    assert client.core.state is before, "a validated command has no effect"
    outputs = controller.maintain_view([o, n], view)
    assert [read.frontier for read in would] == [read.frontier for read in outputs]
    with pytest.raises(InvalidUsage):
        collections.renew_read(would[0])
    assert [read.frontier for read in outputs] == [at(3)] * 3, "the join of the frontiers"
    kinds = [type(view) for view in controller.views()]
    assert kinds == [MaintainedView, MaintainedView, RecomputedView]
    for taken in (o, n):
        with pytest.raises(InvalidCapability):
            collections.renew_read(taken)
    sums, named, pairs = (read.id for read in outputs)
    assert collections.status(sums) == Bound(at(3), at(3))
    assert controller.run_once() == ("sums", "named", "pairs"), controller.failures()
    # Never ahead of an input; and each input is held at u - 1, as is what it is arranged in.
    assert controller.view_upper("sums") == controller.view_upper("named") == at(4)
    assert collections.status(n.id) == Bound(at(3), at(6))
    assert collections.status(o.id) == Bound(at(0), at(4)), "the clone is the caller's own"
    collections.drop(mine)
    assert collections.status(o.id) == Bound(at(3), at(4))
    assert rows(collections, sums, 3) == {("a", 6): 1}
    assert rows(collections, named, 3) == {("A", x): 1 for x in range(4)}

    o_write = collections.update_and_downgrade(o_write, [({"g": "a", "x": 3}, 4, -1)], 5)
    assert controller.run_once() == ("sums", "named", "pairs"), controller.failures()
    assert collections.status(o.id) == Bound(at(4), at(5))
    assert rows(collections, sums, 4) == {("a", 3): 1}
    assert [rows(collections, pairs, time) for time in (3, 4)] == [{(4,): 1}, {(3,): 1}]
    assert not list(violations(client.core.state))


def test_an_output_answers_like_any_collection(spark: Any, client: Client) -> None:
    collections, controller = Collections(client), ViewController(client, spark)
    o, write = made(collections, ORDERS)
    (read,) = controller.maintain_view([o], View(("o",), (SUMS,)))
    write = collections.update_and_downgrade(write, [({"g": "a", "x": 1}, 0, 1)], 1)
    controller.run_once()
    other, nothing = collections.acquire_capabilities(read.id)
    assert (other.frontier, nothing.frontier) == (at(0), Frontier.closed())
    collections.drop(nothing)
    subscription = collections.subscribe_at(other)
    for time in range(1, 3):
        write = collections.update_and_downgrade(write, [({"g": "a", "x": 1}, time, 1)], time + 1)
        assert controller.run_once() == ("sums",), controller.failures()
    changes: Counter[tuple[Any, ...]] = Counter()
    while subscription.upper < at(3):
        event = subscription.fetch(timeout=60)
        if isinstance(event, Updates):
            for row in event.ok.to_pylist():
                changes[row["x"], row["__time"]] += row["__diff"]
    subscription.close()
    assert changes == {(1, 0): 1, (1, 1): -1, (2, 1): 1, (2, 2): -1, (3, 2): 1}
    read, other = collections.downgrade_read(read, 2), collections.downgrade_read(other, 1)
    assert collections.status(read.id) == Bound(at(1), at(3))
    # What nobody can ever read again is not computed.
    collections.drop(read)
    collections.drop(other)
    write = collections.downgrade_write(write, 9)
    assert controller.run_once() == ()
    assert controller.views() == ()
    assert collections.status(read.id) == Gone()
    assert not client.core.state.collections[o.id].readers


def test_durable_outputs_go_where_the_caller_says(spark: Any, tmp_path: Path) -> None:
    with open_location(tmp_path, layouts=LAYOUTS) as client:
        collections, controller = Collections(client), ViewController(client, spark)
        o, write = made(collections, ORDERS, start=5)
        kept, into = made(collections, TOTALS, start=5)
        view = View(("o",), (SUMS, PAIRS))
        controller.validation.maintain_view([o], view, [into])
        sums, pairs = controller.maintain_view([o], view, [into])
        assert sums.id == into.id
        with pytest.raises(InvalidCapability):
            collections.update_and_downgrade(into, [({"g": "a", "x": 1}, 5, 1)], 6)
        write = collections.update_and_downgrade(write, [({"g": "a", "x": 1}, 5, 1)], 6)
        controller.run_once()
        text = write.to_text()
    with open_location(tmp_path, layouts=LAYOUTS, take_over=True) as client:
        collections, controller = Collections(client), ViewController(client, spark)
        again = from_text(text)
        assert isinstance(again, WriteCapability)
        collections.update_and_downgrade(again, [({"g": "a", "x": 4}, 6, 1)], 7)
        assert controller.run_once() == ("sums", "pairs"), controller.failures()
        assert rows(collections, sums.id, 6) == {("a", 5): 1}
        controller.drop_view("sums")
        controller.drop_view("pairs")
        assert collections.status(pairs.id) == Gone()
        assert collections.status(sums.id) == Bound(at(5), Frontier.closed()), "given, so it stays"
        assert rows(collections, kept.id, 6) == {("a", 5): 1}
        assert not arrangements(client.core.state)
        assert not list(violations(client.core.state))


def test_what_does_not_fit_is_refused_and_changes_nothing(spark: Any, client: Client) -> None:
    collections, controller = Collections(client), ViewController(client, spark)
    o, write = made(collections, ORDERS)
    view = View(("o",), (SUMS,))
    _, early = made(collections, TOTALS)
    _, off = made(collections, pa.schema([("g", pa.string()), ("x", pa.int32())]), start=3)
    _, strict = made(
        collections,
        pa.schema([pa.field("g", pa.string(), nullable=False), ("x", pa.int64())]),
        start=3,
    )
    _, twice = made(collections, TOTALS, start=3)
    collections.clone_write(twice)
    o = collections.downgrade_read(o, 3)
    other = collections.clone_read(o)
    dropped = collections.clone_read(o)
    collections.drop(dropped)
    before = client.core.state
    for reads, wanted, writes, error, why in (
        ([], view, [], InvalidView, "1 inputs and 0 read capabilities"),
        ([o], view, [None, None], InvalidView, "1 outputs and 2 write"),
        ([o.at(at(2))], view, [], InvalidCapability, "was moved from .2. to .3."),
        ([dropped], view, [], InvalidCapability, "was dropped"),
        ([o], view, [early], InvalidView, "starts at 3.*written from .0. on; create it"),
        ([o], view, [off], InvalidUsage, r"has \(g string, x int\) and the view shows"),
        ([o], view, [strict], InvalidUsage, "g string NOT NULL"),
        ([o], view, [twice], NotTheOnlyWriter, "another write capability"),
        ([o, o], View(("o", "p"), (SUMS,)), [], InvalidView, "two read capabilities"),
        ([o, other], View(("o", "p"), (SUMS,)), [write.at(at(3))], InvalidUsage, "reads, itself"),
        ([o], View(("p",), (SUMS,)), [], InvalidUsage, "TABLE_OR_VIEW_NOT_FOUND"),
    ):
        for command in (controller.validation, controller):
            with pytest.raises(error, match=why):
                command.maintain_view(reads, wanted, writes)
    assert client.core.state.collections == before.collections, "ids may be gone, nothing else"
    assert client.core.state.items == before.items
    with pytest.raises(InvalidView, match="two inputs"):
        View(("o", "O"), (SUMS,))
    controller.maintain_view([o], view)
    with pytest.raises(InvalidView, match="a view 'sums' already"):
        controller.maintain_view([other], view)


def test_a_cycle_through_another_view_is_refused(spark: Any, client: Client) -> None:
    collections, controller = Collections(client), ViewController(client, spark)
    a, a_write = made(collections, TOTALS)
    b, b_write = made(collections, TOTALS)
    controller.maintain_view([a], View(("o",), (SUMS,)), [b_write])
    with pytest.raises(InvalidView, match="through other views"):
        controller.maintain_view([b], View(("o",), (Output("back", SUMS.query),)), [a_write])


def test_plans_and_frames_are_queries_too(spark: Any, client: Client) -> None:
    collections, controller = Collections(client), ViewController(client, spark)
    o, write = made(collections, ORDERS)
    plan = Workspace(spark, {"o": ORDERS}).compile_sql(str(SUMS.query))
    view = View(
        ("o",),
        (
            Output("planned", plan),
            Output("framed", lambda table: table("o").where("x > 1").groupBy("g").count()),
        ),
    )
    planned, framed = controller.maintain_view([o], view)
    collections.update_and_downgrade(write, [({"g": "a", "x": x}, 0, 1) for x in range(4)], 1)
    assert controller.run_once() == ("planned", "framed"), controller.failures()
    assert rows(collections, planned.id, 0) == {("a", 6): 1}
    assert rows(collections, framed.id, 0) == {("a", 2): 1}
    assert controller.select("SELECT * FROM framed", 0).to_pylist() == [{"g": "a", "count": 2}]


def test_views_of_dataframe_code(spark: Any, client: Client) -> None:
    write, _ = client.create_or_load("orders", ORDERS)
    client.create_or_load("names", NAMES)[0].compare_and_append(
        [({"g": "a", "name": "A"}, 0, 1)], 0, 9
    ).result()
    controller = ViewController(client, spark)
    table = controller.workspace("orders", "names").table
    joined = table("orders").join(table("names"), "g").select("name", "x")
    controller.create_view("joined", joined)
    controller.create_view("best", lambda t: t("Orders").groupBy("g").agg({"x": "max"}))
    controller.create_view("over", lambda t: t("joined").groupBy("name").count())
    assert {type(view) for view in controller.views()} == {MaintainedView}
    for time in range(3):
        write.compare_and_append([({"g": "a", "x": time}, time, 1)], time, time + 1).result()
        assert controller.run_once() == ("joined", "best", "over"), controller.failures()
    for name, found in (
        ("joined", [{"name": "A", "x": x} for x in range(3)]),
        ("best", [{"g": "a", "max(x)": 2}]),
        ("over", [{"name": "A", "count": 3}]),
    ):
        assert controller.select(f"SELECT * FROM {name} ORDER BY 2", 2).to_pylist() == found
    # Code that means other columns, or nothing that can be kept, is refused as SQL is.
    other = Workspace(spark, {"orders": pa.schema([("g", pa.string()), ("y", pa.int64())])})
    before = client.core.state
    for query, why in (
        (other.table("orders"), "reads orders.y bigint, but 'orders' has"),
        (lambda t: t("nothing"), "no relation 'nothing'"),
        (lambda _: 3, "returned a int"),
        (3, "not of a int"),
        (lambda t: t("orders").sample(0.5), "not deterministic"),
    ):
        with pytest.raises(InvalidUsage, match=why):
            controller.create_view("bad", query)
    assert client.core.state is before
    with pytest.raises(InvalidUsage, match="no relation 'nothing'"):
        controller.workspace("nothing")


def test_a_view_is_described(spark: Any, client: Client) -> None:
    write, _ = client.create_or_load("orders", ORDERS)
    names, _ = client.create_or_load("names", NAMES)
    controller = ViewController(client, spark)
    sql = "SELECT n.name, sum(o.x) AS x FROM orders o JOIN names n ON o.g = n.g GROUP BY n.name"
    view = controller.create_view("totals", sql)
    described = controller.describe_view("totals")
    assert (described.strategy, described.hydrating, described.failure) == (
        "incremental",
        True,
        None,
    )
    assert described.state_bytes == 0
    assert "hydrating from 0" in controller.explain("totals")
    write.compare_and_append([({"g": "a", "x": n}, 0, 1) for n in range(99)], 0, 3).result()
    names.compare_and_append([({"g": "a", "name": "A"}, 0, 1)], 0, 3).result()
    controller.run_once()
    described = controller.describe_view("totals")
    assert (described.id, described.sql, described.hydrating) == (view.id, sql, False)
    assert (described.since, described.upper) == (at(0), at(3))
    assert dict(described.inputs) == {
        name: client.core.state.names[name] for name in ("orders", "names")
    }
    join, aggregate = (one for one in described.operators if one.states)
    assert {(kept.kind, kept.size.rows) for kept in join.states} == {("shared", 99), ("shared", 1)}
    assert [(kept.kind, kept.size.rows) for kept in aggregate.states] == [("state", 1)]
    parts = [
        part.size_bytes
        for kept in (*join.states, *aggregate.states)
        for part in client.core.state.collections[kept.collection].parts()
    ]
    assert described.state_bytes == sum(parts) > 0
    text = controller.explain("totals")
    for line in ("(shared), orders by g, 99 rows in", "reads at most", "readable in [{0}, {3})"):
        assert line in text
    client.core.submit(Destroy("names")).result()
    assert "its input 'names' was destroyed" in controller.explain("totals")
    with pytest.raises(InvalidUsage, match="no view 'nothing'"):
        controller.describe_view("nothing")

"""What is drawn of a state: nodes, edges, and the first cause of being behind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from headwater.adapter import catalog
from headwater.adapter.system.seen import Seen
from headwater.adapter.timeline import DEFAULT
from headwater.base.clock import ManualClock
from headwater.console.model import Health, columns, pictured
from headwater.console.sight import Sight
from headwater.materialize.status import State as DeliveryState
from headwater.materialize.status import Status
from headwater.persist.commands import Atomic, CreateOrLoad, SetItem
from headwater.server.watch import changes
from headwater.storage.controller import SourceStatus
from headwater.storage.outputs import Statistics
from headwater.storage.runner import Condition
from headwater.storage.runner import Status as SourceCondition
from headwater.storage.source import Reliance
from headwater.testing.sql_server import SqlServer


@pytest.fixture(scope="module")
def server() -> Iterator[SqlServer]:
    with SqlServer(ManualClock(10_000)) as server:
        run = server.session()
        run("CREATE TABLE orders (id bigint PRIMARY KEY, amount int)")
        run("CREATE VIEW large AS SELECT * FROM orders WHERE amount > 10")
        run("INSERT INTO orders VALUES (1, 5), (2, 50)")
        _totals(server)
        yield server


def _totals(server: SqlServer) -> None:
    """Put a view and a delivery of it into the catalog, as Spark's controller would."""
    core = server.client.core
    orders = catalog.named(core.state, "orders")
    schema = core.state.collections[core.state.names[orders.collection]].schemas[-1]
    view = catalog.Object(
        "totals", "materialized view", "CREATE …", "u90", (orders.id,), "u90", query="…"
    )
    delivery = catalog.Object("delivery", "materialization", "CREATE …", "", ("u90",), "u91")
    core.submit(
        Atomic(
            (
                CreateOrLoad("u90", schema, (), "parquet", start=9_000),
                catalog.put(view),
                catalog.put(delivery),
                SetItem("materialization/delivery", None),
            )
        )
    ).result()


def facts(server: SqlServer) -> Seen:
    return replace(server.coordinator.seen(), now_ms=12_500)


def test_data_flows_from_tables_through_views_to_deliveries(server: SqlServer) -> None:
    picture = pictured(facts(server))
    assert [(n.name, n.kind) for n in picture.nodes] == [
        ("orders", "table"),
        ("large", "view"),
        ("totals", "materialized view"),
        ("delivery", "materialization"),
    ]
    by_id = {node.id: node.name for node in picture.nodes}
    assert sorted((by_id[a], by_id[b]) for a, b in picture.edges) == [
        ("orders", "large"),
        ("orders", "totals"),
        ("totals", "delivery"),
    ]


def test_behind_is_measured_against_the_timeline(server: SqlServer) -> None:
    state = server.client.core.state
    picture = pictured(facts(server))
    orders, totals = picture.node("orders"), picture.node("totals")
    assert orders is not None
    assert totals is not None
    assert (orders.behind_ms, orders.health, orders.rows) == (0, Health.OK, 2)
    assert picture.upper == state.timelines[DEFAULT].upper
    assert totals.behind_ms == picture.upper - 9_000
    assert picture.clock_behind_ms == 12_500 - picture.upper


def test_the_first_cause_is_found_upstream(server: SqlServer) -> None:
    known = facts(server)
    gid = known.state.names["u90"]
    failed = pictured(replace(known, failures={gid: "division by zero"}))
    totals, delivery = failed.node("totals"), failed.node("delivery")
    assert totals is not None
    assert delivery is not None
    assert (totals.health, failed.why_stale(totals)) == (Health.STALLED, "division by zero")
    running = replace(
        known,
        failures={gid: "a row: division by zero"},
        deliveries=lambda _: Status(DeliveryState.RUNNING, checkpoint=8_000, reached=8_500),
    )
    picture = pictured(running)
    node = picture.node("delivery")
    assert node is not None
    cause = "waits for totals: a row: division by zero"
    assert (node.upper, picture.why_stale(node)) == (8_500, cause)
    orders = picture.node("orders")
    assert orders is not None
    assert picture.why_stale(orders) == ""


@pytest.mark.parametrize(
    ("status", "health", "why"),
    [
        (None, Health.PAUSED, "paused"),
        (Status(), Health.STARTING, "not delivered"),
        (Status(DeliveryState.STALLED, "no route"), Health.STALLED, "no route"),
        (Status(DeliveryState.FENCED, "another"), Health.STALLED, "another"),
        (Status(DeliveryState.STOPPED), Health.PAUSED, "stopped"),
        (Status(DeliveryState.RUNNING, reached=10_000), Health.OK, ""),
        (Status(DeliveryState.RUNNING, reached=1), Health.BEHIND, ""),
    ],
)
def test_how_a_delivery_is(
    server: SqlServer, status: Status | None, health: Health, why: str
) -> None:
    node = pictured(replace(facts(server), deliveries=lambda _: status)).node("delivery")
    assert node is not None
    assert (node.health, why in node.why) == (health, True)


def test_hydration_says_how_far_it_is(server: SqlServer) -> None:
    hydrating = pictured(replace(facts(server), hydrating={"u90": 0.25})).node("totals")
    assert hydrating is not None
    assert (hydrating.health, hydrating.why) == (
        Health.HYDRATING,
        "its first content is made: 25%",
    )


@pytest.mark.parametrize(
    ("condition", "health"),
    [
        (Condition.RUNNING, Health.OK),
        (Condition.STARTING, Health.STARTING),
        (Condition.STALLED, Health.STALLED),
        (Condition.FAILED, Health.STALLED),
        (Condition.STOPPED, Health.PAUSED),
    ],
)
def test_how_a_source_is(server: SqlServer, condition: Condition, health: Health) -> None:
    orders = catalog.named(server.client.core.state, "orders")
    status = SourceCondition(condition, 0, "no broker")
    ingestion = SourceStatus(orders.id, "kafka", status, (), Statistics(), Reliance.RETAINED)
    node = pictured(facts(server), [ingestion]).node("orders")
    assert node is not None
    assert node.health is health
    assert node.why == ("" if health is Health.OK else "no broker")


def test_spans_of_everything_that_has_frontiers(server: SqlServer) -> None:
    spans = {span.name: span for span in pictured(facts(server)).spans}
    assert {"orders", "totals"} <= set(spans)
    assert all(span.since <= span.upper for span in spans.values())


def test_columns_are_those_of_the_wire(server: SqlServer) -> None:
    state = server.client.core.state
    assert columns(state, "orders") == [
        ("id", "bigint", False, ""),
        ("amount", "integer", True, ""),
    ]
    assert columns(state, "delivery") == []
    assert [name for name, *_ in columns(state, "large")] == ["id", "amount"]


def test_a_sight_of_a_server_has_what_system_views_say(server: SqlServer) -> None:
    sight = Sight(server.coordinator.seen, server.coordinator.open_session)
    assert sight.picture().node("delivery") is not None
    assert [row["kind"] for row in sight.about("hw_status", "orders")] == ["table"]
    assert sight.about("hw_no_such", "orders") == []


def test_the_log_is_told_once_of_each_change(server: SqlServer) -> None:
    known: dict[str, str] = {}
    seen = facts(server)
    gid = seen.state.names["u90"]
    unwell = pictured(replace(seen, failures={gid: "division by zero"}))
    told = [("delivery", "materialization"), ("totals", "materialized view")]
    assert sorted((name, kind) for name, kind, _ in changes(known, unwell)) == told
    assert list(changes(known, unwell)) == []
    well = pictured(replace(seen, deliveries=lambda _: Status(DeliveryState.RUNNING)))
    assert sorted(changes(known, well)) == [("delivery", "", ""), ("totals", "", "")]

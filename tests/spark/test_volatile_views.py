"""Outputs that are not durable: read like any, gone with the process, the same again after it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.algebra.frontier import Frontier
from headwater.base.ids import GlobalId
from headwater.collection.capability import ReadCapability, WriteCapability
from headwater.collection.collections import Bound, Collections, Description, Gone
from headwater.collection.run_layout import LAYOUTS
from headwater.compute.controller import ViewController
from headwater.compute.maintain import InvalidView, Output, View
from headwater.compute.maintained import arrangements
from headwater.persist import volatile
from headwater.persist.client import Client, open_location
from headwater.persist.errors import KeptElsewhere
from headwater.persist.maintenance import Maintenance
from headwater.persist.read import Updates
from headwater.persist.state import violations

pytestmark = pytest.mark.spark

ORDERS = pa.schema([pa.field("g", pa.string()), pa.field("x", pa.int64())])
NAMES = pa.schema([pa.field("g", pa.string()), pa.field("name", pa.string())])

OUTPUTS = (
    Output("sums", "SELECT g, sum(x) AS x, max(x) AS m FROM o GROUP BY g"),
    Output("named", lambda table: table("o").join(table("n"), "g").select("name", "x")),
    Output("pairs", "SELECT count(*) AS c FROM (SELECT map(g, x) AS m FROM o GROUP BY map(g, x))"),
)
"""By accumulators and groups; over shared arrangements, of code; of a kind that no rule keeps."""

Contents = Counter[tuple[Any, ...]]


def made(collections: Collections, schema: pa.Schema) -> tuple[ReadCapability, WriteCapability]:
    return collections.create(collections.new_id(), Description(schema))


def contents(collections: Collections, gid: GlobalId, time: int) -> Contents:
    """Return what a collection holds at a time, as a subscription with acquired rights says it."""
    read = collections.acquire_read(gid, at=time)
    subscription = collections.subscribe_at(read)
    event = subscription.fetch(timeout=60)
    subscription.close()
    collections.drop(read)
    found: Contents = Counter()
    if isinstance(event, Updates):
        for row in event.ok.to_pylist():
            *values, _, diff = row.values()
            found[tuple(values)] += diff
    return found


def opened(root: Path) -> Client:
    return open_location(root, layouts=LAYOUTS, take_over=True)


def killed(client: Client) -> None:
    """End a runtime without giving anything back, as far as one process can."""
    client.core.stop(release=False)


def changes(time: int) -> list[tuple[dict[str, Any], int, int]]:
    """Return inserts at a time, and the deletion of what came two times before.

    Many enough that some parts are objects, not bytes in memory.
    """
    numbers = [(time * 1_000 + n, "ab"[n % 2]) for n in range(400)]
    added = [({"g": g, "x": x}, time, 1) for x, g in numbers]
    return added + [({"g": g, "x": x - 2_000}, time, -1) for x, g in numbers if time > 1]


def test_what_a_volatile_output_holds_comes_again(spark: Any, tmp_path: Path) -> None:
    client = opened(tmp_path)
    collections, controller = Collections(client), ViewController(client, spark)
    o, write = made(collections, ORDERS)
    n, n_write = made(collections, NAMES)
    rows = [({"g": g, "name": g.upper()}, 0, 1) for g in "ab"]
    collections.update_and_downgrade(n_write, rows, 100)
    reads = controller.maintain_view([o, n], View(("o", "n"), OUTPUTS), durable=False)
    held = [read.id for read in reads]
    assert "not durable: kept by this process" in controller.explain("sums")
    for time in range(2):
        write = collections.update_and_downgrade(write, changes(time), time + 1)
        assert len(controller.run_once()) == 3, controller.failures()
    # The inputs are held from the first time that anybody may read.
    assert collections.status(o.id) == Bound(Frontier.of(0), Frontier.of(2))
    reads = tuple(collections.downgrade_read(read, 1) for read in reads)
    write = collections.update_and_downgrade(write, changes(2), 3)
    controller.run_once()
    assert collections.status(o.id) == Bound(Frontier.of(1), Frontier.of(3))
    before = [[contents(collections, gid, t) for t in (1, 2)] for gid in held]
    totals = [{("a", sum(x), max(x)), ("b", sum(y), max(y))} for x, y in map(groups, (1, 2))]
    assert [set(found) for found in before[0]] == totals
    named = [{*(("A", x) for x in a), *(("B", x) for x in b)} for a, b in map(groups, (1, 2))]
    assert [set(found) for found in before[1]] == named
    assert before[2] == [{(800,): 1}, {(800,): 1}]

    with open_location(tmp_path, layouts=LAYOUTS, read_only=True) as elsewhere:
        reader = Collections(elsewhere)
        assert reader.status(held[0]) == Bound(Frontier.of(1), Frontier.of(0))
        with pytest.raises(KeptElsewhere, match="make the view anew with a durable output"):
            elsewhere.reader(client.core.state.collections[held[0]].name).snapshot(2)
    assert volatile.objects(client.core.state), "not all of it is in memory"
    Maintenance(client.core).roll_up(force=True)
    Maintenance(client.core).sweep()
    assert [contents(collections, gid, 2) for gid in held] == [each[1] for each in before]
    killed(client)

    client = opened(tmp_path)
    collections, controller = Collections(client), ViewController(client, spark)
    states = set(client.core.state.volatile) - set(held)
    assert len(controller.run_once()) == 3, controller.failures()
    assert states
    assert not states & set(client.core.state.collections), "its states are new"
    for gid, found in zip(held, before, strict=True):
        assert collections.status(gid) == Bound(Frontier.of(1), Frontier.of(3))
        assert [contents(collections, gid, t) for t in (1, 2)] == found
    write = collections.update_and_downgrade(write, changes(3), 4)
    assert len(controller.run_once()) == 3, controller.failures()
    a, b = groups(3)
    assert set(contents(collections, held[0], 3)) == {("a", sum(a), max(a)), ("b", sum(b), max(b))}
    assert not list(violations(client.core.state))
    # The end: by the last read capability, which is valid still, or by name.
    collections.drop(reads[0])
    controller.drop_view("named")
    controller.drop_view("pairs")
    collections.downgrade_write(write, 9)
    assert controller.run_once() == ()
    assert [collections.status(gid) for gid in held] == [Gone()] * 3
    assert not arrangements(client.core.state)
    assert not client.core.state.volatile
    client.stop()


def groups(time: int) -> tuple[list[int], list[int]]:
    """Return what is in each group of the orders at a time after the first."""
    there = [t * 1_000 + n for t in (time - 1, time) for n in range(400)]
    return [x for x in there if x % 2 == 0], [x for x in there if x % 2]


def test_a_durable_view_over_a_volatile_one_goes_on(spark: Any, tmp_path: Path) -> None:
    client = opened(tmp_path)
    collections, controller = Collections(client), ViewController(client, spark)
    o, write = made(collections, ORDERS)
    (sums,) = controller.maintain_view([o], View(("o",), OUTPUTS[:1]), durable=False)
    over = Output("over", "SELECT x, count(*) AS c FROM s GROUP BY x")
    mine = collections.clone_read(sums)
    (counts,) = controller.maintain_view([mine], View(("s",), (over,)))
    for time in range(3):
        write = collections.update_and_downgrade(write, changes(time), time + 1)
        controller.run_once()
    collections.drop(sums)
    before = [contents(collections, counts.id, t) for t in range(3)]
    killed(client)
    client = opened(tmp_path)
    collections, controller = Collections(client), ViewController(client, spark)
    write = collections.update_and_downgrade(write, changes(3), 4)
    while controller.view_upper("over") < Frontier.of(4):
        assert controller.run_once(), controller.failures()
    assert [contents(collections, counts.id, t) for t in range(3)] == before
    sizes = Counter(x for _, x, _ in contents(collections, sums.id, 3))
    assert contents(collections, counts.id, 3) == dict.fromkeys(sizes.items(), 1)
    client.stop()


def test_a_collection_of_the_callers_is_durable(spark: Any, client: Client) -> None:
    collections, controller = Collections(client), ViewController(client, spark)
    o, _ = made(collections, ORDERS)
    _, into = made(collections, ORDERS)
    view = View(("o",), (Output("same", "SELECT g, x FROM o"),))
    for command in (controller.validation, controller):
        with pytest.raises(InvalidView, match="not durable give None"):
            command.maintain_view([o], view, [into], durable=False)
    (would,) = controller.validation.maintain_view([o], view, durable=False)
    assert would.frontier == Frontier.of(0)

"""A collection that goes on as another: what a subscription tells of both, whenever it begins."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from headwater.algebra.frontier import Frontier
from headwater.base.ids import GlobalId
from headwater.collection import succession
from headwater.collection.subscription import OtherColumns, Subscription
from headwater.collection.succession import Succession
from headwater.persist.client import Client
from headwater.persist.evolution import ERROR_SCHEMA, updates_schema
from headwater.persist.narrow import Narrowing
from headwater.persist.read import Updates

SCHEMA = pa.schema([pa.field("k", pa.int64())])
History = dict[int, list[tuple[int, int]]]


def made(client: Client, name: str, history: History, upper: int | None) -> GlobalId:
    """Return a collection with these changes, sealed up to a time, or for ever."""
    write, read = client.create_or_load(name, SCHEMA)
    rows = [(k, time, diff) for time, changes in history.items() for k, diff in changes]
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[], [], []]
    fields = updates_schema(SCHEMA)
    updates = pa.table([pa.array(c, pa.int64()) for c in columns], schema=fields)
    end = Frontier.closed() if upper is None else Frontier.of(upper)
    write.compare_and_append(updates, Frontier.of(0), end).result()
    return read.id


def swap(client: Client, old: GlobalId, new: GlobalId, end: int, begin: int) -> None:
    client.core.submit(succession.put(old, Succession(new, end, begin))).result()


def follow(client: Client, gid: GlobalId, as_of: int, *, snapshot: bool = True) -> Subscription:
    return Subscription(
        client.core, gid, as_of, snapshot=snapshot, narrowing=Narrowing(), goes_on=True
    )


def told(subscription: Subscription) -> History:
    """Return everything that is told without waiting, by time."""
    found: History = {}
    while (event := subscription.fetch(0.0)) is not None:
        if isinstance(event, Updates):
            for row in event.ok.to_pylist():
                found.setdefault(row["__time"], []).append((row["k"], row["__diff"]))
    return {time: sorted(changes) for time, changes in found.items()}


OLD: History = {1: [(1, 1)], 4: [(2, 1)], 6: [(9, 1)]}
NEW: History = {3: [(1, 1), (3, 1)], 7: [(4, 1)]}
AFTER: History = {5: [(2, -1), (3, 1)], 7: [(4, 1)]}
"""What is told from the swap at 5 on."""


@pytest.mark.parametrize(
    ("as_of", "snapshot", "wanted"),
    [
        (2, True, {2: [(1, 1)], 4: [(2, 1)], **AFTER}),
        (2, False, {4: [(2, 1)], **AFTER}),
        (3, False, {4: [(2, 1)], **AFTER}),
        (4, True, {4: [(1, 1), (2, 1)], **AFTER}),
        (4, False, AFTER),
        (5, True, {5: [(1, 1), (3, 1)], 7: [(4, 1)]}),
        (5, False, {7: [(4, 1)]}),
        (7, False, {}),
    ],
)
def test_old_changes_then_the_difference_then_new_changes(
    client: Client, as_of: int, snapshot: bool, wanted: History
) -> None:
    old, new = made(client, "old", OLD, 8), made(client, "new", NEW, 8)
    begun_before = follow(client, old, 2)
    swap(client, old, new, 5, 5)
    # The old one has gone on after the swap (6), and nobody hears of it.
    assert told(follow(client, new, as_of, snapshot=snapshot)) == wanted
    if as_of == 2 and snapshot:
        assert told(begun_before) == wanted
    begun_before.close()


def test_an_old_one_that_stands_still_ends_where_it_is(client: Client) -> None:
    old, new = made(client, "old", {1: [(1, 1)]}, 3), made(client, "new", NEW, 8)
    swap(client, old, new, 5, 5)
    waiting, at_first = follow(client, new, 1), follow(client, new, 4)
    assert told(waiting) == {1: [(1, 1)]}, "the old one may still come to 5"
    assert told(at_first) == {}
    swap(client, old, new, 3, 5)
    assert told(waiting) == {5: [(3, 1)], 7: [(4, 1)]}
    assert told(at_first) == {5: [(1, 1), (3, 1)], 7: [(4, 1)]}
    assert told(follow(client, new, 4, snapshot=False)) == {5: [(3, 1)], 7: [(4, 1)]}


def test_one_that_is_replaced_before_it_has_begun_means_nothing(client: Client) -> None:
    old, new = made(client, "old", {1: [(1, 1)]}, 6), made(client, "new", {}, 4)
    newest = made(client, "newest", {2: [(8, 1)], 9: [(9, 1)]}, 12)
    swap(client, old, new, 6, 6)
    swap(client, new, newest, 4, 7)
    for as_of in (1, 5, 6):
        changes = told(follow(client, newest, as_of, snapshot=False))
        assert changes == {7: [(1, -1), (8, 1)], 9: [(9, 1)]}, as_of
    assert succession.line(client.core.state, newest) == (old, new, newest)
    assert told(follow(client, newest, 7, snapshot=False)) == {9: [(9, 1)]}


def test_one_that_is_complete_for_ever_leads_over_and_is_led_to(client: Client) -> None:
    old, new = made(client, "old", {1: [(1, 1)]}, None), made(client, "new", NEW, 8)
    newest = made(client, "newest", {1: [(1, 1)]}, None)
    swap(client, old, new, 5, 5)
    swap(client, new, newest, 6, 6)
    subscription = follow(client, newest, 1)
    assert told(subscription) == {1: [(1, 1)], 5: [(3, 1)], 6: [(3, -1)]}
    assert subscription.upper.is_closed


def test_errors_are_led_over_as_rows_are_and_other_columns_end_it(client: Client) -> None:
    old, new = made(client, "old", {1: [(1, 1)]}, 3), made(client, "new", NEW, 8)
    write, _ = client.create_or_load("other", pa.schema([pa.field("l", pa.int64())]))
    write.compare_and_append(
        updates_schema(pa.schema([pa.field("l", pa.int64())])).empty_table(), 0, 9
    ).result()
    message = {"condition": "C", "message": "broken", "context": None, "__time": 3, "__diff": 1}
    failing = pa.Table.from_pylist([message], schema=updates_schema(ERROR_SCHEMA))
    writer, _ = client.create_or_load("old", SCHEMA)
    writer.compare_and_append(updates_schema(SCHEMA).empty_table(), 3, 8, errors=failing).result()
    swap(client, old, new, 5, 5)
    swap(client, new, write.id, 8, 8)
    errors: Counter[Any] = Counter()
    subscription = follow(client, write.id, 2)
    with pytest.raises(OtherColumns, match='column "k" would be gone'):  # noqa: PT012 - at last
        while (event := subscription.fetch(0.0)) is not None:
            for row in event.errors.to_pylist() if isinstance(event, Updates) else ():
                errors[row["message"], row["__time"]] += row["__diff"]
    assert errors == {("broken", 3): 1, ("broken", 5): -1}
    assert subscription.upper == Frontier.of(8), "all that came before was told"

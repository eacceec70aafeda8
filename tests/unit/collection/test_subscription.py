"""Subscriptions: snapshot, then updates; nothing lost or doubled; narrowed where data is read."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from headwater.algebra.frontier import Frontier
from headwater.base.ids import GlobalId
from headwater.collection.capability import ReadCapability, WriteCapability
from headwater.collection.collections import Collections, Description
from headwater.collection.subscription import Subscription
from headwater.persist.blob import MemoryBlob
from headwater.persist.client import Client, open_location
from headwater.persist.consensus import MemoryConsensus
from headwater.persist.core import Settings
from headwater.persist.errors import AsOfBeforeSince, Corrupt, SchemaMismatch
from headwater.persist.evolution import ERROR_SCHEMA, updates_schema
from headwater.persist.maintenance import Maintenance
from headwater.persist.read import Event, Progress, Updates
from headwater.persist.stats import Predicate

SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.string())])
Model = Counter[tuple[Any, ...]]


@pytest.fixture
def client() -> Iterator[Client]:
    opened = open_location(
        blob=MemoryBlob(),
        consensus=MemoryConsensus(),
        settings=Settings(maintenance=False, audit_fraction=1.0),
    )
    with opened as client:
        yield client


@pytest.fixture
def both(collections: Collections) -> tuple[ReadCapability, WriteCapability]:
    return collections.create(collections.new_id(), Description(SCHEMA))


def update(k: int, time: int, diff: int = 1, v: str = "x") -> tuple[dict[str, Any], int, int]:
    return {"k": k, "v": v}, time, diff


def error(message: str, time: int, diff: int) -> pa.Table:
    row = {"condition": "C", "message": message, "context": None, "__time": time, "__diff": diff}
    return pa.Table.from_pylist([row], schema=updates_schema(ERROR_SCHEMA))


def triples(event: Event | None) -> list[tuple[int, int, int]]:
    assert isinstance(event, Updates)
    return sorted((row["k"], row["__time"], row["__diff"]) for row in event.ok.to_pylist())


def test_the_snapshot_then_the_updates_with_upper_in_line(
    collections: Collections, both: tuple[ReadCapability, WriteCapability]
) -> None:
    read, write = both
    write = collections.update_and_downgrade(
        write, [update(1, 0), update(2, 1), update(1, 2, -1), update(3, 4)], 6
    )
    read = collections.downgrade_read(read, 2)
    subscription = collections.subscribe_at(read)
    assert subscription.upper == Frontier.of(0)
    first = subscription.fetch()
    assert triples(first) == [(2, 2, 1)]  # As of 2: 1 is gone, and all at the time of reading.
    assert first is not None
    assert first.upper == subscription.upper == Frontier.of(3)
    assert subscription.fetch() == Progress(Frontier.of(3))
    assert triples(subscription.fetch()) == [(3, 4, 1)]
    assert subscription.fetch() == Progress(Frontier.of(6))
    assert subscription.fetch(timeout=0) is None
    write = collections.update_and_downgrade(write, [], 9)
    assert subscription.fetch() == Progress(Frontier.of(9))
    collections.update_and_downgrade(write, [update(4, 9)], None)
    assert triples(subscription.fetch()) == [(4, 9, 1)]
    assert subscription.fetch() == Progress(Frontier.closed())
    assert subscription.fetch() is None  # For ever.
    assert list(subscription) == []


def test_what_a_writer_ahead_wrote_comes_when_it_is_sealed(
    collections: Collections, both: tuple[ReadCapability, WriteCapability]
) -> None:
    read, ahead = both
    behind = collections.clone_write(ahead)
    subscription = collections.subscribe_at(read, snapshot=False)
    collections.update_and_downgrade(ahead, [update(1, 2), update(2, 7)], 8)
    assert subscription.fetch(timeout=0) is None
    behind = collections.update_and_downgrade(behind, [update(3, 1)], 5)
    assert triples(subscription.fetch()) == [(1, 2, 1), (3, 1, 1)]
    assert subscription.fetch() == Progress(Frontier.of(5))
    collections.drop(behind)
    assert triples(subscription.fetch()) == [(2, 7, 1)]
    assert subscription.fetch() == Progress(Frontier.of(8))


def test_without_the_snapshot(
    collections: Collections, both: tuple[ReadCapability, WriteCapability]
) -> None:
    read, write = both
    collections.update_and_downgrade(write, [update(1, 0), update(2, 1)], 2)
    subscription = collections.subscribe_at(read, snapshot=False)
    assert subscription.upper == Frontier.of(1)
    assert triples(subscription.fetch()) == [(2, 1, 1)]


def test_an_empty_snapshot_is_progress(
    collections: Collections, both: tuple[ReadCapability, WriteCapability]
) -> None:
    read, write = both
    collections.update_and_downgrade(write, [], 1)
    assert collections.subscribe_at(read).fetch() == Progress(Frontier.of(1))


def test_it_waits_while_the_time_is_not_known(
    collections: Collections, both: tuple[ReadCapability, WriteCapability]
) -> None:
    read, write = both
    read = collections.downgrade_read(read, 10)
    subscription = collections.subscribe_at(read)
    assert subscription.fetch(timeout=0) is None
    events: list[Event | None] = []
    waiting = threading.Thread(target=lambda: events.append(subscription.fetch()))
    waiting.start()
    write = collections.update_and_downgrade(write, [update(1, 3)], 10)
    assert not events  # Time 10 itself may still change.
    collections.update_and_downgrade(write, [update(2, 10)], 11)
    waiting.join(timeout=30)
    assert triples(events[0]) == [(1, 10, 1), (2, 10, 1)]


def test_closing_ends_a_fetch_that_waits(
    collections: Collections, both: tuple[ReadCapability, WriteCapability]
) -> None:
    for snapshot in (True, False):
        subscription = collections.subscribe_at(both[0], snapshot=snapshot)
        events = _closed_while_waiting(subscription)
        assert events == [None]
        assert subscription.fetch() is None


def _closed_while_waiting(subscription: Subscription) -> list[Event | None]:
    events: list[Event | None] = []
    waiting = threading.Thread(target=lambda: events.append(subscription.fetch()))
    waiting.start()
    subscription.close()
    waiting.join(timeout=30)
    return events


def _drain(subscription: Subscription, upper: int) -> tuple[Model, Model, list[tuple[Any, ...]]]:
    """Fetch up to ``upper``; return both sides added up and what came, in order."""
    ok: Model = Counter()
    errors: Model = Counter()
    log: list[tuple[Any, ...]] = []
    while subscription.upper < Frontier.of(upper):
        before = subscription.upper
        event = subscription.fetch(timeout=30)
        assert event is not None
        assert before <= event.upper
        if isinstance(event, Updates):
            for row in event.ok.to_pylist():
                # Nothing comes that the upper in line had said could not come any more.
                assert before.allows(row["__time"]) or before == Frontier.of(0)
                assert not event.upper.allows(row["__time"])
                ok[tuple(v for c, v in row.items() if not c.startswith("__"))] += row["__diff"]
                log.append(tuple(row.values()))
            for row in event.errors.to_pylist():
                errors[row["message"],] += row["__diff"]
    return ok, errors, log


def test_errors_pass_and_the_rows_beside_them_are_not_lost(
    collections: Collections, both: tuple[ReadCapability, WriteCapability]
) -> None:
    """Whoever subscribes while there is an error has the rows once it is retracted."""
    read, write = both
    write = collections.update_and_downgrade(
        write, [update(1, 0)], 1, errors=error("division by zero", 0, 1)
    )
    subscription = collections.subscribe_at(read, where=[Predicate("k", "=", 1)], columns=["k"])
    ok, errors, _ = _drain(subscription, 1)
    assert (ok, errors) == (Counter({(1,): 1}), Counter({("division by zero",): 1}))
    collections.update_and_downgrade(
        write, [update(2, 1)], 2, errors=error("division by zero", 1, -1)
    )
    assert subscription.fetch() == Progress(Frontier.of(1))
    event = subscription.fetch()
    assert isinstance(event, Updates)
    assert event.ok.num_rows == 0
    assert event.ok.column_names == ["k", "__time", "__diff"]
    assert event.errors.column("__diff").to_pylist() == [-1]


def _parts(count: int, time: int) -> pa.Table:
    """Return more than fits inline, so that it becomes a part of its own with statistics."""
    rows = range(time * count, (time + 1) * count)
    return pa.table(
        {
            "k": pa.array(rows, pa.int64()),
            "v": pa.array([f"value {n % 7}" for n in rows]),
            "__time": pa.array([time] * count, pa.int64()),
            "__diff": pa.array([1] * count, pa.int64()),
        }
    )


def _value(metric: Any) -> float:
    value: float = metric._value.get()
    return value


def test_filter_and_projection_are_applied_where_the_data_is_read(
    client: Client,
    collections: Collections,
    both: tuple[ReadCapability, WriteCapability],
) -> None:
    read, write = both
    for time in range(10):
        write = collections.update_and_downgrade(write, _parts(1_000, time), time + 1)
    read = collections.downgrade_read(read, 4)
    metrics = client.core.metrics
    where = [
        Predicate("k", ">=", 3_500),
        Predicate("k", "<", 6_500),
        Predicate("v", "=", "value 3"),
    ]
    subscription = collections.subscribe_at(read, where=where, columns=["v"])
    first = subscription.fetch()
    assert isinstance(first, Updates)
    expected = len([n for n in range(3_500, 5_000) if n % 7 == 3])
    assert first.ok.to_pylist() == [{"v": "value 3", "__time": 4, "__diff": expected}]
    assert _value(metrics.parts_skipped) == 3  # Times 0, 1, 2.
    subscription.fetch()
    second = subscription.fetch()
    assert isinstance(second, Updates)
    by_time = {row["__time"]: row["__diff"] for row in second.ok.to_pylist()}
    assert by_time == {
        5: len([n for n in range(5_000, 6_000) if n % 7 == 3]),
        6: len([n for n in range(6_000, 6_500) if n % 7 == 3]),
    }
    assert _value(metrics.parts_skipped) == 6  # And 7, 8, 9.
    assert _value(metrics.parts_audited) == 6


def test_statistics_that_lie_are_found_out(
    client: Client,
    collections: Collections,
    both: tuple[ReadCapability, WriteCapability],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The audit reads what was skipped. (The lie is planted in the comparison.)"""
    read, write = both
    collections.update_and_downgrade(write, _parts(1_000, 0), 1)
    monkeypatch.setattr("headwater.persist.narrow.may_match", lambda *_: False)
    with pytest.raises(Corrupt, match="statistics"):
        collections.subscribe_at(read, where=[Predicate("k", "=", 1)]).fetch()


def test_nan_is_above_every_number_and_equal_to_itself(collections: Collections) -> None:
    schema = pa.schema([pa.field("f", pa.float64())])
    read, write = collections.create(collections.new_id(), Description(schema))
    values = [None, -math.inf, -0.0, 1.0, math.inf, math.nan]
    collections.update_and_downgrade(write, [({"f": value}, 0, 1) for value in values], 1)

    def found(operator: Any, value: float) -> list[str]:
        event = collections.subscribe_at(read, where=[Predicate("f", operator, value)]).fetch()
        return [] if isinstance(event, Progress) else [str(v) for v in event.ok["f"].to_pylist()]  # type: ignore[union-attr]

    assert found(">", 1.0) == ["inf", "nan"]
    assert found(">=", math.inf) == ["inf", "nan"]
    assert found("<", 1.0) == ["-inf", "-0.0"]
    assert found("=", 0.0) == ["-0.0"]
    assert found("=", math.nan) == ["nan"]
    assert found(">=", math.nan) == ["nan"]
    assert found(">", math.nan) == []
    assert found("<", math.nan) == ["-inf", "-0.0", "1.0", "inf"]
    assert found("<=", math.nan) == ["-inf", "-0.0", "1.0", "inf", "nan"]


def test_columns_that_are_not_there(
    collections: Collections, both: tuple[ReadCapability, WriteCapability]
) -> None:
    for subscribe in (collections.subscribe_at, collections.validation.subscribe_at):
        with pytest.raises(SchemaMismatch, match="no column 'w'"):
            subscribe(both[0], columns=["w"])
        with pytest.raises(SchemaMismatch, match="no column 'w'"):
            subscribe(both[0], where=[Predicate("w", "=", 1)])


def test_a_capability_moved_on_before_the_snapshot_came(
    collections: Collections, both: tuple[ReadCapability, WriteCapability]
) -> None:
    read, write = both
    subscription = collections.subscribe_at(read)
    collections.downgrade_read(read, 5)
    collections.update_and_downgrade(write, [update(1, 0)], 10)
    with pytest.raises(AsOfBeforeSince, match="read at 5 or later"):
        subscription.fetch()


def test_compaction_does_not_disturb_who_is_on_the_way(
    client: Client, collections: Collections, both: tuple[ReadCapability, WriteCapability]
) -> None:
    """The updates still to come keep their times, although since has passed them."""
    read, write = both
    for time in range(20):
        write = collections.update_and_downgrade(write, [update(time, time)], time + 1)
    subscription = collections.subscribe_at(read)
    assert triples(subscription.fetch()) == [(0, 0, 1)]
    collections.downgrade_read(read, 15)
    Maintenance(client.core).merge_all()
    _, _, log = _drain(subscription, 20)
    assert [(k, time) for k, _, time, _ in log] == [(n, n) for n in range(1, 20)]


def test_nothing_is_lost_or_doubled_while_others_write(tmp_path: Any) -> None:
    """Subscribers that start at any moment, beside writers and merges, all see the same."""
    with open_location(tmp_path) as client:
        collections = Collections(client)
        gid: GlobalId = collections.new_id()
        read, write = collections.create(gid, Description(SCHEMA))
        rounds = 60
        results: list[Model] = []
        failures: list[BaseException] = []

        def subscribe(hold: ReadCapability, snapshot: bool) -> None:
            try:
                subscription = collections.subscribe_at(hold, snapshot=snapshot)
                ok, _, _ = _drain(subscription, rounds)
                results.append(+ok)
            except BaseException as failure:  # noqa: BLE001 - told to the main thread
                failures.append(failure)

        threads = []
        for time in range(rounds):
            if time % 6 == 0:
                hold = collections.acquire_read(gid, at=time, purpose=f"subscriber {time}")
                thread = threading.Thread(target=subscribe, args=(hold, True))
                thread.start()
                threads.append(thread)
            changes = [update(time, time)]
            if time:
                changes.append(update(time - 1, time, -1))
                changes.append(update(-1, time, v="kept"))
            write = collections.update_and_downgrade(write, changes, time + 1)
        for thread in threads:
            thread.join(timeout=60)
        assert not failures
        expected: Model = Counter({(rounds - 1, "x"): 1, (-1, "kept"): rounds - 1})
        assert results == [expected] * len(threads)
        collections.drop(read)

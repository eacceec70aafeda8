"""SUBSCRIBE: the union of what consumers saw is the collection, however often they begin anew."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from headwater.adapter.errors import AdapterError
from headwater.adapter.sql.parse import parse_for_session
from headwater.base.clock import SystemClock
from headwater.testing.sql_server import SqlServer, SqlSession
from tests.seeds import seeds

LAST = (9, 9)


def rows_of(sql: SqlSession, text: str) -> Iterator[tuple[Any, ...]]:
    ((statement, written),) = parse_for_session(text)
    batches = sql.session.execute(statement, written).batches
    try:
        for batch in batches:
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
    finally:
        batches.close()  # type: ignore[attr-defined]


@pytest.fixture
def server() -> Iterator[SqlServer]:
    with SqlServer() as opened:
        opened.session()("CREATE TABLE t (k bigint PRIMARY KEY, v text)")
        yield opened


def test_one_that_is_never_read_holds_nothing_when_it_is_closed(server: SqlServer) -> None:
    sql = server.session()
    ((statement, written),) = parse_for_session("SUBSCRIBE TO t")
    batches = sql.session.execute(statement, written).batches
    assert server.coordinator.holds.least() is not None
    batches.close()  # type: ignore[attr-defined]
    assert server.coordinator.holds.least() is None


def test_a_snapshot_then_every_change_up_to_a_time(server: SqlServer) -> None:
    sql = server.session()
    sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    start = server.timeline.upper - 1
    sql("UPDATE t SET v = 'c' WHERE k = 1; DELETE FROM t WHERE k = 2")
    end = server.timeline.upper
    text = f"SUBSCRIBE TO t AS OF {start} UP TO {end}"
    found = list(rows_of(sql, text))
    assert sorted(found[:2]) == [(start, 1, 1, "a"), (start, 1, 2, "b")]
    assert sorted(found[2:4]) == [(start + 1, -1, 1, "a"), (start + 1, 1, 1, "c")]
    assert found[4:] == [(start + 2, -1, 2, "b")]
    # Without the snapshot: strictly after. With progress: its own time first, its end last.
    without = f"SUBSCRIBE t WITH (SNAPSHOT false, PROGRESS) AS OF {start} UP TO {end}"
    progressed = list(rows_of(sql, without))
    assert progressed[0] == (start, True, None, None, None)
    assert progressed[-1] == (end, True, None, None, None)
    assert [row[0] for row in progressed] == sorted(row[0] for row in progressed)
    assert [(t, d, k, v) for t, p, d, k, v in progressed if not p] == found[2:]
    assert list(rows_of(sql, f"SUBSCRIBE t AS OF {start} UP TO {start}")) == []
    only = list(rows_of(sql, f"SUBSCRIBE t AS OF {start} UP TO {start + 1}"))
    assert sorted(only) == [(start, 1, 1, "a"), (start, 1, 2, "b")]
    with pytest.raises(AdapterError):
        list(rows_of(sql, f"SUBSCRIBE t AS OF {start} UP TO {start - 1}"))


def test_envelopes_tell_the_changes_of_a_key_as_one(server: SqlServer) -> None:
    sql = server.session()
    sql("CREATE TABLE e (k bigint, v text, n int); INSERT INTO e VALUES (1, 'a', 1), (2, 'b', 2)")
    start = server.timeline.upper - 1
    sql("UPDATE e SET v = 'c' WHERE k = 1; DELETE FROM e WHERE k = 2")
    sql("INSERT INTO e VALUES (3, 'x', 3), (3, 'y', 3); INSERT INTO e VALUES (4, NULL, 4)")
    until = f"AS OF {start} UP TO {server.timeline.upper}"
    upserts = [row[1:] for row in rows_of(sql, f"SUBSCRIBE e {until} ENVELOPE UPSERT (KEY (k))")]
    assert sorted(upserts[:2]) == [("upsert", 1, "a", 1), ("upsert", 2, "b", 2)]
    assert upserts[2:] == [
        ("upsert", 1, "c", 1),
        ("delete", 2, None, None),
        ("key_violation", 3, None, None),
        ("upsert", 4, None, 4),
    ]
    options = f"WITH (SNAPSHOT false, PROGRESS) {until}"
    text = f"SUBSCRIBE e {options} ENVELOPE DEBEZIUM (KEY (k))"
    changes = [row[2:] for row in rows_of(sql, text) if not row[1]]
    assert changes == [
        ("upsert", 1, "a", 1, "c", 1),
        ("delete", 2, "b", 2, None, None),
        ("key_violation", 3, None, None, None, None),
        ("insert", 4, None, None, None, 4),
    ]
    with pytest.raises(AdapterError):
        list(rows_of(sql, "SUBSCRIBE e ENVELOPE UPSERT (KEY (nothing))"))


def test_a_named_subscription_goes_on_after_a_restart_and_is_not_compacted_away() -> None:
    server = SqlServer()
    sql = server.session()
    sql("CREATE TABLE t (k bigint) WITH (RETAIN HISTORY FOR '1s'); INSERT INTO t VALUES (1)")
    start = server.timeline.upper - 1
    sql("CREATE SUBSCRIPTION s TO t")
    sql("INSERT INTO t VALUES (2)")
    taken = server.timeline.upper
    sql("DELETE FROM t WHERE k = 1")
    for later in (50_000, 100_000):
        server.clock.set(later)  # type: ignore[attr-defined]
        server.timeline.tick()
    server.stop()

    with SqlServer(server.clock, on=server) as again:
        sql = again.session()
        end = again.timeline.upper

        def rest() -> list[tuple[Any, ...]]:
            return [row[1:] for row in rows_of(sql, f"SUBSCRIBE TO SUBSCRIPTION s UP TO {end}")]

        assert rest() == [(1, 1), (1, 2), (-1, 1)]  # As nobody has acknowledged anything.
        sql(f"ACKNOWLEDGE s UP TO {start}")
        assert rest() == [(1, 1), (1, 2), (-1, 1)]
        sql(f"ACKNOWLEDGE s UP TO {taken}; ALTER TABLE t RENAME TO u")
        assert rest() == [(-1, 1)]
        with pytest.raises(AdapterError):
            sql(f"ACKNOWLEDGE s UP TO {taken - 1}")
        with pytest.raises(AdapterError):
            sql(f"ACKNOWLEDGE s UP TO {end + 1_000_000}")
        with pytest.raises(AdapterError, match="depend"):
            sql("DROP TABLE u")
        assert sql("SHOW SUBSCRIPTIONS") == [("s", "subscription", None)]
        held = again.client.core.state.collections[again.coordinator.target("u").id].readers
        assert len(held) == 2
        sql("DROP TABLE u CASCADE")
        assert sql("SHOW OBJECTS") == []


def test_it_can_be_cancelled_and_holds_nothing_after(server: SqlServer) -> None:
    sql = server.session()
    rows = rows_of(sql, "SUBSCRIBE t WITH (PROGRESS)")
    next(rows)
    assert server.coordinator.holds.least() is not None
    threading.Timer(0.05, sql.session.cancel).start()
    with pytest.raises(AdapterError) as ended:
        list(rows)
    assert ended.value.sqlstate == "57014"
    assert server.coordinator.holds.least() is None


@pytest.mark.parametrize("seed", seeds(1, 20))
def test_consumers_that_stop_and_resume_see_every_change_once(seed: int) -> None:
    print(f"seed {seed}")
    with SqlServer(SystemClock()) as server:
        server.session()("CREATE TABLE t (k bigint, v bigint)")

        def write() -> None:
            random, sql = Random(seed), server.session()
            for n in range(40):
                if random.random() < 0.3:
                    sql(f"DELETE FROM t WHERE k = {random.randrange(5)}")
                else:
                    sql(f"INSERT INTO t VALUES ({random.randrange(5)}, {n})")
            sql(f"INSERT INTO t VALUES {LAST}")

        writer = threading.Thread(target=write)
        writer.start()
        seen = consumed(server, Random(f"{seed}/consumer"))
        writer.join()
        wanted = Counter(server.session()("SELECT * FROM t"))
        assert seen == wanted


def consumed(server: SqlServer, random: Random) -> Counter[Any]:
    """Consume until the last row is there, stopping at random and resuming from the progress."""
    sql = server.session()
    seen: Counter[Any] = Counter()
    progress: int | None = None
    while not seen[LAST]:
        how = ")" if progress is None else f", SNAPSHOT false) AS OF {progress - 1}"
        pending: Counter[Any] = Counter()
        started: int | None = None
        for time, progressed, diff, *row in rows_of(sql, f"SUBSCRIBE t WITH (PROGRESS{how}"):
            if not progressed:
                pending[tuple(row)] += diff
                continue
            if started is None:
                started = time  # What is at this time is still to come.
            elif time > started:
                # Durable together: what was seen, and how far.
                seen.update(pending)
                pending.clear()
                progress = time
            if seen[LAST] or random.random() < 0.2:
                break
    return +seen


@pytest.mark.parametrize(
    ("followed", "drop", "gone"),
    [
        ("t", "DROP TABLE t CASCADE", 'the subscribed relation "t" was dropped'),
        ("m", "DROP TABLE t CASCADE", 'the subscribed relation "m" was dropped'),
        ("m", "DROP MATERIALIZED VIEW m CASCADE", 'the subscribed relation "m" was dropped'),
        ("p", "DROP TABLE t CASCADE", 'the subscribed relation "p" was dropped'),
        ("p", "DROP VIEW p CASCADE", 'the subscribed relation "p" was dropped'),
        ("i", "DROP VIEW i CASCADE", 'the subscribed relation "i" was dropped'),
        ("(SELECT v FROM t)", "DROP TABLE t CASCADE", 'the subscribed relation "t" was dropped'),
        ("(SELECT k FROM m)", "DROP TABLE t CASCADE", 'the subscribed relation "m" was dropped'),
        ("(SELECT k FROM p)", "DROP VIEW p", 'the subscribed relation "p" was dropped'),
        ("SUBSCRIPTION s", "DROP TABLE t CASCADE", 'the subscribed relation "t" was dropped'),
    ],
)
def test_it_ends_with_what_it_follows(
    server: SqlServer, followed: str, drop: str, gone: str
) -> None:
    sql, other = server.session(), server.session()
    sql("CREATE MATERIALIZED VIEW m AS SELECT k FROM t; CREATE VIEW p AS SELECT k FROM t")
    sql("CREATE VIEW i AS SELECT k, v FROM t; CREATE INDEX i_k_idx ON i (k)")
    sql("CREATE SUBSCRIPTION s TO t; INSERT INTO t VALUES (1, 'a')")
    batches = sql.open(f"SUBSCRIBE TO {followed}")
    next(batches)
    other(drop)
    with pytest.raises(AdapterError) as told:
        list(batches)
    assert (told.value.sqlstate, told.value.primary) == ("42P01", gone)
    assert told.value.hint is not None
    other("CREATE TABLE u (a int); SELECT * FROM u")
    assert server.coordinator.holds.least() is None


def test_it_goes_on_under_another_name(server: SqlServer) -> None:
    sql, other = server.session(), server.session()
    batches = sql.open("SUBSCRIBE TO t WITH (SNAPSHOT = false)")
    other("ALTER TABLE t RENAME TO u")
    other("INSERT INTO u VALUES (1, 'a')")
    came = next(batch for batch in batches if batch.num_rows)
    assert came.to_pylist()[0]["v"] == "a"
    batches.close()

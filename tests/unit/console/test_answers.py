"""SQL at the console, and the change stream: in a server without Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

from headwater.base.clock import SystemClock
from headwater.console.answers import Desk, first_rows, readable, relations_of, shown
from headwater.console.changes import ChangeStream
from headwater.console.sight import Sight
from headwater.testing.sql_server import SqlServer

DEADLINE_SECONDS = 20.0


@pytest.fixture(scope="module")
def server() -> Iterator[SqlServer]:
    with SqlServer(SystemClock()) as server:
        run = server.session()
        run("CREATE TABLE t (k bigint PRIMARY KEY, v text)")
        run("CREATE TABLE young (k bigint)")
        run("CREATE VIEW w AS SELECT v FROM t")
        run("INSERT INTO t VALUES (1, 'a'), (2, NULL)")
        yield server


@pytest.fixture
def sight(server: SqlServer) -> Sight:
    return Sight(server.coordinator.seen, server.coordinator.open_session)


@pytest.fixture
def desk(sight: Sight) -> Iterator[Desk]:
    made = Desk(sight)
    yield made
    made.close()


def test_statements_are_answered_one_after_another(desk: Desk) -> None:
    inserted, selected = desk.run("INSERT INTO t VALUES (3, 'c'); SELECT * FROM t WHERE k = 3")
    assert (inserted.tag, inserted.columns) == ("INSERT 0 1", ())
    assert (selected.columns, selected.rows, selected.more) == (("k", "v"), (("3", "c"),), False)


def test_the_first_failure_ends_it_and_is_told(desk: Desk) -> None:
    (only,) = desk.run("SELECT * FROM absent; SELECT 1")
    assert '"absent" does not exist' in only.error
    (unread,) = desk.run("SELEC 1")
    assert unread.error
    (endless,) = desk.run("SUBSCRIBE t")
    assert "for ever" in endless.error


def test_a_transaction_lasts_from_one_run_to_the_next(desk: Desk, server: SqlServer) -> None:
    desk.run("BEGIN; INSERT INTO t VALUES (9, 'i')")
    assert server.session()("SELECT * FROM t WHERE k = 9") == []
    assert desk.run("COMMIT")[0].tag == "COMMIT"
    assert server.session()("SELECT v FROM t WHERE k = 9") == [("i",)]


def test_another_time_than_now(desk: Desk, server: SqlServer) -> None:
    before = server.timeline.upper - 1
    time.sleep(0.002)
    server.session()("INSERT INTO t VALUES (20, 'late')")
    assert desk.run("SELECT v FROM t WHERE k = 20", before)[0].rows == ()
    assert desk.run("SELECT v FROM t WHERE k = 20")[0].rows == (("late",),)


def test_when_a_query_can_be_read(server: SqlServer) -> None:
    state = server.client.core.state
    both = readable(state, relations_of("SELECT * FROM t, young"))
    assert both is not None
    young = readable(state, ("young",))
    assert young is not None
    assert both[0] == young[0], "the younger one decides"
    assert readable(state, relations_of("SELECT * FROM w")) == readable(state, ("t",))
    assert readable(state, ("absent",)) is None
    assert readable(state, ()) is None
    assert relations_of("not SQL at all") == ()


def test_only_so_many_rows_are_shown() -> None:
    batches = [pa.record_batch({"n": range(3)}), pa.record_batch({"n": range(3, 9)})]
    assert first_rows(batches, 4) == ((("0",), ("1",), ("2",), ("3",)), True)
    assert first_rows(batches, 9)[1] is False
    assert [shown(v) for v in (None, True, b"\x01", 1.5, "x" * 501)] == [
        None,
        "true",
        "01",
        "1.5",
        "x" * 500 + "…",
    ]


def test_changes_are_followed_until_the_page_is_closed(sight: Sight, server: SqlServer) -> None:
    stream = ChangeStream(sight, "t")
    run = server.session()
    key, deadline = 100, time.monotonic() + DEADLINE_SECONDS
    while stream.total < 2 and time.monotonic() < deadline:
        run(f"INSERT INTO t VALUES ({key}, 'x')")
        run(f"DELETE FROM t WHERE k = {key}")
        key += 1
        time.sleep(0.05)
    newest = stream.newest()
    assert stream.columns == ("k", "v")
    assert {change.diff for change in newest} <= {1, -1}
    assert newest[0].time >= newest[-1].time
    stream.close()
    stream._thread.join(DEADLINE_SECONDS)
    assert not stream._thread.is_alive()
    assert not server.coordinator.seen().subscriptions


def test_a_stream_of_what_has_no_changes_says_so(sight: Sight) -> None:
    stream = ChangeStream(sight, "absent")
    stream._thread.join(DEADLINE_SECONDS)
    assert "absent" in stream.error

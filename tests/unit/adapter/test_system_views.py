"""System views: the reference lists them as they are, and they say what there is."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pyarrow.compute as pc
import pytest

from headwater.adapter import catalog
from headwater.adapter.errors import AdapterError
from headwater.adapter.system import SYSTEM_VIEWS, Seen, reference, system_view
from headwater.algebra.frontier import Frontier
from headwater.compute.definition import encoded, item_key
from headwater.compute.recompute import STORED_VERSION, RecomputedView
from headwater.testing.sql_server import SqlServer

PAGE = Path(__file__).parents[3] / "docs" / "sql" / "system-views.md"


def test_the_reference_lists_every_view_and_column() -> None:
    if os.environ.get("REWRITE"):
        PAGE.write_text(reference.page())
    assert PAGE.read_text() == reference.page()


def test_every_view_can_be_read_whole() -> None:
    with SqlServer() as server:
        session = server.session()
        session(
            "CREATE TABLE t (k bigint PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a');"
            "CREATE VIEW w AS SELECT v FROM t; CREATE SUBSCRIPTION s TO t"
        )
        for name, view in SYSTEM_VIEWS.items():
            for row in session(f"SELECT * FROM {name}"):
                assert len(row) == len(view.columns), name


def test_sessions_and_what_they_follow_are_seen_while_they_are_there() -> None:
    with SqlServer() as server:
        watcher, other = server.session(), server.session()
        other("CREATE TABLE t (k bigint); INSERT INTO t VALUES (4711)")
        other("BEGIN")
        other("SELECT * FROM t")
        # The values of a write are its client's own; of a query the text is shown.
        seen = watcher("SELECT session_id, state, statement FROM hw_sessions")
        assert seen == [
            (1, "active", "SELECT session_id, state, statement FROM hw_sessions"),
            (2, "in transaction", "SELECT * FROM t"),
        ]
        other("COMMIT; INSERT INTO t VALUES (4712)")
        assert watcher("SELECT statement FROM hw_sessions WHERE session_id = 2") == [
            ("INSERT INTO",)
        ]
        following = server.session()
        rows = following.open("SUBSCRIBE t")
        ((number, of),) = watcher("SELECT session_id, object FROM hw_subscriptions")
        assert (number, of) == (3, "t")
        assert watcher("SELECT state FROM hw_sessions WHERE session_id = 3") == [("subscribed",)]
        rows.close()
        assert watcher("SELECT * FROM hw_subscriptions") == []
        following.session.close()
        other.session.close()
        assert watcher("SELECT count(*) FROM hw_sessions") == [(1,)]


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("CREATE TABLE hw_mine (k int)", "RESERVED_NAME"),
        ("CREATE VIEW v AS SELECT * FROM hw_objects", "SYSTEM_RELATION"),
        ("INSERT INTO hw_objects VALUES (1)", "SYSTEM_RELATION"),
        ("DROP VIEW hw_objects", "SYSTEM_RELATION"),
        ("SUBSCRIBE hw_objects", "SYSTEM_RELATION"),
        ("SELECT * FROM hw_objects AS OF 1000", "FEATURE_NOT_SUPPORTED"),
        ("SELECT * FROM hw_catalog.t", "UNDEFINED_RELATION"),
        ("SELECT * FROM hw_object", "UNDEFINED_RELATION"),
    ],
)
def test_what_is_no_plain_read_of_them_is_refused(text: str, condition: str) -> None:
    with SqlServer() as server, pytest.raises(AdapterError) as refused:
        server.session()(text)
    assert refused.value.condition == condition


def test_a_view_that_stands_still_is_called_by_its_name() -> None:
    with SqlServer() as server:
        server.session()("CREATE TABLE t (k bigint); CREATE MATERIALIZED VIEW v AS SELECT k FROM t")
        core = server.client.core
        view = catalog.named(core.state, "v")
        why = f"view {view.collection!r} could not be stepped: no memory"
        seen = Seen(core, core.state, 0, 0, {core.state.names[view.collection]: why})
        for name, column in (("hw_status", "detail"), ("hw_errors", "message")):
            told = system_view(name).table(seen).column(column).to_pylist()
            assert "view 'v' could not be stepped: no memory" in told


def test_a_recomputed_view_that_cannot_keep_up_says_so() -> None:
    with SqlServer() as server:
        session = server.session()
        session("CREATE TABLE t (k bigint); CREATE MATERIALIZED VIEW v AS SELECT k FROM t")
        state = server.client.core.state
        view = state.collections[state.names[catalog.named(state, "v").collection]]
        table = state.collections[state.names[catalog.named(state, "t").collection]]
        at = state.upper(view).only()
        stored = RecomputedView(
            version=STORED_VERSION,
            name="v",
            sql="",
            plan=b"",
            relations={"t": table.id},
            start=at - 1,
            output=view.id,
            spark_version="",
            why="a recursive query: it is run as a whole",
        )

        def told(behind_ms: int) -> list[str | None]:
            ahead = msgspec.structs.replace(
                table, timeline=None, own_upper=Frontier.of(at + behind_ms)
            )
            seen = msgspec.structs.replace(
                state,
                items=state.items.set(item_key(view.id), encoded(stored)),
                collections=state.collections.set(table.id, ahead),
            )
            shown = system_view("hw_status").table(Seen(server.client.core, seen, at, at))
            of_view = shown.filter(pc.equal(shown.column("name"), "v"))
            details: list[str | None] = of_view.column("detail").to_pylist()
            return details

        assert told(1_000) == [None]
        (detail,) = told(93_000)
        assert detail is not None
        assert detail.startswith("93 s behind its inputs: it is recomputed for each time")
        assert detail.endswith("no incremental rule for a recursive query: it is run as a whole")

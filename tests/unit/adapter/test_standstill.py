"""A read of what stands still: told why, by name, and what there is to read; and not too early."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from headwater.adapter import reads
from headwater.adapter.errors import QueryCanceled
from headwater.adapter.object_errors import ViewStalled
from headwater.base.clock import SystemClock
from headwater.testing.sql_server import SqlServer, SqlSession


@pytest.fixture
def server() -> Iterator[SqlServer]:
    with SqlServer(SystemClock()) as opened:
        yield opened


def _stalled(server: SqlServer, sql: SqlSession) -> None:
    """Keep a view from going on, with another on it that would."""
    sql("CREATE TABLE t (k bigint); CREATE MATERIALIZED VIEW v AS SELECT k FROM t")
    sql("CREATE MATERIALIZED VIEW w AS SELECT k + 1 AS k FROM v; INSERT INTO t VALUES (1)")
    assert sql("SELECT * FROM w") == [(2,)]
    ((collection,),) = sql("SELECT object_id FROM hw_objects WHERE name = 'v'")
    gid = server.client.core.state.names[str(collection)]
    server.evaluator.views.broken[gid] = f"view {collection!r} cannot advance: a test says so"
    sql("INSERT INTO t VALUES (2)")


def test_a_reader_is_told_of_the_view_beneath_and_can_read_what_there_is(
    server: SqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "STALLED_SECONDS", 0.0)
    sql = server.session()
    _stalled(server, sql)
    with pytest.raises(ViewStalled, match=r'^materialized view "v" is stalled') as told:
        sql("SELECT * FROM w")
    assert told.value.detail == "view 'v' cannot advance: a test says so"
    hint = str(told.value.hint)
    assert told.value.__notes__ == [f"DETAIL: {told.value.detail}", f"HINT: {hint}"]
    newest = hint.split("AS OF ")[1].split(",", maxsplit=1)[0]
    assert sql(f"SELECT * FROM v AS OF {newest}") == [(1,)]
    sql("SET transaction_isolation = serializable")
    assert sql("SELECT * FROM w") == [(2,)]
    assert "does not advance: view 'v' cannot advance" in str(sql("EXPLAIN MATERIALIZED VIEW v"))


def test_a_reader_waits_for_a_view_that_recovers(server: SqlServer) -> None:
    sql = server.session()
    _stalled(server, sql)
    recovers = threading.Timer(1.5, server.evaluator.views.broken.clear)
    recovers.start()
    assert sql("SELECT * FROM w") == [(2,), (3,)]
    recovers.join()


def test_a_timeout_says_what_was_waited_for(server: SqlServer) -> None:
    sql = server.session()
    _stalled(server, sql)
    sql("SET statement_timeout = 50")
    with pytest.raises(QueryCanceled) as told:
        sql("SELECT * FROM w")
    assert 'materialized view "v" is stalled' in str(told.value.detail)

"""A materialized view replaced: the old one answers until the new one is there, in one step."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from headwater.adapter import replacement
from headwater.adapter.coordinator import Coordinator
from headwater.adapter.errors import AdapterError
from headwater.adapter.sql.parse import parse_with_text
from headwater.adapter.timeline import Timeline
from headwater.base.clock import SystemClock
from headwater.compute import definition
from headwater.compute.controller import ViewController
from headwater.materialize.controller import Materializations
from headwater.persist.client import Client
from headwater.persist.commands import SetItem

pytestmark = pytest.mark.spark

DEADLINE_SECONDS = 120.0


class Sql:
    """Sessions over real Spark."""

    def __init__(self, client: Client, spark: Any) -> None:
        self.core = client.core
        self.timeline = Timeline(client, SystemClock())
        self.views = ViewController(client, spark)
        self._coordinator = Coordinator(client, self.timeline, self.views, Materializations(client))

    def __call__(self, sql: str) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        session = self._coordinator.open_session()
        for statement, text in parse_with_text(sql):
            for batch in session.execute(statement, text).batches:
                rows.extend(zip(*(column.to_pylist() for column in batch.columns), strict=True))
        session.close()
        return sorted(rows, key=repr)


@pytest.fixture
def sql(client: Client, spark: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sql]:
    # At once: who reads the old one just then is answered all the same.
    monkeypatch.setattr(replacement, "GRACE_SECONDS", 0.0)
    opened = Sql(client, spark)
    opened.timeline.start()
    opened.views.start()
    yield opened
    opened.views.stop()
    opened.timeline.stop()


def test_a_view_is_replaced_without_a_gap(sql: Sql) -> None:
    sql("CREATE TABLE t (k bigint PRIMARY KEY, v bigint)")
    sql("INSERT INTO t VALUES (1, 10), (2, 20)")
    sql("CREATE OR REPLACE MATERIALIZED VIEW m AS SELECT sum(v) AS x FROM t")
    sql("COMMENT ON MATERIALIZED VIEW m IS 'kept'; CREATE VIEW w AS SELECT x FROM m")
    assert sql("SELECT x FROM w") == [(30,)]

    seen, stopping = set[Any](), threading.Event()

    def read() -> None:
        while not stopping.is_set():
            seen.update(sql("SELECT x FROM m"))

    reader = threading.Thread(target=read)
    reader.start()
    sql("CREATE OR REPLACE MATERIALIZED VIEW m AS SELECT sum(v * 2) AS x FROM t")
    assert sql("SELECT x FROM w") == [(60,)], "what is made of it goes on"
    stopping.set()
    reader.join()
    assert seen <= {(30,), (60,)}
    assert sql("SELECT comment FROM hw_catalog.hw_objects WHERE name = 'm'") == [("kept",)]
    sql("INSERT INTO t VALUES (3, 1)")
    assert sql("SELECT x FROM m") == [(62,)]
    sql.core.wait(lambda state: None if replacement.abandoned(state) else True, DEADLINE_SECONDS)
    assert len(definition.stored(sql.core.state)) == 1, "the old one is gone"

    for statement, told in (
        ("SELECT k FROM t", "its columns would change"),
        ("SELECT sum(v) AS x FROM absent", "does not exist"),
    ):
        with pytest.raises(AdapterError, match=told):
            sql(f"CREATE OR REPLACE MATERIALIZED VIEW m AS {statement}")
        assert sql("SELECT x FROM m") == [(62,)], "nothing was changed"
    assert replacement.abandoned(sql.core.state) == []
    sql("CREATE MATERIALIZED VIEW n AS SELECT x + 1 AS y FROM m; CREATE INDEX ON n (y)")
    sql("CREATE OR REPLACE MATERIALIZED VIEW m AS SELECT sum(v) AS x FROM t")
    assert sql("SELECT y FROM n WHERE y = 32") == [(32,)], "who reads it is swapped with it"
    sql("INSERT INTO t VALUES (4, 1)")
    assert sql("SELECT y FROM n") == [(33,)]
    with pytest.raises(AdapterError, match="is not a materialized view"):
        sql("CREATE OR REPLACE MATERIALIZED VIEW t AS SELECT 1 AS x")


def test_what_a_dead_server_was_building_is_dropped(sql: Sql) -> None:
    sql("CREATE TABLE t (k bigint)")
    sql("CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t")
    (view,) = definition.stored(sql.core.state)
    sql.views.create_view(
        "half",
        "SELECT k FROM t",
        relations={"t": sql("SELECT object_id FROM hw_catalog.hw_objects WHERE name = 't'")[0][0]},
        also=(SetItem("replacement/half", b"half"), SetItem("replacement/never", b"never")),
    )
    replacement.drop_abandoned(sql.core, sql.views)
    assert [each.name for each in definition.stored(sql.core.state)] == [view.name]
    assert replacement.abandoned(sql.core.state) == []
    assert sql("SELECT n FROM m") == [(0,)]

"""A materialized view replaced: the old one answers until the new one is there, in one step."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import Any

import pytest

from headwater.adapter import replacement
from headwater.adapter.coordinator import Coordinator
from headwater.adapter.errors import AdapterError
from headwater.adapter.sql.parse import parse_for_session
from headwater.adapter.timeline import Timeline
from headwater.base import tracing
from headwater.base.clock import SystemClock
from headwater.compute import definition
from headwater.compute.controller import ViewController
from headwater.materialize.controller import Materializations
from headwater.persist.client import Client
from headwater.persist.commands import SetItem

pytestmark = pytest.mark.spark

DEADLINE_SECONDS = 120.0


class Told:
    """Takes spans."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Mapping[str, Any]]] = []

    def span(self, name: str, attributes: Mapping[str, Any]) -> AbstractContextManager[object]:
        self.told.append((name, attributes))
        return nullcontext()


class Sql:
    """Sessions over real Spark."""

    def __init__(self, client: Client, spark: Any) -> None:
        self.core = client.core
        self.timeline = Timeline(client, SystemClock())
        self.views = ViewController(client, spark)
        self.materializations = Materializations(client)
        self._coordinator = Coordinator(client, self.timeline, self.views, self.materializations)

    def __call__(self, sql: str) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        session = self._coordinator.open_session()
        for statement, text in parse_for_session(sql):
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
    spans = Told()
    tracing.collect(spans)
    sql("INSERT INTO t VALUES (3, 1)")
    assert sql("SELECT x FROM m") == [(62,)]
    tracing.collect(None)
    steps = [attributes for name, attributes in spans.told if name == "step"]
    assert steps, "a step is told by a span"
    assert all(set(each) == {"views"} for each in steps), "the names of its views, nothing else"
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


def test_a_delivery_goes_on_from_the_difference(sql: Sql, tmp_path: Path) -> None:
    target = tmp_path / "delivered.db"

    def delivered() -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(target)) as db:
            try:
                return sorted(db.execute("SELECT k, v FROM m").fetchall())
            except sqlite3.OperationalError:
                return []  # The table is not there yet.

    def eventually(wanted: list[tuple[Any, ...]]) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while delivered() != wanted:
            assert time.monotonic() < deadline, delivered()
            time.sleep(0.05)

    sql("CREATE TABLE t (k bigint PRIMARY KEY, v bigint)")
    sql("INSERT INTO t VALUES (1, 10), (2, 20), (3, 30)")
    sql("CREATE MATERIALIZED VIEW base AS SELECT k, v FROM t")
    sql("CREATE MATERIALIZED VIEW m AS SELECT k, v + 1 AS v FROM base")
    sql(f"CREATE MATERIALIZATION out INTO SQLITE (PATH '{target}') (m AS m KEY (k))")
    running = sql.materializations
    eventually([(1, 11), (2, 21), (3, 31)])
    told = sql("EXPLAIN CREATE OR REPLACE MATERIALIZED VIEW base AS SELECT k, v FROM t")
    assert ("  materialization out",) in told
    # By what it reads: it is not the replaced view itself that is delivered.
    query = "SELECT k, CASE WHEN k = 2 THEN 0 ELSE v END AS v FROM t WHERE k < 3"
    sql(f"CREATE OR REPLACE MATERIALIZED VIEW base AS {query}")
    eventually([(1, 11), (2, 1)])
    ((name,),) = sql("SELECT object_id FROM hw_catalog.hw_objects WHERE name = 'out'")
    found = running.get(name)
    assert found is not None
    assert (found.status.rows_stored, found.status.rows_deleted) == (1, 1)
    with pytest.raises(AdapterError, match=r"materialization out cannot go on: .*column 'v'"):
        sql("CREATE OR REPLACE MATERIALIZED VIEW m AS SELECT k FROM base")
    eventually([(1, 11), (2, 1)])
    sql("INSERT INTO t VALUES (0, 0)")
    eventually([(0, 1), (1, 11), (2, 1)])
    sql.core.wait(lambda state: None if replacement.abandoned(state) else True, DEADLINE_SECONDS)
    assert len(definition.stored(sql.core.state)) == 2, "the old ones are gone"
    running.stop()
    sql("CREATE SUBSCRIPTION s TO m")
    sql("CREATE OR REPLACE MATERIALIZED VIEW base AS SELECT k, v FROM t WHERE k > 0")
    assert sql("SELECT k, v FROM m") == [(1, 11), (2, 21), (3, 31)]
    told = sql(f"SUBSCRIBE TO SUBSCRIPTION s UP TO {sql.timeline.upper}")
    swap = max(row[0] for row in told)
    contents = {(1, 0, 1), (1, 1, 11), (1, 2, 1)}
    assert {row[1:] for row in told if row[0] < swap} == contents
    assert {row[1:] for row in told if row[0] == swap} == {
        *((-1, 0, 1), (-1, 2, 1), (1, 2, 21), (1, 3, 31))
    }
    (explained,) = zip(
        *sql("EXPLAIN CREATE OR REPLACE MATERIALIZED VIEW m AS SELECT k, v + 1 AS v FROM base"),
        strict=True,
    )
    assert not any("refused" in line for line in explained), "these are the columns it has"
    (explained,) = zip(
        *sql("EXPLAIN CREATE OR REPLACE MATERIALIZED VIEW m AS SELECT k FROM base"), strict=True
    )
    assert "would be refused:" in explained
    assert [line for line in explained if "materialization out cannot go on" in line]
    assert [line for line in explained if "subscription s needs them" in line]


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
    replacement.drop_abandoned(sql.core, sql.views, sql.materializations)
    assert [each.name for each in definition.stored(sql.core.state)] == [view.name]
    assert replacement.abandoned(sql.core.state) == []
    assert sql("SELECT n FROM m") == [(0,)]

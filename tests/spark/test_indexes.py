"""Indexes, system views and transient views over real Spark: one server for all of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headwater.adapter import catalog
from headwater.adapter.coordinator import Coordinator
from headwater.adapter.errors import AdapterError, QueryCanceled
from headwater.adapter.timeline import Timeline
from headwater.adapter.transients import transients
from headwater.base.clock import SystemClock
from headwater.base.ids import GlobalId
from headwater.collection.run_layout import LAYOUTS
from headwater.compute.controller import ViewController
from headwater.materialize.controller import Materializations
from headwater.persist.client import open_location
from headwater.persist.state import State
from headwater.testing.sql_server import SqlSession

pytestmark = pytest.mark.spark


def catalog_id(state: State, name: str) -> GlobalId:
    return state.names[catalog.named(state, name).collection]


class Server:
    """A coordinator over Spark, without a wire."""

    def __init__(self, data: Path, spark: Any) -> None:
        self.client = open_location(data, layouts=LAYOUTS)
        self.timeline = Timeline(self.client, SystemClock())
        self.views = ViewController(self.client, spark)
        self.coordinator = Coordinator(
            self.client, self.timeline, self.views, Materializations(self.client)
        )
        self.asked: list[str] = []
        select = self.views.select

        def counted(sql: str, *arguments: Any, **named: Any) -> Any:
            self.asked.append(sql)
            return select(sql, *arguments, **named)

        self.views.select = counted  # type: ignore[method-assign]
        self.timeline.start()
        self.views.start()

    def session(self) -> SqlSession:
        return SqlSession(self.coordinator.open_session())

    def hydrated(self, *names: str) -> None:
        """Wait until these have their first rows."""

        def ready(state: State) -> bool | None:
            found = [state.collections[catalog_id(state, name)] for name in names]
            return all(state.upper(each) > each.since for each in found) or None

        assert self.client.core.wait(ready, 120)

    def stop(self) -> None:
        self.views.stop()
        self.timeline.stop()
        self.client.stop()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Iterator[Server]:
    opened = Server(tmp_path_factory.mktemp("indexes"), spark)
    yield opened
    opened.stop()


def test_an_indexed_view_answers_as_the_view_does_and_without_a_job(server: Server) -> None:
    sql, random = server.session(), Random(7)
    sql(
        "CREATE TABLE o (k bigint PRIMARY KEY, g text, x int);"
        "CREATE VIEW kept AS SELECT g, x % 3 AS m, sum(x) AS s FROM o GROUP BY g, x % 3;"
        "CREATE VIEW computed AS SELECT g, x % 3 AS m, sum(x) AS s FROM o GROUP BY g, x % 3"
    )
    rows = ", ".join(f"({k}, 'g{k % 5}', {random.randrange(100)})" for k in range(200))
    sql(f"INSERT INTO o VALUES {rows}")
    sql("CREATE INDEX ki ON kept (g, m); CREATE INDEX oi ON o (g)")
    server.hydrated("ki", "oi")
    for k in range(2):
        sql(f"UPDATE o SET x = x + 1 WHERE k = {k}; DELETE FROM o WHERE k = {k + 100}")
        sql("BEGIN")
        before = len(server.asked)
        probed = sql("SELECT s FROM kept WHERE g = 'g1' AND m IN (0, 1, 2)")
        by_group = sql("SELECT k, x FROM o WHERE g = 'g2'")
        assert len(server.asked) == before, "looked up"
        assert probed == sql("SELECT s FROM computed WHERE g = 'g1' AND m >= 0")
        assert by_group == sql("SELECT k, x FROM o WHERE g || '' = 'g2'")
        assert sql("SELECT g, max(s) FROM kept GROUP BY g") == sql(
            "SELECT g, max(s) FROM computed GROUP BY g"
        )
        sql("COMMIT")


def test_an_index_in_error_changes_no_answer(server: Server) -> None:
    sql = server.session()
    sql("CREATE TABLE e (k bigint, x int); INSERT INTO e VALUES (1, 1), (2, 5)")
    sql("CREATE VIEW inverse AS SELECT k, 10 / x AS y FROM e; CREATE INDEX ei ON inverse (k)")
    server.hydrated("ei")
    assert sql("SELECT y FROM inverse WHERE k = 2") == [(2,)]
    sql("INSERT INTO e VALUES (3, 0)")
    # What does not compute the column that fails is answered, as it is without the index.
    assert sql("SELECT y FROM inverse WHERE k = 2") == [(2,)]
    assert sql("SELECT k FROM inverse") == [(1,), (2,), (3,)]
    sql("BEGIN; INSERT INTO e VALUES (4, 0)")
    assert sql("SELECT k FROM inverse WHERE k > 2") == [(3,), (4,)]
    sql("ROLLBACK; CREATE TABLE copied AS SELECT k FROM inverse")
    assert sql("SELECT count(*) FROM copied") == [(3,)]
    for query in ("SELECT y FROM inverse WHERE k = 3", "SELECT sum(y) FROM inverse"):
        with pytest.raises(AdapterError):
            sql(query)
    ((message,),) = sql("SELECT message FROM hw_errors WHERE name = 'ei'")
    assert "zero" in message
    sql("DELETE FROM e WHERE x = 0")
    assert sql("SELECT y FROM inverse WHERE k = 2") == [(2,)]


def test_a_query_is_followed_and_nothing_is_left_of_it(server: Server) -> None:
    sql = server.session()
    sql("CREATE TABLE f (g text, x int); INSERT INTO f VALUES ('p', 1), ('q', 2)")
    start = server.timeline.upper - 1
    sql("INSERT INTO f VALUES ('p', 5)")
    end = server.timeline.upper
    query = "SELECT g, sum(x) AS s FROM f GROUP BY g"
    told = [
        tuple(row.values())
        for batch in server.session().open(f"SUBSCRIBE ({query}) AS OF {start} UP TO {end}")
        for row in batch.to_pylist()
    ]
    assert sorted((diff, *row) for time, diff, *row in told if time == start) == [
        (1, "p", 1),
        (1, "q", 2),
    ]
    assert sorted((diff, *row) for time, diff, *row in told if time > start) == [
        (-1, "p", 1),
        (1, "p", 6),
    ]
    assert not list(transients(server.client.core.state))


def test_a_cancelled_query_ends_its_jobs_and_no_others(server: Server) -> None:
    slow, other = server.session(), server.session()
    slow("CREATE TABLE n (k bigint); INSERT INTO n VALUES (1)")
    # So many pairs that it would not end within the test; they are counted, and never held.
    query = (
        "SELECT count(*) FROM generate_series(1, 100000) AS a(x), "
        "generate_series(1, 100000) AS b(y) WHERE (x * 7 + y * 13) % 1009 = 3"
    )
    outcome: list[BaseException] = []

    def run() -> None:
        try:
            slow(query)
        except BaseException as error:  # noqa: BLE001 - told below
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert other("SELECT count(*) FROM n WHERE k > 0") == [(1,)]
    while thread.is_alive():
        slow.session.cancel()
        thread.join(0.2)
    (error,) = outcome
    assert isinstance(error, QueryCanceled), error
    assert slow("SELECT k + 1 FROM n") == [(2,)]


def test_explain_tells_operators_and_sparks_dialect_is_spark(server: Server) -> None:
    sql = server.session()
    sql("CREATE TABLE d (g text, x int); INSERT INTO d VALUES ('a,b', 1), ('c', 5)")
    told = [line for (line,) in sql("EXPLAIN SELECT g, sum(x) FROM d GROUP BY g")]
    assert any(line.startswith("  ") and "reads at most" in line for line in told), told
    assert any("keeps" in line for line in told), told
    sql("SET dialect = spark")
    query = "SELECT p, x / 2 AS `h` FROM D LATERAL VIEW explode(split(g, ',')) e AS p WHERE x < 5"
    assert sql(query) == [("a", 0.5), ("b", 0.5)]
    sql(f"CREATE MATERIALIZED VIEW parts AS {query}")
    assert sql("SELECT transform(array(1, 2), v -> v + 1) AS t") == [([2, 3],)]
    sql("SET dialect = postgres")
    sql("INSERT INTO d VALUES ('z', 3)")
    assert sql("SELECT p, h FROM parts") == [("a", 0.5), ("b", 0.5), ("z", 1.5)]

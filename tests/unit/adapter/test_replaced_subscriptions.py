"""A subscription goes on where its view is replaced: old changes, the difference, new changes.

Views are kept by DuckDB here; ``tests/spark/test_replacement.py`` does the same on Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import suppress
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headwater.adapter import catalog, replacement
from headwater.adapter.errors import AdapterError
from headwater.base.clock import SystemClock
from headwater.base.errors import HeadwaterError
from headwater.base.ids import GlobalId
from headwater.collection import succession
from headwater.collection.run_layout import LAYOUTS
from headwater.persist.blob.memory import MemoryBlob
from headwater.persist.client import open_location
from headwater.persist.consensus.memory import MemoryConsensus
from headwater.persist.core import Settings
from headwater.testing.crash import Mortal, Stacked, quiet_crashes
from headwater.testing.sql_server import SqlServer, SqlSession
from headwater.testing.unreliable import Crash
from tests.seeds import seeds

WAIT_SECONDS = 120.0

QUERIES = (
    "SELECT k, v FROM t",
    "SELECT k, v * 10 AS v FROM t",
    "SELECT v AS k, count(*) AS v FROM t GROUP BY v",
    "SELECT k, v FROM t WHERE v % 2 = 0",
)
REPLACE = "CREATE OR REPLACE MATERIALIZED VIEW m AS"
SETUP = f"""
    CREATE TABLE t (k bigint, v bigint) WITH (RETAIN HISTORY FOR '1h');
    INSERT INTO t VALUES (1, 1), (2, 2), (3, 2);
    CREATE MATERIALIZED VIEW m AS {QUERIES[0]};
"""


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing of what was replaced stay for longer than it is needed."""
    monkeypatch.setattr(replacement, "GRACE_SECONDS", 0.0)
    monkeypatch.setattr(replacement, "LOOK_SECONDS", 0.02)


def replaced(sql: SqlSession, query: str) -> None:
    sql(f"{REPLACE} {query}")


def model(query: int, rows: list[tuple[int, int]]) -> Counter[Any]:
    """Return what each of the queries is."""
    if query == 2:
        return Counter(dict.fromkeys(Counter(v for _, v in rows).items(), 1))
    if query == 3:
        return Counter((k, v) for k, v in rows if v % 2 == 0)
    return Counter((k, v * (10 if query == 1 else 1)) for k, v in rows)


def told(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def until(server: SqlServer, name: str, end: int) -> list[tuple[Any, ...]]:
    """Return what a durable subscription tells before a time."""
    batches = server.session().open(f"SUBSCRIBE TO SUBSCRIPTION {name} UP TO {end}")
    try:
        return list(told(batches))
    finally:
        batches.close()


def begins(server: SqlServer, name: str = "m") -> int:
    return catalog.named(server.client.core.state, name).begins


def of(server: SqlServer, name: str = "m") -> GlobalId:
    state = server.client.core.state
    return state.names[catalog.named(state, name).collection]


def gone(server: SqlServer, old: GlobalId) -> None:
    """Wait until a collection that was replaced is dropped."""
    core = server.client.core
    assert core.wait(lambda state: True if old not in state.collections else None, WAIT_SECONDS)
    assert succession.succession(core.state, old) is None


def test_what_is_not_acknowledged_is_told_over_a_replacement_and_a_restart() -> None:
    server = SqlServer(SystemClock())
    sql = server.session()
    sql(SETUP)
    sql("CREATE MATERIALIZED VIEW n AS SELECT sum(v) AS s FROM m")
    assert sql("SELECT s FROM n") == [(5,)]
    sql("CREATE SUBSCRIPTION on_m TO m; CREATE SUBSCRIPTION on_n TO n")
    sql("INSERT INTO t VALUES (4, 4)")
    assert len(sql("SELECT k FROM m, n WHERE s = 9")) == 4
    old, old_n = of(server), of(server, "n")
    (explained,) = zip(*sql(f"EXPLAIN {REPLACE} {QUERIES[1]}"), strict=True)
    assert {"  subscription on_m", "  subscription on_n"} < set(explained)
    replaced(sql, QUERIES[1])
    swap = begins(server)
    assert swap == begins(server, "n"), "all that is swapped is swapped at one time"
    sql("DELETE FROM t WHERE k = 2")
    assert sql("SELECT s FROM n") == [(70,)]
    server.stop()

    with SqlServer(SystemClock(), on=server) as again:
        replacement.drop_abandoned(again.client.core, again.evaluator, again.materializations)
        sql = again.session()
        end = again.timeline.upper
        rows = until(again, "on_m", end)
        assert [row[1:] for row in sorted(rows[:3])] == [(1, 1, 1), (1, 2, 2), (1, 3, 2)]
        assert rows[3][0] < swap
        assert rows[3][1:] == (1, 4, 4)
        # The difference, at the time of the swap, and not one row more.
        assert sorted(row for row in rows if row[0] == swap) == sorted(
            [(swap, -1, k, v) for k, v in ((1, 1), (2, 2), (3, 2), (4, 4))]
            + [(swap, 1, k, v) for k, v in ((1, 10), (2, 20), (3, 20), (4, 40))]
        )
        assert [row[1:] for row in rows if row[0] > swap] == [(-1, 2, 20)]
        sums = until(again, "on_n", end)
        assert [(s, d) for _, d, s in sorted(sums, key=lambda row: (row[0], row[1]))] == [
            *((5, 1), (5, -1), (9, 1), (9, -1), (90, 1), (90, -1), (70, 1))
        ]
        # Taken up to the swap: the old ones are needed still. Then they are not.
        sql(f"ACKNOWLEDGE on_m UP TO {swap}; ACKNOWLEDGE on_n UP TO {swap + 1}")
        gone(again, old_n)
        assert old in again.client.core.state.collections
        assert until(again, "on_m", end) == [row for row in rows if row[0] >= swap]
        sql(f"ACKNOWLEDGE on_m UP TO {swap + 1}")
        gone(again, old)
        assert [row[1:] for row in until(again, "on_m", end)] == [(-1, 2, 20)]
        assert replacement.abandoned(again.client.core.state) == []
        with pytest.raises(AdapterError, match="not readable at time"):
            sql(f"SELECT * FROM m AS OF {swap - 1}")
        with pytest.raises(AdapterError, match="not readable at time"):
            sql(f"SUBSCRIBE m AS OF {swap - 1}")
        sql("DROP MATERIALIZED VIEW m CASCADE")


def test_one_that_runs_goes_on_or_says_why_not() -> None:
    with SqlServer(SystemClock()) as server:
        sql = server.session()
        sql(SETUP)
        sql("CREATE VIEW w AS SELECT k FROM m")
        sql("SELECT k FROM m")
        over = told(server.session().open("SUBSCRIBE m WITH (PROGRESS)"))
        seen: Counter[Any] = Counter()
        for row in over:
            seen += Counter() if row[1] else Counter({row[3:]: 1})
            if sum(seen.values()) == 3:
                break
        query = server.session().open("SUBSCRIBE TO (SELECT v FROM m)")
        next(told(query))
        replaced(sql, QUERIES[2])
        swap = begins(server)
        with pytest.raises(AdapterError, match=f'"m" was replaced at time {swap}'):
            list(told(query))
        changes = []
        for row in over:
            if row[1] and row[0] > swap:
                break
            changes += [] if row[1] else [row]
        assert {row[0] for row in changes} == {swap}
        # The other two rows are in both, and so in neither.
        assert [row[2:] for row in changes] == [(-1, 3, 2)]
        sql("DROP VIEW w")
        replaced(sql, "SELECT k FROM t")
        with pytest.raises(AdapterError, match="was replaced at time") as ended:
            list(over)
        assert 'column "v" would be gone' in str(ended.value.detail)
        sql("CREATE SUBSCRIPTION s TO m")
        with pytest.raises(AdapterError, match="its columns would change, and subscription s"):
            replaced(sql, QUERIES[0])


def test_what_lies_between_the_old_one_and_the_newest_stays_while_the_old_one_is_read() -> None:
    """Replaced twice while somebody follows the first: nobody holds the second, which is the way
    from there to the third."""
    with SqlServer(SystemClock()) as server:
        sql, core = server.session(), server.client.core
        sql(SETUP)
        sql("SELECT k FROM m")
        over = server.session().open("SUBSCRIBE m WITH (PROGRESS)")
        rows = told(over)
        next(rows)
        olds = [of(server)]
        replaced(sql, QUERIES[1])
        swaps = [begins(server)]
        olds.append(of(server))
        sql("INSERT INTO t VALUES (4, 4)")
        assert (4, 40) in sql("SELECT k, v FROM m")
        replaced(sql, QUERIES[3])
        swaps.append(begins(server))
        replacement.drop_abandoned(core, server.evaluator, server.materializations)
        assert set(olds) <= set(core.state.collections)
        found: Counter[Any] = Counter()
        for time, progressed, diff, *row in rows:
            if progressed and time > swaps[1]:
                break
            if not progressed:
                found[time, diff, *row] += 1
        first = [(1, 1), (2, 2), (3, 2)]
        tens = [(1, 10), (2, 20), (3, 20), (4, 40)]
        assert {row for row in found if row[0] == swaps[0]} == {
            *((swaps[0], -1, k, v) for k, v in first),
            *((swaps[0], 1, k, v) for k, v in tens[:3]),
        }
        assert {row for row in found if row[0] == swaps[1]} == {
            *((swaps[1], -1, k, v) for k, v in tens),
            *((swaps[1], 1, k, v) for k, v in ((2, 2), (3, 2), (4, 4))),
        }
        over.close()
        for old in olds:
            gone(server, old)


# ---- servers that die ----------------------------------------------------------------------------

LIVES = 3
EFFECTS_MAX = 40
"""At most so many effects a server lives; a replacement has about ten."""


class World:
    """A location, what is known of it for sure, and a consumer with a memory of its own."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.blob, self.log = MemoryBlob(), MemoryConsensus()
        self.meanings = [(0, 0)]
        """Since when the view is which of the queries."""
        self.asked = 0
        self.seen: dict[int, Counter[Any]] = {}
        """What the consumer had at each progress."""
        self.died: Mortal = Mortal()

    def open(self, dies_at: int | None) -> SqlServer:
        died = self.died = Mortal()
        ports = Stacked(died)
        client = open_location(
            blob=ports.blob(self.blob),
            consensus=ports.consensus(self.log),
            layouts=LAYOUTS,
            settings=Settings(maintenance=False),
            take_over=True,
        )
        if dies_at is not None:
            died.die_at(dies_at, self.random.choice(["before", "after"]))
        server = SqlServer(SystemClock(), client=client)
        failures = server.evaluator.failures

        def failing() -> Any:
            # Whoever waits for a view asks why it does not advance: its thread is dead.
            if died.dead:
                raise Crash("dead")
            return failures()

        server.evaluator.failures = failing  # type: ignore[method-assign]
        replacement.drop_abandoned(client.core, server.evaluator, server.materializations)
        return server

    def look(self, server: SqlServer) -> None:
        """Learn whether the last replacement took effect, of which nobody may have told us."""
        if begins(server) != self.meanings[-1][0]:
            self.meanings.append((begins(server), self.asked))

    def contents(self, server: SqlServer, time: int) -> Counter[Any]:
        """Return what the view is to be at a time."""
        query = [which for since, which in self.meanings if since <= time][-1]
        return model(query, server.session()(f"SELECT k, v FROM t AS OF {time}"))

    def act(self, server: SqlServer) -> None:
        sql, random = server.session(), self.random
        match random.randrange(4):
            case 0:
                self.asked = random.randrange(len(QUERIES))
                replaced(sql, QUERIES[self.asked])
                self.look(server)
            case 1:
                sql(f"DELETE FROM t WHERE k = {random.randrange(6)}")
            case _:
                sql(f"INSERT INTO t VALUES ({random.randrange(6)}, {random.randrange(8)})")
        if random.random() < 0.5:
            self.consume(server, whole=False)

    def consume(self, server: SqlServer, *, whole: bool) -> None:
        """Take what there is, or some of it, and acknowledge that, or not."""
        end = server.timeline.upper
        place = catalog.named(server.client.core.state, "s").place
        assert place is not None
        had = Counter[Any]() if place.acknowledged <= place.start else self.seen[place.acknowledged]
        batches = server.session().open("SUBSCRIBE TO SUBSCRIPTION s WITH (PROGRESS)")
        try:
            self._take(server, batches, Counter(had), end, whole=whole)
        finally:
            batches.close()

    def _take(
        self,
        server: SqlServer,
        batches: Generator[pa.RecordBatch, None, None],
        has: Counter[Any],
        end: int,
        *,
        whole: bool,
    ) -> None:
        first, pending = True, Counter[Any]()
        for time, progressed, diff, *row in told(batches):
            if not progressed:
                pending[tuple(row)] += diff
                continue
            if first:
                first = False
                continue
            for each, count in pending.items():
                has[each] += count
            pending.clear()
            wanted = self.contents(server, time - 1)
            assert {row: n for row, n in has.items() if n} == dict(wanted), (
                f"before {time}: {has}, not {wanted}; {self.meanings}"
            )
            self.seen[time] = Counter(has)
            if whole or self.random.random() < 0.3:
                server.session()(f"ACKNOWLEDGE s UP TO {time}")
            if time >= end or (not whole and self.random.random() < 0.3):
                return


@pytest.mark.parametrize("seed", seeds(1, 200))
def test_a_consumer_has_the_right_contents_at_every_progress_whoever_dies(seed: int) -> None:
    print(f"seed {seed}")
    random = Random(f"{seed}/replaced")
    world = World(random)
    server = world.open(None)
    server.session()(f"{SETUP} CREATE SUBSCRIPTION s TO m")
    server.stop()
    with quiet_crashes():
        for life in range(LIVES):
            dies_at = random.randrange(1, EFFECTS_MAX) if life + 1 < LIVES else None
            try:
                server = world.open(dies_at)
                world.look(server)
                for _ in range(5 if dies_at is None else 100):
                    world.act(server)
                world.consume(server, whole=True)
                assert server.session()("SELECT * FROM m") == sorted(
                    world.contents(server, server.timeline.upper - 1).elements(), key=repr
                )
                old = [name for _, name in replacement.abandoned(server.client.core.state)]
                for name in old:
                    names = server.client.core.state.names
                    gone(server, names.get(name, GlobalId(0)))
            except (Crash, HeadwaterError):
                if not world.died.dead:
                    raise
            finally:
                with suppress(Crash, HeadwaterError):
                    server.stop()

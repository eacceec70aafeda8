"""Numerics over the wire, in tables, views and keys: the same statements given to PostgreSQL.

What is kept is asked twice of each view: over rows that were there when it was made, and after they
have changed. A value of ours, rounded to the digits that PostgreSQL prints, is PostgreSQL's; what
PostgreSQL takes and ours does not is an error that says why (``REFUSED``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

import psycopg
import pytest

from headwater.adapter.coordinator import Coordinator
from headwater.adapter.pgwire import WireServer
from headwater.adapter.timeline import Timeline
from headwater.base.clock import SystemClock
from headwater.compute.controller import ViewController
from headwater.materialize.controller import Materializations
from headwater.persist.client import Client
from tests.spark.test_numerics import agrees
from tests.unit.adapter_dialect.postgres_side import started

pytestmark = [pytest.mark.spark, pytest.mark.server]

TABLES: Final = (
    "create table q (g int, l bigint, m numeric(12,2))",
    "create table p (a numeric(38,0) primary key, v int)",
    "create table d (d numeric(10,2), w int)",
    "create table b (k numeric primary key, v int)",
    "create table f (k numeric(11,10), v int)",
    "insert into q values (1,1,1.5),(1,2,1),(2,5,2.4),(3,null,null),(4,7,0.01)",
    "insert into p values (3,1),(2,2),(5,3),(-3,4)",
    "insert into d values (2.60,1),(3.00,2),(2.40,3),(-3,4)",
    "insert into b values (2,1),(2.5,2),(0.000001,3),(3,5)",
    "insert into f values (2.0000000001,1),(2.5,2)",
)
CHANGES: Final = (
    "update q set l = l + 1, m = m * 2 where g = 1",
    "delete from d where w = 3",
    "update d set d = 2.999 where w = 2",
    "insert into q values (1,10,7.77),(5,1,1)",
    "insert into f values (2.0,7)",
    "update b set v = v + 10 where k = 2.0000000001",
    "update b set v = v + 20 where k = '3.0'",
    "delete from b where k = '2.5000000001'",
    "delete from p where a = 5.0",
    "delete from p where a = 2.2",
    "insert into b values (2.0000000000, 9), (7.50, 8) on conflict (k) do update set v = 0",
)
VIEWS: Final = {
    "havings": "select g, sum(l) s from q group by g having sum(l) > 2.5",
    "joined": "select p.v, d.w from p join d on p.a = d.d",
    "joined_bare": "select b.v, f.v as w from b join f using (k)",
    "contained": "select v from p where a in (select d from d)",
    "missing": "select v from p where a not in (select d from d)",
    "averages": (
        "select g, avg(l) al, avg(m) am, sum(l)/nullif(sum(g),0) sq, sum(m)/3*3 sm,"
        " avg(m) filter (where l > 1) af, avg(distinct l) ad, nullif(sum(l), 2.6) n,"
        " case sum(l) when 2.6 then 'a' when 3 then 'b' end c from q group by g"
    ),
    "running": "select g, l, avg(l) over (partition by g order by l) a from q",
    "united": "select a as x from p union select d from d",
    "quotients": "select v, k / 3 t, (k / 3) * 3 = k same, k * k * k c, 1 / k r from b",
}
QUERIES: Final = (
    "select v from b where k = 2.0000000001",
    "select v from b where k = '2.0000000001'",
    "select v from b where k = 2.50",
    "select v from b where k in (2.0000000001, 2.5)",
    "select v from b where k = 2.0000000001::numeric",
    "select v from b where k < 2.0000000001",
    "select v from p where a = 2.6",
    "select v from p where a = '2.6'",
    "select v from p where a in (3, 2.6)",
    "select v from p where a >= all (select d from d)",
    "select v from p where a < any (select d from d)",
    "select greatest(a, 2.6), least(a, 2.60), (a, 1) = (2.6, 1) from p",
    "select a from p intersect select d from d",
    "select a from p except select d from d",
    "select a / 7 as s, count(*) from p group by a / 7 having sum(a / 7) > -9 order by a / 7",
    "select sum(m) as x from q union all select avg(m) from q union all select avg(l) / 7 from q",
    "select - x, abs(- x) from (select 12345678901234567890123456789012345678::numeric x) s",
)
PARAMETERS: Final = (
    ("select v from b where k = %b", Decimal("2.0000000001")),
    ("select v from b where k = %t", Decimal("2.5")),
    ("select v from b where k < %b", Decimal("2.0000000001")),
    ("select v from p where a = %b", Decimal("2.6")),
)
REFUSED: Final = {
    "insert into b values (0.00000000049, 90)": "has 11 digits after the point, of which 9",
    "insert into b values ('0.00000000049', 90)": "has 11 digits after the point, of which 9",
    "insert into b values (1e30, 90)": "has 31 digits before the point, of which 29",
    "insert into b select 1.0 / 3, 90": "has 20 digits after the point, of which 9",
    "update b set k = k / 7": "digits after the point, of which 9",
    "create table e (a numeric default 0.00000000049)": "has 11 digits after the point",
    "select a * a * a * 1e37 from p where a = 3": "the product of numeric(38,0) and numeric(38,0)",
    "select k / 7000000000 from b where v = 8": "the quotient of numeric and bigint needs 28",
}


class Answers:
    """A session, and what it says."""

    def __init__(self, session: psycopg.Connection[Any]) -> None:
        self._session = session

    def __call__(self, sql: str, *given: Any) -> list[tuple[Any, ...]]:
        cursor = self._session.execute(sql.encode(), given or None)
        return cursor.fetchall() if cursor.description else []


@pytest.fixture
def ours(client: Client, spark: Any) -> Iterator[Answers]:
    timeline = Timeline(client, SystemClock())
    views, materializations = ViewController(client, spark), Materializations(client)
    coordinator = Coordinator(client, timeline, views, materializations)
    views.start()
    timeline.start()
    with WireServer("127.0.0.1", 0, coordinator) as wire:
        where = f"host={wire.host} port={wire.port} user=headwater"
        with psycopg.connect(where, autocommit=True) as session:
            yield Answers(session)
    views.stop()
    timeline.stop()


@pytest.fixture
def theirs() -> Iterator[Answers]:
    with started() as session:
        session.autocommit = True
        yield Answers(session)


def _same(one: list[tuple[Any, ...]], other: list[tuple[Any, ...]]) -> bool:
    def key(row: tuple[Any, ...]) -> list[Any]:
        return [
            (value is None, float(value) if isinstance(value, int | Decimal) else str(value))
            for value in row
        ]

    pairs = zip(sorted(one, key=key), sorted(other, key=key), strict=False)
    return len(one) == len(other) and all(
        a is b is None or agrees(a, b) for rows in pairs for a, b in zip(*rows, strict=True)
    )


def test_numerics_are_kept_as_postgresql_has_them(ours: Answers, theirs: Answers) -> None:
    different = Counter[str]()

    def ask(sql: str, *given: Any) -> None:
        if not _same(theirs(sql, *given), ours(sql, *given)):
            different[sql] += 1

    for sql in TABLES:
        ours(sql)
        theirs(sql)
    for name, query in VIEWS.items():
        ours(f"create materialized view {name} as {query}")
        theirs(f"create view {name} as {query}")
    for sql in (*(f"select * from {name}" for name in VIEWS), *QUERIES):
        ask(sql)
    for sql in CHANGES:
        ours(sql)
        theirs(sql)
    for sql in (*(f"select * from {name}" for name in VIEWS), *VIEWS.values(), *QUERIES[:7]):
        ask(sql)
    for sql, value in PARAMETERS:
        ask(sql, value)
    assert not different

    for sql, words in REFUSED.items():
        said = ""
        try:
            ours(sql)
        except psycopg.errors.NumericValueOutOfRange as refused:
            said = str(refused)
        assert words in said, (sql, said)
        assert "Decimal" not in said


def test_what_does_not_fit_is_an_error_of_the_view(ours: Answers) -> None:
    ours("create table b (k numeric, v int)")
    ours("create materialized view cubes as select v, k * k * k as c from b")
    ours("insert into b values (1e15, 1), (2, 2)")
    with pytest.raises(psycopg.Error, match="the product of numeric and numeric has 31 digits"):
        ours("select * from cubes")
    ours("delete from b where v = 1")
    assert ours("select v, c from cubes") == [(2, 8)]

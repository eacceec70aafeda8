"""Functions of the user's in maintained views: called for what changed, right wherever SQL has one.

Each view is held against Spark, which calls the functions itself, at every time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.functions import udf

from headwater.algebra.frontier import Frontier
from headwater.base.ids import GlobalId
from headwater.compute.controller import ViewController
from headwater.compute.maintained import MaintainedView, plan_group, plan_view
from headwater.compute.select import QueryFailed
from headwater.persist.client import Client, WriteHandle
from headwater.persist.errors import CollectionHasErrors
from headwater.persist.state import State
from tests.spark.shape_story import Story

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.int64())])
PATIENCE_SECONDS = 120.0


def _band(amount: Any) -> str | None:
    return None if amount is None else ("low" if amount < 0 else "high") + "'s"


def _tagged(amount: int | None, end: str | None) -> str | None:
    return None if amount is None or end is None else f"{amount % 7}{end}"


def _upto(amount: int | None) -> list[int] | None:
    return None if amount is None else list(range(abs(amount) % 5))


def _both(amount: int | None) -> tuple[int | None, str]:
    return amount, str(amount)


def _more(credit: Decimal | None) -> Decimal | None:
    return None if credit is None else credit + Decimal("0.01")


def _near(left: int | None, right: int | None) -> bool:
    return left is not None and right is not None and abs(left - right) <= 1


def _root(x: int) -> float:
    if x <= 0:
        raise ValueError(f"no root of {x}")
    return float(x**0.5)


def _fussy(x: float | None) -> float:
    if x is None:
        raise OSError("no row is to blame for this")
    return x


FUNCTIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "band": (_band, "string"),
    "tagged": (_tagged, "string"),
    "upto": (_upto, "array<int>"),
    "both": (_both, "lo bigint, hi string"),
    "more": (_more, "decimal(14,2)"),
    "near": (_near, "boolean"),
    "seven": (lambda: 7, "int"),
    "root": (_root, "double"),
    "fussy": (_fussy, "double"),
}

QUERIES = {
    "nested": "SELECT tagged(size(upto(amount)), band(amount)) AS a, both(amount).hi AS b "
    "FROM orders",
    "filtered": "SELECT *, seven() AS s FROM orders "
    "WHERE amount <> 1 AND band(10 div amount) = 'low''s' OR region IS NULL",
    "case": "SELECT CASE WHEN customer > 1 THEN band(amount) ELSE region END AS c FROM orders",
    "left": "SELECT o.region, more(c.credit) AS m FROM orders o LEFT JOIN customers c "
    "ON o.customer = c.id AND band(c.credit) = 'low''s'",
    "pairs": "SELECT o.region, c.tier FROM orders o JOIN customers c ON near(o.customer, c.id)",
    "grouped": "SELECT band(amount) AS b, count(*) AS n, max(tagged(amount, region)) AS m, "
    "sum(size(upto(amount))) FILTER (WHERE band(amount) <> 'x') AS s "
    "FROM orders GROUP BY band(amount) HAVING tagged(count(*), 'x') <> '3x'",
    "ranked": "SELECT region, row_number() OVER "
    "(PARTITION BY band(amount) ORDER BY tagged(amount, 'x'), region, customer) AS r FROM orders",
    "exploded": "SELECT DISTINCT e FROM orders LATERAL VIEW explode(upto(amount)) AS e",
    "without": "SELECT region FROM orders "
    "WHERE band(amount) NOT IN (SELECT band(credit) FROM customers)",
}
ABOVE = "SELECT band(e) AS b FROM orders LATERAL VIEW explode(upto(amount)) AS e"


def _registered(spark: Any, *, arrow: bool) -> Any:
    session = spark.newSession()
    for name, (function, returns) in FUNCTIONS.items():
        session.udf.register(name, udf(function, returns, useArrow=arrow))
    return session


@pytest.mark.parametrize("arrow", [False, True])
def test_views_that_call_functions_are_exact_at_every_time(
    spark: Any, client: Client, arrow: bool
) -> None:
    session = _registered(spark, arrow=arrow)
    story = Story(11 + arrow, session)
    story.go_on(client, 2)
    controller = ViewController(client, session)
    for name, sql in QUERIES.items():
        assert isinstance(controller.create_view(name, sql), MaintainedView), name
    told = controller.explain_query(ABOVE, relations={"orders": "orders"})
    assert "recomputed" in told
    assert "band() is a function in Python above a generator" in told
    controller.run_once()
    story.go_on(client, 3)
    controller.run_once()
    assert controller.failures() == {}
    for name, sql in QUERIES.items():
        story.check(client, controller, name, sql)


FAILING = {
    "filtered": "SELECT root(x) AS r FROM t WHERE root(x) > 1 AND x > 0",
    "case": "SELECT CASE WHEN x > 0 THEN root(x) END AS r FROM t",
    "argument": "SELECT root(10 DIV x) AS r FROM t WHERE k <> 3",
    "joined": "SELECT root(t.x) AS r FROM t JOIN s ON t.k = s.k",
    "between": "SELECT k FROM t WHERE x BETWEEN 1 AND 100 AND root(x) >= 0",
    "nested": "SELECT fussy(root(x)) AS y FROM t",
    "optional": "SELECT root(s.x) AS r FROM t LEFT JOIN s ON t.k = s.k",
    "summed": "SELECT k, sum(root(x)) FILTER (WHERE x > 0) AS r FROM t GROUP BY k",
}


def test_a_view_fails_when_its_query_does(spark: Any, client: Client) -> None:
    session = _registered(spark, arrow=False)
    t, s = (client.create_or_load(name, SCHEMA)[0] for name in "ts")
    controller = ViewController(client, session)
    for name, sql in FAILING.items():
        assert isinstance(controller.create_view(name, sql), MaintainedView), name
    _become(t, [[(1, 4)], [(2, 0)], [(3, -4)], [(1, 9), (1, 9)], []])
    _become(s, [[(1, 4)], [], [(9, -4)], [(3, -1)], [(1, 1)]])
    controller.run_once()
    assert controller.failures() == {}
    failed = 0
    for name, sql in FAILING.items():
        for time in (1, 2, 3):
            found = _or_error(partial(_seen, client, name, time))
            expected = _or_error(partial(_asked, controller, sql, time))
            assert found == expected, f"{name} at {time}"
            failed += found is None
    assert failed >= len(FAILING)


def _become(write: WriteHandle, states: list[list[tuple[int, int]]]) -> None:
    """Write what makes the table each of these, one after the other."""
    updates: list[tuple[dict[str, int], int, int]] = []
    before: list[tuple[int, int]] = []
    for time, rows in enumerate(states):
        for diff, some in ((1, rows), (-1, before)):
            updates += [({"k": k, "x": x}, time, diff) for k, x in some]
        before = rows
    write.compare_and_append(updates, 0, len(states)).result()


def _or_error(ask: Callable[[], list[Any]]) -> list[str] | None:
    """Return rows, in an order; ``None``: an error of the data."""
    try:
        return sorted(map(str, ask()))
    except (CollectionHasErrors, QueryFailed):
        return None


def _seen(client: Client, view: str, time: int) -> list[Any]:
    rows = client.reader(view).snapshot(time).to_table().to_pylist()
    return [row for row in rows for _ in range(row.pop("__diff"))]


def _asked(controller: ViewController, sql: str, time: int) -> list[Any]:
    rows: list[Any] = controller.select(sql, as_of=time).to_pylist()
    return rows


# ---- what is called, and who waits for it -----------------------------------------------------


@pytest.mark.parametrize("by_ranges", [False, True])
def test_a_function_is_called_for_what_changed(
    spark: Any, client: Client, tmp_path: Path, by_ranges: bool
) -> None:
    calls = tmp_path / "calls"
    calls.touch()

    def counted(x: int) -> int:
        with calls.open("a") as file:
            file.write(f"{x}\n")
        return 2 * x

    session = spark.newSession()
    session.udf.register("counted", udf(counted, "bigint", useArrow=False))
    write, _ = client.create_or_load("t", SCHEMA)
    controller = ViewController(client, session)
    controller.create_view("view", "SELECT counted(x) AS y, counted(x) + 1 AS z FROM t WHERE k > 0")
    if by_ranges:
        controller._stepper.range_rows = 20
    controller.create_view("other", "SELECT k, count(*) AS n FROM t GROUP BY k")
    rows = [({"k": n % 10, "x": n}, 0, 1) for n in range(100)]
    write.compare_and_append(rows, 0, 1).result()
    controller.run_once()
    assert len(calls.read_text().split()) == 90
    calls.write_text("")
    changes = [({"k": 7, "x": 7}, 1, -1), ({"k": 7, "x": 1000}, 1, 1), ({"k": 0, "x": 1001}, 1, 1)]
    write.compare_and_append(changes, 1, 2).result()
    assert set(controller.run_once()) == {"view", "other"}
    assert sorted(calls.read_text().split()) == ["1000", "7"]


@contextmanager
def _running(controller: ViewController) -> Iterator[None]:
    controller.start()
    try:
        yield
    finally:
        controller.stop()


def _waiting(session: Any, folder: Path) -> tuple[Path, Path]:
    """Register a function that waits at 0; return what it waits for, and what it makes then."""
    gate, ended = folder / "gate", folder / "ended"

    def waits(x: int) -> int:
        until = monotonic() + PATIENCE_SECONDS
        while x == 0 and not gate.exists() and monotonic() < until:
            sleep(0.05)
        if x == 0:
            ended.touch()
        return -x

    session.udf.register("waits", udf(waits, "bigint", useArrow=False))
    return gate, ended


def test_nobody_waits_for_a_function(spark: Any, client: Client, tmp_path: Path) -> None:
    """A view that shares an arrangement with one whose function waits goes on meanwhile."""
    session = spark.newSession()
    gate, _ = _waiting(session, tmp_path)
    t, s = (client.create_or_load(name, SCHEMA)[0] for name in "ts")
    controller = ViewController(client, session)
    joined = "FROM t JOIN s ON t.k = s.k"
    slow = controller.create_view("slow", f"SELECT t.k, waits(t.x + s.x) AS y {joined}")
    quick = controller.create_view("quick", f"SELECT t.k, t.x + s.x AS y {joined}")
    assert isinstance(slow, MaintainedView)
    assert isinstance(quick, MaintainedView)
    assert slow.shared
    assert slow.shared == quick.shared
    _become(t, [[(1, 1)]])
    _become(s, [[(1, 1), (2, -2)]])
    with _running(controller):
        _reach(controller, slow, 1)
        _reach(controller, quick, 1)
        for time in range(1, 6):
            t.compare_and_append([({"k": 2, "x": time + 1}, time, 1)], time, time + 1).result()
            s.compare_and_append([({"k": 1, "x": time}, time, 1)], time, time + 1).result()
            _reach(controller, quick, time + 1)
        assert controller.view_upper(slow.id) == Frontier.of(1)
        gate.touch()
        _reach(controller, slow, 6)
        # From then on it keeps up, whoever writes what they share.
        t.compare_and_append([({"k": 1, "x": 1}, 6, -1)], 6, 7).result()
        s.compare_and_append([], 6, 7).result()
        _reach(controller, slow, 7)
    assert controller.failures() == {}
    for time in range(client.reader("slow").since.only(), 7):
        pairs = (_seen(client, name, time) for name in ("slow", "quick"))
        found, expected = (sorted((row["k"], row["y"]) for row in rows) for rows in pairs)
        assert found == sorted((k, -y) for k, y in expected), f"at {time}"
    # What both use is written by the one, so that the other need not begin again for it.
    for write in (t, s):
        write.compare_and_append([({"k": 1, "x": 1}, 7, 1)], 7, 8).result()
    written = partial(_written, client.core.state)
    assert written(slow, [slow, quick]) == set()
    assert written(quick, [slow, quick]) == written(slow, [slow]) == set(slow.shared)


def test_nobody_waits_for_a_function_in_vain(spark: Any, client: Client, tmp_path: Path) -> None:
    """Not for one of a view that was dropped or replaced, nor when all is stopped."""
    session = spark.newSession()
    _, ended = _waiting(session, tmp_path)
    t, _ = client.create_or_load("t", SCHEMA)
    controller = ViewController(client, session)
    slow = controller.create_view("slow", "SELECT waits(x) AS y FROM t")
    assert isinstance(slow, MaintainedView)
    other = controller.create_view("other", "SELECT waits(x) AS y FROM t WHERE x <> 0")
    assert isinstance(other, MaintainedView)
    _become(t, [[(1, 1)]])
    with _running(controller):
        _reach(controller, other, 1)
        _reach(controller, slow, 1)
        t.compare_and_append([({"k": 1, "x": 0}, 1, 1)], 1, 2).result()
        _await_call(controller)
        controller.drop_view("slow")
        _reach(controller, other, 2)
        again = controller.create_view("again", "SELECT k, waits(x) AS y FROM t WHERE k > 1")
        assert isinstance(again, MaintainedView)
        _reach(controller, again, 2)
        # A first step is one, too, and others' first steps do not wait for it.
        controller.create_view("first", "SELECT waits(x) AS y FROM t")
        _await_call(controller)
        quick = controller.create_view("quick", "SELECT k FROM t")
        assert isinstance(quick, MaintainedView)
        _reach(controller, quick, 2)
        controller.drop_view("first")
        t.compare_and_append([({"k": 2, "x": 0}, 2, 1)], 2, 3).result()
        _await_call(controller)
    assert not ended.exists()
    assert controller.failures() == {}


def _await_call(controller: ViewController) -> None:
    until = monotonic() + PATIENCE_SECONDS
    while not controller._stepper._jobs:
        assert monotonic() < until
        sleep(0.02)
    sleep(0.5)  # For the function to be reached; if it is not, that is the easier case.


def _written(state: State, view: MaintainedView, live: list[MaintainedView]) -> set[GlobalId]:
    step = plan_view(state, view)
    assert step is not None
    return {one.id for one in plan_group(state, [step], live).advanced()}


def _reach(controller: ViewController, view: MaintainedView, time: int) -> None:
    until = monotonic() + PATIENCE_SECONDS
    while controller.view_upper(view.id) != Frontier.of(time):
        assert monotonic() < until, f"{view.name} did not come to {time}: {controller.failures()}"
        sleep(0.02)

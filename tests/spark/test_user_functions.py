"""Functions of the user's in Python: a view has them with it, and is exact at every time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.functions import pandas_udf, udf, udtf

from headwater.collection.run_layout import LAYOUTS
from headwater.compute import definition
from headwater.compute.catalyst.compiler import Workspace
from headwater.compute.catalyst.render import execute
from headwater.compute.controller import ViewController
from headwater.compute.ir import plan as plans
from headwater.compute.ir.plan import Plan
from headwater.compute.ir.refusal import Refused
from headwater.compute.maintained import MaintainedView
from headwater.compute.query import Query
from headwater.compute.recompute import RecomputedView
from headwater.persist.client import Client, WriteHandle, open_location
from headwater.persist.commands import SetItem
from headwater.persist.errors import CollectionHasErrors
from headwater.persist.state import violations
from tests.spark.shape_story import Story

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.int64())])


def _band(amount: int | None) -> str | None:
    return None if amount is None else ("low" if amount < 0 else "high") + "'s"


def _arrowed(amount: int | None, end: str) -> str | None:
    return None if amount is None else (_band(amount) or "")[:-2] + end


def _half(amounts: pd.Series) -> pd.Series:
    return amounts / 2


QUERIES = {
    "projected": "SELECT region, band(amount) AS b, half(amount + 1) AS h FROM orders",
    "filtered": "SELECT * FROM orders WHERE arrowed(amount, 'h') = 'highh'",
    "grouped": "SELECT band(amount) AS b, count(*) AS n, max(half(amount)) AS h FROM orders "
    "GROUP BY band(amount)",
    "joined": "SELECT o.region, c.credit FROM orders o JOIN customers c "
    "ON o.customer = c.id AND band(o.amount) = band(c.credit)",
}


def _registered(spark: Any) -> Any:
    """Return a session with one function of each kind: by rows, by Arrow, by pandas."""
    session = spark.newSession()
    session.udf.register("band", udf(_band, "string", useArrow=False))
    session.udf.register("arrowed", udf(_arrowed, "string", useArrow=True))
    session.udf.register("half", pandas_udf(_half, "double"))
    return session


def _table(client: Client, name: str = "t") -> WriteHandle:
    return client.create_or_load(name, SCHEMA)[0]


def _values(client: Client, view: str, time: int) -> list[Any]:
    rows = client.reader(view).snapshot(time).to_table()
    column = rows.column(0).to_pylist()
    counted = Counter(dict.fromkeys(column, 0))
    for value, diff in zip(column, rows.column("__diff").to_pylist(), strict=True):
        counted[value] += diff
    return sorted(counted.elements())


def _plan(controller: ViewController, name: str) -> Plan:
    (view,) = (view for view in controller.views() if view.name == name)
    return plans.decoded(view.plan)


def test_every_kind_of_function_is_exact_at_every_time(spark: Any, client: Client) -> None:
    session = _registered(spark)
    story = Story(11, session)
    story.go_on(client, 2)
    controller = ViewController(client, session)
    for name, sql in QUERIES.items():
        view = controller.create_view(name, sql)
        told = controller.explain(name)
        if "half" in sql:
            assert isinstance(view, RecomputedView)
            assert "half(): a function in Python that is called with many rows at a time" in told
        else:
            assert isinstance(view, MaintainedView)
            assert ("band(amount" if name == "joined" else "arrowed(amount") in told
    assert {f.eval_type for f in _plan(controller, "projected").functions} == {100, 200}
    assert {f.eval_type for f in _plan(controller, "filtered").functions} == {101}
    controller.run_once()
    story.go_on(client, 2)
    controller.run_once()
    assert controller.failures() == {}
    for name, sql in QUERIES.items():
        story.check(client, controller, name, sql)
    assert not list(violations(client.core.state))


PLACES = {
    "nested": "SELECT k, band(CAST(half(x) AS BIGINT)) AS b FROM t",
    "struct": "SELECT k, both(x).lo AS lo, both(x).hi AS hi FROM t",
    "exploded": "SELECT k, e FROM t LATERAL VIEW explode(upto(x)) AS e",
    "having": "SELECT k, count(*) AS n FROM t GROUP BY k HAVING band(max(x)) = 'high''s'",
    "ordered": "SELECT k, x, row_number() OVER (PARTITION BY band(x) ORDER BY half(x)) AS r FROM t",
    "outer": "SELECT t.k, s.y FROM t LEFT JOIN s ON band(t.x) = band(s.y)",
    "case": "SELECT CASE WHEN k > 2 THEN day_after(d) END AS d FROM s",
    "named": "SELECT arrowed(`end` => 'h', amount => x) AS a FROM t",
    "batches": "SELECT grown(x) AS g FROM t",
}


def _day_after(day: date | None) -> date | None:
    return None if day is None else day + timedelta(days=1)


def _grown(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
    for batch in batches:
        yield batch + 1


@pytest.mark.parametrize("name", PLACES)
def test_a_function_is_called_wherever_sql_has_one(spark: Any, name: str) -> None:
    """The plan, through its bytes and in a session that knows no function, beside the query."""
    session = _registered(spark)
    session.udf.register("both", udf(lambda x: (x, x), "lo bigint, hi bigint", useArrow=False))
    session.udf.register("upto", udf(lambda x: list(range(x or 0)), "array<int>", useArrow=True))
    session.udf.register("day_after", udf(_day_after, "date", useArrow=False))
    session.udf.register("grown", pandas_udf(_grown, "double"))
    tables = {
        "t": pa.table({"k": [1, 2, 2, 3], "x": pa.array([3, -4, None, 6], pa.int64())}),
        "s": pa.table({"k": [1, 3], "y": [6, 12], "d": [date(2024, 2, 28), None]}),
    }
    workspace = Workspace(session, {name: table.schema for name, table in tables.items()})
    plan = plans.decoded(plans.encoded(workspace.compile_sql(PLACES[name])))
    assert plan.functions
    other = spark.newSession()
    found = execute(other, plan, {n: other.createDataFrame(t) for n, t in tables.items()}).collect()
    for table, rows in tables.items():
        session.createDataFrame(rows).createOrReplaceTempView(table)
    expected = session.sql(PLACES[name]).collect()
    assert Counter(map(str, found)) == Counter(map(str, expected))
    assert expected


def test_a_view_keeps_the_functions_that_it_was_made_with(spark: Any, client: Client) -> None:
    session = spark.newSession()
    write = _table(client)
    controller = ViewController(client, session)
    for view, factor in (("twos", 2), ("threes", 3)):
        session.udf.register("times", lambda x, by=factor: by * x, "bigint")
        controller.create_view(view, "SELECT times(x) AS y FROM t")
    by_code = udf(lambda x: 5 * x, "bigint", useArrow=False)
    controller.create_view("fives", lambda table: table("t").select(by_code("x").alias("y")))
    session.udf.register("times", lambda _: 0, "bigint")
    names = {view: _plan(controller, view).functions[0].called for view in ("twos", "threes")}
    assert len(set(names.values())) == 2
    write.compare_and_append([({"k": 1, "x": 7}, 0, 1), ({"k": 1, "x": 8}, 1, 2)], 0, 2).result()
    assert controller.run_once() == ("twos", "threes", "fives"), controller.failures()
    assert _values(client, "twos", 1) == [14, 16, 16]
    assert _values(client, "threes", 1) == [21, 24, 24]
    assert _values(client, "fives", 1) == [35, 40, 40]
    # Made anew from its text, it means what it meant.
    plan = msgspec.structs.replace(_plan(controller, "twos"), spark_version="3.0.0")
    _stored_as(client, controller, "twos", plan)
    write.compare_and_append([({"k": 1, "x": 7}, 2, -1)], 2, 3).result()
    assert "twos" in controller.run_once(), controller.failures()
    assert _plan(controller, "twos").spark_version == spark.version
    assert _values(client, "twos", 2) == [16, 16]


def _stored_as(client: Client, controller: ViewController, name: str, plan: Plan) -> None:
    (view,) = (view for view in controller.views() if view.name == name)
    other = msgspec.structs.replace(view, plan=plans.encoded(plan))
    client.core.submit(SetItem(definition.item_key(view.id), definition.encoded(other))).result()


def test_a_view_goes_on_without_the_code_it_was_made_of(spark: Any, tmp_path: Path) -> None:
    """A module of the user's, in a process that has ended; its file is gone too."""
    module = tmp_path / "pricing.py"
    module.write_text(
        "RATES = {1: 10, 2: 20}\n"
        "def rate(k):\n    return RATES.get(k, 1)\n"
        "def price(k, x):\n    return rate(k) * x\n"
    )
    directory = tmp_path / "data"
    with open_location(directory, layouts=LAYOUTS) as client:
        _table(client).compare_and_append([({"k": 1, "x": 3}, 0, 1)], 0, 1).result()
    story = Path(__file__).parent / "user_function_story.py"
    path = os.pathsep.join([str(tmp_path), *sys.path])
    ended = subprocess.run(
        [sys.executable, str(story), str(directory)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["by_sql", "by_frame"]
    module.unlink()
    with open_location(directory, layouts=LAYOUTS) as client:
        updates = [({"k": 2, "x": 4}, 1, 1), ({"k": 1, "x": 3}, 2, -1)]
        _table(client).compare_and_append(updates, 1, 3).result()
        controller = ViewController(client, spark)
        assert controller.run_once() == ("by_sql", "by_frame"), controller.failures()
        for view in ("by_sql", "by_frame"):
            assert [_values(client, view, time) for time in range(3)] == [[30], [30, 80], [80]]


def test_code_of_another_python_stalls_its_view_alone(spark: Any, client: Client) -> None:
    session = _registered(spark)
    write = _table(client)
    controller = ViewController(client, session)
    controller.create_view("view", "SELECT half(x) AS y FROM t")
    controller.create_view("other", "SELECT band(x) AS y FROM t")
    plan = _plan(controller, "view")
    older = msgspec.structs.replace(plan.functions[0], python="2.7")
    _stored_as(client, controller, "view", msgspec.structs.replace(plan, functions=(older,)))
    write.compare_and_append([({"k": 1, "x": 6}, 0, 1)], 0, 1).result()
    assert controller.run_once() == ("other",)
    (why,) = controller.failures().values()
    assert "'view'" in why
    assert "half() is code of Python 2.7" in why
    assert "drop the view and create it again" in why
    _stored_as(client, controller, "view", plan)
    assert controller.run_once() == ("view",), controller.failures()
    assert _values(client, "view", 0) == [3.0]


def _root(x: int) -> float:
    if x < 0:
        raise ValueError(f"no root of {x}")
    return float(x**0.5)


@pytest.mark.parametrize("arrow", [False, True])
def test_an_error_of_values_is_an_error_of_the_view_while_its_row_is_there(
    spark: Any, client: Client, arrow: bool
) -> None:
    session = spark.newSession()
    session.udf.register("root", udf(_root, "double", useArrow=arrow))
    write = _table(client)
    controller = ViewController(client, session)
    controller.create_view("view", "SELECT root(x) AS y FROM t")
    updates = [({"k": 1, "x": 9}, 0, 1), ({"k": 2, "x": -4}, 1, 1), ({"k": 2, "x": -4}, 3, -1)]
    write.compare_and_append(updates, 0, 4).result()
    assert controller.run_once() == ("view",), controller.failures()
    for time in (1, 2):
        with pytest.raises(CollectionHasErrors, match=r"ValueError: no root of -4 \(in root\(\)\)"):
            client.reader("view").snapshot(time).to_table()
    assert _values(client, "view", 0) == _values(client, "view", 3) == [3.0]


def test_what_may_be_the_machines_fault_is_no_answer(
    spark: Any, client: Client, tmp_path: Path
) -> None:
    """The view stalls and is tried again: as soon as the file is there, it goes on."""
    rates = tmp_path / "rates"
    session = spark.newSession()
    session.udf.register("rated", lambda x: x * int(rates.read_text()), "bigint")
    write = _table(client)
    controller = ViewController(client, session)
    controller.create_view("view", "SELECT rated(x) AS y FROM t")
    controller.create_view("other", "SELECT x FROM t")
    write.compare_and_append([({"k": 1, "x": 9}, 0, 1)], 0, 1).result()
    assert controller.run_once() == ("other",)
    (why,) = controller.failures().values()
    assert "view 'view' could not be stepped: rated() raised FileNotFoundError" in why
    assert why.endswith("if a row is to blame let it raise ValueError: the view then has an error")
    rates.write_text("3")
    assert controller.run_once() == ("view",)
    assert controller.failures() == {}
    assert _values(client, "view", 0) == [27]


def _aggregating(session: Any) -> str:
    def mean(values: pd.Series) -> float:
        return float(values.mean())

    session.udf.register("own_mean", pandas_udf(mean, "double"))
    return "SELECT k, own_mean(x) AS m FROM t GROUP BY k"


def _tabular(session: Any) -> str:
    @udtf(returnType="y bigint")
    class Both:
        def eval(self, x: int) -> Any:
            yield (x,)

    session.udtf.register("both", Both)
    return "SELECT y FROM t, LATERAL both(x)"


def _chance(session: Any) -> str:
    chance = udf(lambda x: x, "bigint", useArrow=False).asNondeterministic()
    session.udf.register("chance", chance)
    return "SELECT chance(x) AS y FROM t"


def _broadcast(session: Any) -> str:
    held = session.sparkContext.broadcast([1])
    session.udf.register("held", lambda x: x + held.value[0], "bigint")
    return "SELECT held(x) AS y FROM t"


def _recursive(session: Any) -> str:
    session.udf.register("less", lambda x: x - 1, "bigint")
    return (
        "WITH RECURSIVE down(n) AS (SELECT max(x) FROM t UNION ALL "
        "SELECT less(n) FROM down WHERE n > 0) SELECT n FROM down"
    )


def _between(session: Any) -> str:
    session.udf.register("near", lambda x, y: x == y, "boolean")
    return "SELECT a.x FROM t a FULL JOIN t b ON a.k = b.k AND near(a.x, b.x)"


def _of_batches(_: Any) -> Query:
    return lambda table: table("t").mapInPandas(lambda batches: batches, "k bigint, x bigint")


def _of_groups(_: Any) -> Query:
    return lambda table: table("t").groupBy("k").applyInPandas(lambda g: g, "k bigint, x bigint")


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (
            _aggregating,
            r"own_mean\(\).* an aggregating function in Python is given rows in an order",
        ),
        (_tabular, r"both\(\).* a table function in Python may keep what it saw"),
        (_chance, r"chance\(\).* it is not deterministic"),
        (_broadcast, r"held\(\).* it refers to broadcast variables"),
        (_recursive, r"WITH RECURSIVE with less\(\)"),
        (_between, r"near\(\): Spark cannot call it there"),
        (_of_batches, r"MapInPandas.*: which rows a function in Python is given together"),
        (_of_groups, r"FlatMapGroupsInPandas.*: which rows a function in Python is given together"),
    ],
)
def test_other_functions_are_refused_with_the_reason(
    spark: Any, client: Client, made: Callable[[Any], Query], why: str
) -> None:
    session = spark.newSession()
    _table(client)
    before = client.core.state
    with pytest.raises(Refused, match=why):
        ViewController(client, session).create_view("view", made(session))
    assert client.core.state is before

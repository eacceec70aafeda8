"""DataFrame code compiles like SQL: the plan has the rows of the frame, on random rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headwater.compute.catalyst.compiler import Workspace
from headwater.compute.catalyst.render import execute
from headwater.compute.ir.plan import Plan
from headwater.compute.ir.refusal import Refused
from headwater.testing.few_rows import for_few_rows
from tests.queries.tables import schemas, tables
from tests.spark.test_catalyst_roundtrip import SEED, rows_of, types_of

pytestmark = pytest.mark.spark

Table = Callable[[str], Any]


def f() -> Any:
    import pyspark.sql.functions as functions

    return functions


def w() -> Any:
    from pyspark.sql import Window

    return Window


def _with_itself(frame: Any) -> Any:
    pairs = frame.alias("x").join(frame.alias("y"), f().expr("x.q = y.q"))
    return pairs.select("x.a", "y.q")


FRAMES: dict[str, Callable[[Table], Any]] = {
    "filter_select": lambda t: t("t").where("a > 2").select("a", (f().col("b") * 2).alias("x")),
    "group": lambda t: t("t").groupBy("s").agg(f().sum("b"), f().avg("d"), f().count("*")),
    "join_using": lambda t: t("t").join(t("u"), "a").select("a", "b", "c"),
    "join_left": lambda t: t("t").join(t("u"), t("t").a == t("u").a, "left").select("b", "c"),
    "join_anti": lambda t: t("t").join(t("u"), "a", "left_anti").select("a", "b"),
    "self_join": lambda t: (
        t("u").alias("x").join(t("u").alias("y"), f().expr("x.k = y.a")).select("x.c", "y.k")
    ),
    "replaced_self_join": lambda t: _with_itself(
        t("t").select("a", f().left(f().nullif("s", f().lit("x")), f().lit(1)).alias("q"))
    ),
    "union_by_name": lambda t: (
        t("u").select("k", "a").unionByName(t("u").select("a", f().col("c").alias("k")))
    ),
    "window": lambda t: t("u").withColumn(
        "r", f().row_number().over(w().partitionBy("s").orderBy("k"))
    ),
    "distinct": lambda t: t("t").select("a", "s").distinct(),
    "drop_duplicates": lambda t: t("u").dropDuplicates(["k"]),
    "except_all": lambda t: t("t").select("a").exceptAll(t("u").select("a")),
    "order_limit": lambda t: t("u").orderBy(f().desc("k")).limit(7).select("c"),
    "limit_offset": lambda t: t("u").orderBy("k").limit(10).offset(4),
    "explode": lambda t: t("t").select("a", f().explode("xs").alias("x")),
    "pivot": lambda t: t("t").groupBy("a").pivot("s", ["x", "y"]).agg(f().sum("b")),
    "rollup": lambda t: t("t").rollup("a", "s").agg(f().count("*").alias("n")),
    "unpivot": lambda t: (
        t("u")
        .select("k", "c", f().col("a").cast("bigint").alias("a"))
        .unpivot("k", ["c", "a"], "n", "v")
    ),
    "drop_all": lambda t: t("t").select("a", "f").na.drop("all"),
    "drop_any": lambda t: t("t").select("a", "f").na.drop(),
    "fill_drop": lambda t: t("t").select("a", "b").na.fill(0).na.drop().filter("a <> b"),
    "repartition": lambda t: (
        t("t").repartition(3, "a").hint("broadcast").select("a").sortWithinPartitions("a")
    ),
    "cached": lambda t: t("t").select("a", "s").cache().groupBy("s").count(),
    "tumble": lambda t: t("t").groupBy(f().window("ts", "10 seconds")).count(),
    "session": lambda t: t("t").groupBy("s", f().session_window("ts", "4 seconds")).count(),
    "higher_order": lambda t: t("t").select(
        f().transform("xs", lambda x: f().concat(x, x)).alias("y")
    ),
    "range": lambda t: (
        t("u").sparkSession.range(3).join(t("u"), f().expr("id = k")).select("id", "c")
    ),
}


@pytest.mark.parametrize("name", FRAMES)
def test_a_plan_has_the_rows_of_its_frame(spark: Any, name: str) -> None:
    print(f"seed {SEED}")
    workspace = Workspace(spark, schemas("extra"))
    plan = workspace.compile_frame(FRAMES[name](workspace.table))
    session = for_few_rows(spark.newSession())
    frames = {n: session.createDataFrame(t) for n, t in tables("extra", SEED).items()}
    asked = FRAMES[name](frames.__getitem__)
    answered = execute(session, plan, frames)
    assert types_of(answered) == types_of(asked)
    expected = rows_of(asked)
    assert rows_of(answered) == expected
    assert expected


def _registered(session: Any) -> Any:
    session.udf.register("twice", lambda value: None if value is None else 2 * value, "bigint")
    return session


def test_a_registered_deterministic_function_is_part_of_the_plan(spark: Any) -> None:
    workspace = Workspace(spark, schemas("extra"))
    _registered(workspace.session)
    plan = workspace.compile_sql("SELECT k, twice(c) AS x FROM u WHERE twice(k) > 10")
    assert [function.name for function in plan.functions] == ["twice"]
    session = spark.newSession()
    frames = {"u": session.createDataFrame(tables("extra", SEED)["u"])}
    rows = execute(session, plan, frames).collect()
    expected = {
        (row.k, None if row.c is None else 2 * row.c) for row in frames["u"].collect() if row.k > 5
    }
    assert {tuple(row) for row in rows} == expected
    again = workspace.compile_sql("SELECT twice(k) FROM u")
    assert again.functions == plan.functions, "the same function has the same fingerprint"


def test_functions_without_an_answer_of_their_own_are_refused(spark: Any) -> None:
    workspace = Workspace(spark, schemas("extra"))
    plain = f().udf(lambda value: value, "int", useArrow=False)
    chance = plain.asNondeterministic()
    workspace.session.udf.register("chance", chance)
    with pytest.raises(Refused, match=r"chance\(\).*not deterministic"):
        workspace.compile_sql("SELECT chance(k) FROM u")


def test_a_frame_over_other_data_is_refused(spark: Any) -> None:
    workspace = Workspace(spark, schemas("extra"))
    other = workspace.session.createDataFrame([(1,)], "a int")
    with pytest.raises(Refused, match="not a collection of ours"):
        workspace.compile_frame(workspace.table("u").join(other, "a"))


def test_a_view_over_a_relation_is_seen_through(spark: Any) -> None:
    workspace = Workspace(spark, schemas("extra"))
    workspace.table("u").where("k > 3").createOrReplaceTempView("later")
    plan: Plan = workspace.compile_sql("SELECT k FROM later")
    assert plan.relations == ("u",)

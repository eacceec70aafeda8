"""TPC-H and NEXMark in DataFrame code: the plan has the rows and types of the query in SQL.

They are lowered as well, so each would be kept incrementally.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headwater.compute.catalyst.compiler import Workspace
from headwater.compute.catalyst.render import execute
from headwater.compute.dataflow.graph import Dataflow
from headwater.compute.dataflow.lower import lowered
from headwater.compute.ir.plan import decoded, encoded
from tests.queries.tables import queries
from tests.spark import test_catalyst_roundtrip
from tests.spark.test_catalyst_roundtrip import Place, rows_of, types_of

pytestmark = pytest.mark.spark

places = test_catalyst_roundtrip.places

Table = Callable[[str], Any]


def f() -> Any:
    import pyspark.sql.functions as functions

    return functions


def w() -> Any:
    from pyspark.sql import Window

    return Window


def revenue() -> Any:
    return f().sum(f().col("l_extendedprice") * (1 - f().col("l_discount")))


def q01(t: Table) -> Any:
    price, discount, tax = map(f().col, ("l_extendedprice", "l_discount", "l_tax"))
    shipped = f().expr("l_shipdate <= DATE '1998-12-01' - INTERVAL '90' DAY")
    return (
        t("lineitem")
        .where(shipped)
        .groupBy("l_returnflag", "l_linestatus")
        .agg(
            f().sum("l_quantity").alias("sum_qty"),
            f().sum(price).alias("sum_base_price"),
            f().sum(price * (1 - discount)).alias("sum_disc_price"),
            f().sum(price * (1 - discount) * (1 + tax)).alias("sum_charge"),
            f().avg("l_quantity").alias("avg_qty"),
            f().avg(price).alias("avg_price"),
            f().avg(discount).alias("avg_disc"),
            f().count("*").alias("count_order"),
        )
        .orderBy("l_returnflag", "l_linestatus")
    )


def q03(t: Table) -> Any:
    customers = t("customer").where("c_mktsegment = 'BUILDING'")
    orders = t("orders").where(f().col("o_orderdate") < f().lit("1995-03-15").cast("date"))
    lines = t("lineitem").where("l_shipdate > DATE '1995-03-15'")
    return (
        customers.join(orders, f().col("c_custkey") == f().col("o_custkey"))
        .join(lines, f().col("l_orderkey") == f().col("o_orderkey"))
        .groupBy("l_orderkey", "o_orderdate", "o_shippriority")
        .agg(revenue().alias("revenue"))
        .select("l_orderkey", "revenue", "o_orderdate", "o_shippriority")
        .orderBy(f().desc("revenue"), "o_orderdate")
        .limit(10)
    )


def q04(t: Table) -> Any:
    late = t("lineitem").where(f().col("l_commitdate") < f().col("l_receiptdate"))
    return (
        t("orders")
        .where("o_orderdate >= DATE '1993-07-01' AND o_orderdate < DATE '1993-10-01'")
        .join(late, f().col("l_orderkey") == f().col("o_orderkey"), "left_semi")
        .groupBy("o_orderpriority")
        .agg(f().count("*").alias("order_count"))
    )


def q05(t: Table) -> Any:
    return (
        t("customer")
        .join(t("orders"), f().expr("c_custkey = o_custkey"))
        .join(t("lineitem"), f().expr("l_orderkey = o_orderkey"))
        .join(t("supplier"), f().expr("l_suppkey = s_suppkey AND c_nationkey = s_nationkey"))
        .join(t("nation"), f().expr("s_nationkey = n_nationkey"))
        .join(t("region"), f().expr("n_regionkey = r_regionkey"))
        .where("r_name = 'ASIA'")
        .where("o_orderdate >= DATE '1994-01-01' AND o_orderdate < DATE '1995-01-01'")
        .groupBy("n_name")
        .agg(revenue().alias("revenue"))
    )


def q06(t: Table) -> Any:
    return (
        t("lineitem")
        .filter("l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01'")
        .filter(f().expr("l_discount BETWEEN 0.06 - 0.01 AND 0.06 + 0.01"))
        .filter(f().col("l_quantity") < 24)
        .agg(f().sum(f().col("l_extendedprice") * f().col("l_discount")).alias("revenue"))
    )


def q12(t: Table) -> Any:
    urgent = f().col("o_orderpriority").isin("1-URGENT", "2-HIGH")
    return (
        t("orders")
        .join(t("lineitem"), f().expr("o_orderkey = l_orderkey"))
        .where(f().col("l_shipmode").isin("MAIL", "SHIP"))
        .where("l_commitdate < l_receiptdate AND l_shipdate < l_commitdate")
        .where("l_receiptdate >= DATE '1994-01-01' AND l_receiptdate < DATE '1995-01-01'")
        .groupBy("l_shipmode")
        .agg(
            f().sum(f().when(urgent, 1).otherwise(0)).alias("high_line_count"),
            f().sum(f().when(~urgent, 1).otherwise(0)).alias("low_line_count"),
        )
    )


def q13(t: Table) -> Any:
    plain = ~f().col("o_comment").like("%special%requests%")
    return (
        t("customer")
        .join(t("orders"), (f().col("c_custkey") == f().col("o_custkey")) & plain, "left")
        .groupBy("c_custkey")
        .agg(f().count("o_orderkey").alias("c_count"))
        .groupBy("c_count")
        .agg(f().count("*").alias("custdist"))
    )


def q16(t: Table) -> Any:
    complained = t("supplier").where(f().col("s_comment").like("%Customer%Complaints%"))
    return (
        t("partsupp")
        .join(t("part"), f().expr("p_partkey = ps_partkey"))
        .where("p_brand <> 'Brand#45' AND p_type NOT LIKE 'MEDIUM POLISHED%'")
        .where(f().col("p_size").isin(49, 14, 23, 45, 19, 3, 36, 9))
        .join(complained, f().expr("ps_suppkey = s_suppkey"), "left_anti")
        .groupBy("p_brand", "p_type", "p_size")
        .agg(f().countDistinct("ps_suppkey").alias("supplier_cnt"))
    )


def q18(t: Table) -> Any:
    large = t("lineitem").groupBy("l_orderkey").agg(f().sum("l_quantity").alias("n"))
    large = large.where("n > 300").select(f().col("l_orderkey").alias("key"))
    return (
        t("customer")
        .join(t("orders"), f().expr("c_custkey = o_custkey"))
        .join(large, f().expr("o_orderkey = key"), "left_semi")
        .join(t("lineitem"), f().expr("o_orderkey = l_orderkey"))
        .groupBy("c_name", "c_custkey", "o_orderkey", "o_orderdate", "o_totalprice")
        .agg(f().sum("l_quantity"))
        .orderBy(f().desc("o_totalprice"), "o_orderdate")
        .limit(100)
    )


def n03(t: Table) -> Any:
    a, p = t("auction").alias("a"), t("person").alias("p")
    return (
        a.join(p, f().col("a.seller") == f().col("p.id"))
        .where((f().col("a.category") == 10) & f().col("p.state").isin("OR", "ID", "CA"))
        .select("p.name", "p.city", "p.state", "a.id")
    )


def n04(t: Table) -> Any:
    return (
        _bids(t)
        .groupBy("a.id", "a.category")
        .agg(f().max("b.price").alias("final"))
        .groupBy("category")
        .agg(f().avg("final").alias("final"))
    )


def n09(t: Table) -> Any:
    best = w().partitionBy("a.id").orderBy(f().desc("b.price"), "b.dateTime")
    bid = ("b.auction", "b.bidder", "b.price")
    return (
        _bids(t)
        .withColumn("place", f().row_number().over(best))
        .where("place <= 1")
        .select(
            "a.*",
            *bid,
            f().col("b.dateTime").alias("bid_dateTime"),
            f().col("b.extra").alias("bid_extra"),
        )
    )


def _bids(t: Table) -> Any:
    """Return auctions with the bids that came in time."""
    a, b = t("auction").alias("a"), t("bid").alias("b")
    return a.join(b, f().col("a.id") == f().col("b.auction")).where(
        f().col("b.dateTime").between(f().col("a.dateTime"), f().col("a.expires"))
    )


def n11(t: Table) -> Any:
    return _windowed(t, f().session_window("dateTime", "10 seconds"), "session_window")


def n12(t: Table) -> Any:
    return _windowed(t, f().window("dateTime", "10 seconds"), "window")


def _windowed(t: Table, window: Any, called: str) -> Any:
    return (
        t("bid")
        .groupBy("bidder", window)
        .agg(f().count("*").alias("bid_count"))
        .select(
            "bidder",
            "bid_count",
            f().col(f"{called}.start").alias("starttime"),
            f().col(f"{called}.end").alias("endtime"),
        )
    )


def n18(t: Table) -> Any:
    last = w().partitionBy("bidder", "auction").orderBy(f().desc("dateTime"))
    return (
        t("bid")
        .withColumn("place", f().row_number().over(last))
        .where(f().col("place") <= 1)
        .select("auction", "bidder", "price", "channel", "url", "dateTime", "extra")
    )


FRAMES: dict[tuple[str, str], Callable[[Table], Any]] = {
    **{("tpch", made.__name__): made for made in (q01, q03, q04, q05, q06, q12, q13, q16, q18)},
    **{("nexmark", f"q{made.__name__[1:]}"): made for made in (n03, n04, n09, n11, n12, n18)},
}


def test_there_are_a_dozen() -> None:
    assert len(FRAMES) >= 12
    for suite, name in FRAMES:
        assert name in queries(suite)


@pytest.mark.parametrize(("suite", "name"), FRAMES, ids=lambda value: value)
def test_a_frame_has_the_rows_of_the_query_in_sql(
    places: dict[str, Place], suite: str, name: str
) -> None:
    place = places[suite]
    workspace: Workspace = place.workspace
    plan = workspace.compile_frame(FRAMES[suite, name](workspace.table))
    assert isinstance(lowered(plan.shown()), Dataflow)
    asked = place.session.sql(queries(suite)[name])
    answered = execute(place.session, decoded(encoded(plan)), place.frames)
    expected = rows_of(asked)
    assert sorted(types_of(answered)) == sorted(types_of(asked))
    assert rows_of(answered.select(*asked.columns)) == expected
    assert expected

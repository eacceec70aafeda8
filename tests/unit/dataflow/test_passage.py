"""The texts of passages, without Spark: what is replaced, what is not, what is bound."""

from __future__ import annotations

import pytest

from headwater.compute.dataflow.edge import Lane, lane_scan
from headwater.compute.dataflow.lanes import FAILED, NOTE, Stream, failed_lane
from headwater.compute.dataflow.passage import (
    BIND_FROM,
    NumberedEdge,
    edge_sql,
    passage_sql,
    passage_stream,
    why_not_linear,
)
from headwater.compute.dataflow.texts import substituted
from headwater.compute.ir.expression import Column, Expression, Named
from headwater.compute.ir.node import Filter, Generate, Node, Project
from headwater.compute.ir.refusal import InvalidPlan

A, B = Column("a_1", "int", True), Column("b_1", "int", True)
LANE = Lane((A, B))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a_1", "x"),
        ("(a_1 + b_1)", "(x + (y + 1))"),
        ("a_1 + b_1", "(x + (y + 1))"),
        ("(a_1) + (b_1)", "((x) + ((y + 1)))"),
        ("concat(a_1, 'a_1', \"a_1\", `a_1`)", "(concat(x, 'a_1', \"a_1\", `a_1`))"),
        (r"concat('\'a_1', a_1, 'it\\', a_1)", r"(concat('\'a_1', x, 'it\\', x))"),
        ("a_1.a_1", "x.a_1"),
        ("CAST(a_1 AS STRUCT<a_1: INT>)", "(CAST(x AS STRUCT<a_1: INT>))"),
        ("a_1(a_1)", "(a_1(x))"),
        ("xa_1 + a_12 + a_1", "(xa_1 + a_12 + x)"),
        ("transform(a_1, v1 -> (v1 + b_1))", "(transform(x, v1 -> (v1 + (y + 1))))"),
        ("(a_1 = ')')", "(x = ')')"),
    ],
)
def test_columns_are_replaced_and_nothing_else(text: str, wanted: str) -> None:
    names = {"a_1": "x", "b_1": "(y + 1)"}
    assert substituted(Expression(text, "int", True), names) == wanted


def test_a_column_that_is_not_there_is_a_defect() -> None:
    with pytest.raises(InvalidPlan, match="c_1"):
        substituted(Expression("c_1", "int", True, ("c_1",)), {"a_1": "x"})


def grown(depth: int) -> Node:
    node: Node = lane_scan(LANE.columns)
    for n in range(1, depth):
        text = " * ".join([f"(a_{n} + 1)"] * 8)
        node = Project(node, (Named(f"a_{n + 1}", Expression(f"({text})", "int", True)),))
    return node


def test_chains_do_not_grow_exponentially() -> None:
    node = grown(9)
    text = edge_sql(
        NumberedEdge(0, 0, node, 1).edge, Stream({0: LANE}), Stream({1: Lane(node.columns)})
    )
    assert len(text) < 20_000


def edge(text: str) -> NumberedEdge:
    condition = Expression(text, "boolean", True, ("a_1",))
    return NumberedEdge(7, 0, Filter(lane_scan(LANE.columns), condition), 1)


def test_a_passage_has_a_branch_for_each_lane_and_passes_payloads() -> None:
    edges = [edge("(a_1 > 0)"), NumberedEdge(8, 0, edge("(a_1 < 0)").node, 2)]
    stream_in = Stream({0: LANE, 3: LANE})
    stream_out = passage_stream(edges, dict.fromkeys(range(4), LANE), passed=[3])
    assert set(stream_out.lanes) == {1, 2, 3, NOTE, FAILED, failed_lane(7), failed_lane(8)}
    (text,) = passage_sql(edges, stream_in, stream_out, [3])
    assert text.count("WHEN __lane = ") == 4
    assert text.count("headwater_try(") == 2


def test_an_edge_that_only_picks_cannot_fail() -> None:
    node = Project(
        lane_scan(LANE.columns), (Named("b_1", Expression("b_1", "int", True, ("b_1",))),)
    )
    edges = [NumberedEdge(0, 0, node, 1)]
    stream_out = passage_stream(edges, {0: LANE, 1: Lane(node.columns)})
    assert failed_lane(0) not in stream_out.lanes
    assert "headwater_try" not in passage_sql(edges, Stream({0: LANE}), stream_out)[0]


def test_what_cannot_be_an_edge_says_why() -> None:
    scan = lane_scan(LANE.columns)
    assert why_not_linear(edge("(f(a_1) > 0)").node) is None
    assert why_not_linear(scan) == "a scan is not linear"
    tuples = Expression("json_tuple(a_1, 'k')", "array<struct<c0:string>>", True, ("a_1",))
    made = (Column("c_1", "string", True),)
    assert why_not_linear(Generate(scan, tuples, made)) == "json_tuple has no form as an array"
    stacked = Expression("stack(1 + 1, a_1, b_1)", "array<struct<c0:int>>", True, ("a_1", "b_1"))
    assert "no literal" in (why_not_linear(Generate(scan, stacked, made)) or "")


def test_what_has_no_slot_is_computed_nevertheless() -> None:
    check = Named("c_1", Expression("assert_true((a_1 > 0))", "void", True, ("a_1",)))
    nothing = Named("n_1", Expression("NULL", "void", True))
    long = f"concat(a_1, '{'x' * BIND_FROM}')"
    made = Project(
        lane_scan(LANE.columns),
        (check, nothing, Named("l_1", Expression(long, "string", True, ("a_1",)))),
    )
    again = Expression("l_1", "string", True, ("l_1",))
    twice = (Named("l_1", again), Named("l_2", again))
    shown = Named("c_2", Expression("c_1", "void", True, ("c_1",)))
    for node, times in ((made, 1), (Project(made, (shown, *twice)), 1), (Project(made, twice), 0)):
        text = edge_sql(
            NumberedEdge(0, 0, node, 1).edge, Stream({0: LANE}), Stream({1: Lane(node.columns)})
        )
        assert ("transform(" in text) == (node is not made), "what is long is bound"
        assert text.count("assert_true") == times
        assert text.count("IS NULL") == times

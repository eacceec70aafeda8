"""Errors are data: rows that fail come back from a passage, and say why."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headwater.compute.catalyst import try_eval
from headwater.compute.dataflow.edge import Lane, lane_scan
from headwater.compute.dataflow.lanes import read_failure, split_failures
from headwater.compute.dataflow.passage import BIND_FROM, NumberedEdge
from headwater.compute.ir.expression import Named
from headwater.compute.ir.node import Filter, Generate, Node, Project
from headwater.persist.consolidate import DIFF, TIME
from tests.spark import passage_rows
from tests.spark.passage_rows import A, columns, expression, ran, with_times

pytestmark = pytest.mark.spark

session = passage_rows.session


@pytest.mark.parametrize("generated", [False, True], ids=["interpreted", "generated"])
def test_rows_that_fail_come_back_and_their_neighbours_survive(
    spark: Any, session: Any, generated: bool
) -> None:
    if generated:
        try_eval.register(spark)
        session = spark
    lane = Lane(columns({"a_1": "int", "b_1": "int", "s_1": "string", "xs_1": "array<int>"}))
    scan = lane_scan(lane.columns)
    quotient = expression("(a_1 div b_1)", "bigint", "a_1", "b_1")
    number = expression("CAST(s_1 AS INT)", "int", "s_1")
    raised = "IF((s_1 = 'bad'), raise_error('no ' || s_1), s_1)"
    made = "explode(transform(xs_1, v1 -> (v1 div b_1)))"
    nodes: dict[str, Node] = {
        "project": Project(scan, (Named("q_1", quotient), Named("q_2", quotient))),
        "filter": Filter(scan, expression("((a_1 div b_1) > 0)", "boolean", "a_1", "b_1")),
        "cast": Project(
            scan, (Named("n_1", number), Named("a_1", expression("a_1", "int", "a_1")))
        ),
        "raise": Project(scan, (Named("r_1", expression(raised, "string", "s_1")),)),
        "void": Project(
            scan,
            (
                Named("r_1", expression("assert_true((NOT (a_1 <=> 1)), 'one')", "void", "a_1")),
                Named("a_1", expression("a_1", "int", "a_1")),
            ),
        ),
        "bound": Project(
            Project(
                scan,
                (
                    Named(
                        "v_1", expression("assert_true((NOT (a_1 <=> 1)), 'one')", "void", "a_1")
                    ),
                    Named("t_1", expression(f"concat(s_1, '{'.' * BIND_FROM}')", "string", "s_1")),
                ),
            ),
            (
                Named("v_2", expression("v_1", "void", "v_1")),
                Named("n_1", expression("length(t_1)", "int", "t_1")),
                Named("n_2", expression("(length(t_1) + 1)", "int", "t_1")),
            ),
        ),
        "between": Filter(
            scan, expression("((a_1 div b_1) BETWEEN 0 AND 9)", "boolean", "a_1", "b_1")
        ),
        "lambda": Generate(
            scan,
            expression(made, "array<struct<col:bigint>>", "xs_1", "b_1"),
            columns({"x_1": "bigint"}),
        ),
        "element": Project(scan, (Named("x_1", expression("xs_1[a_1]", "int", "xs_1", "a_1")),)),
    }
    edges = [NumberedEdge(n, 0, node, n + 1) for n, node in enumerate(nodes.values())]
    data = pa.table(
        {
            "a_1": pa.array([4, 4, 1, None, 0], pa.int32()),
            "b_1": pa.array([2, 0, 1, 0, 1], pa.int32()),
            "s_1": ["1", "x", "bad", None, "5"],
            "xs_1": pa.array([[1, 2, 3, 4, 5], [1], [6, 7], [2], []], pa.list_(pa.int32())),
        }
    )
    kept, failures = split_failures(ran(session, edges, lane, with_times(data)))
    values = {name: kept[e.target] for name, e in zip(nodes, edges, strict=True)}
    assert values["project"].column("q_1").to_pylist() == [2, 1, None, 0]
    assert values["filter"].column("a_1").to_pylist() == [4, 1]
    assert values["cast"].to_pylist() == [
        {"n_1": 1, "a_1": 4, TIME: 100, DIFF: 1},
        {"n_1": None, "a_1": None, TIME: 103, DIFF: -4},
        {"n_1": 5, "a_1": 0, TIME: 104, DIFF: 5},
    ]
    assert values["raise"].column("r_1").to_pylist() == ["1", "x", None, "5"]
    assert values["void"].column("a_1").to_pylist() == [4, 4, None, 0]
    assert values["bound"].column("n_1").to_pylist() == [601, 601, None, 601]
    assert values["between"].column("a_1").to_pylist() == [4, 1, 0]
    assert values["lambda"].column("x_1").to_pylist() == [0, 1, 1, 2, 2, 6, 7]
    assert values["element"].column("x_1").to_pylist() == [5, 7, None]

    said: dict[str, list[Any]] = {}
    for failure in map(read_failure, failures):
        rows = failure.table()
        messages = try_eval.failure_messages(session, edges[failure.edge], rows)
        assert messages == try_eval.failure_messages(session, edges[failure.edge], rows)
        name = list(nodes)[failure.edge]
        said[name] = list(zip(rows.column(TIME).to_pylist(), messages, strict=True))
        assert rows.drop_columns([TIME, DIFF]).to_pylist() == [
            data.to_pylist()[at - 100] for at in rows.column(TIME).to_pylist()
        ]
    zero = (
        "DIVIDE_BY_ZERO",
        "Division by zero. Use `try_divide` to tolerate divisor being 0 and return NULL instead.",
    )
    assert said["project"] == [(101, zero)]
    assert said["filter"] == said["between"] == [(101, zero)]
    assert said["lambda"] == [(101, zero), (103, zero)]
    assert [(at, condition) for at, (condition, _) in said["cast"]] == [
        (101, "CAST_INVALID_INPUT"),
        (102, "CAST_INVALID_INPUT"),
    ]
    assert "'x'" in said["cast"][0][1].message
    assert "'bad'" in said["cast"][1][1].message
    assert said["raise"] == [(102, ("USER_RAISED_EXCEPTION", "no bad"))]
    assert said["void"] == said["bound"] == [(102, ("USER_RAISED_EXCEPTION", "one"))]
    assert [(at, condition) for at, (condition, _) in said["element"]] == [
        (101, "INVALID_ARRAY_INDEX"),
        (104, "INVALID_ARRAY_INDEX"),
    ]
    for _, (_, message) in (one for group in said.values() for one in group):
        assert "==" not in message
        assert "s_0" not in message
        assert "ansi" not in message


MAPS = {
    "map": "map(s_1, a_1, t_1, 2)",
    "arrays": "map_from_arrays(array(s_1, t_1), array(a_1, 2))",
    "entries": "map_from_entries(array(struct(s_1 AS k, a_1 AS v), struct(t_1 AS k, 2 AS v)))",
    "concat": "map_concat(map(s_1, a_1), map(t_1, 2))",
    "keys": "transform_keys(map('p', a_1, 'q', 2), (k, v) -> IF(k = 'p', s_1, t_1))",
}


@pytest.mark.parametrize("generated", [False, True], ids=["interpreted", "generated"])
def test_what_fails_leaves_nothing_to_the_next_row(
    spark: Any, session: Any, generated: bool
) -> None:
    """Spark's builder of a map still has the keys of a map that could not be made."""
    if generated:
        try_eval.register(spark)
        session = spark
    lane = Lane(columns({"a_1": "int", "s_1": "string", "t_1": "string"}))
    scan = lane_scan(lane.columns)
    maps = [expression(text, "map<string,int>", "a_1", "s_1", "t_1") for text in MAPS.values()]
    nodes = [Project(scan, (Named("m_1", one),)) for one in maps]
    edges = [NumberedEdge(n, 0, node, n + 1) for n, node in enumerate(nodes)]
    data = pa.table(
        {
            "a_1": pa.array([1, 2, 3, 4, 5], pa.int32()),
            "s_1": ["x", "x", "x", None, "x"],
            "t_1": ["x", "y", "x", "y", "z"],
        }
    )
    kept, failures = split_failures(ran(session, edges, lane, with_times(data)))
    for name, edge in zip(MAPS, edges, strict=True):
        made = [dict(pairs) for pairs in kept[edge.target].column("m_1").to_pylist()]
        assert made == [{"x": 2, "y": 2}, {"x": 5, "z": 2}], name
    told = [read_failure(failure) for failure in failures]
    assert len(told) == len(MAPS)
    for failure in told:
        said = try_eval.failure_messages(session, edges[failure.edge], failure.table())
        conditions = [failed.condition for failed in said]
        assert conditions == ["DUPLICATED_MAP_KEY", "DUPLICATED_MAP_KEY", "NULL_MAP_KEY"]
        assert "mapKeyDedupPolicy" not in said[0].message, "nobody can set that here"


def test_messages_of_rows_that_do_not_fail_are_refused(session: Any) -> None:
    node = Project(lane_scan((A,)), (Named("x_1", expression("(1 div a_1)", "bigint", "a_1")),))
    rows = with_times(pa.table({"a_1": pa.array([1], pa.int32())}))
    with pytest.raises(try_eval.DoesNotFail):
        try_eval.failure_messages(session, NumberedEdge(0, 0, node, 1), rows)


def test_messages_of_rows_that_come_in_pieces(session: Any) -> None:
    node = Project(lane_scan((A,)), (Named("x_1", expression("(1 div a_1)", "bigint", "a_1")),))
    rows = with_times(pa.table({"a_1": pa.array([0, 0], pa.int32())}))
    nothing = rows.slice(0, 0)
    pieces = pa.concat_tables([nothing, nothing, rows.slice(0, 1), nothing, rows.slice(1)])
    said = try_eval.failure_messages(session, NumberedEdge(0, 0, node, 1), pieces)
    assert [failed.condition for failed in said] == ["DIVIDE_BY_ZERO"] * 2

"""The rules of the lowering, one by one: what a plan becomes."""

from __future__ import annotations

from headwater.compute.dataflow.bounds import explained, written
from headwater.compute.dataflow.graph import (
    Accumulate,
    Bag,
    Constant,
    Distinct,
    Laned,
    Read,
    Reduce,
    Scanned,
    TopK,
    Versions,
)
from headwater.compute.dataflow.lower import NoRule, lowered
from headwater.compute.ir import node as ir
from headwater.compute.ir.expression import (
    AggregateCall,
    Expression,
    Field,
    JoinKey,
    SortKey,
    WindowCall,
)
from headwater.compute.ir.node import Filter, Join, Node, Project, Scan, reference
from tests.unit.dataflow.lowered_plans import (
    A,
    B,
    arranged,
    call,
    column,
    dataflow,
    inner,
    kinds,
    named,
    only,
    output,
    plain,
    scan,
    steps,
    where,
)

# ---- linear operators ------------------------------------------------------------------------


def test_a_scan_alone_is_read_and_shown() -> None:
    flow = dataflow(A)
    assert kinds(flow) == ["Read"]
    assert flow.edges == ()
    assert flow.lanes[output(flow)].names == ("x_1", "y_1")


def test_a_chain_is_one_edge_whatever_its_length() -> None:
    plan = Filter(
        Project(
            Filter(A, where("(x_1 > 1)", "x_1")), (named("p_4", "(x_1 + 1)", "bigint", "x_1"),)
        ),
        where("(p_4 < 9)", "p_4"),
    )
    flow = dataflow(plan)
    assert kinds(flow) == ["Read"]
    assert steps(flow, output(flow)) == [["Filter", "Project", "Filter"]]
    assert only(flow, Read).of.fields[0].field == "x", "and y is not read at all"
    assert len(only(flow, Read).of.fields) == 1


def test_projections_that_only_pick_cost_no_step() -> None:
    twice = Project(
        Project(A, (named("p_4", "x_1", "bigint", "x_1"),)), (named("q_5", "p_4", "bigint", "p_4"),)
    )
    flow = dataflow(twice)
    assert steps(flow, output(flow)) == [["Project"]]


def test_a_union_is_several_edges_into_one_lane() -> None:
    plan = ir.Union((A, ir.keep(B, ["z_2", "x_2"])), (column("m_4"), column("n_5")))
    flow = dataflow(plan)
    assert kinds(flow) == ["Read", "Read"]
    assert len(steps(flow, output(flow))) == 2
    assert flow.lanes[output(flow)].names == ("m_4", "n_5")


def test_values_are_there_from_the_start() -> None:
    flow = dataflow(ir.Values((column("v_1"),), (("1L",), ("2L",))))
    assert kinds(flow) == ["Constant"]
    assert flow.lanes[only(flow, Constant).output].columns == ()
    assert steps(flow, output(flow)) == [["Expand"]]
    nothing = dataflow(ir.Values((column("v_1"),), ()))
    assert steps(nothing, output(nothing)) == [["Project", "Filter"]]


def test_an_equal_subplan_is_lowered_once() -> None:
    counted = ir.Aggregate(A, ("x_1",), (call("n_4", "count", "y_1"),))
    again = Project(
        counted, (named("x_5", "x_1", "bigint", "x_1"), named("n_6", "n_4", "bigint", "n_4"))
    )
    flow = dataflow(inner(counted, again, ("n_4", "n_6")))
    assert kinds(flow) == ["Accumulate", "DeltaJoin"]


# ---- groups ----------------------------------------------------------------------------------


def test_sums_are_accumulated_with_their_arguments_as_columns() -> None:
    total = AggregateCall(
        "t_4", "sum", "sum((x_1 * 2))", "bigint", True, ("x_1",),
        (Expression("(x_1 * 2)", "bigint", True, ("x_1",)),),
        filter=where("(y_1 > 1)", "y_1"),
    )  # fmt: skip
    flow = dataflow(ir.Aggregate(A, ("y_1",), (total,)))
    operator = only(flow, Accumulate)
    assert operator.calls[0].arguments == ("_argument_1",)
    assert operator.calls[0].filter == "_filter_2"
    assert steps(flow, operator.input.lane if isinstance(operator.input, Laned) else -1) == [
        ["Project"]
    ]


def test_count_of_what_is_never_null_counts_rows() -> None:
    one = AggregateCall(
        "n_4", "count", "count(1)", "bigint", False, (), (Expression("1", "int", False),)
    )
    operator = only(dataflow(ir.Aggregate(A, ("x_1",), (one,))), Accumulate)
    assert operator.calls[0].arguments == ()
    assert isinstance(operator.input, Scanned)


def test_a_call_that_needs_rows_makes_its_groups_an_arrangement() -> None:
    flow = dataflow(
        ir.Aggregate(A, ("x_1",), (call("m_4", "max", "y_1"), call("s_5", "sum", "y_1")))
    )
    operator = only(flow, Reduce)
    assert arranged(flow) == [("a", ("x",))]
    assert operator.state is not None
    distinct = dataflow(ir.Aggregate(A, ("x_1",), (call("d_4", "count", "y_1", distinct=True),)))
    assert only(distinct, Reduce).calls[0].distinct


def test_first_looks_at_whole_rows_so_none_of_their_columns_is_dropped() -> None:
    flow = dataflow(
        ir.Aggregate(scan("a", "x_1", "y_1", "v_1"), ("x_1",), (call("f_4", "first", "y_1"),))
    )
    operator = only(flow, Reduce)
    assert operator.ties == ("x_1", "y_1", "v_1")
    assert len(operator.input.columns) == 3


def test_an_aggregate_without_groups_is_arranged_by_a_constant() -> None:
    flow = dataflow(ir.Aggregate(A, (), (call("m_4", "max", "y_1"),)))
    assert only(flow, Reduce).groups == ()
    (arrangement,) = flow.arrangements
    assert arrangement.key[0].startswith("_one_")


def test_a_struct_is_taken_apart_to_group_by_it_and_put_together_after() -> None:
    rows = Scan("a", (Field("w", column("w_1", "struct<start:timestamp,end:timestamp>")),))
    one = AggregateCall(
        "n_4", "count", "count(1)", "bigint", False, (), (Expression("1", "int", False),)
    )
    flow = dataflow(ir.Aggregate(rows, ("w_1",), (one,)))
    assert len(only(flow, Accumulate).groups) == 3, "two fields, and whether it is there"
    assert flow.lanes[output(flow)].columns[0].type == "struct<start:timestamp,end:timestamp>"


def test_rows_that_cannot_be_told_apart_have_no_rule() -> None:
    rows = Scan("a", (Field("m", column("m_1", "map<string,int>")),))
    assert lowered(ir.Distinct(rows)) == NoRule(
        "distinct", "rows cannot be told apart by a map<string,int>"
    )


def test_distinct_and_bags_keep_counts() -> None:
    assert kinds(dataflow(ir.Distinct(A))) == ["Distinct"]
    assert isinstance(only(dataflow(ir.Distinct(A)), Distinct).input, Scanned)
    bag = only(dataflow(ir.Bag("except", A, B)), Bag)
    assert [c.name for c in bag.right.columns] == ["x_1", "y_1"], "under the left's names"


# ---- first rows ------------------------------------------------------------------------------


def numbered(*, name: str = "n_9", text: str = "(n_9 <= 2)", function: str = "row_number") -> Node:
    place = WindowCall(name, function, f"{function}()", "ROWS …", "int", False)
    order = (SortKey(plain("y_1"), True, False),)
    return Filter(ir.Window(A, (plain("x_1"),), order, (place,)), where(text, name))


def test_the_first_rows_are_ordered_by_columns_and_ties_by_whole_rows() -> None:
    by = (SortKey(Expression("(y_1 * 2)", "bigint", True, ("y_1",)), True, False),)
    flow = dataflow(ir.TopK(A, by, 3, 1))
    operator = only(flow, TopK)
    assert [sort.column for sort in operator.order] == ["_order_1"]
    assert operator.ties == ("x_1", "y_1")
    assert (operator.limit, operator.offset, operator.partition) == (3, 1, ())
    assert flow.lanes[output(flow)].names == ("x_1", "y_1"), "and what only orders is gone"


def test_row_number_up_to_k_is_the_first_rows_of_each_partition() -> None:
    operator = only(dataflow(numbered()), TopK)
    assert (operator.partition, operator.limit, operator.number) == (("x_1",), 2, "n_9")
    assert only(dataflow(numbered(text="(n_9 < 2)")), TopK).limit == 1


def test_any_other_window_is_asked_of_the_partitions_that_changed() -> None:
    for node in (numbered(text="(n_9 > 2)"), numbered(function="rank")):
        assert only(dataflow(node), Versions).ties == ("x_1", "y_1")


def test_what_has_no_rule_says_so() -> None:
    tuples = Expression("json_tuple(x_1, 'k')", "array<struct<c0:string>>", True, ("x_1",))
    assert lowered(ir.Generate(A, tuples, (column("p_4", "string"),))) == NoRule(
        "generate", "json_tuple has no form as an array"
    )


def test_a_function_in_python_above_a_generator_has_no_rule() -> None:
    items = Expression("explode(sequence(0, x_1))", "array<struct<col:int>>", True, ("x_1",))
    exploded = ir.Generate(A, items, (column("p_4", "bigint"),))
    for source, why in ((A, None), (exploded, "a generator")):
        name = source.columns[-1].name
        called = Project(source, (named("q_5", f"headwater_udf_f({name})", "bigint", name),))
        found = lowered(called)
        if why is None:
            assert not isinstance(found, NoRule)
        else:
            assert found == NoRule(
                "function", f"headwater_udf_f() is a function in Python above {why}"
            )


# ---- names and explanations ------------------------------------------------------------------


def test_names_go_on_behind_those_of_the_plan() -> None:
    left = Project(A, (named("_key_41", "(x_1 + 1)", "bigint", "x_1"), reference(column("y_1"))))
    flow = dataflow(Join(left, B, "inner", (JoinKey(where("(y_1 > 1)", "y_1"), where("true")),)))
    made = {n for lane in flow.lanes for n in lane.names if n.startswith("_key_")} - {"_key_41"}
    assert made
    assert all(int(name.rpartition("_")[2]) > 41 for name in made)


def test_the_same_plan_has_the_same_dataflow() -> None:
    plan = ir.Aggregate(inner(A, B, ("x_1", "x_2")), ("y_1",), (call("m_4", "max", "z_2"),))
    assert dataflow(plan) == dataflow(plan)


def test_every_operator_is_explained_with_all_it_keeps() -> None:
    plan = ir.Aggregate(
        inner(A, B, ("x_1", "x_2"), kind="left"), ("y_1",), (call("m_4", "max", "z_2"),)
    )
    flow = dataflow(plan)
    found = explained(flow)
    assert len(found) == len(flow.operators)
    assert all(one.strategy and one.bound for one in found)
    kept = {name for one in found for name in one.states}
    assert kept == {a.name for a in flow.arrangements} | {s.name for s in flow.states}
    text = written(flow)
    assert "(shared), a by x: to find" in text
    assert "anti join of a with b" in text

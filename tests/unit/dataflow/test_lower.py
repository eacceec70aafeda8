"""The rules of the lowering, one by one: what a plan becomes."""

from __future__ import annotations

from typing import TypeVar

from headwater.compute.dataflow.bounds import explained, written
from headwater.compute.dataflow.graph import (
    Accumulate,
    Bag,
    Constant,
    Dataflow,
    DeltaJoin,
    Distinct,
    Laned,
    Output,
    Read,
    Reduce,
    Scanned,
    Semi,
    TopK,
    Versions,
)
from headwater.compute.dataflow.hops import Equality, routes
from headwater.compute.dataflow.lower import NoRule, lowered
from headwater.compute.ir import node as ir
from headwater.compute.ir.expression import (
    AggregateCall,
    Column,
    Expression,
    Field,
    JoinKey,
    Named,
    SortKey,
    WindowCall,
)
from headwater.compute.ir.node import Filter, Join, JoinKind, Node, Project, Scan, reference

BOOLEAN = "boolean"
T = TypeVar("T")


def column(name: str, type_: str = "bigint") -> Column:
    return Column(name, type_, True)


def scan(relation: str, *names: str, type_: str = "bigint") -> Scan:
    fields = (Field(n.rpartition("_")[0], column(n, type_)) for n in names)
    return Scan(relation, tuple(fields))


def named(name: str, text: str, type_: str, *columns: str) -> Named:
    return Named(name, Expression(text, type_, True, columns))


def plain(name: str, type_: str = "bigint") -> Expression:
    return Expression(name, type_, True, (name,))


def where(text: str, *columns: str) -> Expression:
    return Expression(text, BOOLEAN, True, columns)


def inner(left: Node, right: Node, *keys: tuple[str, str], kind: JoinKind = "inner") -> Join:
    return Join(left, right, kind, tuple(JoinKey(plain(a), plain(b)) for a, b in keys))


def call(name: str, function: str, argument: str, *, distinct: bool = False) -> AggregateCall:
    once = "DISTINCT " if distinct else ""
    return AggregateCall(
        name,
        function,
        f"{function}({once}{argument})",
        "bigint",
        True,
        (argument,),
        (plain(argument),),
        distinct,
    )


def dataflow(plan: Node) -> Dataflow:
    found = lowered(plan)
    assert isinstance(found, Dataflow), found
    return found


def kinds(flow: Dataflow) -> list[str]:
    return [type(operator).__name__ for operator in flow.operators[:-1]]


def only(flow: Dataflow, kind: type[T]) -> T:
    (found,) = (operator for operator in flow.operators if isinstance(operator, kind))
    return found


def arranged(flow: Dataflow) -> list[tuple[str, tuple[str, ...]]]:
    """What is arranged by which fields or columns."""
    found = []
    for a in flow.arrangements:
        if isinstance(a.of, Scanned):
            fields = {f.column.name: f.field for f in a.of.fields}
            found.append((a.of.relation, tuple(fields[name] for name in a.key)))
        else:
            found.append(("lane", a.key))
    return found


def steps(flow: Dataflow, target: int) -> list[list[str]]:
    """The linear operators of each edge into a lane, from the last one down."""
    return [
        [type(n).__name__ for n in edge.chain()][:-1]
        for edge in flow.edges
        if edge.target == target
    ]


def output(flow: Dataflow) -> int:
    last = flow.operators[-1]
    assert isinstance(last, Output)
    return last.lane


A, B, C = scan("a", "x_1", "y_1"), scan("b", "x_2", "z_2"), scan("c", "z_3", "w_3")


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


# ---- inner joins -----------------------------------------------------------------------------


def test_a_tree_of_inner_joins_is_one_join_over_stored_collections() -> None:
    kept = ir.keep(Filter(inner(A, B, ("x_1", "x_2")), where("(y_1 > 1)", "y_1")), ["z_2", "y_1"])
    flow = dataflow(ir.keep(inner(kept, C, ("z_2", "z_3")), ["w_3"]))
    join = only(flow, DeltaJoin)
    assert [type(i) for i in join.inputs] == [Scanned, Scanned, Scanned]
    assert [[hop.input for hop in path] for path in join.paths] == [[1, 2], [2, 0], [1, 0]]
    assert sorted(arranged(flow)) == [("a", ("x",)), ("b", ("x",)), ("b", ("z",)), ("c", ("z",))]
    assert flow.lanes[join.output].names == ("y_1", "w_3"), "keys that nobody asks for are dropped"
    assert steps(flow, output(flow)) == [["Project", "Filter"]]


def test_filters_and_computed_columns_of_an_input_move_above_the_join_in_their_order() -> None:
    left = Project(
        Filter(A, where("(y_1 <> 0)", "y_1")),
        (reference(column("x_1")), named("q_4", "(1 / y_1)", "double", "y_1")),
    )
    flow = dataflow(inner(left, B, ("x_1", "x_2")))
    join = only(flow, DeltaJoin)
    assert isinstance(join.inputs[0], Scanned)
    (edge,) = (edge for edge in flow.edges if edge.source == join.output)
    chain = [type(n).__name__ for n in edge.chain()]
    assert chain.index("Filter") > chain.index("Project"), "what a filter protects stays protected"


def test_rows_without_a_partner_are_given_to_what_may_fail_on_them() -> None:
    fails = where("((10 / y_1) > 1)", "y_1")
    for kind in ("inner", "semi", "anti"):
        for condition, reads in ((where("(y_1 > 1)", "y_1"), []), (fails, ["y"])):
            flow = dataflow(inner(Filter(A, condition), B, ("x_1", "x_2"), kind=kind))
            found = [o for o in flow.operators if isinstance(o, Read)]
            assert [f.field for one in found for f in one.of.fields] == reads
            edges = [edge for edge in flow.edges if edge.target == output(flow)]
            assert len(edges) == 1 + len(found) or kind != "inner"
    unused = Project(A, (reference(column("x_1")), named("q_4", "(1 / y_1)", "double", "y_1")))
    flow = dataflow(ir.keep(inner(unused, B, ("x_1", "x_2")), ["z_2"]))
    assert not [o for o in flow.operators if isinstance(o, Read)], "computed for nobody"


def test_what_may_fail_on_rows_of_a_join_is_done_before_the_next() -> None:
    both = inner(A, B, ("x_1", "x_2"))
    for text, inputs in (("(y_1 > z_2)", 3), ("((y_1 / z_2) > 1)", 2)):
        residual = Join(A, B, "inner", both.keys, where(text, "y_1", "z_2"))
        computed = named("q_4", text, BOOLEAN, "y_1", "z_2")
        for below in (
            Filter(both, where(text, "y_1", "z_2")),
            Project(both, (reference(column("z_2")), computed)),
            residual,
        ):
            flow = dataflow(inner(below, C, ("z_2", "z_3")))
            last = [o for o in flow.operators if isinstance(o, DeltaJoin)][-1]
            assert len(last.inputs) == inputs
            assert kinds(flow).count("DeltaJoin") == (1 if inputs == 3 else 2)
            top = dataflow(below)
            assert len(only(top, DeltaJoin).inputs) == 2, "nothing comes after it"


def test_a_cast_that_keeps_the_form_of_a_key_does_not_stand_in_the_way() -> None:
    narrow = scan("a", "x_1", type_="int")
    key = JoinKey(Expression("CAST(x_1 AS BIGINT)", "bigint", True, ("x_1",)), plain("x_2"))
    flow = dataflow(Join(narrow, B, "inner", (key,)))
    assert sorted(arranged(flow)) == [("a", ("x",)), ("b", ("x",))]


def test_a_cast_that_changes_the_form_of_a_key_makes_a_lane() -> None:
    narrow = scan("a", "x_1", type_="int")
    other = scan("b", "x_2", type_="decimal(12,2)")
    key = JoinKey(
        Expression("CAST(x_1 AS DECIMAL(12,2))", "decimal(12,2)", True, ("x_1",)),
        plain("x_2", "decimal(12,2)"),
    )
    flow = dataflow(Join(narrow, other, "inner", (key,)))
    assert [type(i) for i in only(flow, DeltaJoin).inputs] == [Laned, Scanned]
    assert sorted(arranged(flow)) == [("b", ("x",)), ("lane", ("_key_1",))]


def test_names_that_are_used_twice_below_do_not_meet() -> None:
    def side(shown: str) -> Node:
        rows = Filter(scan("a", "x_1", "y_1"), where("(y_1 > 1)", "y_1"))
        return Project(rows, (named(shown, "x_1", "bigint", "x_1"),))

    join = only(dataflow(inner(side("p_4"), side("q_5"), ("p_4", "q_5"))), DeltaJoin)
    names = [c.name for i in join.inputs for c in i.columns]
    assert len(set(names)) == len(names)


def test_a_collection_joined_with_itself_is_read_twice_under_other_names() -> None:
    again = Project(A, (named("x_4", "x_1", "bigint", "x_1"), named("y_5", "y_1", "bigint", "y_1")))
    flow = dataflow(inner(A, again, ("x_1", "y_5")))
    assert sorted(arranged(flow)) == [("a", ("x",)), ("a", ("y",))]


def test_what_nothing_relates_meets_at_a_constant() -> None:
    flow = dataflow(inner(A, B))
    join = only(flow, DeltaJoin)
    assert [type(i) for i in join.inputs] == [Laned, Laned]
    assert all(key[0].startswith("_one_") for _, key in arranged(flow))


def test_an_equality_in_a_filter_is_a_key() -> None:
    flow = dataflow(
        Filter(inner(inner(A, C), B, ("z_3", "z_2")), where("(x_1 = w_3)", "x_1", "w_3"))
    )
    assert ("c", ("w",)) in arranged(flow)
    assert not any(key[0].startswith("_one_") for _, key in arranged(flow))


def test_an_equality_that_a_path_does_not_look_up_is_checked_after_it() -> None:
    both = Join(
        A, B, "inner", (JoinKey(plain("x_1"), plain("x_2")), JoinKey(plain("y_1"), plain("x_2")))
    )
    flow = dataflow(both)
    (edge,) = flow.edges
    texts = [n.condition.text for n in edge.chain() if isinstance(n, Filter)]
    assert texts == ["(x_1 = x_2)", "(y_1 = x_2)"][-len(texts) :]
    assert texts


def test_paths_take_most_columns_first_and_every_equality_is_enforced_or_reported() -> None:
    equalities = [
        Equality((0, "a"), (1, "a2")),
        Equality((1, "b"), (2, "b2")),
        Equality((0, "c"), (2, "c2")),
    ]
    found = routes([["a", "c"], ["a2", "b"], ["b2", "c2"]], equalities)
    assert [[hop.input for hop in path] for path in found.paths] == [[1, 2], [0, 2], [0, 1]]
    assert found.paths[0][1].key == ("b2", "c2")
    assert found.unenforced == frozenset()
    lone = routes(
        [["a"], ["b"], ["c"]], [Equality((0, "a"), (1, "b"), True), Equality((1, "b"), (2, "c"))]
    )
    assert lone.unenforced == frozenset()
    fork = routes([["a", "b"], ["c"]], [Equality((0, "a"), (1, "c")), Equality((0, "b"), (1, "c"))])
    assert fork.unenforced == frozenset({1})


# ---- semi, anti, outer -----------------------------------------------------------------------


def test_a_semi_join_counts_the_right_and_reads_the_left_as_it_is_stored() -> None:
    left = Filter(A, where("(y_1 > 1)", "y_1"))
    flow = dataflow(inner(left, B, ("x_1", "x_2"), kind="semi"))
    semi = only(flow, Semi)
    assert isinstance(semi.left, Scanned)
    assert isinstance(semi.right, Scanned)
    assert [f.field for f in semi.right.fields] == ["x"], "of the right only the key"
    assert steps(flow, output(flow)) == [["Filter"]]
    assert flow.state(semi.counts).columns[-1].name == "_count_0"


def test_a_condition_beside_the_keys_is_a_join_and_a_semi_join_by_what_it_mentions() -> None:
    plan = Join(
        scan("a", "x_1", "y_1", "v_1"),
        B,
        "anti",
        (JoinKey(plain("x_1"), plain("x_2")),),
        where("(y_1 < z_2)", "y_1", "z_2"),
    )
    flow = dataflow(plan)
    assert kinds(flow) == ["DeltaJoin", "Semi"]
    semi = only(flow, Semi)
    assert [(key.left, key.null_safe) for key in semi.keys] == [("x_1", True), ("y_1", True)]


def test_not_in_is_an_anti_join_and_two_flags() -> None:
    key = JoinKey(plain("x_1"), plain("x_2"), "=?")
    flow = dataflow(Join(A, B, "anti", (key,)))
    assert kinds(flow) == ["Semi", "Accumulate", "DeltaJoin"]
    flags = only(flow, DeltaJoin).inputs[1]
    assert [c.type for c in flags.columns] == [BOOLEAN, BOOLEAN, "int"], "no count goes in"


def test_an_outer_join_is_the_inner_one_and_padded_rows() -> None:
    for kind, operators in (("left", 1), ("right", 1), ("full", 2)):
        flow = dataflow(inner(A, B, ("x_1", "x_2"), kind=kind))  # type: ignore[arg-type]
        assert kinds(flow) == ["DeltaJoin", *["Semi"] * operators]
        assert len(steps(flow, output(flow))) == 1 + operators


def test_the_pairs_of_an_outer_join_with_a_condition_are_computed_once() -> None:
    keys = (JoinKey(plain("x_1"), plain("x_2")),)
    flow = dataflow(Join(A, B, "full", keys, where("(y_1 < z_2)", "y_1", "z_2")))
    assert kinds(flow) == ["DeltaJoin", "Semi", "Semi"]


def test_padding_that_a_filter_rejects_is_not_made() -> None:
    left = inner(A, B, ("x_1", "x_2"), kind="left")
    assert kinds(dataflow(Filter(left, where("(y_1 < z_2)", "y_1", "z_2")))) == ["DeltaJoin"]
    literal = Filter(left, where("(CAST(z_2 AS DECIMAL(20,0)) > CAST(1 AS DECIMAL(20,0)))", "z_2"))
    assert kinds(dataflow(literal)) == ["DeltaJoin"]
    kept = Filter(left, where("(y_1 <=> z_2)", "y_1", "z_2"))
    assert kinds(dataflow(kept)) == ["DeltaJoin", "Semi"], "NULL <=> NULL is true"
    assert "Semi" in kinds(dataflow(Filter(left, where("(y_1 < x_1)", "x_1", "y_1"))))


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
    called = Project(A, (named("p_4", "my_function(x_1)", "bigint", "x_1"),))
    assert lowered(called, ["my_function"]) == NoRule(
        "project", "my_function() is a function in Python"
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

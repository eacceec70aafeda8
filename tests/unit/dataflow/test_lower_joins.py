"""The rules of the lowering, one by one: what joins become."""

from __future__ import annotations

from random import Random

import pytest

from headwater.compute.dataflow.graph import (
    DeltaJoin,
    Laned,
    Read,
    Scanned,
    Semi,
)
from headwater.compute.dataflow.hops import Equality, Routes, routes
from headwater.compute.ir import node as ir
from headwater.compute.ir.expression import (
    Expression,
    JoinKey,
)
from headwater.compute.ir.node import Filter, Join, Node, Project, reference
from tests.unit.dataflow.lowered_plans import (
    BOOLEAN,
    A,
    B,
    C,
    arranged,
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

# ---- inner joins -----------------------------------------------------------------------------


def test_a_tree_of_inner_joins_is_one_join_over_stored_collections() -> None:
    kept = ir.keep(Filter(inner(A, B, ("x_1", "x_2")), where("(y_1 > 1)", "y_1")), ["z_2", "y_1"])
    flow = dataflow(ir.keep(inner(kept, C, ("z_2", "z_3")), ["w_3"]))
    join = only(flow, DeltaJoin)
    assert [type(i) for i in join.inputs] == [Scanned, Scanned, Scanned]
    assert [[hop.input for hop in path] for path in join.paths] == [[1, 2], [0, 2], [1, 0]]
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


def test_a_key_that_may_fail_is_asked_of_the_rows_of_its_join_alone() -> None:
    """Of an input it would be asked on rows that join nothing, on which the plan does not fail."""
    both = inner(A, B, ("x_1", "x_2"))
    for text, inputs in (("upper(y_1)", 3), ("(10 div y_1)", 2)):
        key = Expression(text, "bigint", True, ("y_1",))
        for join in (
            Join(both, C, "inner", (JoinKey(key, plain("z_3")),)),
            Join(C, both, "inner", (JoinKey(plain("z_3"), key),)),
        ):
            flow = dataflow(join)
            last = [o for o in flow.operators if isinstance(o, DeltaJoin)][-1]
            assert len(last.inputs) == inputs, text
            assert kinds(flow).count("DeltaJoin") == (1 if inputs == 3 else 2)
    alone = dataflow(inner(Join(A, C, "inner", (JoinKey(key, plain("z_3")),)), B, ("x_1", "x_2")))
    assert kinds(alone).count("DeltaJoin") == 1, "all rows of A get to it"


def _filters(node: Node) -> list[str]:
    """The filters before and after the one join of a plan."""
    flow = dataflow(node)
    join = only(flow, DeltaJoin)
    below = {origin.lane for origin in join.inputs if isinstance(origin, Laned)}
    told = []
    for place, lanes in (("below", below), ("after", {output(flow)})):
        for edge in flow.edges:
            found = [n.condition.text for n in edge.chain() if isinstance(n, Filter)]
            told += [f"{place} {text}" for text in found if edge.target in lanes]
    return told


def test_a_filter_of_one_lane_is_below_its_arrangement() -> None:
    """What no equality relates is arranged by a constant, so as a lane of the view."""
    of_a, of_both = "(y_1 > 1)", "(y_1 > z_2)"
    across = Join(A, B, "inner")
    names = ("y_1", "z_2")
    for text, told in (
        (of_a, [f"below {of_a}"]),
        (of_both, [f"after {of_both}"]),
        (f"({of_both} AND {of_a})", [f"below {of_a}", f"after {of_both}"]),
        (f"({of_both} OR {of_a})", [f"after ({of_both} OR {of_a})"]),
        (f"({of_a} AND (z_2 IN (1, 2)))", [f"below {of_a}", "below (z_2 IN (1, 2))"]),
        ("true", ["after true"]),
    ):
        condition = where(text, *(name for name in names if name in text))
        assert sorted(_filters(Filter(across, condition))) == sorted(told)
        assert sorted(_filters(Join(A, B, "inner", (), condition))) == sorted(told)


def test_a_filter_that_may_fail_or_comes_after_one_stays_after_the_join() -> None:
    """Below, it would fail on rows that join nothing; or rows would be gone that fail."""
    across, fails = Join(A, B, "inner"), "((10 / y_1) > 1)"
    assert _filters(Filter(across, where(fails, "y_1"))) == [f"after {fails}"]
    both = f"((y_1 > 1) AND {fails})"  # After a NULL the second is asked, too.
    assert _filters(Filter(across, where(both, "y_1"))) == [f"after {both}"]
    first = Filter(across, where(fails, "y_1"))
    assert _filters(Filter(first, where("(y_1 > 1)", "y_1"))) == [
        "after (y_1 > 1)",
        f"after {fails}",
    ]
    before = Filter(across, where("(y_1 > 1)", "y_1"))
    assert _filters(Filter(before, where(fails, "y_1"))) == ["below (y_1 > 1)", f"after {fails}"]


def test_a_filter_stays_after_the_join_where_the_key_of_its_lane_may_fail() -> None:
    """Below, the key would not be asked of rows that it fails on, as an outer join asks it."""
    condition = where("(z_2 > 1)", "z_2")
    for text, place in (("upper(x_2)", "below"), ("(10 div x_2)", "after")):
        key = JoinKey(plain("x_1"), Expression(text, "bigint", True, ("x_2",)))
        for kind in ("inner", "left"):  # One that the filter makes an inner join.
            joined = Join(A, B, kind, (key,))
            assert _filters(Filter(joined, condition)) == [f"{place} (z_2 > 1)"], (text, kind)


def test_an_equality_of_a_filter_that_no_path_looks_up_by_is_checked() -> None:
    condition = where("(y_1 = w_3)", "y_1", "w_3")
    for a in (A, Filter(A, where("(y_1 > 1)", "y_1"))):
        keyed = inner(inner(a, B, ("x_1", "x_2")), C, ("z_2", "z_3"))
        assert "after (y_1 = w_3)" in _filters(Filter(keyed, condition))


def test_what_is_stored_is_arranged_for_all_and_filtered_by_each() -> None:
    kept = Filter(inner(A, B, ("x_1", "x_2")), where("(y_1 > 1)", "y_1"))
    assert _filters(kept) == ["after (y_1 > 1)"]


def test_a_cast_that_keeps_the_form_of_a_key_does_not_stand_in_the_way() -> None:
    narrow = scan("a", "x_1", type_="int")
    key = JoinKey(Expression("CAST(x_1 AS BIGINT)", "bigint", True, ("x_1",)), plain("x_2"))
    flow = dataflow(Join(narrow, B, "inner", (key,)))
    assert sorted(arranged(flow)) == [("a", ("x",)), ("b", ("x",))]


@pytest.mark.parametrize(
    ("wide", "is_kept"),
    [("12,2", True), ("12,4", True), ("11,4", False), ("12,1", False), ("9,1", False)],
)
def test_a_cast_of_decimals_keeps_a_key_if_it_keeps_every_digit(wide: str, is_kept: bool) -> None:
    narrow, type_ = scan("a", "x_1", type_="decimal(10,2)"), f"decimal({wide})"
    cast = Expression(f"CAST(x_1 AS DECIMAL({wide}))", type_, True, ("x_1",))
    key = JoinKey(cast, plain("x_2", type_))
    flow = dataflow(Join(narrow, scan("b", "x_2", type_=type_), "inner", (key,)))
    inputs = [Scanned if is_kept else Laned, Scanned]
    assert [type(i) for i in only(flow, DeltaJoin).inputs] == inputs


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


def test_what_a_path_does_not_look_up_is_checked_before_what_may_fail() -> None:
    """Else an error came with a row of one input, and did not go with one of the other."""
    keys = (JoinKey(plain("x_1"), plain("x_2")), JoinKey(plain("y_1"), plain("x_2")))
    fails = where("((10 / y_1) > 1)", "y_1")
    flow = dataflow(Join(Filter(A, fails), B, "inner", keys))
    pairs = only(flow, DeltaJoin).output
    (edge,) = (edge for edge in flow.edges if edge.source == pairs)
    texts = [n.condition.text for n in edge.chain() if isinstance(n, Filter)]
    assert texts == ["((10 / y_1) > 1)", "(y_1 = x_2)"], "from the last one down"


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


def visited(found: Routes) -> list[list[int]]:
    return [[hop.input for hop in path] for path in found.paths]


def made(found: Routes) -> set[tuple[int, tuple[str, ...]]]:
    return {(hop.input, hop.key) for path in found.paths for hop in path}


def test_paths_come_to_what_a_filter_narrows_before_they_go_to_the_rest() -> None:
    """All three by one column: a change of any looks up the narrow one, and that the wide one."""
    names = [["a"], ["b"], ["c"]]
    equal = [Equality((0, "a"), (1, "b")), Equality((0, "a"), (2, "c"))]
    for narrow in range(3):
        found = routes(names, equal, {narrow})
        firsts = [path[0] for number, path in enumerate(visited(found)) if number != narrow]
        assert firsts == [narrow, narrow]
        assert made(found) == made(routes(names, equal)), "by the same arrangements"


def _any(random: Random, names: list[list[str]], number: int) -> tuple[int, str]:
    return number, random.choice(names[number])


def test_whatever_is_narrow_every_equality_is_enforced_or_reported() -> None:
    random = Random(5)
    for _ in range(500):
        names = [[f"{c}_{n}" for c in "ab"] for n in range(random.choice([2, 3, 3, 4]))]
        equal = [
            Equality(_any(random, names, random.randrange(n)), _any(random, names, n))
            for n in range(1, len(names))
        ]
        for _ in range(random.randint(0, 2)):
            a, b = random.sample(range(len(names)), 2)
            ends = (_any(random, names, a), _any(random, names, b))
            equal.append(Equality(*ends, strength="key" if random.random() < 0.5 else "filter"))
        narrow = {n for n in range(len(names)) if random.random() < 0.4}
        found = routes(names, equal, narrow)
        for path in found.paths:
            same = {name: {name} for own in names for name in own}
            for hop in path:
                for probed, key in zip(hop.probe, hop.key, strict=True):
                    both = same[probed] | same[key]
                    same.update(dict.fromkeys(both, both))
            for number, one in enumerate(equal):
                if number not in found.unenforced:
                    assert one.right[1] in same[one.left[1]], (equal, narrow)


def test_no_arrangement_more_is_made_to_come_to_what_is_narrow() -> None:
    """The narrow one is related to both ends of the chain, by another column to each."""
    names = [["a", "p"], ["b", "q"], ["c", "d"]]
    equal = [Equality((0, "a"), (1, "b")), Equality((1, "q"), (2, "c"))]
    assert len(made(routes(names, equal, {2}))) == len(made(routes(names, equal))) == 4


def test_a_plan_tells_which_inputs_its_filters_narrow() -> None:
    """As in TPC-H 17: an average looked up all lines of its part, and then if it is of use."""
    third = scan("c", "x_3", "w_3")
    for filtered, first in ((A, 0), (B, 1), (third, 2)):
        column = filtered.columns[1].name
        narrow = Filter(filtered, where(f"({column} = 5)", column))
        a, b, c = (narrow if each is filtered else each for each in (A, B, third))
        join = only(dataflow(inner(inner(a, b, ("x_1", "x_2")), c, ("x_1", "x_3"))), DeltaJoin)
        firsts = [path[0].input for number, path in enumerate(join.paths) if number != first]
        assert firsts == [first, first]


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

"""Versions of groups, and what is made of them: at every time what the function of a group says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headwater.compute.dataflow.bounds import written
from headwater.compute.dataflow.edge import BEFORE, PLACE, UNTIL, VERSION_OF, Edge, lane_scan
from headwater.compute.dataflow.graph import Arrangement, Dataflow, Laned, Unversion, Versions
from headwater.compute.dataflow.lower import NoRule, lowered
from headwater.compute.dataflow.operator import Given, Outcome, update_schema
from headwater.compute.dataflow.ops import unversion, versions
from headwater.compute.ir.expression import (
    AggregateCall,
    Column,
    Expression,
    Field,
    SortKey,
    WindowCall,
)
from headwater.compute.ir.node import Aggregate, Node, Scan, Window, reference
from headwater.compute.ir.refusal import InvalidPlan
from headwater.compute.ir.text import outlined
from headwater.persist.consolidate import TIME
from headwater.testing.plans import Plans
from headwater.testing.relations import PAIR
from headwater.testing.rig import Rig, Row, Rows
from tests.seeds import seeds
from tests.unit.dataflow.exact_plans import exact

G, X = Column("g_1", "double", True), Column("x_2", "int", True)
GIVEN = Laned(0, (G, X))
SHARE = Column("share_3", "string", True)
SYSTEM = (VERSION_OF, PLACE, UNTIL, BEFORE)

# ---- the two operators -----------------------------------------------------------------------


def shares(rows: list[Row]) -> list[Row]:
    """What is asked of a group: each row's place in it, by its values, and all of its values."""
    values = sorted(repr(x) for _, x in rows)
    return [(g, x, f"{values.index(repr(x))} of {','.join(values)}") for g, x in rows]


def both(op: Versions, given: Given) -> Outcome:
    """Versions, a function of each of them in Python, and updates of what it says."""
    found = versions.step(op, replace(given, output=update_schema((*SYSTEM, G, X)))).output
    times = found.column(TIME).to_pylist()
    assert all(given.lower <= time < given.upper for time in times)
    groups: dict[int, list[dict[str, Any]]] = {}
    for row in found.to_pylist():
        groups.setdefault(row[VERSION_OF.name], []).append(row)
    made = []
    for rows in groups.values():
        assert sorted(row[PLACE.name] for row in rows) == list(range(1, len(rows) + 1))
        rows.sort(key=lambda row: row[PLACE.name])
        told = shares([(row[G.name], row[X.name]) for row in rows])
        assert len({(row[UNTIL.name], row[BEFORE.name], row[TIME]) for row in rows}) == 1
        made += [{**row, SHARE.name: share} for row, (_, _, share) in zip(rows, told, strict=True)]
    origin = Laned(1, (UNTIL, BEFORE, G, X, SHARE))
    delta = pa.Table.from_pylist(made, schema=update_schema((*SYSTEM, G, X, SHARE)))
    delta = delta.select(update_schema(origin.columns).names)
    return unversion.step(Unversion(origin, 2), replace(given, deltas={origin: delta}))


def rig(seed: int) -> Rig:
    op = Versions(GIVEN, (X.name,), "a", 1)
    arrangement = Arrangement("a", GIVEN, (G.name,))
    return Rig(op, both, output=(G, X, SHARE), arrangements=[arrangement], seed=seed)


def by_force(inputs: Mapping[Any, Rows]) -> list[Row]:
    groups: dict[Any, list[Row]] = {}
    for (g, x), count in inputs[GIVEN].items():
        groups.setdefault(g, []).extend([(g, x)] * count)
    return [row for rows in groups.values() for row in shares(rows)]


@pytest.mark.parametrize("seed", seeds(8, 120))
def test_a_function_of_groups_is_exact_at_every_time(seed: int) -> None:
    random, tested, held = Random(seed), rig(seed), Counter[Row]()
    for _ in range(4):
        upper = tested.upper + random.randint(1, 4)
        updates = []
        for _ in range(random.randint(0, 6)):
            time = random.randrange(tested.upper, upper)
            updates.append((time, random.random() < 0.45))
        made = []
        for time, goes in sorted(updates):
            there = sorted(held.elements(), key=repr)
            if there and goes:
                gone = random.choice(there)
                held[gone] -= 1
                made.append((gone, time, -1))
            row = (random.choice([0.0, 1.5, None]), random.choice([None, 1, 2]))
            copies = random.randint(1, 2)
            held[row] += copies
            made.append((row, time, copies))
        tested.step({GIVEN: made}, upper)
    tested.check(by_force)


def test_both_zeros_are_one_group_and_stay_what_they_are() -> None:
    tested = rig(0)
    tested.step({GIVEN: [((0.0, 1), 0, 1)]}, 1)
    outcome = tested.step({GIVEN: [((-0.0, 2), 1, 1)]}, 2)
    rows = [
        (repr(g), x, share, diff)
        for g, x, share, _, diff in zip(*outcome.output.to_pydict().values(), strict=True)
    ]
    assert sorted(rows) == [
        ("-0.0", 2, "1 of 1,2", 1),
        ("0.0", 1, "0 of 1", -1),
        ("0.0", 1, "0 of 1,2", 1),
    ]


def test_only_groups_that_changed_are_read() -> None:
    tested = rig(0)
    tested.step({GIVEN: [((float(g), x), 0, 1) for g in range(50) for x in range(20)]}, 1)
    tested.step({GIVEN: [((3.0, 99), 1, 1), ((3.0, 5), 2, -1)]}, 3)
    assert tested.rows_read == 22, "20 rows of the group and its two changes"
    tested.check(by_force)


# ---- plans with windows ----------------------------------------------------------------------

FRAMES = (
    "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
    "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    "RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
)
RANKS = ("row_number", "rank", "dense_rank")


class WindowPlans(Plans):
    """Random plans in which windows, and aggregates by windows, are frequent."""

    def node(self, depth: int) -> Node:
        if depth > 0 and self.random.random() < 0.4:
            return self._windowed(depth - 1) if self.random.random() < 0.7 else self._whole(depth)
        return super().node(depth)

    def _windowed(self, depth: int) -> Node:
        source = self.node(depth)
        partition = tuple(
            reference(column).expression
            if column.type == PAIR
            else self.expression(source.columns, column.type, 1)
            for column in source.columns
            if self.random.random() < 0.3
        )
        order = self._order(source.columns)
        count = self.random.randint(1, 3)
        calls = tuple(self._over(source.columns, bool(order)) for _ in range(count))
        return Window(source, partition, order, calls)

    def _over(self, columns: tuple[Column, ...], is_ordered: bool) -> WindowCall:
        kinds = ["sum", "min", "count", "first", "last", *(RANKS if is_ordered else ())]
        kinds += ["lag", "lead"] if is_ordered else []
        function = self.random.choice(kinds)
        frame = self.random.choice(FRAMES if is_ordered else FRAMES[:1])
        value = self.expression(columns, "int" if function != "sum" else "bigint", 1)
        arguments: tuple[Expression, ...] = (value,)
        type_ = "bigint" if function in ("sum", "count") else "int"
        if function in RANKS:
            arguments, frame = (), FRAMES[1]
        elif function in ("lag", "lead"):
            arguments = (value, Expression("1", "int", False), Expression("NULL", "void", True))
            frame = "ROWS BETWEEN 1 FOLLOWING AND 1 FOLLOWING"
        text = f"{function}({', '.join(argument.text for argument in arguments)})"
        name = self.name("over")
        mentioned = sorted({name for argument in arguments for name in argument.columns})
        return WindowCall(name, function, text, frame, type_, True, tuple(mentioned), arguments)

    def _whole(self, depth: int) -> Node:
        source = self.node(depth - 1)
        groups = tuple(c.name for c in source.columns if self.random.random() < 0.3)
        calls = [self.call(source.columns) for _ in range(self.random.randint(0, 2))]
        calls = [call for call in calls if not call.distinct]
        for function in self.random.choice([("median",), ("bit_and",), ("bit_and", "median")]):
            value = self.expression(source.columns, "int", 1)
            type_ = "double" if function == "median" else "int"
            text = f"{function}({value.text})"
            call = AggregateCall(
                self.name(function), function, text, type_, True, value.columns, (value,)
            )
            calls.append(call)
        return Aggregate(source, groups, tuple(calls))


def check(seed: int) -> str:
    random = Random(seed)
    found = exact(WindowPlans(random).node(random.choice([1, 2, 3])), random, seed)
    if isinstance(found, str):
        return found
    return "versions" if any(isinstance(o, Versions) for o in found.operators) else "checked"


@pytest.mark.parametrize("first", seeds(40, 800, 40))
def test_windows_in_random_plans_are_exact_at_every_time(first: int) -> None:
    print(f"seeds {first} to {first + 39}")
    outcomes = [check(seed) for seed in range(first, first + 40)]
    assert outcomes.count("versions") > 12, outcomes
    assert not [outcome for outcome in outcomes if outcome.startswith("no rule")], outcomes


# ---- what becomes of a plan ------------------------------------------------------------------

T = Scan("t", (Field("k", Column("k_1", "int", True)), Field("v", Column("v_1", "int", True))))
K, V = (reference(column).expression for column in T.columns)


def window(text: str, function: str, argument: Expression = V) -> Window:
    call = WindowCall("w_1", function, text, FRAMES[1], "int", True, ("v_1",), (argument,))
    return Window(T, (K,), (SortKey(V),), (call,))


def aggregate(function: str, *, distinct: bool = False, groups: tuple[str, ...] = ()) -> Node:
    text = f"{function}({'DISTINCT ' if distinct else ''}v_1)"
    call = AggregateCall("c_1", function, text, "double", True, ("v_1",), (V,), distinct)
    return Aggregate(T, groups, (call,))


def flow(node: Node) -> Dataflow:
    found = lowered(node)
    assert isinstance(found, Dataflow), found
    return found


def test_the_rows_of_a_window_are_arranged_once_for_all_views() -> None:
    found = flow(window("max(v_1)", "max"))
    (arrangement,) = found.arrangements
    assert arrangement.of.columns == T.columns
    assert arrangement.key == ("k_1",)
    assert "the rows of each changed group" in written(found)


def test_arguments_are_computed_before_the_window() -> None:
    ratio = Expression("(1 div v_1)", "int", True, ("v_1",))
    found = flow(window("max((1 div v_1))", "max", ratio))
    (made,) = [edge.window for edge in found.edges if edge.window is not None]
    (call,) = made.calls
    assert call.text == "max(_argument_1)"
    assert "(1 div v_1)" in "".join(outlined(edge.node) for edge in found.edges)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        # What a literal says is no argument, even if it reads like one.
        (("upper(v_1)", "1", "'upper(v_1)'"), "lag(_argument_1, 1, 'upper(v_1)')"),
        (("upper(v_1)", "1", "upper(upper(v_1))"), "lag(_argument_1, 1, _argument_2)"),
    ],
)
def test_columns_stand_for_arguments_and_for_nothing_else(
    texts: tuple[str, ...], said: str
) -> None:
    arguments = tuple(
        Expression(text, "string", True, ("v_1",) if text.startswith("upper") else ())
        for text in texts
    )
    text = f"lag({', '.join(texts)})"
    call = WindowCall("w_1", "lag", text, FRAMES[0], "string", True, ("v_1",), arguments)
    found = flow(Window(T, (K,), (SortKey(V),), (call,)))
    (made,) = [edge.window for edge in found.edges if edge.window is not None]
    assert [call.text for call in made.calls] == [said]


def test_distinct_calls_and_unknown_functions_have_no_rule() -> None:
    for node in (aggregate("median", distinct=True, groups=("k_1",)), aggregate("hyper_mean")):
        found = lowered(node)
        assert isinstance(found, NoRule)
        assert found.kind == "aggregate"


def test_an_edge_has_a_window_only_by_version_and_only_at_its_begin() -> None:
    scan = lane_scan((VERSION_OF, X))
    call = WindowCall("w_1", "max", "max(x_2)", FRAMES[0], "int", True, ("x_2",))
    by = reference(X).expression
    with pytest.raises(InvalidPlan, match="by version"):
        Edge(0, Window(scan, (by,), (), (call,)), 1)
    version = reference(VERSION_OF).expression
    inner = Window(scan, (version,), (), (call,))
    again = WindowCall("w_2", "max", "max(x_2)", FRAMES[0], "int", True, ("x_2",))
    with pytest.raises(InvalidPlan, match="not linear"):
        Edge(0, Window(inner, (version,), (), (again,)), 1)

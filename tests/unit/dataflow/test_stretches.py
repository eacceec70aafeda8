"""Rows around changes, and what is made of them: at every time what the whole partition says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headwater.compute.dataflow.bounds import written
from headwater.compute.dataflow.edge import BEFORE, PLACE, UNTIL, VERSION_OF
from headwater.compute.dataflow.graph import (
    Dataflow,
    Laned,
    Sort,
    State,
    Stretches,
    Unversion,
    Versions,
)
from headwater.compute.dataflow.lower import lowered
from headwater.compute.dataflow.operator import Given, Outcome, update_schema
from headwater.compute.dataflow.ops import stretches, unversion
from headwater.compute.ir.expression import Column, Expression, Field, SortKey, WindowCall
from headwater.compute.ir.node import Scan, Window, reference
from headwater.persist.consolidate import DIFF, TIME
from headwater.testing.rig import Rig, Row, Rows
from tests.seeds import seeds

P, X, Y = Column("p_1", "double", True), Column("x_2", "int", True), Column("y_3", "string", True)
GIVEN = Laned(0, (P, X, Y))
NEAR = Column("near_4", "string", True)
SYSTEM = (VERSION_OF, PLACE, UNTIL, BEFORE)


def answers(rows: list[Row], before: int, after: int) -> list[str]:
    """What is asked of rows in their order: who is before each, and behind it."""
    return [
        f"{rows[max(0, at - before) : at]} {rows[at + 1 : at + 1 + after]}"
        for at in range(len(rows))
    ]


def near_by(rows: list[Row], before: int, after: int, descending: bool) -> list[str]:
    """The same by value: who is so near on either side."""

    def near(x: int | None, other: int | None) -> bool:
        if x is None or other is None:
            return x is other
        further = x - other if descending else other - x
        return -before <= further <= after

    return [str([row for row in rows if near(x, row[0])]) for x, _ in rows]


def told(op: Stretches, rows: list[Row]) -> list[str]:
    if op.by_value:
        return near_by(rows, op.before, op.after, op.order[0].descending)
    return answers(rows, op.before, op.after)


def both(op: Stretches, given: Given) -> Outcome:
    """Stretches, a function of each row's neighbours in Python, and updates of what it says."""
    found = stretches.step(op, replace(given, output=update_schema((*SYSTEM, P, X, Y))))
    groups: dict[int, list[dict[str, Any]]] = {}
    for row in found.output.to_pylist():
        assert given.lower <= row[TIME] < given.upper
        groups.setdefault(row[VERSION_OF.name], []).append(row)
    made = []
    for rows in groups.values():
        rows.sort(key=lambda row: row[PLACE.name])
        assert [row[PLACE.name] for row in rows] == list(range(1, len(rows) + 1))
        assert len({(row[UNTIL.name], row[BEFORE.name], row[TIME]) for row in rows}) == 1
        values = [(row[X.name], row[Y.name]) for row in rows]
        near = told(op, values)
        made += [{**row, NEAR.name: text} for row, text in zip(rows, near, strict=True)]
    origin = Laned(1, (UNTIL, BEFORE, P, X, Y, NEAR))
    delta = pa.Table.from_pylist(made, schema=update_schema((*SYSTEM, P, X, Y, NEAR)))
    delta = delta.select(update_schema(origin.columns).names)
    outcome = unversion.step(Unversion(origin, 2), replace(given, deltas={origin: delta}))
    return replace(outcome, states=found.states)


def rig(
    seed: int,
    before: int,
    after: int,
    sort: Sort,
    partition: tuple[str, ...] = (P.name,),
    *,
    by_value: bool = False,
) -> Rig:
    ties = (P.name, X.name, Y.name)
    op = Stretches(GIVEN, partition, (sort,), ties, before, after, "s", 1, by_value)
    columns = stretches.state_columns(GIVEN.columns)
    state = State("s", columns, (stretches.NUMBER.name,), ordered=True)
    return Rig(op, both, output=(P, X, Y, NEAR), states=[state], seed=seed)


def ordered(rows: list[Row], sort: Sort) -> list[Row]:
    """Return the rows of a partition in its order; ties in canonical order, NULL before all."""

    def null_last(value: Any) -> Any:
        return (value is not None, value if value is not None else 0)

    ties = sorted(rows, key=lambda row: (null_last(row[0]), null_last(row[1]), str(row[2] or "")))
    known = [row for row in ties if row[1] is not None]
    nulls = [row for row in ties if row[1] is None]
    known.sort(key=lambda row: -row[1] if sort.descending else row[1])
    return [*nulls, *known] if sort.nulls_first else [*known, *nulls]


def by_force(op: Stretches, inputs: Mapping[Any, Rows]) -> list[Row]:
    groups: dict[Any, list[Row]] = {}
    for row, count in inputs[GIVEN].items():
        group = row[0] if op.partition else None
        groups.setdefault(group, []).extend([row] * count)
    made: list[Row] = []
    for rows in groups.values():
        placed = ordered(rows, op.order[0])
        near = told(op, [row[1:] for row in placed])
        made += [(*row, text) for row, text in zip(placed, near, strict=True)]
    return made


def oracle(tested: Rig) -> Callable[[Mapping[Any, Rows]], list[Row]]:
    op = tested.operator
    assert isinstance(op, Stretches)
    return lambda inputs: by_force(op, inputs)


def live(random: Random, tested: Rig, steps: int, rows: int) -> None:
    """Step: a first one with rows, then a few changes at several times each."""
    held: Counter[Row] = Counter()
    spread = random.choice([3, 30, 2**39, 2**60])

    def fresh() -> Row:
        partition = random.choice([1.5, 1.5, 1.5, None, 0.0])
        value = random.choice([None, *(random.randint(-spread, spread) for _ in range(8))])
        value = None if value is None else max(-(2**31), min(value, 2**31 - 1))
        return (partition, value, random.choice("ab"))

    for step in range(steps):
        upper = tested.upper + random.randint(1, 3)
        made = []
        for _ in range(rows if not step else random.randint(0, 5)):
            time = random.randrange(tested.upper, upper) if step else tested.upper
            made.append((fresh(), time, random.choice([1, 1, 2])))
        for row, _, count in made:
            held[row] += count
        there = sorted(held.elements(), key=repr)
        for row in random.sample(there, min(len(there), random.randint(0, 4) if step else 0)):
            # At the last time, when all that came is there.
            made.append((row, upper - 1, -1))
            held[row] -= 1
        tested.step({GIVEN: made}, upper)


@pytest.mark.parametrize("seed", seeds(60, 2_000))
def test_answers_of_neighbours_are_exact_at_every_time(seed: int) -> None:
    random = Random(seed)
    reach = random.choice([(1, 0), (0, 1), (2, 1), (0, 0), (3, 3)])
    sort = Sort(X.name, random.random() < 0.5, random.random() < 0.5)
    partition = (P.name,) if random.random() < 0.7 else ()
    tested = rig(seed, *reach, sort, partition)
    live(random, tested, 6, random.choice([0, 5, 60]))
    tested.check(oracle(tested))


@pytest.mark.parametrize("seed", seeds(40, 2_000))
def test_answers_of_what_is_near_are_exact_at_every_time(seed: int) -> None:
    random = Random(f"near {seed}")
    reach = random.choice([(1, 0), (0, 5), (7, 2), (0, 0), (2**30, 1)])
    sort = Sort(X.name, random.random() < 0.5, random.random() < 0.5)
    partition = (P.name,) if random.random() < 0.7 else ()
    tested = rig(seed, *reach, sort, partition, by_value=True)
    live(random, tested, 5, random.choice([0, 5, 60]))
    tested.check(oracle(tested))


def test_what_is_near_by_its_value_is_read_and_no_more() -> None:
    read = []
    for count in (200, 2_000):
        tested = rig(0, 3, 2, Sort(X.name), by_value=True)
        many(count, tested)
        tested.step({GIVEN: [((1.5, 100, "a"), 1, -1), ((1.5, 50, "b"), 2, 1)]}, 3)
        read.append(tested.rows_read)
        tested.check(oracle(tested))
    assert read == [22, 22], "five on either side of both, and those at them"


def many(count: int, tested: Rig) -> None:
    tested.step({GIVEN: [((1.5, x, "a"), 0, 1) for x in range(count)]}, 1)


@pytest.mark.parametrize("partition", [(P.name,), ()])
@pytest.mark.parametrize("descending", [False, True])
def test_what_is_read_does_not_follow_the_partition(
    partition: tuple[str, ...], descending: bool
) -> None:
    read = []
    for count in (200, 2_000):
        tested = rig(0, 1, 1, Sort(X.name, descending), partition)
        many(count, tested)
        inner = [((1.5, 100, "a"), 1, -1), ((1.5, 50, "b"), 2, 1)]
        ends = [((1.5, -5, "a"), 1, 1), ((1.5, count + 5, "b"), 2, 1)]
        outcome = tested.step({GIVEN: [*inner, *ends]}, 3)
        read.append(tested.rows_read)
        assert outcome.output.num_rows < 40
        tested.check(oracle(tested))
    assert read[0] == read[1] <= 6 * stretches.margin(2) + 2


@pytest.mark.parametrize("come", [-1, 190, 400])
@pytest.mark.parametrize("descending", [False, True])
def test_rows_that_have_gone_are_passed_over(come: int, descending: bool) -> None:
    """All neighbours went in steps of their own: margins grow until there are enough that stay."""
    tested = rig(1, 2, 1, Sort(X.name, descending))
    many(300, tested)
    first = min(max(come - 50, 0), 200)
    for third in range(3):
        gone = [x for x in range(first + third, first + 100, 3) if x not in (0, 299)]
        updates = [((1.5, x, "a"), tested.upper, -1) for x in gone]
        tested.step({GIVEN: updates}, tested.upper + 1)
    tested.step({GIVEN: [((1.5, come, "z"), tested.upper, 1)]}, tested.upper + 1)
    tested.check(oracle(tested))


# ---- planted ---------------------------------------------------------------------------------


def _fails(seeds_: range) -> bool:
    for seed in seeds_:
        try:
            test_answers_of_neighbours_are_exact_at_every_time(seed)
            for come in (-1, 190, 400):
                test_rows_that_have_gone_are_passed_over(come, descending=seed % 2 == 0)
        except AssertionError:
            return True
    return False


@pytest.mark.parametrize("defect", ["never short", "too few", "gone rows stay"])
def test_planted_defects_are_caught(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    short, found = stretches._short, stretches._found
    match defect:
        case "never short":
            monkeypatch.setattr(stretches, "_short", lambda found, _: found.begins & False)
        case "too few":
            monkeypatch.setattr(stretches, "SLACK", 0)
            monkeypatch.setattr(stretches, "_short", lambda found, n: short(found, max(0, n - 2)))
        case _:

            def once(op: Stretches, updates: pa.Table, *more: Any) -> Any:
                diffs = pc.max_element_wise(updates.column(DIFF), 1)
                place = updates.column_names.index(DIFF)
                return found(op, updates.set_column(place, DIFF, diffs), *more)

            monkeypatch.setattr(stretches, "_found", once)
    assert _fails(range(60)), f"nothing was seen of {defect!r}"


# ---- what becomes of a plan ------------------------------------------------------------------

T = Scan("t", (Field("k", Column("k_1", "int", True)), Field("v", Column("v_1", "int", True))))
K, V = (reference(column).expression for column in T.columns)


def call(function: str, frame: str, offset: str | None = None, **more: Any) -> WindowCall:
    arguments = (V,) if offset is None else (V, Expression(offset, "int", False))
    text = f"{function}({', '.join(argument.text for argument in arguments)})"
    name = f"w_{function}_1"
    return WindowCall(name, function, text, frame, "int", True, ("v_1",), arguments, **more)


def flow(*calls: WindowCall, order: Expression = V) -> Dataflow:
    found = lowered(Window(T, (K,), (SortKey(order),), calls))
    assert isinstance(found, Dataflow), found
    return found


def kinds(found: Dataflow) -> set[type]:
    return {type(operator) for operator in found.operators} & {Versions, Stretches}


ALL = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"


@pytest.mark.parametrize(
    ("calls", "reach"),
    [
        ([call("sum", "ROWS BETWEEN 3 PRECEDING AND 1 FOLLOWING")], (3, 1)),
        ([call("max", "ROWS BETWEEN CURRENT ROW AND CURRENT ROW")], (0, 0)),
        ([call("max", "ROWS BETWEEN 5 PRECEDING AND 2 PRECEDING")], (5, 0)),
        ([call("max", "ROWS BETWEEN -2 FOLLOWING AND 4 FOLLOWING")], (2, 4)),
        ([call("lag", "ROWS BETWEEN -2 FOLLOWING AND -2 FOLLOWING", "2")], (2, 2)),
        ([call("lag", ALL, "-3"), call("max", "ROWS BETWEEN 9 PRECEDING AND CURRENT ROW")], (9, 3)),
        ([call("sum", ALL)], None),
        ([call("max", "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW")], None),
        ([call("max", "RANGE BETWEEN 1 PRECEDING AND CURRENT ROW"), call("lag", ALL, "1")], None),
        ([call("max", "ROWS BETWEEN 1 PRECEDING AND CURRENT ROW"), call("rank", ALL)], None),
        ([call("lag", ALL, "2", ignore_nulls=True)], None),
        ([call("lag", ALL, "k_1")], None),
        ([call("max", "ROWS BETWEEN 100000 PRECEDING AND CURRENT ROW")], None),
    ],
)
def test_a_few_neighbours_are_a_stretch(
    calls: list[WindowCall], reach: tuple[int, int] | None
) -> None:
    found = flow(*calls)
    assert kinds(found) == {Versions if reach is None else Stretches}
    for operator in found.operators:
        if isinstance(operator, Stretches):
            assert (operator.before, operator.after) == reach
            (state,) = found.states
            assert state.ordered
            assert state.key == (stretches.NUMBER.name,)


def test_what_is_near_by_its_value_is_a_stretch() -> None:
    frames = (
        "RANGE BETWEEN 7 PRECEDING AND 1 PRECEDING",
        "RANGE BETWEEN CURRENT ROW AND 3 FOLLOWING",
    )
    found = flow(*(call(f, frame) for f, frame in zip(("max", "sum"), frames, strict=True)))
    (operator,) = [o for o in found.operators if isinstance(o, Stretches)]
    assert (operator.before, operator.after, operator.by_value) == (7, 3, True)
    assert "10 before and after each changed value" in written(found)


def test_an_order_without_ranks_reads_partitions() -> None:
    listed = Expression("array(v_1)", "array<int>", True, ("v_1",))
    assert kinds(flow(call("lag", ALL, "1"), order=listed)) == {Versions}

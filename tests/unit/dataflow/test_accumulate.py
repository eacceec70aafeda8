"""Accumulators against brute force, at every time: all functions, types, retractions, errors."""

from __future__ import annotations

import decimal
import math
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headwater.collection.types import by_spark
from headwater.compute.catalyst import rounding
from headwater.compute.dataflow.graph import AccumulateCall
from headwater.compute.dataflow.ops.accumulate import (
    OVERFLOW,
    canonical,
    is_accumulable,
    state_columns,
)
from headwater.compute.dataflow.ops.accumulators import terms_of
from headwater.compute.ir.expression import NAME
from headwater.persist.consolidate import DIFF, TIME, consolidate
from headwater.testing.rig import multiset, rows_at
from tests.unit.dataflow.brute_force import (
    DECIMAL,
    SEED,
    VALUES,
    check,
    columns_of,
    pool_of,
    rig_of,
    run,
    wild_double,
)


@pytest.fixture(autouse=True)
def _seed() -> None:
    print(f"SEED={SEED}")


GROUP_VALUES: dict[str, Callable[[Random], Any]] = {
    **VALUES,
    "double": lambda random: random.choice([0.0, -0.0, math.nan, 1.5, -math.inf]),
    "float": lambda random: random.choice([0.0, -0.0, math.nan, 1.5]),
    "void": lambda random: None,
}
NUMBERS = ["tinyint", "int", "bigint", "float", "double", "decimal(6,2)", "decimal(20,4)"]


def _result_type(function: str, argument: str) -> str:
    of = by_spark(argument)
    if function in ("count", "count_if"):
        return "bigint"
    if function.startswith("bool_"):
        return "boolean"
    if function == "bit_xor" or of.name == "interval":
        return argument
    if function in ("sum", "try_sum"):
        if of.name == "numeric":
            return f"decimal({min(38, of.args[0] + 10)},{of.args[1]})"
        return "double" if argument in ("float", "double") else "bigint"
    if function in ("avg", "try_avg") and of.name == "numeric":
        return f"decimal({min(38, of.args[0] + 4)},{min(38, of.args[1] + 4)})"
    return "double"


def _of_two(function: str, types: tuple[str, str]) -> str:
    averaged = {"regr_avgy": types[0], "regr_avgx": types[1]}.get(function, "double")
    return _result_type("avg", averaged) if averaged.startswith("decimal") else "double"


def functions_of(type_: str) -> list[str]:
    names = [*sorted(rounding.ONE), "sum", "try_sum", "avg", "try_avg", "bit_xor", "count"]
    names += ["count_if", "bool_and", "bool_or"]
    return [name for name in names if is_accumulable(name, (type_,))]


@pytest.mark.parametrize("case", range(3))
@pytest.mark.parametrize("type_", VALUES)
def test_one_argument(type_: str, case: int) -> None:
    """Every function in one case; a sum that does not fit hides the others' answers just there."""
    random = Random(f"{SEED} {case} {type_}")
    columns = columns_of("int", type_)
    calls = [
        AccumulateCall(f"a_{n}", function, _result_type(function, type_), ("c1_1",))
        for n, function in enumerate(functions_of(type_)[case::3], 9)
    ]
    makers = [lambda r: r.randrange(2), VALUES[type_]]
    run(("c0_0",), calls, columns, pool_of(random, columns, 8, makers), random)


@pytest.mark.parametrize(
    "types", [("double", "double"), (DECIMAL, "int"), ("bigint", DECIMAL), ("float", "bigint")]
)
def test_two_arguments(types: tuple[str, str]) -> None:
    random = Random(f"{SEED} {types}")
    columns = columns_of("int", *types)
    assert all(is_accumulable(function, types) for function in rounding.TWO)
    calls = [
        AccumulateCall(f"a_{n}", function, _of_two(function, types), ("c1_1", "c2_2"))
        for n, function in enumerate(sorted(rounding.TWO), 9)
    ]
    makers = [lambda r: r.randrange(2), *(VALUES[type_] for type_ in types)]
    for _ in range(2):
        run(("c0_0",), calls, columns, pool_of(random, columns, 8, makers), random)


def test_pairs_of_a_column_with_itself() -> None:
    """As ``lowering.of_one_column`` has them: NaN where that column is not finite."""
    columns = columns_of("int", "double")
    calls = [
        AccumulateCall("s_9", "regr_sxx", "double", ("c1_1", "c1_1")),
        AccumulateCall("a_9", "avg", "double", ("c1_1",)),
    ]
    random = Random(SEED)
    pool = pool_of(random, columns, 8, [lambda r: r.randrange(2), wild_double])
    run(("c0_0",), calls, columns, pool, random)


def test_stored_averages_of_pairs_have_the_state_and_the_answers_they_had() -> None:
    """No new view has them, but what is stored of older ones is of this layout and meaning."""
    columns = columns_of("int", "double", "double")
    calls = [
        AccumulateCall("x_9", "regr_avgx", "double", ("c1_1", "c2_2")),
        AccumulateCall("y_9", "regr_avgy", "double", ("c1_1", "c2_2")),
    ]
    assert [(c.name, c.type) for c in state_columns(columns, ("c0_0",), calls)] == [
        ("c0_0", "int"),
        ("_count_0", "bigint"),
        ("_count1_0", "bigint"),
        ("_unbounded2_0", "bigint"),
        ("_product3_0", "binary"),
        ("_product4_0", "binary"),
    ]
    rig, op = rig_of(("c0_0",), calls, columns, SEED)
    rows = [((1, 2.0, 3.0), 5, 1), ((1, math.inf, 5.0), 6, 1), ((1, math.inf, 5.0), 7, -1)]
    rig.step({op.input: rows}, 8)
    check(rig, op, columns)
    found = [rows_at(rig.output, time) for time in (5, 6, 7)]
    assert found == [multiset([(1, x, y)]) for x, y in ((3.0, 2.0), (math.nan,) * 2, (3.0, 2.0))]


def test_many_calls_share_their_terms() -> None:
    """NaN and infinities come and go, filters let through what is true, no row has no group."""
    columns = columns_of("double", "double", "double", "boolean", "decimal(20,4)")
    x, y, keep, price = "c1_1", "c2_2", "c3_3", "c4_4"
    asked: list[tuple[str, tuple[str, ...], str | None]] = [("count", (), None)]
    asked += [("count", (), keep), ("count", (x, y), None), ("count_if", (keep,), keep)]
    for function in (*sorted(rounding.ONE), "sum", "avg"):
        asked += [(function, (x,), None), (function, (y,), keep)]
    asked += [(function, (y, x), keep) for function in sorted(rounding.TWO)]
    asked += [("sum", (price,), keep), ("avg", (price,), None)]
    types = {column.name: column.type for column in columns}
    calls = [
        AccumulateCall(f"a_{n}", f, _result_type(f, types[a[0]] if a else ""), a, where)
        if a
        else AccumulateCall(f"a_{n}", f, "bigint", a, where)
        for n, (f, a, where) in enumerate(asked, 9)
    ]
    state = state_columns(columns, ("c0_0",), calls)
    assert len({column.name for column in state}) == len(state)
    assert all(NAME.fullmatch(column.name) for column in state)
    needed = sum(len(terms) for terms in terms_of(calls, types))
    assert len(state) < needed / 2
    makers = [
        GROUP_VALUES["double"],
        wild_double,
        wild_double,
        VALUES["boolean"],
        VALUES["decimal(20,4)"],
    ]
    for case in range(6):
        random = Random(f"{SEED} {case}")
        groups = () if case % 3 == 0 else ("c0_0",)
        run(groups, calls, columns, pool_of(random, columns, 12, makers), random)


@pytest.mark.parametrize("type_", GROUP_VALUES)
def test_groups_of_every_type(type_: str) -> None:
    random = Random(f"{SEED} {type_}")
    columns = columns_of(type_, "string", "int")
    calls = [AccumulateCall("a_9", "sum", "bigint", ("c2_2",))]
    makers = [GROUP_VALUES[type_], VALUES["string"], VALUES["int"]]
    for groups in (("c0_0",), ("c1_1", "c0_0")):
        run(groups, calls, columns, pool_of(random, columns, 10, makers), random)


def test_without_groups_there_is_always_a_row() -> None:
    columns = columns_of("int", "double")
    calls = [
        AccumulateCall("n_9", "count", "bigint", ()),
        AccumulateCall("s_9", "sum", "bigint", ("c0_0",)),
        AccumulateCall("v_9", "var_samp", "double", ("c1_1",)),
    ]
    rig, op = rig_of((), calls, columns, SEED)
    rig.step({}, 7)
    assert rows_at(rig.output, 5) == Counter({(0, None, None): 1})
    rig.step({}, 8)
    rig.step({op.input: [((3, 1.0), 9, 1), ((4, None), 9, 1), ((3, 1.0), 10, -1)]}, 11)
    rig.step({op.input: [((4, None), 11, -1)]}, 13)
    check(rig, op, columns)
    rig, op = rig_of((), calls, columns, SEED)
    rig.step({op.input: [((3, 1.0), 5, 1), ((4, None), 7, 1)]}, 9)
    check(rig, op, columns)


def test_without_calls_it_is_distinct() -> None:
    random = Random(SEED)
    columns = columns_of("double")
    for _ in range(5):
        run(("c0_0",), [], columns, pool_of(random, columns, 5, [GROUP_VALUES["double"]]), random)


def test_a_negative_count_shows_nothing_and_is_kept() -> None:
    columns = columns_of("int", "int")
    calls = [AccumulateCall("s_9", "sum", "bigint", ("c1_1",))]
    rig, op = rig_of(("c0_0",), calls, columns, SEED)
    rig.step({op.input: [((1, 5), 5, -1)]}, 6)
    assert not rows_at(rig.output, 5)
    rig.step({op.input: [((1, 5), 6, 1), ((1, 7), 7, 1), ((1, 5), 8, 1)]}, 10)
    assert [rows_at(rig.output, time) for time in (6, 7, 8)] == [
        Counter(),
        Counter({(1, 7): 1}),
        Counter({(1, 12): 1}),
    ]


def test_sums_of_no_multiset_are_no_failure() -> None:
    """Half of a change may count rows and have a negative variance."""
    columns = columns_of("int", "double", "double")
    functions = [*sorted(rounding.ONE), *sorted(rounding.TWO)]
    calls = [
        AccumulateCall(f"a_{n}", f, "double", ("c1_1", "c2_2") if f in rounding.TWO else ("c1_1",))
        for n, f in enumerate(functions, 9)
    ]
    rig, op = rig_of(("c0_0",), calls, columns, SEED)
    rows = [((1, 9.0, 1.0), 5, -1), ((1, 1.0, 7.0), 5, 1), ((1, 2.0, 3.0), 5, 2)]
    rig.step({op.input: rows}, 6)
    rig.step({op.input: [((1, 9.0, 1.0), 6, 1)]}, 7)
    assert rows_at(rig.output, 5)
    rig.start = 6
    check(rig, op, columns)


def test_a_state_of_zeros_is_not_kept() -> None:
    columns = columns_of("int", "double", "decimal(38,37)")
    calls = [
        AccumulateCall("s_9", "avg", "double", ("c1_1",)),
        AccumulateCall("k_9", "kurtosis", "double", ("c1_1",)),
        AccumulateCall("d_9", "sum", "decimal(38,37)", ("c2_2",)),
    ]
    random = Random(SEED)
    pool = pool_of(
        random, columns, 50, [lambda r: r.randrange(4), wild_double, VALUES["decimal(38,37)"]]
    )
    rig, op = rig_of(("c0_0",), calls, columns, SEED)
    first = rig.step({op.input: [(row, 5, 1) for row in pool]}, 6)
    second = rig.step({op.input: [(row, 6, -1) for row in reversed(pool)]}, 7)
    both = pa.concat_tables([first.states["state"], second.states["state"]]).drop_columns([TIME])
    assert first.states["state"].num_rows == len({row[0] for row in pool})
    assert consolidate(both).num_rows == 0


# ---- floating sums ---------------------------------------------------------------------------


def test_a_floating_sum_comes_back_to_its_first_bits() -> None:
    """After a thousand inserts and deletes of the same rows, in any order, in any steps."""
    random = Random(SEED)
    columns = columns_of("int", "double")
    calls = [
        AccumulateCall(f"a_{n}", function, "double", ("c1_1",))
        for n, function in enumerate(("sum", "avg", "var_samp", "kurtosis"), 9)
    ]
    rig, op = rig_of(("c0_0",), calls, columns, SEED)
    stay = [(1, value) for value in (0.1, 0.2, 0.3, -1e-300, 1e15)]
    rig.step({op.input: [(row, 5, 1) for row in stay]}, 6)
    first = rows_at(rig.output, 5)
    assert len(first) == 1
    passing = [(1, wild_double(random)) for _ in range(1000)]
    for chunk in range(0, 1000, 250):
        rows = passing[chunk : chunk + 250]
        rig.step({op.input: [(row, rig.upper, 1) for row in rows]}, rig.upper + 1)
    random.shuffle(passing)
    for chunk in range(0, 1000, 125):
        rows = passing[chunk : chunk + 125]
        rig.step({op.input: [(row, rig.upper, -1) for row in rows]}, rig.upper + 1)
    assert rows_at(rig.output, rig.upper - 1) == first


# ---- overflow --------------------------------------------------------------------------------


def test_an_overflow_is_an_error_while_it_holds() -> None:
    columns = columns_of("string", "bigint")
    calls = [
        AccumulateCall("s_9", "sum", "bigint", ("c1_1",)),
        AccumulateCall("t_9", "try_sum", "bigint", ("c1_1",)),
        AccumulateCall("a_9", "avg", "double", ("c1_1",)),
    ]
    rig, op = rig_of(("c0_0",), calls, columns, SEED)
    big = 2**63 - 1
    rig.step({op.input: [(("a", big), 5, 1), (("b", 1), 5, 1)]}, 6)
    rig.step(
        {op.input: [(("a", 1), 7, 1), (("a", -5), 9, 1), (("a", 6), 10, 1), (("a", 6), 12, -1)]}, 14
    )
    errors = pa.concat_tables(rig.errors)
    # At 9 the sum passes through what does not fit in between, and at 10 it is too large again.
    assert [(row[TIME], row[DIFF]) for row in errors.to_pylist()] == [
        (7, 1),
        (9, -1),
        (10, 1),
        (12, -1),
    ]
    assert set(errors.column("condition").to_pylist()) == {OVERFLOW}
    assert set(errors.column("message").to_pylist()) == {
        "sum(c1_1) does not fit into bigint in the group c0_0 = 'a'"
    }
    check(rig, op, columns)
    only_try, op = rig_of(("c0_0",), calls[1:], columns, SEED)
    only_try.step({op.input: [(("a", big), 5, 2), (("a", big), 6, -1)]}, 8)
    assert not only_try.errors
    assert [row[1] for row in rows_at(only_try.output, 5)] == [None]
    check(only_try, op, columns)


def test_many_of_one_row_overflow() -> None:
    """Each is small, and so is the number of updates."""
    columns = columns_of("int", "bigint", "double")
    calls = [
        AccumulateCall("s_9", "sum", "bigint", ("c1_1",)),
        AccumulateCall("v_9", "var_pop", "double", ("c2_2",)),
    ]
    rig, op = rig_of(("c0_0",), calls, columns, SEED)
    row = (1, 2**60, 2.0**30)
    rig.step({op.input: [(row, 5, 16), (row, 6, -9), ((1, 0, 1.0), 6, 3)]}, 8)
    assert len(rig.errors[0]) == 2
    check(rig, op, columns)


def test_what_a_sum_passes_through_does_not_count() -> None:
    columns = columns_of("decimal(38,0)")
    calls = [AccumulateCall("s_9", "sum", "decimal(38,0)", ("c0_0",))]
    rig, op = rig_of((), calls, columns, SEED)
    big = decimal.Decimal(10**38 - 1)
    rig.step(
        {
            op.input: [
                ((big,), 5, 3),
                ((decimal.Decimal(1 - 10**38),), 5, 3),
                ((decimal.Decimal(7),), 5, 1),
            ]
        },
        6,
    )
    assert not rig.errors
    rig.step({op.input: [((big,), 6, 1), ((big,), 8, -1)]}, 9)
    messages = pa.concat_tables(rig.errors).column("message").to_pylist()
    assert messages == ["sum(c0_0) does not fit into decimal(38,0)"] * 2
    check(rig, op, columns)


def test_rows_may_come_and_go_and_leave_nothing_of_a_step() -> None:
    """The sum does not fit 64 bits, and none of its changes is left to be stored."""
    columns = columns_of("decimal(38,0)")
    calls = [AccumulateCall("s_9", "sum", "decimal(38,0)", ("c0_0",))]
    rig, op = rig_of((), calls, columns, 1)
    rig.step({op.input: [((decimal.Decimal(10**30),), 5, 1)]}, 6)
    for upper in range(7, 12):
        assert not rig.step({}, upper).output.num_rows
    check(rig, op, columns)


# ---- bound -----------------------------------------------------------------------------------


def test_bound_is_the_groups_that_change() -> None:
    columns = columns_of("int", "int", "double")
    calls = [
        AccumulateCall("s_9", "sum", "bigint", ("c1_1",)),
        AccumulateCall("v_9", "var_pop", "double", ("c2_2",)),
    ]
    read = []
    for groups in (200, 2000):
        rig, op = rig_of(("c0_0",), calls, columns, 1)
        rig.remembers = 0
        rig.step({op.input: [((g, m, 0.5), 5, 1) for g in range(groups) for m in range(3)]}, 6)
        rig.step({op.input: [((g, 9, 0.5), 6, 1) for g in range(50)]}, 7)
        read.append(rig.rows_read)
        rig.remembers = 1
        rig.step({op.input: [((g, 9, 0.5), 7, 1) for g in range(60)]}, 8)
        read.append(rig.rows_read)
    assert read == [50, 10, 50, 10], "what is remembered is not looked up"


# ---- what is accumulable ---------------------------------------------------------------------


def test_what_is_accumulable() -> None:
    assert canonical("std") == canonical("stddev") == "stddev_samp"
    assert canonical("some") == canonical("any") == "bool_or"
    assert is_accumulable("count", ())
    assert is_accumulable("count", ("array<int>", "string"))
    assert is_accumulable("mean", ("interval day to second",))
    for function, types in (
        ("max", ("int",)),
        ("sum", ("string",)),
        ("sum", ()),
        ("sum", ("interval month",)),
        ("var_pop", ("interval day to second",)),
        ("corr", ("double",)),
        ("corr", ("double", "string")),
        ("bool_and", ("int",)),
        ("bit_xor", ("decimal(3,0)",)),
    ):
        assert not is_accumulable(function, types), (function, types)

"""Accumulators against brute force, at every time: all functions, types, retractions, errors."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import os
import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headwater.collection.types import by_spark
from headwater.compute.catalyst import rounding
from headwater.compute.dataflow.graph import Accumulate, AccumulateCall, Laned, Origin, State
from headwater.compute.dataflow.ops import exact
from headwater.compute.dataflow.ops.accumulate import (
    OVERFLOW,
    canonical,
    is_accumulable,
    state_columns,
    state_key,
    step,
)
from headwater.compute.dataflow.ops.accumulators import terms_of
from headwater.compute.ir.expression import NAME, Column
from headwater.persist.consolidate import DIFF, TIME, consolidate
from headwater.testing.rig import Rig, Row, Rows, Update, rows_at

SEED = int(os.environ.get("SEED", Random().randrange(2**32)))
DECIMAL = "decimal(6,2)"
DIGITS = decimal.Context(prec=200, rounding=decimal.ROUND_HALF_UP)


@pytest.fixture(autouse=True)
def _seed() -> None:
    print(f"SEED={SEED}")


# ---- values ----------------------------------------------------------------------------------


def _double(random: Random) -> float:
    any_bits: float = struct.unpack("<d", random.randbytes(8))[0]
    if math.isnan(any_bits):
        any_bits = 5e-324
    usual = random.randint(-1000, 1000) / 8
    return random.choice([usual, usual, random.random(), 0.0, -0.0, 1e16, 0.1, any_bits])


def _wild(random: Random) -> float:
    special = [math.nan, math.inf, -math.inf, 1.7e308, -1.7e308, 5e-324]
    return random.choice([_double(random), _double(random), random.choice(special)])


def _decimal(precision: int, scale: int) -> Callable[[Random], decimal.Decimal]:
    def value(random: Random) -> decimal.Decimal:
        digits = random.choice([2, precision])
        number = random.randint(-(10**digits) + 1, 10**digits - 1)
        return decimal.Decimal(number).scaleb(-scale, DIGITS)

    return value


VALUES: dict[str, Callable[[Random], Any]] = {
    "boolean": lambda random: random.random() < 0.6,
    "tinyint": lambda random: random.randint(-128, 127),
    "int": lambda random: random.randint(-5, 5),
    "bigint": lambda random: random.choice([1, -1, 7, 2**61, -(2**61), 2**63 - 1, -(2**63)]),
    "float": lambda random: struct.unpack(
        "<f", struct.pack("<f", random.choice([0.1, -2.5, 3e38]))
    )[0],
    "double": _double,
    "decimal(6,2)": _decimal(6, 2),
    "decimal(20,4)": _decimal(20, 4),
    "decimal(38,37)": _decimal(38, 37),
    "interval day to second": lambda random: dt.timedelta(microseconds=random.randint(-9, 10**12)),
    "string": lambda random: random.choice(["", "a", "é"]),
    "binary": lambda random: random.choice([b"", b"\0", b"\xff"]),
    "date": lambda random: dt.date(2020, 1, random.randint(1, 3)),
    "timestamp": lambda random: dt.datetime(2020, 1, 1, random.randrange(3), tzinfo=dt.UTC),
    "timestamp_ntz": lambda random: dt.datetime(2020, 1, 1, random.randrange(3)),  # noqa: DTZ001 (it has no zone)
    "time(6)": lambda random: dt.time(random.randrange(3)),
}
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


# ---- the oracle ------------------------------------------------------------------------------


class Overflow(Exception):
    """What the oracle says where an answer does not fit."""


def _fit(value: Any, type_: str, function: str) -> Any:
    if isinstance(value, decimal.Decimal):
        wrong = len(value.as_tuple().digits) > by_spark(type_).args[0]
    elif isinstance(value, dt.timedelta):
        wrong = False
    else:
        wrong = not -(2**63) <= value < 2**63
    if not wrong:
        return value
    if function.startswith("try_"):
        return None
    raise Overflow


def _rounded_decimal(value: Fraction, scale: int) -> decimal.Decimal:
    whole = math.floor(abs(value) * 10**scale + Fraction(1, 2))
    return decimal.Decimal(whole if value >= 0 else -whole).scaleb(-scale, DIGITS)


def _as_double(value: Any) -> float:
    return value if isinstance(value, float) else float(Fraction(value))


def _brute(call: AccumulateCall, argument: str | None, rows: Sequence[Sequence[Any]]) -> Any:
    """Return the answer from the arguments of the group's rows that the filter lets through."""
    present = [row for row in rows if None not in row]
    function, values = call.function, [row[0] for row in present if row]
    if function == "count":
        return len(present)
    if function == "count_if":
        return sum(values)
    if not present:
        return None
    if function == "bool_and":
        return all(values)
    if function == "bool_or":
        return any(values)
    if function == "bit_xor":
        total = 0
        for value in values:
            total ^= value
        return total
    if function in rounding.ONE:
        return rounding.exact_moment(function, map(_as_double, values))
    if function in rounding.TWO and call.type != "double":
        place = ("regr_avgy", "regr_avgx").index(function)
        average = AccumulateCall(call.name, "avg", call.type, call.arguments)
        return _brute_sum(average, DECIMAL, [row[place] for row in present])
    if function in rounding.TWO:
        return rounding.exact_co_moment(
            function, [(_as_double(a), _as_double(b)) for a, b in present]
        )
    return _brute_sum(call, argument or "", values)


def _brute_sum(call: AccumulateCall, argument: str, values: list[Any]) -> Any:
    averaged = call.function in ("avg", "try_avg")
    if argument in ("float", "double"):
        return rounding.exact_average(values) if averaged else rounding.exact_sum(values)
    if isinstance(values[0], dt.timedelta):
        micros = sum(value // dt.timedelta(microseconds=1) for value in values)
        if averaged:
            half = math.floor(Fraction(abs(micros), len(values)) + Fraction(1, 2))
            micros = half if micros >= 0 else -half
        return dt.timedelta(microseconds=micros)
    if isinstance(values[0], decimal.Decimal):
        total = sum(map(Fraction, values), Fraction())
        scale = by_spark(argument).args[1]
        as_sum = decimal.Decimal(int(total * 10**scale)).scaleb(-scale, DIGITS)
        if not averaged:
            return _fit(as_sum, call.type, call.function)
        digits = min(38, by_spark(argument).args[0] + 10)
        if _fit(as_sum, f"decimal({digits},{scale})", call.function) is None:
            return None
        average = _rounded_decimal(total / len(values), by_spark(call.type).args[1])
        return _fit(average, call.type, call.function)
    return (
        float(sum(values)) / len(values)
        if averaged
        else _fit(sum(values), call.type, call.function)
    )


def _plain(value: Any) -> Any:
    """A group's value: one zero, one NaN that equals itself."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return value


def _oracle(
    op: Accumulate, columns: Sequence[Column]
) -> Callable[[Mapping[Origin, Rows]], tuple[Rows, int]]:
    types = {column.name: column.type for column in columns}
    names = [column.name for column in columns]

    def oracle(inputs: Mapping[Origin, Rows]) -> tuple[Rows, int]:
        # NaNs are other keys of a Counter each time, so rows are added up by their bits first.
        rows: Counter[Row] = Counter()
        bits: dict[Row, Row] = {}
        for row, n in inputs[op.input].items():
            key = tuple(v.hex() if isinstance(v, float) else v for v in row)
            bits[key] = row
            rows[key] += n
        groups: dict[Row, list[dict[str, Any]]] = {} if op.groups else {(): []}
        for key, n in rows.items():
            assert n >= 0, "the inputs of an oracle are multisets"
            named = dict(zip(names, bits[key], strict=True))
            group = tuple(_plain(named[name]) for name in op.groups)
            if n:
                groups.setdefault(group, []).extend([named] * n)
        output: Rows = Counter()
        errors = 0
        for group, members in groups.items():
            answers, wrong = [], 0
            for call in op.calls:
                kept = [row for row in members if call.filter is None or row[call.filter]]
                given = [[row[name] for name in call.arguments] for row in kept]
                argument = types[call.arguments[0]] if call.arguments else None
                try:
                    answers.append(_brute(call, argument, given))
                except Overflow:
                    wrong += 1
            errors += wrong
            if not wrong:
                shown = (math.nan if value == "nan" else value for value in group)
                output[(*shown, *answers)] += 1
        return output, errors

    return oracle


def _check(rig: Rig, op: Accumulate, columns: Sequence[Column]) -> None:
    oracle = _oracle(op, columns)
    wrong = pa.concat_tables(rig.errors) if rig.errors else None
    seen: list[int] = []

    def noted(inputs: Mapping[Origin, Rows]) -> Rows:
        rows, count = oracle(inputs)
        seen.append(count)
        return rows

    rig.check(noted)
    for time, count in zip(range(rig.start, rig.upper), seen, strict=True):
        found = sum(rows_at(wrong, time).values()) if wrong is not None else 0
        assert found == count, f"at time {time}: {found} errors instead of {count}"


# ---- random steps ----------------------------------------------------------------------------


def _rig(
    groups: Sequence[str], calls: Sequence[AccumulateCall], columns: Sequence[Column], seed: int
) -> tuple[Rig, Accumulate]:
    op = Accumulate(Laned(0, tuple(columns)), tuple(groups), tuple(calls), "state", 1)
    by_name = {column.name: column for column in columns}
    output = [by_name[name] for name in groups]
    output += [Column(call.name, call.type, True) for call in calls]
    state = State("state", state_columns(columns, groups, calls), state_key(groups))
    return Rig(op, step, output=output, states=[state], start=5, seed=seed), op


def _random_updates(
    random: Random, pool: Sequence[Row], held: Counter[int], lower: int, upper: int
) -> list[Update]:
    """Insert and delete rows of a pool, never below zero at the end of a time."""
    updates = []
    for time in range(lower, upper):
        for _ in range(random.randrange(6)):
            index = random.randrange(len(pool))
            diff = random.choice([1, 1, 2, -1])
            diff = max(diff, -held[index])
            held[index] += diff
            updates.append((pool[index], time, diff))
        if random.random() < 0.1:  # everything goes
            updates += [(pool[index], time, -n) for index, n in held.items() if n]
            held.clear()
    return updates


def _run(
    groups: Sequence[str],
    calls: Sequence[AccumulateCall],
    columns: Sequence[Column],
    pool: Sequence[Row],
    random: Random,
    steps: int = 3,
) -> Rig:
    rig, op = _rig(groups, calls, columns, random.randrange(2**32))
    held: Counter[int] = Counter()
    for _ in range(steps):
        upper = rig.upper + random.randint(1, 4)
        rig.step({op.input: _random_updates(random, pool, held, rig.upper, upper)}, upper)
    _check(rig, op, columns)
    return rig


def _pool(
    random: Random, columns: Sequence[Column], size: int, values: Sequence[Any] | None = None
) -> list[Row]:
    makers = values or [VALUES[column.type] for column in columns]
    return [
        tuple(None if random.random() < 0.15 else make(random) for make in makers)
        for _ in range(size)
    ]


def _columns(*types: str) -> tuple[Column, ...]:
    return tuple(Column(f"c{n}_{n}", type_, True) for n, type_ in enumerate(types))


def _functions(type_: str) -> list[str]:
    names = [*sorted(rounding.ONE), "sum", "try_sum", "avg", "try_avg", "bit_xor", "count"]
    names += ["count_if", "bool_and", "bool_or"]
    return [name for name in names if is_accumulable(name, (type_,))]


@pytest.mark.parametrize("case", range(3))
@pytest.mark.parametrize("type_", VALUES)
def test_one_argument(type_: str, case: int) -> None:
    """Every function in one case; a sum that does not fit hides the others' answers just there."""
    random = Random(f"{SEED} {case} {type_}")
    columns = _columns("int", type_)
    calls = [
        AccumulateCall(f"a_{n}", function, _result_type(function, type_), ("c1_1",))
        for n, function in enumerate(_functions(type_)[case::3], 9)
    ]
    makers = [lambda r: r.randrange(2), VALUES[type_]]
    _run(("c0_0",), calls, columns, _pool(random, columns, 8, makers), random)


@pytest.mark.parametrize(
    "types", [("double", "double"), (DECIMAL, "int"), ("bigint", DECIMAL), ("float", "bigint")]
)
def test_two_arguments(types: tuple[str, str]) -> None:
    random = Random(f"{SEED} {types}")
    columns = _columns("int", *types)
    assert all(is_accumulable(function, types) for function in rounding.TWO)
    calls = [
        AccumulateCall(f"a_{n}", function, _of_two(function, types), ("c1_1", "c2_2"))
        for n, function in enumerate(sorted(rounding.TWO), 9)
    ]
    makers = [lambda r: r.randrange(2), *(VALUES[type_] for type_ in types)]
    for _ in range(2):
        _run(("c0_0",), calls, columns, _pool(random, columns, 8, makers), random)


def test_many_calls_share_their_terms() -> None:
    """NaN and infinities come and go, filters let through what is true, no row has no group."""
    columns = _columns("double", "double", "double", "boolean", "decimal(20,4)")
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
    needed = sum(len(terms) for terms in terms_of(calls, types).values())
    assert len(state) < needed / 2
    makers = [GROUP_VALUES["double"], _wild, _wild, VALUES["boolean"], VALUES["decimal(20,4)"]]
    for case in range(6):
        random = Random(f"{SEED} {case}")
        groups = () if case % 3 == 0 else ("c0_0",)
        _run(groups, calls, columns, _pool(random, columns, 12, makers), random)


@pytest.mark.parametrize("type_", GROUP_VALUES)
def test_groups_of_every_type(type_: str) -> None:
    random = Random(f"{SEED} {type_}")
    columns = _columns(type_, "string", "int")
    calls = [AccumulateCall("a_9", "sum", "bigint", ("c2_2",))]
    makers = [GROUP_VALUES[type_], VALUES["string"], VALUES["int"]]
    for groups in (("c0_0",), ("c1_1", "c0_0")):
        _run(groups, calls, columns, _pool(random, columns, 10, makers), random)


def test_without_groups_there_is_always_a_row() -> None:
    columns = _columns("int", "double")
    calls = [
        AccumulateCall("n_9", "count", "bigint", ()),
        AccumulateCall("s_9", "sum", "bigint", ("c0_0",)),
        AccumulateCall("v_9", "var_samp", "double", ("c1_1",)),
    ]
    rig, op = _rig((), calls, columns, SEED)
    rig.step({}, 7)
    assert rows_at(rig.output, 5) == Counter({(0, None, None): 1})
    rig.step({}, 8)
    rig.step({op.input: [((3, 1.0), 9, 1), ((4, None), 9, 1), ((3, 1.0), 10, -1)]}, 11)
    rig.step({op.input: [((4, None), 11, -1)]}, 13)
    _check(rig, op, columns)
    rig, op = _rig((), calls, columns, SEED)
    rig.step({op.input: [((3, 1.0), 5, 1), ((4, None), 7, 1)]}, 9)
    _check(rig, op, columns)


def test_without_calls_it_is_distinct() -> None:
    random = Random(SEED)
    columns = _columns("double")
    for _ in range(5):
        _run(("c0_0",), [], columns, _pool(random, columns, 5, [GROUP_VALUES["double"]]), random)


def test_a_negative_count_shows_nothing_and_is_kept() -> None:
    columns = _columns("int", "int")
    calls = [AccumulateCall("s_9", "sum", "bigint", ("c1_1",))]
    rig, op = _rig(("c0_0",), calls, columns, SEED)
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
    columns = _columns("int", "double", "double")
    functions = [*sorted(rounding.ONE), *sorted(rounding.TWO)]
    calls = [
        AccumulateCall(f"a_{n}", f, "double", ("c1_1", "c2_2") if f in rounding.TWO else ("c1_1",))
        for n, f in enumerate(functions, 9)
    ]
    rig, op = _rig(("c0_0",), calls, columns, SEED)
    rows = [((1, 9.0, 1.0), 5, -1), ((1, 1.0, 7.0), 5, 1), ((1, 2.0, 3.0), 5, 2)]
    rig.step({op.input: rows}, 6)
    rig.step({op.input: [((1, 9.0, 1.0), 6, 1)]}, 7)
    assert rows_at(rig.output, 5)
    rig.start = 6
    _check(rig, op, columns)


def test_a_state_of_zeros_is_not_kept() -> None:
    columns = _columns("int", "double", "decimal(38,37)")
    calls = [
        AccumulateCall("s_9", "avg", "double", ("c1_1",)),
        AccumulateCall("k_9", "kurtosis", "double", ("c1_1",)),
        AccumulateCall("d_9", "sum", "decimal(38,37)", ("c2_2",)),
    ]
    random = Random(SEED)
    pool = _pool(random, columns, 50, [lambda r: r.randrange(4), _wild, VALUES["decimal(38,37)"]])
    rig, op = _rig(("c0_0",), calls, columns, SEED)
    first = rig.step({op.input: [(row, 5, 1) for row in pool]}, 6)
    second = rig.step({op.input: [(row, 6, -1) for row in reversed(pool)]}, 7)
    both = pa.concat_tables([first.states["state"], second.states["state"]]).drop_columns([TIME])
    assert first.states["state"].num_rows == len({row[0] for row in pool})
    assert consolidate(both).num_rows == 0


# ---- floating sums ---------------------------------------------------------------------------


def test_a_floating_sum_comes_back_to_its_first_bits() -> None:
    """After a thousand inserts and deletes of the same rows, in any order, in any steps."""
    random = Random(SEED)
    columns = _columns("int", "double")
    calls = [
        AccumulateCall(f"a_{n}", function, "double", ("c1_1",))
        for n, function in enumerate(("sum", "avg", "var_samp", "kurtosis"), 9)
    ]
    rig, op = _rig(("c0_0",), calls, columns, SEED)
    stay = [(1, value) for value in (0.1, 0.2, 0.3, -1e-300, 1e15)]
    rig.step({op.input: [(row, 5, 1) for row in stay]}, 6)
    first = rows_at(rig.output, 5)
    assert len(first) == 1
    passing = [(1, _wild(random)) for _ in range(1000)]
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
    columns = _columns("string", "bigint")
    calls = [
        AccumulateCall("s_9", "sum", "bigint", ("c1_1",)),
        AccumulateCall("t_9", "try_sum", "bigint", ("c1_1",)),
        AccumulateCall("a_9", "avg", "double", ("c1_1",)),
    ]
    rig, op = _rig(("c0_0",), calls, columns, SEED)
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
    _check(rig, op, columns)
    only_try, op = _rig(("c0_0",), calls[1:], columns, SEED)
    only_try.step({op.input: [(("a", big), 5, 2), (("a", big), 6, -1)]}, 8)
    assert not only_try.errors
    assert [row[1] for row in rows_at(only_try.output, 5)] == [None]
    _check(only_try, op, columns)


def test_many_of_one_row_overflow() -> None:
    """Each is small, and so is the number of updates."""
    columns = _columns("int", "bigint", "double")
    calls = [
        AccumulateCall("s_9", "sum", "bigint", ("c1_1",)),
        AccumulateCall("v_9", "var_pop", "double", ("c2_2",)),
    ]
    rig, op = _rig(("c0_0",), calls, columns, SEED)
    row = (1, 2**60, 2.0**30)
    rig.step({op.input: [(row, 5, 16), (row, 6, -9), ((1, 0, 1.0), 6, 3)]}, 8)
    assert len(rig.errors[0]) == 2
    _check(rig, op, columns)


def test_what_a_sum_passes_through_does_not_count() -> None:
    columns = _columns("decimal(38,0)")
    calls = [AccumulateCall("s_9", "sum", "decimal(38,0)", ("c0_0",))]
    rig, op = _rig((), calls, columns, SEED)
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
    _check(rig, op, columns)


# ---- bound -----------------------------------------------------------------------------------


def test_bound_is_the_groups_that_change() -> None:
    columns = _columns("int", "int", "double")
    calls = [
        AccumulateCall("s_9", "sum", "bigint", ("c1_1",)),
        AccumulateCall("v_9", "var_pop", "double", ("c2_2",)),
    ]
    read = []
    for groups in (200, 2000):
        rig, op = _rig(("c0_0",), calls, columns, 1)
        rig.remembers = False
        rig.step({op.input: [((g, m, 0.5), 5, 1) for g in range(groups) for m in range(3)]}, 6)
        rig.step({op.input: [((g, 9, 0.5), 6, 1) for g in range(50)]}, 7)
        read.append(rig.rows_read)
    assert read == [50, 50]


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
        ("bool_and", ("int",)),
        ("bit_xor", ("decimal(3,0)",)),
    ):
        assert not is_accumulable(function, types), (function, types)


# ---- exact numbers ---------------------------------------------------------------------------


def _fractions(numbers: exact.Exact) -> list[Fraction]:
    return [Fraction(int(n)) * Fraction(2) ** numbers.exponent for n in numbers.digits]


def _eighth(random: Random) -> float:
    return random.randint(-9, 9) / 8


def test_exact_numbers_are_exact() -> None:
    random = Random(SEED)
    for _ in range(300):
        spread: Callable[[Random], float] = random.choice([_double, _eighth, Random.random])
        values = [spread(random) for _ in range(random.randrange(1, 8))]
        numbers = exact.from_doubles(np.array(values))
        assert _fractions(numbers) == list(map(Fraction, values))
        assert exact.rounded(numbers).tolist() == values
        squares = numbers * numbers
        assert _fractions(squares) == [Fraction(v) ** 2 for v in values]
        for number in (numbers, squares):
            stored = exact.encoded(number, fractional=True)
            back = exact.decoded(stored, fractional=True)
            assert _fractions(back) == _fractions(number)
            finer = back.at(back.exponent - random.randrange(80))
            assert exact.encoded(finer, fractional=True).equals(stored)
            alone = [
                exact.encoded(
                    exact.Exact(number.digits[n : n + 1], number.exponent), fractional=True
                )
                for n in range(len(values))
            ]
            assert pa.concat_arrays(alone).equals(stored)


def test_whole_numbers_are_stored_in_words() -> None:
    random = Random(SEED)
    edges = [0, 1, -1, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 10**38, -(10**40), 2**127]
    for _ in range(200):
        values = random.choices(edges, k=random.randrange(1, 5))
        digits = np.empty(len(values), object)
        digits[:] = values
        stored = exact.encoded(exact.Exact(digits), fractional=False)
        assert exact.decoded(stored, fractional=False).digits.tolist() == values
        assert exact.decoded(stored.slice(1), fractional=False).digits.tolist() == values[1:]
        alone = [
            exact.encoded(exact.Exact(digits[n : n + 1]), fractional=False)
            for n in range(len(values))
        ]
        assert pa.concat_arrays(alone).equals(stored)


def test_decimals_become_the_nearest_doubles() -> None:
    random = Random(SEED)
    for type_, make in (
        (pa.decimal128(9, 3), _decimal(9, 3)),
        (pa.decimal128(38, 30), _decimal(38, 30)),
    ):
        values = [make(random) for _ in range(200)]
        found = exact.doubles(pa.array(values, type_))
        assert found.tolist() == [float(Fraction(value)) for value in values]

"""What an aggregate answers, calculated from all of its rows; and random steps held against it."""

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

import pyarrow as pa

from headwater.collection.types import by_spark
from headwater.compute.catalyst import rounding
from headwater.compute.dataflow.graph import Accumulate, AccumulateCall, Laned, Origin, State
from headwater.compute.dataflow.ops.accumulate import state_columns, state_key, step
from headwater.compute.ir.expression import Column
from headwater.testing.rig import Rig, Row, Rows, Update, rows_at

SEED = int(os.environ.get("SEED", Random().randrange(2**32)))
DECIMAL = "decimal(6,2)"
DIGITS = decimal.Context(prec=200, rounding=decimal.ROUND_HALF_UP)


# ---- values ----------------------------------------------------------------------------------


def any_double(random: Random) -> float:
    any_bits: float = struct.unpack("<d", random.randbytes(8))[0]
    if math.isnan(any_bits):
        any_bits = 5e-324
    usual = random.randint(-1000, 1000) / 8
    return random.choice([usual, usual, random.random(), 0.0, -0.0, 1e16, 0.1, any_bits])


def wild_double(random: Random) -> float:
    special = [math.nan, math.inf, -math.inf, 1.7e308, -1.7e308, 5e-324]
    return random.choice([any_double(random), any_double(random), random.choice(special)])


def any_decimal(precision: int, scale: int) -> Callable[[Random], decimal.Decimal]:
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
    "double": any_double,
    "decimal(6,2)": any_decimal(6, 2),
    "decimal(20,4)": any_decimal(20, 4),
    "decimal(38,37)": any_decimal(38, 37),
    "interval day to second": lambda random: dt.timedelta(microseconds=random.randint(-9, 10**12)),
    "string": lambda random: random.choice(["", "a", "é"]),
    "binary": lambda random: random.choice([b"", b"\0", b"\xff"]),
    "date": lambda random: dt.date(2020, 1, random.randint(1, 3)),
    "timestamp": lambda random: dt.datetime(2020, 1, 1, random.randrange(3), tzinfo=dt.UTC),
    "timestamp_ntz": lambda random: dt.datetime(2020, 1, 1, random.randrange(3)),  # noqa: DTZ001 (it has no zone)
    "time(6)": lambda random: dt.time(random.randrange(3)),
}


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


def check(rig: Rig, op: Accumulate, columns: Sequence[Column]) -> None:
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


def rig_of(
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


def run(
    groups: Sequence[str],
    calls: Sequence[AccumulateCall],
    columns: Sequence[Column],
    pool: Sequence[Row],
    random: Random,
    steps: int = 3,
) -> Rig:
    rig, op = rig_of(groups, calls, columns, random.randrange(2**32))
    held: Counter[int] = Counter()
    for _ in range(steps):
        upper = rig.upper + random.randint(1, 4)
        rig.step({op.input: _random_updates(random, pool, held, rig.upper, upper)}, upper)
    check(rig, op, columns)
    return rig


def pool_of(
    random: Random, columns: Sequence[Column], size: int, values: Sequence[Any] | None = None
) -> list[Row]:
    makers = values or [VALUES[column.type] for column in columns]
    return [
        tuple(None if random.random() < 0.15 else make(random) for make in makers)
        for _ in range(size)
    ]


def columns_of(*types: str) -> tuple[Column, ...]:
    return tuple(Column(f"c{n}_{n}", type_, True) for n, type_ in enumerate(types))

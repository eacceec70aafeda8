"""Aggregates over the rows of groups, against a brute-force oracle at every time."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from msgspec import structs

from headwater.collection.order import order_key
from headwater.compute.catalyst.rounding import exact_average, exact_sum
from headwater.compute.dataflow.graph import Arrangement, Laned, Reduce, ReduceCall, State
from headwater.compute.dataflow.ops import reduce
from headwater.compute.dataflow.ops.reduce import is_reducible, reduce_state
from headwater.compute.dataflow.ops.reductions import looked_at
from headwater.compute.ir.expression import Column
from headwater.testing.rig import Rig, Row, check_at, contents, multiset, rows_at
from tests.seeds import seeds
from tests.unit.dataflow.rigged_story import story

NAN = math.nan
COLUMNS = (
    Column("one_0", "int", False),
    Column("g_1", "string", True),
    Column("h_2", "double", True),
    Column("i_3", "int", True),
    Column("f_4", "double", True),
    Column("d_5", "decimal(10,2)", True),
    Column("s_6", "string", True),
    Column("t_7", "timestamp", True),
    Column("b_8", "boolean", True),
    Column("l_9", "bigint", True),
    Column("e_10", "float", True),
    Column("a_11", "array<int>", True),
    Column("w_12", "date", True),
    Column("r_13", "struct<p:int,q:string>", True),
    Column("m_14", "decimal(38,6)", True),
)
NAMES = [column.name for column in COLUMNS]
TYPES = {column.name: column.sql_type.arrow for column in COLUMNS}
POOL: dict[str, Sequence[Any]] = {
    "one_0": [1],
    "g_1": ["a", "b", None],
    "h_2": [0.0, -0.0, NAN, 1.5, None],
    "i_3": [None, -2, 0, 3, 7],
    "f_4": [None, 0.0, -0.0, NAN, 1e16, 1.0, -1e16, math.inf],
    "d_5": [None, Decimal("0.10"), Decimal("-3.33"), Decimal("99999999.99")],
    "s_6": [None, "", "ä", "z", "aa"],
    "t_7": [None, dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.datetime(1960, 1, 1, tzinfo=dt.UTC)],
    "b_8": [None, True, False],
    "l_9": [None, 2**62, -(2**62), 5],
    "e_10": [None, 0.5, -0.0, 0.0, NAN],
    "a_11": [None, [], [1, None], [1, 2]],
    "w_12": [None, dt.date(2020, 2, 29), dt.date(1900, 1, 1)],
    "r_13": [None, {"p": 1, "q": "x"}, {"p": None, "q": "y"}],
    "m_14": [None, Decimal("0.000001"), Decimal("7.000000")],
}


def call(
    function: str,
    type_: str,
    *arguments: str,
    distinct: bool = False,
    ignore_nulls: bool = False,
    filter_: str | None = None,
    name: str = "x_0",
) -> ReduceCall:
    return ReduceCall(name, function, type_, arguments, filter_, distinct, ignore_nulls)


SCALARS = [name for name in NAMES[1:] if name not in ("a_11", "r_13")]
BY_NAME = {column.name: column.type for column in COLUMNS}


def calls(random: Random) -> ReduceCall:
    """Return some call."""
    value, by = random.choice(NAMES[1:]), random.choice([*SCALARS, "a_11", "r_13"])
    scalar, flag = random.choice(SCALARS), random.choice([None, None, "b_8"])
    number = random.choice(["i_3", "d_5", "f_4", "e_10"])
    sums = {"i_3": "bigint", "d_5": "decimal(20,2)", "f_4": "double", "e_10": "double"}
    means = {"i_3": "double", "d_5": "decimal(14,6)", "f_4": "double", "e_10": "double"}
    options: list[Callable[[], ReduceCall]] = [
        lambda: call("min", BY_NAME[by], by, filter_=flag),
        lambda: call("max", BY_NAME[by], by, filter_=flag, distinct=random.random() < 0.2),
        lambda: call("bool_and", "boolean", "b_8"),
        lambda: call("some", "boolean", "b_8"),
        lambda: call(
            random.choice(["first", "any_value"]),
            BY_NAME[value],
            value,
            ignore_nulls=random.random() < 0.5,
            filter_=flag,
        ),
        lambda: call("last", BY_NAME[value], value, ignore_nulls=random.random() < 0.5),
        lambda: call("first", BY_NAME[scalar], scalar, distinct=True),
        lambda: call("min_by", BY_NAME[value], value, by, filter_=flag),
        lambda: call("max_by", BY_NAME[value], value, by, filter_=flag),
        lambda: call("mode", BY_NAME[scalar], scalar, filter_=flag),
        lambda: call("count", "bigint", filter_=flag),
        lambda: call("count", "bigint", value, scalar),
        lambda: call("count_if", "bigint", "b_8"),
        lambda: call("count", "bigint", scalar, "g_1", distinct=True, filter_=flag),
        lambda: call("sum", sums[number], number, filter_=flag, distinct=random.random() < 0.5),
        lambda: call("avg", means[number], number, filter_=flag, distinct=random.random() < 0.5),
        lambda: call("median", "double", random.choice(["i_3", "d_5"]), filter_=flag),
        lambda: call("array_agg", f"array<{BY_NAME[value]}>", value, filter_=flag),
        lambda: call("collect_list", f"array<{BY_NAME[scalar]}>", scalar, distinct=True),
        lambda: call("collect_set", f"array<{BY_NAME[scalar]}>", scalar, filter_=flag),
    ]
    return random.choice(options)()


# ---- the oracle ------------------------------------------------------------------------------


def shown(value: Any) -> Any:
    """Return a value as a group shows it."""
    if isinstance(value, float):
        return NAN if math.isnan(value) else value + 0.0
    return value


_KEYS: dict[tuple[str, str], bytes] = {}


def order_of(name: str, value: Any) -> bytes:
    """Return bytes that compare as the values of a column do."""
    value = shown(value)
    text = (name, repr(value))
    if text not in _KEYS:
        _KEYS[text] = order_key(value, TYPES[name])
    return _KEYS[text]


def evaluate(c: ReduceCall, rows: Sequence[dict[str, Any]]) -> Any:
    """Return what a call is over rows in canonical order."""
    if c.filter is not None:
        rows = [row for row in rows if row[c.filter] is True]
    if not c.arguments:
        return len(rows)
    name = c.arguments[0]
    values = [row[name] for row in rows]
    present = [value for value in values if value is not None]

    def key(value: Any) -> bytes:
        return order_of(name, value)

    if c.function in ("first", "any_value", "last") and not c.distinct:
        kept = present if c.ignore_nulls else values
        return None if not kept else kept[-1] if c.function == "last" else kept[0]
    if c.function in ("min_by", "max_by"):
        by = c.arguments[1]
        pairs = [(row[by], row[name]) for row in rows if row[by] is not None]
        best = min if c.function == "min_by" else max
        return best(pairs, key=lambda pair: order_of(by, pair[0]))[1] if pairs else None
    if c.function == "count_if":
        return values.count(True)
    if c.function == "count":
        full = [row for row in rows if all(row[n] is not None for n in c.arguments)]
        once = {tuple(order_of(n, row[n]) for n in c.arguments) for row in full}
        return len(once) if c.distinct else len(full)
    if c.function in ("array_agg", "collect_list") and not c.distinct:
        return present
    if c.function in ("min", "bool_and", "first"):
        return shown(min(present, key=key)) if present else None
    if c.function in ("max", "some"):
        return shown(max(present, key=key)) if present else None
    if c.function == "mode":
        times = Counter(map(key, present))
        most = max(times.values(), default=0)
        return next((shown(v) for v in sorted(present, key=key) if times[key(v)] == most), None)
    if c.function == "median":
        numbers = sorted(map(float, present))
        if not numbers:
            return None
        low, high = numbers[(len(numbers) - 1) // 2], numbers[len(numbers) // 2]
        return low + (0.5 if len(numbers) % 2 == 0 else 0.0) * (high - low)
    if c.distinct or c.function == "collect_set":
        different = {key(value): shown(value) for value in present}
        present = [different[k] for k in sorted(different)]
    if c.function in ("collect_set", "collect_list"):
        return present
    return _sum_or_average(c, name, present)


def _sum_or_average(c: ReduceCall, name: str, present: list[Any]) -> Any:
    assert c.function in ("sum", "avg")
    if c.type == "double" and name != "i_3":
        return (exact_sum if c.function == "sum" else exact_average)(present)
    if not present:
        return None
    if c.function == "sum":
        return sum(present)
    if c.type == "double":
        return float(sum(present)) / len(present)
    with localcontext() as context:
        context.prec = 100
        exactly = Decimal(sum(present)) / len(present)
        return exactly.quantize(Decimal("0.000001"), ROUND_HALF_UP)


class Case:
    """An operator in its rig, and all that was written into it.

    The input has the columns that the calls look at, and a few more.
    """

    def __init__(
        self, groups: Sequence[str], made: Sequence[ReduceCall], *, state: bool, seed: int
    ) -> None:
        calls_ = tuple(structs.replace(c, name=f"x_{n}") for n, c in enumerate(made))
        used = {*groups, "one_0", "l_9", *(n for c in calls_ for n in looked_at(c))}
        columns = tuple(column for column in COLUMNS if column.name in used)
        self.names = [column.name for column in columns]
        self.input = Laned(0, columns)
        key = tuple(groups) or ("one_0",)
        op = Reduce(self.input, tuple(groups), calls_, "rows", 1, tuple(self.names))
        kept = reduce_state(columns, op, key) if state else None
        self.op = structs.replace(op, state="best" if kept else None)
        kinds = {column.name: column for column in columns}
        self.rig = Rig(
            self.op,
            reduce.step,
            output=[
                *(kinds[name] for name in groups),
                *(Column(c.name, c.type, True) for c in calls_),
            ],
            arrangements=[Arrangement("rows", self.input, key)],
            states=[State("best", kept, key)] if kept else [],
            seed=seed,
        )
        self.log: list[tuple[dict[str, Any], int, int]] = []

    def step(self, updates: Sequence[tuple[dict[str, Any], int, int]], upper: int) -> None:
        self.log += updates
        rows = [(tuple(row.get(n) for n in self.names), t, d) for row, t, d in updates]
        self.rig.step({self.input: rows}, upper)

    def check(self) -> None:
        """Hold the output against the oracle at every time."""
        columns = {name: TYPES[name] for name in self.names}
        for time, there in enumerate(contents(self.log, columns, self.rig.upper)):
            check_at(self.rig.output, time, multiset(self._answers(there)))

    def _answers(self, rows: Sequence[dict[str, Any]]) -> list[Row]:
        groups: dict[tuple[bytes, ...], list[dict[str, Any]]] = {}
        keys: dict[tuple[bytes, ...], Row] = {}
        for row in rows:
            key = tuple(order_of(name, row[name]) for name in self.op.groups)
            groups.setdefault(key, []).append(row)
            keys[key] = tuple(shown(row[name]) for name in self.op.groups)
        if not self.op.groups:
            keys, groups = {(): ()}, {(): groups.get((), [])}
        return [
            (*keys[key], *(evaluate(c, members) for c in self.op.calls))
            for key, members in groups.items()
        ]


@pytest.mark.parametrize("seed", seeds(16, 400))
def test_groups_are_what_their_rows_say(seed: int) -> None:
    print("seed", seed)
    random = Random(seed)
    groups = random.choice([(), ("g_1",), ("h_2",), ("g_1", "h_2")])
    made = [calls(random) for _ in range(random.randint(1, 4))]
    story(Case(groups, made, state=False, seed=seed), POOL, random, steps=3)


@pytest.mark.parametrize("seed", seeds(16, 400))
def test_kept_values_answer_as_the_rows_do(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    print("seed", seed)
    random = Random(seed)
    # Little is kept, so that it runs out often.
    monkeypatch.setattr(reduce, "SLACK", random.choice([1, 2, 16]))
    groups = random.choice([(), ("g_1",), ("h_2",), ("g_1", "h_2")])
    made = [c for c in (calls(random) for _ in range(40)) if _is_kept(c)][:2]
    case = Case(groups, made, state=True, seed=seed)
    assert case.op.state is not None
    story(case, POOL, random, steps=5)


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("seed", seeds(16, 400))
def test_a_min_and_a_max_of_the_same_values_share_them(
    seed: int, older: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    print("seed", seed)
    random = Random(seed)
    monkeypatch.setattr(reduce, "SLACK", random.choice([1, 2, 16]))
    groups = random.choice([(), ("g_1",), ("h_2",)])
    flag = random.choice([None, "b_8"])
    made = [
        call("min", "int", "i_3", filter_=flag),
        call("max", "int", "i_3", filter_=flag),
        random.choice([call("max", "int", "i_3"), call("sum", "bigint", "i_3")]),
    ]
    random.shuffle(made)
    with monkeypatch.context() as patched:
        if older:  # As states were: a column for each.
            patched.setattr(reduce, "_lender", lambda _, n: n)
        case = Case(groups, made, state=True, seed=seed)
    assert case.op.state is not None
    story(case, POOL, random, steps=6)


def test_a_small_group_has_its_values_once() -> None:
    case = Case(
        ("g_1",), [call("min", "int", "i_3"), call("max", "int", "i_3")], state=True, seed=3
    )
    rows = [{"one_0": 1, "g_1": "a", "i_3": value} for value in range(10)]
    case.step([(row, 0, 1) for row in rows], 1)
    # The ten values, how many rows there are, and how many values.
    assert pa.concat_tables(case.rig._histories["best"]).num_rows == 12
    case.check()


@pytest.mark.parametrize("first", ["min", "max"])
@pytest.mark.parametrize("end", [1, -1])
@pytest.mark.parametrize("last", [0, 2])
def test_shared_values_are_known_where_one_call_knows_all_and_the_other_does_not(
    first: str, end: int, last: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One end runs out and is read again: its call has all values then, the other a few."""
    monkeypatch.setattr(reduce, "SLACK", 2)
    made = [call(function, "int", "i_3") for function in sorted(("min", "max"), key=first.__ne__)]
    case = Case(("g_1",), made, state=True, seed=4)
    values = list(range(7))[::end]

    def step(gone: Sequence[int], time: int, diff: int = -1) -> tuple[int, int]:
        """Return how many rows the step read, and how many the state has."""
        stored = sum(map(len, case.rig._histories["best"]))
        case.step([({"one_0": 1, "g_1": "a", "i_3": n}, time, diff) for n in gone], time + 1)
        return case.rig.rows_read, stored

    step(values, 0, 1)
    read, stored = step(values[-3:], 1)
    assert read > stored, "the rows were read again"
    read, stored = step([values[1], values[3]], 2)
    assert read == stored, "they are not, once more"
    step([values[last]], 3)
    case.check()


def _is_kept(one: ReduceCall) -> bool:
    op = Reduce(Laned(0, COLUMNS), (), (one,), "rows", 1)
    return reduce_state(COLUMNS, op, ("one_0",)) is not None


def test_an_empty_input_has_one_row_without_groups() -> None:
    made = [call("max", "int", "i_3"), call("count", "bigint")]
    for state in (False, True):
        case = Case((), made, state=state, seed=0)
        case.step([], 3)
        case.step([], 4)
        case.check()
        assert case.rig.output.num_rows == 1


def test_a_sum_that_does_not_fit_is_an_error_while_it_does_not() -> None:
    made = [call("sum", "bigint", "l_9"), call("max", "bigint", "l_9")]
    row = {"g_1": "a", "l_9": 2**62}
    for state in (False, True):
        case = Case(("g_1",), made, state=state, seed=1)
        case.step([(row, 0, 1), (row, 2, 1), (row, 5, -1)], 7)
        (errors,) = case.rig.errors
        found = [(u["condition"], u["__time"], u["__diff"]) for u in errors.to_pylist()]
        assert sorted(found) == [("ARITHMETIC_OVERFLOW", 2, 1), ("ARITHMETIC_OVERFLOW", 5, -1)]


@pytest.mark.parametrize("uppers", [(3,), (1, 3)])
def test_a_row_that_is_retracted_before_it_comes_is_not_there(uppers: Sequence[int]) -> None:
    made = [call("max", "bigint", "l_9"), call("count", "bigint", "l_9")]
    case = Case(("g_1",), made, state=False, seed=2)
    early, other = ({"one_0": 1, "g_1": "a", "l_9": value} for value in (5, 1))
    updates = [(early, 0, -1), (other, 0, 1), (early, 2, 2)]
    for upper in uppers:
        lower = case.rig.upper
        case.step([update for update in updates if lower <= update[1] < upper], upper)
    case.check()


def test_a_value_that_goes_before_it_comes_is_no_extreme() -> None:
    case = Case(("g_1",), [call("max", "int", "i_3")], state=True, seed=2)
    early, other = ({"one_0": 1, "g_1": "a", "i_3": value} for value in (5, 1))
    case.step([(early, 0, -1), (other, 0, 2)], 1)
    case.step([(early, 1, 1)], 2)
    case.step([(early, 2, 1)], 3)
    case.check()


def test_what_is_owed_behind_the_kept_values_is_not_taken_for_their_end() -> None:
    """Left out are as many that are there as are owed, so counts say that nothing is left out."""
    case = Case(("g_1",), [call("min", "int", "i_3")], state=True, seed=2)

    def rows(values: Iterable[int], time: int, diff: int) -> list[tuple[dict[str, Any], int, int]]:
        return [({"one_0": 1, "g_1": "a", "i_3": value}, time, diff) for value in values]

    size = 3 * reduce.SLACK
    kept, owed = range(reduce.SLACK), range(1000, 1000 + size - reduce.SLACK)
    case.step(rows(range(size), 0, 1), 1)
    case.step(rows(owed, 1, -1), 2)
    case.step(rows(kept, 2, -1), 3)
    case.step(rows(owed, 3, 1), 4)
    assert rows_at(case.rig.output, 3) == multiset([("a", reduce.SLACK)])


# ---- bounds ----------------------------------------------------------------------------------


def _rows_read(
    groups: Sequence[str], size: int, change: Sequence[tuple[int, int]], *, state: bool
) -> int:
    """Return how many rows a step reads in a group of this size."""
    made = [call("max", "int", "i_3"), call("count", "bigint")]
    case = Case(groups, made, state=state, seed=0)
    case.step([({"one_0": 1, "g_1": "a", "i_3": n}, 0, 1) for n in range(size)], 1)
    case.step([({"one_0": 1, "g_1": "a", "i_3": size + n}, 1, diff) for n, diff in change], 2)
    return case.rig.rows_read


@pytest.mark.parametrize("groups", [(), ("g_1",)])
def test_a_new_extreme_costs_the_change(groups: Sequence[str]) -> None:
    change = [(-40, 1), (5, 1), (6, 1), (-60, -1)]
    small, large = (_rows_read(groups, size, change, state=True) for size in (300, 3000))
    assert small == large < 50
    assert _rows_read(groups, 300, change, state=False) == 304


def test_a_group_is_read_again_when_its_best_values_are_gone() -> None:
    few = [(-1 - n, -1) for n in range(3)]
    all_kept = [(-1 - n, -1) for n in range(40)]
    assert _rows_read(("g_1",), 1000, few, state=True) < 50
    assert 1000 < _rows_read(("g_1",), 1000, all_kept, state=True) < 1200


def test_other_groups_are_not_read() -> None:
    case = Case(("g_1",), [call("collect_list", "array<int>", "i_3")], state=False, seed=0)
    case.step([({"g_1": g, "i_3": n}, 0, 1) for g in "ab" for n in range(100)], 1)
    case.step([({"g_1": "a", "i_3": 500}, 1, 1)], 2)
    assert case.rig.rows_read == 101


@pytest.mark.parametrize(
    ("function", "types", "distinct", "can"),
    [
        ("max", ["double"], False, True),
        ("max", ["struct<a:int>"], False, True),
        ("max", ["struct<a:double>"], False, False),
        ("max_by", ["int", "double", "int"], False, False),
        ("collect_list", ["map<int,int>"], False, True),
        ("collect_set", ["array<int>"], False, False),
        ("median", ["double"], False, False),
        ("sum", ["interval day to second"], False, False),
        ("percentile_disc", ["int", "double"], False, False),
        ("count", ["array<int>"], False, True),
        ("count", ["array<int>"], True, False),
        ("listagg", ["string", "string"], False, False),
        ("max", ["variant"], False, False),
    ],
)
def test_what_is_reducible(function: str, types: list[str], distinct: bool, can: bool) -> None:
    assert is_reducible(function, types, distinct) is can

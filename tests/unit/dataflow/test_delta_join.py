"""Delta joins against an oracle that looks at every combination of rows, at every time."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headwater.base.errors import HeadwaterError
from headwater.collection.run import Run, write_run
from headwater.compute.dataflow.graph import Arrangement, DeltaJoin, Hop, Origin, Scanned
from headwater.compute.dataflow.operator import Given, History, update_schema
from headwater.compute.dataflow.ops.delta_join import step
from headwater.persist.consolidate import TIME, consolidate
from headwater.testing.rig import Rig, Row, Rows, Update, multiset, rows_at, updates_table
from tests.seeds import seeds
from tests.unit.dataflow.joined_rows import scanned, sql_equal

NAN = float("nan")
UTC = dt.UTC
MIDNIGHT = dt.datetime.combine(dt.date(2024, 1, 1), dt.time())

KEY_KINDS: Mapping[str, tuple[Sequence[str], Sequence[Any]]] = {
    "integer": (("int", "bigint", "smallint"), (1, 2, 3)),
    "text": (("string",), ("", "a", "b")),
    "double": (("double", "float"), (0.0, -0.0, NAN, 1.5)),
    "decimal": (("decimal(10,2)", "decimal(20,4)"), (Decimal("1.10"), Decimal("0.00"))),
    "boolean": (("boolean",), (False, True)),
    "date": (("date",), (dt.date(2024, 2, 29), dt.date(1969, 12, 31))),
    "instant": (("timestamp",), (dt.datetime(2024, 1, 1, tzinfo=UTC),) * 2),
    "binary": (("binary",), (b"", b"\0\1")),
}
"""By name: types that may be compared with each other, and few values, so that keys meet."""

PAYLOADS: Mapping[str, Sequence[Any]] = {
    "boolean": (True, False),
    "tinyint": (-128, 127),
    "smallint": (1, 2),
    "int": (1, 2),
    "bigint": (2**62, -(2**62)),
    "float": (1.5, NAN),
    "double": (0.1, float("-inf")),
    "decimal(38,9)": (Decimal("1.5"), Decimal("-12345678901234567890.000000001")),
    "string": ("a string longer than sixteen bytes", ""),
    "binary": (b"\xff", b""),
    "date": (dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    "time(6)": (dt.time(1, 2, 3, 4), dt.time(0)),
    "timestamp": (dt.datetime(2024, 1, 1, tzinfo=UTC), dt.datetime(1, 1, 1, tzinfo=UTC)),
    "timestamp_ntz": (MIDNIGHT, MIDNIGHT + dt.timedelta(microseconds=1)),
    "interval day to second": (dt.timedelta(days=-1), dt.timedelta(microseconds=1)),
    "void": (None, None),
    "array<int>": ([1, None], []),
    "struct<a:int,b:string>": ({"a": 1, "b": None}, {"a": None, "b": "x"}),
    "map<string,int>": ([("k", 1)], []),
}


@dataclass(frozen=True)
class Predicate:
    """``inputs[a].column_a = inputs[b].column_b``."""

    a: int
    column_a: str
    b: int
    column_b: str
    null_safe: bool = False

    def seen_from(self, known: set[int], new: int) -> tuple[str, str] | None:
        """Return (the known column, the new one) if it compares the two."""
        if self.a in known and self.b == new:
            return self.column_a, self.column_b
        if self.b in known and self.a == new:
            return self.column_b, self.column_a
        return None


class JoinCase:
    """A join given by its predicates; paths go where a predicate leads, at random from a seed."""

    def __init__(
        self,
        inputs: Sequence[Scanned],
        predicates: Sequence[Predicate],
        output: Sequence[str],
        *,
        start: int = 0,
        seed: int = 0,
    ) -> None:
        self.inputs: tuple[Origin, ...] = tuple(inputs)
        self.predicates = predicates
        self.random = Random(seed)
        self.arrangements: dict[str, Arrangement] = {}
        paths = tuple(self._path(i) for i in range(len(inputs)))
        self.operator = DeltaJoin(self.inputs, paths, 0)
        columns = {column.name: column for origin in inputs for column in origin.columns}
        self.output = [columns[name] for name in output]
        self.rig = Rig(
            self.operator,
            step,
            output=self.output,
            arrangements=list(self.arrangements.values()),
            start=start,
            seed=seed,
        )

    def _path(self, first: int) -> tuple[Hop, ...]:
        known, hops = {first}, []
        while len(known) < len(self.inputs):
            reachable = {
                new
                for new in range(len(self.inputs))
                for predicate in self.predicates
                if new not in known and predicate.seen_from(known, new)
            }
            new = self.random.choice(sorted(reachable))
            matches = [
                (*names, predicate.null_safe)
                for predicate in self.predicates
                if (names := predicate.seen_from(known, new))
            ]
            self.random.shuffle(matches)
            probe, key, null_safe = zip(*matches, strict=True)
            name = f"{new} by {' '.join(key)}"
            self.arrangements[name] = Arrangement(name, self.inputs[new], key)
            hops.append(Hop(new, name, probe, null_safe))
            known.add(new)
        return tuple(hops)

    def oracle(self, given: Mapping[Origin, Rows]) -> Rows:
        found: list[tuple[dict[str, Any], int]] = [({}, 1)]
        for number, origin in enumerate(self.inputs):
            names = [column.name for column in origin.columns]
            checks = [p for p in self.predicates if max(p.a, p.b) == number]
            found = [
                (joined, count * n)
                for left, count in found
                for row, n in given[origin].items()
                for joined in [{**left, **dict(zip(names, row, strict=True))}]
                if all(
                    sql_equal(joined[p.column_a], joined[p.column_b], p.null_safe) for p in checks
                )
            ]
        rows: Rows = Counter()
        for row, count in found:
            rows[tuple(one_nan(row[column.name]) for column in self.output)] += count
        return rows


def one_nan(value: Any) -> Any:
    return NAN if isinstance(value, float) and value != value else value


def changes(
    random: Random, rows: Callable[[], Row], kept: list[Row], lower: int, upper: int, most: int
) -> list[Update]:
    """Return random updates: new rows and old ones, inserted and retracted."""
    updates = []
    for _ in range(random.randint(0, most)):
        row = random.choice(kept) if kept and random.random() < 0.5 else rows()
        kept.append(row)
        updates.append((row, random.randrange(lower, upper), random.choice((1, 1, -1, 2, -3))))
    return updates


def random_case(seed: int) -> JoinCase:
    """Return a join of two to four inputs in a tree, sometimes with a cycle."""
    random = Random(seed)
    count = random.choice((2, 2, 3, 3, 4))
    pairs = [(random.randrange(j), j) for j in range(1, count)]
    if random.random() < 0.4:
        pairs.append(tuple(sorted(random.sample(range(count), 2))))  # type: ignore[arg-type]
    types: list[dict[str, str]] = [{} for _ in range(count)]
    predicates = []
    for number, (a, b) in enumerate(pairs):
        comparable, _ = KEY_KINDS[random.choice(sorted(KEY_KINDS))]
        column_a, column_b = f"k{number}a_{a}", f"k{number}b_{b}"
        types[a][column_a], types[b][column_b] = (
            random.choice(comparable),
            random.choice(comparable),
        )
        predicates.append(Predicate(a, column_a, b, column_b, random.random() < 0.3))
    for number in range(count):
        types[number][f"p_{number}"] = "string"
    names = [name for columns in types for name in columns]
    # The payload tells 0.0 from -0.0, which the oracle's rows do not.
    output = random.sample(names, random.randint(0, len(names)))
    output += [
        f"p_{name[-1]}" for name in output if name[0] == "k" and f"p_{name[-1]}" not in output
    ]
    inputs = [scanned(f"r{n}", columns) for n, columns in enumerate(types)]
    return JoinCase(inputs, predicates, list(dict.fromkeys(output)), seed=seed)


def random_row(random: Random, origin: Origin) -> Row:
    values: list[Any] = []
    for column in origin.columns[:-1]:
        (kind,) = (kind for kind, (types, _) in KEY_KINDS.items() if column.type in types)
        values.append(None if random.random() < 0.15 else random.choice(KEY_KINDS[kind][1]))
    return (*values, f"{values}{random.randrange(2)}")


@pytest.mark.parametrize("seed", seeds(24, 400))
def test_every_time_is_what_the_oracle_says(seed: int) -> None:
    case, random = random_case(seed), Random(seed)
    kept: dict[Origin, list[Row]] = {origin: [] for origin in case.inputs}
    for _ in range(random.randint(1, 4)):
        lower, upper = case.rig.upper, case.rig.upper + random.randint(1, 5)
        case.rig.step(
            {
                origin: changes(
                    random, partial(random_row, random, origin), kept[origin], lower, upper, 7
                )
                for origin in case.inputs
                if random.random() < 0.7
            },
            upper,
        )
    case.rig.check(case.oracle)


@pytest.mark.parametrize("type_", PAYLOADS)
def test_a_column_of_every_type_is_carried(type_: str) -> None:
    left = scanned("l", {"k_0": "int", "v_0": type_})
    right = scanned("r", {"k_1": "bigint", "w_1": type_})
    case = JoinCase([left, right], [Predicate(0, "k_0", 1, "k_1")], ["w_1", "v_0"], seed=3)
    one, two = PAYLOADS[type_]
    rows: list[Row] = [(1, one), (1, two), (2, None), (2, one)]
    case.rig.step({left: [(row, 0, 2) for row in rows], right: [(rows[0], 1, 1)]}, 3)
    case.rig.step({right: [(row, 4, 1) for row in rows], left: [(rows[1], 3, -1)]}, 6)
    case.rig.step({right: [(rows[0], 7, -2)], left: [(rows[2], 7, -2), (rows[0], 7, 1)]}, 8)
    assert len(case.rig.output)
    case.rig.check(case.oracle)


def test_both_sides_change_at_one_time() -> None:
    left, right = scanned("l", {"k_0": "int"}), scanned("r", {"k_1": "int"})
    case = JoinCase([left, right], [Predicate(0, "k_0", 1, "k_1")], ["k_0", "k_1"])
    case.rig.step({left: [((1,), 0, 1)], right: [((1,), 0, 1)]}, 1)
    outcome = case.rig.step({left: [((1,), 1, 1)], right: [((1,), 1, 1)]}, 2)
    assert outcome.output.to_pylist() == [{"k_0": 1, "k_1": 1, "__time": 1, "__diff": 3}]


def test_a_relation_is_joined_with_itself() -> None:
    manager = scanned("people", {"id_0": "int", "boss_0": "int"})
    worker = scanned("people", {"id_1": "int", "boss_1": "int"})
    case = JoinCase([manager, worker], [Predicate(0, "id_0", 1, "boss_1")], ["id_0", "id_1"])
    random = Random(11)
    kept: list[Row] = []
    for upper in (3, 6, 9):
        updates = changes(
            random,
            lambda: (random.randrange(4), random.choice((None, 0, 1, 2))),
            kept,
            case.rig.upper,
            upper,
            12,
        )
        case.rig.step({manager: updates, worker: updates}, upper)
    case.rig.check(case.oracle)


def test_an_output_without_columns_counts_the_pairs() -> None:
    left, right = scanned("l", {"k_0": "int"}), scanned("r", {"k_1": "int"})
    case = JoinCase([left, right], [Predicate(0, "k_0", 1, "k_1")], [])
    outcome = case.rig.step({left: [((1,), 0, 2), ((2,), 0, 1)], right: [((1,), 0, 3)]}, 1)
    assert outcome.output.to_pylist() == [{"__time": 0, "__diff": 6}]


def test_rows_keep_their_bits() -> None:
    left, right = scanned("l", {"k_0": "double"}), scanned("r", {"k_1": "double"})
    case = JoinCase([left, right], [Predicate(0, "k_0", 1, "k_1")], ["k_0", "k_1"])
    case.rig.step({left: [((-0.0,), 0, 1), ((0.0,), 0, 1)], right: [((-0.0,), 0, 1)]}, 1)
    rows = rows_at(case.rig.output, 0)
    assert rows == multiset([(-0.0, -0.0)]) + multiset([(0.0, -0.0)])


def test_a_product_that_does_not_fit_is_named() -> None:
    left, right = scanned("l", {"k_0": "int"}), scanned("r", {"k_1": "int"})
    case = JoinCase([left, right], [Predicate(0, "k_0", 1, "k_1")], ["k_0"])
    with pytest.raises(HeadwaterError, match="does not fit 64 bits: the updates of input 1"):
        case.rig.step({left: [((1,), 0, 2**40)], right: [((1,), 0, 2**40)]}, 1)


def test_without_updates_nothing_is_looked_at() -> None:
    left, right = scanned("l", {"k_0": "int"}), scanned("r", {"k_1": "int"})
    case = JoinCase([left, right], [Predicate(0, "k_0", 1, "k_1")], ["k_0"])
    given = Given(
        5,
        6,
        hydrating=False,
        deltas={origin: updates_table(origin.columns, ()) for origin in (left, right)},
        arrangements={},  # None could be looked up.
        states={},
        output=update_schema(case.output),
    )
    assert step(case.operator, given).output.equals(given.output.empty_table())


# ---- hydration, and arrangements of others ----------------------------------------------------


def triangle(seed: int) -> JoinCase:
    inputs = [scanned(f"r{n}", {f"a_{n}": "int", f"b_{n}": "int"}) for n in range(3)]
    predicates = [
        Predicate(0, "b_0", 1, "a_1"),
        Predicate(1, "b_1", 2, "a_2"),
        Predicate(2, "b_2", 0, "a_0", null_safe=True),
    ]
    return JoinCase(inputs, predicates, ["a_0", "b_1", "b_2"], seed=seed)


def shared_given(
    case: JoinCase, updates: Mapping[Origin, list[Update]], lower: int, upper: int
) -> Given:
    """Return a hydrating step over arrangements that are older, and already ahead of it."""
    tables = {origin: updates_table(origin.columns, updates[origin]) for origin in case.inputs}
    deltas = {}
    for origin, table in tables.items():
        times = np.maximum(table.column(TIME).to_numpy(), lower)
        moved = table.set_column(table.column_names.index(TIME), TIME, pa.array(times))
        deltas[origin] = consolidate(moved.filter(pa.array(times < upper)))
    arrangements = {
        a.name: History(
            [Run.open(write_run(tables[a.of], a.key))],
            a.key,
            update_schema(a.of.columns),
            ignore_from=upper,
            floor=lower,
        )
        for a in case.arrangements.values()
    }
    return Given(lower, upper, True, deltas, arrangements, {}, update_schema(case.output))


@pytest.mark.parametrize("seed", seeds(8, 80))
def test_a_view_hydrates_over_shared_arrangements(seed: int) -> None:
    lower, upper, ahead = 10, 14, 17
    case, random = triangle(seed), Random(seed)
    updates = {
        origin: changes(
            random,
            lambda: tuple(random.choice((None, 1, 2)) for _ in range(2)),
            [],
            0,
            ahead,
            25,
        )
        for origin in case.inputs
    }
    given = shared_given(case, updates, lower, upper)
    output = step(case.operator, given).output
    for time in range(lower, upper):
        at_time = {}
        for origin in case.inputs:
            rows: Rows = Counter()
            for row, at, diff in updates[origin]:
                if at <= time:
                    rows[row] += diff
            at_time[origin] = rows
        assert rows_at(output, time) == multiset(case.oracle(at_time)), f"at {time}"
    times = output.column(TIME).to_numpy()
    assert ((lower <= times) & (times < upper)).all()


@pytest.mark.parametrize("seed", range(4))
def test_in_hydration_only_the_last_path_reads(seed: int) -> None:
    case = triangle(seed)  # A path may begin with a hop that is not strict.
    rows: list[Update] = [((n, n), 0, 1) for n in range(50)]
    given = shared_given(case, dict.fromkeys(case.inputs, rows), 5, 6)
    assert len(step(case.operator, given).output) == 50
    assert sum(history.rows_read for history in given.arrangements.values()) == 2 * 50


# ---- the bound -------------------------------------------------------------------------------


def rows_read(stored: int) -> int:
    """Return how many rows a step reads for the same change beside this many rows."""
    left = scanned("l", {"k_0": "int", "p_0": "int"})
    middle = scanned("m", {"k_1": "int", "f_1": "int"})
    right = scanned("r", {"f_2": "int", "q_2": "int"})
    predicates = [Predicate(0, "k_0", 1, "k_1"), Predicate(1, "f_1", 2, "f_2")]
    case = JoinCase([left, middle, right], predicates, ["p_0", "q_2"])
    case.rig.step(
        {
            left: [((n // 2, n), 0, 1) for n in range(stored)],
            middle: [((n, n), 0, 1) for n in range(stored)],
            right: [((n // 3, n), 0, 1) for n in range(stored)],
        },
        1,
    )
    changed = range(0, 600, 20)
    case.rig.step(
        {
            left: [((n, -n), 1, 1) for n in changed],
            middle: [((n, n), 1, -1) for n in changed],
            right: [((n, -n), 2, 1) for n in changed],
        },
        3,
    )
    return case.rig.rows_read


def test_what_is_read_follows_the_change() -> None:
    few, many = rows_read(2_000), rows_read(20_000)
    assert few > 0
    assert many <= 1.1 * few
    # 30 changes of each input, at most three partners on a hop, two hops.
    assert many <= 3 * 30 * (3 + 3 * 3)

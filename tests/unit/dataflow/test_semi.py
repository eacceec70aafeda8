"""Semi and anti joins against an oracle that compares every two keys, at every time."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from random import Random
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest

from headwater.base.errors import HeadwaterError
from headwater.collection.run import Run, write_run
from headwater.compute.dataflow.graph import Arrangement, KeyMatch, Origin, Scanned, Semi, State
from headwater.compute.dataflow.operator import Given, History, Outcome, update_schema
from headwater.compute.dataflow.ops.semi import COUNT, step
from headwater.compute.ir.expression import Column
from headwater.persist.consolidate import DIFF, TIME, consolidate
from headwater.testing.rig import Rig, Row, Rows, Update, multiset, rows_at, updates_table
from tests.seeds import seeds
from tests.unit.dataflow.joined_rows import scanned, sql_equal

NAN = float("nan")
UTC = dt.UTC
MIDNIGHT = dt.datetime.combine(dt.date(2024, 1, 1), dt.time())
Kind = Literal["semi", "anti"]

KEY_KINDS: Mapping[str, tuple[Sequence[str], Sequence[Any]]] = {
    "integer": (("int", "bigint", "tinyint"), (1, 2, 3)),
    "text": (("string",), ("", "a", "b")),
    "double": (("double", "float"), (0.0, -0.0, NAN, 1.5)),
    "decimal": (("decimal(10,2)", "decimal(20,4)"), (Decimal("1.10"), Decimal("0.00"))),
    "boolean": (("boolean",), (False, True)),
    "date": (("date",), (dt.date(2024, 2, 29), dt.date(1969, 12, 31))),
    "time": (("time(6)",), (dt.time(1, 2, 3, 4), dt.time(0))),
    "instant": (("timestamp",), (MIDNIGHT.replace(tzinfo=UTC), dt.datetime(1, 1, 1, tzinfo=UTC))),
    "reading": (("timestamp_ntz",), (MIDNIGHT, MIDNIGHT + dt.timedelta(microseconds=1))),
    "interval": (("interval day to second",), (dt.timedelta(days=-1), dt.timedelta(0))),
    "binary": (("binary",), (b"", b"\0\1")),
    "nothing": (("void",), (None,)),
}
"""By name: types that may be compared with each other, and few values, so that keys meet."""

PAYLOADS: Mapping[str, Sequence[Any]] = {
    "double": (0.1, NAN),
    "decimal(38,9)": (Decimal("1.5"), Decimal("-12345678901234567890.000000001")),
    "string": ("a string longer than sixteen bytes", ""),
    "void": (None, None),
    "array<int>": ([1, None], []),
    "struct<a:int,b:string>": ({"a": 1, "b": None}, {"a": None, "b": "x"}),
    "map<string,int>": ([("k", 1)], []),
}


def one_nan(value: Any) -> Any:
    return NAN if isinstance(value, float) and value != value else value


class SemiCase:
    """A semi or anti join; each side's key columns come first in its rows."""

    def __init__(
        self,
        kind: Kind,
        left: Scanned,
        right: Scanned,
        null_safe: Sequence[bool],
        output: Sequence[str] | None = None,
        *,
        seed: int = 0,
    ) -> None:
        self.left: Origin = left
        self.right: Origin = right
        self.null_safe = tuple(null_safe)
        width = len(self.null_safe)
        lefts, rights = (
            [column.name for column in origin.columns[:width]] for origin in (left, right)
        )
        keys = tuple(map(KeyMatch, lefts, rights, null_safe))
        self.operator = Semi(kind, left, right, keys, "left", "counts", 0)
        # An index may have its columns in an order of its own.
        self.arrangement = Arrangement("left", left, tuple(reversed(lefts)))
        count = Column(COUNT, "bigint", False)
        self.state = State("counts", (*right.columns[:width], count), tuple(rights))
        columns = {column.name: column for column in left.columns}
        self.output = [columns[n] for n in (columns if output is None else output)]
        self.rig = Rig(
            self.operator,
            step,
            output=self.output,
            arrangements=[self.arrangement],
            states=[self.state],
            seed=seed,
        )

    def count(self, row: Row, right: Rows) -> int:
        keys = [row[: len(self.null_safe)], *(r[: len(self.null_safe)] for r in right)]
        return sum(
            n
            for key, n in zip(keys[1:], right.values(), strict=True)
            if all(map(sql_equal, keys[0], key, self.null_safe))
        )

    def oracle(self, given: Mapping[Origin, Rows]) -> Rows:
        names = [column.name for column in self.left.columns]
        rows: Rows = Counter()
        for row, n in given[self.left].items():
            if (self.count(row, given[self.right]) > 0) == (self.operator.kind == "semi"):
                found = dict(zip(names, row, strict=True))
                rows[tuple(one_nan(found[column.name]) for column in self.output)] += n
        return rows

    def step(self, left: list[Update], right: list[Update], upper: int) -> Outcome:
        return self.rig.step({self.left: left, self.right: right}, upper)


def simple(kind: Kind, *, null_safe: bool = False) -> SemiCase:
    left = scanned("l", {"k_0": "int", "p_0": "string"})
    return SemiCase(kind, left, scanned("r", {"k_1": "bigint"}), [null_safe])


def changes(
    random: Random, kinds: Sequence[str], kept: list[Row], lower: int, upper: int, most: int
) -> list[Update]:
    """Return random updates: new rows and old ones, inserted and retracted."""
    updates = []
    for _ in range(random.randint(0, most)):
        keys = [
            None if random.random() < 0.15 else random.choice(KEY_KINDS[kind][1]) for kind in kinds
        ]
        # The payload tells 0.0 from -0.0, which the oracle's rows do not.
        row: Row = (*keys, f"{keys}{random.randrange(2)}")
        row = random.choice(kept) if kept and random.random() < 0.5 else row
        kept.append(row)
        updates.append((row, random.randrange(lower, upper), random.choice((1, 1, -1, 2, -3))))
    return updates


def random_case(seed: int) -> tuple[SemiCase, list[str]]:
    random = Random(seed)
    kinds = random.choices(sorted(KEY_KINDS), k=random.choice((1, 1, 2)))
    sides = [
        {
            **{f"k{n}_{side}": random.choice(KEY_KINDS[kind][0]) for n, kind in enumerate(kinds)},
            f"p_{side}": "string",
        }
        for side in (0, 1)
    ]
    null_safe = [random.random() < 0.3 or kind == "nothing" for kind in kinds]
    names = list(sides[0])
    output = random.choice((names, names[::-1], ["p_0"], []))
    left, right = scanned("l", sides[0]), scanned("r", sides[1])
    kind: Kind = random.choice(("semi", "anti"))
    return SemiCase(kind, left, right, null_safe, output, seed=seed), kinds


@pytest.mark.parametrize("seed", seeds(24, 400))
def test_every_time_is_what_the_oracle_says(seed: int) -> None:
    (case, kinds), random = random_case(seed), Random(seed)
    lefts: list[Row] = []
    rights: list[Row] = []
    for _ in range(random.randint(1, 4)):
        lower, upper = case.rig.upper, case.rig.upper + random.randint(1, 5)
        left = changes(random, kinds, lefts, lower, upper, 8) if random.random() < 0.7 else []
        right = changes(random, kinds, rights, lower, upper, 8) if random.random() < 0.7 else []
        case.step(left, right, upper)
        check_counts(case)
    case.rig.check(case.oracle)


def check_counts(case: SemiCase) -> None:
    """Hold the state against its definition: one row for each key with a count that is not 0."""
    width = len(case.null_safe)
    tables = case.rig._histories["counts"]
    if not tables:
        return
    live: Rows = Counter()
    merged = pa.concat_tables(tables)
    for *row, _, diff in zip(*(c.to_pylist() for c in merged.columns), strict=True):
        live[tuple(map(one_nan, row))] += diff
    rows = {row: n for row, n in live.items() if n}
    assert set(rows.values()) <= {1}
    right = pa.concat_tables(case.rig.inputs[case.right])
    names = [match.right for match in case.operator.keys]
    expected: Rows = Counter()
    for *key, diff in zip(
        *(right.column(name).to_pylist() for name in (*names, DIFF)), strict=True
    ):
        # 0.0 and -0.0 are one key to Python, too.
        expected[tuple(map(one_nan, key))] += diff
    assert {row[:width]: row[width] for row in rows} == {
        key: n
        for key, n in expected.items()
        if n and all(safe or v is not None for v, safe in zip(key, case.null_safe, strict=True))
    }
    assert len(rows) == len({row[:width] for row in rows})


@pytest.mark.parametrize("kind", ["semi", "anti"])
@pytest.mark.parametrize("type_", PAYLOADS)
def test_a_column_of_every_type_is_carried(type_: str, kind: Kind) -> None:
    left = scanned("l", {"k_0": "int", "v_0": type_})
    case = SemiCase(kind, left, scanned("r", {"k_1": "bigint", "w_1": type_}), [False])
    one, two = PAYLOADS[type_]
    rows: list[Row] = [(1, one), (1, two), (2, None), (2, one)]
    case.step([(row, 0, 2) for row in rows], [(rows[0], 1, 1)], 3)
    case.step([(rows[1], 3, -1)], [(row, 4, 1) for row in rows], 6)
    case.step([(rows[2], 7, -2), (rows[0], 7, 1)], [(rows[0], 7, -2), (rows[1], 7, -1)], 8)
    assert len(case.rig.output)
    case.rig.check(case.oracle)


def test_a_crossing_and_a_row_at_one_time() -> None:
    case = simple("semi")
    case.step([((1, "old"), 0, 1)], [], 1)
    outcome = case.step([((1, "new"), 1, 1)], [((1,), 1, 1)], 2)
    assert sorted(row["p_0"] for row in outcome.output.to_pylist()) == ["new", "old"]
    assert set(outcome.output.column(TIME).to_pylist()) == {1}


def test_a_key_that_comes_and_goes_in_one_step() -> None:
    case = simple("anti")
    case.step([((1, "x"), 0, 2)], [], 1)
    flips = [((1,), time, 1 if time % 2 else -1) for time in range(1, 9)]
    outcome = case.step([], flips, 9)
    assert [(r[TIME], r[DIFF]) for r in outcome.output.sort_by(TIME).to_pylist()] == [
        (time, -2 if time % 2 else 2) for time in range(1, 9)
    ]
    case.rig.check(case.oracle)


def test_a_negative_count_is_none() -> None:
    case = simple("semi")
    case.step([((1, "x"), 0, 1)], [((1,), 0, -2)], 1)
    assert case.step([], [((1,), 1, 2)], 2).output.num_rows == 0
    assert case.step([], [((1,), 2, 1)], 3).output.num_rows == 1
    case.rig.check(case.oracle)


def test_null_keys() -> None:
    for kind, null_safe, stays in (
        ("semi", False, 0),
        ("anti", False, 1),
        ("semi", True, 1),
        ("anti", True, 0),
    ):
        case = simple(kind, null_safe=null_safe)  # type: ignore[arg-type]
        case.step([((None, "x"), 0, 1)], [((None,), 1, 1)], 2)
        assert rows_at(case.rig.output, 1).total() == stays, (kind, null_safe)
        case.rig.check(case.oracle)


def test_equal_keys_of_other_bits_are_one() -> None:
    left, right = scanned("l", {"k_0": "float"}), scanned("r", {"k_1": "double"})
    case = SemiCase("semi", left, right, [False])
    case.step([((0.0,), 0, 1), ((-0.0,), 0, 1), ((NAN,), 0, 1)], [((-0.0,), 0, 1)], 1)
    case.step([], [((0.0,), 1, -1), ((NAN,), 1, 1)], 2)
    assert rows_at(case.rig.output, 0) == multiset([(0.0,)]) + multiset([(-0.0,)])
    assert rows_at(case.rig.output, 1) == multiset([(NAN,)])
    states = case.step([], [((0.0,), 2, 1), ((-0.0,), 2, 1)], 3).states["counts"]
    assert states.to_pylist() == [{"k_1": 0.0, COUNT: 2, TIME: 2, DIFF: 1}]


def test_readings_of_a_clock_are_compared_as_utc() -> None:
    left, right = scanned("l", {"k_0": "timestamp"}), scanned("r", {"k_1": "timestamp_ntz"})
    case = SemiCase("anti", left, right, [False])
    instant = MIDNIGHT.replace(tzinfo=UTC)
    case.step([((instant,), 0, 1)], [((MIDNIGHT,), 0, 1)], 1)
    assert not rows_at(case.rig.output, 0)
    case.step([], [((MIDNIGHT,), 1, -1)], 2)
    assert rows_at(case.rig.output, 1) == multiset([(instant,)])


def test_a_count_that_does_not_fit_is_named() -> None:
    case = simple("semi")
    case.step([], [((1,), 0, 2**62)], 1)
    with pytest.raises(HeadwaterError, match="does not fit 64 bits"):
        case.step([], [((1,), 1, 2**62)], 2)


def test_without_updates_nothing_is_looked_at() -> None:
    case = simple("anti")
    given = Given(
        5,
        6,
        hydrating=False,
        deltas={o: updates_table(o.columns, ()) for o in (case.left, case.right)},
        arrangements={},  # None could be looked up.
        states={},
        output=update_schema(case.output),
    )
    assert step(case.operator, given).output.equals(given.output.empty_table())


@pytest.mark.parametrize("seed", seeds(8, 80))
def test_a_view_hydrates_over_a_shared_arrangement(seed: int) -> None:
    lower, upper, ahead = 10, 14, 17
    random = Random(seed)
    case = simple(random.choice(("semi", "anti")))
    updates = {
        case.left: changes(random, ["integer"], [], 0, ahead, 30),
        case.right: [
            (row[:1], time, diff)
            for row, time, diff in changes(random, ["integer"], [], 0, ahead, 30)
        ],
    }
    deltas = {}
    for origin, some in updates.items():
        moved = [(row, max(time, lower), diff) for row, time, diff in some if time < upper]
        deltas[origin] = consolidate(updates_table(origin.columns, moved))
    stored = updates_table(case.left.columns, updates[case.left])
    key = case.arrangement.key
    runs = [Run.open(write_run(stored, key))]
    history = History(runs, key, update_schema(case.left.columns), upper, floor=lower)
    counts = update_schema(case.state.columns)
    given = Given(
        lower,
        upper,
        True,
        deltas,
        {"left": history},
        {"counts": History([], case.state.key, counts, lower)},
        update_schema(case.output),
        {"counts": counts},
    )
    output = step(case.operator, given).output
    for time in range(lower, upper):
        at_time: dict[Origin, Rows] = {origin: Counter() for origin in updates}
        for origin, some in updates.items():
            for row, at, diff in some:
                at_time[origin][row] += diff if at <= time else 0
        assert rows_at(output, time) == multiset(case.oracle(at_time)), f"at {time}"
    times = output.column(TIME).to_numpy()
    assert ((lower <= times) & (times < upper)).all()


def rows_read(stored: int, kind: Kind) -> int:
    """Return how many rows a step reads for the same change beside this many rows."""
    case = simple(kind)
    case.step(
        [((n // 2, str(n)), 0, 1) for n in range(stored)],
        [((n,), 0, 1) for n in range(0, stored, 2)],
        1,
    )
    changed = range(0, 600, 20)
    case.step(
        [((n, "new"), 1, 1) for n in changed],
        [((n,), 1, -1) for n in changed] + [((n + 1,), 2, 1) for n in changed],
        3,
    )
    return case.rig.rows_read


@pytest.mark.parametrize("kind", ["semi", "anti"])
def test_what_is_read_follows_the_change(kind: Kind) -> None:
    few, many = rows_read(2_000, kind), rows_read(20_000, kind)
    assert few > 0
    assert many <= 1.1 * few
    # 60 keys with a count of their own, and 60 crossings with two rows of the left, or three.
    assert many <= 60 + 60 * 3


def test_a_key_that_does_not_cross_reads_no_row_of_the_left() -> None:
    case = simple("semi")
    case.step([((1, str(n)), 0, 1) for n in range(500)], [((1,), 0, 1)], 1)
    case.step([], [((1,), 1, 5), ((1,), 2, -5)], 3)
    assert case.rig.rows_read == 1
    assert np.all(case.rig.output.column(TIME).to_numpy() == 0)

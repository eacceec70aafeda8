"""Temporal filters: what comes and goes as time passes, against an oracle at every time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headwater.compute.dataflow.graph import Dataflow, Laned, State, Temporal
from headwater.compute.dataflow.lower import lowered
from headwater.compute.dataflow.ops import temporal
from headwater.compute.ir.expression import Column, Expression, Field
from headwater.compute.ir.node import Scan, TemporalFilter
from headwater.compute.ir.text import outlined
from headwater.persist.consolidate import TIME, consolidate
from headwater.testing.rig import Rig, Row, Rows, Update
from tests.seeds import seeds

X = Column("x_1", "string", True)
SINCE, UNTIL = Column("since_2", "bigint", False), Column("until_3", "bigint", False)
FAR = 2**53


class Case:
    """A filter in its rig."""

    def __init__(self, since: bool, until: bool, *, data: bool = True, seed: int = 0) -> None:
        shown = (X,) if data else ()
        self.origin = Laned(0, (*shown, SINCE, UNTIL))
        self.bounds = (SINCE.name if since else None, UNTIL.name if until else None)
        self.data = data
        op = Temporal(self.origin, *self.bounds, "s", 1)
        state = State("s", temporal.state_columns(shown), temporal.state_key())
        self.rig = Rig(op, temporal.step, output=shown, states=[state], seed=seed)
        self.next: int | None = 0

    def step(self, updates: list[Update], upper: int) -> int:
        """Step; return how many updates came out."""
        lower = self.rig.upper
        outcome = self.rig.step({self.origin: updates}, upper)
        if not updates and (self.next is None or upper <= self.next) and lower:
            assert not outcome.output.num_rows, "it said that there would be nothing"
        self.next = outcome.scheduled
        assert self.next is None or self.next >= upper
        return int(outcome.output.num_rows)

    def kept(self) -> int:
        """Return how many distinct rows the state has."""
        state = pa.concat_tables(self.rig._histories["s"])
        return int(consolidate(state.drop_columns([TIME])).num_rows)

    def at(self, time: int) -> Callable[[Mapping[Any, Rows]], Rows]:
        """Return the oracle of a time."""

        def rows(inputs: Mapping[Any, Rows]) -> Rows:
            found: Rows = Counter()
            for (*shown, since, until), count in inputs[self.origin].items():
                come = self.bounds[0] is None or since <= time
                gone = self.bounds[1] is not None and until <= time
                if come and not gone:
                    found[tuple(shown)] += count
            return found

        return rows

    def check(self, times: Sequence[int] = ()) -> None:
        """Hold it against the oracle at these times, or at every time."""
        for time in times or range(self.rig.start, self.rig.upper):
            only = copy(self.rig)
            only.start, only.upper = time, time + 1
            only.check(self.at(time))


def story(case: Case, seed: int, scale: int) -> None:
    """Rows come and go in the input, and in time; some are far in the past or in the future."""
    random, held = Random(seed), Counter[Row]()
    moments = [-FAR, -1, *(scale * n for n in range(1, 12)), FAR]
    for _ in range(6):
        lower = case.rig.upper
        upper = lower + random.choice([1, 2, 3 * scale])
        updates: list[Update] = []
        for time in sorted(random.choices(range(lower, upper), k=random.choice([0, 0, 3, 6]))):
            there = sorted(held.elements(), key=repr)
            if there and random.random() < 0.5:
                gone = random.choice(there)
                held[gone] -= 1
                updates.append((gone, time, -1))
            else:
                bounds = random.choice(moments), random.choice(moments)
                row = (*(random.choice("ab") for _ in range(case.data)), *bounds)
                held[row] += 2
                updates.append((row, time, 2))
        case.step(updates, upper)


@pytest.mark.parametrize("seed", seeds(6, 100))
@pytest.mark.parametrize("bounds", [(True, True), (True, False), (False, True)])
def test_rows_come_and_go_at_their_times(bounds: tuple[bool, bool], seed: int) -> None:
    case = Case(*bounds, data=seed % 4 != 0, seed=seed)
    story(case, seed, 3)
    case.check()


@pytest.mark.parametrize("seed", seeds(3, 30))
def test_times_of_many_buckets_and_levels(seed: int) -> None:
    case = Case(True, True, seed=seed)
    story(case, seed, 700)
    random = Random(seed)
    times = range(case.rig.start, case.rig.upper)
    case.check(sorted(random.sample(times, min(60, len(times)))))


def test_what_is_due_and_what_is_next_is_found_without_reading_the_rest() -> None:
    case = Case(True, True)
    day = 86_400_000
    rows: list[Update] = [(("a", n * 1_000, day + n * 1_000), 0, 1) for n in range(1, 20_001)]
    assert case.step(rows, 1) == 0
    assert case.step([], 1_500) == 1, "the row of the first second"
    assert case.rig.rows_read < 3_000, "of 40,000"
    assert case.next == 1_500, "in the bucket of that time is the row of the second second"
    assert case.step([], 20_000_001) == 19_999
    assert case.next is not None
    assert case.next <= day + 1_000
    steps = 0
    while case.rig.upper < day:
        assert case.next is not None
        case.step([], max(case.rig.upper + 1_024, min(case.next + 1, day)))
        steps += 1
    assert steps <= 6, "once for a level of the tree"
    assert case.rig.rows_read < 3_000
    assert case.kept() > 20_000
    case.step([], FAR * 2)
    assert case.next is None
    assert case.kept() == 0
    assert not case.at(3 * day)({case.origin: Counter({row: 1 for row, _, _ in rows})})


def test_a_retraction_before_its_time_leaves_nothing() -> None:
    case = Case(True, True)
    row = ("a", 5_000, 9_000)
    case.step([(row, 0, 1)], 10)
    assert case.next is not None
    case.step([(row, 20, -1)], 30)
    assert case.next is None
    assert case.kept() == 0
    assert case.step([], 20_000) == 0


def test_bounds_are_whole_milliseconds_from_which_on_a_row_is_in() -> None:
    columns = (Column("x_1", "int", True), Column("at_2", "timestamp", True))
    scan = Scan("t", tuple(Field(column.name, column) for column in columns))
    bound = Expression("at_2", "timestamp", True, ("at_2",))
    found = lowered(TemporalFilter(scan, bound, None))
    assert isinstance(found, Dataflow)
    (op,) = [o for o in found.operators if isinstance(o, Temporal)]
    assert op.until is None
    (edge,) = [edge for edge in found.edges if edge.target == op.input.lane]  # type: ignore[union-attr]
    assert "unix_micros(at_2)" in outlined(edge.node)
    assert "IS NOT NULL" in outlined(edge.node)

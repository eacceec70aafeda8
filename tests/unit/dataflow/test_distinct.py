"""DISTINCT against brute force, at every time."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import os
from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headwater.compute.dataflow.graph import Distinct, Laned, Origin, State
from headwater.compute.dataflow.ops.distinct import (
    is_distinguishable,
    state_columns,
    state_key,
    step,
)
from headwater.compute.ir.expression import Column
from headwater.persist.consolidate import TIME, consolidate
from headwater.testing.rig import Rig, Row, Rows, rows_at
from tests.seeds import seeds

SEED = int(os.environ.get("SEED", Random().randrange(2**32)))


@pytest.fixture(autouse=True)
def _seed() -> None:
    print(f"SEED={SEED}")


POOLS: dict[str, list[Any]] = {
    "int": [None, 0, 1],
    "double": [None, 0.0, -0.0, math.nan, 1.5],
    "float": [None, 0.0, -0.0, math.nan],
    "string": [None, "", "a", "\0"],
    "binary": [None, b"", b"\0"],
    "boolean": [None, True, False],
    "decimal(5,1)": [None, decimal.Decimal("1.0"), decimal.Decimal("-0.1")],
    "date": [None, dt.date(2020, 1, 1)],
    "timestamp": [None, dt.datetime(2020, 1, 1, tzinfo=dt.UTC)],
    "void": [None],
}


def as_group(row: Row) -> Row:
    """A row as groups see it; NaN as a text, because it does not equal itself."""
    return tuple("nan" if v != v else v + 0.0 if isinstance(v, float) else v for v in row)


def shown(row: Row) -> Row:
    return tuple(math.nan if v == "nan" else v for v in row)


def counted(rows: Rows) -> Counter[Row]:
    counts: Counter[Row] = Counter()
    for row, n in rows.items():
        counts[as_group(row)] += n
    return counts


def _rig(columns: tuple[Column, ...], seed: int) -> tuple[Rig, Distinct]:
    op = Distinct(Laned(0, columns), "counts", 1)
    state = State("counts", state_columns(columns), state_key(columns))
    return Rig(op, step, output=columns, states=[state], start=3, seed=seed), op


def _oracle(op: Distinct) -> Any:
    def oracle(inputs: Mapping[Origin, Rows]) -> Rows:
        return Counter({shown(row): 1 for row, n in counted(inputs[op.input]).items() if n > 0})

    return oracle


def _raw(rig: Rig, op: Distinct) -> Rows:
    rows: Rows = Counter()
    for *row, _, diff in (
        tuple(update.values()) for table in rig.inputs[op.input] for update in table.to_pylist()
    ):
        rows[tuple(row)] += diff
    return rows


@pytest.mark.parametrize("case", seeds(12, 300))
def test_each_row_once(case: int) -> None:
    random = Random(f"{SEED} {case}")
    types = random.choices(list(POOLS), k=random.choice([0, 1, 1, 2, 3]))
    columns = tuple(Column(f"c{n}_{n}", type_, True) for n, type_ in enumerate(types))
    pool = [tuple(random.choice(POOLS[type_]) for type_ in types) for _ in range(6)]
    rig, op = _rig(columns, case)
    states = []
    for _ in range(4):
        upper = rig.upper + random.randint(1, 4)
        updates = [
            (random.choice(pool), random.randrange(rig.upper, upper), random.choice([1, 1, -1, -2]))
            for _ in range(random.randrange(12))
        ]
        outcome = rig.step({op.input: updates}, upper)
        states += list(outcome.states.values())
        if outcome.states:
            assert consolidate(outcome.output).num_rows == outcome.output.num_rows
    rig.check(_oracle(op))
    if states:
        kept = consolidate(pa.concat_tables(states).drop_columns([TIME]))
        final = counted(_raw(rig, op))
        assert sorted(kept.column("_count_0").to_pylist()) == sorted(filter(None, final.values()))


def test_a_row_comes_and_goes_at_its_own_times() -> None:
    columns = (Column("a_1", "double", True),)
    rig, op = _rig(columns, 0)
    rig.step({op.input: [((-0.0,), 3, 1), ((0.0,), 4, 1), ((-0.0,), 5, -1), ((0.0,), 7, -1)]}, 9)
    zero = Counter({(("float", (0.0).hex()),): 1})
    assert [rows_at(rig.output, time) for time in range(3, 9)] == [zero] * 4 + [Counter()] * 2
    assert rig.output.num_rows == 2


def test_bound_is_the_rows_that_change() -> None:
    columns = (Column("a_1", "int", True), Column("b_2", "string", True))
    read = []
    for size in (100, 1000):
        rig, op = _rig(columns, 0)
        rig.remembers = 0
        rig.step({op.input: [((n, "x"), 3, 2) for n in range(size)]}, 4)
        rig.step({op.input: [((n, "x"), 4, -1) for n in range(40)]}, 5)
        read.append(rig.rows_read)
        rig.remembers = 1
        rig.step({op.input: [((n, "x"), 5, -1) for n in range(50)]}, 6)
        read.append(rig.rows_read)
    assert read == [40, 10, 40, 10], "what is remembered is not looked up"


def test_what_is_distinguishable() -> None:
    assert is_distinguishable(list(POOLS))
    assert not is_distinguishable(["int", "array<int>"])
    assert not is_distinguishable(["map<int,int>"])
    assert not is_distinguishable(["variant"])

"""INTERSECT ALL and EXCEPT ALL against brute force, at every time."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any, Literal

import pyarrow as pa
import pytest

from headwater.compute.dataflow.graph import Bag, Laned, Origin, State
from headwater.compute.dataflow.ops.bag import state_columns, state_key, step
from headwater.compute.ir.expression import Column
from headwater.persist.consolidate import TIME, consolidate
from headwater.testing.rig import Rig, Row, Rows
from tests.seeds import seeds

SEED = int(os.environ.get("SEED", Random().randrange(2**32)))
KINDS: tuple[Literal["intersect", "except"], ...] = ("intersect", "except")
POOLS: dict[str, list[Any]] = {
    "int": [None, 0, 1],
    "double": [None, 0.0, -0.0, math.nan, 1.5],
    "string": [None, "", "a"],
}


@pytest.fixture(autouse=True)
def _seed() -> None:
    print(f"SEED={SEED}")


def _as_group(row: Row) -> Row:
    return tuple("nan" if v != v else v + 0.0 if isinstance(v, float) else v for v in row)


def _counted(rows: Rows) -> Counter[Row]:
    counts: Counter[Row] = Counter()
    for row, n in rows.items():
        counts[_as_group(row)] += n
    return counts


def _rig(kind: Literal["intersect", "except"], types: list[str], seed: int) -> tuple[Rig, Bag]:
    left, right = (
        tuple(Column(f"{side}{n}_{n}", type_, True) for n, type_ in enumerate(types))
        for side in "lr"
    )
    op = Bag(kind, Laned(0, left), Laned(1, right), "counts", 2)
    state = State("counts", state_columns(left), state_key(left))
    return Rig(op, step, output=left, states=[state], start=3, seed=seed), op


def _oracle(op: Bag) -> Any:
    def oracle(inputs: Mapping[Origin, Rows]) -> Rows:
        left, right = _counted(inputs[op.left]), _counted(inputs[op.right])
        output: Rows = Counter()
        for row in {*left, *right}:
            have, other = max(left[row], 0), max(right[row], 0)
            count = min(have, other) if op.kind == "intersect" else max(0, have - other)
            output[tuple(math.nan if v == "nan" else v for v in row)] = count
        return output

    return oracle


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", seeds(15, 200))
def test_as_many_as_both_sides_say(kind: Literal["intersect", "except"], case: int) -> None:
    random = Random(f"{SEED} {kind} {case}")
    types = random.choices(list(POOLS), k=random.choice([0, 1, 1, 2]))
    pool = [tuple(random.choice(POOLS[type_]) for type_ in types) for _ in range(4)]
    rig, op = _rig(kind, types, case)
    states = []
    for _ in range(4):
        lower, upper = rig.upper, rig.upper + random.randint(1, 4)

        def updates(most: int, lower: int = lower, upper: int = upper) -> list[Any]:
            return [
                (random.choice(pool), random.randrange(lower, upper), random.choice([2, 1, 1, -1]))
                for _ in range(random.randrange(most))
            ]

        outcome = rig.step({op.left: updates(8), op.right: updates(6)}, upper)
        states += list(outcome.states.values())
    rig.check(_oracle(op))
    if states:
        kept = consolidate(pa.concat_tables(states).drop_columns([TIME])).to_pylist()
        assert all(row["_left_0"] or row["_right_0"] for row in kept)


@pytest.mark.parametrize("kind", KINDS)
def test_bound_is_the_rows_that_change(kind: Literal["intersect", "except"]) -> None:
    read = []
    for size in (100, 1000):
        rig, op = _rig(kind, ["int"], 0)
        rig.remembers = 0
        rig.step({op.left: [((n,), 3, 2) for n in range(size)]}, 4)
        rig.step({op.right: [((n,), 4, 1) for n in range(30)]}, 5)
        read.append(rig.rows_read)
        rig.remembers = 1
        rig.step({op.left: [((n,), 5, -1) for n in range(40)]}, 6)
        read.append(rig.rows_read)
    assert read == [30, 10, 30, 10], "what is remembered is not looked up"

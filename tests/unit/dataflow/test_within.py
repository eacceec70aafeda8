"""Joins by inequalities: pairs against brute force, plans against the oracle at every time."""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import product
from math import inf, isnan, nan
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headwater.compute.dataflow.graph import Dataflow, DeltaJoin, Within
from headwater.compute.dataflow.ops import within
from headwater.compute.ir import node as ir
from headwater.compute.ir.node import Aggregate, Filter, Join
from tests.seeds import seeds
from tests.unit.dataflow.across_plans import across
from tests.unit.dataflow.exact_plans import exact
from tests.unit.dataflow.lowered_plans import call, dataflow, only, scan, where

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
VALUES: dict[pa.DataType, list[Any]] = {
    pa.int8(): [-128, 0, 127],
    pa.int64(): [-(2**63), 2**63 - 1, 0, 1],
    pa.float64(): [nan, -inf, -0.0, 0.0, 0.5, inf],
    pa.float32(): [0.5, 1.5, nan],
    pa.decimal128(18, 2): [Decimal("-9999999999999999.99"), Decimal("0.01"), Decimal("0.02")],
    pa.date32(): [date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)],
    pa.timestamp("us", "UTC"): [NOON, NOON + timedelta(microseconds=1)],
}


def met(a: Any, comparison: str, b: Any) -> bool:
    if a is None or b is None:
        return False
    odd = isinstance(a, float) and (isnan(a) or isnan(b))
    return odd or COMPARE[comparison](a, b)


@pytest.mark.parametrize("type_", VALUES, ids=str)
@pytest.mark.parametrize("most", [1, 7, 4_000_000])
def test_pairs_are_those_of_brute_force(
    type_: pa.DataType, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(within, "PAIRS_MAX", most)
    random = Random(f"{type_} {most}")
    domain = [None, *VALUES[type_]]

    def table(names: str) -> pa.Table:
        rows = random.randint(1, 12)
        columns = {n: pa.array(random.choices(domain, k=rows), type_) for n in names}
        halves = pa.table(columns)  # In two chunks.
        return pa.concat_tables([halves.slice(0, rows // 2), halves.slice(rows // 2)])

    for _ in range(20):
        left, right = table("ab"), table("cd")
        comparisons = [
            Within(random.choice("ab"), random.choice(["<", "<=", ">", ">="]), random.choice("cd"))
            for _ in range(random.randint(1, 2))
        ]
        left = within.present(left, [each.probed for each in comparisons])
        right = within.present(right, [each.found for each in comparisons])
        strict = random.random() < 0.5
        ours, theirs = (np.array(random.choices(range(3), k=len(t))) for t in (left, right))
        found = [
            (int(a), int(b))
            for some, others in within.pairs(left, right, comparisons, (ours, theirs, strict))
            for a, b in zip(some, others, strict=True)
        ]
        mine, other = left.to_pylist(), right.to_pylist()
        assert sorted(found) == [
            (a, b)
            for a, b in product(range(len(left)), range(len(right)))
            if all(met(mine[a][w.probed], w.comparison, other[b][w.found]) for w in comparisons)
            and (theirs[b] < ours[a] if strict else theirs[b] <= ours[a])
        ]


# ---- plans -----------------------------------------------------------------------------------


def bounded(flow: Dataflow) -> bool:
    joins = [o for o in flow.operators if isinstance(o, DeltaJoin)]
    return any(hop.within for join in joins for path in join.paths for hop in path)


@pytest.mark.parametrize("first", seeds(40, 4_000, 40))
def test_the_output_is_the_plans_at_every_time(first: int) -> None:
    print(f"seeds {first} to {first + 39}")
    outcomes: list[str] = []
    for seed in range(first, first + 40):
        random = Random(f"within {seed}")
        debts = random.choice([0, 0, 1, 2])
        found = exact(across(random), random, seed, debts=debts)
        outcomes.append(found if isinstance(found, str) else "bounded" if bounded(found) else "not")
    assert outcomes.count("bounded") > 25, outcomes


@pytest.mark.parametrize("first", seeds(15, 1_500, 15))
def test_so_it_is_where_something_is_equal_too(first: int) -> None:
    """By what is equal rows are found; what is less than what says nothing of where they are."""
    print(f"seeds {first} to {first + 14}")
    outcomes: list[object] = []
    for seed in range(first, first + 15):
        random = Random(f"within and equal {seed}")
        found = exact(across(random, keyed=True), random, seed)
        outcomes.append(found if isinstance(found, str) else bounded(found))
    assert outcomes.count(True) > 1, outcomes
    assert outcomes.count(False) > 1, outcomes


# ---- the lowering ----------------------------------------------------------------------------

FACTS, BANDS = scan("f", "id_1", "x_1"), scan("b", "low_2", "high_2", "band_2")
IN_BAND = "((x_1 >= low_2) AND (x_1 < high_2))"
NAMES = ("x_1", "low_2", "high_2")


def test_a_hop_without_equalities_has_the_bounds() -> None:
    join = only(dataflow(Filter(Join(FACTS, BANDS, "inner"), where(IN_BAND, *NAMES))), DeltaJoin)
    assert [[hop.within for hop in path] for path in join.paths] == [
        [(Within("x_1", ">=", "low_2"), Within("x_1", "<", "high_2"))],
        [(Within("low_2", "<=", "x_1"), Within("high_2", ">", "x_1"))],
    ]


def test_there_are_none_where_an_earlier_condition_may_fail() -> None:
    """It has to be asked of all pairs: what it fails on is an error, in a band or not."""
    fails = where("((10 / x_1) > 1)", "x_1")
    first = Filter(Join(FACTS, BANDS, "inner"), fails)
    assert not bounded(dataflow(Filter(first, where(IN_BAND, *NAMES))))
    both = where(f"({IN_BAND} AND ((10 / x_1) > band_2))", *NAMES, "band_2")
    assert not bounded(dataflow(Filter(Join(FACTS, BANDS, "inner"), both)))
    later = Filter(Filter(Join(FACTS, BANDS, "inner"), where(IN_BAND, *NAMES)), fails)
    assert bounded(dataflow(later))


def test_nor_of_other_types() -> None:
    limit = Aggregate(ir.keep(BANDS, ["low_2"]), (), (call("s_1", "max", "low_2"),))
    assert bounded(
        dataflow(Filter(Join(FACTS, limit, "inner"), where("(x_1 > s_1)", "x_1", "s_1")))
    )
    texts = scan("b", "low_2", "high_2", "band_2", type_="string")
    names = scan("f", "id_1", "x_1", type_="string")
    assert not bounded(dataflow(Filter(Join(names, texts, "inner"), where(IN_BAND, *NAMES))))
    ints = scan("f", "id_1", "x_1", type_="int")
    assert not bounded(dataflow(Filter(Join(ints, BANDS, "inner"), where(IN_BAND, *NAMES))))

"""What a filter after a join leaves out is not looked up by the join, and nothing else changes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Any

import msgspec
import pytest

from headwater.collection import probe
from headwater.compute.dataflow.bounds import explained
from headwater.compute.dataflow.graph import DeltaJoin, Origin
from headwater.compute.dataflow.ops.of_use import common, of_use
from headwater.compute.ir.expression import BOOLEAN, Expression
from headwater.compute.ir.node import Filter, Node
from headwater.testing.rig import Row, Rows, Update
from tests.seeds import seeds
from tests.unit.dataflow.joined_rows import scanned
from tests.unit.dataflow.lowered_plans import A, B, dataflow, inner, only, output, steps, where
from tests.unit.dataflow.test_delta_join import JoinCase, Predicate, changes

LINES = scanned("lines", {"order_0": "int", "price_0": "int"})
ORDERS = scanned("orders", {"id_1": "int", "open_1": "int", "buyer_1": "int"})
BUYERS = scanned("buyers", {"id_2": "int", "name_2": "string"})
PREDICATES = [Predicate(0, "order_0", 1, "id_1"), Predicate(1, "buyer_1", 2, "id_2")]
OUTPUT = ["price_0", "open_1", "name_2"]


def said(text: str, *columns: str) -> Expression:
    return Expression(text, BOOLEAN, True, columns)


OPEN = said("(open_1 > 0)", "open_1")
CHEAP = said("(price_0 < 2)", "price_0")
ANN = said("(name_2 LIKE 'a%')", "name_2")


class FilteredCase(JoinCase):
    """A join whose filters are known to it; they come after it for the oracle as well."""

    def __init__(self, kept: tuple[Expression, ...], seed: int) -> None:
        super().__init__([LINES, ORDERS, BUYERS], PREDICATES, OUTPUT, seed=seed)
        self.operator = msgspec.structs.replace(self.operator, kept=kept)
        self.rig.operator = self.operator
        self._kept = kept

    def oracle(self, given: Mapping[Origin, Rows]) -> Rows:
        found = super().oracle(given)
        return Rows({row: count for row, count in found.items() if self._passes(row)})

    def _passes(self, row: Row) -> bool:
        price, is_open, name = row
        passes = {
            OPEN: is_open is not None and is_open > 0,
            CHEAP: price is not None and price < 2,
            ANN: name is not None and name.startswith("a"),
        }
        return all(passes[condition] for condition in self._kept)


def random_row(random: Random, origin: Origin) -> Row:
    values: list[Any] = []
    for column in origin.columns:
        some = ["ann", "bob"] if column.type == "string" else [0, 1, 2]
        values.append(None if random.random() < 0.15 else random.choice(some))
    return tuple(values)


@pytest.mark.parametrize("many", [1, probe.PAIRS_MANY])
@pytest.mark.parametrize("seed", seeds(20, 400))
def test_every_time_is_what_the_oracle_says(
    seed: int, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "PAIRS_MANY", many)
    random = Random(seed)
    kept = tuple(random.sample([OPEN, CHEAP, ANN], random.randint(1, 3)))
    case = FilteredCase(kept, seed)
    known: dict[Origin, list[Row]] = {origin: [] for origin in case.inputs}
    for _ in range(random.randint(1, 4)):
        lower, upper = case.rig.upper, case.rig.upper + random.randint(1, 4)
        updates = {
            origin: changes(
                random, partial(random_row, random, origin), known[origin], lower, upper, 9
            )
            for origin in case.inputs
            if random.random() < 0.8
        }
        case.rig.step(updates, upper)
    case.rig.check(case.oracle)


def read_beside(kept: tuple[Expression, ...], is_open: int) -> int:
    case = FilteredCase(kept, seed=1)
    lines: list[Update] = [((n % 10, n), 0, 1) for n in range(1_000)]
    case.rig.step({LINES: lines, BUYERS: [((7, "ann"), 0, 1)]}, 1)
    case.rig.step({ORDERS: [((3, is_open, 7), 1, 1)]}, 2)
    return case.rig.rows_read


def test_what_is_left_out_later_is_not_looked_up() -> None:
    assert read_beside((OPEN,), is_open=0) == 0
    assert read_beside((OPEN,), is_open=1) == 101
    assert read_beside((), is_open=0) == 101


def test_few_keys_of_many_rows_are_paired_with_what_is_of_use() -> None:
    """A thousand lines of one order, which is there a thousand times, and open once."""
    case = FilteredCase((OPEN,), seed=2)
    orders: list[Update] = [((1, 0, n), 0, 1) for n in range(999)]
    case.rig.step({ORDERS: [*orders, ((1, 1, 7), 0, 1)], BUYERS: [((7, "ann"), 0, 1)]}, 1)
    outcome = case.rig.step({LINES: [((1, n), 1, 1) for n in range(1_000)]}, 2)
    assert len(outcome.output) == 1_000
    # Of the orders each once, the open one with every line, and its buyer.
    assert case.rig.rows_read == 999 + 1_000 + 1_000


def test_what_several_joins_keep_is_what_all_of_them_keep() -> None:
    join = FilteredCase((OPEN, CHEAP), seed=1).operator
    other = msgspec.structs.replace(join, kept=(CHEAP, ANN))
    assert common([of_use(join), of_use(other)]) == {1: [], 0: of_use(join)[0]}
    assert common([of_use(join)]) == of_use(join)


# ---- which conditions those are -------------------------------------------------------------


def kept_of(plan: Node) -> list[str]:
    return [condition.text for condition in only(dataflow(plan), DeltaJoin).kept]


def test_a_filter_of_one_input_is_asked_early_and_still_evaluated() -> None:
    plan = inner(Filter(A, where("(y_1 > 1)", "y_1")), B, ("x_1", "x_2"))
    assert kept_of(plan) == ["(y_1 > 1)"]
    flow = dataflow(plan)
    told = [one.strategy for one in explained(flow) if one.operator.startswith("join of")]
    assert told == [
        "each change finds its partners: a → b; b → a; of use is only what has (y_1 > 1)"
    ]
    assert steps(flow, output(flow)) == [["Filter"]]


def test_of_a_conjunction_the_parts_of_one_input_are() -> None:
    condition = where("((y_1 > 1) AND ((y_1 < z_2) AND (z_2 = 5)))", "y_1", "z_2")
    assert kept_of(Filter(inner(A, B, ("x_1", "x_2")), condition)) == ["(y_1 > 1)", "(z_2 = 5)"]


@pytest.mark.parametrize(
    "text", ["((y_1 + 1) > 1)", "((1 / y_1) > 1)", "(sqrt(CAST(y_1 AS DOUBLE)) > 1.0D)"]
)
def test_what_may_fail_or_is_for_the_jvm_is_not(text: str) -> None:
    assert kept_of(inner(Filter(A, where(text, "y_1")), B, ("x_1", "x_2"))) == []


def test_what_comes_after_something_that_may_fail_is_not() -> None:
    failing = Filter(A, where("((10 DIV y_1) > 1)", "y_1"))
    plan = Filter(inner(failing, B, ("x_1", "x_2")), where("(z_2 = 5)", "z_2"))
    assert kept_of(plan) == []

"""Cases of random views: plans, and the worlds they are about, each a function of two numbers.

A *world* is a set of relations with a random history: deletes, replaced rows, NULLs, duplicates,
skew, several times a step. Some are over the relations of ``testing/relations.py``, others, the
typed ones, over those of ``testing/typed_plans.py``. A *case* is a plan over a world, chosen so
that its answer is of some interest.

    case(batch, number)       world(batch, number)        the same numbers give the same

Pure, but for :meth:`World.write`. Relied on by: ``testing/random_views.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any, Final

import pyarrow as pa

from headwater.compute.dataflow.lower import NoRule, lowered
from headwater.compute.ir.expression import Column, Expression, Named
from headwater.compute.ir.node import (
    Aggregate,
    Expand,
    Generate,
    Join,
    Node,
    Project,
    Scan,
    TopK,
    Union,
    Values,
    relations,
    walk,
)
from headwater.persist.client import Client
from headwater.testing import oracle
from headwater.testing.at_times import AT
from headwater.testing.expressions import as_arrow
from headwater.testing.plans import random_plan
from headwater.testing.relations import DOMAINS, RELATIONS
from headwater.testing.typed_plans import (
    TYPED_DOMAINS,
    TYPED_RELATIONS,
    failing,
    typed_plan,
)

SIZE: Final = 25
"""How many cases a batch has."""
WORLDS: Final = 5
"""How many worlds they are about."""
ROWS_MAX: Final = 2_000
"""Plans whose operators may have more rows are not worth a test's time."""

Row = tuple[Any, ...]
Numbers = tuple[int, ...]


# ---- cases -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A view to be."""

    number: int
    world: int
    plan: Node
    told: Node | None
    """Where the plan fails on some rows: its rows, and which those are."""
    is_twin: bool = False

    @property
    def name(self) -> str:
        """The view."""
        return f"{'twin' if self.is_twin else 'view'}_{self.number}"


def case(batch: int, number: int) -> Case:
    """Return a case: the first of its random plans that fits.

    It reads something (what reads nothing is finished at once), its answer changes with time, as
    far as that is known, it is not too large, and every operator of it has a rule.
    """
    random = Random(f"{batch}/{number}")
    of = number % WORLDS
    while True:
        make = typed_plan if _is_typed(of) else random_plan
        plan = make(random, random.choice([1, 2, 3, 3, 4, 4]))
        told = None
        if not relations(plan) or _rows(plan) >= ROWS_MAX or not world(batch, of).is_worth_it(plan):
            continue
        if random.random() < 0.15:
            found = failing(random, plan)
            plan, told = (plan, None) if found is None else (found.plan, found.told)
        if not plan.columns:
            plan = Project(plan, (Named("one__1", Expression("1", "int", False)),))
        if not isinstance(lowered(plan), NoRule):
            return Case(number, of, plan, told)


def _rows(node: Node) -> float:
    """Return about how many rows a plan passes at a time, at most."""
    largest = 0.0
    known: dict[Node, float] = {}
    for one in walk(node):
        below = [known[child] for child in one.inputs]
        match one:
            case Scan():
                rows = 8.0
            case Values():
                rows = float(len(one.rows))
            case Join(kind="semi" | "anti"):
                rows = below[0]
            case Join():
                rows = max(below[0] * below[1] / 3 ** min(len(one.keys), 2), below[0])
            case Aggregate() if one.groups:
                rows = below[0] / 2
            case Aggregate():
                rows = 1.0
            case Union():
                rows = sum(below)
            case Generate():
                rows = 2 * below[0]
            case Expand():
                rows = len(one.projections) * below[0]
            case TopK() if one.limit is not None:
                rows = min(below[0], one.limit)
            case _:
                rows = max(below)
        known[one] = rows
        largest = max(largest, rows)
    return largest


def _is_typed(world: int) -> bool:
    return world % 2 == 1


# ---- worlds ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    """Relations and all that happens to them, until each of ``uppers``."""

    number: int
    uppers: tuple[int, ...]
    changes: tuple[tuple[str, Numbers, int, int], ...]
    """Relation, row, time, diff; a row is the numbers of its values in their domains."""

    @property
    def relations(self) -> Mapping[str, Mapping[str, str]]:
        """Per relation its columns and their types."""
        return TYPED_RELATIONS if _is_typed(self.number) else RELATIONS

    @property
    def names(self) -> dict[str, str]:
        """The collections, by the names that plans have for them."""
        return {relation: f"{relation}_{self.number}" for relation in self.relations}

    def schema(self, relation: str) -> pa.Schema:
        """Return the columns of a relation."""
        return pa.schema([(n, _arrow(type_)) for n, type_ in self.relations[relation].items()])

    def write(self, client: Client, step: int) -> None:
        """Write what happens before the upper of a step, and seal it."""
        lower, upper = self.uppers[step - 1] if step else 0, self.uppers[step]
        for relation, name in self.names.items():
            writer, _ = client.create_or_load(name, self.schema(relation))
            rows = [
                (self._shown(relation, row), time, diff)
                for of, row, time, diff in self.changes
                if of == relation and lower <= time < upper
            ]
            if rows:
                writer.write(rows).result()
            writer.seal(upper).result()

    def rows_at(self, relation: str, time: int) -> Counter[Numbers]:
        """Return what a relation holds at a time."""
        there: Counter[Numbers] = Counter()
        for of, row, at, diff in self.changes:
            if of == relation and at <= time:
                there[row] += diff
        return +there

    def at_all_times(self, relation: str) -> pa.Table:
        """Return the rows of a relation at every time, each as often as it is there."""
        rows = [
            {**self._shown(relation, row), AT: time}
            for time in range(self.uppers[-1])
            for row in self.rows_at(relation, time).elements()
        ]
        schema = self.schema(relation).append(pa.field(AT, pa.int64()))
        return pa.Table.from_pylist(rows, schema=schema)

    def is_worth_it(self, plan: Node) -> bool:
        """Whether a plan says several things in the course of time; unknown of typed ones."""
        if _is_typed(self.number):
            return True
        answers: set[frozenset[tuple[Row, int]]] = set()
        for time in range(self.uppers[0] - 1, self.uppers[-1]):
            tables = {}
            for relation, types in self.relations.items():
                rows = Counter(
                    {
                        tuple(DOMAINS[t][at] for t, at in zip(types.values(), row, strict=True)): n
                        for row, n in self.rows_at(relation, time).items()
                    }
                )
                tables[relation] = oracle.Table(tuple(types), rows)
            try:
                answers.add(frozenset(oracle.rows(plan, tables).items()))
            except oracle.TooMany:
                return False
        return len(answers) > 2

    def _shown(self, relation: str, row: Numbers) -> dict[str, Any]:
        types = self.relations[relation]
        return {n: _values(self.number, types[n])[at] for n, at in zip(types, row, strict=True)}


@cache
def world(batch: int, number: int) -> World:
    """Return a world of a batch: its past, and three steps of at least two times each."""
    random = Random(f"{batch}/{number}")
    blank = World(number, (), ())
    held: dict[str, Counter[Numbers]] = {relation: Counter() for relation in blank.relations}
    changes: list[tuple[str, Numbers, int, int]] = []
    uppers = [0]
    for count in (random.choice([0, 20, 25, 25]), 6, 4, 4):
        lower = uppers[-1]
        uppers.append(lower + random.randint(2, 4))
        # Every relation changes, or none: a step of other views would have to be planned anew.
        relations = [*held, *random.choices([*held], k=count)] if count else []
        random.shuffle(relations)
        times = sorted(random.choices(range(lower, uppers[-1]), k=len(relations)))
        for relation, time in zip(relations, times, strict=True):
            there = sorted(held[relation].elements())
            if there and random.random() < 0.45:
                gone = random.choice(there)
                held[relation][gone] -= 1
                changes.append((relation, gone, time, -1))
                if random.random() < 0.4:
                    continue
            types = blank.relations[relation].values()
            come = tuple(_skewed(random, len(_values(number, type_))) for type_ in types)
            copies = 2 if random.random() < 0.2 else 1
            held[relation][come] += copies
            changes.append((relation, come, time, copies))
    return World(number, tuple(uppers[1:]), tuple(changes))


def _skewed(random: Random, values: int) -> int:
    """Return the number of a value: NULL (0) now and then, the others less and less often."""
    (chosen,) = random.choices(range(values), [0.2, *(1 / n for n in range(1, values))])
    return chosen


def _values(number: int, type_: str) -> Sequence[Any]:
    if _is_typed(number):
        return (None, *(value for value, _ in TYPED_DOMAINS[type_]))
    return tuple(map(as_arrow, DOMAINS[type_]))


def _arrow(type_: str) -> pa.DataType:
    return Column("_c_0", type_, True).sql_type.arrow

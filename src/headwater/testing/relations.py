"""Small relations for random plans, and random histories of them.

    history = random_history(Random(7))      updates per relation: before the view, and in each step

Values are few, so that rows meet and duplicates are common; every column may be NULL, and NULL is
as frequent as any other value. Steps have several times. The same seed gives the same history.

Relied on by: ``testing/plans.py`` and the tests that use it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from headwater.compute.ir.expression import Column
from headwater.testing.expressions import Struct
from headwater.testing.rig import Row, Update

PAIR: Final = "struct<x:int,y:string>"

RELATIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "r": {"a": "int", "b": "bigint", "s": "string"},
    "t": {"c": "bigint", "d": "double", "e": "int", "p": PAIR},
    "u": {"f": "int", "g": "boolean", "h": "string"},
}

DOMAINS: Final[Mapping[str, Sequence[Any]]] = {
    "int": (None, 0, 1, 2),
    "bigint": (None, 1, 2, 3),
    "double": (None, 0.5, 1.0, 2.0),
    "string": (None, "a", "b"),
    "boolean": (None, False, True),
    PAIR: (
        None,
        Struct((("x", 1), ("y", "a"))),
        Struct((("x", None), ("y", None))),
        Struct((("x", 2), ("y", None))),
    ),
}


def schemas() -> dict[str, tuple[Column, ...]]:
    """Return the columns of each relation: a field's name with ``_0`` behind it."""
    return {
        relation: tuple(Column(f"{name}_0", type_, True) for name, type_ in fields.items())
        for relation, fields in RELATIONS.items()
    }


@dataclass(frozen=True)
class Histories:
    """What happened to the relations: before the view, and in each of its steps."""

    past: dict[str, list[Update]]
    start: int
    steps: list[tuple[int, dict[str, list[Update]]]]
    """The upper of each step, and its updates."""

    def rows_at(self, relation: str, time: int) -> Counter[Row]:
        """Return what a relation holds at a time."""
        return +self._counts_at(relation, time)

    def owes_at(self, time: int) -> bool:
        """Whether some row has gone that is yet to come: nothing is said of such a time."""
        return any(-self._counts_at(relation, time) for relation in self.past)

    def _counts_at(self, relation: str, time: int) -> Counter[Row]:
        rows: Counter[Row] = Counter()
        every = [self.past, *(updates for _, updates in self.steps)]
        for updates in every:
            for row, at, diff in updates[relation]:
                if at <= time:
                    rows[row] += diff
        return rows


def random_history(random: Random, *, steps: int = 3, changes: int = 5) -> Histories:
    """Return inserts, deletes and updates, at several times a step; no count is ever negative."""
    held: dict[str, Counter[Row]] = {relation: Counter() for relation in RELATIONS}
    start = random.randint(1, 4)
    past: dict[str, list[Update]] = {relation: [] for relation in RELATIONS}
    if random.random() < 0.8:
        past = _changes(random, held, 0, start, 3 * changes)
    made: list[tuple[int, dict[str, list[Update]]]] = []
    lower = start
    for _ in range(steps):
        upper = lower + random.randint(1, 4)
        made.append((upper, _changes(random, held, lower, upper, random.randint(0, changes))))
        lower = upper
    return Histories(past, start, made)


def with_debts(random: Random, histories: Histories, debts: int) -> Histories:
    """Return the histories with rows that go before they come, at other times, in other steps."""
    every = [(histories.start, histories.past), *histories.steps]
    steps = [(upper, {r: list(u) for r, u in updates.items()}) for upper, updates in every]
    for _ in range(debts):
        goes = random.randrange(steps[-1][0])
        comes = random.randrange(goes, steps[-1][0])
        relation = random.choice(list(RELATIONS))
        row = tuple(random.choice(DOMAINS[type_]) for type_ in RELATIONS[relation].values())
        there = [row for _, updates in steps for row, _, _ in updates[relation]]
        if there and random.random() < 0.6:
            row = random.choice(there)
        for time, diff in ((goes, -1), (comes, 1)):
            updates = next(updates for upper, updates in steps if time < upper)
            updates[relation].append((row, time, diff))
    return Histories(steps[0][1], histories.start, steps[1:])


def _changes(
    random: Random, held: dict[str, Counter[Row]], lower: int, upper: int, changes: int
) -> dict[str, list[Update]]:
    updates: dict[str, list[Update]] = {relation: [] for relation in held}
    for time in sorted(random.choices(range(lower, upper), k=changes)):
        relation = random.choice(list(held))
        rows, types = held[relation], list(RELATIONS[relation].values())
        there = sorted(rows.elements(), key=repr)
        if there and random.random() < 0.45:
            gone = random.choice(there)
            rows[gone] -= 1
            updates[relation].append((gone, time, -1))
            if random.random() < 0.4:
                continue
        come = tuple(random.choice(DOMAINS[type_]) for type_ in types)
        copies = 2 if random.random() < 0.2 else 1
        rows[come] += copies
        updates[relation].append((come, time, copies))
    return updates

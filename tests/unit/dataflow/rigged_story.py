"""Random lives of an operator over groups of rows: they come and go, and all of it is checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Protocol

from headwater.testing.rig import Rig


class Case(Protocol):
    """An operator in its rig, and all that was written into it."""

    rig: Rig
    names: list[str]

    def step(self, updates: Sequence[tuple[dict[str, Any], int, int]], upper: int) -> None:
        """Step it over these updates."""
        ...

    def check(self) -> None:
        """Hold every time against all rows."""
        ...


def story(case: Case, pool: Mapping[str, Sequence[Any]], random: Random, steps: int) -> None:
    """Step a few times, with deletes of rows that are there; ``pool``: values of each column."""
    there: list[tuple[dict[str, Any], int]] = []
    for _ in range(steps):
        lower, upper = case.rig.upper, case.rig.upper + random.randint(1, 3)
        updates = []
        for _ in range(random.choice([0, 1, 5, 20])):
            if there and random.random() < 0.45:
                row, since = there.pop(random.randrange(len(there)))
                updates.append((row, random.randrange(max(lower, since), upper), -1))
            else:
                row = {name: random.choice(pool[name]) for name in case.names}
                time = random.randrange(lower, upper)
                updates.append((row, time, 1))
                there.append((row, time))
        case.step(updates, upper)
    case.check()

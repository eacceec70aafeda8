"""The nemesis over the public API, on unreliable ports, by seed.

``HEADWATER_SEED=n`` (or ``n/length``, as a report has it) runs one seed alone; ``make soak`` runs
more and longer ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import pytest

from headwater.testing.nemesis import LENGTH, Nemesis, check, draw

SEEDS = 2_000
CHUNK = 50
SOAK_SEEDS = 10_000
SOAK_LENGTH = 80

ONE = os.environ.get("HEADWATER_SEED", "")


def run(seeds: Iterable[int], length: int) -> None:
    if ONE:
        number, _, asked = ONE.partition("/")
        seeds, length = [int(number)], int(asked or length)
    reports = [report for seed in seeds if (report := check(seed, length))]
    assert not reports, "\n\n".join(reports[:3])


@pytest.mark.parametrize("first", [0] if ONE else range(0, SEEDS, CHUNK))
def test_every_seed_has_a_history_that_can_be(first: int) -> None:
    run(range(first, first + CHUNK), LENGTH)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, SOAK_SEEDS, CHUNK))
def test_long_plans(first: int) -> None:
    run(range(first, first + CHUNK), SOAK_LENGTH)


def test_a_seed_gives_the_same_run_each_time() -> None:
    """Otherwise its number would be worth nothing."""
    stepped = [plan for seed in range(20) if not (plan := draw(seed)).threads]
    for plan in stepped[:10]:
        once, again = Nemesis(plan), Nemesis(plan)
        once.run(), again.run()
        assert once.trace == again.trace
        assert once.history.observations == again.history.observations

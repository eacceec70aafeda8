"""Fail the n-th effect, for every n: a whole life, its process dead at each of its effects.

The life, and what must hold after a crash, is told in ``tests/simulation/life.py``. The death is
simulated here, before and after the effect; ``test_killed_nth.py`` kills a real process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Literal

import pytest

from headwater.persist.log import load
from headwater.testing.crash import quiet_crashes
from headwater.testing.stepped import stepped
from headwater.testing.unreliable import FailNth
from tests.simulation.killed_story import tell_until_killed
from tests.simulation.life import END, WRITES, Life, contents, leaks, told_again


def whole_life() -> int:
    """Return how many effects the story has."""
    life, process = Life(), FailNth(10**9, "before")
    with stepped(Random(0)):
        client = life.open(process.blob(life.blob), process.consensus(life.log))
        life.tell(client)
        client.stop()
    return process.effects


EFFECTS = whole_life()
CHUNKS = 6


def test_the_story_has_every_kind_of_effect() -> None:
    seen: Counter[str] = Counter()
    life, process = Life(), FailNth(10**9, "before")
    perform = FailNth.__call__

    def counted(self: FailNth, kind: object, call: str, do: Callable[[], object]) -> object:
        seen[call.split(maxsplit=1)[0]] += 1
        return perform(self, kind, call, do)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch, stepped(Random(0)):
        patch.setattr(FailNth, "__call__", counted)
        client = life.open(process.blob(life.blob), process.consensus(life.log))
        life.tell(client)
        assert contents(client.core, "a") == END
        client.stop()
    assert {"create", "delete", "append", "truncate"} <= set(seen)
    assert life.acknowledged == set(WRITES)
    assert not list(leaks(life, load(life.log, life.blob)))


@pytest.mark.parametrize("mode", ["before", "after"])
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_killed_at_every_effect(mode: Literal["before", "after"], chunk: int) -> None:
    for n in range(1 + chunk, EFFECTS + 1, CHUNKS):
        life, process = Life(), FailNth(n, mode)
        with quiet_crashes(), stepped(Random(n)):
            tell_until_killed(process, life, life.tell)
            assert process.crashed, f"effect {n} was never reached"
            again, found = told_again(life)
            if contents(again.core, "a") != END:
                found.append(f"the end is {contents(again.core, 'a')}, not {END}")
            again.stop()
        assert not found, f"killed {mode} effect {n}: {found}"

"""First steps of views that run in the background, and how far they are.

Of one that is run in several tasks it is how many of them are done; else it is guessed, from how
fast earlier ones were, and never quite all.

Kept by: this module. Relied on by: ``stepper.py``, which runs them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SURE_PART: Final = 0.8
"""Up to where a guess is told as it is."""


@dataclass(frozen=True, slots=True)
class Hydration:
    """A view's first step, running."""

    view: str
    rows: int
    """How many updates it has to take in."""
    seconds: float
    """Since it began."""
    part_done: float
    """Below 1; of one that is not large, an estimate."""


@dataclass(frozen=True, slots=True)
class Begun:
    """The same while it runs: by its beginning."""

    view: str
    rows: int
    at: float
    tasks: tuple[int, int] | None = None
    """Of a large one: how many are done, of how many."""

    def part_done(self, now: float, rows_per_second: float) -> float:
        """Return which part is done, as far as one can know."""
        if self.tasks is not None:
            done, of = self.tasks
            return min(done / of, 0.99)
        return guessed_part(now - self.at, max(self.rows / rows_per_second, 1.0))


def guessed_part(seconds: float, expected: float) -> float:
    """Return which part is probably done; of what takes longer than expected, never quite all.

    >>> [round(guessed_part(seconds, 10.0), 2) for seconds in (0, 5, 8, 16, 80)]
    [0.0, 0.5, 0.8, 0.9, 0.98]
    """
    part = seconds / expected
    return part if part <= SURE_PART else 1 - (1 - SURE_PART) * SURE_PART / part

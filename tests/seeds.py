"""How many seeds of a random test run every time, and how many more in ``make soak``.

A run without the soak does not even collect the seeds of the soak: there are thousands of them,
and to make and deselect them cost every worker seconds.
"""

from __future__ import annotations

from typing import Any

import pytest

_without_soak = False


def leave_out_soak() -> None:
    """From now on, name only the seeds that run every time."""
    global _without_soak
    _without_soak = True


def seeds(normal: int, soaked: int, step: int = 1) -> list[Any]:
    """Return the numbers below ``normal``, and those below ``soaked`` marked so."""
    more = range(0) if _without_soak else range(normal, soaked, step)
    return [*range(0, normal, step), *(pytest.param(n, marks=pytest.mark.soak) for n in more)]

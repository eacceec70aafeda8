"""How many seeds of a random test run every time, and how many more in ``make soak``."""

from __future__ import annotations

from typing import Any

import pytest


def seeds(normal: int, soaked: int, step: int = 1) -> list[Any]:
    """Return the numbers below ``normal``, and those below ``soaked`` marked so."""
    more = range(normal, soaked, step)
    return [*range(0, normal, step), *(pytest.param(n, marks=pytest.mark.soak) for n in more)]

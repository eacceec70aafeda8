"""Making a view, again where history moved on between the look at a state and the entry.

It may have been that of an input which nobody holds for the view, or of an arrangement that it was
to share. What is really gone is refused by the next look.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from headwater.persist.errors import CompactionRegression, DestroyedCollection

ATTEMPTS_MAX: Final = 8

_Made = TypeVar("_Made")


def attempted(create: Callable[[], _Made]) -> _Made:
    """Return what ``create`` makes of the newest state."""
    for _ in range(ATTEMPTS_MAX - 1):
        try:
            return create()
        except (CompactionRegression, DestroyedCollection):
            continue
    return create()

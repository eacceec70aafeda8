"""The timeline that what an ingestion keeps follows, as a port: the adapter has it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from headwater.persist.commands import Command


class Following(Protocol):
    """The timeline that everything of an ingestion follows."""

    @property
    def name(self) -> str:
        """Its name in the log."""
        ...

    def write_turn(self) -> AbstractContextManager[int]:
        """Take the turn to bind, at the time that is given: no upper has passed it."""
        ...

    def moved(self, upper: int) -> tuple[Command, ...]:
        """Return the commands that move it."""
        ...

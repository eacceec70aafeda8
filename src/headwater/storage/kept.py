"""A collection that an ingestion writes, and the entries in which it does.

An entry is all or nothing; an append that is there already is left out of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from headwater.algebra.frontier import Frontier
from headwater.persist.client import ReadHandle, WriteHandle, new_token
from headwater.persist.commands import Command, CompareAndAppend
from headwater.storage.keyed_state import KeyedState


@dataclass(slots=True)
class Kept:
    """A collection that the ingestion writes."""

    write: WriteHandle
    read: ReadHandle
    upper: int = 0
    state: KeyedState | None = None

    def as_of(self, birth: int) -> int | None:
        """Return the time at which it is as before a range; ``None``: it never had anything."""
        return None if self.upper <= birth else self.upper - 1


@dataclass(slots=True)
class Entry:
    """Commands that commit as one, or not at all."""

    commands: list[Command] = field(default_factory=list)

    def append(self, kept: Kept, upper: int, parts: Sequence[Any] = ()) -> None:
        """Append what a collection has in ``[its upper, upper)``, unless it is there already."""
        if kept.upper < upper:
            lower, to, token = Frontier.of(kept.upper), Frontier.of(upper), new_token()
            self.commands.append(CompareAndAppend(kept.write.id, token, lower, to, tuple(parts)))

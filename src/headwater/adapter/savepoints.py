"""Savepoints: places in a transaction to which it can go back. Pure.

What a transaction is made of are values: what it has come to (``adapter/transaction.py``) and what
it has set (``adapter/scoped.py``). So a savepoint is the value that there was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from headwater.adapter.errors import AdapterError

T = TypeVar("T")


class UnknownSavepoint(AdapterError):
    """No savepoint of this transaction has the name."""

    condition = "UNDEFINED_SAVEPOINT"
    sqlstate = "3B001"

    def __init__(self, name: str) -> None:
        super().__init__(f'savepoint "{name}" does not exist')


@dataclass(frozen=True, slots=True)
class Savepoints(Generic[T]):
    """Those of one transaction, oldest first; of two with one name the later one counts."""

    kept: tuple[tuple[str, T], ...] = ()

    def having(self, name: str, value: T) -> Savepoints[T]:
        """One more."""
        return Savepoints((*self.kept, (name, value)))

    def released(self, name: str) -> Savepoints[T]:
        """Without this one and those after it."""
        return Savepoints(self.kept[: self._place(name)])

    def back_to(self, name: str) -> tuple[Savepoints[T], T]:
        """The value that there was; the savepoint stays."""
        place = self._place(name)
        return Savepoints(self.kept[: place + 1]), self.kept[place][1]

    def _place(self, name: str) -> int:
        for place in reversed(range(len(self.kept))):
            if self.kept[place][0] == name:
                return place
        raise UnknownSavepoint(name)

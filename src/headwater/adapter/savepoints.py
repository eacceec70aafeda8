"""Savepoints: places in a transaction to which it can go back. Pure.

A transaction is a value (``adapter/transaction.py``), so a savepoint is the value it had. What was
*read* after it stays on record when the transaction goes back: a client has seen it, and COMMIT
has to check that it still holds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headwater.adapter.errors import AdapterError
from headwater.adapter.transaction import Transaction


class UnknownSavepoint(AdapterError):
    """No savepoint of this transaction has the name."""

    condition = "UNDEFINED_SAVEPOINT"
    sqlstate = "3B001"

    def __init__(self, name: str) -> None:
        super().__init__(f'savepoint "{name}" does not exist')


@dataclass(frozen=True, slots=True)
class Savepoints:
    """Those of one transaction, oldest first; of two with one name the later one counts."""

    kept: tuple[tuple[str, Transaction], ...] = ()

    def having(self, name: str, transaction: Transaction) -> Savepoints:
        """One more."""
        return Savepoints((*self.kept, (name, transaction)))

    def released(self, name: str) -> Savepoints:
        """Without this one and those after it."""
        return Savepoints(self.kept[: self._place(name)])

    def back_to(self, name: str, now: Transaction) -> tuple[Savepoints, Transaction]:
        """The transaction as it was there; the savepoint stays."""
        place = self._place(name)
        _, then = self.kept[place]
        back = replace(then, time=now.time, reads=now.reads, unsteady=now.unsteady)
        return Savepoints(self.kept[: place + 1]), back

    def _place(self, name: str) -> int:
        for place in reversed(range(len(self.kept))):
            if self.kept[place][0] == name:
                return place
        raise UnknownSavepoint(name)

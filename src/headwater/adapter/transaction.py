"""A transaction: what it has read and wants to write, and what it may still do. Pure.

One time ``r`` for all its reads, chosen by the first of them; its writes are kept here and reach
storage at COMMIT, together or not at all:

- *read-only*: every read is at ``r``, over whatever collections;
- *write-only*: over any number of tables; at COMMIT all of it happens at one time;
- *write after read*: at COMMIT the tables that its reads rest on must not have been written after
  ``r``; else it is refused with 40001 (``adapter/group_commit.py``).

- *definitions*: of any number of objects, in one entry at COMMIT, together with rows that are
  written, also those of tables that the transaction creates. What others keep (a materialized view,
  an index, a source, a materialization) is one of them at most, and not beside rows.

What it rests on must be tables, or views that change only with them: else nobody could tell, when
it commits, whether it has been overtaken.

It may not read what it has written: its writes are not in storage yet, and a read that missed them
would be wrong. So a read that rests on a table the transaction has written is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from headwater.adapter.catalog import Sources
from headwater.adapter.change import Block, effect_with_rows
from headwater.adapter.errors import ReadOnlyTransaction, Unsupported
from headwater.adapter.group_commit import ReadSet, TableWrite
from headwater.base.ids import GlobalId

ATTEMPTS_MAX: Final = 8
"""How often a statement that reads and then writes in a block of its own is tried."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """What a transaction has come to."""

    read_only: bool = False
    time: int | None = None
    """When it reads; None: it has not read yet."""
    reads: Mapping[GlobalId, str] = field(default_factory=dict)
    """The tables that its reads rest on."""
    unsteady: str | None = None
    """Something that it read, and that may change although no table does."""
    writes: tuple[TableWrite, ...] = ()
    definitions: Block | None = None

    def admit_read(self, tables: Mapping[GlobalId, str]) -> None:
        """Refuse a read that rests on these tables, if it cannot be right."""
        for write in self.writes:
            if write.id in tables:
                raise Unsupported(
                    f'reading "{write.name}" after writing it in one transaction',
                    detail="What a transaction writes is stored when it commits, not before.",
                    hint="Read first, or commit in between.",
                )

    def admit_write(self, command: str) -> None:
        """Refuse to write in a transaction that only reads."""
        if self.read_only:
            raise ReadOnlyTransaction(command)
        if self.unsteady is not None:
            raise unsteady(self.unsteady)
        if self.definitions is not None and self.definitions.effect is not None:
            raise effect_with_rows(self.definitions.effect)

    def admit_definition(self) -> None:
        """Refuse a definition in a transaction that only reads."""
        if self.read_only:
            raise ReadOnlyTransaction("a definition")

    def having_read(self, time: int, sources: Sources) -> Transaction:
        """The transaction after a read at its time."""
        assert self.time in (None, time), "a transaction reads at one time"
        unsteady = next(iter(sources.unsteady.values()), self.unsteady)
        reads = {**self.reads, **sources.tables}
        return replace(self, time=time, reads=reads, unsteady=unsteady)

    def having_written(self, write: TableWrite) -> Transaction:
        """The transaction after a write."""
        return replace(self, writes=(*self.writes, write))

    def back_to(self, then: Transaction) -> Transaction:
        """As it was at a savepoint, but for what it has read: a client has seen that."""
        return replace(then, time=self.time, reads=self.reads, unsteady=self.unsteady)

    @property
    def read_set(self) -> ReadSet | None:
        """What its writes rest on."""
        return None if self.time is None else ReadSet(self.time, self.reads)


def unsteady(name: str) -> Unsupported:
    """Say why what rests on something that changes by itself cannot be written."""
    return Unsupported(
        f'writing what depends on "{name}"',
        detail="It may change between the read and the write although no table does.",
        hint="Write AS OF a time, or keep the rows as a materialized view.",
    )

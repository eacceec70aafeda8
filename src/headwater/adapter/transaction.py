"""A transaction: what it has read and wants to write, and what it may still do. Pure.

One time ``r`` for all its reads, chosen by the first of them; its writes are kept here and reach
storage at COMMIT, together or not at all:

- *read-only*: every read is at ``r``, over whatever collections;
- *write-only*: over any number of tables; at COMMIT all of it happens at one time;
- *write after read*: at COMMIT the tables that its reads rest on must not have been written after
  ``r``; else it is refused with 40001 (``adapter/group_commit.py``);
- *read after write*: what it reads of a table is the table at ``r`` and its own writes on top
  (``adapter/overlay.py``). So a table may be written any number of times, each statement over what
  the ones before it made.

- *definitions*: of any number of objects, in one entry at COMMIT, together with rows that are
  written, also those of tables that the transaction creates. What others keep (a source, a
  materialization) is one of them at most, and not beside rows.

What it rests on must be tables, or views that change only with them: else nobody could tell, when
it commits, whether it has been overtaken. Rows that it asks for ``FOR UPDATE`` are not locked: what
they rest on must be unchanged when it commits, also if it writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from headwater.adapter.catalog import Sources
from headwater.adapter.change import Block, effect_with_rows
from headwater.adapter.errors import ReadOnlyTransaction, Unsupported
from headwater.adapter.group_commit import MetKeys, ReadSet, TableWrite
from headwater.adapter.object_errors import TransactionTooLarge
from headwater.base.ids import GlobalId

ATTEMPTS_MAX: Final = 8
"""How often a statement that reads and then writes in a block of its own is tried."""

TRANSACTION_BYTES_MAX: Final = 512 << 20
"""How much a transaction may have written before another statement of it writes: it is kept in
memory. One statement may be as large as it may be by itself."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """What a transaction has come to."""

    read_only: bool = False
    time: int | None = None
    """When it reads; None: it has not read yet."""
    reads: Mapping[GlobalId, str] = field(default_factory=dict)
    """The tables that its reads rest on."""
    met: tuple[MetKeys, ...] = ()
    """Keys that it was told of."""
    unsteady: str | None = None
    """Something that it read, and that may change although no table does."""
    locks: bool = False
    """Whether what it read must be as it was when it commits, whatever it writes."""
    writes: tuple[TableWrite, ...] = ()
    size_bytes: int = 0
    """Of its writes."""
    definitions: Block | None = None

    def admit_read(self, sources: Sources) -> None:
        """Refuse a read that could not be seen to be overtaken, where that matters."""
        if (self.writes or self.locks) and sources.unsteady:
            raise unsteady(next(iter(sources.unsteady.values())))

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

    def locking(self) -> Transaction:
        """The transaction when it asks for rows FOR UPDATE."""
        if self.read_only:
            raise ReadOnlyTransaction("SELECT FOR UPDATE")
        if self.unsteady is not None:
            raise unsteady(self.unsteady)
        return replace(self, locks=True)

    def having_read(self, time: int, sources: Sources) -> Transaction:
        """The transaction after a read at its time."""
        assert self.time in (None, time), "a transaction reads at one time"
        unsteady = next(iter(sources.unsteady.values()), self.unsteady)
        reads = {**self.reads, **sources.tables}
        return replace(self, time=time, reads=reads, unsteady=unsteady)

    def having_met(self, met: MetKeys | None) -> Transaction:
        """The transaction after it was told of keys."""
        return self if met is None else replace(self, met=(*self.met, met))

    def having_written(self, write: TableWrite) -> Transaction:
        """The transaction after a write."""
        if self.size_bytes > TRANSACTION_BYTES_MAX:
            raise TransactionTooLarge(TRANSACTION_BYTES_MAX)
        size_bytes = self.size_bytes + write.rows.nbytes
        return replace(self, writes=(*self.writes, write), size_bytes=size_bytes)

    def back_to(self, then: Transaction) -> Transaction:
        """As it was at a savepoint, but for what it has read: a client has seen that."""
        return replace(
            then,
            time=self.time,
            reads=self.reads,
            met=self.met,
            unsteady=self.unsteady,
            locks=self.locks,
        )

    @property
    def read_set(self) -> ReadSet | None:
        """What its writes rest on."""
        return None if self.time is None else ReadSet(self.time, self.reads, self.met)


def unsteady(name: str) -> Unsupported:
    """Say why what rests on something that changes by itself cannot be written."""
    return Unsupported(
        f'writing what depends on "{name}"',
        detail="It may change between the read and the write although no table does.",
        hint="Write AS OF a time, or keep the rows as a materialized view.",
    )

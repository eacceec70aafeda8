"""The transaction block that a session has open: what it has come to, and what it holds for that.

The value (``adapter/transaction.py``) says what was read and written; here it meets the server: its
time is chosen and held by its first read, its statements are planned over its own writes and
definitions, and all of it is given to the group commit when it commits.

Invariant: nothing that it writes is anywhere but in this process before :meth:`commit`. A statement
that is refused leaves it as it was, but for what the client was told: that it rests on.

Used by one thread at a time. Kept by: this module. Relied on by: :mod:`.session`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.adapter.catalog import Sources
from headwater.adapter.definitions import Definition
from headwater.adapter.errors import UniqueViolation, Unsupported
from headwater.adapter.group_commit import TableWrite, Write
from headwater.adapter.keyed_reads import Present
from headwater.adapter.limit import NO_LIMIT, Limit
from headwater.adapter.overlay import Overlay, Overlays
from headwater.adapter.pgwire.backend import Result
from headwater.adapter.reads import Planned
from headwater.adapter.sql.statements import Delete, Insert, Select, Update
from headwater.adapter.timestamps import Isolation
from headwater.adapter.transaction import Transaction, unsteady
from headwater.adapter.unique_keys import Looks, checked, without_existing
from headwater.base.ids import GlobalId
from headwater.persist.state import State

if TYPE_CHECKING:
    from headwater.adapter.coordinator import Coordinator


class OpenTransaction:
    """One transaction block."""

    def __init__(self, coordinator: Coordinator, *, read_only: bool) -> None:
        self._coordinator = coordinator
        self._overlays = Overlays()
        self._keys: dict[GlobalId, tuple[int | None, Present]] = {}
        """Of tables that it writes: which keys are stored, and at what time that is."""
        self.now = Transaction(read_only)

    @property
    def state(self) -> State:
        """The catalog, with its own definitions."""
        return self._coordinator.definitions.seen(self.now.definitions)

    @property
    def written(self) -> Mapping[GlobalId, Overlay]:
        """What it has written, by table."""
        return self._overlays.of(self.now.writes)

    # ---- reading -----------------------------------------------------------------------------

    def planned(self, statement: Select) -> Planned:
        """Return how a query is answered, over what it has written itself."""
        reads, written = self._coordinator.reads, self.written
        return reads.planned(statement, self.now.time, self.state, written)

    def lock(self) -> None:
        """Have what it reads be as it was when it commits."""
        self.now = self.now.locking()

    def read_time(self, sources: Sources, isolation: Isolation, limit: Limit) -> int:
        """Return its time, at which ``sources`` are complete."""
        reads = self._coordinator.reads
        self.now.admit_read(sources)
        if self.now.time is None:
            with reads.chosen(sources, isolation, None, limit) as time:
                self._coordinator.holds.acquire(time)  # Until it ends.
        else:
            time = self.now.time
            reads.check_begun(sources, time)
            reads.wait(time, sources.collections, limit)
        self.now = self.now.having_read(time, sources)
        return time

    # ---- writing -----------------------------------------------------------------------------

    def write(
        self, statement: Insert | Update | Delete, isolation: Isolation, limit: Limit
    ) -> Result:
        """Plan a statement over what was written before it, and keep what it writes."""
        coordinator, state = self._coordinator, self.state
        self.now.admit_write(type(statement).__name__.upper())
        target = coordinator.target(statement.table, state)
        if statement.as_of is not None:
            raise Unsupported(
                "AS OF of a write in a transaction block",
                detail="All writes of a block happen at one time, chosen when it commits.",
            )
        sources = coordinator.read_by(statement, target, state, self.now.time, self.written)
        time = None
        if sources is not None:
            if sources.unsteady:
                raise unsteady(next(iter(sources.unsteady.values())))
            time = self.read_time(sources, isolation, limit)
        planned = coordinator.plan(statement, target, sources, time, state)
        kept = self._kept(planned.table, isolation, limit)
        return replace(planned, table=kept).result()

    def wrote(self, rows: TableWrite, isolation: Isolation) -> None:
        """Keep rows that were written."""
        self._kept(rows, isolation, NO_LIMIT)

    def _kept(self, write: TableWrite, isolation: Isolation, limit: Limit) -> TableWrite:
        """Keep a write, if it leaves every key at most once; return it as it is kept."""
        if write.key and write.num_rows:
            own, looks = self.written.get(write.id), self._looks(write, isolation, limit)
            if write.skip_existing:
                write, met = without_existing(write, own, looks)
                self.now = self.now.having_met(met)
            else:
                taken = checked(write, own, looks)
                if taken is not None:
                    self.now = self.now.having_met(taken)
                    raise UniqueViolation(write.name, write.key)
        self.now = self.now.having_written(write)
        return write

    def _looks(self, write: TableWrite, isolation: Isolation, limit: Limit) -> Looks | None:
        """Return where keys of a table are looked up; None: it has none but those written here."""
        gid = write.id
        if not self._coordinator.is_stored(gid):
            return None

        def settled(keys: pa.Table) -> list[int]:
            self.read_time(Sources(collections={gid: write.name}), isolation, limit)
            return self._present(gid).counts(keys)

        return Looks(lambda keys: self._present(gid).counts(keys), settled)

    def _present(self, gid: GlobalId) -> Present:
        """Return what tells which keys are stored: at its time; until it has one, as first seen."""
        known = self._keys.get(gid)
        if known is None or known[0] != self.now.time:
            present = self._coordinator.reads.present(gid, self.now.time)
            known = self._keys[gid] = (self.now.time, present)
        return known[1]

    # ---- definitions -------------------------------------------------------------------------

    def define(self, statement: Definition, sql: str) -> Result:
        """Plan a definition on top of those before it."""
        definitions = self._coordinator.definitions
        self.now.admit_definition()
        block = self.now.definitions or definitions.begin()
        block, tag = definitions.define(block, statement, sql, rows=bool(self.now.writes))
        self.now = replace(self.now, definitions=block)
        return Result(tag)

    # ---- its end -----------------------------------------------------------------------------

    def commit(self, limit: Limit) -> None:
        """Commit all of it, or nothing."""
        now, coordinator = self.now, self._coordinator
        writes = self._overlays.net(now.writes)
        if now.definitions is not None:
            coordinator.definitions.commit(now.definitions, writes, now.read_set, limit)
        elif writes or (now.locks and now.time is not None):
            coordinator.commits.write(Write(writes, now.read_set), limit)

    def restrict(self, *, read_only: bool) -> None:
        """Say whether it only reads."""
        self.now = replace(self.now, read_only=read_only)

    def back_to(self, then: Transaction) -> None:
        """Go back to a savepoint."""
        self.now = self.now.back_to(then)

    def end(self) -> None:
        """Let go what it held."""
        if self.now.time is not None:
            self._coordinator.holds.release(self.now.time)

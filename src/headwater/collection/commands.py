"""The commands of the formalism over collections, and their validate form.

:class:`Commands` says what each command is; ``execute`` says what becomes of it. ``Collections``
(``collection/collections.py``) commits it; :class:`Validation` decides it on the newest state and
leaves it at that. Both run the same decision (``persist/decide.py``), so they cannot disagree.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headwater.algebra.frontier import Frontier
from headwater.base.ids import BatchId, GlobalId
from headwater.collection.capability import (
    Capability,
    ReadCapability,
    WriteCapability,
    new_token,
)
from headwater.collection.subscription import check_subscription
from headwater.persist import client, evolution
from headwater.persist.batch import Inline, Part, Times
from headwater.persist.changes import Reader, Writer
from headwater.persist.client import Rows, frontier, pending_parts
from headwater.persist.commands import (
    All,
    Atomic,
    Command,
    CreateOrLoad,
    DowngradeReader,
    DowngradeWriter,
    DropReader,
    DropWriter,
    Held,
    OpenReader,
    OpenWriter,
    Outcome,
    RenewReader,
    RenewWriter,
    Reserved,
    ReserveId,
    UpdateAndDowngrade,
)
from headwater.persist.core import Core
from headwater.persist.decide import decide
from headwater.persist.decision import collection_of
from headwater.persist.errors import InvalidCapability
from headwater.persist.evolution import DIFF, TIME
from headwater.persist.layout import INLINE
from headwater.persist.narrow import Narrowing
from headwater.persist.part import Pending
from headwater.persist.stats import Predicate

VIEW_PREFIX: Final = "view/"
"""Before the id of an output, the key under which the log has the view that alone writes it."""


@dataclass(frozen=True, slots=True)
class Description:
    """What a collection is: its columns, its key, how it is laid out, where it starts."""

    schema: pa.Schema
    key: tuple[str, ...] = ()
    layout: str = "parquet"
    timeline: str | None = None
    start: int = 0


def collection_name(gid: GlobalId) -> str:
    """Return the name under which persist knows the collection of an id."""
    return f"u{gid}"


class Commands(ABC):
    """The commands of the formalism; who runs them decides whether they take effect."""

    def __init__(self, core: Core) -> None:
        self._core = core

    @abstractmethod
    def execute(self, command: Command) -> Outcome:
        """Return what comes of a command, or raise why it is refused."""

    @abstractmethod
    def _execute_parts(
        self, pending: Sequence[Pending], command: Callable[[tuple[Part, ...]], Command]
    ) -> Outcome:
        """Do the same for a command that refers to updates still to be written."""

    # ---- life cycle --------------------------------------------------------------------------

    def new_id(self) -> GlobalId:
        """Hand out an id; it is never used for anything else."""
        outcome = self.execute(ReserveId())
        assert isinstance(outcome, Reserved)
        return outcome.id

    def create(
        self, gid: GlobalId, description: Description
    ) -> tuple[ReadCapability, WriteCapability]:
        """Bind ``gid`` to a new collection; both frontiers are where the system put them."""
        _ = self._core.layouts[description.layout]
        create = CreateOrLoad(
            collection_name(gid),
            evolution.to_bytes(description.schema),
            description.key,
            description.layout,
            timeline=description.timeline,
            start=description.start,
            owner=False,
            id=gid,
        )
        return self._open_both(gid, "creator", 0, create)

    def acquire_capabilities(
        self, gid: GlobalId, *, purpose: str = "acquired", lease_ms: int = 0
    ) -> tuple[ReadCapability, WriteCapability]:
        """Return capabilities at the current frontiers: best effort, perhaps empty and useless.

        Only a view writes its output: the write capability of one is always empty.
        """
        if f"{VIEW_PREFIX}{gid}" in self._core.look().items:
            read = self.acquire_read(gid, purpose=purpose, lease_ms=lease_ms)
            return read, WriteCapability(gid, new_token(), Frontier.closed())
        return self._open_both(gid, purpose, lease_ms)

    def _open_both(
        self, gid: GlobalId, purpose: str, lease_ms: int, *before: Command
    ) -> tuple[ReadCapability, WriteCapability]:
        unknown: Times = Frontier.closed()
        read = ReadCapability(gid, new_token(), unknown)
        write = WriteCapability(gid, new_token(), unknown)
        opens = (
            OpenReader(gid, read.holder, purpose, lease_ms=lease_ms),
            OpenWriter(gid, write.holder, purpose, lease_ms=lease_ms),
        )
        outcome = self.execute(Atomic((*before, *opens)))
        assert isinstance(outcome, All)
        return read.at(_held(outcome.outcomes[-2])), write.at(_held(outcome.outcomes[-1]))

    def acquire_read(
        self,
        gid: GlobalId,
        *,
        at: int | None = None,
        purpose: str = "acquired",
        lease_ms: int = 0,
    ) -> ReadCapability:
        """Return a read capability, at ``at`` or at the collection's since."""
        read = ReadCapability(gid, new_token(), Frontier.closed())
        since = None if at is None else Frontier.of(at)
        return read.at(_held(self.execute(OpenReader(gid, read.holder, purpose, since, lease_ms))))

    # ---- moving capabilities -----------------------------------------------------------------

    def clone_read(self, read: ReadCapability, *, purpose: str = "clone") -> ReadCapability:
        """Return another capability with the same rights: the same frontier, the same lease."""
        holder = self.reader(read)
        clone = ReadCapability(read.id, new_token(), holder.since)
        opened = OpenReader(read.id, clone.holder, purpose, holder.since, holder.lease_ms)
        self.execute(Atomic((RenewReader(read.id, read.holder), opened)))
        return clone

    def clone_write(self, write: WriteCapability, *, purpose: str = "clone") -> WriteCapability:
        """Return another capability with the same rights (and responsibilities)."""
        holder = self.writer(write)
        clone = WriteCapability(write.id, new_token(), holder.frontier)
        opened = OpenWriter(write.id, clone.holder, purpose, holder.frontier, holder.lease_ms)
        self.execute(Atomic((RenewWriter(write.id, write.holder), opened)))
        return clone

    def downgrade_read(self, read: ReadCapability, to: int | Times | None) -> ReadCapability:
        """Move a read capability forwards; since may follow."""
        moved = DowngradeReader(read.id, read.holder, frontier(to))
        return read.at(_held(self.execute(moved)))

    def downgrade_write(self, write: WriteCapability, to: int | Times | None) -> WriteCapability:
        """Move a write capability forwards without updates; upper may follow."""
        moved = DowngradeWriter(write.id, write.holder, frontier(to))
        return write.at(_held(self.execute(moved)))

    def renew_read(self, read: ReadCapability) -> ReadCapability:
        """Prolong the lease of a read capability; moves nothing."""
        return read.at(_held(self.execute(RenewReader(read.id, read.holder))))

    def renew_write(self, write: WriteCapability) -> WriteCapability:
        """Prolong the lease of a write capability; moves nothing."""
        return write.at(_held(self.execute(RenewWriter(write.id, write.holder))))

    def drop(self, capability: Capability) -> None:
        """Give a capability up. The last one releases its frontier for good. Idempotent."""
        self.execute(drop_command(capability))

    # ---- data --------------------------------------------------------------------------------

    def update_and_downgrade(
        self,
        write: WriteCapability,
        updates: pa.Table | Rows,
        new_frontier: int | Times | None,
        *,
        errors: pa.Table | None = None,
        token: BatchId | None = None,
    ) -> WriteCapability:
        """Apply updates at times in ``[frontier, new_frontier)`` and move the capability there.

        Whoever must know after an Indeterminate error tries again with the same ``token``: if the
        first attempt did commit, the second has no effect and succeeds.
        """
        self.writer(write)  # Before the updates are looked at, and long before they are written.
        name, to = token or client.new_token(), frontier(new_frontier)
        pending = pending_parts(self._core, write.id, updates, errors)
        self._execute_parts(
            pending, lambda parts: UpdateAndDowngrade(write.id, write.holder, name, parts, to)
        )
        return write.at(to)

    # ---- presenting a capability -------------------------------------------------------------

    def reader(self, read: ReadCapability) -> Reader:
        """Return what the system knows of a read capability, or refuse it."""
        collection = collection_of(self._core.look(), read.id)
        holder = collection.readers.get(read.holder)
        self._valid(holder, f"read capability on u{read.id}")
        assert holder is not None
        return holder

    def writer(self, write: WriteCapability) -> Writer:
        """Return what the system knows of a write capability, or refuse it."""
        collection = collection_of(self._core.look(), write.id)
        holder = collection.writers.get(write.holder)
        self._valid(holder, f"write capability on u{write.id}")
        assert holder is not None
        return holder

    def _valid(self, holder: Reader | Writer | None, what: str) -> None:
        if holder is None:
            raise InvalidCapability(what, "it was dropped, or never existed")
        now_ms = max(self._core.state.clock_ms, self._core.clock.now_ms())
        if holder.lease_ms and holder.expires_ms <= now_ms:
            raise InvalidCapability(what, f"its lease of {holder.lease_ms} ms has expired")

    def _readable(self, read: ReadCapability, narrowing: Narrowing) -> int:
        """Return the time at which a capability reads, if it is valid as stated."""
        held, what = self.reader(read), f"read capability on u{read.id}"
        if read.frontier.is_closed:
            raise InvalidCapability(what, "its frontier is empty")
        if not held.since <= read.frontier:
            raise InvalidCapability(what, f"it was moved from {read.frontier} to {held.since}")
        as_of = read.frontier.only()
        check_subscription(collection_of(self._core.look(), read.id), as_of, narrowing)
        return as_of


def _held(outcome: Outcome) -> Times:
    assert isinstance(outcome, Held)
    return outcome.frontier


def drop_command(capability: Capability) -> Command:
    """Return the command that drops a capability: for an ``Atomic``."""
    match capability:
        case ReadCapability():
            return DropReader(capability.id, capability.holder)
        case WriteCapability():
            return DropWriter(capability.id, capability.holder)


def described(pending: Sequence[Pending]) -> tuple[Part, ...]:
    """Return what the parts will say of themselves, without writing them: to decide upon."""
    found = []
    for item in pending:
        times = pc.min_max(item.updates.column(TIME))
        part = Part(
            where=Inline(b""),
            layout=INLINE.name,
            schema=item.schema,
            errors=item.errors,
            rows=item.updates.num_rows,
            diff_sum=pc.sum(item.updates.column(DIFF)).as_py(),
            time_min=times["min"].as_py(),
            time_max=times["max"].as_py(),
        )
        found.append(part)
    return tuple(found)


def narrowed(where: Sequence[Predicate], columns: Sequence[str] | None) -> Narrowing:
    """Return a filter and a projection as one value."""
    return Narrowing(tuple(where), None if columns is None else tuple(columns))


class Validation(Commands):
    """The same commands, decided and not executed.

    What they return is what would be: a capability has the frontier it would have, and a token
    that grants nothing.
    """

    def execute(self, command: Command) -> Outcome:
        """Decide a command on the newest state; raises what it would raise."""
        state = self._core.confirm()
        now_ms = max(state.clock_ms, self._core.clock.now_ms())
        return decide(state, command, now_ms).outcome

    def _execute_parts(
        self, pending: Sequence[Pending], command: Callable[[tuple[Part, ...]], Command]
    ) -> Outcome:
        return self.execute(command(described(pending)))

    def subscribe_at(
        self,
        read: ReadCapability,
        *,
        snapshot: bool = True,  # noqa: ARG002 - the same signature as the command
        where: Sequence[Predicate] = (),
        columns: Sequence[str] | None = None,
    ) -> None:
        """Refuse what ``subscribe_at`` would refuse."""
        self._readable(read, narrowed(where, columns))

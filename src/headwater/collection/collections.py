"""The durable map from GlobalId to collection, and the commands of the formalism over it.

Life of an id: handed out (:meth:`Collections.new_id`), bound with ``since == upper``
(:meth:`create`), then its frontiers move, then its upper becomes empty (unwriteable) and its since
(unreadable). An id is never bound twice, and what is bound to it never changes meaning.

Every command is durable when it returns. Each has a *validate* form: :meth:`validate` decides the
same command on the newest state and has no effect. A validated command commits: what it depends on
is held by the capability that it presents, and only its holder can move that. (A lease may still
run out in between, and a fence may fall: those are the two ways in which it can be refused.)

Relied on by: ``storage``, ``compute``, ``materialize``, ``adapter``: they know collections only
through this.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from headwater.algebra.frontier import Frontier
from headwater.base.ids import BatchId, GlobalId
from headwater.collection.capability import ReadCapability, WriteCapability
from headwater.collection.subscription import Subscription
from headwater.persist import evolution
from headwater.persist.batch import Part, Times
from headwater.persist.client import Client, Rows, frontier, new_token, pending_parts
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
    Reserved,
    ReserveId,
    UpdateAndDowngrade,
)
from headwater.persist.decide import decide
from headwater.persist.decision import collection_of
from headwater.persist.errors import InvalidCapability
from headwater.persist.stats import Predicate


@dataclass(frozen=True, slots=True)
class Description:
    """What a collection is: its columns, its key, how it is laid out, where it starts."""

    schema: pa.Schema
    key: tuple[str, ...] = ()
    layout: str = "parquet"
    timeline: str | None = None
    start: int = 0


@dataclass(frozen=True, slots=True)
class Bound:
    """A living collection: readable from ``since`` on, known before ``upper``."""

    since: Times
    upper: Times


@dataclass(frozen=True, slots=True)
class Unbound:
    """The id was handed out and is not bound yet."""


@dataclass(frozen=True, slots=True)
class Gone:
    """The id was never handed out, or its collection was destroyed."""


Status = Bound | Unbound | Gone


def collection_name(gid: GlobalId) -> str:
    """Return the name under which persist knows the collection of an id."""
    return f"u{gid}"


class Collections:
    """Commands over the collections of one location."""

    def __init__(self, client: Client) -> None:
        self._client = client.clone()
        self._core = client.core

    # ---- life cycle --------------------------------------------------------------------------

    def new_id(self) -> GlobalId:
        """Hand out an id; it is never used for anything else."""
        outcome = self._core.submit(ReserveId()).result()
        assert isinstance(outcome, Reserved)
        return outcome.id

    def create_command(
        self, gid: GlobalId, description: Description
    ) -> tuple[Atomic, ReadCapability, WriteCapability]:
        """Return the command that binds an id, and the capabilities it will make."""
        start = Frontier.of(description.start)
        read = ReadCapability(gid, secrets.token_hex(16), start)
        write = WriteCapability(gid, secrets.token_hex(16), start)
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
        command = Atomic(
            (
                create,
                OpenReader(gid, read.token, "creator"),
                OpenWriter(gid, write.token, "creator"),
            )
        )
        return command, read, write

    def create(
        self, gid: GlobalId, description: Description
    ) -> tuple[ReadCapability, WriteCapability]:
        """Bind ``gid`` to a new collection; both frontiers are where the system put them."""
        command, read, write = self.create_command(gid, description)
        outcome = self.execute(command)
        assert isinstance(outcome, All)
        _, held_read, held_write = outcome.outcomes
        assert isinstance(held_read, Held)
        assert isinstance(held_write, Held)
        return read.at(held_read.frontier), write.at(held_write.frontier)

    def status(self, gid: GlobalId) -> Status:
        """Return where an id is in its life."""
        state = self._core.state
        collection = state.collections.get(gid)
        if collection is not None:
            return Bound(collection.since, state.upper(collection))
        return Unbound() if gid in state.reserved else Gone()

    def acquire_capabilities(
        self, gid: GlobalId, *, purpose: str = "acquired", lease_ms: int = 0
    ) -> tuple[ReadCapability, WriteCapability]:
        """Return capabilities at the current frontiers: best effort, perhaps empty and useless."""
        read, write = secrets.token_hex(16), secrets.token_hex(16)
        outcome = self.execute(
            Atomic(
                (
                    OpenReader(gid, read, purpose, lease_ms=lease_ms),
                    OpenWriter(gid, write, purpose, lease_ms=lease_ms),
                )
            )
        )
        assert isinstance(outcome, All)
        held_read, held_write = outcome.outcomes
        assert isinstance(held_read, Held)
        assert isinstance(held_write, Held)
        return (
            ReadCapability(gid, read, held_read.frontier),
            WriteCapability(gid, write, held_write.frontier),
        )

    def acquire_read(
        self,
        gid: GlobalId,
        *,
        at: int | None = None,
        purpose: str = "acquired",
        lease_ms: int = 0,
    ) -> ReadCapability:
        """Return a read capability, at ``at`` or at the collection's since."""
        token = secrets.token_hex(16)
        since = None if at is None else Frontier.of(at)
        outcome = self.execute(OpenReader(gid, token, purpose, since, lease_ms))
        assert isinstance(outcome, Held)
        return ReadCapability(gid, token, outcome.frontier)

    # ---- moving capabilities -----------------------------------------------------------------

    def clone_read(self, read: ReadCapability, *, purpose: str = "clone") -> ReadCapability:
        """Return another capability with the same rights."""
        self._check(read)
        token = secrets.token_hex(16)
        outcome = self.execute(OpenReader(read.id, token, purpose, read.frontier))
        assert isinstance(outcome, Held)
        return ReadCapability(read.id, token, outcome.frontier)

    def clone_write(self, write: WriteCapability, *, purpose: str = "clone") -> WriteCapability:
        """Return another capability with the same rights (and responsibilities)."""
        self._check(write)
        token = secrets.token_hex(16)
        outcome = self.execute(OpenWriter(write.id, token, purpose, write.frontier))
        assert isinstance(outcome, Held)
        return WriteCapability(write.id, token, outcome.frontier)

    def downgrade_read(self, read: ReadCapability, to: int | Times | None) -> ReadCapability:
        """Move a read capability forwards; since may follow."""
        outcome = self.execute(DowngradeReader(read.id, read.token, frontier(to)))
        assert isinstance(outcome, Held)
        return read.at(outcome.frontier)

    def downgrade_write(self, write: WriteCapability, to: int | Times | None) -> WriteCapability:
        """Move a write capability forwards without updates; upper may follow."""
        outcome = self.execute(DowngradeWriter(write.id, write.token, frontier(to)))
        assert isinstance(outcome, Held)
        return write.at(outcome.frontier)

    def renew(self, read: ReadCapability) -> ReadCapability:
        """Prolong the lease of a read capability."""
        outcome = self.execute(RenewReader(read.id, read.token))
        assert isinstance(outcome, Held)
        return read.at(outcome.frontier)

    def drop(self, capability: ReadCapability | WriteCapability) -> None:
        """Give a capability up. The last one releases its frontier for good."""
        match capability:
            case ReadCapability():
                self.execute(DropReader(capability.id, capability.token))
            case WriteCapability():
                self.execute(DropWriter(capability.id, capability.token))

    # ---- data --------------------------------------------------------------------------------

    def update_and_downgrade(
        self, write: WriteCapability, updates: pa.Table | Rows, new_frontier: int | Times | None
    ) -> WriteCapability:
        """Apply updates at times in ``[frontier, new_frontier)`` and move the capability there."""
        token, to = new_token(), frontier(new_frontier)
        pending = pending_parts(self._core, write.id, updates)
        future = self._core.submit_parts(
            pending, lambda parts: UpdateAndDowngrade(write.id, write.token, token, parts, to)
        )
        future.result()
        return write.at(to)

    def subscribe_at(
        self,
        read: ReadCapability,
        *,
        snapshot: bool = True,
        where: Sequence[Predicate] = (),
        columns: Sequence[str] | None = None,
    ) -> Subscription:
        """Return the contents at the capability's frontier, then every update after it.

        ``where`` and ``columns`` are applied where the data is read. The subscription tells its
        own ``upper`` in line; it waits while the time is not known yet. Downgrade the capability
        only to what has been received.
        """
        self._check(read)
        if read.frontier.is_closed:
            raise InvalidCapability(f"reading u{read.id}", "its frontier is empty")
        return Subscription(
            self._core,
            read.id,
            read.frontier.only(),
            snapshot=snapshot,
            where=tuple(where),
            columns=None if columns is None else tuple(columns),
        )

    # ---- validation --------------------------------------------------------------------------

    def validate(self, command: Command) -> Outcome:
        """Decide a command on the newest state, without effect; raises what it would raise."""
        state = self._core.state
        now_ms = max(state.clock_ms, self._core.clock.now_ms())
        return decide(state, command, now_ms).outcome

    def execute(self, command: Command) -> Outcome:
        """Commit a command."""
        return self._core.submit(command).result()

    def update_command(
        self,
        write: WriteCapability,
        updates: pa.Table | Rows,
        new_frontier: int | Times | None,
        token: BatchId | None = None,
    ) -> Command:
        """Return an update as a command, its parts written but nothing visible: to validate it,
        or to commit it together with others in an ``Atomic``."""
        parts: tuple[Part, ...] = self._core.write_parts(
            pending_parts(self._core, write.id, updates)
        )
        name = token or new_token()
        return UpdateAndDowngrade(write.id, write.token, name, parts, frontier(new_frontier))

    def _check(self, capability: ReadCapability | WriteCapability) -> None:
        """Refuse a token the system does not know, or whose lease has run out."""
        state = self._core.state
        collection = collection_of(state, capability.id)
        kind = "read" if isinstance(capability, ReadCapability) else "write"
        holders = collection.readers if kind == "read" else collection.writers
        holder = holders.get(capability.token)
        what = f"{kind} capability on u{capability.id}"
        if holder is None:
            raise InvalidCapability(what, "it was dropped, or never existed")
        now_ms = max(state.clock_ms, self._core.clock.now_ms())
        if holder.lease_ms and holder.expires_ms <= now_ms:
            raise InvalidCapability(what, f"its lease of {holder.lease_ms} ms has expired")

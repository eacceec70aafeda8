"""The durable map from GlobalId to collection, and the commands of the formalism over it.

Life of an id: handed out (``new_id``), bound with ``since == upper`` (``create``), then its
frontiers move, then its upper becomes empty (unwriteable) and its since (unreadable; its data is
then dropped). An id is never bound twice, and what is bound to it never changes meaning.

The frontiers follow the capabilities, and nothing else moves them:

    since = the meet of all read capabilities       upper = the meet of all write capabilities

What a write capability ahead of the others wrote is durable, and invisible until upper passes it.

Every command is durable when it returns. Each has a *validate* form: the same method of
:attr:`Collections.validation` decides it on the newest state and has no effect; it raises what the
command would raise. **A validated command commits**: what it depends on is held by the capability
that it presents, and only its holders can move that. Two things can still come between: a lease
runs out, a fence falls. Several commands that commit as one are a :class:`Transaction`.

Relied on by: ``storage``, ``compute``, ``materialize``, ``adapter``: they know collections only
through this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from headwater.base.ids import BatchId, GlobalId
from headwater.collection.capability import (
    ReadCapability,
    WriteCapability,
)
from headwater.collection.commands import Commands, Description, Validation, narrowed
from headwater.collection.subscription import Subscription
from headwater.persist import client
from headwater.persist.batch import Part, Times
from headwater.persist.client import Client, Rows, frontier, pending_parts
from headwater.persist.commands import (
    Atomic,
    Command,
    Outcome,
    UpdateAndDowngrade,
)
from headwater.persist.core import Core
from headwater.persist.part import Pending
from headwater.persist.stats import Predicate


@dataclass(frozen=True, slots=True)
class Bound:
    """A living collection: readable from ``since`` on, known before ``upper``."""

    since: Times
    upper: Times

    @property
    def writeable(self) -> bool:
        """Whether times are left that may be written."""
        return not self.upper.is_closed

    @property
    def readable(self) -> bool:
        """Whether times are left that may be read."""
        return not self.since.is_closed


@dataclass(frozen=True, slots=True)
class Unassigned:
    """The id was never handed out."""


@dataclass(frozen=True, slots=True)
class Unbound:
    """The id was handed out and is not bound yet."""


@dataclass(frozen=True, slots=True)
class Gone:
    """The collection of the id was destroyed."""


Status = Unassigned | Unbound | Bound | Gone


class Collections(Commands):
    """Commands over the collections of one location."""

    def __init__(self, client: Client) -> None:
        self._client = client.clone()
        super().__init__(client.core)
        self.validation = Validation(client.core)
        """The validate form of every command."""

    def execute(self, command: Command) -> Outcome:
        """Commit a command."""
        return self._core.submit(command).result()

    def _execute_parts(
        self, pending: Sequence[Pending], command: Callable[[tuple[Part, ...]], Command]
    ) -> Outcome:
        return self._core.submit_parts(pending, command).result()

    def status(self, gid: GlobalId) -> Status:
        """Return where an id is in its life."""
        state = self._core.look()
        collection = state.collections.get(gid)
        if collection is not None:
            return Bound(collection.since, state.upper(collection))
        if gid in state.reserved:
            return Unbound()
        return Gone() if 0 < gid < state.next_id else Unassigned()

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
        narrowing = narrowed(where, columns)
        as_of = self._readable(read, narrowing)
        return Subscription(self._core, read.id, as_of, snapshot=snapshot, narrowing=narrowing)

    def transaction(self) -> Transaction:
        """Collect commands that commit as one."""
        return Transaction(self._core, self, self.validation)


class Transaction:
    """Commands that take effect together or not at all. Nothing is written before ``commit``."""

    def __init__(self, core: Core, commands: Commands, validation: Validation) -> None:
        self._core = core
        self._commands = commands
        self._validation = validation
        self._pending: list[Pending] = []
        self._build: list[tuple[int, Callable[[tuple[Part, ...]], Command]]] = []

    def update_and_downgrade(
        self,
        write: WriteCapability,
        updates: pa.Table | Rows,
        new_frontier: int | Times | None,
        *,
        errors: pa.Table | None = None,
        token: BatchId | None = None,
    ) -> Self:
        """Add an update; see :meth:`Commands.update_and_downgrade`."""
        name, to = token or client.new_token(), frontier(new_frontier)
        pending = pending_parts(self._core, write.id, updates, errors)
        self._pending.extend(pending)
        self._build.append(
            (
                len(pending),
                lambda parts: UpdateAndDowngrade(write.id, write.holder, name, parts, to),
            )
        )
        return self

    def add(self, command: Command) -> Self:
        """Add any command."""
        self._build.append((0, lambda _: command))
        return self

    def validate(self) -> None:
        """Refuse what :meth:`commit` would refuse, without effect."""
        self._validation._execute_parts(self._pending, self._command)

    def commit(self) -> Outcome:
        """Commit all of it, in the order given."""
        return self._commands._execute_parts(self._pending, self._command)

    def _command(self, parts: tuple[Part, ...]) -> Command:
        commands, at = [], 0
        for count, build in self._build:
            commands.append(build(parts[at : at + count]))
            at += count
        return Atomic(tuple(commands))


__all__ = [
    "Bound",
    "Collections",
    "Description",
    "Gone",
    "Status",
    "Transaction",
    "Unassigned",
    "Unbound",
]

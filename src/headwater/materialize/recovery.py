"""The recovery log: what the runtime itself remembers of a shard, in one entry of our commit log.

    position, intent, driver's state, greatest keys, applied spec     one item, replaced as a whole
    holds on the inputs                                               moved in the same entry

A shard is the role ``materialize/<name>/<range>``. Whoever opens it bumps the role's epoch, and
every commit asserts its own in the same entry: a session that was replaced cannot commit any more,
whether or not its endpoint has fences.

Invariant:      every input is held at or before the oldest checkpoint that endpoint, driver or this
                log may return. A driver may be one transaction behind this log, because its commit
                may still be under way when it says StartedCommit; so a commit moves the holds only
                to the position that was acknowledged before.
Kept by:        :meth:`ShardLog.commit`, the only writer of the item.
Relied on by:   resuming: what lies after the checkpoint can be read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from headwater.algebra.frontier import Frontier
from headwater.base.decoding import from_json
from headwater.base.ids import Epoch, RoleName
from headwater.collection.capability import ReadCapability
from headwater.materialize.checkpoint import Position
from headwater.materialize.intent import Intent
from headwater.materialize.key_range import KeyRange
from headwater.persist.commands import (
    Acquired,
    AcquireRole,
    AssertRole,
    Atomic,
    Command,
    DowngradeReader,
    SetItem,
)
from headwater.persist.core import Core, this_process
from headwater.persist.decision import collection_of

PREFIX: Final = "materialization-shard/"
"""Before name and key range, the key under which the log has a shard's entry."""


class RecoveryEntry(msgspec.Struct, frozen=True):
    """All that is remembered of a shard; committed as a whole."""

    position: Position | None = None
    state_json: bytes = b""
    """The driver's state, with all its patches applied."""
    max_keys: tuple[tuple[str, bytes], ...] = ()
    """By state key of a binding, the greatest packed key that was ever stored."""
    applied: bytes = b""
    """The last applied MaterializationSpec, as protobuf."""
    version: str = ""
    """Its version."""
    intent: Intent | None = None
    """What was begun since, where that must be repeated as it was."""


class RecoveryLog(Protocol):
    """Where the entry of a shard is kept."""

    @property
    def entry(self) -> RecoveryEntry:
        """What was committed last."""
        ...

    def commit(self, entry: RecoveryEntry, acknowledged: Position | None) -> None:
        """Make an entry durable; the driver has confirmed what is before ``acknowledged``."""
        ...


def item_key(name: str, key_range: KeyRange) -> str:
    """Return the key of a shard's item."""
    return f"{PREFIX}{name}/{key_range}"


def entry_of(core: Core, name: str, key_range: KeyRange) -> RecoveryEntry:
    """Return what the log has of a shard."""
    found = core.state.items.get(item_key(name, key_range))
    return RecoveryEntry() if found is None else from_json(found, RecoveryEntry)


def take_role(core: Core, name: str, key_range: KeyRange) -> tuple[RoleName, Epoch]:
    """Take the role of a shard; whoever had it cannot commit any more."""
    role = RoleName(f"materialize/{name}/{key_range}")
    acquired = core.submit(AcquireRole(role, this_process(), take_over=True)).result()
    assert isinstance(acquired, Acquired)
    return role, acquired.epoch


def shard_items(core: Core, name: str) -> list[str]:
    """Return the keys of all items of a materialization's shards."""
    return [key for key in core.state.items if key.startswith(f"{PREFIX}{name}/")]


Oldest = Callable[[int], int | None]
"""Given what a shard has acknowledged, how far holds may move; ``None``: not by this shard."""


class ShardLog:
    """The recovery log of one shard, in the epoch of one session."""

    def __init__(
        self,
        core: Core,
        name: str,
        key_range: KeyRange,
        reads: Sequence[ReadCapability],
        oldest: Oldest = lambda acknowledged: acknowledged,
    ) -> None:
        self._core = core
        self._key = item_key(name, key_range)
        self._reads = tuple(reads)
        self._oldest = oldest
        self._role, self._epoch = take_role(core, name, key_range)
        # Whoever was before us cannot commit any more, so what is there now stays there.
        self.entry = entry_of(core, name, key_range)

    def commit(self, entry: RecoveryEntry, acknowledged: Position | None) -> None:
        """Make an entry durable, in our epoch or not at all; let history go that none needs."""
        commands: list[Command] = [
            AssertRole(self._role, self._epoch),
            SetItem(self._key, msgspec.json.encode(entry)),
        ]
        oldest = None if acknowledged is None else self._oldest(acknowledged.time)
        if oldest is not None:
            commands += self._released(oldest - 1)
        self._core.submit(Atomic(tuple(commands))).result()
        self.entry = entry

    def _released(self, time: int) -> list[Command]:
        """Return what moves every hold to a time that it is still before."""
        moves: list[Command] = []
        for read in self._reads:
            held = collection_of(self._core.state, read.id).readers[read.holder].since
            if not held.is_closed and held.only() < time:
                moves.append(DowngradeReader(read.id, read.holder, Frontier.of(time)))
        return moves

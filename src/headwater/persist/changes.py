"""The vocabulary of the log: what an entry may say.

A change is a *fact*: it was decided (``persist/decide.py``) against the state just before it, so
applying it (``persist/state.py``) cannot fail. An entry carries the changes of a whole group of
requests, the role and epoch that wrote it, and the log's clock; it commits as one.

The tags and the field order are the durable format: fields are only ever added at the end, with a
default. ``tests/formats`` holds bytes of every version.
"""

from __future__ import annotations

import msgspec

from headwater.base.ids import BatchId, Epoch, GlobalId, RoleName, SeqNo
from headwater.persist.batch import Part, Times, Unsealed


class Codec(msgspec.Struct, frozen=True, array_like=True):
    """Who wrote the rows: name and version of a codec (``persist/codec.py``)."""

    name: str
    version: int

    def __str__(self) -> str:
        return f"{self.name} v{self.version}"


class Reader(msgspec.Struct, frozen=True, array_like=True):
    """A hold on the read frontier: ``since`` of the collection does not pass ``since`` of it.

    ``lease_ms`` 0 means: for ever. A leased reader is invalid once the log's clock has passed
    ``expires_ms``.
    """

    since: Times
    purpose: str
    lease_ms: int = 0
    expires_ms: int = 0


class Writer(msgspec.Struct, frozen=True, array_like=True):
    """A right to write: ``upper`` of the collection does not pass ``frontier``."""

    frontier: Times
    purpose: str
    lease_ms: int = 0
    expires_ms: int = 0
    last_update: BatchId | None = None
    """Token of the newest update through it: its retry is recognised while the capability lives,
    whether it had rows or not. Since format 2."""


class Role(msgspec.Struct, frozen=True, array_like=True):
    """Who may write under a role, and how often it changed hands."""

    epoch: Epoch
    held: bool
    holder: str
    reentrance_id: str = ""
    last_entry: str = ""
    """Nonce of the newest entry written under this role: resolves a lost reply exactly."""
    closed_step: int = 0
    """Every step of this epoch below this number is committed or abandoned: its unreferenced
    parts are garbage."""


class CollectionCreated(msgspec.Struct, frozen=True, tag="create", array_like=True):
    """A collection came into being, with ``since == upper == start``."""

    id: GlobalId
    name: str
    schema: bytes
    key: tuple[str, ...]
    layout: str
    codec: Codec
    start: Times
    timeline: str | None
    owner: bool
    """Whether it has the hold ``owner`` that ``allow_compaction`` moves."""
    volatile: bool = False
    """Whether what it holds stays in the process that writes it (``persist/volatile.py``). Since
    format 3."""


class IdReserved(msgspec.Struct, frozen=True, tag="id", array_like=True):
    """An id was handed out; it is not bound to a collection yet."""

    id: GlobalId


class CollectionDestroyed(msgspec.Struct, frozen=True, tag="destroy", array_like=True):
    """The collection is gone, its name and id are never used again."""

    id: GlobalId


class SchemaAdded(msgspec.Struct, frozen=True, tag="schema", array_like=True):
    """A newer schema; older parts are read through it."""

    id: GlobalId
    schema: bytes
    codec: Codec


class Written(msgspec.Struct, frozen=True, tag="write", array_like=True):
    """Durable updates at unsealed times."""

    id: GlobalId
    unsealed: Unsealed


class Sealed(msgspec.Struct, frozen=True, tag="seal", array_like=True):
    """The upper moved; unsealed updates before it became a batch."""

    id: GlobalId
    upper: Times


class Appended(msgspec.Struct, frozen=True, tag="append", array_like=True):
    """Updates of ``[upper, new upper)`` and the new upper, in one."""

    id: GlobalId
    token: BatchId
    upper: Times
    parts: tuple[Part, ...]


class SinceMoved(msgspec.Struct, frozen=True, tag="since", array_like=True):
    """The read frontier moved: history before it may be compacted."""

    id: GlobalId
    since: Times


class ReaderSet(msgspec.Struct, frozen=True, tag="reader", array_like=True):
    """A read capability was made, moved, renewed, or (``None``) is gone."""

    id: GlobalId
    reader_id: str
    reader: Reader | None


class WriterSet(msgspec.Struct, frozen=True, tag="writer", array_like=True):
    """A write capability was made, moved, renewed, or (``None``) is gone."""

    id: GlobalId
    writer_id: str
    writer: Writer | None


class Merged(msgspec.Struct, frozen=True, tag="merge", array_like=True):
    """Adjacent batches were replaced by one that denotes the same from ``since`` on."""

    id: GlobalId
    inputs: tuple[int, ...]
    since: Times
    parts: tuple[Part, ...]


class TimelineAdvanced(msgspec.Struct, frozen=True, tag="advance", array_like=True):
    """The upper of every collection on the timeline with nothing pending is now ``upper``."""

    timeline: str
    upper: int


class RoleSet(msgspec.Struct, frozen=True, tag="role", array_like=True):
    """A role changed hands, or was released."""

    role: RoleName
    value: Role


class ItemSet(msgspec.Struct, frozen=True, tag="item", array_like=True):
    """A small durable value of the layers above (catalog, checkpoints); ``None`` removes it."""

    key: str
    value: bytes | None


class RolledUp(msgspec.Struct, frozen=True, tag="rollup", array_like=True):
    """The state at ``seqno`` is in blob under ``key``; entries up to it may be truncated."""

    seqno: SeqNo
    key: str


class Collected(msgspec.Struct, frozen=True, tag="gc", array_like=True):
    """These unreferenced objects were deleted."""

    keys: tuple[str, ...]


Change = (
    IdReserved
    | CollectionCreated
    | CollectionDestroyed
    | SchemaAdded
    | Written
    | Sealed
    | Appended
    | SinceMoved
    | ReaderSet
    | WriterSet
    | Merged
    | TimelineAdvanced
    | RoleSet
    | ItemSet
    | RolledUp
    | Collected
)


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One entry of the log."""

    seqno: SeqNo
    nonce: str
    """Names this entry for ever: after a lost reply the log tells whether it was ours."""
    role: RoleName
    epoch: Epoch
    clock_ms: int
    """The log's clock: the writer's clock, but never going back."""
    rollup: SeqNo
    """Where the newest rollup was when this was written; -1 for none."""
    closed_step: int
    changes: tuple[Change, ...]

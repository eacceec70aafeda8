"""What can be asked of a location, and what can come of it.

Commands and outcomes are closed unions of frozen values. A command is decided purely
(``persist/decide.py``); a mistake raises a subclass of ``InvalidUsage``, a lost race is an outcome.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headwater.base.ids import BatchId, Epoch, GlobalId, RoleName, SeqNo
from headwater.persist.batch import Part, Times
from headwater.persist.changes import Codec

ARROW_CODEC: Final = Codec("arrow", 1)
"""Rows that are Arrow tables already."""


@dataclass(frozen=True, slots=True)
class ReserveId:
    """Hand out a new id, bound later by :class:`CreateOrLoad`."""


@dataclass(frozen=True, slots=True)
class CreateOrLoad:
    """Bind a name to a new collection, or find the one it is bound to."""

    name: str
    schema: bytes
    key: tuple[str, ...] = ()
    layout: str = "parquet"
    codec: Codec = ARROW_CODEC
    timeline: str | None = None
    start: int = 0
    owner: bool = True
    id: GlobalId | None = None
    """A reserved id; then the collection must be new."""
    volatile: bool = False
    """Not durable: see ``persist/volatile.py``."""


@dataclass(frozen=True, slots=True)
class Destroy:
    """Destroy a collection; its name is never used again. Idempotent."""

    name: str


@dataclass(frozen=True, slots=True)
class Write:
    """Make updates durable at times not before the upper; independent of sealing."""

    id: GlobalId
    token: BatchId
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Seal:
    """Move the uppers of some collections; each may be at ``upper`` already."""

    ids: tuple[GlobalId, ...]
    upper: Times


@dataclass(frozen=True, slots=True)
class CompareAndAppend:
    """Append the updates of ``[lower, upper)`` iff the collection's upper is ``lower``."""

    id: GlobalId
    token: BatchId
    lower: Times
    upper: Times
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class AllowCompaction:
    """Move the owner's hold: history before ``since`` is not needed by the owner."""

    since: tuple[tuple[GlobalId, Times], ...]


@dataclass(frozen=True, slots=True)
class Advance:
    """Move a timeline; the first advance creates it.

    ``upper`` None leaves it where it is: who was apart, and has no reason to be any more, follows
    it again.
    """

    timeline: str
    upper: int | None


@dataclass(frozen=True, slots=True)
class OpenReader:
    """Make a read capability at ``since`` (default: the collection's since)."""

    id: GlobalId
    reader_id: str
    purpose: str
    since: Times | None = None
    lease_ms: int = 0


@dataclass(frozen=True, slots=True)
class DowngradeReader:
    """Move a read capability forwards."""

    id: GlobalId
    reader_id: str
    since: Times


@dataclass(frozen=True, slots=True)
class DropReader:
    """Give a read capability up."""

    id: GlobalId
    reader_id: str


@dataclass(frozen=True, slots=True)
class RenewReader:
    """Prolong the lease of a read capability."""

    id: GlobalId
    reader_id: str


@dataclass(frozen=True, slots=True)
class OpenWriter:
    """Make a write capability at ``frontier`` (default: the collection's upper)."""

    id: GlobalId
    writer_id: str
    purpose: str
    frontier: Times | None = None
    lease_ms: int = 0


@dataclass(frozen=True, slots=True)
class RenewWriter:
    """Prolong the lease of a write capability."""

    id: GlobalId
    writer_id: str


@dataclass(frozen=True, slots=True)
class UpdateAndDowngrade:
    """Write updates at times in ``[frontier, new_frontier)`` and move the capability there."""

    id: GlobalId
    writer_id: str
    token: BatchId
    parts: tuple[Part, ...]
    new_frontier: Times


@dataclass(frozen=True, slots=True)
class DowngradeWriter:
    """Move a write capability forwards, with no updates."""

    id: GlobalId
    writer_id: str
    frontier: Times


@dataclass(frozen=True, slots=True)
class DropWriter:
    """Give a write capability up; the last one closes the collection."""

    id: GlobalId
    writer_id: str


@dataclass(frozen=True, slots=True)
class RetireWriter:
    """Give up the only write capability and close nothing: from now on it is appended to."""

    id: GlobalId
    writer_id: str


@dataclass(frozen=True, slots=True)
class ApplyMerge:
    """Replace adjacent batches by their merge."""

    id: GlobalId
    inputs: tuple[int, ...]
    since: Times
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class AddRollup:
    """Record a rollup of the state at ``seqno``."""

    seqno: SeqNo
    key: str


@dataclass(frozen=True, slots=True)
class ForgetGarbage:
    """Record that these unreferenced objects were deleted."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AcquireRole:
    """Take a role: free, or with its reentrance id, or by force."""

    role: RoleName
    holder: str
    reentrance_id: str = ""
    take_over: bool = False


@dataclass(frozen=True, slots=True)
class ReleaseRole:
    """Give a role up, if it is still ours."""

    role: RoleName
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class AssertRole:
    """Commit what stands beside this only while the role is in this epoch."""

    role: RoleName
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class SetItem:
    """Set (or with ``None`` remove) a small durable value of a layer above."""

    key: str
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Atomic:
    """All of these, in this order, or none."""

    commands: tuple[Command, ...]


Command = (
    ReserveId
    | CreateOrLoad
    | Destroy
    | Write
    | Seal
    | CompareAndAppend
    | AllowCompaction
    | Advance
    | OpenReader
    | DowngradeReader
    | DropReader
    | RenewReader
    | OpenWriter
    | RenewWriter
    | UpdateAndDowngrade
    | DowngradeWriter
    | DropWriter
    | RetireWriter
    | ApplyMerge
    | AddRollup
    | ForgetGarbage
    | AcquireRole
    | ReleaseRole
    | AssertRole
    | SetItem
    | Atomic
)


@dataclass(frozen=True, slots=True)
class Done:
    """It is so now (and perhaps was so already)."""


@dataclass(frozen=True, slots=True)
class Reserved:
    """The id handed out."""

    id: GlobalId


@dataclass(frozen=True, slots=True)
class Created:
    """A new collection."""

    id: GlobalId


@dataclass(frozen=True, slots=True)
class Loaded:
    """A collection that existed already."""

    id: GlobalId


@dataclass(frozen=True, slots=True)
class Destroyed:
    """Whether there was anything to destroy."""

    existed: bool


@dataclass(frozen=True, slots=True)
class AlreadyDone:
    """An earlier attempt with this token committed: its reply was lost, not its effect."""


@dataclass(frozen=True, slots=True)
class UpperMismatch:
    """Another writer moved the collection. Not an error: the caller decides what to do."""

    id: GlobalId
    expected: Times
    current: Times


@dataclass(frozen=True, slots=True)
class MergeNotApplied:
    """The batches are not there any more; the merge is dropped."""


@dataclass(frozen=True, slots=True)
class Held:
    """A capability: its frontier as the system has it."""

    frontier: Times


@dataclass(frozen=True, slots=True)
class Acquired:
    """The role is ours, in this epoch."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class All:
    """Outcomes of an :class:`Atomic`, in order; all of them took effect."""

    outcomes: tuple[Outcome, ...]


Outcome = (
    Done
    | Reserved
    | Created
    | Loaded
    | Destroyed
    | AlreadyDone
    | UpperMismatch
    | MergeNotApplied
    | Held
    | Acquired
    | All
)

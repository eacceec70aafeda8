"""Every mistake and every fault of persist, one class each, with the offending values.

``InvalidUsage`` subclasses are pure functions of the request and the state: nothing was changed.
The others tell about the world: a fence, a stop, a corrupted object.
"""

from __future__ import annotations

from headwater.algebra.frontier import Frontier
from headwater.base.errors import Determinate, HeadwaterError, InvalidUsage
from headwater.base.ids import GlobalId

Times = Frontier[int]


class UnknownCollection(InvalidUsage):
    """No collection has this name or id."""

    def __init__(self, what: str) -> None:
        super().__init__(f"there is no collection {what}; create it with create_or_load")
        self.what = what


class DestroyedCollection(InvalidUsage):
    """The name belonged to a collection that was destroyed; names are never reused."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"collection {name!r} was destroyed, and names are never reused; choose another name"
        )
        self.name = name


class WriteBeforeUpper(InvalidUsage):
    """An update at a time that is sealed already."""

    def __init__(self, name: str, time: int, upper: Times) -> None:
        super().__init__(
            f"update for collection {name!r} at time {time} is before its sealed frontier {upper}; "
            f"write at a time that is not sealed"
        )
        self.time, self.upper = time, upper


class UpdateBeyondUpper(InvalidUsage):
    """An appended update at or beyond the batch's own upper."""

    def __init__(self, name: str, time: int, upper: Times) -> None:
        super().__init__(
            f"update for collection {name!r} at time {time} is not before the batch's upper "
            f"{upper}; raise that upper, or leave the update for a later batch"
        )
        self.time, self.upper = time, upper


class StalePart(InvalidUsage):
    """A part whose step is over: it was never committed, and its object may be swept any time."""

    def __init__(self, name: str, key: str) -> None:
        super().__init__(
            f"object {key} cannot be committed to collection {name!r}: its epoch is stale or its "
            f"step is closed; write the part again under an open step"
        )
        self.key = key


class TimeOutOfBounds(InvalidUsage):
    """A time that is negative, or not representable."""

    def __init__(self, what: str, time: object) -> None:
        super().__init__(
            f"{what}: time {time} is outside [0, 2^63 - 2]; times are milliseconds since the Unix "
            f"epoch"
        )
        self.time = time


class InvalidBounds(InvalidUsage):
    """An interval whose upper is not after its lower."""

    def __init__(self, name: str, lower: Times, upper: Times) -> None:
        super().__init__(
            f"collection {name!r}: the interval [{lower}, {upper}) is empty or inverted; give an "
            f"upper that is after its lower"
        )
        self.lower, self.upper = lower, upper


class SealRegression(InvalidUsage):
    """A seal to a time before the sealed frontier."""

    def __init__(self, name: str, upper: Times, current: Times) -> None:
        super().__init__(
            f"cannot seal collection {name!r} at {upper}: it is at {current} already, and "
            f"frontiers never move back; seal it there or later"
        )


class CompactionRegression(InvalidUsage):
    """Compaction, or a capability, moved to an earlier time."""

    def __init__(self, name: str, since: Times, current: Times) -> None:
        super().__init__(
            f"cannot move the read frontier of collection {name!r} to {since}: it is at {current} "
            f"already, and frontiers never move back; move it there or later"
        )


class AsOfBeforeSince(InvalidUsage):
    """A read at a time whose history has been compacted."""

    def __init__(self, name: str, as_of: int, since: Times) -> None:
        readable = (
            "it is no longer readable" if since.is_closed else f"read at {since.only()} or later"
        )
        super().__init__(
            f"collection {name!r} is not readable at time {as_of}: its history before {since} has "
            f"been compacted; {readable}"
        )
        self.as_of, self.since = as_of, since


class ClosedCollection(InvalidUsage):
    """A write to a collection whose upper is the empty frontier, or a read that can never come."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"collection {name!r} is closed: its upper is the empty frontier, for ever; create "
            f"another collection to go on"
        )


class SchemaMismatch(InvalidUsage):
    """Updates, or a request, whose schema is not the collection's."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"schema of collection {name!r} does not match: {problem}")
        self.problem = problem


class IncompatibleSchema(InvalidUsage):
    """A schema change other than adding nullable columns at the end."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(
            f"schema of collection {name!r} cannot change so: {problem}; only nullable columns may "
            f"be added, at the end, and a column may become nullable"
        )


class CodecMismatch(InvalidUsage):
    """The collection was written by a codec of another name, or by a newer version of it."""

    def __init__(self, name: str, stored: str, given: str) -> None:
        super().__init__(
            f"collection {name!r} was written with codec {stored}, not {given}; open it with that "
            f"codec, in that version or a newer one"
        )


class LayoutMismatch(InvalidUsage):
    """The collection exists with another layout or key, or its layout is not known here."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"collection {name!r}: {problem}")


class TimelineMismatch(InvalidUsage):
    """The collection exists and follows another timeline, or none."""

    def __init__(self, name: str, stored: str | None, given: str) -> None:
        follows = "no timeline" if stored is None else f"timeline {stored!r}"
        super().__init__(
            f"collection {name!r} follows {follows}, not {given!r}, and never changes it; load it "
            f"without naming a timeline"
        )


class NotVolatile(InvalidUsage):
    """The collection exists and is durable, or is not; that never changes."""

    def __init__(self, name: str, *, wanted: bool) -> None:
        kind, other = ("durable", "volatile") if wanted else ("volatile", "durable")
        super().__init__(f"collection {name!r} is {kind}; take another name for a {other} one")


class DuplicateCollection(InvalidUsage):
    """One request names the same collection twice where that has no meaning."""

    def __init__(self, ids: list[GlobalId]) -> None:
        super().__init__(f"a collection is named twice in one request: ids {ids}; name it once")


class IdNotReserved(InvalidUsage):
    """An id that cannot be bound to a new collection."""

    def __init__(self, gid: GlobalId, name: str, why: str) -> None:
        super().__init__(
            f"id {gid} cannot be bound to collection {name!r}: {why}; ids are bound once, so "
            f"reserve a new one"
        )


class HeldByWriter(InvalidUsage):
    """A seal past the frontier of somebody's write capability."""

    def __init__(self, name: str, upper: Times, purpose: str, frontier: Times) -> None:
        super().__init__(
            f"cannot seal collection {name!r} at {upper}: a write capability ({purpose}) holds it "
            f"at {frontier}; downgrade or drop that one first"
        )


class NotTheOnlyWriter(InvalidUsage):
    """A write capability that should take a collection over, where somebody has another one."""

    def __init__(self, name: str, purpose: str, frontier: Times) -> None:
        super().__init__(
            f"collection {name!r} has another write capability ({purpose}) at {frontier}; drop "
            f"that one first"
        )


class NoOwner(InvalidUsage):
    """Compaction allowed by an owner where there is none."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"collection {name!r} has no owner that could allow compaction: its read capabilities "
            f"hold it; downgrade those"
        )


class UnknownTimeline(InvalidUsage):
    """No timeline has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no timeline {name!r}; advance it once to create it")


class TimelineRegression(InvalidUsage):
    """An advance to an earlier time."""

    def __init__(self, name: str, time: int, current: int) -> None:
        super().__init__(
            f"timeline {name!r} is at {current} already and never goes back to {time}; advance it "
            f"to {current} or later"
        )


class InvalidCapability(InvalidUsage):
    """The capability was dropped, has expired, or never existed."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what} is not valid: {why}; acquire a new one with acquire_capabilities")
        self.why = why


class AlreadyLocked(HeadwaterError):
    """Another process holds the role, and neither its reentrance id nor a take-over was given."""

    def __init__(self, role: str, holder: str, epoch: int) -> None:
        super().__init__(
            f"role {role!r} is held by {holder} (epoch {epoch}); stop that process, or open with "
            f"its reentrance id, or with take_over=True once you are sure that it is gone"
        )
        self.role, self.holder = role, holder


class Fenced(HeadwaterError):
    """Another process has taken the role over: this one must stop."""

    def __init__(self, role: str, mine: int, current: int, holder: str) -> None:
        super().__init__(
            f"role {role!r} was taken over by {holder}: epoch {current} fences our epoch {mine}; "
            f"stop this process"
        )
        self.role = role


class Stopped(HeadwaterError):
    """The runtime was stopped; no new work is taken."""

    def __init__(self, why: str = "the runtime was stopped") -> None:
        super().__init__(f"{why}; open the location again to go on")


class ReadOnly(InvalidUsage):
    """A change asked of a runtime that was opened read-only."""

    def __init__(self) -> None:
        super().__init__("this location is open read-only; open it with read_only=False to write")


class Corrupt(HeadwaterError):
    """Bytes that do not match their checksum, or cannot be what they claim to be."""

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(f"{what} is corrupted: {problem}; restore it from a backup")
        self.what, self.problem = what, problem


class NewerFormat(HeadwaterError):
    """Bytes written by a newer version of Headwater."""

    def __init__(self, what: str, found: int, known: int) -> None:
        super().__init__(
            f"{what} has format version {found}, and this Headwater reads up to {known}; "
            f"nothing was touched: upgrade Headwater to open it"
        )


class DiskFull(Determinate):
    """There is no room where something is written; nothing of it is there."""

    def __init__(self, place: str, path: str, *, quota: bool = False) -> None:
        said = "the disk is full; free space there or move the location to a larger disk"
        if quota:
            said = "the disk quota is used up; raise the quota or free space there"
        super().__init__(f"{path}: {said}")
        self.place = place
        """What is written there, in words for those who have no business with paths."""


class MergeRefused(HeadwaterError):
    """A merge did not preserve the sum of diffs; nothing was committed."""

    def __init__(self, name: str, before: int, after: int) -> None:
        super().__init__(
            f"merge of collection {name!r} was refused: diffs summed to {before} before and "
            f"{after} after"
        )


class PartCollected(HeadwaterError):
    """A part was garbage-collected under an independent reader, again and again."""

    def __init__(self, name: str, key: str) -> None:
        super().__init__(
            f"object {key} of collection {name!r} was collected while it was read; read again at a "
            f"later time, or hold a read capability"
        )


class KeptElsewhere(HeadwaterError):
    """What a volatile collection holds is known to another process."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"collection {name!r} is not durable: only the process that keeps its view can read "
            f"it; read it there, or make the view anew with a durable output"
        )


class CollectionHasErrors(HeadwaterError):
    """A read at a time at which the collection's error side is not empty."""

    def __init__(self, name: str, as_of: int, errors: tuple[str, ...]) -> None:
        super().__init__(
            f"collection {name!r} has {len(errors)} error(s) at time {as_of}: "
            f"{'; '.join(errors[:3])}"
        )
        self.name, self.errors = name, errors

"""What a location holds, as a value that can be printed or sent.

    inspect(core) -> Report        looks at blob, log and state, changes nothing
    report(state, ...) -> Report   pure

Frontiers are tuples of their times; the empty one is closed. Capabilities are secrets, whoever has
the id has the right: of an id only its first characters are shown.

Objects in blob are each in exactly one group:

    referenced    a part of a collection is in it
    rollups       a whole state, kept for whoever loads
    garbage       let go by the log, not yet deleted
    leaked        written and never committed, and nobody can any more; the next sweep deletes it
    unfinished    written and not committed, but its writer may still be about to
    foreign       not a name that we give

Relied on by: ``headwater inspect``, the console.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from headwater.base.ids import SeqNo
from headwater.base.retry import RetryState
from headwater.persist import evolution
from headwater.persist.batch import Batch, Segment, Times
from headwater.persist.changes import Reader, Role, Writer
from headwater.persist.core import Core
from headwater.persist.location import Blob, Consensus, LogEntry, ObjectInfo
from headwater.persist.maintenance import leaked
from headwater.persist.part import PartName
from headwater.persist.state import CollectionState, State, Timeline
from headwater.persist.trace import inline_bytes

ID_SHOWN: Final = 6
SCAN_LIMIT: Final = 1024

Bounds = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RoleReport:
    """Who may write under a role."""

    name: str
    epoch: int
    held: bool
    holder: str
    closed_step: int


@dataclass(frozen=True, slots=True)
class TimelineReport:
    """How far a timeline is, and how many collections do not simply follow it."""

    name: str
    upper: int
    apart: int


@dataclass(frozen=True, slots=True)
class BatchReport:
    """The updates of a collection at times in ``[lower, upper)``."""

    no: int
    lower: Bounds
    upper: Bounds
    since: Bounds
    parts: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class HoldReport:
    """A capability to read or to write."""

    id: str
    purpose: str
    frontier: Bounds
    lease_ms: int
    expired: bool


@dataclass(frozen=True, slots=True)
class CollectionReport:
    """One collection."""

    id: int
    name: str
    schema: tuple[str, ...]
    schema_versions: int
    layout: str
    key: tuple[str, ...]
    codec: str
    timeline: str | None
    since: Bounds
    upper: Bounds
    batches: tuple[BatchReport, ...]
    unsealed_writes: int
    unsealed_rows: int
    readers: tuple[HoldReport, ...]
    writers: tuple[HoldReport, ...]
    rows: int
    bytes: int
    inline_bytes: int


@dataclass(frozen=True, slots=True)
class RollupReport:
    """A whole state in blob."""

    seqno: int
    key: str
    bytes: int | None
    """``None``: it is not there."""


@dataclass(frozen=True, slots=True)
class ObjectReport:
    """One object, where each matters by itself."""

    key: str
    bytes: int


@dataclass(frozen=True, slots=True)
class GroupReport:
    """How many objects, and how large together."""

    objects: int
    bytes: int


@dataclass(frozen=True, slots=True)
class SizesReport:
    """What takes how much room."""

    log: GroupReport
    referenced: GroupReport
    rollups: GroupReport
    garbage: GroupReport
    leaked: GroupReport
    unfinished: GroupReport
    foreign: GroupReport
    temporary: GroupReport


@dataclass(frozen=True, slots=True)
class RetryReport:
    """A storage that is failing just now, as seen by this process."""

    attempts: int
    cause: str
    next_try_ms: int


@dataclass(frozen=True, slots=True)
class Report:
    """A location."""

    seqno: int
    clock_ms: int
    roles: tuple[RoleReport, ...]
    timelines: tuple[TimelineReport, ...]
    collections: tuple[CollectionReport, ...]
    destroyed: tuple[str, ...]
    items: tuple[str, ...]
    rollups: tuple[RollupReport, ...]
    sizes: SizesReport
    garbage: tuple[ObjectReport, ...]
    leaked: tuple[ObjectReport, ...]
    unfinished: tuple[ObjectReport, ...]
    foreign: tuple[ObjectReport, ...]
    temporary: tuple[ObjectReport, ...]
    missing: tuple[str, ...]
    """Objects the log refers to that are not there: data is lost."""
    retry: RetryReport | None


@dataclass(frozen=True, slots=True)
class Groups:
    """The objects of a listing, by what they are to the state."""

    referenced: tuple[ObjectInfo, ...]
    rollups: tuple[ObjectInfo, ...]
    garbage: tuple[ObjectInfo, ...]
    leaked: tuple[ObjectInfo, ...]
    unfinished: tuple[ObjectInfo, ...]
    foreign: tuple[ObjectInfo, ...]


def inspect(core: Core) -> Report:
    """Look at a location through an open runtime."""
    # Listed first, state second: an object committed in between is then known to the state.
    objects = core.retrying(lambda: tuple(core.blob.list()))
    temporary = core.retrying(lambda: list_temporary(core.blob))
    state = core.refresh()
    log = core.retrying(lambda: log_size(core.consensus))
    return report(state, objects, temporary, log=log, retry=core.retry_state)


def report(
    state: State,
    objects: Sequence[ObjectInfo],
    temporary: Sequence[ObjectInfo] = (),
    *,
    log: GroupReport,
    retry: RetryState | None = None,
) -> Report:
    """Describe a state and the objects found beside it (pure)."""
    groups = group_objects(state, objects)
    known = {info.key: info.size for info in objects}
    rollups = tuple(
        RollupReport(rollup.seqno, rollup.key, known.get(rollup.key)) for rollup in state.rollups
    )
    missing = [key for key in state.references if key not in known]
    missing += [rollup.key for rollup in rollups if rollup.bytes is None]
    collections = sorted(state.collections.values(), key=lambda collection: collection.id)
    return Report(
        seqno=state.seqno,
        clock_ms=state.clock_ms,
        roles=tuple(_role(name, role) for name, role in sorted(state.roles.items())),
        timelines=tuple(_timeline(n, t) for n, t in sorted(state.timelines.items())),
        collections=tuple(_collection(state, collection) for collection in collections),
        destroyed=tuple(sorted(state.graveyard)),
        items=tuple(sorted(state.items)),
        rollups=rollups,
        sizes=SizesReport(
            log=log,
            referenced=_group(groups.referenced),
            rollups=_group(groups.rollups),
            garbage=_group(groups.garbage),
            leaked=_group(groups.leaked),
            unfinished=_group(groups.unfinished),
            foreign=_group(groups.foreign),
            temporary=_group(temporary),
        ),
        garbage=_objects(groups.garbage),
        leaked=_objects(groups.leaked),
        unfinished=_objects(groups.unfinished),
        foreign=_objects(groups.foreign),
        temporary=_objects(temporary),
        missing=tuple(sorted(missing)),
        retry=None
        if retry is None
        else RetryReport(retry.attempts, retry.cause, retry.next_try_ms),
    )


def group_objects(state: State, objects: Iterable[ObjectInfo]) -> Groups:
    """Sort a listing by what each object is to the state (pure)."""
    listed = list(objects)
    lost = set(leaked(state, [info.key for info in listed]))
    rollups = {rollup.key for rollup in state.rollups}
    found: dict[str, list[ObjectInfo]] = {name: [] for name in Groups.__slots__}
    for info in listed:
        if info.key in state.references:
            group = "referenced"
        elif info.key in rollups:
            group = "rollups"
        elif info.key in state.garbage:
            group = "garbage"
        elif info.key in lost:
            group = "leaked"
        elif PartName.parse(info.key) is not None or info.key.startswith("rollup/"):
            group = "unfinished"
        else:
            group = "foreign"
        found[group].append(info)
    return Groups(**{name: tuple(infos) for name, infos in found.items()})


def list_temporary(blob: Blob) -> tuple[ObjectInfo, ...]:
    """List files whose creation did not end, where the blob has such a thing."""
    listing = getattr(blob, "list_temporary", None)
    return () if listing is None else tuple(listing())


def log_size(consensus: Consensus) -> GroupReport:
    """Return how many entries the log holds, and their bytes."""
    entries = size = 0
    start = SeqNo(0)
    while True:
        page: tuple[LogEntry, ...] = consensus.scan(start, SCAN_LIMIT)
        entries += len(page)
        size += sum(len(entry.data) for entry in page)
        if len(page) < SCAN_LIMIT:
            return GroupReport(entries, size)
        start = SeqNo(page[-1].seqno + 1)


def _role(name: str, role: Role) -> RoleReport:
    return RoleReport(name, role.epoch, role.held, role.holder, role.closed_step)


def _timeline(name: str, timeline: Timeline) -> TimelineReport:
    return TimelineReport(name, timeline.upper, len(timeline.apart))


def _collection(state: State, collection: CollectionState) -> CollectionReport:
    schema = evolution.from_bytes(collection.schemas[-1])
    unsealed = [part for write in collection.unsealed for part in write.parts]
    parts = list(collection.parts())
    return CollectionReport(
        id=collection.id,
        name=collection.name,
        schema=tuple(_column(field) for field in schema),
        schema_versions=len(collection.schemas),
        layout=collection.layout,
        key=collection.key,
        codec=str(collection.codec),
        timeline=collection.timeline,
        since=_bounds(collection.since),
        upper=_bounds(state.upper(collection)),
        batches=tuple(_batch(batch) for batch in collection.batches),
        unsealed_writes=len(collection.unsealed),
        unsealed_rows=sum(part.rows for part in unsealed),
        readers=_holds(state, collection.readers),
        writers=_holds(state, collection.writers),
        rows=sum(part.rows for part in parts),
        bytes=sum(part.size_bytes for part in parts if isinstance(part.where, Segment)),
        inline_bytes=inline_bytes(collection),
    )


def _column(column: pa.Field) -> str:
    return f"{column.name}: {column.type}{'' if column.nullable else ' not null'}"


def _batch(batch: Batch) -> BatchReport:
    size = sum(part.size_bytes for part in batch.parts)
    lower, upper, since = _bounds(batch.lower), _bounds(batch.upper), _bounds(batch.since)
    return BatchReport(batch.no, lower, upper, since, len(batch.parts), batch.rows, size)


def _holds(state: State, holds: Mapping[str, Reader | Writer]) -> tuple[HoldReport, ...]:
    shown = []
    for hold_id, hold in sorted(holds.items()):
        frontier = hold.since if isinstance(hold, Reader) else hold.frontier
        expired = bool(hold.lease_ms) and hold.expires_ms <= state.clock_ms
        shown.append(
            HoldReport(hold_id[:ID_SHOWN], hold.purpose, _bounds(frontier), hold.lease_ms, expired)
        )
    return tuple(shown)


def _bounds(frontier: Times) -> Bounds:
    return tuple(frontier)


def _group(objects: Sequence[ObjectInfo]) -> GroupReport:
    return GroupReport(len(objects), sum(info.size for info in objects))


def _objects(objects: Sequence[ObjectInfo]) -> tuple[ObjectReport, ...]:
    return tuple(ObjectReport(info.key, info.size) for info in objects)

"""A copy of a location as it was at one entry of its log, while others write it.

    copied = copy(blob, consensus, to_blob, to_consensus)        # of state and log at ``seqno``

Backup and restore are the same thing: the copy is a location itself.

An object never changes, and means what the log says of it. So a copy is: the newest entry, the
rollup that it names and the entries after that; every object that the state at that entry refers
to; and, last, those entries in the copy's log, in one commit. Until then the copy is empty, and
one that was broken off is begun again where it was (objects that are there are not copied again).

The writer may delete an object that a later entry let go while it is being copied. Then the copy
is of a later entry: what is missing is no longer referred to there. That ends, because every turn
has to copy only what was written since the last one.

Pure of clocks and of Spark. Kept by: :func:`copy`. Relied on by: ``headwater backup``, ``restore``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from headwater.base.errors import InvalidUsage
from headwater.base.ids import SeqNo
from headwater.persist import log
from headwater.persist.batch import Segment
from headwater.persist.encoding import decode_entry, decode_state
from headwater.persist.errors import Corrupt
from headwater.persist.location import Blob, Consensus, LogEntry
from headwater.persist.state import State, apply

TURNS_MAX: Final = 20
SCAN_LIMIT: Final = 1024

_Tell = Callable[[str, int, int, int], None]


class NotEmpty(InvalidUsage):
    """A copy into a location that has something."""

    def __init__(self) -> None:
        super().__init__(
            "there is a location already, and a copy would mix with it; choose an empty directory "
            "(or log name), or delete it first"
        )


class Adopting(Protocol):
    """A log that can be begun with the end of another; every durable one can."""

    def head(self) -> SeqNo | None:
        """Return the newest sequence number."""
        ...

    def adopt(self, entries: tuple[LogEntry, ...]) -> bool:
        """Fill an empty log, in one commit; whether it was empty."""
        ...


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a copy is."""

    objects_done: int
    objects_total: int
    bytes_done: int
    rows_done: int = 0


@dataclass(frozen=True, slots=True)
class Copied:
    """What was copied."""

    seqno: SeqNo
    entries: int
    objects: int
    bytes: int


class _Gone(Exception):
    """The writer let go what was about to be copied."""


def copy(
    blob: Blob,
    consensus: Consensus,
    to_blob: Blob,
    to_consensus: Adopting,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> Copied:
    """Copy a location into an empty one."""
    if to_consensus.head() is not None:
        raise NotEmpty
    present = {info.key for info in to_blob.list()}
    missing = ""
    for _ in range(TURNS_MAX):
        try:
            entries, state = _read(blob, consensus)
            keys = sorted({*state.references, *(rollup.key for rollup in state.rollups)})
            size = _copy_objects(blob, to_blob, keys, present, _told(state, on_progress))
        except _Gone as gone:
            if missing == str(gone):
                raise Corrupt("the location", missing) from None
            missing = str(gone)
            continue
        if not to_consensus.adopt(entries):
            raise NotEmpty
        return Copied(state.seqno, len(entries), len(keys), size)
    raise Corrupt("the location", f"{missing}, and again in every later state")


def _read(blob: Blob, consensus: Consensus) -> tuple[tuple[LogEntry, ...], State]:
    """Return the entries that a state is made of, and the state; the rollup is an object."""
    head = consensus.head()
    if head is None:
        raise InvalidUsage("the location is empty: there is nothing to copy")
    newest = consensus.scan(head, 1)
    if not newest:
        raise _Gone(f"entry {head} is missing")
    rollup = decode_entry(head, newest[0].data).rollup
    state = State()
    if rollup >= 0:
        key = log.rollup_key(rollup)
        data = blob.get(key)
        if data is None:
            raise _Gone(f"{key} is missing at entry {head}")
        state = decode_state(key, data)
    entries: list[LogEntry] = []
    start = SeqNo(rollup + 1)
    while start <= head:
        page = consensus.scan(start, SCAN_LIMIT)
        if not page or page[0].seqno != start:
            raise _Gone(f"entry {start} is missing at entry {head}")
        entries += [entry for entry in page if entry.seqno <= head]
        start = SeqNo(page[-1].seqno + 1)
    for entry in entries:
        state = apply(state, decode_entry(entry.seqno, entry.data))
    return tuple(entries) or newest, state


def _told(state: State, on_progress: Callable[[Progress], None]) -> _Tell:
    """Return who is told each object that is done, and tells how far all of it is."""
    rows: Counter[str] = Counter()
    for collection in state.collections.values():
        for part in collection.parts():
            if isinstance(part.where, Segment):
                rows[part.where.key] += part.rows
    told = 0

    def tell(key: str, done: int, total: int, size: int) -> None:
        nonlocal told
        told += rows[key]
        on_progress(Progress(done, total, size, told))

    return tell


def _copy_objects(
    blob: Blob, to_blob: Blob, keys: list[str], present: set[str], tell: _Tell
) -> int:
    size = 0
    tell("", 0, len(keys), size)
    for done, key in enumerate(keys, 1):
        if key not in present:
            data = blob.get(key)
            if data is None:
                raise _Gone(f"object {key} is missing")
            if not to_blob.create(key, data) and to_blob.get(key) != data:
                raise NotEmpty
            present.add(key)
            size += len(data)
        tell(key, done, len(keys), size)
    return size

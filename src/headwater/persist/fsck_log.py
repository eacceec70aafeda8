"""The half of ``fsck`` that reads the log: entries, rollups, and the state they lead to.

The log is replayed from as far back as it goes. A rollup inside that stretch must equal the state
replayed up to it; one at its beginning is where the replay starts. After an entry that cannot be
read or applied, the replay goes on from the next rollup, so that one bad entry hides nothing but
what depends on it.

While we read, a writer may truncate the log and collect old rollups. Then what was read is thrown
away and read again, a bounded number of times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from headwater.base.errors import Determinate, ExternalError, HeadwaterError
from headwater.base.ids import SeqNo
from headwater.persist import finding
from headwater.persist.changes import Entry
from headwater.persist.encoding import decode_entry, decode_state
from headwater.persist.errors import Corrupt
from headwater.persist.finding import Finding
from headwater.persist.location import Blob, Consensus, LogEntry
from headwater.persist.log import ROLLUPS, rollup_key
from headwater.persist.state import State, apply

SCAN_LIMIT: Final = 512
RESTARTS_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class CheckedLog:
    """What the log came to."""

    state: State | None
    """The newest state that could be found; ``None`` where none could."""
    at_head: bool
    """Whether it is the state after the newest entry."""
    findings: tuple[Finding, ...]


class _Truncated(Exception):
    """A writer truncated the log while we read it."""


@dataclass(slots=True)
class _Read:
    """What was read so far. ``None`` stands for an entry that cannot be read."""

    entries: list[tuple[SeqNo, Entry | None]] = field(default_factory=list)
    rollups: dict[SeqNo, State] = field(default_factory=dict)
    bad_rollups: dict[str, Finding] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


def check_log(blob: Blob, consensus: Consensus) -> CheckedLog:
    """Check every entry and rollup, and replay them."""
    for attempt in range(RESTARTS_MAX):
        last = attempt == RESTARTS_MAX - 1
        read = _Read()
        try:
            _read_entries(consensus, read)
            if not read.entries:
                empty = None if read.findings else State()
                return CheckedLog(empty, empty is not None, tuple(read.findings))
            _read_rollups(blob, read)
            state, at_head = _replay(read)
        except _Truncated:
            continue
        if state is None and not read.findings and not read.bad_rollups:
            # The rollup on which the log rests is gone: collected just now, or lost.
            if not last:
                continue
            first = read.entries[0][0]
            read.findings.append(
                finding.error(
                    f"rollup {rollup_key(_pointer(read))}",
                    f"missing; the log begins at entry {first} and needs it",
                )
            )
        known = None if state is None else {rollup.key for rollup in state.rollups}
        if at_head and known is not None and _pointer(read) >= 0:
            key = rollup_key(_pointer(read))
            if key not in known:
                problem = f"the newest entry names rollup {key}, which the state does not know"
                read.findings.append(finding.error("the log", problem))
        for key, found in read.bad_rollups.items():
            used = known is None or key in known
            read.findings.append(found if used else finding.warning(found.what, found.problem))
        return CheckedLog(state, at_head, tuple(read.findings))
    raise Determinate("the log is truncated faster than it can be read; try again")


def _read_entries(consensus: Consensus, read: _Read) -> None:
    for stored in _scan(consensus, read):
        if read.entries and stored.seqno != read.entries[-1][0] + 1:
            _gap(consensus, read, SeqNo(read.entries[-1][0] + 1), stored.seqno)
        entry: Entry | None = None
        try:
            entry = decode_entry(stored.seqno, stored.data)
        except HeadwaterError as raised:
            read.findings.append(finding.of(f"log entry {stored.seqno}", raised))
        read.entries.append((stored.seqno, entry))


def _gap(consensus: Consensus, read: _Read, expected: SeqNo, found: SeqNo) -> None:
    first = consensus.scan(SeqNo(0), 1)
    if not first or first[0].seqno > expected:
        raise _Truncated
    one = found == expected + 1
    what = f"log entry {expected}" if one else f"log entries {expected} to {found - 1}"
    read.findings.append(finding.error(what, "missing from the log"))
    read.entries.append((expected, None))


def _scan(consensus: Consensus, read: _Read) -> Iterator[LogEntry]:
    """Yield all entries; where a page cannot be read, those of it that can."""
    start = SeqNo(0)
    while True:
        try:
            page = consensus.scan(start, SCAN_LIMIT)
        except (ExternalError, Corrupt) as raised:
            read.findings.append(finding.of("the log", raised))
            yield from _one_by_one(consensus, read, start)
            return
        yield from page
        if len(page) < SCAN_LIMIT:
            return
        start = SeqNo(page[-1].seqno + 1)


def _one_by_one(consensus: Consensus, read: _Read, start: SeqNo) -> Iterator[LogEntry]:
    try:
        head = consensus.head()
    except (ExternalError, Corrupt):
        return  # Nothing can be read at all; that is reported already.
    seqno = start
    while head is not None and seqno <= head:
        try:
            found = consensus.scan(seqno, 1)
        except (ExternalError, Corrupt) as raised:
            read.findings.append(finding.error(f"log entry {seqno}", str(raised)))
            seqno = SeqNo(seqno + 1)
            continue
        if not found:
            return
        yield found[0]
        seqno = SeqNo(found[0].seqno + 1)


def _read_rollups(blob: Blob, read: _Read) -> None:
    newest = read.entries[-1][0]
    for info in blob.list(ROLLUPS):
        digits = info.key.removeprefix(ROLLUPS)
        if not digits.isdigit() or int(digits) > newest:
            continue  # A foreign name is reported by others; a later one is none of this log yet.
        seqno = SeqNo(int(digits))
        what = f"rollup {info.key}"
        try:
            data = blob.get(info.key)
            if data is None:
                continue  # Collected since it was listed.
            state = decode_state(info.key, data)
            if state.seqno != seqno:
                raise Corrupt(what, f"it holds the state at {state.seqno}")
        except HeadwaterError as raised:
            read.bad_rollups[info.key] = finding.of(what, raised)
        else:
            read.rollups[seqno] = state


def _replay(read: _Read) -> tuple[State | None, bool]:
    """Return the newest state, and whether it is that of the head."""
    first = read.entries[0][0]
    state = State() if first == 0 else read.rollups.get(SeqNo(first - 1))
    newest = state
    for seqno, entry in read.entries:
        state = None if entry is None or state is None else _apply(state, entry, read)
        rollup = read.rollups.get(seqno)
        if rollup is not None:
            if state is not None and state != rollup:
                key = rollup_key(seqno)
                read.bad_rollups[key] = finding.error(f"rollup {key}", _difference(rollup, state))
            state = rollup if state is None else state
        newest = newest if state is None else state
    return newest, state is not None


def _pointer(read: _Read) -> SeqNo:
    """Return the rollup that the newest readable entry names; -1 for none."""
    return next((entry.rollup for _, entry in reversed(read.entries) if entry), SeqNo(-1))


def _apply(state: State, entry: Entry, read: _Read) -> State | None:
    what = f"log entry {entry.seqno}"
    try:
        return apply(state, entry)
    except HeadwaterError as raised:
        read.findings.append(finding.of(what, raised))
    except (LookupError, AssertionError, ValueError) as raised:
        read.findings.append(
            finding.error(what, f"it does not fit the state before it: {raised!r}")
        )
    return None


def _difference(rollup: State, replayed: State) -> str:
    fields = [
        name
        for name in msgspec.structs.asdict(rollup)
        if getattr(rollup, name) != getattr(replayed, name)
    ]
    return f"it differs from the replayed log in {', '.join(fields)}"

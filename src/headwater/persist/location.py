"""The two ports through which persist meets the outside, and what they promise.

**Blob** is a linearizable map from keys to immutable objects. Keys are relative paths of
``[a-z0-9._/-]``; an object, once created, is never modified, only deleted.

**Consensus** is one linearizable log of entries with consecutive sequence numbers. Its
compare-and-set is the only place in Headwater where anything becomes *committed*.

Every method may raise :class:`~headwater.base.errors.Determinate` (certainly did not happen) or
:class:`~headwater.base.errors.Indeterminate` (may have happened); **anything an implementation
cannot classify is Indeterminate**. A lost race is a return value. Implementations do not retry:
that is done above them, by ``persist/machine.py`` and ``Core.retrying``, where it can be seen.

Kept by: every implementation, held to it by the conformance suites of ``headwater.testing``.
Relied on by: all of ``persist``, and by nobody else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from headwater.base.ids import SeqNo


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object as a listing shows it."""

    key: str
    size: int


class Blob(Protocol):
    """Immutable objects by key."""

    def get(self, key: str) -> bytes | None:
        """Return the whole object, or ``None`` where there is none."""
        ...

    def get_range(self, key: str, offset: int, length: int) -> bytes | None:
        """Return ``length`` bytes from ``offset`` (fewer only at the end of the object)."""
        ...

    def create(self, key: str, data: bytes) -> bool:
        """Create the object exclusively and durably; ``False`` if the key exists already.

        Atomic: a reader sees all of it or nothing. When this returns, the object survives a power
        failure (file and directory are synced). After an Indeterminate error a retry may return
        ``False`` because of its own first attempt: compare the content where that matters.
        """
        ...

    def delete(self, key: str) -> bool:
        """Delete the object; ``False`` (and no error) where there was none."""
        ...

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """List the objects whose key begins with ``prefix``, in key order."""
        ...

    def local_path(self, key: str) -> Path | None:
        """Return a path under which the object can be memory-mapped, where there is one."""
        ...

    def close(self) -> None:
        """Release connections; the blob is not used afterwards."""
        ...


@dataclass(frozen=True, slots=True)
class Committed:
    """The entry is durable at its sequence number."""


@dataclass(frozen=True, slots=True)
class LostRace:
    """Somebody else committed that sequence number, or the log is elsewhere. ``head``: where."""

    head: SeqNo | None


AppendOutcome = Committed | LostRace


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One committed entry, as bytes."""

    seqno: SeqNo
    data: bytes


class Consensus(Protocol):
    """One log of entries, appended by compare-and-set."""

    def head(self) -> SeqNo | None:
        """Return the newest sequence number; ``None`` where nothing was ever committed.

        Linearizable: it reflects every append that returned before this call began.
        """
        ...

    def append(self, seqno: SeqNo, data: bytes) -> AppendOutcome:
        """Commit ``data`` at ``seqno`` iff that is 0 for an empty log, else exactly head + 1."""
        ...

    def scan(self, start: SeqNo, limit: int) -> tuple[LogEntry, ...]:
        """Return up to ``limit`` entries from ``start`` on, ascending; empty past the end.

        Entries that were truncated are missing: the first one returned may be later than
        ``start``; there is never a gap after it.
        """
        ...

    def truncate(self, seqno: SeqNo) -> int:
        """Delete all entries before ``seqno`` (at most head); return how many. The head stays."""
        ...

    def close(self) -> None:
        """Release connections; the consensus is not used afterwards."""
        ...

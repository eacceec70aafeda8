"""The log in this process's memory: the reference implementation of ``Consensus``.

One lock makes every method atomic, hence linearizable. It may be shared by several "processes"
of a test: ``close`` therefore forgets nothing.
"""

from __future__ import annotations

from threading import Lock

from headwater.base.ids import SeqNo
from headwater.persist.consensus.seqno import check_limit, check_seqno, check_truncation, follows
from headwater.persist.location import AppendOutcome, Committed, LogEntry, LostRace


class MemoryConsensus:
    """Invariant: ``_entries[i].seqno == _first + i``; never empty again after the first append."""

    def __init__(self) -> None:
        self._first = 0
        self._entries: list[LogEntry] = []
        self._lock = Lock()

    def head(self) -> SeqNo | None:
        """Return the newest sequence number."""
        with self._lock:
            return self._head()

    def append(self, seqno: SeqNo, data: bytes) -> AppendOutcome:
        """Commit ``data`` at ``seqno`` iff that is 0 for an empty log, else exactly head + 1."""
        check_seqno(seqno)
        entry = LogEntry(seqno, bytes(data))
        with self._lock:
            head = self._head()
            if not follows(seqno, head):
                return LostRace(head)
            self._entries.append(entry)
            return Committed()

    def scan(self, start: SeqNo, limit: int) -> tuple[LogEntry, ...]:
        """Return up to ``limit`` entries from ``start`` on, ascending."""
        check_seqno(start)
        check_limit(limit)
        with self._lock:
            skip = max(0, start - self._first)
            return tuple(self._entries[skip : skip + limit])

    def truncate(self, seqno: SeqNo) -> int:
        """Delete all entries before ``seqno`` (at most head); return how many."""
        check_seqno(seqno)
        with self._lock:
            check_truncation(seqno, self._head())
            count = max(0, seqno - self._first)
            del self._entries[:count]
            self._first += count
            return count

    def close(self) -> None:
        """Do nothing: somebody else may share this memory."""

    def _head(self) -> SeqNo | None:
        return self._entries[-1].seqno if self._entries else None

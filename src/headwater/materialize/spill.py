"""Updates ordered by key with bounded memory: sorted runs on disk, read back by ranges of keys.

    add, add, …   ─▶ buffer ─(full)─▶ each share of it sorted by packed key ─▶ a run on disk
    pieces        ◀─ of all runs, the rows with keys in ``(a, b]``; then ``(b, c]``; and so on

A buffer that never was full is the only piece, and nothing is written (``sorted_runs``); unless it
is more than half full and out of order: whoever brings its rows into order needs a copy of them.

**Memory.** With a limit of ``L``: rows in the buffer have ``L``, a share that is being sorted
``L / 8`` twice, with its keys; later a piece has ``L / 2``, the same rows combined once more so
much, with their keys. So it is about ``1.5 L``, whatever was added. Runs are mapped: what is in the
memory of the machine of them the system takes back when it likes.

Invariant:      all updates of a key are in one piece; pieces ascend by packed key. Together they
                are what was added, with updates that add up to nothing perhaps left out.
                At most about :attr:`Spill.limit_bytes` of rows are in the buffer, and at most half
                of that in a piece, unless one key alone has more, or the rows are in order.
Relied on by:   the first snapshot of a materialization (``first``), and every interval after it
                (``gather``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from headwater.materialize.changes import in_order
from headwater.materialize.joined import joined
from headwater.materialize.projections import packable
from headwater.materialize.sorted_runs import PACKED, ROWS_AT_ONCE, RunFile, SortedRuns
from headwater.materialize.tuples import pack_columns
from headwater.persist.consolidate import consolidate

SPILL_BYTES: Final = 64 << 20
"""How much of a collection a transaction holds at once."""

SHARES: Final = 8
"""In how many shares a full buffer is sorted and written: each is a copy while that lasts."""

RUNS_MAX: Final = 64
"""How many runs become one, so that there are never many, however much is added."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The updates of a range of keys."""

    updates: pa.Table
    last: bytes | None
    """The greatest key of the range; ``None``: there is no later one."""


def pack_key(rows: pa.Table, key: Sequence[str]) -> pa.LargeBinaryArray:
    """Return the packed key of each row; a NULL in it is packed, too: its row may cancel out."""
    return pack_columns([packable(joined(rows.column(column))) for column in key])


class Spill:
    """The updates of one binding, until they are delivered."""

    def __init__(self, key: Sequence[str], limit_bytes: int = SPILL_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self._key = tuple(key)
        self._buffer: list[pa.Table] = []
        self._held = 0
        self._levels: list[list[pa.Table]] = []
        """Runs of shares; runs of so many of those; and so on."""
        self.most_rows = 0
        """How many rows were held in memory at once, at most."""

    def add(self, updates: pa.Table) -> None:
        """Add updates; in slices, so that a large table is no large buffer."""
        if not updates.num_rows:
            return
        if self._held + updates.nbytes <= self.limit_bytes:
            self._add(updates)  # Whole: what is cut must be put together again.
            return
        step = max(1, min(ROWS_AT_ONCE, updates.num_rows * self.limit_bytes // updates.nbytes))
        for start in range(0, updates.num_rows, step):
            self._add(updates.slice(start, step))

    def _add(self, updates: pa.Table) -> None:
        if self._buffer and self._held + updates.nbytes > self.limit_bytes:
            self._write()
        self._buffer.append(updates)
        self._held += updates.nbytes
        self.most_rows = max(self.most_rows, sum(table.num_rows for table in self._buffer))

    def _taken(self) -> pa.Table:
        """Take what is in the buffer."""
        rows = pa.concat_tables(self._buffer, promote_options="default")
        self._buffer, self._held = [], 0
        return rows

    def _write(self) -> None:
        """Write what is in the buffer: runs."""
        rows = self._taken()
        step = max(1, rows.num_rows * self.limit_bytes // (SHARES * max(1, rows.nbytes)))
        for start in range(0, rows.num_rows, step):
            # What adds up to nothing need not be written.
            share = consolidate(rows.slice(start, step))
            if share.num_rows:
                self._write_run(iter([self._sorted(share)]), 0)

    def _write_run(self, ascending: Iterator[pa.Table], level: int) -> None:
        with RunFile() as file:
            for rows in ascending:
                file.write(rows)
            if level == len(self._levels):
                self._levels.append([])
            self._levels[level].append(file.mapped())
        if len(self._levels[level]) == RUNS_MAX:
            runs, self._levels[level] = self._levels[level], []
            merged = SortedRuns(runs, self.limit_bytes // SHARES).pieces()
            self._write_run((piece.rows for piece in merged if piece.rows.num_rows), level + 1)

    @property
    def _runs(self) -> list[pa.Table]:
        # The older ones are on the higher levels.
        return [run for level in reversed(self._levels) for run in level]

    def _sorted(self, rows: pa.Table) -> pa.Table:
        keyed = rows.append_column(PACKED, pack_key(rows, self._key))
        return keyed if in_order(self._key, rows) else keyed.sort_by(PACKED)

    def _stays(self) -> bool:
        """Whether nothing need be written: what is in the buffer is all, and can be combined."""
        if self._runs or 2 * self._held <= self.limit_bytes:
            return not self._runs
        return in_order(self._key, pa.concat_tables(self._buffer, promote_options="default"))

    def pieces(self, after: bytes = b"") -> Iterator[Piece]:
        """Yield the updates of all keys greater than ``after``, range by range."""
        if not after and self._stays():
            if self._buffer:
                yield Piece(self._taken(), None)
            return
        if self._buffer:
            self._write()
        pa.default_memory_pool().release_unused()  # A good deal: the buffer was in it.
        runs = SortedRuns(self._runs, self.limit_bytes // 2, merging=False)
        for piece in runs.pieces(after):
            self.most_rows = max(self.most_rows, piece.rows.num_rows)
            yield Piece(piece.rows.drop_columns([PACKED]), piece.last)

"""Updates ordered by key with bounded memory: sorted runs on disk, read back by ranges of keys.

    add, add, …   ─▶ buffer ─(full)─▶ sorted by packed key ─▶ a run in a temporary file
    pieces        ◀─ of all runs, the rows with keys in ``(a, b]``; then ``(b, c]``; and so on

A buffer that never was full is the only piece, and nothing is written (``sorted_runs``).

Invariant:      all updates of a key are in one piece; pieces ascend by packed key. Together they
                are what was added, with updates that add up to nothing perhaps left out.
                At most about :attr:`Spill.limit_bytes` of rows are in the buffer, and at most so
                many in a piece, unless one key alone has more.
Relied on by:   the first snapshot of a materialization (``first``), and every interval after it
                (``gather``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from headwater.materialize.joined import joined
from headwater.materialize.projections import packable
from headwater.materialize.sorted_runs import PACKED, ROWS_AT_ONCE, RunFile, SortedRuns
from headwater.materialize.tuples import pack_columns
from headwater.persist.consolidate import consolidate

SPILL_BYTES: Final = 64 << 20
"""How much of a collection a transaction holds at once."""


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
        self._runs: list[pa.Table] = []
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
        rows = consolidate(self._taken())  # What adds up to nothing need not be written.
        if not rows.num_rows:
            return
        with RunFile() as file:
            file.write(rows.append_column(PACKED, pack_key(rows, self._key)).sort_by(PACKED))
            self._runs.append(file.mapped())

    def pieces(self, after: bytes = b"") -> Iterator[Piece]:
        """Yield the updates of all keys greater than ``after``, range by range."""
        if not self._runs and not after:
            if self._buffer:
                yield Piece(self._taken(), None)
            return
        if self._buffer:
            self._write()
        runs = SortedRuns(self._runs, self.limit_bytes, merging=False)
        for piece in runs.pieces(after):
            self.most_rows = max(self.most_rows, piece.rows.num_rows)
            yield Piece(piece.rows.drop_columns([PACKED]), piece.last)

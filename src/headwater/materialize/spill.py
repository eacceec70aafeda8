"""Updates ordered by key with bounded memory: sorted runs on disk, read back by ranges of keys.

    add, add, …   ─▶ buffer ─(full)─▶ sorted by packed key ─▶ a run in a temporary file
    pieces        ◀─ of all runs, the rows with keys in ``(a, b]``; then ``(b, c]``; and so on

A buffer that never was full is the only piece, and nothing is written. Files are mapped and removed
at once: whatever becomes of us, none is left behind. They lie where Python puts temporary files
(``TMPDIR``); that should not be a file system in memory.

Invariant:      all updates of a key are in one piece; pieces ascend by packed key. Together they
                are what was added, with updates that add up to nothing perhaps left out.
                At most about :attr:`Spill.limit_bytes` of rows are in the buffer, and at most so
                many in a piece, unless one key alone has more.
Relied on by:   the first snapshot of a materialization (``first``).
"""

from __future__ import annotations

import bisect
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from headwater.materialize.projections import packable
from headwater.materialize.tuples import pack_columns
from headwater.persist.consolidate import consolidate

SPILL_BYTES: Final = 64 << 20
"""How much of a collection a transaction holds at once."""

_PACKED: Final = "__packed"
_ROWS_AT_ONCE: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Piece:
    """The updates of a range of keys."""

    updates: pa.Table
    last: bytes | None
    """The greatest key of the range; ``None``: there is no later one."""


class _Keys(Sequence[bytes]):
    """Packed keys, ascending, for bisection."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, at: int) -> bytes:  # type: ignore[override]
        found: bytes = self._column[at].as_py()
        return found


def pack_key(rows: pa.Table, key: Sequence[str]) -> pa.LargeBinaryArray:
    """Return the packed key of each row; a NULL in it is packed, too: its row may cancel out."""
    columns = [rows.column(column).combine_chunks() for column in key]
    arrays = [c.chunk(0) if isinstance(c, pa.ChunkedArray) else c for c in columns]
    return pack_columns([packable(array) for array in arrays])


class Spill:
    """The updates of one binding, until they are delivered."""

    def __init__(self, key: Sequence[str], limit_bytes: int = SPILL_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self._key = tuple(key)
        self._buffer: list[pa.Table] = []
        self._held = 0
        self._runs: list[pa.Table] = []
        self._bytes = 0
        self.most_rows = 0
        """How many rows were held in memory at once, at most."""

    def add(self, updates: pa.Table) -> None:
        """Add updates; in slices, so that a large table is no large buffer."""
        if not updates.num_rows:
            return
        step = max(1, min(_ROWS_AT_ONCE, updates.num_rows * self.limit_bytes // updates.nbytes))
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
        ordered = rows.append_column(_PACKED, pack_key(rows, self._key)).sort_by(_PACKED)
        self._bytes += ordered.nbytes
        with tempfile.NamedTemporaryFile(prefix="headwater-spill-") as file:
            with pa.ipc.new_file(file, ordered.schema) as writer:
                writer.write_table(ordered, max_chunksize=_ROWS_AT_ONCE)
            file.flush()
            self._runs.append(pa.ipc.open_file(pa.memory_map(file.name)).read_all())

    def pieces(self, after: bytes = b"") -> Iterator[Piece]:
        """Yield the updates of all keys greater than ``after``, range by range."""
        if not self._runs and not after:
            if self._buffer:
                yield Piece(self._taken(), None)
            return
        if self._buffer:
            self._write()
        cuts = self._cuts(after)
        for number, (begin, end) in enumerate(pairwise(cuts)):
            slices = [
                run.slice(first, last - first)
                for run, first, last in zip(self._runs, begin.rows, end.rows, strict=True)
            ]
            updates = pa.concat_tables(slices, promote_options="default")
            self.most_rows = max(self.most_rows, updates.num_rows)
            final = number + 2 == len(cuts)
            if updates.num_rows or final:
                yield Piece(updates.drop_columns([_PACKED]), None if final else end.key)

    def _cuts(self, after: bytes) -> list[_Cut]:
        """Return where to cut all runs, so that what lies between two cuts fits into memory."""
        keys = [_Keys(run.column(_PACKED)) for run in self._runs]
        rows = sum(map(len, keys))
        at_once = max(1, rows * self.limit_bytes // max(1, self._bytes))
        # Between two neighbours of these no run has more than its share.
        stride = max(1, at_once // (2 * len(keys)))
        candidates = sorted({run[at] for run in keys for at in range(stride - 1, len(run), stride)})
        places = [
            _Cut(key, tuple(bisect.bisect_right(run, key) for run in keys))
            for key in (after, *(key for key in candidates if key > after))
        ]
        places.append(_Cut(b"\xff", tuple(map(len, keys))))
        totals = np.array([sum(place.rows) for place in places])
        cuts, at = [places[0]], 0
        while at + 1 < len(places):
            reach = int(np.searchsorted(totals, totals[at] + at_once, "right")) - 1
            at = max(at + 1, reach)
            cuts.append(places[at])
        return cuts


@dataclass(frozen=True, slots=True)
class _Cut:
    """A key, and how many rows of each run are not greater."""

    key: bytes
    rows: tuple[int, ...]

"""Runs: rows ordered by packed key, in memory or mapped, read together by ranges of keys.

    run 1   ──a───b──c──────e──f──│          a piece is what all runs have in ``(after, last]``,
    run 2   ────b───────d────────g│          in the order of the key; pieces ascend

Every run has the packed key of each row in :data:`PACKED`. A run that is mapped costs no memory but
what is being looked at; its file has no name (``base/scratch.py``), so that none is left behind
whatever becomes of us.

Invariant:      all rows of a key are in one piece, in the order of runs, and within a run in its
                own. At most about ``limit_bytes`` of rows are in a piece, unless one key has more.
Relied on by:   ``spill`` (updates before they are combined), ``gather`` (after), ``loaded``.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.base.scratch import nameless, path_of

PACKED: Final = "__packed"
"""The column of packed keys."""

ROWS_AT_ONCE: Final = 1 << 16
_LOOKS: Final = 8
"""How often we look at the keys of all runs, in as many rows as fit into memory."""
_ORDER: Final = "__order"
_BEYOND: Final = b"\xff"
"""Greater than every packed key."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The rows of a range of keys."""

    rows: pa.Table
    last: bytes | None
    """The greatest key of the range; ``None``: there is no later one."""


class RunFile:
    """A run that is being written to disk, in ascending tables; then mapped."""

    def __init__(self) -> None:
        self._file: Any = nameless()
        self._writer: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, rows: pa.Table) -> None:
        """Add rows, whose keys are greater than those before."""
        if self._writer is None:
            self._writer = pa.ipc.new_file(self._file, rows.schema)
        self._writer.write_table(rows, max_chunksize=ROWS_AT_ONCE)

    def mapped(self) -> pa.Table:
        """Return all rows; they are on disk."""
        assert self._writer is not None, "a run has rows"
        self._writer.close()
        self._file.flush()
        return pa.ipc.open_file(pa.memory_map(path_of(self._file))).read_all()


class _Keys(Sequence[bytes]):
    """Packed keys, ascending, for bisection."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, at: int) -> bytes:  # type: ignore[override]
        found: bytes = self._column[at].as_py()
        return found

    def every(self, stride: int, passed: int) -> Iterator[bytes]:
        """Yield the last of every so many keys, behind some."""
        for at in range(passed + stride - 1, len(self), stride):
            yield self[at]


@dataclass(frozen=True, slots=True)
class _Cut:
    """A key, and how many rows of each run are not greater."""

    key: bytes
    rows: tuple[int, ...]


class SortedRuns:
    """Some runs, as if they were one."""

    def __init__(self, runs: Sequence[pa.Table], limit_bytes: int, *, merging: bool = True) -> None:
        """``merging``: rows of a piece are in the order of their key, and not run after run."""
        self._merging = merging
        self._runs = tuple(run for run in runs if run.num_rows)
        self._keys = tuple(_Keys(run.column(PACKED)) for run in self._runs)
        self._limit_bytes = limit_bytes
        self.rows = sum(run.num_rows for run in self._runs)
        self.nbytes = sum(run.nbytes for run in self._runs)

    @property
    def greatest(self) -> bytes:
        """The greatest key; there must be one."""
        return max(keys[len(keys) - 1] for keys in self._keys)

    def pieces(self, after: bytes = b"") -> Iterator[Piece]:
        """Yield the rows of all keys greater than ``after``, range by range.

        The last piece is there in any case, if it has no rows.
        """
        if not self._runs:
            return
        for begin, end in pairwise(self._cuts(after)):
            rows = self._slice(begin.rows, end.rows)
            final = end.key == _BEYOND
            if rows.num_rows or final:
                yield Piece(rows, None if final else end.key)

    def between(self, after: bytes, through: bytes | None) -> pa.Table | None:
        """Return the rows with keys in ``(after, through]``; ``None`` if there are none at all."""
        if not self._runs:
            return None
        return self._slice(self._place(after).rows, self._place(through or _BEYOND).rows)

    def _place(self, key: bytes) -> _Cut:
        return _Cut(key, tuple(bisect.bisect_right(keys, key) for keys in self._keys))

    def _slice(self, begin: Sequence[int], end: Sequence[int]) -> pa.Table:
        slices = [
            run.slice(first, last - first)
            for run, first, last in zip(self._runs, begin, end, strict=True)
            if last > first
        ]
        if not slices:
            return self._runs[0].slice(0, 0)
        rows = pa.concat_tables(slices, promote_options="default")
        if len(slices) == 1 or not self._merging:
            return rows
        numbered = pa.table({PACKED: rows[PACKED], _ORDER: np.arange(rows.num_rows)})
        ascending = [(PACKED, "ascending"), (_ORDER, "ascending")]
        return rows.take(pc.sort_indices(numbered, ascending))

    def _cuts(self, after: bytes) -> Iterator[_Cut]:
        """Yield where to cut all runs, so that what lies between two cuts fits into memory.

        Every so many rows of each run we look at its key. Between two keys that were seen, the runs
        together have as many rows as were passed over, and less than a stride each beyond that.
        """
        at_once = max(1, self.rows * self._limit_bytes // max(1, self.nbytes))
        stride = max(1, at_once // (_LOOKS * len(self._keys)))
        reach = at_once // stride
        surely = max(1, reach - len(self._keys))
        cut, end = self._place(after), _Cut(_BEYOND, tuple(map(len, self._keys)))
        runs = zip(self._keys, cut.rows, strict=True)
        seen = heapq.merge(*(keys.every(stride, passed) for keys, passed in runs))
        ahead: list[bytes] = []
        yield cut
        while (room := sum(cut.rows) + at_once) < sum(end.rows):
            ahead = [key for key in ahead if key > cut.key]
            ahead.extend(islice(seen, reach - len(ahead)))
            fits = min(surely, len(ahead))
            if 2 * surely < reach:
                # So many runs that what each may have beyond would be most of it: count it.
                fits = bisect.bisect_right(ahead, room, key=lambda key: sum(self._place(key).rows))
            key = ahead[max(0, fits - 1)]
            if key > cut.key:
                cut = self._place(key)
                yield cut
        yield end

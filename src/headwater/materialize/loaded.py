"""What an endpoint has loaded, kept until it is reduced into: with bounded memory, found by key.

    Loaded, Loaded, …  ─▶  rows of our own columns  ─(many)─▶  runs on disk, ordered by packed key

What is little stays in memory. Relied on by: ``gather``, which asks for it range by range.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from headwater.materialize.combine import Bound, by_key
from headwater.materialize.protocol.messages import Loaded, LoadedMany
from headwater.materialize.reduction.value import Json
from headwater.materialize.sorted_runs import PACKED, RunFile, SortedRuns

_ROWS_AT_ONCE: Final = 10_000
_BYTES_AT_ONCE: Final = 4 << 20
"""How many documents become rows at once, at most so large: each is some objects."""


class LoadedRows:
    """What was loaded of one binding in one transaction."""

    def __init__(self, bound: Bound, limit_bytes: int) -> None:
        self._bound = bound
        self._limit_bytes = limit_bytes
        self._messages: list[Loaded | LoadedMany] = []
        self._unread = self._unread_bytes = 0
        self._rows: list[pa.Table] = []
        self._runs: list[pa.Table] = []
        self._sorted: SortedRuns | None = None
        self.count = 0
        self.most_rows = 0
        """How many rows were held in memory at once, at most."""

    def add(self, message: Loaded | LoadedMany) -> None:
        """Keep what came; nobody has asked for any of it yet."""
        match message:
            case LoadedMany():
                rows, nbytes = message.rows.num_rows, message.rows.nbytes
            case Loaded():
                rows, nbytes = 1, len(message.doc_json)
        self.count += rows
        self._unread_bytes += nbytes
        self._messages.append(message)
        self._unread += rows
        held = sum(table.num_rows for table in self._rows)
        self.most_rows = max(self.most_rows, self._unread + held)
        if self._unread >= _ROWS_AT_ONCE or self._unread_bytes >= _BYTES_AT_ONCE:
            self._read()
            if sum(table.nbytes for table in self._rows) > self._limit_bytes:
                self._write()

    def _read(self) -> None:
        if self._messages:
            self._rows.append(self._bound.loaded_rows(self._messages))
            self._messages, self._unread, self._unread_bytes = [], 0, 0

    def _write(self) -> None:
        rows, self._rows = pa.concat_tables(self._rows), []
        with RunFile() as file:
            file.write(rows.sort_by(PACKED))
            self._runs.append(file.mapped())

    def between(self, after: bytes, through: bytes | None) -> Mapping[bytes, Json]:
        """Return the documents with keys in ``(after, through]``; all, if there are few."""
        if self._sorted is None:
            self._read()
            if self._rows:
                self._runs.append(pa.concat_tables(self._rows).sort_by(PACKED))
                self._rows = []
            self._sorted = SortedRuns(self._runs, self._limit_bytes)
        found = self._sorted.between(after, through)
        return {} if found is None else by_key(found)

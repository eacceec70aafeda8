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
"""How many documents become rows at once: each is some objects."""


class LoadedRows:
    """What was loaded of one binding in one transaction."""

    def __init__(self, bound: Bound, limit_bytes: int) -> None:
        self._bound = bound
        self._limit_bytes = limit_bytes
        self._messages: list[Loaded | LoadedMany] = []
        self._unread = 0
        self._rows: list[pa.Table] = []
        self._runs: list[pa.Table] = []
        self.count = 0
        self.most_rows = 0
        """How many rows were held in memory at once, at most."""

    def add(self, message: Loaded | LoadedMany) -> None:
        """Keep what came."""
        rows = message.rows.num_rows if isinstance(message, LoadedMany) else 1
        self.count += rows
        self._messages.append(message)
        self._unread += rows
        held = sum(table.num_rows for table in self._rows)
        self.most_rows = max(self.most_rows, self._unread + held)
        if self._unread >= _ROWS_AT_ONCE:
            self._read()
            if sum(table.nbytes for table in self._rows) > self._limit_bytes:
                self._write()

    def _read(self) -> None:
        if self._messages:
            self._rows.append(self._bound.loaded_rows(self._messages))
            self._messages, self._unread = [], 0

    def _write(self) -> None:
        rows, self._rows = pa.concat_tables(self._rows), []
        with RunFile() as file:
            file.write(rows.sort_by(PACKED))
            self._runs.append(file.mapped())

    def between(self, after: bytes, through: bytes | None) -> Mapping[bytes, Json]:
        """Return the documents with keys in ``(after, through]``; all, if there are few."""
        self._read()
        if self._rows:
            self._runs.append(pa.concat_tables(self._rows).sort_by(PACKED))
            self._rows = []
        found = SortedRuns(self._runs, self._limit_bytes).between(after, through)
        return {} if found is None else by_key(found)

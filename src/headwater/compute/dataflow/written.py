"""What a stage writes: one object at its end, and one per part before it for what is large.

A step after the first is small, and one object for all it changes is one ``fsync``. A view's first
step writes whole arrangements. Those are sorted, encoded and written from when they are known on
(:data:`LARGE_ROWS`), by threads of their own (``aside.py``): operators go on meanwhile, as far as
they do not probe them, which they do where they lie by then.

Objects mean nothing until the driver commits the parts; their names have the attempt in them, so an
attempt that failed leaves garbage and nothing else.

Kept by: this module. Relied on by: ``stage.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import pyarrow as pa

from headwater.base.ids import GlobalId
from headwater.compute.arrangement import hash_ranges
from headwater.compute.dataflow import aside, exchange
from headwater.compute.dataflow.exchange import Aside
from headwater.persist.batch import Part
from headwater.persist.part import PART_ROWS_TARGET, Pending
from headwater.persist.spark_parts import Target, Writing

LARGE_ROWS: Final = 100_000
"""From here on updates of a collection are written at once."""

WRITERS: Final = 2
"""How many collections are sorted and written at a time: each is in memory twice meanwhile."""


@dataclass(slots=True)
class Written:
    """The parts of one attempt of a stage; ``name`` is that of the attempt."""

    writing: Writing
    name: str
    _pending: dict[int, list[Pending]] = field(default_factory=dict)
    _large: dict[int, list[Future[list[Part]]]] = field(default_factory=dict)
    _writers: ThreadPoolExecutor | None = None
    _objects: Iterator[int] = field(default_factory=count)

    def add(self, collection: GlobalId, target: Target, updates: pa.Table) -> None:
        """Take consolidated updates of a collection in."""
        if updates.num_rows < LARGE_ROWS:
            self._pending.setdefault(int(collection), []).extend(_pieces(target, updates))
            return
        if self._writers is None:
            self._writers = aside.threads(WRITERS)
        writing = self._writers.submit(self._write_large, target, updates)
        self._large.setdefault(int(collection), []).append(writing)

    def put_aside(self, pieces: Sequence[tuple[int, pa.Table]]) -> list[Aside]:
        """Write rows for the ranges of a later phase."""
        return exchange.put_aside(self.writing, f"{self.name}.{next(self._objects)}", pieces)

    def already(self, collection: GlobalId) -> Sequence[Part]:
        """Return the parts of what is large of a collection, once they are written."""
        return [part for large in self._large.get(int(collection), ()) for part in large.result()]

    def finished(self) -> dict[int, list[Part]]:
        """Write the rest as one object; return all parts, by collection."""
        parts = {collection: list(self.already(GlobalId(collection))) for collection in self._large}
        every = [pending for group in self._pending.values() for pending in group]
        if every:
            written = iter(self._write(every))
            for collection, group in self._pending.items():
                parts.setdefault(collection, []).extend(next(written) for _ in group)
        return parts

    def close(self) -> None:
        """Wait for what is being written, and begin nothing more."""
        if self._writers is not None:
            self._writers.shutdown(cancel_futures=True)

    def _write_large(self, target: Target, updates: pa.Table) -> list[Part]:
        return [part for piece in _pieces(target, updates) for part in self._write([piece])]

    def _write(self, pending: Sequence[Pending]) -> tuple[Part, ...]:
        return self.writing.write(pending, f"{self.name}.{next(self._objects)}")


def _pieces(target: Target, updates: pa.Table) -> Iterator[Pending]:
    for piece in _cut(target, updates):
        yield target.pending(piece, consolidated=True, brief=True)


def _cut(target: Target, updates: pa.Table) -> Iterable[pa.Table]:
    if target.key:
        return hash_ranges(updates, target)
    offsets = range(0, updates.num_rows, PART_ROWS_TARGET)
    return (updates.slice(offset, PART_ROWS_TARGET) for offset in offsets)

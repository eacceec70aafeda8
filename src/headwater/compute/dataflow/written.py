"""What a stage writes: one object at its end, and one per part before it for what is large.

A step after the first is small, and one object for all it changes is one ``fsync``. A view's first
step writes whole arrangements. Those are sorted, encoded and written as soon as they are known
(:data:`LARGE_ROWS`), so that they need not stay in memory, and are probed where they lie by then.

Objects mean nothing until the driver commits the parts; their names have the attempt in them, so an
attempt that failed leaves garbage and nothing else.

Kept by: this module. Relied on by: ``stage.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from headwater.base.ids import GlobalId
from headwater.compute.arrangement import hash_ranges
from headwater.persist.batch import Part
from headwater.persist.part import PART_ROWS_TARGET, Pending
from headwater.persist.spark_parts import Target, Writing

LARGE_ROWS: Final = 100_000
"""From here on updates of a collection are written at once."""


@dataclass(slots=True)
class Written:
    """The parts of one attempt of a stage; ``name`` is that of the attempt."""

    writing: Writing
    name: str
    _pending: dict[int, list[Pending]] = field(default_factory=dict)
    _parts: dict[int, list[Part]] = field(default_factory=dict)
    _objects: int = 0

    def add(self, collection: GlobalId, target: Target, updates: pa.Table) -> None:
        """Take consolidated updates of a collection in."""
        every = (target.pending(p, consolidated=True) for p in _pieces(target, updates))
        if updates.num_rows < LARGE_ROWS:
            self._pending.setdefault(int(collection), []).extend(every)
            return
        for pending in every:
            self._parts.setdefault(int(collection), []).extend(self._write([pending]))

    def already(self, collection: GlobalId) -> Sequence[Part]:
        """Return the parts of a collection that are written by now."""
        return self._parts.get(int(collection), ())

    def finished(self) -> dict[int, list[Part]]:
        """Write the rest as one object; return all parts, by collection."""
        every = [pending for group in self._pending.values() for pending in group]
        if every:
            written = iter(self._write(every))
            for collection, group in self._pending.items():
                self._parts.setdefault(collection, []).extend(next(written) for _ in group)
        return self._parts

    def _write(self, pending: Sequence[Pending]) -> tuple[Part, ...]:
        name = f"{self.name}.{self._objects}"
        self._objects += 1
        return self.writing.write(pending, name)


def _pieces(target: Target, updates: pa.Table) -> Iterable[pa.Table]:
    if target.key:
        return hash_ranges(updates, target.key)
    offsets = range(0, updates.num_rows, PART_ROWS_TARGET)
    return (updates.slice(offset, PART_ROWS_TARGET) for offset in offsets)

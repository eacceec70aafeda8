"""The envelope of an upsert in a task: one share of the keys of a large range, folded and written.

    put aside by all pieces ─▶ of this share ─▶ newest of each key ─▶ what it does ─▶ parts
                                                                       ▲
                             the output as it was before the range ────┘  (by reference)

A share has all that the range tells of its keys, and nothing of any other key
(``storage/upsert_range.py``); so tasks need nothing of each other, and together they write what the
server's process would have written, by the same functions. Memory is that of some batches: a share
is taken up one range of hashes after the other. A task commits nothing.

Relied on by: ``storage/written_by_tasks.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from headwater.persist.batch import Part, Segment
from headwater.persist.spark_parts import Target, Writing
from headwater.storage.envelope import Upsert
from headwater.storage.keyed_state import Before
from headwater.storage.tasks import both_sides
from headwater.storage.upsert_range import UpsertRange


class Folded(msgspec.Struct, frozen=True):
    """What a task has written."""

    parts: tuple[Part, ...]
    updates: int


@dataclass(frozen=True, slots=True)
class FoldTask:
    """What one task does."""

    output: str
    envelope: Upsert
    target: Target
    before: Before
    errors: Mapping[str, str]
    """Those that keys of the output have before the range."""
    told: tuple[Segment, ...]
    writing: Writing

    def __call__(self, attempt: str) -> bytes:
        """Write the parts of the share; return their descriptors."""
        share = UpsertRange(self.envelope, self.output, self.before.asked(), self.errors)
        share.take(self.writing.place.blob(read_only=True), self.told)
        parts: list[Part] = []
        updates = 0
        for number, changes in enumerate(share.rest()):
            # All of it is at times that the output lacks: older messages were not put aside.
            updates += changes.updates.num_rows
            parts += self.writing.write(both_sides(self.target, changes), f"{attempt}.{number}")
        return msgspec.msgpack.encode(Folded(tuple(parts), updates))

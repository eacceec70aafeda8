"""A large range written by tasks, as the server's process sees it: what to run, what came of it.

    pieces ─▶ one task each: read, stamp, decode     ─▶ parts; of upserts, what is put aside
    shares ─▶ one task each: envelope of an upsert   ─▶ parts
              (``storage/tasks.py``, ``fold_task.py``)    │
                                                          └─▶ one entry, by the ingestion

**Where something fails** nothing is durable, and nothing is lost: a range that tasks could not read
is read by the server's process, and a share that they could not fold is folded there with all the
others of its range, from what was put aside. So what is wrong is found there, with its own class
and remedy. What failed tasks have written is referred to by nobody, and is swept.

An upsert that tells of few keys (:data:`FOLD_MIN`) is folded by the server's process: another job
would cost more than it saves.

While tasks look keys up in an output, the snapshot that they were given is held here.

Relied on by: ``storage/ingestion.py``, which commits.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from headwater.base.decoding import from_msgpack
from headwater.base.errors import ExternalError
from headwater.persist.batch import Part, Segment
from headwater.persist.core import Core
from headwater.persist.decision import collection_of
from headwater.persist.read import Snapshot
from headwater.persist.spark_parts import Place, Target
from headwater.storage.envelope import Envelope, Upsert
from headwater.storage.fold_task import Folded, FoldTask
from headwater.storage.kept import Kept
from headwater.storage.keyed_changes import Keyed
from headwater.storage.remap import Remap
from headwater.storage.source import Piece, Source
from headwater.storage.tasks import Aside, Into, PieceTask, Tasks, Written

LOG: Final = logging.getLogger(__name__)

FOLD_MIN: Final = 100_000
"""Below this many rows put aside, an upsert is folded where it is asked for."""


@dataclass(slots=True)
class Found:
    """What tasks have made of a range."""

    parts: dict[str, list[Part]]
    letters: list[Part]
    told: dict[str, list[Aside]]
    """What they put aside, of each upsert."""
    messages: int
    bytes: int
    updates: int
    dead_letters: int
    folded: set[str] = field(default_factory=set)

    @property
    def unfolded(self) -> dict[str, list[Segment]]:
        """What is still to be folded, of each upsert."""
        left = {name: told for name, told in self.told.items() if name not in self.folded}
        return {name: [each.where for each in told] for name, told in left.items() if told}

    def forget(self, core: Core) -> None:
        """Delete what was put aside; all of it is folded."""
        for key in {each.where.key for told in self.told.values() for each in told}:
            with suppress(ExternalError):  # Otherwise it is swept, later.
                core.blob.delete(key)


@dataclass(frozen=True, slots=True)
class RangeByTasks:
    """A range, the outputs it is for as they are before it, and who does the work."""

    core: Core
    place: Place
    tasks: Tasks
    source: Source
    remap: Remap
    outputs: Mapping[str, tuple[Envelope | Keyed, Kept]]
    letters: Kept

    def written(self, pieces: Sequence[Piece]) -> Found | None:
        """Let tasks write the range; ``None`` if they could not."""
        try:
            found = self._read(pieces)
        except Exception:
            LOG.warning("source %s: tasks could not read a range", self.source.name, exc_info=True)
            return None
        upserts = {
            name: (envelope, kept)
            for name, (envelope, kept) in self.outputs.items()
            if isinstance(envelope, Upsert)
            and sum(each.rows for each in found.told[name]) >= FOLD_MIN
        }
        try:
            self._fold(upserts, found)
        except Exception:
            LOG.warning("source %s: tasks could not fold a range", self.source.name, exc_info=True)
        return found

    def _read(self, pieces: Sequence[Piece]) -> Found:
        into = {
            name: Into(envelope, self._target(kept), kept.upper)
            for name, (envelope, kept) in self.outputs.items()
        }
        dead, upper, under = self._target(self.letters), self.letters.upper, self.tasks.writing()
        shares = self.tasks.at_once
        work = [
            PieceTask(self.source, piece, self.remap, into, dead, upper, under, shares)
            for piece in pieces
        ]
        written = [from_msgpack(answer, Written) for answer in self.tasks.run(work)]
        return Found(
            {name: [part for each in written for part in each.outputs[name]] for name in into},
            [part for each in written for part in each.letters],
            {name: [aside for each in written for aside in each.told[name]] for name in into},
            sum(each.messages for each in written),
            sum(each.bytes for each in written),
            sum(each.updates for each in written),
            sum(each.dead_letters for each in written),
        )

    def _fold(self, upserts: Mapping[str, tuple[Upsert, Kept]], found: Found) -> None:
        held: list[Snapshot | None] = []
        work: list[FoldTask] = []
        for name, (envelope, kept) in upserts.items():
            assert kept.state is not None
            as_of = kept.as_of(self.remap.birth)
            before, snapshot = kept.state.before(self.place, as_of)
            held.append(snapshot)
            errors, target = kept.state.errors(as_of), self._target(kept)
            under = self.tasks.writing()
            shares: dict[int, list[Segment]] = {}
            for aside in found.told[name]:
                shares.setdefault(aside.share, []).append(aside.where)
            work += [
                FoldTask(name, envelope, target, before, errors, tuple(told), under)
                for _, told in sorted(shares.items())
            ]
        # All of an output, or nothing of it: what goes wrong does so before this list is whole.
        answers = [from_msgpack(each, Folded) for each in self.tasks.run(work)] if work else []
        held.clear()
        for task, folded in zip(work, answers, strict=True):
            found.parts[task.output] += folded.parts
            found.updates += folded.updates
            found.folded.add(task.output)

    def _target(self, kept: Kept) -> Target:
        return Target.of(collection_of(self.core.state, kept.write.id))

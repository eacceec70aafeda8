"""A large range read by tasks: each reads, stamps, decodes and writes its piece; none commits.

    range ──▶ pieces ──▶ task: read ─▶ stamp ─▶ envelope ─▶ parts in the blob ──▶ descriptors
              (source)                                                             (driver commits)

A task is given values only: the source (which another process can open), the piece, the bindings,
the envelopes, where each output is, and under which names it may write. So it makes of its piece
what the server's process would have made of it, and the parts become visible by the same entry.

What the messages of an upsert do depends on messages of other pieces. So its tasks decode them, and
put aside what they tell, the newest of each key, by shares of the keys; what that does to the
output other tasks find (``storage/fold_task.py``).

What is small, or what only the server can do (a truncation asks the output, a location in memory),
never comes here: :func:`planned` says so by ``None``. A
range that tasks fail to read is read in the server's process: what is wrong is found there, with
its own class and remedy.

Relied on by: ``storage/written_by_tasks.py``. No Spark here; whoever has one is a :class:`Tasks`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec
import pyarrow as pa

from headwater.persist.batch import Part, Segment
from headwater.persist.evolution import ERROR_SCHEMA
from headwater.persist.part import Pending, check_updates
from headwater.persist.spark_parts import Target, Writing
from headwater.storage.envelope import Changes, Envelope, Upsert
from headwater.storage.keyed_changes import Keyed
from headwater.storage.remap import Remap
from headwater.storage.source import Divisible, Piece, Records, Source
from headwater.storage.stamp import since, stamped
from headwater.storage.told import told
from headwater.storage.upsert_range import put_aside_in_shares

MESSAGES_MIN: Final = 200_000
"""Below this a range is read where it is asked for: a job costs more than it saves."""


class Aside(msgspec.Struct, frozen=True):
    """What was put aside of a share of an output's keys."""

    share: int
    rows: int
    where: Segment


class Written(msgspec.Struct, frozen=True):
    """What a task has done: parts of each output and of the dead letters, and its counts."""

    outputs: dict[str, tuple[Part, ...]]
    told: dict[str, tuple[Aside, ...]]
    """Of upserts: what was put aside."""
    letters: tuple[Part, ...]
    messages: int
    bytes: int
    updates: int
    dead_letters: int


class Tasks(Protocol):
    """Somewhere else to run things."""

    def run(self, work: Sequence[Callable[[str], bytes]]) -> list[bytes]:
        """Run each, given the name of its attempt; return what they returned, in order."""
        ...

    def writing(self) -> Writing:
        """Return under which names tasks of this range write: others each time."""
        ...

    @property
    def at_once(self) -> int:
        """How many run at a time."""
        ...


@dataclass(frozen=True, slots=True)
class Into:
    """An output as a task sees it: what it is, and how far it is complete already."""

    envelope: Envelope | Keyed
    target: Target
    upper: int


@dataclass(frozen=True, slots=True)
class PieceTask:
    """What one task does."""

    source: Source
    piece: Piece
    remap: Remap
    outputs: Mapping[str, Into]
    letters: Target
    letters_upper: int
    writing: Writing
    shares: int
    """Into how many the keys of an upsert are cut."""

    def __call__(self, attempt: str) -> bytes:
        """Write the parts of the piece; return their descriptors."""
        parts: dict[str, list[Part]] = {name: [] for name in self.outputs}
        aside: dict[str, list[Aside]] = {name: [] for name in self.outputs}
        letters: list[Part] = []
        counts = [0, 0, 0, 0]
        try:
            for number, records in enumerate(self._wanted()):
                into = self.outputs[records.output]
                under = f"{attempt}.{number}"
                changes, told_of = self._made(into, records, under)
                aside[records.output] += told_of
                sides = both_sides(into.target, changes)
                dead = _pending(self.letters, changes.letters, errors=False)
                written = self.writing.write([*sides, *dead], under)
                parts[records.output] += written[: len(sides)]
                letters += written[len(sides) :]
                table = records.table
                counted = (table.num_rows, table.nbytes, changes.updates.num_rows)
                for place, count in enumerate((*counted, changes.letters.num_rows)):
                    counts[place] += count
        finally:
            self.source.close()
        outputs = {name: tuple(there) for name, there in parts.items()}
        segments = {name: tuple(there) for name, there in aside.items()}
        return msgspec.msgpack.encode(Written(outputs, segments, tuple(letters), *counts))

    def _wanted(self) -> Iterator[Records]:
        for records in self.source.read(self.piece.lower, self.piece.upper):
            if records.output in self.outputs:
                yield records

    def _made(self, into: Into, records: Records, under: str) -> tuple[Changes, list[Aside]]:
        """Return what records do, and what they tell where that is not known here."""
        envelope, piece = into.envelope, self.piece
        times = stamped(self.source.name, self.remap, records.table, piece.lower, piece.upper)
        aside: list[Aside] = []
        if isinstance(envelope, Upsert):
            found = told(envelope, records.output, since(times, into.upper))
            if found.table.num_rows:
                runs = put_aside_in_shares(envelope, [found.table], self.shares)
                places = self.writing.put_aside([data for _, _, data in runs], f"{under}.told")
                for (share, rows, _), where in zip(runs, places, strict=True):
                    aside.append(Aside(share, rows, where))
            changes = found.refused
        else:
            changes = envelope.changes(records.output, times)
        changes = Changes(
            since(changes.updates, into.upper),
            since(changes.errors, into.upper),
            since(changes.letters, self.letters_upper),
        )
        return changes, aside


def both_sides(target: Target, changes: Changes) -> list[Pending]:
    """Return what is to be written of changes to an output: rows and errors, where there are."""
    return [
        *_pending(target, changes.updates, errors=False),
        *_pending(target, changes.errors, errors=True),
    ]


def _pending(target: Target, updates: pa.Table, *, errors: bool) -> list[Pending]:
    if not updates.num_rows:
        return []
    schema = ERROR_SCHEMA if errors else target.schema
    checked = check_updates(target.name, updates, schema)
    return [Pending(checked, target.version, target.layout, target.key, errors)]


def planned(
    source: Source, pieces_of: Callable[[Divisible], Sequence[Piece]]
) -> Sequence[Piece] | None:
    """Return the pieces that tasks should read; ``None`` if the range is better read here."""
    if not isinstance(source, Divisible):
        return None
    pieces = pieces_of(source)
    if sum(piece.messages for piece in pieces) < MESSAGES_MIN:
        return None
    return pieces

"""Settled runs: what the older parts of a collection come to, kept for the queries that follow.

Rows that are taken away can be hidden in a keyed run (``columns/frame.py``), not in a Parquet file,
and there only if the parts that take away are few rows. So a table without key after an UPDATE, or
a view whose rows change, would be read by Python tasks, all of it, for every query. Instead the
*base*, all but the newest few, is read once by a task and written down as one keyed run:

    rows of the settled run  ==  the rows of its base, each as often as it is there
    settled run  +  the parts that are not in the base  ==  the snapshot

Its key is the whole row, so every row that the others take away is found. It is a copy in a scratch
directory, referred to by no log, and goes with this process.

It is made when a base is asked for the second time: who asks once would only wait for it. It serves
as long as all parts of its base are parts of what is read and the others are few: until a merge
takes one of them away. There are none of a base that is too large, or has a row fewer than no times
(something retracted what comes later).

The least lately used go first where there are too many, but none that a snapshot still reads.

Kept by: this module. Relied on by: ``columns/frame.py``.
"""

from __future__ import annotations

import secrets
import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import xxhash

from headwater.base.scratch import Scratch
from headwater.collection.run import Run, write_run
from headwater.persist.batch import Inline, Part, Segment
from headwater.persist.consolidate import consolidate
from headwater.persist.evolution import DIFF, TIME
from headwater.persist.multiplicity import repeat_rows
from headwater.persist.read import Snapshot
from headwater.persist.spark import DRIVER_ROWS_MAX, run_in_background
from headwater.persist.spark_parts import Reading

SETTLED_ROWS_MAX: Final = 2_000_000
"""A task holds so many rows in memory, some times over."""
SETTLED_BYTES_MAX: Final = 256 << 20
"""How much all of them may take on disk."""
ASKED_MAX: Final = 256

Place = tuple[str, int, tuple[int, int] | None]
"""An object (or what the log has itself), where a part begins in it, and the times it shows."""
Base = frozenset[Place]


class Found(NamedTuple):
    """A settled run, where it lies, and the parts of the snapshot that are not in it."""

    run: Run
    path: str
    rest: list[Part]


@dataclass(slots=True)
class _Kept:
    run: Run
    path: Path
    size: int
    readers: int = 0


class SettledRuns:
    """Those of one location. Safe to call from several threads."""

    def __init__(self, *, bytes_max: int = SETTLED_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        # A snapshot may be let go wherever memory is looked through: also in here.
        self._lock = threading.RLock()
        self._building = threading.Lock()
        self._kept: OrderedDict[Base, _Kept] = OrderedDict()
        self._asked: OrderedDict[Base, int] = OrderedDict()
        self._scratch: Scratch | None = None

    def serving(self, snapshot: Snapshot) -> Found | None:
        """Return the settled run for a snapshot, if there is one; it stays while that lives."""
        parts = _of_rows(snapshot)
        here = _places(parts)
        with self._lock:
            for base, kept in self._kept.items():
                if not base <= here:
                    continue
                rest = [part for part in parts if _place(part) not in base]
                if sum(part.rows for part in rest) <= DRIVER_ROWS_MAX:
                    self._kept.move_to_end(base)
                    kept.readers += 1
                    weakref.finalize(snapshot, self._released, kept)
                    return Found(kept.run, str(kept.path), rest)
        return None

    def made(self, session: Any, snapshot: Snapshot, reading: Reading) -> Found | None:
        """Make the settled run for a snapshot, if it is worth it."""
        base = base_of(_of_rows(snapshot))
        if not base or not self._is_wanted(_places(base)):
            return None
        with self._building:
            found = self.serving(snapshot)
            if found is not None:  # Another has made it meanwhile.
                return found
            self._make(session, reading, base, snapshot.schema.names)
        return self.serving(snapshot)

    def _released(self, kept: _Kept) -> None:
        with self._lock:
            kept.readers -= 1

    def _is_wanted(self, base: Base) -> bool:
        """Count who asks; whether somebody has asked before. Less than zero: there is none."""
        with self._lock:
            before = self._asked.setdefault(base, 0)
            self._asked.move_to_end(base)
            if before >= 0:
                self._asked[base] = before + 1
            while len(self._asked) > ASKED_MAX:
                self._asked.popitem(last=False)
        return before > 0

    def _make(
        self, session: Any, reading: Reading, parts: Sequence[Part], names: list[str]
    ) -> None:
        path = self._folder() / secrets.token_hex(8)
        try:
            (written,) = run_in_background(session, [lambda _: settle(reading, parts, names, path)])
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        base = _places(parts)
        with self._lock:
            if written:
                self._kept[base] = _Kept(Run.open(path), path, path.stat().st_size)
                self._shrink()
            if base not in self._kept:
                self._asked[base] = -1

    def _shrink(self) -> None:
        size = sum(kept.size for kept in self._kept.values())
        for base, kept in list(self._kept.items()):
            if size <= self._bytes_max:
                return
            if not kept.readers:
                del self._kept[base]
                kept.path.unlink(missing_ok=True)
                size -= kept.size

    def _folder(self) -> Path:
        if self._scratch is None:
            self._scratch = Scratch("settled")
            weakref.finalize(self, self._scratch.close)
        return self._scratch.path


def base_of(parts: Sequence[Part]) -> list[Part]:
    """Return the parts to settle, all but a few of the newest; none if they are too many rows.

    What comes later may take away what came before, never the other way round.
    """
    rest = 0
    for end in range(len(parts), 0, -1):
        rest += parts[end - 1].rows
        # Half of what may stay: others will come before it is made anew.
        if rest > DRIVER_ROWS_MAX // 2:
            base = list(parts[:end])
            # Places tell parts apart, but for twins in the log, which nobody ever wrote.
            told_apart = len(_places(base)) == len(base)
            few = sum(part.rows for part in base) <= SETTLED_ROWS_MAX
            return base if few and told_apart else []
    return []


def _of_rows(snapshot: Snapshot) -> list[Part]:
    return [part for part in snapshot.parts if not part.errors]


def _place(part: Part) -> Place:
    match part.where:
        case Segment(key=key, offset=offset):
            return key, offset, part.window
        case Inline(data=data):
            return xxhash.xxh3_128_hexdigest(data), 0, part.window


def _places(parts: Sequence[Part]) -> Base:
    return frozenset(map(_place, parts))


def settle(reading: Reading, parts: Sequence[Part], names: list[str], path: Path) -> bytes:
    """Write the settled run of parts; in a task. Returns nothing if there is none."""
    updates = (reading.updates(part).select([*names, DIFF]) for part in parts)
    multiset = consolidate(pa.concat_tables(updates))
    diffs = multiset.column(DIFF).to_numpy()
    if (diffs < 0).any() or diffs.sum() > SETTLED_ROWS_MAX:
        return b""
    rows = repeat_rows(multiset, reading.collection.name)
    for name, value in ((TIME, 0), (DIFF, 1)):
        rows = rows.append_column(
            pa.field(name, pa.int64(), nullable=False),
            pa.array(np.full(len(rows), value, np.int64)),
        )
    try:
        path.write_bytes(write_run(rows, names))
    except OSError:  # The disk is full, say: nobody needs it to read on.
        path.unlink(missing_ok=True)
        return b""
    return b"settled"

"""Combining in tasks: the documents of a large interval, grouped by key where there are many cores.

    parts ─▶ scatter: a task per part; its rows by slices of the key hash, in one object
          ─▶ combine: a task per slice; all its rows, combined, ordered by packed key, in one object
          ─▶ each shard maps the runs of its slices, and reads them together (``gather``)

The slices of a shard tile its key range, so all updates of a key meet in one task, and what comes
of it is what the driver process would have made: the same functions, of the same rows. No task
commits anything. Objects are named as those of a step of ours: removed when they were read, and
whatever a failed attempt or a crash has left is swept as garbage.

Invariant:      the run of a shard is that of :func:`~.gather.gather`, byte for byte.
                A slice has about a spill limit of rows, so no task needs more memory than that,
                unless a part or a key alone has more.
Relied on by:   sessions, where an interval has at least :data:`ROWS_MIN` rows: below, starting
                tasks costs more than they save.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from headwater.base.decoding import from_msgpack
from headwater.base.errors import HeadwaterError, InvalidUsage
from headwater.base.scratch import nameless, path_of
from headwater.materialize.combine import Bound
from headwater.materialize.gather import Run
from headwater.materialize.key_range import KeyHash, KeyRange, key_hashes
from headwater.materialize.spill import pack_key
from headwater.persist.consolidate import consolidate
from headwater.persist.core import Core
from headwater.persist.interval import Interval
from headwater.persist.location import Blob
from headwater.persist.part import PartName, create_object
from headwater.persist.spark_parts import Cut, Place, Reading, place_of

ROWS_MIN: Final = 4_000_000
"""From how many updates on an interval is combined in tasks. Measured on two cores: about 1.5 s and
2.3 CPU-s per million updates in tasks, 0.5 s per million in the driver process, which on 16 cores
meet here and on two nowhere (``benches/materialize.py --combine``)."""

SLICES_MIN: Final = 2
"""Into how many slices it is cut at least, so that there is something to share."""

Tasks = Callable[[Sequence[Callable[[str], bytes]]], list[bytes]]
"""Runs each in a task, given the name of its attempt; returns what they returned, in order."""


class CannotCombine(InvalidUsage):
    """What a task said of a row that cannot be delivered."""


class Scattered(msgspec.Struct, frozen=True):
    """What a task has written of a part."""

    key: str = ""
    slices: tuple[tuple[int, int], ...] = ()
    """Offset and length of each slice; a length of 0: it has no rows."""


class Sliced(msgspec.Struct, frozen=True):
    """What a task has made of a slice; no key: nothing is left of it."""

    key: str = ""
    refused: str = ""


def scatter(
    reading: Reading,
    cut: Cut,
    key: tuple[str, ...],
    slices: tuple[KeyRange, ...],
    name: PartName,
    attempt: str,
) -> bytes:
    """Write the rows of a part, slice by slice."""
    begins = np.array([one.begin for one in slices], np.uint32)
    found: list[list[pa.Table]] = [[] for _ in slices]
    for updates in cut.read(reading):
        if not updates.num_rows:
            continue
        numbers = np.searchsorted(begins, key_hashes(pack_key(updates, key)), "right") - 1
        for number in np.unique(numbers):
            found[number].append(updates.filter(pa.array(numbers == number)))
    body, places = bytearray(), []
    for tables in found:
        content = _encoded(consolidate(pa.concat_tables(tables))) if tables else b""
        places.append((len(body), len(content)))
        body += content
    if not body:
        return msgspec.msgpack.encode(Scattered())
    written = _write(reading.place, name, attempt, bytes(body))
    return msgspec.msgpack.encode(Scattered(written, tuple(places)))


def combine_slice(
    reading: Reading,
    bound: Bound,
    upper: int,
    segments: tuple[tuple[str, int, int], ...],
    name: PartName,
    attempt: str,
) -> bytes:
    """Combine all rows of a slice; write them ordered by packed key."""
    blob = reading.place.blob(read_only=True)
    tables = [_decoded(_segment(blob, *segment)) for segment in segments]
    try:
        ordered = bound.ordered(pa.concat_tables(tables), upper, KeyRange.full())
    except HeadwaterError as error:
        # The row is at fault, not the task: to try again would not help, and it must be named.
        return msgspec.msgpack.encode(Sliced(refused=str(error)))
    if not ordered.num_rows:
        return msgspec.msgpack.encode(Sliced())
    return msgspec.msgpack.encode(Sliced(_write(reading.place, name, attempt, _encoded(ordered))))


def _encoded(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def _decoded(data: Any) -> pa.Table:
    return pa.ipc.open_file(data).read_all()


def _segment(blob: Blob, key: str, offset: int, length: int) -> pa.Buffer:
    data = blob.get_range(key, offset, length)
    assert data is not None, f"object {key} of our own step is not there"
    return pa.py_buffer(data)


def _write(place: Place, name: PartName, attempt: str, data: bytes) -> str:
    named = msgspec.structs.replace(name, attempt=f"{name.attempt}.{attempt}")
    create_object(place.blob(read_only=False), named.key, data)
    return named.key


def sliced(key_range: KeyRange, count: int) -> tuple[KeyRange, ...]:
    """Return so many ranges that tile a range, ascending; fewer, if it has fewer hashes.

    >>> sliced(KeyRange.full(), 2) == KeyRange.full().split()
    True
    """
    size = key_range.end - key_range.begin + 1
    count = min(count, size)
    bounds = [key_range.begin + size * number // count for number in range(count + 1)]
    return tuple(KeyRange(KeyHash(begin), KeyHash(end - 1)) for begin, end in pairwise(bounds))


class Combiner:
    """Combines the large intervals of one materialization, for all of its shards at once."""

    def __init__(
        self, core: Core, tasks: Tasks, ranges: Sequence[KeyRange], rows_min: int | None = None
    ) -> None:
        self._core = core
        self._tasks = tasks
        self._ranges = tuple(ranges)
        self._rows_min = ROWS_MIN if rows_min is None else rows_min
        self._lock = threading.Lock()
        self._made: dict[int, tuple[tuple[int, int], dict[KeyRange, list[pa.Table]]]] = {}
        """By binding, the interval that was combined last, and what nobody has taken of it."""

    def run(
        self, bound: Bound, interval: Interval, upper: int, key_range: KeyRange, limit_bytes: int
    ) -> Run | None:
        """Return a shard's part of an interval, combined; ``None`` if that is no work for tasks."""
        place = place_of(self._core)
        # Which of several rows is chosen depends on more than an interval.
        if place is None or interval.ok.rows < self._rows_min or bound.chooses:
            return None
        bound.check_columns(interval.schema.names)
        asked = (interval.ok.lower, interval.ok.upper)
        # Who comes second waits for the first, which combines for both.
        with self._lock:
            of, made = self._made.get(bound.index, (None, {}))
            if of != asked or key_range not in made:
                ranges = self._ranges if key_range in self._ranges else (key_range,)
                reading = Reading.of(place, interval.collection)
                made = self._combined(reading, bound, interval.ok, upper, ranges, limit_bytes)
                self._made[bound.index] = (asked, made)
            return Run(bound, made.pop(key_range), limit_bytes)

    def _combined(
        self,
        reading: Reading,
        bound: Bound,
        cut: Cut,
        upper: int,
        ranges: Sequence[KeyRange],
        limit_bytes: int,
    ) -> dict[KeyRange, list[pa.Table]]:
        # Rows in memory take about four times the bytes of a compressed part.
        pieces = 1 + 4 * sum(part.size_bytes for part in cut.parts) // limit_bytes
        each = max(1, -(-max(SLICES_MIN, pieces) // len(ranges)))
        slices = [(owner, one) for owner in ranges for one in sliced(owner, each)]
        written: list[str] = []
        with self._core.step() as step:
            try:
                tiles = tuple(one for _, one in slices)
                scattered = self._scattered(reading, cut, bound.binding.key, tiles, step.name())
                written += [found.key for found in scattered if found.key]
                work, owners = [], []
                for number, (owner, _) in enumerate(slices):
                    segments = tuple(
                        (found.key, *found.slices[number])
                        for found in scattered
                        if found.key and found.slices[number][1]
                    )
                    if segments:
                        one = (reading, bound, upper, segments, step.name())
                        work.append(partial(combine_slice, *one))
                        owners.append(owner)
                answers = [
                    from_msgpack(answer, Sliced) for answer in (self._tasks(work) if work else ())
                ]
                written += [answer.key for answer in answers if answer.key]
                made: dict[KeyRange, list[pa.Table]] = {owner: [] for owner in ranges}
                for owner, answer in zip(owners, answers, strict=True):
                    if answer.refused:
                        raise CannotCombine(answer.refused)
                    if answer.key:
                        made[owner].append(self._mapped(answer.key))
                return made
            finally:
                for key in written:
                    self._core.blob.delete(key)

    def _scattered(
        self,
        reading: Reading,
        cut: Cut,
        key: tuple[str, ...],
        slices: tuple[KeyRange, ...],
        name: PartName,
    ) -> list[Scattered]:
        work = [
            partial(
                scatter,
                reading,
                Cut((part,), cut.lower, cut.upper, cut.hydrating),
                key,
                slices,
                name,
            )
            for part in cut.parts
        ]
        return [from_msgpack(one, Scattered) for one in self._tasks(work)]

    def _mapped(self, key: str) -> pa.Table:
        """Return the rows of an object, mapped; it need not be there any longer."""
        path = self._core.blob.local_path(key)
        if path is not None:
            return _decoded(pa.memory_map(str(path)))
        data = self._core.blob.get(key)
        assert data is not None, f"object {key} of our own step is not there"
        with nameless() as file:
            file.write(data)
            file.flush()
            return _decoded(pa.memory_map(path_of(file)))

"""Parts as Spark tasks see them: descriptors that travel, and what a task does with them.

Spark cannot read a Parquet file that begins inside another object, and knows no keyed runs; so
Python tasks read and write parts with the very functions the driver uses (``persist/part.py``):
the checksum of every segment is verified wherever it is read. What travels is a
:class:`Reading` (a collection without its batches) with the parts to read, and a :class:`Writing`
(names, not rights: **no task ever commits**); the bytes go between task and blob.

A task writes under a part name whose attempt says which job, stage, partition and attempt it was,
so that a retry, a speculative twin or a zombie never meets another's object. The driver commits
only the descriptors that came back; what the others wrote is referred to by nobody and is swept
once the step is closed.

No Spark is imported here. Kept by: ``persist/spark.py``, ``compute``, which run these in tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final

import msgspec
import pyarrow as pa
import xxhash

from headwater.base.decoding import from_msgpack
from headwater.persist import evolution
from headwater.persist.batch import Part, Segment
from headwater.persist.blob import open_blob
from headwater.persist.compact import advance
from headwater.persist.core import Core
from headwater.persist.errors import AsOfBeforeSince, PartCollected
from headwater.persist.layout import Layouts
from headwater.persist.location import Blob
from headwater.persist.part import (
    PART_ROWS_TARGET,
    WHOLE,
    PartMissing,
    PartName,
    Pending,
    Share,
    check_updates,
    create_object,
    read_part,
    write_parts,
)
from headwater.persist.read import check_readable, parts_at
from headwater.persist.state import CollectionState, bound
from headwater.persist.unsealed import UnsealedWrites

BLOBS_OPEN_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class Place:
    """Where objects are, for a process that has only this value."""

    url: str
    layouts: Layouts

    def blob(self, *, read_only: bool) -> Blob:
        """Open the blob, once per process."""
        return _blob(self.url, read_only)

    def fetch(self, segment: Segment) -> Any:
        """Return the bytes of a segment, mapped where that is possible; ``None``: it is gone."""
        blob = self.blob(read_only=True)
        path = blob.local_path(segment.key)
        if path is None:
            return blob.get_range(segment.key, segment.offset, segment.length)
        try:
            with pa.memory_map(str(path)) as mapped:
                mapped.seek(segment.offset)
                return mapped.read_buffer(segment.length)
        except FileNotFoundError:
            return None


@lru_cache(maxsize=BLOBS_OPEN_MAX)
def _blob(url: str, read_only: bool) -> Blob:
    return open_blob(url, read_only=read_only)


def place_of(core: Core) -> Place | None:
    """Return where tasks find the objects of a runtime; ``None`` if only this process can."""
    url = getattr(core.blob, "url", None)
    return None if url is None else Place(url, core.layouts)


@dataclass(frozen=True, slots=True)
class Reading:
    """A collection whose parts a task may read."""

    place: Place
    collection: CollectionState

    @staticmethod
    def of(place: Place, collection: CollectionState) -> Reading:
        """Leave out what grows with the collection's history: a task needs names and schemas."""
        slim = msgspec.structs.replace(
            collection,
            batches=(),
            unsealed=UnsealedWrites(),
            tokens=(),
            readers={},
            writers={},
        )
        return Reading(place, slim)

    @property
    def schema(self) -> pa.Schema:
        """The columns of its updates."""
        return evolution.with_system_columns(self.collection.schemas[-1])

    def updates(self, part: Part, share: Share = WHOLE) -> pa.Table:
        """Return the updates of a part, or of a share of it, verified."""
        read, fetch, layouts = self.collection, self.place.fetch, self.place.layouts
        try:
            return read_part(part, read, fetch=fetch, layouts=layouts, share=share)
        except PartMissing as missing:
            raise PartCollected(self.collection.name, missing.key) from missing


@dataclass(frozen=True, slots=True)
class Cut:
    """The updates of a collection at times in ``[lower, upper)``, as parts still to be read.

    In a *hydrating* cut the history before ``lower`` is at ``lower``: the snapshot at ``lower``,
    then what came after it.
    """

    parts: tuple[Part, ...]
    lower: int
    upper: int
    hydrating: bool = False

    @property
    def rows(self) -> int:
        """At most how many updates there are."""
        return sum(part.rows for part in self.parts)

    def read(self, reading: Reading) -> Iterator[pa.Table]:
        """Yield the updates, part by part."""
        for part in self.parts:
            yield advance(reading.updates(part), self.lower)


def cut(
    collection: CollectionState, lower: int, upper: int, *, hydrating: bool = False
) -> tuple[Cut, Cut]:
    """Return the updates of both sides (ok, errors) in ``[lower, upper)``, by reference.

    Refuses an interval whose times were compacted: the updates could not be told apart.
    """
    if hydrating:
        check_readable(collection.name, collection, lower)
        parts = list(parts_at(collection, upper - 1))
    else:
        parts = list(_parts_between(collection, lower, upper))
    ok, errors = (
        Cut(tuple(p for p in parts if p.errors is side), lower, upper, hydrating)
        for side in (False, True)
    )
    return ok, errors


def _parts_between(collection: CollectionState, lower: int, upper: int) -> Iterator[Part]:
    for batch in collection.batches:
        if bound(batch.upper) <= lower or bound(batch.lower) >= upper:
            continue
        # Times of the batch were advanced to its since: at or after ours they must be their own,
        # also where nothing is left, because what cancelled out may have been ours to see.
        if bound(batch.since) > max(lower - 1, bound(batch.lower)):
            raise AsOfBeforeSince(collection.name, lower - 1, collection.since)
        for part in batch.parts:
            seen = part.through(lower, upper)
            if seen is not None:
                yield seen


@dataclass(frozen=True, slots=True)
class Writing:
    """The right to create objects under one step; ``name`` has no attempt yet."""

    place: Place
    name: PartName

    def write(self, pending: Sequence[Pending], attempt: str) -> tuple[Part, ...]:
        """Write parts as one object of this attempt; visible to nobody."""
        blob, layouts = self.place.blob(read_only=False), self.place.layouts
        return write_parts(pending, blob=blob, name=self._of(attempt), layouts=layouts)

    def put_aside(self, data: Sequence[bytes], attempt: str) -> tuple[Segment, ...]:
        """Write what is to be read while the step is open, as one object; swept when it is closed.

        Each keeps the alignment that its length gives the next one.
        """
        key = self._of(attempt).key
        create_object(self.place.blob(read_only=False), key, b"".join(data))
        ends = list(accumulate(map(len, data), initial=0))
        return tuple(
            Segment(key, start, len(each), xxhash.xxh3_64_intdigest(each))
            for start, each in zip(ends, data, strict=False)
        )

    def _of(self, attempt: str) -> PartName:
        return msgspec.structs.replace(self.name, attempt=f"{self.name.attempt}.{attempt}")


@dataclass(frozen=True, slots=True)
class Target:
    """The collection a task writes updates for."""

    name: str
    schema: pa.Schema
    version: int
    layout: str
    key: tuple[str, ...]

    @staticmethod
    def of(collection: CollectionState) -> Target:
        """Write in the newest schema of a collection."""
        return Target(
            collection.name,
            evolution.from_bytes(collection.schemas[-1]),
            len(collection.schemas) - 1,
            collection.layout,
            collection.key,
        )

    def pending(
        self, updates: pa.Table, *, consolidated: bool = False, brief: bool = False
    ) -> Pending:
        """Return updates ready to be written; they must have the collection's columns."""
        checked = check_updates(self.name, updates, self.schema)
        return Pending(checked, self.version, self.layout, self.key, False, consolidated, brief)

    def pieces(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Pending]:
        """Gather batches into parts of a good size; memory is that of one of them."""
        expected = evolution.updates_schema(self.schema)
        held: list[pa.Table] = []
        rows = 0
        for batch in batches:
            table = pa.Table.from_batches([batch]).select(expected.names)
            held.append(table.cast(_with_nullability(table.schema, expected)))
            rows += batch.num_rows
            if rows >= PART_ROWS_TARGET:
                yield self.pending(pa.concat_tables(held))
                held, rows = [], 0
        if rows:
            yield self.pending(pa.concat_tables(held))


def _with_nullability(given: pa.Schema, expected: pa.Schema) -> pa.Schema:
    """Return ``expected``'s types; that NOT NULL holds is checked later, with a clear message."""
    return pa.schema([expected.field(name).with_nullable(True) for name in given.names])


def attempt_name(stage: int, partition: int, attempt: int, task: int) -> str:
    """Return the attempt's part of an object name: unique for each run of each task of a job."""
    return f"{stage}.{partition}.{attempt}.{task}"


def encode_parts(parts: Sequence[Part]) -> bytes:
    """Return descriptors as bytes that a task can hand back."""
    return msgspec.msgpack.encode(tuple(parts))


def decode_parts(data: bytes) -> tuple[Part, ...]:
    """Read descriptors back."""
    return from_msgpack(data, tuple[Part, ...])

"""Parts: updates written to where they stay, and read back, verified.

Writing: small updates go inline into the log; larger ones become segments of one blob object, in
the layout of their collection, or as one record batch if they are *brief*: few, and soon merged.
Objects are created exclusively under a name that carries role, epoch, step and attempt:

    part/<role>/<epoch>-<step>-<attempt>

so that an object nobody refers to can be told garbage from work in progress: it is garbage once its
epoch is stale or its step is closed in the log. Nothing is visible before the log says so.

Reading: checksum of the segment, then the layout's own checks, then the window, then the newest
schema (columns the part lacks are NULL).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from headwater.base.errors import Indeterminate
from headwater.base.ids import Epoch, RoleName
from headwater.persist import evolution, stats
from headwater.persist.batch import Inline, Part, Segment
from headwater.persist.consolidate import column_longs
from headwater.persist.errors import Corrupt, SchemaMismatch
from headwater.persist.evolution import DIFF, ERROR_SCHEMA, TIME
from headwater.persist.layout import INLINE, PARQUET, Layouts, ParquetLayout
from headwater.persist.location import Blob
from headwater.persist.state import CollectionState, State

INLINE_BYTES_MAX: Final = 8 * 1024
BRIEF_BYTES_MAX: Final = 128 * 1024
"""Up to here a layout's price is for the part, not for its rows: to write it, to read it again."""
UPDATE_BYTES_MIN: Final = 16
"""Of a time and a diff: what no update has less of."""
PIECE_BYTES: Final = 8 << 20
"""About how many bytes of a part are read at once, where its layout lets us."""
PART_ROWS_TARGET: Final = 1_000_000

Share = tuple[int, int]
"""Of a part, the ``n``-th of ``m`` slices; all of them together are the part."""
WHOLE: Final[Share] = (0, 1)


class PartName(msgspec.Struct, frozen=True):
    """What the key of a part object says."""

    role: RoleName
    epoch: Epoch
    step: int
    attempt: str

    @property
    def key(self) -> str:
        """The object's key."""
        return f"part/{self.role}/{self.epoch}-{self.step}-{self.attempt}"

    @staticmethod
    def parse(key: str) -> PartName | None:
        """Read a key back; ``None`` if it names no part."""
        found = re.fullmatch(r"part/(.+)/(\d+)-(\d+)-([a-z0-9.]+)", key)
        if found is None:
            return None
        role, epoch, step, attempt = found.groups()
        return PartName(RoleName(role), Epoch(int(epoch)), int(step), attempt)

    def is_over(self, state: State) -> bool:
        """Whether nothing new may refer to it: its epoch is stale, or its step closed."""
        role = state.roles.get(self.role)
        if role is None:
            return False
        closed = self.epoch == role.epoch and 0 < self.step < role.closed_step
        return self.epoch < role.epoch or closed


@dataclass(frozen=True, slots=True)
class Pending:
    """Updates of one side of one collection on their way into a part."""

    updates: pa.Table
    schema: int
    layout: str
    key: tuple[str, ...]
    errors: bool
    consolidated: bool = False
    brief: bool = False
    """Merges will soon rewrite them: if they are few, no layout is worth its price."""


def check_updates(name: str, updates: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return ``updates`` in exactly ``schema`` plus system columns, or refuse them."""
    expected = evolution.updates_schema(schema)
    given = updates.schema
    if given.names != expected.names:
        raise SchemaMismatch(name, f"columns are {given.names}, not {expected.names}")
    if given.types != expected.types:
        raise SchemaMismatch(name, _other_type(given, expected))
    if any(column.null_count for column in updates.itercolumns()):
        for field in expected:
            if not field.nullable and updates.column(field.name).null_count:
                raise SchemaMismatch(name, f"column {field.name!r} is NOT NULL and has NULLs")
    # The types are the same: only what may be NULL can be told otherwise.
    return pa.Table.from_arrays(updates.columns, schema=expected)


def _other_type(given: pa.Schema, expected: pa.Schema) -> str:
    had, wanted = next(
        (had, wanted)
        for had, wanted in zip(given, expected, strict=True)
        if had.type != wanted.type
    )
    return f"column {wanted.name!r} has type {had.type}, not {wanted.type}"


def write_parts(
    pending: Sequence[Pending], *, blob: Blob, name: PartName, layouts: Layouts
) -> tuple[Part, ...]:
    """Write everything, in at most one object; return a descriptor for each, in order."""
    parts: list[Part] = []
    body: list[bytes] = []
    length = 0
    for item in pending:
        assert item.updates.num_rows, "an empty part is no part"
        data = _batch_of(item)
        where: Inline | Segment
        if data is not None and len(data) <= INLINE_BYTES_MAX:
            where, layout = Inline(data), INLINE.name
        else:
            layout = PARQUET.name if item.errors else item.layout
            if data is not None and item.brief:
                layout = INLINE.name
            else:
                data = layouts[layout].encode(item.updates, item.key)
            # Segments start on 64-byte boundaries, so that Arrow buffers stay aligned when mapped.
            padding = b"\0" * (-length % 64)
            length += len(padding)
            where = Segment(name.key, length, len(data), xxhash.xxh3_64_intdigest(data))
            body += [padding, data] if padding else [data]
            length += len(data)
        times, diffs = column_longs(item.updates, TIME), column_longs(item.updates, DIFF)
        parts.append(
            Part(
                where=where,
                layout=layout,
                schema=item.schema,
                errors=item.errors,
                rows=item.updates.num_rows,
                diff_sum=int(diffs.sum()),
                time_min=int(times.min()),
                time_max=int(times.max()),
                stats={} if layout == INLINE.name else stats.of(item.updates),
                consolidated=item.consolidated,
            )
        )
    if body:
        # One alone, as what is large is, is not copied by this.
        create_object(blob, name.key, b"".join(body))
    return tuple(parts)


def unwritten_part(updates: pa.Table, collection: CollectionState, time: int) -> Part:
    """Return a part that is in no log, to be read alone: rows of today's columns, with diffs."""
    schema = evolution.with_system_columns(collection.schemas[-1])
    times = pa.repeat(pa.scalar(time, pa.int64()), updates.num_rows)
    columns = [*updates.columns[:-1], times, updates.column(DIFF)]
    data = INLINE.encode(pa.Table.from_arrays(columns, schema=schema), collection.key)
    return Part(
        where=Inline(data),
        layout=INLINE.name,
        schema=len(collection.schemas) - 1,
        errors=False,
        rows=updates.num_rows,
        diff_sum=int(column_longs(updates, DIFF).sum()),
        time_min=time,
        time_max=time,
    )


def _batch_of(item: Pending) -> bytes | None:
    """Return updates as one record batch, if they may be few enough to be kept as that."""
    most = BRIEF_BYTES_MAX if item.brief else INLINE_BYTES_MAX
    if item.updates.num_rows * UPDATE_BYTES_MIN > most:
        return None
    data = INLINE.encode(item.updates, item.key)
    return data if len(data) <= most else None


def create_object(blob: Blob, key: str, data: bytes) -> None:
    """Create an object; a retry that finds its own first attempt is fine, a stranger's is not."""
    if not blob.create(key, data) and blob.get(key) != data:
        raise Indeterminate(f"object {key} exists with other content")


class Fetch(Protocol):
    """Where the bytes of segments come from (a cache in front of a blob)."""

    def __call__(self, segment: Segment) -> Any:
        """Return a buffer with the segment's bytes; ``None`` if the object is gone."""
        ...


class PartMissing(Exception):
    """The object of a part is not there (any more)."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def verify_segment(segment: Segment, data: Any, what: str) -> None:
    """Check the bytes of a segment against what the log says of them."""
    found = len(memoryview(data).cast("B")) if not isinstance(data, bytes) else len(data)
    if found != segment.length:
        raise Corrupt(what, f"it has {found} bytes, not {segment.length}")
    if xxhash.xxh3_64_intdigest(data) != segment.checksum:
        raise Corrupt(what, "its checksum does not match")


def read_part(
    part: Part,
    collection: CollectionState,
    *,
    fetch: Fetch,
    layouts: Layouts,
    schema: int = -1,
    threads: bool = False,
    share: Share = WHOLE,
) -> pa.Table:
    """Return the updates of a part, through its window, in a version (the newest) of the schema.

    ``threads``: its columns side by side, where the layout lets us. ``share``: a slice of it.
    """
    written, newest = _schemas(part, collection, schema)
    data, what = _verified(part, collection, fetch)
    layout = layouts[part.layout]
    if share != WHOLE and isinstance(layout, ParquetLayout):
        return _seen(layout.share(data, written, what, share), part, written, newest)
    if threads and isinstance(layout, ParquetLayout):
        updates = layout.decode(data, written, what, threads=True)
    else:
        updates = layout.decode(data, written, what)
    if updates.num_rows != part.rows:
        raise Corrupt(what, f"it has {updates.num_rows} rows, not {part.rows}")
    if share != WHOLE:
        first, end = (part.rows * n // share[1] for n in (share[0], share[0] + 1))
        updates = updates.slice(first, end - first)
    return _seen(updates, part, written, newest)


def read_part_pieces(
    part: Part, collection: CollectionState, *, fetch: Fetch, layouts: Layouts, piece_bytes: int
) -> Iterator[pa.Table]:
    """Yield the same updates, of about so many bytes at once, where the layout lets us."""
    written, newest = _schemas(part, collection, -1)
    data, what = _verified(part, collection, fetch)
    layout, rows = layouts[part.layout], 0
    pieces = (
        layout.pieces(data, written, what, piece_bytes)
        if isinstance(layout, ParquetLayout)
        else [layout.decode(data, written, what)]
    )
    for piece in pieces:
        rows += piece.num_rows
        yield _seen(piece, part, written, newest)
    if rows != part.rows:
        raise Corrupt(what, f"it has {rows} rows, not {part.rows}")


def _schemas(part: Part, collection: CollectionState, schema: int) -> tuple[pa.Schema, pa.Schema]:
    """Return the columns that a part was written with, and those to read it in."""
    if part.errors:
        errors = evolution.updates_schema(ERROR_SCHEMA)
        return errors, errors
    versions = collection.schemas
    written = evolution.with_system_columns(versions[part.schema])
    return written, evolution.with_system_columns(versions[schema])


def _verified(part: Part, collection: CollectionState, fetch: Fetch) -> tuple[Any, str]:
    """Return the bytes of a part, and what to call them."""
    match part.where:
        case Inline(data):
            return data, f"an inline part of collection {collection.name!r}"
        case Segment() as segment:
            what = f"object {segment.key} at {segment.offset}"
            found = fetch(segment)
            if found is None:
                raise PartMissing(segment.key)
            verify_segment(segment, found, what)
            return found, what


def _seen(updates: pa.Table, part: Part, written: pa.Schema, newest: pa.Schema) -> pa.Table:
    """Return updates through the window of their part, in the newest columns."""
    if part.window is not None:
        lower, upper = part.window
        time = updates.column(TIME)
        updates = updates.filter(
            pc.and_(pc.greater_equal(time, lower), pc.less(time, pa.scalar(upper, pa.int64())))
        )
    return updates if written.equals(newest) else _evolve(updates, newest)


def _evolve(updates: pa.Table, newest: pa.Schema) -> pa.Table:
    columns = [
        updates.column(field.name)
        if field.name in updates.schema.names
        else pa.nulls(updates.num_rows, field.type)
        for field in newest
    ]
    return pa.table(columns, schema=newest)

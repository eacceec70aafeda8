"""Merges: adjacent batches rewritten as one that denotes the same from ``since`` on.

Times before ``since`` are advanced to it, equal updates are summed, zeros vanish; the sum of all
diffs is unchanged, and that is asserted before anything is committed. Output parts are new objects;
the log replaces the inputs by the output in one entry, and only if they are all still there.

Rows of different versions of a codec stay in different parts: only the codec knows which of them
are equal, and it is told the version of each when it reads them (``persist/codec.py``).

**Memory is bounded** whatever the size of the batches: a merge of more than ``PASS_ROWS_MAX`` rows,
or ``PASS_BYTES_MAX`` stored bytes, takes several passes. Each reads everything, part by part, and
keeps one share of the rows; identical rows are in the same share (``persist/fingerprint.py``).

Killed at any point: an uncommitted output is an unreferenced object of a stale epoch or a closed
step, and is swept. Runs beside reads and writes: inputs are immutable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headwater.persist.batch import Batch, Part, Times
from headwater.persist.consolidate import consolidate
from headwater.persist.errors import MergeRefused
from headwater.persist.evolution import DIFF, TIME
from headwater.persist.fingerprint import fingerprints
from headwater.persist.layout import Layouts
from headwater.persist.location import Blob
from headwater.persist.part import (
    PART_ROWS_TARGET,
    Fetch,
    PartName,
    Pending,
    read_part,
    write_parts,
)
from headwater.persist.state import CollectionState

PASS_ROWS_MAX: Final = 4_000_000
PASS_BYTES_MAX: Final = 128 * 1024 * 1024

ONE_CHUNK_ROWS_MAX: Final = 64 * 1024
"""Up to here it costs less to join the rows of all parts than to look at each part's for itself."""


def advance(updates: pa.Table, since: int) -> pa.Table:
    """Return the updates with times before ``since`` moved to it."""
    index = updates.schema.get_field_index(TIME)
    time = pc.max_element_wise(updates.column(TIME), pa.scalar(since, pa.int64()))
    return updates.set_column(index, updates.schema.field(TIME), time)


def merge(
    collection: CollectionState,
    inputs: Sequence[Batch],
    since: Times,
    *,
    blob: Blob,
    fetch: Fetch,
    layouts: Layouts,
    name: Callable[[], PartName],
) -> tuple[Part, ...]:
    """Return the parts of the merged batch, written but not yet committed."""
    written: list[Part] = []
    for pending in passes(collection, inputs, since, fetch=fetch, layouts=layouts):
        written.extend(write_parts(pending, blob=blob, name=name(), layouts=layouts))
    return tuple(written)


def passes(
    collection: CollectionState,
    inputs: Sequence[Batch],
    since: Times,
    *,
    fetch: Fetch,
    layouts: Layouts,
) -> Iterator[list[Pending]]:
    """Yield what the merged batch consists of, as much at a time as memory has room for."""
    groups: dict[tuple[bool, int], list[Part]] = {}
    if not since.is_closed:
        for part in (part for batch in inputs for part in batch.parts):
            groups.setdefault((part.errors, collection.newest_of(part.schema)), []).append(part)
    pending: list[Pending] = []
    for (errors, schema), parts in groups.items():
        shares = _shares(parts)
        for share in range(shares):
            tables = [
                _share(
                    read_part(part, collection, fetch=fetch, layouts=layouts, schema=schema),
                    share,
                    shares,
                )
                for part in parts
            ]
            merged = pa.concat_tables(tables)
            if merged.num_rows <= ONE_CHUNK_ROWS_MAX:
                merged = merged.combine_chunks()
            before = pc.sum(merged.column(DIFF)).as_py() or 0
            merged = consolidate(advance(merged, since.only()))
            after = pc.sum(merged.column(DIFF)).as_py() or 0
            if before != after:
                raise MergeRefused(collection.name, before, after)
            key, layout = collection.key, collection.layout
            pending.extend(
                Pending(piece, schema, layout, key, errors, consolidated=True)
                for piece in _pieces(merged)
            )
            if shares > 1 and pending:
                yield pending
                pending = []
    if pending:
        yield pending


def _shares(parts: Sequence[Part]) -> int:
    rows = sum(part.rows for part in parts)
    stored = sum(part.size_bytes for part in parts)
    return max(1, -(-rows // PASS_ROWS_MAX), -(-stored // PASS_BYTES_MAX))


def _share(updates: pa.Table, share: int, shares: int) -> pa.Table:
    """Return one share of the updates; equal rows, at whatever times, are in the same one."""
    if shares == 1:
        return updates
    columns = [name for name in updates.column_names if name not in (TIME, DIFF)]
    return updates.filter(pa.array(fingerprints(updates, columns) % shares == share))


def _pieces(table: pa.Table) -> Iterator[pa.Table]:
    for start in range(0, table.num_rows, PART_ROWS_TARGET):
        yield table.slice(start, PART_ROWS_TARGET)

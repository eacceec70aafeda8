"""Merges: adjacent batches rewritten as one that denotes the same from ``since`` on.

Times before ``since`` are advanced to it, equal updates are summed, zeros vanish; the sum of all
diffs is unchanged, and that is asserted before anything is committed. Output parts are new objects;
the log replaces the inputs by the output in one entry, and only if they are all still there.

Rows of different versions of a codec stay in different parts: only the codec knows which of them
are equal, and it is told the version of each when it reads them (``persist/codec.py``).

Killed at any point: an uncommitted output is an unreferenced object of a stale epoch or a closed
step, and is swept. Runs beside reads and writes: inputs are immutable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headwater.persist.batch import Batch, Part, Times
from headwater.persist.consolidate import consolidate
from headwater.persist.errors import MergeRefused
from headwater.persist.evolution import DIFF, TIME
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
    groups: dict[tuple[bool, int], list[Part]] = {}
    if not since.is_closed:
        for part in (part for batch in inputs for part in batch.parts):
            groups.setdefault((part.errors, collection.newest_of(part.schema)), []).append(part)
    pending: list[Pending] = []
    for (errors, schema), parts in groups.items():
        tables = [
            read_part(part, collection, fetch=fetch, layouts=layouts, schema=schema)
            for part in parts
        ]
        merged = pa.concat_tables(tables)
        before = pc.sum(merged.column(DIFF)).as_py() or 0
        merged = consolidate(advance(merged, since.only()))
        after = pc.sum(merged.column(DIFF)).as_py() or 0
        if before != after:
            raise MergeRefused(collection.name, before, after)
        pending.extend(
            Pending(
                piece,
                schema,
                collection.layout,
                collection.key,
                errors,
                consolidated=True,
            )
            for piece in _pieces(merged)
        )
    if not pending:
        return ()
    return write_parts(pending, blob=blob, name=name(), layouts=layouts)


def _pieces(table: pa.Table) -> Iterator[pa.Table]:
    for start in range(0, table.num_rows, PART_ROWS_TARGET):
        yield table.slice(start, PART_ROWS_TARGET)

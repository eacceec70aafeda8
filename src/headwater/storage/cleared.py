"""The retraction of all that an output has: what it had before a range, and in it so far."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headwater.base.ids import GlobalId
from headwater.persist.batch import Part
from headwater.persist.consolidate import consolidate
from headwater.persist.core import Core
from headwater.persist.decision import collection_of
from headwater.persist.evolution import DIFF, TIME
from headwater.persist.part import read_part
from headwater.storage.envelope import Changes


def cleared(
    core: Core,
    gid: GlobalId,
    changes: Changes,
    parts: Sequence[Part],
    before: Sequence[pa.Table],
    time: int,
) -> Changes:
    """Add the retraction at ``time`` of what is in ``parts`` and in the tables ``before``."""
    collection = collection_of(core.state, gid)
    pieces = [
        read_part(part, collection, fetch=core.fetch, layouts=core.layouts).drop_columns([TIME])
        for part in parts
        if not part.errors
    ]
    pieces += before
    names = [name for name in changes.updates.column_names if name != TIME]
    there = [changes.updates.schema.empty_table().select(names)]
    gone = consolidate(pa.concat_tables(there + [piece.select(names) for piece in pieces]))
    at = pa.repeat(pa.scalar(time, pa.int64()), gone.num_rows)
    diffs = pc.negate(gone.column(DIFF))
    columns = [*gone.drop_columns([DIFF]).columns, at, diffs]
    retracted = pa.Table.from_arrays(columns, schema=changes.updates.schema)
    updates = pa.concat_tables([retracted, changes.updates])
    return Changes(updates, changes.errors, changes.letters)

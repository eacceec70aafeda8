"""Merging runs: the spine of an arrangement stays short, and forgets what nobody may ask.

    merge(R1, …, Rm; since) = consolidate({ (row, max(time, since), diff) : in R1 + … + Rm })

It denotes the same collection as the runs together, at every time ``>= since``. The sum of all
diffs is the same before and after; that is asserted on every merge, because a lost diff is the one
mistake nobody would see. With ``since`` ``None`` times are kept.

For a view whose output upper is ``u`` its inputs are merged to at most ``u - 1``, never ``u``: a
strict probe at ``u`` must still see what happened before ``u``. That is kept by who calls.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headwater.base.errors import InvalidUsage
from headwater.collection.key_hash import HASH
from headwater.collection.run import Run, sort_updates
from headwater.persist.consolidate import DIFF, TIME, Longs, column_longs, consolidation


def merge_runs(runs: Sequence[Run], since: int | None = None) -> pa.Table:
    """Return the updates of all runs as one table, ready for ``write_run``: sorted, consolidated.

    Columns missing in an older run are NULL. Cost: the rows of all runs (verified), so this runs
    beside the work and not in it.
    """
    if not runs:
        raise InvalidUsage("there is nothing to merge")
    if len({run.key for run in runs}) != 1:
        raise InvalidUsage(f"runs of different keys are not merged: {[run.key for run in runs]}")
    tables = [run.table() for run in runs]
    updates = pa.concat_tables(tables, promote_options="default")
    if since is not None:
        times = np.maximum(column_longs(updates, TIME), since)
        position = updates.schema.get_field_index(TIME)
        updates = updates.set_column(position, updates.schema.field(position), pa.array(times))
    merged = _consolidate_sorted(sort_updates(updates))
    before = sum(int(column_longs(table, DIFF).sum()) for table in tables)
    after = int(column_longs(merged, DIFF).sum())
    assert before == after, f"a merge changed the sum of diffs from {before} to {after}"
    return merged


def _consolidate_sorted(updates: pa.Table) -> pa.Table:
    """Consolidate updates that are sorted by ``(hash, time)``, touching only possible twins.

    Identical updates have the same hash and time, so they are in the same stretch of equal
    ``(hash, time)``; most stretches have one row and need no comparison of columns.
    """
    hashes, times = column_longs(updates, HASH), column_longs(updates, TIME)
    diffs = column_longs(updates, DIFF).copy()
    same = (hashes[1:] == hashes[:-1]) & (times[1:] == times[:-1])
    if same.any():
        twin = np.append(same, False) | np.insert(same, 0, False)
        candidates: Longs = np.flatnonzero(twin)
        kept, sums = consolidation(updates.take(pa.array(candidates)))
        diffs[candidates] = 0
        diffs[candidates[kept]] = sums
    alive = np.flatnonzero(diffs)
    position = updates.schema.get_field_index(DIFF)
    updates = updates.set_column(position, updates.schema.field(position), pa.array(diffs))
    return updates if len(alive) == len(updates) else updates.take(pa.array(alive))

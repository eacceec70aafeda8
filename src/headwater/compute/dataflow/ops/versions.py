"""Groups that changed, row by row and version by version: what a function of whole groups is given.

For every group that the delta names and each of its versions (``groups.py``: before its first
change in the step, and after each change time) the output has

    the rows of the group in that version, each as often as it is there, every time with diff 1
    VERSION_OF   the number of the version in this step: rows of no other version have it
    PLACE        the row's number in the version, by the canonical order of ``op.ties``
    UNTIL        when the next version begins; NULL for the last one
    BEFORE       true for the version before the step
    __time       when the version begins; for the one before the step, when it ends

What computes on a version (a window of Spark's, in the edge after this operator) sees all its rows,
and no others; ``unversion.py`` then makes updates of what it says. So any function of a group can
be kept, whatever it is.

The output is no collection: it says nothing at a time. It is only for ``unversion.py``.

Bound: the delta, and the rows of the groups that changed; written are these times the versions of
their group.

Kept by: this module, with ``unversion.py`` against an oracle in ``tests/unit/dataflow/
test_versions.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headwater.compute.dataflow.edge import BEFORE, PLACE, UNTIL, VERSION_OF
from headwater.compute.dataflow.graph import Versions
from headwater.compute.dataflow.operator import Given, Outcome
from headwater.compute.dataflow.ops.groups import Members, changed, members
from headwater.compute.dataflow.ops.groups import Versions as At
from headwater.persist.consolidate import DIFF, TIME


def step(op: Versions, given: Given) -> Outcome:
    """Return the versions of the groups that the delta names."""
    history = given.arrangements[op.arrangement]
    names = [column.name for column in op.input.columns]
    groups = changed(given.deltas[op.input], history.key, names)
    at = groups.versions
    if not at.groups:
        return Outcome(given.output.empty_table())
    updates = groups.history(given, history, np.arange(at.groups))
    order = [updates.column(name) for name in op.ties] if op.ties else None
    return Outcome(version_rows(members(updates, at, order), at, given.output))


def version_rows(found: Members, at: At, schema: pa.Schema) -> pa.Table:
    """Return the rows of all versions, with what is known of each."""
    follows = np.arange(1, at.count + 1)
    last = np.zeros(at.count, np.bool_)
    last[at.start[1:] - 1] = True
    until = at.time[np.where(last, 0, follows)]
    begins = np.where(at.is_first, until, at.time)

    row = np.repeat(found.row, found.count)
    version = np.repeat(found.version, found.count)
    first = np.cumsum(found.sizes) - found.sizes
    system: dict[str, Any] = {
        VERSION_OF.name: pa.array(version),
        PLACE.name: pa.array(np.arange(len(version)) - first[version] + 1),
        UNTIL.name: pa.array(until[version], mask=last[version]),
        BEFORE.name: pa.array(at.is_first[version]),
        TIME: pa.array(begins[version]),
        DIFF: pa.array(np.ones(len(version), np.int64)),
    }
    rows = found.rows.take(pa.array(row))
    columns = [
        system[field.name] if field.name in system else rows.column(field.name) for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)

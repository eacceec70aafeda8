"""Rows of versions as updates: the other end of ``versions.py``.

A row that a version has, computed or not, is there from the version's time until the next one's:

    +1 at __time, unless BEFORE: then it has been there already        -1 at UNTIL, unless NULL

So the sum over all versions of a group is, at every time of the step, what its version then has.
Rows that two versions share cancel.

Bound: what it is given; it reads nothing and keeps nothing.

Kept by: this module, with ``versions.py`` against an oracle in ``tests/unit/dataflow/
test_versions.py``.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headwater.compute.dataflow.edge import BEFORE, UNTIL
from headwater.compute.dataflow.graph import Unversion
from headwater.compute.dataflow.operator import Given, Outcome
from headwater.persist.consolidate import DIFF, TIME


def step(op: Unversion, given: Given) -> Outcome:
    """Return the updates that the versions amount to."""
    rows = given.deltas[op.input]
    data = [name for name in given.output.names if name not in (TIME, DIFF)]
    come = rows.filter(pc.invert(rows.column(BEFORE.name)))
    gone = rows.filter(pc.is_valid(rows.column(UNTIL.name)))
    tables = [
        pa.Table.from_arrays(
            [*come.select(data).columns, come.column(TIME), come.column(DIFF)],
            schema=given.output,
        ),
        pa.Table.from_arrays(
            [*gone.select(data).columns, gone.column(UNTIL.name), pc.negate(gone.column(DIFF))],
            schema=given.output,
        ),
    ]
    return Outcome(pa.concat_tables(tables))

"""What is around numbers in ordered runs: rows near them, and how far all there is is known.

For runs sorted by a number (``collection/run.py``, ordered) and places ``n_1 < n_2 < …`` with
margins ``m_i``:

    rows     of each run, the rows with the number n_i, and m_i rows before and after them
    low, high  what is known around n_i: every row of every run whose number is in (low_i, high_i)
               is among them, and low_i < n_i < high_i

A run's rows at the edge of a margin may have neighbours with the same number beyond it, so what is
known ends before that number. The more runs there are, the less of what is read is known: of two
runs, the nearer edge counts.

:func:`between` reads what is between numbers, where it is known how far to read.

Cost: per run a binary search for each place, and the rows found; a row that is near several places
is read once. Rows with one number are read together, however many they are.

Kept by: this module, against an oracle in ``tests/unit/collection/test_around.py``. Relied on by:
``compute/dataflow/ops/stretches.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.collection.key_hash import HASH
from headwater.collection.run import Run
from headwater.persist.consolidate import TIME

Longs = npt.NDArray[np.int64]

LEAST: Final = int(np.iinfo(np.int64).min)
GREATEST: Final = int(np.iinfo(np.int64).max)


class Around(NamedTuple):
    """What was found around places."""

    rows: pa.Table
    """Of all runs; not consolidated."""
    low: Longs
    """Of each place; :data:`LEAST`: nothing is before what is known."""
    high: Longs


def around(
    runs: Sequence[Run],
    places: Longs,
    margins: Longs,
    columns: Sequence[str],
    schema: pa.Schema,
    ignore_from: int | None = None,
) -> Around:
    """Return these columns of the rows around places, which rise; margins are 1 or more.

    ``ignore_from``: later updates are left out. No number is :data:`LEAST` or :data:`GREATEST`.
    """
    low, high = np.full(len(places), LEAST), np.full(len(places), GREATEST)
    wanted = pa.schema([schema.field(name).with_nullable(True) for name in columns])
    found = [wanted.empty_table()]
    for run in runs:
        if not run.rows:
            continue
        left, right = run.equal_range(places)
        first, end = left - margins, right + margins
        inner = np.flatnonzero(first > 0)
        low[inner] = np.maximum(low[inner], run.longs(first[inner], HASH))
        inner = np.flatnonzero(end < run.rows)
        high[inner] = np.minimum(high[inner], run.longs(end[inner] - 1, HASH))
        rows = _union(np.maximum(first, 0), np.minimum(end, run.rows))
        found.append(_taken(run, rows, wanted, ignore_from))
    return Around(pa.concat_tables(found), low, high)


def between(
    runs: Sequence[Run],
    least: Longs,
    most: Longs,
    columns: Sequence[str],
    schema: pa.Schema,
    ignore_from: int | None = None,
) -> pa.Table:
    """Return these columns of the rows whose number is in any of the intervals, both ends in it."""
    wanted = pa.schema([schema.field(name).with_nullable(True) for name in columns])
    found = [wanted.empty_table()]
    for run in runs:
        if run.rows:
            left, _ = run.equal_range(least)
            _, right = run.equal_range(most)
            found.append(_taken(run, _union(left, right), wanted, ignore_from))
    return pa.concat_tables(found)


def _taken(run: Run, rows: Longs, wanted: pa.Schema, ignore_from: int | None) -> pa.Table:
    latest = run.max_time
    if ignore_from is not None and latest is not None and latest >= ignore_from:
        rows = rows[run.longs(rows, TIME) < ignore_from]
    taken: list[Any] = run.take(rows, wanted.names)
    return pa.Table.from_arrays(taken, schema=wanted)


def _union(starts: Longs, stops: Longs) -> Longs:
    """Return the numbers in any of these intervals, each once, in order."""
    order = np.argsort(starts, kind="stable")
    starts, reached = starts[order], np.maximum.accumulate(stops[order])
    begins = np.maximum(starts, np.concatenate(([0], reached[:-1])))
    lengths = np.maximum(reached - begins, 0)
    offset = np.repeat(begins - (np.cumsum(lengths) - lengths), lengths)
    numbers: Longs = offset + np.arange(len(offset))
    return numbers

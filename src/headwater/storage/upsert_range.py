"""A range of an upsert, some messages at a time: memory is some batches, however many keys it has.

    add(batch) … add(batch)   few messages wait in memory; of many, the newest of each key is put
                              aside, as a keyed run in a file, which is mapped
    rest()                    what they all do to the output: for one range of hashes after the
                              other, from the rows that all runs have in it

So the newest value of a key is found among *all* messages of the range, in whatever order batches
come and wherever they are cut: what comes of a range does not depend on that, nor on whether tasks
have put its runs aside (:meth:`UpsertRange.take`) or this process.

All of a range may be folded here, or by one :class:`UpsertRange` for each *share* of it: a range of
hashes (:func:`put_aside_in_shares`), which has all that was told of its keys and nothing of others.
So shares can be folded in tasks that know nothing of each other (``storage/fold_task.py``).

What a key had is asked of the output as it was before the range (:data:`RowsOf`), once for each
key. The parts that are written have disjoint hashes.

Relies on: the ingestion, which writes what is returned before it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headwater.collection.key_hash import HASH
from headwater.collection.probe import PROBE_INDEX
from headwater.collection.run import Run, write_run
from headwater.persist.batch import Segment
from headwater.persist.consolidate import column_longs, consolidate
from headwater.persist.evolution import TIME, updates_schema
from headwater.persist.location import Blob
from headwater.storage.dead_letters import ErrorUpdate, Policy, errors_table, letters_table
from headwater.storage.envelope import Changes, Upsert, key_text
from headwater.storage.mapped_run import mapped, mapped_from
from headwater.storage.reclock import Longs
from headwater.storage.told import BAD, ERROR, ROW, TOLD, Told, begins_of, newest, told

MESSAGES_AT_ONCE: Final = 100_000
BYTES_AT_ONCE: Final = 64 << 20
_HASHES: Final = 1 << 64

RowsOf = Callable[[Sequence[pa.Array]], pa.Table]
"""Ask for the rows of keys (their columns): those that there are, with ``PROBE_INDEX``."""

Errors = Mapping[str, str]
"""The errors that an output has, by the text of their key."""


class UpsertRange:
    """What the messages of a range do to an output."""

    def __init__(
        self,
        envelope: Upsert,
        output: str,
        rows_of: RowsOf,
        errors: Errors,
        at_once: int | None = None,
    ) -> None:
        self._envelope = envelope
        self._output = output
        self._rows_of = rows_of
        self._errors = errors
        self._at_once = at_once or MESSAGES_AT_ONCE
        self._waiting: list[pa.Table] = []
        self._runs: list[Run] = []

    def add(self, stamped: pa.Table) -> Changes:
        """Take a batch; return what its messages without a key do."""
        found = told(self._envelope, self._output, stamped)
        self._wait(found)
        return found.refused

    def take(self, blob: Blob, told: Sequence[Segment]) -> None:
        """Take what tasks have read and put aside; from elsewhere it is brought into files here."""
        self._runs += [mapped_from(blob, each) for each in told]

    def rest(self) -> Iterator[Changes]:
        """Return what the messages that were taken do, some keys at a time."""
        if not self._runs:
            waiting, self._waiting = self._waiting, []
            if waiting:
                yield self._folded(newest(waiting, self._envelope.key))
            return
        self._put_aside()
        for first, last in self._ranges():
            rows = [_between(run, first, last) for run in self._runs]
            there = [each for each in rows if each.num_rows]
            if there:
                yield self._folded(newest(there, self._envelope.key))

    def _wait(self, found: Told) -> None:
        if found.table.num_rows:
            self._waiting.append(found.table)
        size = sum(table.nbytes for table in self._waiting)
        if size >= BYTES_AT_ONCE or sum(map(len, self._waiting)) >= self._at_once:
            self._put_aside()

    def _put_aside(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._runs.append(mapped(put_aside(self._envelope, waiting)))

    def _ranges(self) -> Iterator[tuple[int, int]]:
        """Cut the hashes that there are into ranges that have as much as is held at once, about."""
        rows = sum(run.rows for run in self._runs)
        size = sum(run.arrow_bytes for run in self._runs)
        count = 1 + max(rows // self._at_once, size // BYTES_AT_ONCE)
        there = [run.hash_range for run in self._runs if run.hash_range is not None]
        first, behind = min(low for low, _ in there), 1 + max(high for _, high in there)
        cuts = [first + (behind - first) * n // count for n in range(count + 1)]
        return ((low, high - 1) for low, high in pairwise(cuts) if low < high)

    def _folded(self, table: pa.Table) -> Changes:
        return folded(self._envelope, self._output, table, self._rows_of, self._errors)


def put_aside(envelope: Upsert, tables: Sequence[pa.Table]) -> bytes:
    """Return the newest of what was told, as the bytes of a run."""
    return write_run(newest(tables, envelope.key), envelope.key)


def put_aside_in_shares(
    envelope: Upsert, tables: Sequence[pa.Table], shares: int
) -> list[tuple[int, int, bytes]]:
    """Return the newest of what was told as a run for each share that has some of it.

    Each with the number of its share and its rows. Which share a key is in depends on the key and
    on how many shares there are, and on nothing else.
    """
    table = newest(tables, envelope.key)
    inner = [_HASHES * n // shares - _HASHES // 2 for n in range(1, shares)]
    cuts = [0, *np.searchsorted(column_longs(table, HASH), inner).tolist(), table.num_rows]
    return [
        (share, stop - start, write_run(table.slice(start, stop - start), envelope.key))
        for share, (start, stop) in enumerate(pairwise(cuts))
        if start < stop
    ]


def _between(run: Run, first: int, last: int) -> pa.Table:
    """Return the rows of a run whose hashes are in a range, both ends included."""
    start, _ = run.equal_range(np.array([first]))
    _, stop = run.equal_range(np.array([last]))
    return run.slice(int(start[0]), int(stop[0]))


# ---- what it does to the output --------------------------------------------------------------


def folded(
    envelope: Upsert, output: str, table: pa.Table, rows_of: RowsOf, errors: Errors
) -> Changes:
    """Return what the newest that was told of some keys does to what they had."""
    schema, times = envelope.schema, column_longs(table, TIME)
    begins = begins_of(table, envelope.key)
    firsts = np.flatnonzero(begins)
    keys = [table.column(name).take(firsts).combine_chunks() for name in envelope.key]
    went = rows_of(keys)
    is_row = table.column(TOLD).to_numpy() == ROW
    # What a key is told to have goes when something else is told of it.
    ends = np.append(~begins[1:], False)
    replaced = np.flatnonzero(is_row & ends)
    pieces = [
        _updates(went, schema, times[firsts[column_longs(went, PROBE_INDEX)]], -1),
        _updates(table.take(replaced), schema, times[replaced + 1], -1),
        _updates(table.filter(pa.array(is_row)), schema, times[is_row], 1),
    ]
    updates = pa.concat_tables(pieces)
    if went.num_rows or len(replaced):  # What came as it was is no change.
        updates = consolidate(updates)
    found: list[ErrorUpdate] = []
    if envelope.policy is Policy.FAIL:
        found += _retracted(keys, times[firsts], errors)
        found += _told_errors(table, envelope.key, times, ends)
    return Changes(updates, errors_table(found), letters_table(output, ()))


def _updates(rows: pa.Table, schema: pa.Schema, times: Longs, diff: int) -> pa.Table:
    diffs = pa.repeat(pa.scalar(diff, pa.int64()), rows.num_rows)
    columns = [*(rows.column(name) for name in schema.names), pa.array(times), diffs]
    return pa.Table.from_arrays(columns, schema=updates_schema(schema))


def _retracted(keys: Sequence[pa.Array], times: Longs, errors: Errors) -> Iterator[ErrorUpdate]:
    """Return that the errors go which keys had."""
    if not errors:
        return
    rows = zip(*(column.to_pylist() for column in keys), strict=True)
    for row, time in zip(rows, times, strict=True):
        text = key_text(row)
        if text in errors:
            yield ErrorUpdate(errors[text], text, int(time), -1)


def _told_errors(
    table: pa.Table, key: Sequence[str], times: Longs, ends: Any
) -> Iterator[ErrorUpdate]:
    """Return the errors that come, and that each goes when something else is told of its key."""
    places = np.flatnonzero(table.column(TOLD).to_numpy() == BAD)
    bad = table.select([*key, ERROR]).take(places)
    rows = zip(*(bad.column(name).to_pylist() for name in key), strict=True)
    for place, row, error in zip(places, rows, bad.column(ERROR).to_pylist(), strict=True):
        yield ErrorUpdate(error, key_text(row), int(times[place]), 1)
        if ends[place]:
            yield ErrorUpdate(error, key_text(row), int(times[place + 1]), -1)


__all__ = ["RowsOf", "UpsertRange", "folded", "put_aside", "put_aside_in_shares"]

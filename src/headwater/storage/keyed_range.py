"""A range of changes told by key, some at a time: memory is some batches, however many come.

    add(batch) … add(batch)  ->  once there are many: what they do, to be written before more come
    rest()                   ->  what the last of them do

What a key has is asked of the output *as it was before the range and with what was written of the
range so far* (:data:`RowsOf`). So the updates of one key at one time may be spread over parts
(``-a +b``, then ``-b +c``); whoever reads adds them up. Batches come in the order of their places,
and a row that moves to another key comes in one batch with the one that it was.

Most changes lack nothing and are at one time. Of those just the last of each key counts, and what
it does is found column by column; :class:`~headwater.storage.keyed_changes.KeyedFolding` does the
others, row by row. Both say the same (``tests/unit/storage/test_keyed_changes.py``).

Relies on: the ingestion, which writes what is returned before it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headwater.collection.probe import PROBE_INDEX
from headwater.persist.consolidate import consolidate
from headwater.persist.evolution import TIME, updates_schema
from headwater.storage.dead_letters import errors_table, letters_table
from headwater.storage.envelope import Changes
from headwater.storage.format import Row
from headwater.storage.keyed_changes import CHANGE, COMES, KEPT, MOVES, Keyed, KeyedFolding

CHANGES_AT_ONCE: Final = 100_000

RowsOf = Callable[[Sequence[pa.Array]], pa.Table]
"""Ask for the rows of keys (their columns): those that there are, with ``PROBE_INDEX``."""

_PLACE: Final = "__place"


class KeyedRange:
    """What the changes of a range do to an output."""

    def __init__(
        self, envelope: Keyed, output: str, rows_of: RowsOf, at_once: int | None = None
    ) -> None:
        self._envelope = envelope
        self._output = output
        self._rows_of = rows_of
        self._at_once = at_once or CHANGES_AT_ONCE
        self._waiting: list[pa.Table] = []
        self._count = 0
        types = [envelope.schema.field(name).type for name in envelope.key]
        self._groups = all(map(_is_grouped_by_its_bytes, types))

    def add(self, stamped: pa.Table) -> Iterator[Changes]:
        """Take a batch; return what is to be written now."""
        if stamped.num_rows:
            self._waiting.append(stamped)
            self._count += stamped.num_rows
        if self._count >= self._at_once:
            yield from self.rest()

    def rest(self) -> Iterator[Changes]:
        """Return what those do that were taken, and not returned yet."""
        waiting, self._waiting, self._count = self._waiting, [], 0
        if not waiting:
            return
        changes = pa.concat_tables(waiting)
        if self._groups and _is_whole(changes):
            yield self._by_columns(changes)
            return
        folding = KeyedFolding(self._envelope, self._output)
        for table in waiting:
            folding.add(table)
        yield folding.changes(self._known)

    @property
    def nothing(self) -> Changes:
        """No change."""
        return self._changes(updates_schema(self._envelope.schema).empty_table())

    def _changes(self, updates: pa.Table) -> Changes:
        return Changes(updates, errors_table(()), letters_table(self._output, ()))

    def _by_columns(self, changes: pa.Table) -> Changes:
        key, schema = list(self._envelope.key), self._envelope.schema
        places = pa.array(range(changes.num_rows), pa.int64())
        newest = (
            changes.select(key)
            .append_column(_PLACE, places)
            .group_by(key)
            .aggregate([(_PLACE, "max")])
            .column(f"{_PLACE}_max")
        )
        last = changes.take(newest.combine_chunks())
        went = self._rows_of([last.column(name).combine_chunks() for name in key])
        came = last.filter(pc.equal(last.column(CHANGE), COMES))
        time = changes.column(TIME)[0].as_py()
        both = [_updates(went, schema, time, -1), _updates(came, schema, time, 1)]
        # A row that came as it was is no change.
        return self._changes(consolidate(pa.concat_tables(both)))

    def _known(self, keys: Sequence[Row]) -> Mapping[Row, Row]:
        """Return what keys have, row by row."""
        schema = self._envelope.schema
        fields = [schema.field(name) for name in self._envelope.key]
        columns = [
            pa.array(values, field.type)
            for values, field in zip(zip(*keys, strict=True), fields, strict=True)
        ]
        found = self._rows_of(columns)
        rows = zip(*(found.column(name).to_pylist() for name in schema.names), strict=True)
        places = found.column(PROBE_INDEX).to_pylist()
        return {keys[place]: row for place, row in zip(places, rows, strict=True)}


def _updates(rows: pa.Table, schema: pa.Schema, time: int, diff: int) -> pa.Table:
    sides = (pa.repeat(pa.scalar(value, pa.int64()), rows.num_rows) for value in (time, diff))
    columns = [*(rows.column(name) for name in schema.names), *sides]
    return pa.Table.from_arrays(columns, schema=updates_schema(schema))


def _is_whole(changes: pa.Table) -> bool:
    """Whether every change is at one time, and lacks nothing of its row."""
    times = pc.min_max(changes.column(TIME)).as_py()
    kept = changes.column(KEPT)
    return (
        times["min"] == times["max"]
        and kept.null_count == len(kept)
        and not pc.any(pc.equal(changes.column(CHANGE), MOVES)).as_py()
    )


def _is_grouped_by_its_bytes(type_: pa.DataType) -> bool:
    """Whether two values of a key are equal just where their bytes are."""
    is_ = pa.types
    return bool(
        is_.is_integer(type_)
        or is_.is_string(type_)
        or is_.is_binary(type_)
        or is_.is_boolean(type_)
        or is_.is_date(type_)
        or is_.is_timestamp(type_)
        or is_.is_decimal128(type_)
    )

"""Changes that say of a row that goes only its key: what they do to an output that has the row.

    change   the record carries                          it means
    GOES     the key; the rest is NULL                   the row of this key goes
    COMES    the row; of some columns nothing (KEPT)     it is the row of its key from now on
    MOVES    the same, right after a GOES                it is the row that went, with a new key

That is what PostgreSQL logs of a table with a primary key (``REPLICA IDENTITY DEFAULT``); KEPT are
large values that an update did not touch. What the record lacks is in the output, as it was durable
just before the range, or in an earlier record of the range: as with an upsert, never in what this
process has seen before. Records come in their order; within one time only the last counts.

The first contents are rows as they are (:meth:`Keyed.changes`); only what follows is folded, some
at a time (``storage/keyed_range.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow as pa

from headwater.persist.evolution import TIME, updates_schema
from headwater.storage.dead_letters import errors_table, letters_table
from headwater.storage.decode import columns_of
from headwater.storage.envelope import Changes, Rows
from headwater.storage.errors import DefiniteError
from headwater.storage.format import Row

CHANGE: Final = "__change"
KEPT: Final = "__kept"
GOES, COMES, MOVES = range(3)

Lookup = Callable[[Sequence[Row]], Mapping[Row, Row]]
"""Ask for the rows that keys have before some changes; those that have none are left out."""


def change_schema(schema: pa.Schema) -> pa.Schema:
    """Return the payload of changes of rows: any column may be missing."""
    columns = [column.with_nullable(True) for column in schema]
    kept = pa.field(KEPT, pa.list_(pa.int32()))
    return pa.schema([*columns, pa.field(CHANGE, pa.int8(), nullable=False), kept])


@dataclass(frozen=True, slots=True)
class Keyed:
    """Rows with a key, whose changes are told by it."""

    schema: pa.Schema
    key: tuple[str, ...]
    layout: str = "run"

    def changes(self, output: str, stamped: pa.Table) -> Changes:
        """Return rows at their times: the first contents."""
        return Rows(self.schema).changes(output, stamped)


class _Of(NamedTuple):
    """A value that a record lacks: that of the row which this key has before the range."""

    key: Row
    place: int


@dataclass(slots=True)
class KeyedFolding:
    """What some changes do to an output."""

    envelope: Keyed
    output: str
    _told: dict[Row, dict[int, Row | None]] = field(default_factory=dict)
    """The row of each key at each time at which it changed; None: it is gone."""
    _now: dict[Row, Row | None] = field(default_factory=dict)
    _gone: Row | None = None
    _asked: set[Row] = field(default_factory=set)

    def add(self, stamped: pa.Table) -> None:
        """Take a batch of changes."""
        names = self.envelope.schema.names
        places = [names.index(name) for name in self.envelope.key]
        columns = [stamped.column(name).to_pylist() for name in (TIME, CHANGE, KEPT)]
        rows = zip(*(stamped.column(name).to_pylist() for name in names), strict=True)
        for time, change, kept, row in zip(*columns, rows, strict=True):
            key = tuple([row[place] for place in places])
            if change == GOES:
                self._gone = self._row_of(key)
                self._tell(key, time, None)
                continue
            whole = row
            if kept:
                before = self._gone if change == MOVES else self._row_of(key)
                whole = self._completed(row, kept, before, key)
            self._tell(key, time, whole)

    def _tell(self, key: Row, time: int, row: Row | None) -> None:
        self._now[key] = row
        self._told.setdefault(key, {})[time] = row

    def _row_of(self, key: Row) -> Row | None:
        """Return the row of a key so far; of one that was not told, where to find it."""
        if key in self._now:
            return self._now[key]
        return tuple([_Of(key, place) for place in range(len(self.envelope.schema))])

    def _completed(self, row: Row, kept: Sequence[int], before: Row | None, key: Row) -> Row:
        if before is None:
            raise self._unknown(key)
        whole = list(row)
        for place in kept:
            value = whole[place] = before[place]
            if isinstance(value, _Of):
                self._asked.add(value.key)
        return tuple(whole)

    def _unknown(self, key: Row) -> DefiniteError:
        return DefiniteError(
            self.output,
            f"upstream changed a row of {self.output!r}, with the key {key}, which is not here",
            "drop the source and create it again",
        )

    # ---- what comes of it --------------------------------------------------------------------

    def changes(self, lookup: Lookup) -> Changes:
        """Return what comes of them all, to an output that has what ``lookup`` says."""
        rows: list[Any] = []
        times: list[int] = []
        diffs: list[int] = []

        def replace(old: Row | None, new: Row | None, time: int) -> None:
            if old == new:
                return
            for row, diff in ((old, -1), (new, 1)):
                if row is not None:
                    rows.append(row)
                    times.append(time)
                    diffs.append(diff)

        before = self._before(lookup)
        for key, values in self._told.items():
            now = before.get(key)
            for time in sorted(values):
                told = values[time]
                new = None if told is None else tuple([self._found(v, before) for v in told])
                replace(now, new, time)
                now = new
        schema = self.envelope.schema
        arrays = columns_of(rows, schema)
        arrays += [pa.array(times, pa.int64()), pa.array(diffs, pa.int64())]
        updates = pa.Table.from_arrays(arrays, schema=updates_schema(schema))
        return Changes(updates, errors_table(()), letters_table(self.output, ()))

    def _before(self, lookup: Lookup) -> dict[Row, Row]:
        return dict(lookup([*self._told, *(self._asked - self._told.keys())]))

    def _found(self, value: Any, before: dict[Row, Row]) -> Any:
        if not isinstance(value, _Of):
            return value
        if value.key not in before:
            raise self._unknown(value.key)
        return before[value.key][value.place]

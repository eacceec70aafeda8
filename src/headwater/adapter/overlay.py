"""What a transaction has written and not committed, added up for each table: its overlay.

    what the transaction reads of a table  =  the table at the transaction's time  +  its overlay

The writes of a transaction are a tuple that grows, and that a savepoint cuts short again. An
overlay is a function of them and of nothing else; :class:`Overlays` keeps it while they grow, so
that a statement costs what it adds, and makes it anew when they are others.

Rows of a primary key are found by it: those of small writes in a dictionary, those of a large one
in a keyed run that is made when somebody first asks. What is read whole is consolidated.

Kept by: this module. Relied on by: :mod:`.reads`, :mod:`.unique_keys`, :mod:`.open_transaction`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headwater.adapter.group_commit import TableWrite
from headwater.adapter.key_counts import Key, keys_of
from headwater.base.ids import GlobalId
from headwater.collection.key import keys_equal
from headwater.collection.probe import PROBE_INDEX, probe
from headwater.collection.run import Run, write_run
from headwater.persist.consolidate import consolidate
from headwater.persist.evolution import DIFF, TIME

SMALL_ROWS: Final = 1_000
"""Rows of a write up to which each is found by its key in a dictionary."""

PLACES_MAX: Final = 16
"""How often a row may be written again before its updates are added up."""

_AT: Final = 0
"""The time of rows that have none yet."""

Place = tuple[pa.Table, int]
"""A row of a table of updates."""


def _with(rows: pa.Table, name: str, values: Any) -> pa.Table:
    return rows.append_column(pa.field(name, pa.int64(), nullable=False), values)


class _Large:
    """The updates of one write of many rows, to be found by key."""

    def __init__(self, updates: pa.Table, key: Sequence[str]) -> None:
        self._updates, self._key = updates, key

    @cached_property
    def run(self) -> Run:
        """The same as a keyed run."""
        times = pa.array(np.full(len(self._updates), _AT, np.int64))
        return Run.open(write_run(_with(self._updates, TIME, times), self._key))


class Overlay:
    """What one transaction has written to one table."""

    def __init__(self, first: TableWrite) -> None:
        self.id, self.key = first.id, first.key
        self._added: list[pa.Table] = []
        self._sum: pa.Table | None = None
        self._places: dict[Key, list[Place]] = {}
        self._large: list[_Large] = []

    def add(self, write: TableWrite) -> None:
        """Take one more write."""
        updates = _with(write.rows, DIFF, pa.array(write.diffs, pa.int64()))
        self._added.append(updates)
        if not self.key:
            return
        if updates.num_rows > SMALL_ROWS:
            self._large.append(_Large(updates, self.key))
            return
        for row, key in enumerate(keys_of(updates, self.key)):
            self._places.setdefault(key, []).append((updates, row))

    @property
    def updates(self) -> pa.Table:
        """All of it: each row once, with its ``__diff``, none of them 0."""
        if self._sum is None or self._added:
            tables = self._added if self._sum is None else [self._sum, *self._added]
            self._sum, self._added = consolidate(pa.concat_tables(tables)), []
        return self._sum

    def with_keys(self, keys: Sequence[Any]) -> pa.Table:
        """Return ``__probe_index``, the data columns and ``__diff`` of what the keys have here.

        ``keys``: one array for each column of the primary key. Rows may come several times.
        """
        asked = pa.table(list(keys), names=list(self.key))
        met: defaultdict[int, tuple[pa.Table, list[int], list[int]]] = defaultdict()
        for index, key in enumerate(keys_of(asked, self.key) if self._places else ()):
            for table, row in self._placed(key):
                _, indices, rows = met.setdefault(id(table), (table, [], []))
                indices.append(index)
                rows.append(row)
        found = [
            _indexed(table.take(pa.array(rows, pa.int64())), indices)
            for table, indices, rows in met.values()
        ]
        found += [probe([large.run], keys).drop_columns([TIME]) for large in self._large]
        if not found:
            columns = pa.schema([pa.field(PROBE_INDEX, pa.int64()), *self._schema])
            return columns.empty_table()
        plain = found[0].schema
        return pa.concat_tables([table.select(plain.names).cast(plain) for table in found])

    def with_values(self, names: Sequence[str], keys: Sequence[Any]) -> pa.Table:
        """Return the updates whose columns ``names`` have these values: of an index's key."""
        updates = self.updates
        stored = [updates.column(name).combine_chunks() for name in names]
        kept = np.zeros(len(updates), bool)
        for place in range(len(keys[0])):
            wanted = [column.take(pa.array([place] * len(updates))) for column in keys]
            kept |= np.asarray(keys_equal(stored, wanted))
        return updates.filter(pa.array(kept))

    def counts(self, keys: pa.Table) -> list[int]:
        """Return by how many rows each of these keys has more than without the transaction."""
        counts = np.zeros(keys.num_rows, np.int64)
        if self._places or self._large:
            found = self.with_keys([column.combine_chunks() for column in keys.columns])
            indices, diffs = (found.column(n).to_numpy() for n in (PROBE_INDEX, DIFF))
            np.add.at(counts, indices, diffs)
        return [int(count) for count in counts]

    @property
    def _schema(self) -> pa.Schema:
        return (self._added[0] if self._sum is None else self._sum).schema

    def _placed(self, key: Key) -> list[Place]:
        """Return where the updates of a key are, added up if they are many."""
        places = self._places.get(key, [])
        if len(places) > PLACES_MAX:
            rows = consolidate(pa.concat_tables([table.slice(row, 1) for table, row in places]))
            places = self._places[key] = [(rows, row) for row in range(rows.num_rows)]
        return places


def _indexed(rows: pa.Table, indices: Sequence[int]) -> pa.Table:
    return rows.add_column(0, pa.field(PROBE_INDEX, pa.int64()), pa.array(indices, pa.int64()))


class Overlays:
    """The overlays of one transaction, by table."""

    def __init__(self) -> None:
        self._writes: tuple[TableWrite, ...] = ()
        self._by_table: dict[GlobalId, Overlay] = {}

    def of(self, writes: tuple[TableWrite, ...]) -> Mapping[GlobalId, Overlay]:
        """Return what writes come to; it is made anew where they are not those before and more."""
        known = len(self._writes)
        # A write is in one place of one transaction: where the last is the same, all before are.
        if known and (len(writes) < known or writes[known - 1] is not self._writes[-1]):
            self._by_table, known = {}, 0
        for write in writes[known:]:
            overlay = self._by_table.get(write.id)
            if overlay is None:
                overlay = self._by_table[write.id] = Overlay(write)
            overlay.add(write)
        self._writes = writes
        return self._by_table

    def net(self, writes: tuple[TableWrite, ...]) -> tuple[TableWrite, ...]:
        """Return what is to be committed of writes: one for each table that they change."""
        by_table: defaultdict[GlobalId, list[TableWrite]] = defaultdict(list)
        for write in writes:
            by_table[write.id].append(write)
        found = []
        for gid, parts in by_table.items():
            whole = parts[0] if len(parts) == 1 else self._added_up(gid, writes, parts)
            if whole.num_rows:
                found.append(whole)
        return tuple(found)

    def _added_up(
        self, gid: GlobalId, writes: tuple[TableWrite, ...], parts: Sequence[TableWrite]
    ) -> TableWrite:
        first = parts[0]
        if all(min(part.diffs, default=1) > 0 for part in parts):
            rows = pa.concat_tables([part.rows for part in parts])
            diffs = [diff for part in parts for diff in part.diffs]
            return TableWrite(gid, first.name, first.key, rows, diffs)
        updates = self.of(writes)[gid].updates
        diffs = updates.column(DIFF).to_pylist()
        return TableWrite(gid, first.name, first.key, updates.drop_columns([DIFF]), diffs)

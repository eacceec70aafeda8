"""Changes of tables, gathered from the messages of a range, transaction by transaction.

A change is a row that goes (-1) or comes (+1), at the place of its transaction; of a table with a
key, what ``storage/keyed_changes.py`` says. What a truncated
table had only its output knows, which is asked to retract it (:class:`Records.clears`); what came
before the truncation was handed over before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headwater.collection.schema import type_of
from headwater.storage.generators.generator import placed, with_diffs
from headwater.storage.keyed_changes import COMES, GOES, MOVES, change_schema
from headwater.storage.source import Records
from headwater.storage.sources.misfit import Misfit
from headwater.storage.sources.pg_types import UUID, Unreadable, arrow_type, column_of
from headwater.storage.sources.pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    Message,
    Other,
    Relation,
    Truncate,
    Tuple,
    Update,
)

ROWS_AT_ONCE: Final = 20_000


Relations = dict[int, tuple[str, tuple[int, ...]]]
"""Of each relation that a stream has described: its table, and where that has our columns. They
are described once in a stream, so they live as long as it does."""

Values = tuple[bytes | None, ...]


@dataclass(slots=True)
class _Gathered:
    """What came of one table since it was last handed over."""

    rows: list[Values] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    diffs: list[int] = field(default_factory=list)
    """Of a table with a key: the changes."""
    kept: list[list[int] | None] = field(default_factory=list)

    def add(self, row: Values, place: int, diff: int) -> None:
        self.rows.append(row)
        self.places.append(place)
        self.diffs.append(diff)


class Changes:
    """The changes of some tables in ``[first, last)``; with ``undo`` their opposite, at place 0."""

    def __init__(
        self,
        tables: Mapping[str, pa.Schema],
        partition: str,
        first: int,
        last: int,
        *,
        relations: Relations | None = None,
        oids: Mapping[str, int] | None = None,
        keys: Mapping[str, tuple[str, ...]] | None = None,
        undo: bool = False,
    ) -> None:
        self._tables = tables
        self._partition = partition
        self._first = first
        self._last = last
        self._relations = {} if relations is None else relations
        self._oids = oids or {}
        self._keys = keys or {}
        self._undo = undo
        self._gathered: dict[str, _Gathered] = {}
        self._count = 0
        self._place: int | None = None

    def records(self, messages: Iterable[Message]) -> Iterator[Records]:
        """Return what the messages say, batch by batch: memory is one batch, whatever comes."""
        for message in messages:
            match message:
                case Insert() | Update() | Delete():
                    if self._place is not None and message.oid in self._relations:
                        self._change(message, self._place)
                        if self._count >= ROWS_AT_ONCE:
                            yield from self._handed_over()
                case Begin(final_lsn):
                    inside = self._first <= final_lsn < self._last
                    self._place = final_lsn if inside else None
                case Relation():
                    self._relation(message)
                case Truncate(oids):
                    yield from self._handed_over()
                    for oid in oids:
                        if self._place is not None and oid in self._relations:
                            yield self._cleared(self._relations[oid][0], self._place)
                case Commit() | Other():
                    pass
        yield from self._handed_over()

    def _cleared(self, table: str, place: int) -> Records:
        if self._undo:
            raise Misfit(f"table {table!r} was truncated while its snapshot was taken")
        nothing = with_diffs(self._tables[table].empty_table(), 1)
        if table in self._keys:
            nothing = change_schema(self._tables[table]).empty_table()
        records = placed(self._partition, np.zeros(0, np.int64), nothing)
        return Records(table, records, clears=(self._partition, place))

    def _relation(self, relation: Relation) -> None:
        schema = self._tables.get(relation.name)
        if schema is None:
            self._relations.pop(relation.oid, None)
            return
        if self._oids.get(relation.name, relation.oid) != relation.oid:
            raise Misfit(f"table {relation.name!r} was dropped upstream and made again")
        found = {column.name: n for n, column in enumerate(relation.columns)}
        for wanted in schema:
            where = f"table {relation.name!r}, column {wanted.name!r}"
            if wanted.name not in found:
                raise Misfit(f"{where}: it was dropped or renamed upstream")
            column = relation.columns[found[wanted.name]]
            type_ = arrow_type(column.type_oid, column.type_modifier)
            if type_ != wanted.type:
                raise Misfit(f"{where}: it was {wanted.type}, and is {type_} upstream now")
            if type_of(wanted).name == "uuid" and column.type_oid != UUID:
                raise Misfit(f"{where}: it was a uuid, and is one no longer upstream")
        self._check_key(relation)
        places = tuple(found[name] for name in schema.names)
        self._relations[relation.oid] = (relation.name, places)

    def _check_key(self, relation: Relation) -> None:
        key = self._keys.get(relation.name)
        named = {column.name for column in relation.columns if column.in_key}
        if key is not None and relation.replica_identity != "f" and named != set(key):
            raise Misfit(
                f"table {relation.name!r}: its key was {list(key)}, and is {sorted(named)} upstream"
            )

    def _keyed(
        self, message: Insert | Update | Delete, columns: tuple[int, ...], table: str
    ) -> Iterator[tuple[Values, int, list[int] | None]]:
        """Return what a change says by key."""
        match message:
            case Insert(_, new):
                yield _row(table, new, columns), COMES, None
            case Delete(_, old, _):
                yield _row(table, old, columns), GOES, None
            case Update(_, before, _, new):
                values, kept = _sent(new, columns)
                names = self._tables[table].names
                key = [names.index(name) for name in self._keys[table]]
                went = None if before is None else _sent(before, columns)[0]
                if went is not None and any(went[place] != values[place] for place in key):
                    yield went, GOES, None
                    yield values, MOVES, kept
                else:
                    yield values, COMES, kept

    def _change(self, message: Insert | Update | Delete, place: int) -> None:
        table, columns = self._relations[message.oid]
        gathered = self._gathered.get(table)
        if gathered is None:
            gathered = self._gathered[table] = _Gathered()
        self._count += 1
        if table in self._keys:
            for row, change, kept in self._keyed(message, columns, table):
                gathered.add(row, place, change)
                gathered.kept.append(kept)
            return
        match message:
            case Insert(_, new):
                gathered.add(_row(table, new, columns), place, 1)
            case Delete(_, old, whole):
                gathered.add(_whole(table, old, whole, columns), place, -1)
            case Update(_, before, whole, new):
                went = _whole(table, before, whole, columns)
                assert before is not None
                if UNCHANGED in new:  # A large value that is not sent again is the one before.
                    both = zip(new, before, strict=True)
                    new = tuple([b if n is UNCHANGED else n for n, b in both])
                gathered.add(went, place, -1)
                gathered.add(_row(table, new, columns), place, 1)
                self._count += 1

    # ---- as records --------------------------------------------------------------------------

    def _handed_over(self) -> Iterator[Records]:
        """Return what has come, table by table, and begin afresh."""
        gathered, self._gathered, self._count = self._gathered, {}, 0
        for table, found in gathered.items():
            yield self._table(table, found)

    def _table(self, table: str, found: _Gathered) -> Records:
        schema = self._tables[table]
        arrays = []
        for texts, column in zip(zip(*found.rows, strict=True), schema, strict=True):
            try:
                arrays.append(column_of(texts, column.type))
            except Unreadable as error:
                raise Misfit(f"table {table!r}, column {column.name!r}: {error}") from error
        places, diffs = np.array(found.places, np.int64), np.array(found.diffs, np.int64)
        if self._undo:
            places, diffs = np.zeros_like(places), -diffs
        if table in self._keys:
            arrays += [pa.array(diffs, pa.int8()), pa.array(found.kept, pa.list_(pa.int32()))]
            changes = pa.Table.from_arrays(arrays, schema=change_schema(schema))
            return Records(table, placed(self._partition, places, changes))
        payload = with_diffs(pa.Table.from_arrays(arrays, schema=schema), diffs)
        return Records(table, placed(self._partition, places, payload))


def _whole(table: str, old: Tuple | None, whole: bool, columns: tuple[int, ...]) -> Values:
    if old is None or not whole:
        raise Misfit(
            f"table {table!r} logs updates and deletes without the row that goes: "
            f"ALTER TABLE {table} REPLICA IDENTITY FULL, before it is changed"
        )
    return _row(table, old, columns)


def _sent(values: Tuple, columns: tuple[int, ...]) -> tuple[Values, list[int] | None]:
    """Return a row without the large values that were not sent, and which those are."""
    row: list[Any] = [values[column] for column in columns]
    kept = [place for place, value in enumerate(row) if value is UNCHANGED]
    for place in kept:
        row[place] = None
    return tuple(row), kept or None


def _row(table: str, values: Tuple, columns: tuple[int, ...]) -> Values:
    row: Any = tuple([values[column] for column in columns])
    if UNCHANGED in row:
        raise Misfit(f"table {table!r}: a large value was not sent, and is nowhere else")
    return row  # type: ignore[no-any-return]

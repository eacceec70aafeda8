"""Changes of tables, gathered from the messages of a range, transaction by transaction.

A change is a row that goes (-1) or comes (+1), at the place of its transaction. What a truncated
table had *within* the range is retracted here, at the place of the truncation; what it had before
the range only the output knows, and is asked to (:class:`Records.clears`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headwater.storage.generators.generator import placed, with_diffs
from headwater.storage.source import Records
from headwater.storage.sources.pg_types import Unreadable, arrow_type, column_of
from headwater.storage.sources.pgoutput import (
    Begin,
    Commit,
    Delete,
    Insert,
    Message,
    Other,
    Relation,
    Truncate,
    Tuple,
    Unchanged,
    Update,
)


class Misfit(Exception):
    """A table is not any more what the source was defined with; the message names the column."""


@dataclass(slots=True)
class _Gathered:
    """What a range does to one table."""

    rows: list[tuple[str | None, ...]] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    diffs: list[int] = field(default_factory=list)
    cleared_at: int | None = None

    def add(self, row: tuple[str | None, ...], place: int, diff: int) -> None:
        self.rows.append(row)
        self.places.append(place)
        self.diffs.append(diff)

    def clear(self, place: int) -> None:
        """Everything goes: what the range brought so far, and what was there before it."""
        for row, diff in list(zip(self.rows, self.diffs, strict=True)):
            self.add(row, place, -diff)
        if self.cleared_at is None:
            self.cleared_at = place


class Changes:
    """The changes of some tables in a range."""

    def __init__(self, tables: Mapping[str, pa.Schema], partition: str) -> None:
        self._tables = tables
        self._partition = partition
        self._gathered = {table: _Gathered() for table in tables}
        self._relations: dict[int, tuple[str, tuple[int, ...]]] = {}
        self._place: int | None = None

    @property
    def truncated(self) -> list[str]:
        """The tables that were truncated in the range."""
        return [t for t, found in self._gathered.items() if found.cleared_at is not None]

    def add(self, message: Message, first: int, last: int) -> None:
        """Take the next message; changes of transactions outside ``[first, last)`` say nothing."""
        match message:
            case Begin(final_lsn):
                self._place = final_lsn if first <= final_lsn < last else None
            case Relation():
                self._relation(message)
            case Commit() | Other():
                pass
            case Truncate(oids):
                for oid in oids:
                    if self._place is not None and oid in self._relations:
                        self._gathered[self._relations[oid][0]].clear(self._place)
            case Insert() | Update() | Delete():
                if self._place is not None and message.oid in self._relations:
                    self._change(message, self._place)

    def _relation(self, relation: Relation) -> None:
        schema = self._tables.get(relation.name)
        if schema is None:
            self._relations.pop(relation.oid, None)
            return
        found = {column.name: n for n, column in enumerate(relation.columns)}
        for wanted in schema:
            where = f"table {relation.name!r}, column {wanted.name!r}"
            if wanted.name not in found:
                raise Misfit(f"{where}: it was dropped or renamed upstream")
            column = relation.columns[found[wanted.name]]
            type_ = arrow_type(column.type_oid, column.type_modifier)
            if type_ != wanted.type:
                raise Misfit(f"{where}: it was {wanted.type}, and is {type_} upstream now")
        places = tuple(found[name] for name in schema.names)
        self._relations[relation.oid] = (relation.name, places)

    def _change(self, message: Insert | Update | Delete, place: int) -> None:
        table, columns = self._relations[message.oid]
        gathered = self._gathered[table]
        match message:
            case Insert(_, new):
                gathered.add(_row(table, new, columns), place, 1)
            case Delete(_, old, whole):
                gathered.add(_whole(table, old, whole, columns), place, -1)
            case Update(_, before, whole, new):
                went = _whole(table, before, whole, columns)
                assert before is not None
                # A large value that did not change is not sent again: it is the one before.
                now = tuple(
                    b if isinstance(n, Unchanged) else n for n, b in zip(new, before, strict=True)
                )
                gathered.add(went, place, -1)
                gathered.add(_row(table, now, columns), place, 1)

    # ---- as records --------------------------------------------------------------------------

    def records(self) -> Iterator[Records]:
        """Return all changes, at their places."""
        for table, found in self._gathered.items():
            if found.rows or found.cleared_at is not None:
                places = np.array(found.places, np.int64)
                yield self._table(table, found, places, 1)

    def undone(self) -> Iterator[Records]:
        """Return the opposite of all changes, at place 0."""
        for table, found in self._gathered.items():
            if found.rows:
                yield self._table(table, found, np.zeros(len(found.rows), np.int64), -1)

    def _table(self, table: str, found: _Gathered, places: object, sign: int) -> Records:
        schema = self._tables[table]
        columns = list(zip(*found.rows, strict=True)) if found.rows else [()] * len(schema)
        arrays = []
        for texts, column in zip(columns, schema, strict=True):
            try:
                arrays.append(column_of(texts, column.type))
            except Unreadable as error:
                raise Misfit(f"table {table!r}, column {column.name!r}: {error}") from error
        payload = with_diffs(
            pa.Table.from_arrays(arrays, schema=schema), sign * np.array(found.diffs, np.int64)
        )
        cleared = None if found.cleared_at is None else (self._partition, found.cleared_at)
        return Records(table, placed(self._partition, np.asarray(places), payload), cleared)


def _whole(
    table: str, old: Tuple | None, whole: bool, columns: tuple[int, ...]
) -> tuple[str | None, ...]:
    if old is None or not whole:
        raise Misfit(
            f"table {table!r} logs updates and deletes without the row that goes: "
            f"ALTER TABLE {table} REPLICA IDENTITY FULL, before it is changed"
        )
    return _row(table, old, columns)


def _row(table: str, values: Tuple, columns: tuple[int, ...]) -> tuple[str | None, ...]:
    row = []
    for column in columns:
        value = values[column]
        if isinstance(value, Unchanged):
            raise Misfit(f"table {table!r}: a large value was not sent, and is nowhere else")
        row.append(value)
    return tuple(row)

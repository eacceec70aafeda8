"""Changes of tables, gathered from the events of a range, transaction by transaction.

A change is a row that goes (-1) or comes (+1), at the place of its group. What a truncated table
had only its output knows, which is asked to retract it (:class:`Records.clears`).

**What never happened.** A group without its commit is taken back: it was rolled back (after it had
changed a table that knows no transactions), or a crash of the server tore the file in it. A small
one is simply not handed over. Of a large one, which does not fit into one batch, a part was handed
over already when its end is seen: then the whole range is read again, without it (:class:`Void`).
So memory is one batch, whatever comes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headwater.storage.generators.generator import placed, with_diffs
from headwater.storage.source import Records
from headwater.storage.sources.misfit import Misfit
from headwater.storage.sources.my_binlog import (
    Committed,
    Event,
    File,
    Format,
    Group,
    Malformed,
    Other,
    Payload,
    Prepared,
    Rows,
    Statement,
    TableMap,
    decoded,
    events_of,
)
from headwater.storage.sources.my_columns import LoggedColumn, Read, logged
from headwater.storage.sources.my_statements import Cleared, effects
from headwater.storage.sources.my_stream import Placed
from headwater.storage.sources.my_types import Unreadable

ROWS_AT_ONCE: Final = 20_000
MAPS_MAX: Final = 1_000


class Void(Exception):
    """A group of which a part was handed over never happened."""

    def __init__(self, place: int) -> None:
        super().__init__("a large transaction was not committed")
        self.place = place


@dataclass(frozen=True, slots=True)
class Followed:
    """What is followed, and what has to be known of the server to read it."""

    tables: Mapping[str, pa.Schema]
    charsets: Mapping[int, str]
    maria: bool
    folded: bool
    """Whether it does not tell ``a`` from ``A`` in the names of tables."""


@dataclass(frozen=True, slots=True)
class _Mapped:
    """One of our tables, as some events have it."""

    table: str
    reads: tuple[Read, ...]
    wanted: tuple[int, ...] | None
    """Where our columns are; ``None``: they are all there is, in their order."""
    columns: tuple[LoggedColumn, ...]

    def rows(self, data: bytes) -> Iterator[tuple[Any, ...]]:
        """Return the rows of an event."""
        reads, wanted, at, end = self.reads, self.wanted, 0, len(data)
        width = (len(reads) + 7) // 8
        while at < end:
            nulls = int.from_bytes(data[at : at + width], "little")
            at += width
            row: list[Any] = []
            for read in reads:
                if nulls & 1:
                    row.append(None)
                else:
                    value, at = read(data, at)
                    row.append(value)
                nulls >>= 1
            yield tuple(row) if wanted is None else tuple([row[n] for n in wanted])
        if at != end:
            raise Malformed(f"a row of table {self.table!r} is longer than its event")


@dataclass(slots=True)
class _Gathered:
    """What came of one table, described in one way, since it was last handed over."""

    mapped: _Mapped
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    diffs: list[int] = field(default_factory=list)


class Changes:
    """The changes of some tables in ``[first, last)``; with ``undo`` their opposite, at place 0."""

    def __init__(
        self,
        followed: Followed,
        partition: str,
        first: int,
        last: int,
        *,
        void: Collection[int] = (),
        undo: bool = False,
    ) -> None:
        self._followed = followed
        self._partition = partition
        self._first, self._last = first, last
        self._void = void
        self._undo = undo
        self._gathered: dict[str, _Gathered] = {}
        self._known: dict[TableMap, _Mapped | None] = {}
        self._maps: dict[int, _Mapped | None] = {}
        self._count = 0
        self._place: int | None = None
        self._marks: dict[str, int] | None = None
        """How much of each table was there when the group began; ``None``: it has nothing yet."""
        self._is_handed = False
        """Whether something of the group was handed over."""

    def records(self, events: Iterable[Placed]) -> Iterator[Records]:
        """Return what the events say, batch by batch."""
        for each in events:
            yield from self._event(each.event, each.place)
        self._end(took_place=False)
        yield from self._handed_over()

    def _event(self, event: Event, place: int) -> Iterator[Records]:
        match event:
            case Rows():
                yield from self._rows(event)
            case TableMap():
                self._maps[event.number] = self._mapped(event)
            case Group():
                self._end(took_place=False)
                inside = self._first <= place < self._last and place not in self._void
                self._place = place if inside else None
            case Committed():
                self._end(took_place=True)
                if self._count >= ROWS_AT_ONCE:
                    yield from self._handed_over()
            case Statement(schema, text):
                yield from self._statement(schema, text)
            case Payload(size, compressed, data):
                if compressed:
                    data = pa.decompress(data, size, codec="zstd", asbytes=True)
                for inner in events_of(data):
                    yield from self._event(decoded(inner, checksums=False), place)
            case Prepared():
                if self._marks is not None:
                    raise Misfit(
                        "a distributed transaction (XA) changed what is followed: "
                        "what becomes of those is not followed"
                    )
            case Format() | File():
                self._end(took_place=False)
                self._maps.clear()
            case Other():
                pass

    # ---- groups ------------------------------------------------------------------------------

    def _end(self, *, took_place: bool) -> None:
        marks, self._marks = self._marks, None
        is_handed, self._is_handed = self._is_handed, False
        place, self._place = self._place, None
        if took_place or marks is None:
            return
        if is_handed:
            assert place is not None
            raise Void(place)
        for table, found in self._gathered.items():
            kept = marks.get(table, 0)
            self._count -= len(found.rows) - kept
            del found.rows[kept:], found.places[kept:], found.diffs[kept:]

    def _statement(self, schema: str, text: str) -> Iterator[Records]:
        if self._place is None:
            return
        said = text.upper()
        if said == "BEGIN":
            return
        if said.startswith("ROLLBACK"):
            if said != "ROLLBACK" and self._marks is not None:
                raise Misfit(f"a transaction took back a part of itself, by {text}")
            self._end(took_place=said != "ROLLBACK")
            return
        followed = self._followed
        for effect in effects(schema, text, followed.tables, folded=followed.folded):
            if not isinstance(effect, Cleared):
                raise Misfit(f"table {effect.table!r} {effect.why}")
            yield from self._handed_over()
            yield self._cleared(effect.table, self._place)

    def _cleared(self, table: str, place: int) -> Records:
        if self._undo:
            raise Misfit(f"table {table!r} was truncated while its snapshot was taken")
        nothing = with_diffs(self._followed.tables[table].empty_table(), 1)
        records = placed(self._partition, np.zeros(0, np.int64), nothing)
        return Records(table, records, clears=(self._partition, place))

    # ---- tables ------------------------------------------------------------------------------

    def _mapped(self, event: TableMap) -> _Mapped | None:
        if event in self._known:
            return self._known[event]
        if len(self._known) >= MAPS_MAX:
            self._known.clear()
        found = self._known[event] = self._matched(event)
        return found

    def _matched(self, event: TableMap) -> _Mapped | None:
        """Find our columns in those of a table; refuse what is not as it was."""
        table = f"{event.schema}.{event.table}"
        if self._followed.folded:
            ours = {name.lower(): name for name in self._followed.tables}
            table = ours.get(table.lower(), table)
        schema = self._followed.tables.get(table)
        if schema is None:
            return None
        try:
            columns = logged(event, self._followed.charsets, maria=self._followed.maria)
        except Unreadable as error:
            raise Misfit(f"table {table!r}, {error}") from error
        if not columns:
            raise Misfit(
                f"table {table!r} is logged without the names of its columns: "
                "SET GLOBAL binlog_row_metadata = 'FULL', before it is changed"
            )
        there = {column.name.lower(): n for n, column in enumerate(columns)}
        wanted = []
        for ours_ in schema:
            where = f"table {table!r}, column {ours_.name!r}"
            n = there.get(ours_.name.lower())
            if n is None:
                raise Misfit(f"{where}: it was dropped or renamed upstream")
            if columns[n].type != ours_.type:
                raise Misfit(f"{where}: it was {ours_.type}, and is {columns[n].type} upstream now")
            wanted.append(n)
        as_it_is = wanted == list(range(len(columns)))
        return _Mapped(
            table,
            tuple(column.read for column in columns),
            None if as_it_is else tuple(wanted),
            tuple(columns[n] for n in wanted),
        )

    def _rows(self, event: Rows) -> Iterator[Records]:
        mapped = self._maps.get(event.number)
        if self._place is None or mapped is None:
            return
        if not event.complete or event.columns != len(mapped.reads):
            raise Misfit(
                f"table {mapped.table!r} is logged without the rows as they are: "
                "SET GLOBAL binlog_row_image = 'FULL', before it is changed"
            )
        gathered = self._gathered.get(mapped.table)
        if gathered is not None and gathered.mapped is not mapped:
            # Its columns are described anew: what came before is of the old description.
            yield from self._handed_over()
            gathered = None
        if gathered is None:
            gathered = self._gathered[mapped.table] = _Gathered(mapped)
        if self._marks is None:
            self._marks = {table: len(found.rows) for table, found in self._gathered.items()}
        before = len(gathered.rows)
        gathered.rows += mapped.rows(event.data)
        count = len(gathered.rows) - before
        gathered.places += [self._place] * count
        if event.before and event.after:
            gathered.diffs += [-1, 1] * (count // 2)
        else:
            gathered.diffs += [1 if event.after else -1] * count
        self._count += count
        if self._count >= ROWS_AT_ONCE:
            yield from self._handed_over()

    # ---- as records --------------------------------------------------------------------------

    def _handed_over(self) -> Iterator[Records]:
        """Return what has come, table by table, and begin afresh."""
        gathered, self._gathered, self._count = self._gathered, {}, 0
        if self._marks is not None:
            self._is_handed, self._marks = True, {}
        for found in gathered.values():
            if found.rows:
                yield self._table(found)

    def _table(self, found: _Gathered) -> Records:
        mapped = found.mapped
        schema = self._followed.tables[mapped.table]
        arrays = []
        columns = zip(*found.rows, strict=True)
        for values, column, ours in zip(columns, mapped.columns, schema, strict=True):
            try:
                arrays.append(column.array(values))
            except Unreadable as error:
                raise Misfit(f"table {mapped.table!r}, column {ours.name!r}: {error}") from error
        places, diffs = np.array(found.places, np.int64), np.array(found.diffs, np.int64)
        if self._undo:
            places, diffs = np.zeros_like(places), -diffs
        payload = with_diffs(pa.Table.from_arrays(arrays, schema=schema), diffs)
        return Records(mapped.table, placed(self._partition, places, payload))

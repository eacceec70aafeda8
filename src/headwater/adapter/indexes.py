"""Indexes: a relation kept a second time, laid out so that its rows are found by some columns.

    index(t) = relation(t)      at every time that both have

An index is a view ``SELECT * FROM relation`` that compute maintains, whose output is a keyed run
of the index's columns. Of a *plain view* it is the one place where its rows are kept at all: a
query that reads the view reads them there, instead of computing them.

Three uses, decided when a query is planned (but for errors, which are met when it is answered):

- a *probe*: the query asks for whole keys and nothing else (``sql/point.py``). No Spark job runs.
- an index *stands for* a plain view in a query of any other kind.
- an index that cannot answer (it is still hydrating, it is stalled, or the time is before its
  history) is not used: the query is answered as if it was not there, and the same. So it is where
  the index of a plain view has errors: the query may ask for nothing that fails.

**The tail.** An index of a collection follows it a step behind. A probe at a time that the index
has not reached reads it at its newest time ``u - 1``, and adds the collection's own updates in
``[u, t]`` with these keys, if they are few. So it does not wait for a step:

    rows(t) = index(u - 1) + sum of the collection's updates at times in [u, t]

Pure, but for reading parts. Kept by: this module. Relied on by: :mod:`.reads`, :mod:`.definitions`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from headwater.adapter import catalog
from headwater.adapter.errors import InvalidDefinition, UnknownColumn
from headwater.adapter.sql.names import bare, full, parts, quoted, quoted_name, schema_of
from headwater.adapter.sql.point import PointRead
from headwater.adapter.sql.statements import CreateIndex
from headwater.base.errors import HeadwaterError
from headwater.base.ids import GlobalId
from headwater.collection.key import key_form, keys_equal
from headwater.persist.consolidate import consolidate
from headwater.persist.core import Core
from headwater.persist.errors import AsOfBeforeSince
from headwater.persist.evolution import DIFF, TIME
from headwater.persist.part import read_part
from headwater.persist.spark_parts import cut
from headwater.persist.state import CollectionState, State, bound

TAIL_ROWS_MAX: Final = 20_000
"""How many updates a probe reads beyond an index; where there are more, it waits for the index."""

NAME_LENGTH_MAX: Final = 63


@dataclass(frozen=True, slots=True)
class Index:
    """An index as it can be used: what it is called, and its collection."""

    object: catalog.Object
    on: catalog.Object
    collection: CollectionState


@dataclass(frozen=True, slots=True)
class Probe:
    """A query that is answered by looking keys up."""

    keyed: GlobalId
    """The collection that is laid out by the key."""
    point: PointRead
    schema: pa.Schema
    relation: str
    """What the query calls it."""
    index: str | None = None
    """None: the primary key of a table."""
    base: GlobalId | None = None
    """What the index follows, if its tail is read there."""
    key: tuple[str, ...] = ()
    table: GlobalId | None = None
    """Whose rows are found, if it is one that can be written."""

    @property
    def waited(self) -> GlobalId:
        """What has to be complete at the time of the read."""
        return self.keyed if self.base is None else self.base


# ---- definition ----------------------------------------------------------------------------------


def named(state: State, statement: CreateIndex) -> str:
    """Return the name of a new index: the one it is given, or the first free one of PostgreSQL's.

    >>> default_name("orders", ("region", "day"), 0), default_name("orders", ("region",), 2)
    ('orders_region_day_idx', 'orders_region_idx2')
    """
    on = catalog.named(state, statement.on)
    schema = schema_of(on.name)
    if statement.name is not None:
        wanted, alone = parts(statement.name)
        if wanted not in (None, schema):
            raise InvalidDefinition(
                f'an index of "{on.name}" is in its schema, "{schema}"',
                hint=f'Call it "{alone}".',
            )
        return full(schema, alone)
    number = 0
    while True:
        made = full(schema, default_name(bare(on.name), statement.columns, number))
        if catalog.called(state, made) is None:
            return made
        number += 1


def default_name(on: str, columns: Sequence[str], number: int) -> str:
    """Return a name as PostgreSQL makes it."""
    suffix = f"_idx{number or ''}"
    return "_".join((on, *columns))[: NAME_LENGTH_MAX - len(suffix)] + suffix


def checked(state: State, statement: CreateIndex, name: str) -> catalog.Object:
    """Return what an index is of; refuse columns that it does not have, or cannot be keys."""
    on = catalog.named(state, statement.on)
    catalog.refuse_duplicate(state, name)
    schema = catalog.schemas(state, (statement.on,))[statement.on]
    for column in statement.columns:
        if column not in schema.names:
            raise UnknownColumn(column, statement.on, schema.names)
        try:
            key_form(schema.field(column).type)
        except HeadwaterError as error:
            raise InvalidDefinition(
                f'column "{column}" cannot be indexed: {error}',
                hint="Index a view that has it as text.",
            ) from error
    return on


def create_sql(name: str, on: catalog.Object, statement: CreateIndex) -> str:
    """Return the statement, with the names that there are now."""
    columns = ", ".join(map(quoted, statement.columns))
    return f"CREATE INDEX {quoted_name(name)} ON {quoted_name(on.name)} ({columns})"


# ---- use -----------------------------------------------------------------------------------------


class Indexes:
    """The indexes of a catalog, by what they are of; made anew when the catalog changes."""

    def __init__(self) -> None:
        self._seen: tuple[Mapping[str, bytes], Mapping[str, tuple[catalog.Object, ...]]]
        self._seen = ({}, {})

    def of(self, state: State, on: catalog.Object) -> tuple[catalog.Object, ...]:
        """Return the indexes of an object, oldest first."""
        items, known = self._seen
        if items is not state.items:
            found: dict[str, list[catalog.Object]] = {}
            for each in catalog.objects(state):
                if each.kind == "index":
                    found.setdefault(each.uses[0], []).append(each)
            known = {oid: tuple(sorted(each, key=_age)) for oid, each in found.items()}
            self._seen = (state.items, known)
        return known.get(on.id, ())

    def usable(
        self, state: State, on: catalog.Object, at: int | None, failures: Mapping[GlobalId, str]
    ) -> list[Index]:
        """Return the indexes of an object that can answer, at ``at`` if that is known."""
        found = []
        for each in self.of(state, on):
            collection = state.collections[state.names[each.collection]]
            upper = state.upper(collection)
            hydrated = not collection.since.is_closed and not upper <= collection.since
            readable = at is None or collection.since.allows(at)
            if hydrated and readable and collection.id not in failures:
                found.append(Index(each, on, collection))
        return found


def _age(index: catalog.Object) -> int:
    return int(index.id[1:])


def tail_is_short(state: State, index: Index, base: CollectionState) -> bool:
    """Whether what the index has not taken in yet is little enough to be read by a probe."""
    lower, upper = bound(state.upper(index.collection)), bound(state.upper(base))
    if lower >= upper:
        return True
    try:
        ok, errors = cut(base, lower, upper)
    except AsOfBeforeSince:
        return False
    return not errors.parts and sum(part.rows for part in ok.parts) <= TAIL_ROWS_MAX


def tail(
    core: Core,
    base: CollectionState,
    lower: int,
    time: int,
    key: Sequence[str],
    keys: Sequence[Any],
) -> pa.Table:
    """Return the updates of a collection in ``[lower, time]`` that have one of the keys."""
    ok, _ = cut(base, lower, time + 1)
    tables = [read_part(part, base, fetch=core.fetch, layouts=core.layouts) for part in ok.parts]
    kept = []
    for table in tables:
        stored = [table.column(name).combine_chunks() for name in key]
        for place in range(len(keys[0])):
            wanted = [column.take(pa.array([place] * table.num_rows)) for column in keys]
            kept.append(table.filter(pa.array(keys_equal(stored, wanted))))
    return pa.concat_tables(kept) if kept else pa.table({})


def merged(indexed: pa.Table, updates: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return the rows of an index with the updates of its tail added up."""
    columns = [*names, DIFF]
    if not updates.num_rows:
        return indexed.select(columns)
    newer = updates.drop_columns([TIME]).select(columns)
    older = indexed.select(columns)
    return consolidate(pa.concat_tables([older, newer.cast(older.schema)]))

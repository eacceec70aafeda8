"""The difference between two collections: what makes of the one, as it was, the other as it is.

    difference(old at a, new at b) = new(b) - old(a)

Invariant:      ``old(a)`` and the difference together are ``new(b)``, on both sides.
Relied on by:   whoever goes on with another collection in place of one that was replaced:
                materializations (``materialize/replaced.py``) and subscriptions (``succession``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from headwater.base.ids import GlobalId
from headwater.persist.compact import advance
from headwater.persist.consolidate import consolidate
from headwater.persist.core import Core
from headwater.persist.evolution import DIFF, TIME
from headwater.persist.interval import Interval


class Difference:
    """What makes of one collection, as it is at a time, another at a later one; like an interval.

    Both are cut out of one state each and read piece by piece; rows that are in both cancel out
    where they are combined.
    """

    def __init__(self, core: Core, old: GlobalId, at: int, new: GlobalId, upper: int) -> None:
        self.old = Interval(core, old, at, at + 1, whole=True)
        self.new = Interval(core, new, upper - 1, upper, whole=True)
        self.first_time: int | None = at + 1
        self.last_time: int | None = upper - 1

    def find_first_time(self) -> int | None:
        """Return the first time at which the endpoint may differ."""
        return self.first_time

    @property
    def schema(self) -> pa.Schema:
        """The columns of its updates: those of the new collection."""
        return self.new.schema

    def at_end(self) -> Interval:
        """Return all that is there at its last time."""
        return self.new

    def updates(self) -> Iterator[pa.Table]:
        """Yield what comes, then what goes."""
        return difference(self.old, self.new)

    def errors(self) -> pa.Table:
        """Return what comes and goes of the error side, at the last time."""
        last = self.last_time
        assert last is not None
        came, was = self.new.errors(), self.old.errors()
        both = pa.concat_tables([came, _gone(was, was.schema)], promote_options="permissive")
        return consolidate(advance(both, last))


class Whole(Protocol):
    """A collection at a time, to be read; a whole interval is."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of its updates."""
        ...

    def updates(self) -> Iterator[pa.Table]:
        """Yield its rows as updates, piece by piece."""
        ...


def difference(old: Whole, new: Whole) -> Iterator[pa.Table]:
    """Yield what makes of one collection another: what comes, then what goes."""
    yield from new.updates()
    for piece in old.updates():
        yield _gone(piece, new.schema)


def _gone(piece: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return what takes updates back; columns that they do not have are NULL."""
    columns = []
    for field in schema:
        if field.name == DIFF:
            columns.append(pc.negate(piece[DIFF]))
        elif field.name in piece.column_names:
            columns.append(piece[field.name].cast(field.type))
        else:
            columns.append(pa.nulls(piece.num_rows, field.type))
    loose = [f if f.name in (TIME, DIFF) else f.with_nullable(True) for f in schema]
    return pa.table(columns, pa.schema(loose))

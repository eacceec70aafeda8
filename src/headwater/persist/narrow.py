"""Narrowing: only some rows and columns of a collection, decided where its parts are read.

A part whose statistics prove that no row of it satisfies the predicates is not even fetched; a
sample of those is read anyway, to prove the statistics right. Errors are never narrowed away.

Relied on by: snapshots, listens, subscriptions.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pyarrow as pa

from headwater.persist.batch import Part
from headwater.persist.codec import Codec, upgraded
from headwater.persist.core import Core
from headwater.persist.errors import Corrupt, SchemaMismatch
from headwater.persist.evolution import DIFF, TIME
from headwater.persist.part import read_part
from headwater.persist.state import CollectionState
from headwater.persist.stats import Predicate, may_match


def is_upgraded(part: Part, collection: CollectionState, codec: Codec | None) -> bool:
    """Whether a part's columns must be brought from an older version of the codec to ours."""
    if codec is None or part.errors:
        return False
    return collection.codecs[part.schema].version != codec.version


def read_rows(
    core: Core,
    collection: CollectionState,
    part: Part,
    codec: Codec | None,
    *,
    threads: bool = False,
) -> pa.Table:
    """Return the updates of a part as our version of the codec would have written them."""
    fetch, layouts = core.fetch, core.layouts
    if codec is None or not is_upgraded(part, collection, codec):
        return read_part(part, collection, fetch=fetch, layouts=layouts, threads=threads)
    schema = collection.newest_of(part.schema)
    updates = read_part(part, collection, fetch=fetch, layouts=layouts, schema=schema)
    return upgraded(codec, updates, collection.codecs[schema].version)


@dataclass(frozen=True, slots=True)
class Narrowing:
    """Rows that satisfy all predicates, and of those only some columns (``None``: all)."""

    predicates: tuple[Predicate, ...] = ()
    columns: tuple[str, ...] | None = None

    def check(self, name: str, schema: pa.Schema) -> None:
        """Refuse columns that the collection does not have."""
        for column in (*(p.column for p in self.predicates), *(self.columns or ())):
            if column not in schema.names:
                raise SchemaMismatch(name, f"there is no column {column!r} in {schema.names}")

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """Return what is left of the data columns."""
        if self.columns is None:
            return schema
        return pa.schema([schema.field(column) for column in self.columns])

    def rows(self, updates: pa.Table) -> pa.Table:
        """Return what is left of updates of the ok side; they may then be equal and add up."""
        for predicate in self.predicates:
            updates = updates.filter(predicate.matches(updates))
        if self.columns is not None:
            updates = updates.select([*self.columns, TIME, DIFF])
        return updates

    def skips(
        self, core: Core, collection: CollectionState, part: Part, codec: Codec | None
    ) -> bool:
        """Whether the statistics of a part rule it out."""
        if part.errors or is_upgraded(part, collection, codec):
            return False  # Statistics of an older version are of columns that we do not read.
        if all(may_match(part.stats, part.rows, predicate) for predicate in self.predicates):
            return False
        core.metrics.parts_skipped.inc()
        # Which parts are audited must not depend on luck that a test cannot repeat.
        sampled = Random(f"{collection.id}/{part.where}/{part.diff_sum}").random()
        if sampled < core.settings.audit_fraction:
            self._audit(core, collection, part, codec)
        return True

    def _audit(
        self, core: Core, collection: CollectionState, part: Part, codec: Codec | None
    ) -> None:
        core.metrics.parts_audited.inc()
        found = self.rows(read_rows(core, collection, part, codec))
        if found.num_rows:
            raise Corrupt(
                f"statistics of a part of collection {collection.name!r}",
                f"they excluded {found.num_rows} rows that satisfy {self.predicates}",
            )

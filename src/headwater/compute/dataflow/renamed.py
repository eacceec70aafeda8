"""A stored collection under the names by which an operator knows its columns.

Arrangements of stored collections are shared, so they have the collection's own names; a plan has
names of its own, perhaps two of one field.

Kept by: this module. Relied on by: ``stage.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.collection.probe import Kept
from headwater.compute.dataflow.graph import Scanned
from headwater.compute.dataflow.operator import History, update_schema
from headwater.persist.consolidate import DIFF, TIME


@dataclass(slots=True)
class RenamedHistory(History):
    """A shared arrangement under the names by which an operator knows its columns."""

    fields: Mapping[str, str] = field(default_factory=dict)

    def probe(self, keys: Any, **options: Any) -> pa.Table:
        """As :meth:`History.probe`."""
        columns = options.pop("columns", None)
        wanted = self.schema.names if columns is None else columns
        stored = [self.fields.get(name, name) for name in wanted]
        # One field may be known by two names; it is fetched once.
        fetched = list(dict.fromkeys(stored))
        raw = self._raw()
        kept: Kept | None = options.pop("kept", None)
        if kept is not None:
            options["kept"] = self._kept_of_stored(kept)
        found = History.probe(raw, keys, columns=fetched, **options)
        self.rows_read += raw.rows_read
        arrays = [found.column(0), *(found.column(name) for name in stored)]
        return pa.table(arrays, names=[found.column_names[0], *wanted])

    def _kept_of_stored(self, kept: Kept) -> Kept:
        """Return the same, asked of rows under the names of the collection."""
        stored = [self.fields.get(name, name) for name in kept.columns]

        def passes(rows: pa.Table) -> npt.NDArray[np.bool_]:
            return kept.passes(pa.table([rows.column(n) for n in stored], names=[*kept.columns]))

        return Kept(tuple(dict.fromkeys(stored)), passes)

    def _raw(self) -> History:
        fields = [
            pa.field(self.fields.get(field.name, field.name), field.type) for field in self.schema
        ]
        unique = {field.name: field for field in fields}
        return History(
            self.runs, self.key, pa.schema(list(unique.values())), self.ignore_from, self.floor
        )


def named(origin: Scanned, raw: pa.Table) -> pa.Table:
    """Return the updates of a stored collection under an operator's names, in its types."""
    schema = update_schema(origin.columns)
    columns = [raw.column(field.field) for field in origin.fields]
    cast = [
        column if column.type == wanted.type else pc.cast(column, wanted.type)
        for column, wanted in zip(columns, schema, strict=False)
    ]
    return pa.Table.from_arrays([*cast, raw.column(TIME), raw.column(DIFF)], schema=schema)

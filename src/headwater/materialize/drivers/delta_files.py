"""How the files of a Delta table are written, by us and by its engine: compressed, and with
dictionaries only where they pay.

Relied on by: ``delta_staging``, which writes files of new rows, and ``delta_tables``, whose merges
let the engine write.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import ColumnProperties, WriterProperties

COMPRESSION: Final = "snappy"
_SAMPLE_ROWS: Final = 1 << 12
_REPEATED: Final = 4
"""So often a value is there on average, if it is to be in a dictionary."""


def repeating(rows: pa.Table) -> Iterator[str]:
    """Yield the columns whose values repeat themselves enough to be worth a dictionary.

    Elsewhere one is made in vain: it costs three times what all the rest of writing does.
    """
    sample = rows.slice(0, _SAMPLE_ROWS)
    for name, column in zip(sample.column_names, sample.columns, strict=True):
        if not len(column) or _REPEATED * pc.count_distinct(column, "all").as_py() <= len(column):
            yield name


def engine_properties(rows: pa.Table) -> WriterProperties:
    """Return how the engine is to write files that rows like these are merged into."""
    worth, not_worth = (ColumnProperties(dictionary_enabled=each) for each in (True, False))
    kept = {*repeating(rows)}
    return WriterProperties(
        compression="SNAPPY",
        column_properties={n: worth if n in kept else not_worth for n in rows.column_names},
    )

"""Which columns of a Parquet file are worth a dictionary: those whose values repeat themselves.

Elsewhere one is made in vain: it costs three times what all the rest of writing does.

Relied on by: the drivers of Delta Lake and Iceberg, which write files of new rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headwater.materialize.drivers.typed_rows import stored
from headwater.materialize.joined import joined

_SAMPLE_ROWS: Final = 1 << 12
_REPEATED: Final = 4
"""So often a value is there on average, if it is to be in a dictionary."""


def repeating(rows: pa.Table) -> Iterator[str]:
    """Yield the columns whose values repeat themselves enough, by a sample."""
    sample = rows.slice(0, _SAMPLE_ROWS)
    for name, column in zip(sample.column_names, sample.columns, strict=True):
        if pa.types.is_nested(column.type):
            continue  # Its parts are columns of their own, which nobody counts.
        values = stored(joined(column))
        if not len(values) or _REPEATED * pc.count_distinct(values, "all").as_py() <= len(values):
            yield name

"""How the files of a Delta table are written, by us and by its engine: compressed, and with
dictionaries only where they pay.

Relied on by: ``delta_staging``, which writes files of new rows, and ``delta_tables``, whose merges
let the engine write.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from deltalake import ColumnProperties, WriterProperties

from headwater.materialize.drivers.dictionaries import repeating

COMPRESSION: Final = "snappy"


def engine_properties(rows: pa.Table) -> WriterProperties:
    """Return how the engine is to write files that rows like these are merged into."""
    worth, not_worth = (ColumnProperties(dictionary_enabled=each) for each in (True, False))
    kept = {*repeating(rows)}
    return WriterProperties(
        compression="SNAPPY",
        column_properties={n: worth if n in kept else not_worth for n in rows.column_names},
    )

"""A sink into a Delta table: rows appended, one commit per batch.

The commit carries an application transaction, the sink's id and the number of the batch, which
the table keeps with the rows. It is read first; so a batch is in the table once, whoever repeats it
(``materialize/drivers/delta_tables.py`` does the same for deliveries).
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError

from headwater.compute.declared.written import NotWritten


def write_commit(
    sink: str, options: Mapping[str, str], rows: pa.Table, token: str, number: int
) -> None:
    """Append these rows to a table as one batch, unless it is there."""
    path = options["path"]
    merge = options.get("mergeSchema", "").lower() == "true"
    app = f"headwater-{token}"
    try:
        table = DeltaTable(path) if DeltaTable.is_deltatable(path) else None
        if table is not None and (table.transaction_version(app) or 0) >= number:
            return
        write_deltalake(
            path if table is None else table,
            rows,
            mode="append",
            schema_mode="merge" if merge else None,
            commit_properties=CommitProperties(app_transactions=[Transaction(app, number)]),
        )
    except (DeltaError, OSError, ValueError, pa.ArrowException) as error:
        raise NotWritten(sink, str(error).splitlines()[0]) from error

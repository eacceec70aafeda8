"""The rows of a transaction on their way into a Delta table: a file, and what is known of it.

A file in which all rows are new has the columns of its table and can become one of the table's. As
soon as anything else is to be said of a row, all rows of the file are marked with what is to become
of them, and it is merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.materialize.drivers.delta_tables import GONE

_COMPRESSION: Final = "snappy"
_GONE: Final = pa.field(GONE, pa.bool_(), nullable=False)
_TEXT_MAX: Final = 32


class Statistics(msgspec.Struct, frozen=True):
    """What is known of rows, of each column: how many are NULL, and its bounds."""

    rows: int
    nulls: dict[str, int]
    bounds: dict[str, tuple[Any, Any]]


def statistics(rows: pa.Table) -> Statistics:
    """Return what Delta's readers use to skip a file.

    Bounds only of integers and short texts: what they must be of others, readers do not agree upon.
    """
    bounds = {}
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if column.type in (pa.int64(), pa.string()) and column.null_count < len(column):
            found = pc.min_max(column).as_py()
            bounds[name] = (found["min"], found["max"])
    nulls = {n: c.null_count for n, c in zip(rows.column_names, rows.columns, strict=True)}
    return Statistics(rows.num_rows, nulls, bounds)


def statistics_json(parts: Sequence[Statistics]) -> str:
    """Return the statistics of all rows, as a commit has them."""
    rows = sum(part.rows for part in parts)
    nulls = {name: sum(part.nulls[name] for part in parts) for name in parts[0].nulls}
    least, greatest = {}, {}
    for name in {name for part in parts for name in part.bounds}:
        found = [part.bounds[name] for part in parts if name in part.bounds]
        low, high = min(low for low, _ in found), max(high for _, high in found)
        if not isinstance(low, str) or max(len(low), len(high)) <= _TEXT_MAX:
            least[name], greatest[name] = low, high
    bounds = {"minValues": least, "maxValues": greatest, "nullCount": nulls}
    return msgspec.json.encode({"numRecords": rows, **bounds}, order="sorted").decode()


class Staging:
    """The rows of one binding in the transaction in hand."""

    def __init__(self, schema: pa.Schema) -> None:
        self.merge = False
        self._schema = schema
        self._statistics: list[Statistics] = []
        self._begin(schema)

    def _begin(self, schema: pa.Schema) -> None:
        self._stream = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(self._stream, schema, compression=_COMPRESSION)

    def write(self, rows: pa.Table, gone: pa.BooleanArray, *, merge: bool) -> None:
        """Add rows; ``merge``: their keys may be in the table, or some are to go."""
        if merge and not self.merge:
            # So far all were new; now it must be said of each what is to become of it.
            before = pq.read_table(pa.BufferReader(self.content()))
            self.merge = True
            self._begin(self._schema.append(_GONE))
            self._write_marked(before, pa.repeat(pa.scalar(False), before.num_rows))
        if self.merge:
            self._write_marked(rows, gone)
        else:
            self._statistics.append(statistics(rows))
            self._writer.write_table(rows)

    def _write_marked(self, rows: pa.Table, gone: pa.BooleanArray) -> None:
        self._writer.write_table(rows.append_column(_GONE, gone))

    def content(self) -> bytes:
        """Return the file."""
        self._writer.close()
        content: bytes = self._stream.getvalue().to_pybytes()
        return content

    def statistics(self) -> str:
        """Return what is known of it, as a commit has it."""
        return statistics_json(self._statistics)

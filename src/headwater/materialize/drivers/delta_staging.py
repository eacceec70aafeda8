"""The rows of a transaction on their way into a Delta table: a file, and what is known of it.

A file in which all rows are new has the columns of its table and can become one of the table's. As
soon as anything else is to be said of a row, all rows of the file are marked with what is to become
of them, and it is merged.

It is written to disk: where it is to be, if that is a directory of this machine, and else where
Python puts temporary files (``TMPDIR``). It may be as large as a transaction's spill limit, and
memory that grows with it costs more than the disk.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.materialize.drivers.delta_files import COMPRESSION
from headwater.materialize.drivers.delta_tables import GONE
from headwater.materialize.drivers.dictionaries import repeating
from headwater.persist.blob.directory import sync_directory

_GONE: Final = pa.field(GONE, pa.bool_(), nullable=False)
_TEXT_MAX: Final = 32
_GROUP_BYTES: Final = 16 << 20
"""About how much is in one group of rows of a file."""


def statistics_json(file: pq.FileMetaData, schema: pa.Schema) -> str:
    """Return what Delta's readers use to skip a file, as a commit has it: from the file itself.

    Bounds only of integers and short texts: what they must be of others, readers do not agree upon.
    """
    nulls: dict[str, int] = {}
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    for index, field in enumerate(schema):
        chunks = [file.row_group(n).column(index) for n in range(file.num_row_groups)]
        nulls[field.name] = sum(chunk.statistics.null_count for chunk in chunks)
        filled = [c.statistics for c in chunks if c.statistics.null_count < c.num_values]
        # One that is too long for the file's own statistics is too long for the table's.
        bounded = filled and all(found.has_min_max for found in filled)
        if not bounded or field.type not in (pa.int64(), pa.string()):
            continue
        low, high = min(found.min for found in filled), max(found.max for found in filled)
        if not isinstance(low, str) or max(len(low), len(high)) <= _TEXT_MAX:
            least[field.name], greatest[field.name] = low, high
    bounds = {"minValues": least, "maxValues": greatest, "nullCount": nulls}
    return msgspec.json.encode({"numRecords": file.num_rows, **bounds}, order="sorted").decode()


class Staging:
    """The rows of one binding in the transaction in hand."""

    def __init__(self, first: pa.Table, name: str = "", path: Path | None = None) -> None:
        """Begin a file for rows like the first ones, which are written like all others.

        ``name``: under which it can become one of its table's; ``path``: and that is here.
        """
        self.merge = False
        self.name = name
        self._path = path
        self._schema = first.schema
        self._repeating = [*repeating(first)]
        self._metadata: list[pq.FileMetaData] = []
        self._held: list[pa.Table] = []
        self._held_bytes = 0
        self._begin(first.schema)

    def _begin(self, schema: pa.Schema) -> None:
        if self._path is not None:
            self._stream = pa.OSFile(str(self._path), "wb")
            self._file = self._path.open("rb")
        else:
            descriptor, path = tempfile.mkstemp(prefix="headwater-staged-")
            self._file = os.fdopen(descriptor, "rb")
            self._stream = pa.OSFile(path, "wb")
            Path(path).unlink()  # Whatever becomes of us, none is left behind.
        self._writer = pq.ParquetWriter(
            self._stream,
            schema,
            compression=COMPRESSION,
            # To none where it should be to none: an empty list would be to all.
            use_dictionary=self._repeating or False,
            metadata_collector=self._metadata,
        )

    def write(self, rows: pa.Table, gone: pa.BooleanArray, *, merge: bool) -> None:
        """Add rows; ``merge``: their keys may be in the table, or some are to go."""
        if merge and not self.merge:
            # So far all were new; now it must be said of each what is to become of it.
            before = pq.ParquetFile(pa.BufferReader(self.content()))
            self.discard()
            self.merge, self.name, self._path = True, "", None
            self._begin(self._schema.append(_GONE))
            for batch in before.iter_batches():
                marks = pa.repeat(pa.scalar(False), batch.num_rows)
                self._hold(pa.Table.from_batches([batch]).append_column(_GONE, marks))
        self._hold(rows.append_column(_GONE, gone) if self.merge else rows)

    def _hold(self, rows: pa.Table) -> None:
        """Have rows written with those that follow: many small groups take twice as long."""
        self._held.append(rows)
        self._held_bytes += rows.nbytes
        if self._held_bytes >= _GROUP_BYTES:
            self._write_held()

    def _write_held(self) -> None:
        if self._held:
            self._writer.write_table(pa.concat_tables(self._held))
        self._held, self._held_bytes = [], 0

    def _end(self) -> None:
        self._write_held()
        self._writer.close()
        self._stream.close()

    def content(self) -> Any:
        """Return the bytes of the file, mapped; once, after all rows."""
        self._end()
        with self._file as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def settled(self) -> int | None:
        """Make the file durable where it is, after all rows, and return its size; ``None``: it is
        nowhere, and its content has to be put somewhere."""
        if self._path is None:
            return None
        self._end()
        with self._file as file:
            os.fsync(file.fileno())
        sync_directory(self._path.parent)
        return self._path.stat().st_size

    def discard(self) -> None:
        """Leave no file behind."""
        self._writer.close()
        self._stream.close()
        self._file.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def statistics(self) -> str:
        """Return what is known of a file that is made, as a commit has it."""
        return statistics_json(self._metadata[-1], self._schema)

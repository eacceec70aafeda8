"""The Parquet files of an Iceberg table, as we write them: below its data, and named by nobody yet.

A file has the field ids of its table, so that it can become one of the table's as it is. Rows are
written in groups; a file that is large enough is ended, and the next begun. On this machine's disk
an ended file is durable.

What nobody comes to name is left to ``remove_orphan_files``, like any writer's.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from headwater.materialize.drivers.dictionaries import repeating
from headwater.persist.blob.directory import sync_directory

_NAME_BYTES: Final = 8
_GROUP_BYTES: Final = 32 << 20
"""About how much is in one group of rows."""
_FILE_BYTES: Final = 128 << 20
"""How large a file becomes: whoever changes a row of it reads and writes it all."""
_COMPRESSION: Final = "zstd"


class RowFiles:
    """Rows on their way into files of one table."""

    def __init__(self, table: Table) -> None:
        self.files: list[str] = []
        self._table = table
        self._held: list[pa.Table] = []
        self._held_bytes = 0
        self._stream: Any = None
        self._writer: pq.ParquetWriter | None = None

    def write(self, rows: pa.Table) -> None:
        """Add rows."""
        if not rows.num_rows:
            return
        self._held.append(rows)
        self._held_bytes += rows.nbytes
        if self._held_bytes >= _GROUP_BYTES:
            self._write_held()

    def ended(self) -> tuple[str, ...]:
        """Return where the files are, durable, after all rows."""
        self._write_held()
        self._end()
        return tuple(self.files)

    def discard(self) -> None:
        """Leave no file behind, if that can be helped."""
        self._held, self._held_bytes = [], 0
        with suppress(OSError, pa.ArrowException):
            self._close()
        discard(self._table, self.files)
        self.files = []

    def _write_held(self) -> None:
        if not self._held:
            return
        rows = pa.concat_tables(self._held)
        self._held, self._held_bytes = [], 0
        if self._writer is None:
            self._begin(rows)
        assert self._writer is not None
        self._writer.write_table(rows)
        if self._stream.tell() >= _FILE_BYTES:
            self._end()

    def _begin(self, rows: pa.Table) -> None:
        name = f"headwater-{secrets.token_hex(_NAME_BYTES)}.parquet"
        file = self._table.location_provider().new_data_location(name)
        self._stream = self._table.io.new_output(file).create()
        self.files.append(file)
        self._writer = pq.ParquetWriter(
            self._stream,
            rows.schema,
            compression=_COMPRESSION,
            # To none where it should be to none: an empty list would be to all.
            use_dictionary=[*repeating(rows)] or False,
            store_decimal_as_integer=True,
        )

    def _close(self) -> None:
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()
            self._stream.close()

    def _end(self) -> None:
        if self._writer is None:
            return
        self._close()
        here = _path(self.files[-1])
        if here is not None:
            with here.open("rb") as file:
                os.fsync(file.fileno())
            sync_directory(here.parent)


def discard(table: Table, files: list[str] | tuple[str, ...]) -> None:
    """Remove files that no commit names, if that can be helped."""
    for file in files:
        with suppress(OSError):
            table.io.delete(file)


def _path(location: str) -> Path | None:
    """Return where a file is on this machine; ``None``: it is somewhere else."""
    scheme, _, path = PyArrowFileIO.parse_location(location)
    return Path(path) if scheme == "file" else None

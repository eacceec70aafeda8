"""Files: a folder of lines or of Parquet, growing by new files and by appended lines.

The folder is a directory or a prefix of an S3 bucket (``sources/folders.py``). A file is a
partition, named by its path below the folder. Files whose name begins with ``.`` or ``_`` are not
looked at, so whoever writes a file in place can rename it when it is ready.

- **Lines** (JSON, CSV, text): the place of a record is the byte at which its line begins, and the
  frontier is behind the last newline: a line that is still being written is not there yet. (An
  object of S3 is there whole; its end ends its last line.) Empty lines are no records. A CSV may
  have a header line in every file. (A quoted field with a newline in it would be two lines: write
  such data as JSON or Parquet.)
- **Parquet**: the place of a record is its row number. A file without its closing magic is still
  being written, and not there yet.

Reliance *retained upstream*: files stay as long as their owner likes, at least until they were
ingested. A file that is gone later is nothing to us; one that goes before, or that is shorter than
it was, is a definite error that names it: what was in it was promised and cannot be read.

**From options.** ``Files(folder, kind)``: the folder is a path, ``s3://bucket/prefix`` by
:func:`~headwater.storage.sources.folders.folder_of` (with a pattern), or any other ``Folder``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.base.errors import InvalidUsage
from headwater.storage.errors import DefiniteError, TransientError
from headwater.storage.generators.chance import Longs
from headwater.storage.generators.generator import placed, with_diffs
from headwater.storage.offsets import NOTHING, Offsets
from headwater.storage.source import MESSAGE, Piece, Records, Reliance
from headwater.storage.sources.folders import EVERYTHING, Directory, Folder

BLOCK_BYTES: Final = 1024 * 1024
PARQUET_ROWS: Final = 64 * 1024
PARQUET_MAGIC: Final = b"PAR1"

OUTPUT: Final = "files"
"""The one output of such a source."""


class Files:
    """The files of one folder."""

    reliance: Final = Reliance.RETAINED

    def __init__(
        self,
        folder: Path | Folder,
        kind: Literal["lines", "parquet"],
        *,
        pattern: str = EVERYTHING,
        header: bool = False,
        schema: pa.Schema | None = None,
        name: str = "files",
    ) -> None:
        """Read ``folder``; the ``pattern`` belongs to one that is given as a path."""
        if (kind == "parquet") != (schema is not None):
            raise InvalidUsage("a schema belongs to Parquet files, and only to them")
        self.name = name
        self._folder = Directory(folder, pattern) if isinstance(folder, Path) else folder
        self._kind = kind
        self._header = header
        self._schema = schema
        self._known = NOTHING
        self._sizes: dict[str, int] = {}
        """How large each file was when it was last looked into; nothing is new in it until then."""

    # ---- probing -----------------------------------------------------------------------------

    def probe(self) -> Offsets:
        """Return how much of each file is complete."""
        found = {}
        try:
            for partition, size in self._folder.list():
                known = self._known[partition]
                if self._sizes.get(partition) == size:
                    continue
                complete = self._complete(partition, known, size)
                if complete < known:
                    raise self._shrank(partition, known, complete)
                found[partition] = complete
                self._sizes[partition] = size
        except OSError as error:
            where = self._folder.where
            raise TransientError(self.name, f"cannot list {where}: {error}") from error
        # What was there is remembered, also of files that were removed since.
        self._known = self._known.join(Offsets(found))
        return self._known

    def _complete(self, partition: str, known: int, size: int) -> int:
        try:
            if self._kind == "parquet":
                return known or self._parquet_rows(partition, size)
            if size <= known or self._folder.whole:
                return size
            return self._after_last_newline(partition, known, size)
        except FileNotFoundError:
            return known  # Removed since it was listed; whether too early, the read will tell.

    def _after_last_newline(self, partition: str, known: int, size: int) -> int:
        """Return the place behind the last newline, looking no further back than ``known``."""
        end = size
        while end > known:
            start = max(known, end - BLOCK_BYTES)
            found = self._folder.read(partition, start, end - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            end = start
        return known

    def _parquet_rows(self, partition: str, size: int) -> int:
        """Return the rows of a finished file; 0 while it is being written."""
        magic = len(PARQUET_MAGIC)
        if size < 2 * magic or self._folder.read(partition, size - magic, magic) != PARQUET_MAGIC:
            return 0
        with self._folder.open(partition) as file, pq.ParquetFile(file) as parquet:
            return int(parquet.metadata.num_rows)

    def _shrank(self, partition: str, was: int, now: int) -> DefiniteError:
        return DefiniteError(
            self.name,
            f"file {partition!r} shrank from {was} to {now} bytes",
            "files may only grow or be removed once ingested; restore it, or drop the source",
        )

    # ---- reading -----------------------------------------------------------------------------

    def read(self, lower: Offsets, upper: Offsets) -> Iterator[Records]:
        """Return the lines or rows of a range, file by file."""
        for partition, last in upper.items():
            first = lower[partition]
            if first >= last:
                continue
            read = self._rows if self._kind == "parquet" else self._lines
            try:
                yield from read(partition, first, last)
            except FileNotFoundError as error:
                raise DefiniteError(
                    self.name,
                    f"file {partition!r} was removed before it was ingested",
                    "put it back, or drop the source",
                ) from error
            except OSError as error:
                raise TransientError(self.name, f"cannot read {partition!r}: {error}") from error

    def pieces(self, lower: Offsets, upper: Offsets) -> list[Piece]:
        """Return the files, each by itself; a line is taken to be a hundred bytes."""
        found = []
        for partition, last in upper.items():
            first = lower[partition]
            if first < last:
                messages = last - first if self._kind == "parquet" else (last - first) // 100
                piece = (Offsets({partition: first}), Offsets({partition: last}))
                found.append(Piece(*piece, messages))
        return found

    def estimate(self, upper: Offsets) -> int:
        """Return about how many lines or rows there are."""
        return sum(piece.messages for piece in self.pieces(NOTHING, upper))

    def _lines(self, partition: str, first: int, last: int) -> Iterator[Records]:
        at, rest = first, b""
        while at + len(rest) < last:
            start = at + len(rest)
            block = self._folder.read(partition, start, min(BLOCK_BYTES, last - start))
            if not block:
                raise self._shrank(partition, last, start)
            whole, newline, rest = (rest + block).rpartition(b"\n")
            if newline:
                yield from self._records(partition, at, whole)
                at += len(whole) + 1
        if rest:  # The end of an object ends its last line.
            yield from self._records(partition, at, rest)

    def _records(self, partition: str, at: int, whole: bytes) -> Iterator[Records]:
        lines = whole.split(b"\n")
        lengths = np.fromiter((len(line) + 1 for line in lines), np.int64, len(lines))
        places: Longs = at + np.cumsum(lengths) - lengths
        kept = np.fromiter((bool(line.strip()) for line in lines), np.bool_, len(lines))
        if self._header and at == 0:
            kept[0] = False
        values = [line.rstrip(b"\r") for line, keep in zip(lines, kept, strict=True) if keep]
        if values:
            columns = [pa.nulls(len(values), pa.binary()), pa.array(values, pa.binary())]
            payload = pa.Table.from_arrays(columns, schema=MESSAGE)
            yield Records(OUTPUT, placed(partition, places[kept], payload))

    def _rows(self, partition: str, first: int, last: int) -> Iterator[Records]:
        assert self._schema is not None
        with self._folder.open(partition) as opened, pq.ParquetFile(opened) as file:
            stored = file.schema_arrow
            for column in self._schema:
                if column.name not in stored.names and not column.nullable:
                    raise self._misfit(partition, column, "is not in it")
            wanted = [name for name in self._schema.names if name in stored.names]
            at = 0
            for batch in file.iter_batches(PARQUET_ROWS, columns=wanted, use_threads=False):
                start, at = at, at + batch.num_rows
                low, high = max(first, start), min(last, at)
                if low < high:
                    rows = pa.Table.from_batches([batch.slice(low - start, high - low)])
                    places = np.arange(low, high, dtype=np.int64)
                    payload = with_diffs(self._cast(partition, rows), 1)
                    yield Records(OUTPUT, placed(partition, places, payload))
            if at < last:
                raise self._shrank(partition, last, at)

    def _cast(self, partition: str, rows: pa.Table) -> pa.Table:
        assert self._schema is not None
        columns = []
        for column in self._schema:
            if column.name not in rows.column_names:
                columns.append(pa.nulls(rows.num_rows, column.type))
                continue
            found = rows.column(column.name)
            try:
                columns.append(found.cast(column.type))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise self._misfit(partition, column, f"is {found.type}: {error}") from error
            if found.null_count and not column.nullable:
                raise self._misfit(partition, column, "has NULLs, and may not")
        return pa.Table.from_arrays(columns, schema=self._schema)

    def _misfit(self, partition: str, column: pa.Field, why: str) -> DefiniteError:
        return DefiniteError(
            self.name,
            f"file {partition!r}: column {column.name!r} ({column.type}) {why}",
            "write the file again with the columns of the source, or drop the source",
        )

    # ---- the rest of the port ----------------------------------------------------------------

    def commit(self, offsets: Offsets) -> None:
        """Nothing is told to anybody; but what is durable is known to have been there."""
        self._known = self._known.join(offsets)

    def close(self) -> None:
        """Nothing is open between calls."""


__all__ = ["OUTPUT", "Files"]

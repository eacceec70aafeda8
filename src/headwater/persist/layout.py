"""Layouts: how the updates of a part become bytes, and back.

A layout turns a table of updates (data columns, ``__time``, ``__diff``) into the bytes of one
segment. It may sort the rows; it never adds, drops or changes one. Its bytes detect any change of
themselves: ``decode`` raises :class:`~headwater.persist.errors.Corrupt` rather than wrong rows.

- ``inline``: one Arrow record batch without its schema, for small writes kept in the log (whose
  entries and rollups are checksummed as a whole).
- ``parquet``: cold and exchanged data, with page checksums that Spark verifies too.
- further ones are registered by the layers above (keyed runs, in ``collection``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.persist.errors import Corrupt, LayoutMismatch
from headwater.persist.evolution import DIFF, TIME


class Layout(Protocol):
    """How a part's updates are laid out."""

    @property
    def name(self) -> str:
        """Stored with every part."""
        ...

    def encode(self, updates: pa.Table, key: tuple[str, ...]) -> bytes:
        """Return the bytes of a segment with these updates."""
        ...

    def decode(self, data: Any, schema: pa.Schema, what: str) -> pa.Table:
        """Return the updates of a segment; ``data`` is a buffer, ``what`` names it in errors."""
        ...


class InlineLayout:
    """One record batch, its schema known from the collection."""

    name: Final = "inline"

    def encode(self, updates: pa.Table, key: tuple[str, ...]) -> bytes:  # noqa: ARG002
        """Return the updates as one IPC message."""
        batches = updates.combine_chunks().to_batches()
        if not batches:
            batches = [pa.RecordBatch.from_pylist([], schema=updates.schema)]
        (batch,) = batches
        return bytes(batch.serialize())

    def decode(self, data: Any, schema: pa.Schema, what: str) -> pa.Table:
        """Return the updates of one IPC message."""
        try:
            batch = pa.ipc.read_record_batch(pa.py_buffer(data), schema)
        except (pa.ArrowInvalid, OSError) as error:
            raise Corrupt(what, str(error)) from error
        return pa.Table.from_batches([batch], schema=schema)


class ParquetLayout:
    """A Parquet file with page checksums."""

    name: Final = "parquet"

    def encode(self, updates: pa.Table, key: tuple[str, ...]) -> bytes:  # noqa: ARG002
        """Return a whole Parquet file."""
        sink = pa.BufferOutputStream()
        # Building dictionaries costs a small part more than all the rest, twice over on reading;
        # and so does zstd, of a part that a merge will soon rewrite.
        large = updates.num_rows >= DICTIONARY_ROWS_MIN
        small = updates.num_rows < ZSTD_ROWS_MIN
        pq.write_table(
            updates,
            sink,
            use_dictionary=True if large else [TIME, DIFF],
            compression="snappy" if small else "zstd",
            compression_level=None if small else 1,
            write_page_checksum=True,
            write_page_index=False,
        )
        return bytes(sink.getvalue())

    def decode(self, data: Any, schema: pa.Schema, what: str, *, threads: bool = False) -> pa.Table:
        """Return the rows of a Parquet file, every page verified.

        ``threads``: columns side by side. Who reads several parts at once has threads of its own.
        """
        try:
            table = self._open(data, schema, what).read(use_threads=threads)
        except (pa.ArrowInvalid, OSError) as error:
            raise Corrupt(what, str(error)) from error
        return table if table.schema.equals(schema) else table.cast(schema)

    def share(self, data: Any, schema: pa.Schema, what: str, share: tuple[int, int]) -> pa.Table:
        """Return the ``n``-th of ``m`` slices of a Parquet file, by its groups of rows."""
        number, of = share
        try:
            file = self._open(data, schema, what)
            first, end = (file.num_row_groups * n // of for n in (number, number + 1))
            table = file.read_row_groups(range(first, end), use_threads=False)
        except (pa.ArrowInvalid, OSError) as error:
            raise Corrupt(what, str(error)) from error
        return table if table.schema.equals(schema) else table.cast(schema)

    def pieces(
        self, data: Any, schema: pa.Schema, what: str, piece_bytes: int
    ) -> Iterator[pa.Table]:
        """Yield the rows of a Parquet file, about so many bytes at once, every page verified."""
        try:
            file = self._open(data, schema, what)
            rows = min(PIECE_ROWS_MAX, int(piece_bytes / _bytes_each(file)))
            for batch in file.iter_batches(batch_size=max(1, rows), use_threads=False):
                table = pa.Table.from_batches([batch])
                yield table if table.schema.equals(schema) else table.cast(schema)
        except (pa.ArrowInvalid, OSError) as error:
            raise Corrupt(what, str(error)) from error

    def _open(self, data: Any, schema: pa.Schema, what: str) -> Any:
        source = pa.BufferReader(pa.py_buffer(data))
        file = pq.ParquetFile(source, page_checksum_verification=True)
        if file.schema_arrow.names != schema.names:
            raise Corrupt(what, f"it has columns {file.schema_arrow.names}, not {schema.names}")
        return file


def _bytes_each(file: Any) -> float:
    """Return how much a row has, about: in the file, or in memory, where what repeats is larger."""
    metadata = file.metadata
    groups = [metadata.row_group(n).total_byte_size for n in range(metadata.num_row_groups)]
    first = next(file.iter_batches(batch_size=SAMPLE_ROWS, use_threads=False), None)
    sampled: float = 0.0 if first is None else first.nbytes / max(1, first.num_rows)
    stored: float = sum(groups) / max(1, metadata.num_rows)
    return max(1.0, sampled, stored)


PIECE_ROWS_MAX: Final = 1 << 16
"""How many rows of a part are in a piece of it at most."""

SAMPLE_ROWS: Final = 256
"""How many rows of a part are looked at to know how large they are."""

DICTIONARY_ROWS_MIN: Final = 100_000
"""Parts of fewer rows have a dictionary only of times and diffs."""

ZSTD_ROWS_MIN: Final = 10_000
"""Parts of fewer rows are compressed less, and in half the time."""

INLINE: Final = InlineLayout()
PARQUET: Final = ParquetLayout()


class Layouts:
    """The layouts known to a runtime, by name."""

    def __init__(self, *extra: Layout) -> None:
        known: tuple[Layout, ...] = (INLINE, PARQUET, *extra)
        self._by_name: Mapping[str, Layout] = {layout.name: layout for layout in known}

    def __getitem__(self, name: str) -> Layout:
        """Return the layout called ``name``."""
        layout = self._by_name.get(name)
        if layout is None:
            known = ", ".join(sorted(self._by_name))
            raise LayoutMismatch(name, f"layout {name!r} is not known here (known: {known})")
        return layout

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def classes(self) -> tuple[str, ...] | None:
        """Return the further layouts as ``module:class``, by which another process makes them.

        ``None`` if it could not: a class of a function or script, or one with an ``__init__``.
        """
        found = []
        for layout in self._by_name.values():
            kind = type(layout)
            if layout is INLINE or layout is PARQUET:
                continue
            local = "<" in kind.__qualname__ or kind.__module__ == "__main__"
            if local or kind.__init__ is not object.__init__:
                return None
            found.append(f"{kind.__module__}:{kind.__qualname__}")
        return tuple(found)

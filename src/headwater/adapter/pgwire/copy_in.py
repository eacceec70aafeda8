"""The bytes of a COPY from the client → Arrow batches, as they arrive.

A :class:`CopyDecoder` is fed pieces whose borders mean nothing and gives batches of whole rows.
What it holds between two calls is one incomplete row, of a bounded length; so the memory of a COPY
is bounded by the piece and the row, never by the whole.

The three formats are PostgreSQL's: escapes, ``\\N``, ``\\.`` and line ends in text; quotes anywhere
in a field, and an unquoted empty field being NULL, in CSV; header, counts and trailer in binary.
What is wrong is refused with its line, as PostgreSQL does in its context.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from headwater.adapter.pgwire.backend import Column
from headwater.adapter.pgwire.copy_binary import BinaryDecoder
from headwater.adapter.pgwire.copy_csv import CsvDecoder
from headwater.adapter.pgwire.copy_format import CopyFormat
from headwater.adapter.pgwire.copy_text import TextDecoder


class CopyDecoder(Protocol):
    """Pieces in, batches of whole rows out."""

    def feed(self, piece: bytes) -> pa.RecordBatch | None:
        """The rows that this piece completes."""
        ...

    def finish(self) -> pa.RecordBatch | None:
        """The rows that the end of the data completes."""
        ...


def decoder(columns: Sequence[Column], chosen: CopyFormat) -> CopyDecoder:
    """A decoder of rows with these columns."""
    if chosen.is_binary:
        return BinaryDecoder(columns)
    return CsvDecoder(columns, chosen) if chosen.kind == "csv" else TextDecoder(columns, chosen)

"""Codecs: how somebody's rows become columns, and back, over the years.

A collection stores Arrow columns. A **codec** is a public port that turns the rows of an
application into such columns and columns into rows. It has a *name* and a *version*, and both are
recorded with every version of the collection's schema, hence with every part.

Laws, for a codec at version ``v`` (who keeps them: its author; what we check is said below):

- ``decode(encode(rows), v) == rows``, and equal rows have identical columns: row identity is the
  identity of the encoded columns (``persist/consolidate.py``);
- ``decode(table, w)`` reads what version ``w < v`` wrote, at least for ``w = v - 1``;
- ``schema`` is an allowed evolution of the schema of the version before it.

Hence ``upgraded``: columns of an older version are decoded and encoded again while they are read,
so that a retraction written by the new version cancels a row written by the old one.

Refused: another name, or an older version than the one that wrote last (``CodecMismatch``); columns
that are not what ``schema`` says (``SchemaMismatch``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa

from headwater.persist.changes import Codec as CodecRecord
from headwater.persist.errors import CodecMismatch, SchemaMismatch, TimeOutOfBounds
from headwater.persist.evolution import DIFF, TIME


class Codec(Protocol):
    """How rows become columns, and back."""

    @property
    def name(self) -> str:
        """Recorded with the collection; never changes."""
        ...

    @property
    def version(self) -> int:
        """Raised whenever what :meth:`encode` writes changes its meaning."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """The columns that :meth:`encode` makes."""
        ...

    def encode(self, rows: Sequence[Any]) -> pa.Table:
        """Return the rows as columns, in order. ``ValueError`` or ``TypeError`` refuse a row."""
        ...

    def decode(self, table: pa.Table, version: int) -> list[Any]:
        """Return the rows of columns which version ``version`` (ours, or an older one) wrote."""
        ...


class ArrowCodec:
    """Rows that are mappings from column names to values: the codec of whoever brings none."""

    name: Final = "arrow"
    version: Final = 1

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def encode(self, rows: Sequence[Any]) -> pa.Table:
        """Return the rows as columns; a column that a row lacks is NULL in it."""
        known = set(self.schema.names)
        for row in rows:
            unknown = sorted(set(row) - known)
            if unknown:
                raise ValueError(f"there is no column {unknown[0]!r} in {self.schema.names}")
        return pa.Table.from_pylist([dict(row) for row in rows], schema=self.schema)

    def decode(self, table: pa.Table, version: int) -> list[Any]:  # noqa: ARG002
        """Return each row as a dictionary."""
        rows: list[Any] = table.to_pylist()
        return rows


def record_of(codec: Codec) -> CodecRecord:
    """Return what the log remembers of a codec."""
    return CodecRecord(codec.name, codec.version)


def check_reads(name: str, stored: CodecRecord, codec: Codec) -> None:
    """Refuse a codec that cannot read what ``stored`` wrote."""
    if codec.name != stored.name or codec.version < stored.version:
        raise CodecMismatch(name, str(stored), str(record_of(codec)))


def encoded(name: str, codec: Codec, rows: Iterable[tuple[Any, int, int]]) -> pa.Table:
    """Return ``(row, time, diff)`` triples as a table of updates for collection ``name``."""
    triples = list(rows)
    for _, time, _ in triples:
        if not 0 <= time < 2**63:  # Bounds of the column; decisions know the bounds of time.
            raise TimeOutOfBounds(f"update for collection {name!r}", time)
    try:
        table = _columns(codec, [row for row, _, _ in triples])
        diffs = pa.array([diff for _, _, diff in triples], pa.int64())
    except (ValueError, TypeError, OverflowError) as error:  # Arrow's own are among these
        raise SchemaMismatch(name, str(error)) from error
    times = pa.array([time for _, time, _ in triples], pa.int64())
    return table.append_column(TIME, times).append_column(DIFF, diffs)


def upgraded(codec: Codec, updates: pa.Table, version: int) -> pa.Table:
    """Return updates that ``version`` wrote as ``codec`` would write them now."""
    system = [TIME, DIFF]
    rows = codec.decode(updates.drop_columns(system), version)
    table = _columns(codec, rows)
    for column in system:
        table = table.append_column(updates.schema.field(column), updates.column(column))
    return table


def _columns(codec: Codec, rows: list[Any]) -> pa.Table:
    table = codec.encode(rows)
    if not table.schema.equals(codec.schema) or table.num_rows != len(rows):
        raise ValueError(
            f"codec {record_of(codec)} made {table.num_rows} rows of {table.schema.names} out of "
            f"{len(rows)} rows, and promised {codec.schema.names}"
        )
    return table

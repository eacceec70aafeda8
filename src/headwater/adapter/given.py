"""Rows that a statement gives as values, encoded together with those of others.

To make an Arrow table of one row costs nearly as much as of a hundred. So a statement checks its
values and keeps them as they are, a list for each column, and whoever commits many statements at
once has the rows of all of them encoded in one go (:func:`encode`); each has its own part of that
table then. Who asks for the rows before (a transaction block) encodes them alone.

A value that Arrow does not take is the fault of its own statement: the others are encoded without.

Kept by: this module. Relied on by: ``adapter/writes.py``, ``adapter/group_commit.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from headwater.adapter.sql.statements import Value


class GivenRows:
    """Rows of ``schema``, by columns, in its order; what a table of it takes."""

    def __init__(self, schema: pa.Schema, columns: Sequence[list[Value]], num_rows: int) -> None:
        self.schema = schema
        self.columns = columns
        self.num_rows = num_rows
        self._table: pa.Table | None = None

    @property
    def table(self) -> pa.Table:
        """The rows, encoded."""
        if self._table is None:
            self._table = _encoded(self.schema, self.columns)
        return self._table

    @property
    def is_encoded(self) -> bool:
        """Whether somebody has asked for them."""
        return self._table is not None

    def is_part(self, table: pa.Table, start: int) -> None:
        """Take a part of a table for these rows."""
        self._table = table.slice(start, self.num_rows)


def encode(given: Iterable[GivenRows]) -> None:
    """Encode the rows of many, those of one schema together."""
    by_schema: dict[int, list[GivenRows]] = {}
    for each in given:
        if each.is_encoded:
            continue
        # The schema of a table is the same object for as long as it is the same.
        by_schema.setdefault(id(each.schema), []).append(each)
    for together in by_schema.values():
        columns: list[list[Value]] = [[] for _ in together[0].columns]
        for each in together:
            for column, values in zip(columns, each.columns, strict=True):
                column.extend(values)
        try:
            table = _encoded(together[0].schema, columns)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            continue  # One of them is to blame, and will be told when it is asked for alone.
        start = 0
        for each in together:
            each.is_part(table, start)
            start += each.num_rows


def _encoded(schema: pa.Schema, columns: Sequence[list[Value]]) -> pa.Table:
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)
